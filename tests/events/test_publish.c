/* events/test_publish.c - publisher and subscriber together: the router's index is the pool's. */
#include "engine_kit.h"

#include "block/pool.h"

#include <pthread.h>
#include <unistd.h>
#include <zmq.h>

static uint64_t seed;

/* ---- a publisher that stands still ------------------------------------------ */

/* Where the publisher's thread waits for requests, it waits for us too. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_wanted;
    bool is_still;
} hold = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __real_zmq_poll(zmq_pollitem_t *items, int count, long timeout_ms);
int __wrap_zmq_poll(zmq_pollitem_t *items, int count, long timeout_ms);

int __wrap_zmq_poll(zmq_pollitem_t *items, int count, long timeout_ms)
{
    pthread_mutex_lock(&hold.lock);
    while (hold.is_wanted) {
        hold.is_still = true;
        pthread_cond_broadcast(&hold.changed);
        pthread_cond_wait(&hold.changed, &hold.lock);
    }
    hold.is_still = false;
    pthread_cond_broadcast(&hold.changed);
    pthread_mutex_unlock(&hold.lock);
    return __real_zmq_poll(items, count, timeout_ms);
}

/* Returns once it stands still: what it has read is counted. */
static void hold_publisher(void)
{
    pthread_mutex_lock(&hold.lock);
    hold.is_wanted = true;
    while (!hold.is_still)
        pthread_cond_wait(&hold.changed, &hold.lock);
    pthread_mutex_unlock(&hold.lock);
}

static void let_publisher_go(void)
{
    pthread_mutex_lock(&hold.lock);
    hold.is_wanted = false;
    pthread_cond_broadcast(&hold.changed);
    while (hold.is_still)
        pthread_cond_wait(&hold.changed, &hold.lock);
    pthread_mutex_unlock(&hold.lock);
}

/* ---- both together ---------------------------------------------------------- */

/* A publisher of an engine, on ports that the system chooses. */
static quire_publisher *publish(const engine *e, quire_publisher_config *config)
{
    quire_publisher *publisher = NULL;
    config->monitor = e->monitor;
    if (config->endpoint == NULL)
        config->endpoint = "tcp://127.0.0.1:*";
    if (quire_publisher_create(config, &publisher) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    return publisher;
}

static quire_subscriber_config listen_to(const quire_publisher *publisher)
{
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = quire_publisher_endpoint(publisher);
    config.quiet_ms = 200; /* where the last batch is dropped, nothing follows to show it */
    config.replay_timeout_ms = ENGINE_PATIENCE_MS; /* a slow machine is no gap */
    if (quire_publisher_replay_endpoint(publisher)[0] != 0)
        config.replay_endpoint = quire_publisher_replay_endpoint(publisher);
    return config;
}

/* From the first batch on: live ones, and those before it by replay. */
static void follow_from_start(void **state)
{
    (void)state;
    for (uint32_t form = 0; form < 8; form++) {
        engine e;
        listener l;
        engine_options options = {.has_tokens = (form & 1) != 0,
                                  .has_window = (form & 2) != 0,
                                  .has_resets = true,
                                  .seed = seed + form};
        quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
        engine_open(&e, &options);
        config.replay_endpoint = "tcp://127.0.0.1:*";
        config.every_copy = (form & 4) != 0;
        config.as_maps = (form & 1) != 0;
        config.hashes_as_bytes = (form & 2) != 0;
        config.rank = form;
        quire_publisher *publisher = publish(&e, &config);
        quire_subscriber_config from = listen_to(publisher);
        listener_open(&l, &from, config.every_copy);
        for (int i = 0; i < 5; i++) {
            engine_run(&e, 40);
            assert_true(listener_follows(&l, &e));
        }
        quire_publisher_stats stats = engine_publisher_stats(publisher);
        assert_int_equal(stats.num_lost, 0);
        assert_int_equal(stats.num_unsent, 0);
        assert_int_equal(stats.num_batches, l.next);
        assert_true(stats.num_bytes > stats.num_batches);
        assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
        assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_RESTART], 0);
        listener_close(&l);
        quire_publisher_destroy(publisher);
        engine_close(&e);
    }
}

/* Counts the stored events of a delivery, and checks what they say of their groups. */
static uint32_t check_groups(const quire_delivery *d, bool is_0_32)
{
    static const char *const KINDS[] = {"full_attention", "sliding_window"};
    uint32_t num_stored = 0;
    for (uint32_t i = 0; i < d->batch.num_events; i++) {
        const quire_wire_event *e = quire_wire_get(d->events, i);
        bool is_told = is_0_32 && e->kind == QUIRE_WIRE_STORED;
        bool has_window = is_told && e->group == 1;
        assert_int_equal(e->spec_kind.data != NULL, is_told);
        assert_int_equal(e->has_sliding_window, has_window);
        assert_int_equal(e->sliding_window, has_window ? 2 * ENGINE_BLOCK : 0);
        if (is_told)
            assert_memory_equal(e->spec_kind.data, KINDS[e->group], e->spec_kind.len);
        assert_true(e->locality.data == NULL && e->ownership.data == NULL);
        assert_null(e->session_id.data);
        num_stored += e->kind == QUIRE_WIRE_STORED;
    }
    return num_stored;
}

