#include "planner_world.h"

quire_planner *planner;
world_rank ranks[RANKS];
unsigned char hashes[LONG][HASH];
quire_block blocks[LONG];
quire_block others[LONG];
quire_planner_out out;
quire_planner_results results;
uint64_t step;
uint64_t clock_ns;

/* ---- the world ------------------------------------------------------------- */

static uint64_t now(void *user)
{
    (void)user;
    return clock_ns;
}

static const quire_group_config FULL = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                 .block_size = TOKENS,
                                                 .num_kv_heads = 1,
                                                 .head_size = 8,
                                                 .dtype = QUIRE_DTYPE_FLOAT16}};
static quire_cache_config cache;
quire_planner_config config;
quire_planner_tier disk;
uint64_t num_events;

uint64_t num_tier_events[2];

static void count_tier_event(void *user, uint32_t tier, const quire_event *event)
{
    (void)user;
    assert_int_equal(tier, 0);
    assert_int_equal(event->num_blocks, 1);
    assert_int_equal(event->block_size, TOKENS);
    assert_int_equal(event->hash_bytes, HASH);
    num_tier_events[event->kind == QUIRE_EVENT_STORED ? 0 : 1]++;
}

static void count_event(void *user, const quire_event *event)
{
    (void)user;
    num_events += event->num_blocks;
}

static void make_config(void)
{
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    cache.groups = &FULL;
    cache.num_groups = 1;
    cache.num_blocks = BLOCKS;
    cache.max_model_len = LONG * TOKENS + TOKENS;
    cache.hash_block_size = TOKENS;
    cache.digest_bytes = HASH;
    disk = (quire_planner_tier){.tier = {.label = "disk"}, .admit = QUIRE_ADMIT_ALL};
    config = (quire_planner_config)QUIRE_PLANNER_CONFIG_INIT;
    config.cache = &cache;
    config.num_slots = SLOTS;
    config.block_bytes = BYTES;
    config.max_requests = 64;
    config.num_ranks = RANKS;
    config.tiers = &disk;
    config.num_tiers = 1;
    config.on_event = count_event;
    config.on_tier_event = count_tier_event;
    config.event_keys = LONG;
    config.hooks.now_ns = now;
}

void open_rank(uint32_t i)
{
    quire_page_region region = {.base = ranks[i].blocks, .stride = BYTES, .bytes = BYTES};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    quire_worker_config worker = QUIRE_WORKER_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    pages.regions = &region;
    pages.num_regions = 1;
    pages.num_blocks = BLOCKS;
    pages.num_slots = SLOTS;
    pages.slots = ranks[i].slots;
    assert_int_equal(quire_device_pages_open(&pages, NULL, &ranks[i].device), QUIRE_OK);
    ranks[i].flawed = faulty_create(
        &(faulty_config){.max_keys = 2 * LONG, .max_bytes = BYTES, .seed = i, .is_shared = true});
    common.ops = faulty_ops();
    common.self = ranks[i].flawed;
    common.run_inline = QUIRE_ON;
    common.hooks.now_ns = now;
    assert_int_equal(quire_tier_open(&common, NULL, &ranks[i].tier), QUIRE_OK);
    quire_worker_tier tier = {.tier = ranks[i].tier};
    worker.rank = i;
    worker.num_ranks = RANKS;
    worker.key_rank = i;
    worker.device = ranks[i].device;
    worker.memory = ranks[i].slots;
    worker.block_bytes = BYTES;
    worker.num_slots = SLOTS;
    worker.tiers = &tier;
    worker.num_tiers = 1;
    worker.run_inline = QUIRE_ON;
    worker.hooks.now_ns = now;
    assert_int_equal(quire_worker_create(&worker, NULL, &ranks[i].worker), QUIRE_OK);
    ranks[i].is_deaf = false;
}

void close_rank(uint32_t i)
{
    assert_int_equal(quire_worker_abandon(ranks[i].worker), QUIRE_OK);
    (void)quire_tier_close(ranks[i].tier);
    assert_int_equal(quire_worker_destroy(ranks[i].worker), QUIRE_OK);
    quire_device_close(&ranks[i].device);
}

