/* tier/offload/test_learn.c - what computing costs is learned from steps, without a call: a tier
 * that is slower than computing is left alone, one that is faster is used; and what passes between
 * the CPU pool and its tier.
 *
 *      clock    moved by the test: a step takes its tokens' time, a load its blocks' time
 *      tier     says that it has every block, and loads one after the other
 */
#include "base/bits.h"
#include "base/unit.h"

#include <quire.h>
#include <quire/offload.h>

enum { /* the hostile build walks the pools for each few blocks: that takes minutes in large ones */
       BLOCK_TOKENS = 16,
       BLOCK_BYTES = 64,
       NUM_GPU = QR_AT_A_TIME(1200, 300),
       NUM_CPU = QR_AT_A_TIME(4001, 1001),
       PROMPT_BLOCKS = QR_AT_A_TIME(400, 100),
       PROMPT = PROMPT_BLOCKS * BLOCK_TOKENS + 1,
       TOKEN_NS = 40000, /* of computing: 640 us a block */
       LEAST_STEP_NS = 1000000
};

typedef struct world {
    uint64_t now_ns;
    uint64_t block_ns; /* of loading */
    bool takes_stores; /* and has nothing */
    uint32_t num_stored;
    uint32_t num_looked_up;
    bool has_device;
    bool has_no_crcs; /* the device does not know them */
    quire_device_job *copying[64];
    uint32_t num_copying;
    quire_tier *tier;
    quire_tier_job *jobs[512];
    uint32_t num_jobs;
    uint64_t busy_until_ns;
    unsigned char *memory;
    quire_hasher *hasher;
    quire_offload *offload;
    quire_sched *sched;
    uint32_t num_requests;
} world;

static uint64_t get_now(void *user)
{
    return ((world *)user)->now_ns;
}

/* ---- the tier ---------------------------------------------------------------- */

static void toy_caps(void *self, quire_tier_caps *caps)
{
    (void)self;
    *caps = (quire_tier_caps){.alignment = 1, .max_bytes = BLOCK_BYTES, .checks_crc = 1};
}

static void toy_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    world *w = self;
    (void)keys;
    w->num_looked_up += n;
    memset(found, w->num_requests > 1 && !w->takes_stores, n); /* the first prompt is computed */
}

/* What the device says of a slot of the CPU pool: a number of its own. */
static uint32_t crc_of(const world *w, const void *memory)
{
    return 1000 + (uint32_t)(((const unsigned char *)memory - w->memory) / BLOCK_BYTES);
}

static void toy_begin(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    world *w = self;
    if (job->op != QUIRE_TIER_LOAD) {
        for (uint32_t i = 0; i < job->num_ios; i++) {
            if (w->has_no_crcs)
                assert_false(job->has_crcs);
            else if (w->has_device)
                assert_int_equal(job->has_crcs ? job->ios[i].crc : 0,
                                 crc_of(w, job->ios[i].memory));
            w->num_stored += w->takes_stores;
            ends->end(ends, job, i, w->takes_stores ? QUIRE_TIER_DONE : QUIRE_TIER_NO_ROOM);
        }
        return;
    }
    uint64_t start_ns = w->busy_until_ns > w->now_ns ? w->busy_until_ns : w->now_ns;
    w->busy_until_ns = start_ns + job->num_ios * w->block_ns;
    job->id = w->busy_until_ns;
    w->jobs[w->num_jobs++] = job;
}

static void toy_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    world *w = self;
    (void)wake_fd;
    (void)timeout_ms;
    for (uint32_t k = 0; k < w->num_jobs;) {
        quire_tier_job *job = w->jobs[k];
        if (job->id > w->now_ns) {
            k++;
            continue;
        }
        w->jobs[k] = w->jobs[--w->num_jobs];
        for (uint32_t i = job->num_ios; i-- > 0;)
            ends->end(ends, job, i, QUIRE_TIER_DONE);
    }
}

static const quire_tier_ops TOY = {.abi = 1,
                                   .size = sizeof TOY,
                                   .name = "toy",
                                   .caps = toy_caps,
                                   .lookup = toy_lookup,
                                   .begin = toy_begin,
                                   .turn = toy_turn};

/* ---- the device -------------------------------------------------------------- */

static int toy_mark(void *self, uint64_t *mark)
{
    (void)self;
    *mark = 0;
    return QUIRE_OK;
}

static int toy_submit(void *self, quire_device_job *job)
{
    world *w = self;
    if (w->num_copying == sizeof w->copying / sizeof w->copying[0])
        return QUIRE_FULL;
    w->copying[w->num_copying++] = job;
    return QUIRE_OK;
}

