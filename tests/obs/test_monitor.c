/* obs/test_monitor.c - a scheduler with a monitor: events with their tokens, batches, walks, steps,
 * and what a reader that is too slow still learns.
 */
#include "../sched/sched_kit.h"
#include "obs/monitor.h"

#include <stdio.h>

enum { MAX_POOL = 64 };

typedef struct watch {
    sched_kit kit;
    quire_monitor_config config;
    quire_reader *reader;
    quire_feed_event event;
    unsigned char picture[MAX_POOL][32]; /* of the pool: the key of each block, zeros: none */
    uint64_t walked;
} watch;

static double fixed_time(void *user)
{
    (void)user;
    return 1.5;
}

static void open_watch(watch *w, quire_switch token_ids, uint32_t event_bytes)
{
    *w = (watch){.config = QUIRE_MONITOR_CONFIG_INIT};
    w->config.token_ids = token_ids;
    w->config.event_bytes = event_bytes;
    w->config.wall_time = fixed_time;
    quire_sched_config c = kit_config(&w->kit);
    c.monitor = &w->config;
    kit_open(&w->kit, &c);
    assert_int_equal(quire_reader_create(quire_sched_get_monitor(w->kit.sched), NULL, &w->reader),
                     QUIRE_OK);
}

static void close_watch(watch *w)
{
    quire_reader_destroy(w->reader);
    kit_close(&w->kit);
}

static quire_feed_kind next_kind(watch *w)
{
    w->event.size = sizeof w->event;
    int err = quire_reader_next(w->reader, &w->event);
    assert_true(err == QUIRE_OK || err == QUIRE_RETRY);
    return err == QUIRE_OK ? w->event.kind : (quire_feed_kind)0;
}

/* Notes what was said of each block. Returns QUIRE_LOST when something was lost. */
static int follow(watch *w)
{
    int answer = QUIRE_OK;
    for (;;) {
        const quire_feed_event *e = &w->event;
        w->event.size = sizeof w->event;
        int err = quire_reader_next(w->reader, &w->event);
        if (err == QUIRE_RETRY)
            return answer;
        if (err == QUIRE_LOST) {
            answer = err;
            continue;
        }
        assert_int_equal(err, QUIRE_OK);
        for (uint32_t i = 0; i < e->num_blocks; i++) {
            if (e->blocks[i] == QUIRE_NULL_BLOCK)
                continue;
            unsigned char *key = w->picture[e->blocks[i]];
            if (e->kind == QUIRE_FEED_REMOVED)
                memset(key, 0, 32);
            else
                memcpy(key, e->hashes + (size_t)i * e->hash_bytes, e->hash_bytes);
        }
        if (e->kind == QUIRE_FEED_CLEARED)
            memset(w->picture, 0, sizeof w->picture);
        if (e->kind == QUIRE_FEED_WALKED)
            w->walked = e->number;
    }
}

static bool is_picture_right(const watch *w)
{
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(w->kit.sched));
    static const unsigned char NOTHING[32];
    quire_block_info info;
    for (quire_block b = 0; quire_pool_get_block(pool, b, &info) == QUIRE_OK; b++) {
        const void *key = info.hash.len > 0 ? info.hash.data : NOTHING;
        if (memcmp(w->picture[b], key, 32) != 0)
            return false;
    }
    return true;
}