int open_world(void **state)
{
    (void)state;
    clock_ns = 1000000000;
    make_config();
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        open_rank(i);
    for (uint32_t i = 0; i < LONG; i++) {
        memset(hashes[i], 0, HASH);
        memcpy(hashes[i], &i, sizeof i);
        blocks[i] = 1 + i;
        others[i] = BLOCKS - 1 - i;
    }
    return 0;
}

int close_world(void **state)
{
    (void)state;
    assert_int_equal(quire_planner_check(planner), QUIRE_OK);
    quire_planner_destroy(planner);
    for (uint32_t i = 0; i < RANKS; i++)
        close_rank(i);
    return 0;
}

/* ---- steps ----------------------------------------------------------------- */

void fill(quire_block block, uint32_t n)
{
    for (uint32_t i = 0; i < RANKS; i++)
        memset(ranks[i].blocks[block], (int)(n * 7 + i), BYTES);
}

bool has(quire_block block, uint32_t n)
{
    bool is_same = true;
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t k = 0; k < BYTES; k++)
            is_same = is_same && ranks[i].blocks[block][k] == (unsigned char)(n * 7 + i);
    return is_same;
}

quire_req add(void)
{
    quire_req req;
    assert_int_equal(quire_planner_add(planner, &req), QUIRE_OK);
    return req;
}

quire_planner_request request_of(quire_req req, uint32_t n)
{
    return (quire_planner_request){
        .req = req, .hashes = hashes, .num_hashes = n, .num_tokens = n * TOKENS + 1};
}

int match(quire_req req, uint32_t n, uint32_t *num_blocks)
{
    quire_planner_request request = request_of(req, n);
    int status = quire_planner_match(planner, &request, 0, num_blocks);
    *num_blocks /= TOKENS;
    return status;
}

int report_all(void)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < RANKS; i++) {
        quire_bytes report;
        if (ranks[i].is_deaf)
            continue;
        assert_int_equal(quire_worker_poll(ranks[i].worker, &report), QUIRE_OK);
        if (report.len > 0) {
            int err = quire_planner_report(planner, report);
            status = err == QUIRE_OK ? status : err;
        }
    }
    return status;
}

int make_step(uint32_t num_tokens)
{
    assert_int_equal(quire_planner_plan(planner, ++step, num_tokens, 1, &out), QUIRE_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        if (out.plan.len > 0)
            assert_int_equal(quire_worker_submit(ranks[i].worker, out.plan), QUIRE_OK);
    int status = report_all();
    assert_int_equal(quire_planner_get_results(planner, step, &results), QUIRE_OK);
    return status;
}

world_sums settle(void)
{
    world_sums sums = {0};
    for (uint32_t i = 0; i < 5000 && (i == 0 || quire_planner_has_pending(planner)); i++) {
        make_step(0);
        sums.num_held += out.num_held;
        sums.num_released += results.num_released;
        sums.num_loaded += results.num_loaded;
    }
    assert_false(quire_planner_has_pending(planner));
    return sums;
}

void store(quire_req req, uint32_t n)
{
    quire_planner_request request = request_of(req, n);
    quire_block_span span = {blocks, n};
    world_sums sums = {0};
    for (uint32_t i = 0; i < n; i++)
        fill(blocks[i], i);
    int status = QUIRE_RETRY;
    for (uint32_t i = 0; i < 200 && status == QUIRE_RETRY; i++) {
        status = quire_planner_computed(planner, &request, &span, n * TOKENS);
        world_sums more = settle();
        sums.num_held += more.num_held;
        sums.num_released += more.num_released;
    }
    assert_int_equal(status, QUIRE_OK);
    assert_int_equal(sums.num_held, n);
    assert_int_equal(sums.num_released, n);
}

quire_offload_stats stats(void)
{
    quire_offload_stats s = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_planner_get_stats(planner, &s), QUIRE_OK);
    return s;
}
