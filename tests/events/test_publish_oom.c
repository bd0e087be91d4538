/* events/test_publish_oom.c - memory that runs out: for every n, the n-th allocation of publisher
 * and subscriber fails, or all the time each n-th. Creation answers with an error; whoever runs
 * counts a loss, tells everything anew, and the index is the pool's in the end. (Linked so that
 * malloc and its kin come here; those inside of libzmq do not.) */
#include "engine_kit.h"

#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static _Atomic uint64_t calls;
static _Atomic uint64_t failing; /* this one; 0: none */
static _Atomic uint64_t every;   /* and each of these; 0: none */

static bool may_go_on(void)
{
    uint64_t call = ++calls;
    uint64_t each = every;
    return call != failing && (each == 0 || call % each != 0);
}

void *__wrap_malloc(size_t size)
{
    return may_go_on() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_go_on() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_go_on() ? __real_realloc(memory, size) : NULL;
}

static void set_failing(uint64_t one, uint64_t each)
{
    calls = 0;
    failing = one;
    every = each;
}

static engine e;

static int open_engine(void **state)
{
    (void)state;
    engine_options options = {.has_tokens = true, .has_window = true, .seed = 1};
    engine_open(&e, &options);
    engine_run(&e, 100);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(&e);
    return 0;
}

static int create_publisher(quire_publisher **publisher)
{
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.monitor = e.monitor;
    config.endpoint = "tcp://127.0.0.1:*";
    config.replay_endpoint = "tcp://127.0.0.1:*";
    config.buffer_steps = 1000;
    int status = quire_publisher_create(&config, publisher);
    assert_int_equal(quire_refusal()[0] != 0, status != QUIRE_OK);
    return status;
}

/* Until all allocations of a creation have failed once. */
static void publisher_is_not_made(void **state)
{
    (void)state;
    uint64_t num_failed = 0;
    for (uint64_t n = 1;; n++) {
        quire_publisher *publisher;
        set_failing(n, 0);
        int status = create_publisher(&publisher);
        set_failing(0, 0);
        if (status == QUIRE_OK) {
            quire_publisher_destroy(publisher);
            break;
        }
        assert_int_equal(status, QUIRE_E_NOMEM);
        num_failed++;
    }
    assert_true(num_failed >= 8);
}

static void subscriber_is_not_made(void **state)
{
    (void)state;
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = "tcp://127.0.0.1:9";
    config.replay_endpoint = "tcp://127.0.0.1:9";
    uint64_t num_failed = 0;
    for (uint64_t n = 1;; n++) {
        quire_subscriber *subscriber;
        set_failing(n, 0);
        int status = quire_subscriber_create(&config, &subscriber);
        set_failing(0, 0);
        if (status == QUIRE_OK) {
            quire_subscriber_destroy(subscriber);
            break;
        }
        assert_int_equal(status, QUIRE_E_NOMEM);
        num_failed++;
    }
    assert_true(num_failed >= 2);
}

/* The publisher's thread loses batches, and snapshots that it would make; it says so in time. */
static void publisher_loses(void **state)
{
    (void)state;
    static const uint64_t each[] = {2, 3, 7, 50};
    for (size_t i = 0; i < COUNT(each); i++) {
        listener l;
        quire_publisher *publisher;
        assert_int_equal(create_publisher(&publisher), QUIRE_OK);
        quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
        config.endpoint = quire_publisher_endpoint(publisher);
        config.replay_endpoint = quire_publisher_replay_endpoint(publisher);
        listener_open(&l, &config, 0);
        assert_true(listener_follows(&l, &e));
        set_failing(0, each[i]); /* nobody listens meanwhile: the publisher is alone in this */
        for (int n = 0; n < 20; n++) {
            engine_run(&e, 20);
            uint64_t until_ms = engine_now_ms() + 3;
            while (engine_now_ms() < until_ms)
                ;
        }
        set_failing(0, 0);
        assert_true(listener_follows(&l, &e));
        assert_true(engine_publisher_stats(publisher).num_lost > 0);
        assert_int_equal(l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
        listener_close(&l);
        quire_publisher_destroy(publisher);
    }
}

/* A subscriber that has no memory for a batch says so, and goes on with the next. */
static void subscriber_loses(void **state)
{
    (void)state;
    quire_delivery d = QUIRE_DELIVERY_INIT;
    quire_publisher *publisher;
    quire_subscriber *subscriber;
    assert_int_equal(create_publisher(&publisher), QUIRE_OK);
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = quire_publisher_endpoint(publisher);
    config.replay_endpoint = quire_publisher_replay_endpoint(publisher);
    assert_int_equal(quire_subscriber_create(&config, &subscriber), QUIRE_OK);
    uint64_t num_failed = 0;
    uint64_t num_good = 0;
    uint64_t until_ms = engine_now_ms() + ENGINE_PATIENCE_MS;
    while (engine_publisher_stats(publisher).num_batches < 50 && engine_now_ms() < until_ms)
        engine_run(&e, 1);
    while (num_good < 20 && engine_now_ms() < until_ms) {
        set_failing(0, num_failed < 5 ? 1 : 0); /* all of them */
        int status = quire_subscriber_next(subscriber, 20, &d);
        set_failing(0, 0);
        assert_true(status == QUIRE_OK || status == QUIRE_RETRY || status == QUIRE_E_NOMEM);
        num_failed += status == QUIRE_E_NOMEM;
        num_good += status == QUIRE_OK;
        engine_run(&e, 1);
    }
    assert_int_equal(num_good, 20);
    assert_int_equal(num_failed, 5);
    quire_subscriber_destroy(subscriber);
    quire_publisher_destroy(publisher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(publisher_is_not_made),
        cmocka_unit_test(subscriber_is_not_made),
        cmocka_unit_test(publisher_loses),
        cmocka_unit_test(subscriber_loses),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