static void events_have_their_request_s_tokens(void **state)
{
    (void)state;
    watch w;
    open_watch(&w, QUIRE_ON, 0);
    w.kit.params.lora_id = 3;
    w.kit.params.lora_name = (quire_bytes){"adapter", 7};
    w.kit.params.cache_salt = (quire_bytes){"salt", 4};
    kit_add(&w.kit, "a", 9);
    kit_step(&w.kit);
    assert_int_equal(next_kind(&w), 0); /* not before the update */
    kit_answer(&w.kit, w.kit.step->step, 5);
    assert_int_equal(next_kind(&w), QUIRE_FEED_STORED);
    const quire_feed_event *e = &w.event;
    assert_int_equal(e->num_blocks, 2);
    assert_int_equal(e->block_size, KIT_BLOCK);
    assert_int_equal(e->num_tokens, 8);
    assert_memory_equal(e->tokens, w.kit.prompt, 8 * sizeof *e->tokens);
    assert_int_equal(e->lora_id, 3);
    assert_int_equal(e->lora_name.len, 7);
    assert_memory_equal(e->lora_name.data, "adapter", 7);
    assert_int_equal(e->parent.len, 0);
    assert_int_equal(e->num_keys, 1);
    assert_int_equal(e->keys[0].place, 0);
    assert_int_equal(e->keys[0].key.kind, QUIRE_KEY_CACHE_SALT);
    assert_memory_equal(e->keys[0].key.value.data, "salt", 4);
    assert_int_equal(next_kind(&w), QUIRE_FEED_BATCH);
    assert_int_equal(e->number, 0);
    assert_true(e->time == 1.5);
    assert_int_equal(next_kind(&w), 0);
    close_watch(&w);
}

static void tokens_and_salts_stay_here_unless_asked_for(void **state)
{
    (void)state;
    watch w;
    open_watch(&w, QUIRE_DEFAULT, 0);
    w.kit.params.cache_salt = (quire_bytes){"salt", 4};
    kit_add(&w.kit, "a", 9);
    kit_run(&w.kit, 5);
    assert_int_equal(next_kind(&w), QUIRE_FEED_STORED);
    assert_int_equal(w.event.num_blocks, 2);
    assert_int_equal(w.event.num_tokens, 0);
    assert_null(w.event.tokens);
    assert_int_equal(w.event.num_keys, 0);
    const quire_monitor_info *info = quire_monitor_get_info(quire_sched_get_monitor(w.kit.sched));
    assert_int_equal(info->has_token_ids, 0);
    assert_int_equal(info->has_content, 0); /* it was not restored */
    assert_int_equal(info->num_groups, 1);
    assert_int_equal(info->max_num_seqs, KIT_RUNNING);
    close_watch(&w);
}

static void groups_and_profile_are_told(void **state)
{
    (void)state;
    for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
        watch w = {.config = QUIRE_MONITOR_CONFIG_INIT};
        quire_sched_config c = kit_config(&w.kit);
        quire_group_config groups[2];
        groups[0] = groups[1] = c.cache->groups[0];
        groups[0].spec.sliding_window = 32; /* of the attention, not of the cache */
        groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
        groups[1].spec.sliding_window = 24;
        c.cache->groups = groups;
        c.cache->num_groups = 2;
        c.profile = (quire_profile)profile;
        c.monitor = &w.config;
        kit_open(&w.kit, &c);
        const quire_monitor_info *info =
            quire_monitor_get_info(quire_sched_get_monitor(w.kit.sched));
        assert_int_equal(info->profile, profile);
        assert_int_equal(info->num_groups, 2);
        assert_int_equal(info->groups[0].kind, QUIRE_LAYER_FULL);
        assert_int_equal(info->groups[0].sliding_window, 0);
        assert_int_equal(info->groups[1].kind, QUIRE_LAYER_SLIDING_WINDOW);
        assert_int_equal(info->groups[1].sliding_window, 24);
        assert_int_equal(info->groups[1].block_size, KIT_BLOCK);
        kit_close(&w.kit);
    }
}