static uint32_t toy_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    world *w = self;
    uint32_t n = 0;
    while (w->num_copying > 0 && n < capacity) {
        quire_device_job *job = w->copying[--w->num_copying];
        job->status = QUIRE_OK;
        for (uint32_t i = 0; i < job->num_copies; i++) {
            const void *slot = w->memory + (size_t)job->copies[i].slot * BLOCK_BYTES;
            job->copies[i].crc = w->has_no_crcs ? 0 : crc_of(w, slot);
        }
        jobs[n++] = job;
    }
    return n;
}

static const quire_device_ops TOY_DEVICE = {.abi = 1,
                                            .size = sizeof TOY_DEVICE,
                                            .name = "toy",
                                            .mark = toy_mark,
                                            .submit = toy_submit,
                                            .poll = toy_poll};

/* ---- the engine -------------------------------------------------------------- */

static void open_world_with(world *w, uint64_t block_ns, quire_switch learns, bool is_async,
                            quire_offload_admit admit, bool has_device)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = BLOCK_TOKENS,
                                                      .num_kv_heads = 1,
                                                      .head_size = 64,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    memset(w, 0, sizeof *w);
    w->now_ns = 1000000000;
    w->block_ns = block_ns;
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    hooks.user = w;
    hooks.now_ns = get_now;
    quire_tier_config tier = QUIRE_TIER_CONFIG_INIT;
    tier.ops = &TOY;
    tier.self = w;
    tier.run_inline = QUIRE_ON;
    tier.hooks = hooks;
    assert_int_equal(quire_tier_open(&tier, NULL, &w->tier), QUIRE_OK);
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hashing, NULL, &w->hasher), QUIRE_OK);
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config sched = QUIRE_SCHED_CONFIG_INIT;
    sched.cache = &cache;
    sched.hasher = w->hasher;
    cache.num_blocks = NUM_GPU;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = PROMPT + 64;
    sched.max_num_seqs = 2;
    sched.max_num_batched_tokens = QR_AT_A_TIME(2048, 512);
    sched.async_scheduling = is_async ? QUIRE_ON : QUIRE_OFF;
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[] = {{.tier = w->tier, .admit = admit}};
    quire_device device = {&TOY_DEVICE, w};
    w->has_device = has_device;
    config.device = has_device ? &device : NULL;
    config.sched = &sched;
    config.num_cpu_blocks = NUM_CPU;
    config.tiers = tiers;
    config.num_tiers = 1;
    config.learns = learns;
    config.hooks = hooks;
    w->memory = calloc(NUM_CPU, BLOCK_BYTES);
    config.memory = w->memory; /* without a device the test says that copies are done */
    config.block_bytes = BLOCK_BYTES;
    assert_int_equal(quire_offload_create(&config, NULL, &w->offload), QUIRE_OK);
    sched.connector = quire_offload_connector(w->offload);
    assert_int_equal(quire_sched_create(&sched, NULL, &w->sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(w->offload, w->sched), QUIRE_OK);
}

static void open_world(world *w, uint64_t block_ns, quire_switch learns, bool is_async)
{
    open_world_with(w, block_ns, learns, is_async, QUIRE_ADMIT_ALL, false);
}

static void close_world(world *w)
{
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
    assert_int_equal(quire_tier_close(w->tier), QUIRE_OK);
    quire_sched_destroy(w->sched);
    assert_int_equal(quire_offload_abandon(w->offload), QUIRE_OK);
    assert_int_equal(quire_offload_destroy(w->offload), QUIRE_OK);
    quire_hasher_destroy(w->hasher);
    free(w->memory);
}

static void tell_copies(world *w, const quire_step *step)
{
    const quire_offload_meta *meta = step->connector_meta;
    quire_offload_report report = {.size = sizeof(quire_offload_report),
                                   .loaded = meta->load_reqs,
                                   .num_loaded = meta->num_load_reqs,
                                   .stored_events = &meta->store_event,
                                   .num_stored = meta->store_event != QUIRE_OFFLOAD_NO_EVENT};
    if (!w->has_device)
        assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_OK);
}

static void make_step(world *w)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_schedule(w->sched, &step), QUIRE_OK);
    uint64_t ns = step->total_tokens * (uint64_t)TOKEN_NS;
    w->now_ns += ns > LEAST_STEP_NS ? ns : LEAST_STEP_NS;
    tell_copies(w, step);
    assert_int_equal(quire_offload_poll(w->offload, step->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(w->sched, step->step, &output, &outputs), QUIRE_OK);
}

/* Of its blocks, half are of one content, the rest of another. */
static void add_halves(world *w, uint32_t content, uint32_t rest)
{
    static quire_token prompt[PROMPT];
    uint32_t number = ++w->num_requests;
    for (uint32_t i = 0; i < PROMPT; i++) {
        uint32_t which = i < PROMPT_BLOCKS / 2 * BLOCK_TOKENS ? content : rest;
        prompt[i] = (quire_token)(i * 7 + which * 1000003);
    }
    quire_req req;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&number, sizeof number},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 1};
    assert_int_equal(quire_sched_add(w->sched, &params, &req), QUIRE_OK);
}