/* Whether a batch is one of arrays or of maps: its first event begins so. */
static bool has_maps(const quire_delivery *d)
{
    quire_bytes bytes;
    quire_wire_writer *writer = NULL;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    options.as_maps = 1;
    assert_int_equal(quire_wire_writer_create(&options, &writer), QUIRE_OK);
    assert_int_equal(quire_wire_begin(writer), QUIRE_OK);
    for (uint32_t i = 0; i < d->batch.num_events; i++)
        assert_int_equal(quire_wire_add(writer, quire_wire_get(d->events, i)), QUIRE_OK);
    assert_int_equal(quire_wire_end(writer, d->batch.time, d->batch.rank, &bytes), QUIRE_OK);
    bool is_same = bytes.len == d->bytes.len && memcmp(bytes.data, d->bytes.data, bytes.len) == 0;
    quire_wire_writer_destroy(writer);
    return is_same;
}

static uint32_t num_extra_keys(const engine *e)
{
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(e->sched));
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->extras.num_extras; i++)
        count += pool->extras.owners[i] != 0;
    return count;
}

/* Of blocks with several keys all are told, live and as a whole. */
static void follow_several_keys(const engine_options *options)
{
    engine e;
    listener l;
    uint32_t most = 0;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, options);
    config.replay_endpoint = "tcp://127.0.0.1:*";
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    listener_open(&l, &from, 0);
    for (int i = 0; i < 10; i++) {
        engine_run(&e, 40);
        most = num_extra_keys(&e) > most ? num_extra_keys(&e) : most;
        assert_true(listener_follows(&l, &e));
    }
    assert_true(most > 0);
    assert_int_equal(engine_publisher_stats(publisher).num_lost, 0);
    listener_close(&l);
    from.start = 0; /* the whole index */
    listener_open(&l, &from, 0);
    assert_true(listener_follows(&l, &e));
    listener_close(&l);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* vLLM 0.32: blocks of two hashes may have two keys. */
static void blocks_have_several_keys(void **state)
{
    (void)state;
    engine_options options = {
        .has_window = true, .has_wide = true, .seed = seed, .profile = QUIRE_PROFILE_VLLM_0_32};
    follow_several_keys(&options);
}

/* The state where a prompt ends has a key, which goes to a copy when the request goes on. */
static void keys_move_to_copies(void **state)
{
    (void)state;
    engine_options options = {
        .has_states = true, .has_wide = true, .seed = seed, .profile = QUIRE_PROFILE_VLLM_0_32};
    follow_several_keys(&options);
}

/* The form of the batches, live, replayed and of the whole index, is that of the profile. */
static void form_is_that_of_the_profile(void **state)
{
    (void)state;
    for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
        for (uint32_t start = 0; start <= 2; start += 2) {
            engine e;
            bool is_0_32 = profile == QUIRE_PROFILE_VLLM_0_32;
            engine_options options = {.has_tokens = true,
                                      .has_window = true,
                                      .seed = seed,
                                      .profile = (quire_profile)profile};
            quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
            engine_open(&e, &options);
            config.replay_endpoint = "tcp://127.0.0.1:*";
            config.topic = "topic";
            quire_publisher *publisher = publish(&e, &config);
            engine_run(&e, 100);
            quire_subscriber *subscriber = NULL;
            quire_subscriber_config from = listen_to(publisher);
            quire_delivery d = QUIRE_DELIVERY_INIT;
            from.start = start; /* the whole index, or all batches */
            assert_int_equal(quire_subscriber_create(&from, &subscriber), QUIRE_OK);
            uint32_t num_stored[QUIRE_DELIVERY_WHOLE + 1] = {0};
            quire_delivery_kind wanted =
                start == 0 ? QUIRE_DELIVERY_SNAPSHOT : QUIRE_DELIVERY_REPLAY;
            for (int i = 0; i < 2000 && (num_stored[wanted] == 0 || num_stored[1] == 0); i++) {
                int status = quire_subscriber_next(subscriber, 20, &d);
                if (status != QUIRE_OK) { /* all that there is was read */
                    assert_int_equal(status, QUIRE_RETRY);
                    engine_step(&e);
                    continue;
                }
                num_stored[d.kind] += check_groups(&d, is_0_32);
                assert_true(d.batch.num_events == 0 || has_maps(&d) == is_0_32);
            }
            assert_true(num_stored[wanted] > 0 && num_stored[QUIRE_DELIVERY_LIVE] > 0);
            quire_subscriber_destroy(subscriber);
            quire_publisher_destroy(publisher);
            engine_close(&e);
        }
    }
}