/* More features than an event may have keys: the event is lost, and said to be; no more happens. */
static void too_many_keys_are_a_loss(void **state)
{
    (void)state;
    enum { MANY = 40 };
    watch w = {.config = QUIRE_MONITOR_CONFIG_INIT};
    quire_mm_input inputs[MANY];
    w.config.token_ids = QUIRE_ON;
    w.config.event_bytes = 1; /* the smallest: room for 32 keys */
    quire_sched_config c = kit_config(&w.kit);
    c.monitor = &w.config;
    c.max_request_bytes = 1 << 14;
    c.encoder_compute_budget = 64;
    c.encoder_cache_size = 64;
    kit_open(&w.kit, &c);
    assert_int_equal(quire_reader_create(quire_sched_get_monitor(w.kit.sched), NULL, &w.reader),
                     QUIRE_OK);
    for (uint32_t i = 0; i < MANY; i++)
        inputs[i] = (quire_mm_input){
            .feature = {.identifier = {&"abcdefgh"[i % 8], 1}, .offset = i, .length = 1}};
    w.kit.params.mm_inputs = inputs;
    w.kit.params.num_mm_inputs = MANY;
    kit_add(&w.kit, "a", 45);
    kit_run(&w.kit, 5);
    w.event.size = sizeof w.event;
    assert_int_equal(quire_reader_next(w.reader, &w.event), QUIRE_LOST);
    assert_int_equal(next_kind(&w), QUIRE_FEED_BATCH);
    assert_int_equal(next_kind(&w), 0);
    close_watch(&w);
}

/* Requests that come and go in a pool that is too small. */
static void make_traffic(watch *w, uint32_t *next, uint32_t num_steps)
{
    for (uint32_t i = 0; i < num_steps; i++) {
        char id[16];
        snprintf(id, sizeof id, "r%u", *next);
        if (quire_sched_get_num_unfinished(w->kit.sched) < KIT_RUNNING) {
            w->kit.params.max_tokens = 3 + *next % 4;
            kit_add(&w->kit, id, 5 + *next % 23);
            ++*next;
        }
        kit_run(&w->kit, (quire_token)i);
    }
}

static void a_picture_made_of_events_is_the_pool_s(void **state)
{
    (void)state;
    watch w;
    uint32_t next = 0;
    open_watch(&w, QUIRE_ON, 0);
    for (uint32_t i = 0; i < 500; i++) {
        make_traffic(&w, &next, 1);
        assert_int_equal(follow(&w), QUIRE_OK);
        assert_true(is_picture_right(&w));
    }
    close_watch(&w);
}

static void a_walk_makes_a_lost_picture_whole(void **state)
{
    (void)state;
    watch w;
    uint32_t next = 0;
    open_watch(&w, QUIRE_ON, 1);
    quire_monitor *m = quire_sched_get_monitor(w.kit.sched);
    for (uint32_t round = 1; round <= 20; round++) {
        make_traffic(&w, &next, 400);
        assert_int_equal(follow(&w), QUIRE_LOST);
        assert_int_equal(quire_monitor_ask_walk(m), round);
        memset(w.picture, 0, sizeof w.picture);
        for (uint32_t i = 0; w.walked < round && i < 10; i++) {
            make_traffic(&w, &next, 1);
            assert_int_equal(follow(&w), QUIRE_OK);
        }
        assert_int_equal(w.walked, round);
        assert_true(is_picture_right(&w));
    }
    close_watch(&w);
}

static void a_reset_is_told_with_the_next_update(void **state)
{
    (void)state;
    watch w;
    open_watch(&w, QUIRE_DEFAULT, 0);
    w.kit.params.max_tokens = 1;
    kit_add(&w.kit, "a", 9);
    kit_run(&w.kit, 5);
    assert_int_equal(quire_sched_reset_prefix_cache(w.kit.sched, 0, 0), QUIRE_OK);
    kit_run(&w.kit, 5);
    assert_int_equal(next_kind(&w), QUIRE_FEED_STORED);
    assert_int_equal(next_kind(&w), QUIRE_FEED_BATCH);
    assert_int_equal(next_kind(&w), QUIRE_FEED_CLEARED);
    assert_int_equal(next_kind(&w), QUIRE_FEED_BATCH);
    assert_int_equal(w.event.number, 1);
    close_watch(&w);
}