static void add_prompt(world *w, uint32_t content)
{
    add_halves(w, content, content);
}

/* Returns how long it took. */
static uint64_t run_to_end(world *w)
{
    uint64_t start_ns = w->now_ns;
    for (uint32_t i = 0; quire_sched_get_num_unfinished(w->sched) > 0; i++) {
        make_step(w);
        assert_true(i < 20000);
    }
    uint64_t took_ns = w->now_ns - start_ns;
    while (quire_offload_has_pending(w->offload))
        make_step(w);
    return took_ns;
}

/* A new prompt. */
static uint64_t run_prompt(world *w)
{
    add_prompt(w, w->num_requests + 1);
    return run_to_end(w);
}

/* ---- tests ------------------------------------------------------------------- */

static const uint64_t COMPUTE_NS = (uint64_t)PROMPT * TOKEN_NS;

/* Eight times slower than computing: tried once, then left alone. */
static void test_a_slow_tier_is_left_alone(void **state)
{
    world w;
    (void)state;
    open_world(&w, 5000000, QUIRE_DEFAULT, false);
    (void)run_prompt(&w);
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_in_range((uint64_t)stats.recompute_token_ns, TOKEN_NS * 9 / 10, TOKEN_NS * 11 / 10);
    assert_true(run_prompt(&w) > 4 * COMPUTE_NS); /* what the tier takes is not known yet */
    for (uint32_t i = 0; i < 10; i++)
        assert_in_range(run_prompt(&w), COMPUTE_NS * 9 / 10, COMPUTE_NS * 3 / 2);
    close_world(&w);
}

static void test_a_fast_tier_is_used(void **state)
{
    world w;
    (void)state;
    open_world(&w, 50000, QUIRE_DEFAULT, false);
    (void)run_prompt(&w);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(run_prompt(&w) < COMPUTE_NS / 2);
    close_world(&w);
}

/* Without learning nothing is known: the tier is used however slow it is. */
static void test_off(void **state)
{
    world w;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    (void)state;
    open_world(&w, 5000000, QUIRE_OFF, false);
    (void)run_prompt(&w);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(run_prompt(&w) > 4 * COMPUTE_NS);
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_true(stats.recompute_token_ns == 0);
    assert_int_equal(quire_offload_learn(w.offload, PROMPT, COMPUTE_NS), QUIRE_OK);
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_in_range((uint64_t)stats.recompute_token_ns, TOKEN_NS - 100, TOKEN_NS + 100);
    close_world(&w);
}

static void end_step(world *w, uint64_t step)
{
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_offload_poll(w->offload, step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(w->sched, step, &output, &outputs), QUIRE_OK);
}

/* The next step is given out while the one before is computed: its time begins when that ends. */
static void test_overlapped_steps(void **state)
{
    world w;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    static quire_token prompt[PROMPT];
    quire_req req;
    uint64_t before = 0;
    uint32_t before_tokens = 0;
    (void)state;
    open_world(&w, 5000000, QUIRE_DEFAULT, true);
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {"a", 1},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 1};
    assert_int_equal(quire_sched_add(w.sched, &params, &req), QUIRE_OK);
    for (uint32_t i = 0; i < 5; i++) {
        const quire_step *step;
        assert_int_equal(quire_sched_schedule(w.sched, &step), QUIRE_OK);
        uint64_t number = step->step;
        uint32_t tokens = step->total_tokens;
        tell_copies(&w, step);
        w.now_ns += before_tokens * (uint64_t)TOKEN_NS; /* the one before is computed now */
        if (i > 0)
            end_step(&w, before);
        before = number;
        before_tokens = tokens;
    }
    end_step(&w, before);
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_in_range((uint64_t)stats.recompute_token_ns, TOKEN_NS * 9 / 10, TOKEN_NS * 11 / 10);
    close_world(&w);
}

/* ---- between the CPU pool and the tier ---------------------------------------- */

/* The tier takes what is used again, and a hit of the CPU pool is such a use. */
static void test_hits_are_offered(void **state)
{
    world w;
    (void)state;
    open_world_with(&w, 50000, QUIRE_OFF, false, QUIRE_ADMIT_REUSED, false);
    w.takes_stores = true;
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(w.num_stored, 0);
    assert_int_equal(quire_sched_reset_prefix_cache(w.sched, 0, 0), QUIRE_OK);
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(w.num_stored, PROMPT_BLOCKS);
    close_world(&w);
}

/* The checksum that a device tells of a block goes to the tier with that block. */
static void test_checksums_stay_with_their_blocks(void **state)
{
    world w;
    (void)state;
    open_world_with(&w, 50000, QUIRE_OFF, false, QUIRE_ADMIT_ALL, true);
    w.takes_stores = true;
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(w.num_stored, PROMPT_BLOCKS);
    close_world(&w);
}