/* Those who come later begin with the whole index; without it, as far back as replay goes. */
static void late_joiners(void **state)
{
    (void)state;
    engine e;
    listener l[3];
    engine_options options = {.has_window = true, .seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    engine_run(&e, 300); /* before there is a publisher: what is there comes by a walk */
    config.replay_endpoint = "tcp://127.0.0.1:*";
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    listener_open(&l[0], &from, 0);
    assert_true(listener_follows(&l[0], &e));
    engine_run(&e, 300);
    listener_open(&l[1], &from, 0);
    assert_true(listener_follows(&l[1], &e));
    assert_true(l[1].num_deliveries[QUIRE_DELIVERY_SNAPSHOT] > 0);
    assert_int_equal(l[1].num_deliveries[QUIRE_DELIVERY_WHOLE], 1);
    assert_int_equal(engine_publisher_stats(publisher).is_whole, 1);
    from.start = 2;
    listener_open(&l[2], &from, 0);
    assert_true(listener_follows(&l[2], &e));
    assert_true(l[2].num_deliveries[QUIRE_DELIVERY_REPLAY] > 0);
    assert_int_equal(l[2].num_deliveries[QUIRE_DELIVERY_SNAPSHOT], 0);
    engine_run(&e, 300);
    for (int i = 0; i < 3; i++) {
        assert_true(listener_follows(&l[i], &e));
        assert_int_equal(l[i].num_deliveries[QUIRE_DELIVERY_GAP], 0);
        listener_close(&l[i]);
    }
    assert_true(engine_publisher_stats(publisher).num_snapshots > 0);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* The publisher misses events, again and again: it says so and tells all anew. In every second
 * round it stands still meanwhile; in the others it reads where the engine writes. */
static void ring_overflows(void **state)
{
    (void)state;
    for (uint32_t every_copy = 0; every_copy < 2; every_copy++) {
        engine e;
        listener l;
        engine_options options = {.num_blocks = 300,
                                  .event_bytes = 1 << 14,
                                  .has_window = true,
                                  .seed = seed + every_copy};
        quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
        engine_open(&e, &options);
        config.replay_endpoint = "tcp://127.0.0.1:*";
        config.every_copy = every_copy;
        quire_publisher *publisher = publish(&e, &config);
        quire_subscriber_config from = listen_to(publisher);
        listener_open(&l, &from, every_copy);
        for (int i = 0; i < 3; i++) {
            hold_publisher();
            uint64_t num_lost = engine_publisher_stats(publisher).num_lost;
            engine_run(&e, 500);
            let_publisher_go();
            assert_true(listener_follows(&l, &e));
            hold_publisher();
            num_lost = engine_publisher_stats(publisher).num_lost - num_lost;
            let_publisher_go();
            assert_true(num_lost > 0);
            engine_run(&e, 500);
            assert_true(listener_follows(&l, &e));
        }
        assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
        listener_close(&l);
        quire_publisher_destroy(publisher);
        engine_close(&e);
    }
}

/* A subscriber that lags misses batches: replay brings them, or else the whole index. */
static void gaps_are_filled(void **state)
{
    (void)state;
    static const uint32_t buffers[] = {0, 5};
    for (uint32_t i = 0; i < COUNT(buffers); i++) {
        engine e;
        listener l;
        engine_options options = {.has_tokens = true, .seed = seed + i};
        quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
        engine_open(&e, &options);
        config.endpoint = "ipc://*"; /* whose queues in the system are short */
        config.replay_endpoint = "tcp://127.0.0.1:*";
        config.buffer_steps = buffers[i];
        config.hwm = 4;
        quire_publisher *publisher = publish(&e, &config);
        quire_subscriber_config from = listen_to(publisher);
        from.hwm = 4;
        listener_open(&l, &from, 0);
        for (int round = 0; round < 2; round++) {
            engine_run(&e, 1500); /* more than all of them take in */
            assert_true(listener_follows(&l, &e));
        }
        quire_delivery_kind by = i == 0 ? QUIRE_DELIVERY_REPLAY : QUIRE_DELIVERY_SNAPSHOT;
        if (l.num_deliveries[by] == 0)
            assert_true(l.num_deliveries[by] > 0);
        assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
        listener_close(&l);
        quire_publisher_destroy(publisher);
        engine_close(&e);
    }
}

/* The index of a publisher that has told nothing yet is empty. Who reads that answer late, when
 * replay goes back no more to the first batch, asks again. */
static void an_answer_of_nothing(void **state)
{
    (void)state;
    engine e;
    listener l;
    engine_options options = {.has_tokens = true, .seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    config.replay_endpoint = "tcp://127.0.0.1:*";
    config.buffer_steps = 5;
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    listener_open(&l, &from, 0);
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (engine_publisher_stats(publisher).num_snapshots == 0)
        assert_true(engine_now_ms() < until_ms);
    engine_run(&e, 300);
    assert_true(listener_follows(&l, &e));
    assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
    listener_close(&l);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* A new publisher at the same address, by numbers that go back or by a batch that is not ours. */
static void publisher_restarts(void **state)
{
    (void)state;
    engine e;
    listener l;
    char endpoint[64];
    char replay[64];
    engine_options options = {.seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    config.replay_endpoint = "tcp://127.0.0.1:*";
    quire_publisher *publisher = publish(&e, &config);
    (void)snprintf(endpoint, sizeof endpoint, "%s", quire_publisher_endpoint(publisher));
    (void)snprintf(replay, sizeof replay, "%s", quire_publisher_replay_endpoint(publisher));
    config.endpoint = endpoint;
    config.replay_endpoint = replay;
    quire_subscriber_config from = listen_to(publisher);
    from.endpoint = endpoint;
    from.replay_endpoint = replay;
    listener_open(&l, &from, 0);
    uint32_t steps = 100;
    for (int life = 0; life < 4; life++) {
        uint64_t restarts = l.num_deliveries[QUIRE_DELIVERY_RESTART];
        engine_run(&e, steps);
        if (life > 0) { /* the subscriber has to find its way back first */
            uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
            while (l.num_deliveries[QUIRE_DELIVERY_RESTART] == restarts &&
                   engine_now_ms() < until_ms)
                if (!listener_take(&l, 10))
                    engine_step(&e);
            assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_RESTART], restarts + 1);
        }
        assert_true(listener_follows(&l, &e));
        quire_publisher_destroy(publisher);
        publisher = publish(&e, &config);
        steps *= 2; /* so that its numbers are ahead of the old ones when it is met again */
    }
    listener_close(&l);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* Without a replay endpoint a gap stays one, and is told. */
static void gap_is_told(void **state)
{
    (void)state;
    engine e;
    listener l;
    engine_options options = {.has_tokens = true, .seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    config.endpoint = "ipc://*";
    config.hwm = 2;
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    from.hwm = 2;
    listener_open(&l, &from, 0);
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (l.num_deliveries[QUIRE_DELIVERY_GAP] == 0 && engine_now_ms() < until_ms) {
        engine_run(&e, 1000);
        while (listener_take(&l, 20))
            ;
    }
    assert_true(l.num_deliveries[QUIRE_DELIVERY_GAP] > 0);
    listener_close(&l);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* A file that others cannot open, and topics. */
static void topics_and_files(void **state)
{
    (void)state;
    engine e;
    listener l[2];
    engine_options options = {.seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    config.endpoint = "ipc://*";
    config.replay_endpoint = "ipc://*";
    config.topic = "kv@here";
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    from.topic = "kv@";
    listener_open(&l[0], &from, 0);
    from.topic = "other";
    from.start = 1;
    listener_open(&l[1], &from, 0);
    engine_run(&e, 100);
    assert_true(listener_follows(&l[0], &e));
    assert_false(listener_take(&l[1], 50));
    listener_close(&l[0]);
    listener_close(&l[1]);
    quire_publisher_destroy(publisher);
    engine_close(&e);
}

/* The publisher connects to a subscriber that listens, as engines do that report to one router. */
static void publisher_connects(void **state)
{
    (void)state;
    engine e;
    listener l;
    engine_options options = {.seed = seed};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_open(&e, &options);
    config.endpoint = "ipc://quire-test-connects";
    config.replay_endpoint = "tcp://127.0.0.1:*";
    config.listen = QUIRE_OFF;
    quire_publisher *publisher = publish(&e, &config);
    quire_subscriber_config from = listen_to(publisher);
    from.listen = QUIRE_ON;
    listener_open(&l, &from, 0);
    engine_run(&e, 100);
    assert_true(listener_follows(&l, &e));
    engine_run(&e, 100);
    assert_true(listener_follows(&l, &e));
    listener_close(&l);
    quire_publisher_destroy(publisher);
    engine_close(&e);
    (void)unlink("quire-test-connects"); /* libzmq leaves it */
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follow_from_start),        cmocka_unit_test(late_joiners),
        cmocka_unit_test(ring_overflows),           cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(an_answer_of_nothing),     cmocka_unit_test(gap_is_told),
        cmocka_unit_test(publisher_restarts),       cmocka_unit_test(topics_and_files),
        cmocka_unit_test(publisher_connects),       cmocka_unit_test(form_is_that_of_the_profile),
        cmocka_unit_test(blocks_have_several_keys), cmocka_unit_test(keys_move_to_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