static void steps_are_kept_in_order(void **state)
{
    (void)state;
    watch w;
    uint32_t next = 0;
    open_watch(&w, QUIRE_DEFAULT, 0);
    quire_monitor *m = quire_sched_get_monitor(w.kit.sched);
    quire_monitor_step steps[5000] = {QUIRE_MONITOR_STEP_INIT};
    assert_int_equal(quire_monitor_get_last_step(m, steps), QUIRE_MISS);
    assert_int_equal(quire_monitor_get_steps(m, 0, steps, 10), 0);
    make_traffic(&w, &next, 100);
    assert_int_equal(quire_monitor_get_steps(m, 0, steps, 5000), 100);
    for (uint32_t i = 0; i < 100; i++) {
        const quire_monitor_step *s = &steps[i];
        assert_int_equal(s->step, i + 1);
        assert_int_equal(s->num_empty + s->num_cached + s->num_active, 16);
        assert_true(s->num_hit_tokens <= s->num_query_tokens);
        assert_true(s->num_scheduled <= s->num_running);
    }
    assert_int_equal(quire_monitor_get_steps(m, 40, steps, 7), 7);
    assert_int_equal(steps[0].step, 41);
    assert_int_equal(steps[6].step, 47);
    assert_int_equal(quire_monitor_get_steps(m, 100, steps, 7), 0);
    assert_int_equal(quire_monitor_get_steps(m, UINT64_MAX, steps, 7), 1);
    assert_int_equal(steps[0].step, 100);
    assert_int_equal(quire_monitor_get_steps(m, UINT64_MAX - 1, steps, 7), 0);
    make_traffic(&w, &next, 9900);
    assert_int_equal(quire_monitor_get_steps(m, 10, steps, 5000), 4095);
    assert_int_equal(steps[0].step, 10000 - 4094);
    assert_int_equal(steps[4094].step, 10000);
    assert_int_equal(quire_monitor_get_last_step(m, steps), QUIRE_OK);
    assert_int_equal(steps[0].step, 10000);
    close_watch(&w);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    watch w;
    open_watch(&w, QUIRE_DEFAULT, 0);
    quire_monitor_step step = QUIRE_MONITOR_STEP_INIT;
    quire_reader *reader;
    assert_int_equal(quire_monitor_get_last_step(NULL, &step), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_get_steps(NULL, 0, &step, 1), 0);
    assert_int_equal(quire_reader_create(NULL, NULL, &reader), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_reader_next(NULL, &w.event), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_ask_walk(NULL), 0);
    assert_null(quire_monitor_get_info(NULL));
    sched_kit other;
    quire_sched_config c = kit_config(&other);
    quire_monitor_config bad = QUIRE_MONITOR_CONFIG_INIT;
    c.monitor = &bad;
    assert_true(quire_sched_bytes(&c) > 0);
    bad.sample_rate = 1.5;
    assert_int_equal(quire_sched_bytes(&c), 0);
    bad = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    bad.event_bytes = UINT32_MAX;
    assert_int_equal(quire_sched_bytes(&c), 0);
    bad = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    bad.token_ids = (quire_switch)7;
    assert_int_equal(quire_sched_bytes(&c), 0);
    bad = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    size_t with_residency = quire_sched_bytes(&c);
    bad.residency = QUIRE_OFF;
    assert_in_range(quire_sched_bytes(&c), 1, with_residency);
    bad.residency = (quire_switch)7;
    assert_int_equal(quire_sched_bytes(&c), 0);
    bad = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    bad.size = 3;
    assert_int_equal(quire_sched_bytes(&c), 0);
    quire_hasher_destroy(other.hasher);
    close_watch(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_have_their_request_s_tokens),
        cmocka_unit_test(groups_and_profile_are_told),
        cmocka_unit_test(tokens_and_salts_stay_here_unless_asked_for),
        cmocka_unit_test(too_many_keys_are_a_loss),
        cmocka_unit_test(a_picture_made_of_events_is_the_pool_s),
        cmocka_unit_test(a_walk_makes_a_lost_picture_whole),
        cmocka_unit_test(a_reset_is_told_with_the_next_update),
        cmocka_unit_test(steps_are_kept_in_order),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