/* A device that knows no checksums tells 0: the tier does not take that for one. */
static void test_checksums_may_be_unknown(void **state)
{
    world w;
    (void)state;
    open_world_with(&w, 50000, QUIRE_OFF, false, QUIRE_ADMIT_ALL, true);
    w.takes_stores = true;
    w.has_no_crcs = true;
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(w.num_stored, PROMPT_BLOCKS);
    close_world(&w);
}

/* The CPU pool has half of a prompt, and the tier what is behind: all of it is loaded. */
static void test_a_tier_has_the_rest(void **state)
{
    world w;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    (void)state;
    open_world(&w, 50000, QUIRE_OFF, false);
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(quire_sched_reset_prefix_cache(w.sched, 0, 0), QUIRE_OK);
    add_halves(&w, 1, 2);
    (void)run_to_end(&w);
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_int_equal(stats.hit_tokens, PROMPT_BLOCKS * BLOCK_TOKENS);
    assert_int_equal(stats.loaded_blocks, PROMPT_BLOCKS);
    close_world(&w);
}

/* A request that waits is looked up once, when it comes into view: the tier is not asked again and
 * again for what is behind the blocks of the CPU pool. */
static void test_who_waits_is_looked_up_once(void **state)
{
    world w;
    (void)state;
    open_world(&w, 50000, QUIRE_OFF, false);
    w.takes_stores = true;
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(quire_sched_reset_prefix_cache(w.sched, 0, 0), QUIRE_OK);
    assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    add_halves(&w, 1, 2);
    uint32_t before = w.num_looked_up;
    make_step(&w);
    uint32_t num_looked_up = w.num_looked_up;
    assert_true(num_looked_up > before);
    for (uint32_t i = 0; i < 200; i++)
        make_step(&w);
    assert_int_equal(w.num_looked_up, num_looked_up);
    assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_UNPAUSED), QUIRE_OK);
    (void)run_to_end(&w);
    close_world(&w);
}

/* All blocks of a waiting request are protected, however many there are. */
static void test_long_prompts_are_expected(void **state)
{
    world w;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    (void)state;
    open_world(&w, 50000, QUIRE_OFF, false);
    add_prompt(&w, 1);
    (void)run_to_end(&w);
    assert_int_equal(quire_sched_reset_prefix_cache(w.sched, 0, 0), QUIRE_OK);
    assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    add_prompt(&w, 1);
    make_step(&w);
    assert_int_equal(quire_offload_get_stats(w.offload, &stats), QUIRE_OK);
    assert_int_equal(stats.expected_blocks, PROMPT_BLOCKS);
    assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_UNPAUSED), QUIRE_OK);
    (void)run_to_end(&w);
    close_world(&w);
}

static void test_as_many_tiers_as_there_may_be(void **state)
{
    world w;
    (void)state;
    open_world(&w, 50000, QUIRE_OFF, false);
    quire_offload_tier tiers[QUIRE_OFFLOAD_MAX_TIERS + 1];
    for (uint32_t i = 0; i <= QUIRE_OFFLOAD_MAX_TIERS; i++)
        tiers[i] = (quire_offload_tier){.tier = w.tier};
    quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                         .block_size = BLOCK_TOKENS,
                                         .num_kv_heads = 1,
                                         .head_size = 64,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config sched = QUIRE_SCHED_CONFIG_INIT;
    sched.cache = &cache;
    sched.hasher = w.hasher;
    cache.num_blocks = NUM_GPU;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = PROMPT;
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.sched = &sched;
    config.num_cpu_blocks = NUM_CPU;
    config.memory = w.memory;
    config.block_bytes = BLOCK_BYTES;
    config.tiers = tiers;
    config.num_tiers = QUIRE_OFFLOAD_MAX_TIERS;
    assert_true(quire_offload_bytes(&config) > 0);
    config.num_tiers = QUIRE_OFFLOAD_MAX_TIERS + 1;
    assert_int_equal(quire_offload_bytes(&config), 0);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_slow_tier_is_left_alone),
        cmocka_unit_test(test_a_fast_tier_is_used),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_overlapped_steps),
        cmocka_unit_test(test_hits_are_offered),
        cmocka_unit_test(test_checksums_stay_with_their_blocks),
        cmocka_unit_test(test_checksums_may_be_unknown),
        cmocka_unit_test(test_a_tier_has_the_rest),
        cmocka_unit_test(test_who_waits_is_looked_up_once),
        cmocka_unit_test(test_long_prompts_are_expected),
        cmocka_unit_test(test_as_many_tiers_as_there_may_be),
    };
    return cmocka_run_group_tests_name("computing is measured", tests, NULL, NULL);
}
