/* tier/transfer/test_offload_ranks.c - the scheduler and the offload of this library with the
 * workers of two ranks in one process: a function call carries plans and reports. The engine's
 * memory is smaller than its prompts, and the host pool is smaller than all of them, so that
 * prefixes come back from the host pool and from the tiers. Every block that a step uses is
 * compared in every rank. */
#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire.h>
#include <quire/offload.h>
#include <quire/transfer.h>
#include <quire/worker.h>

enum {
    RANKS = 2,
    TOKENS = 16,
    BYTES = 32,
    NUM_GPU = 700,
    NUM_CPU = 900,
    PROMPT_BLOCKS = 300, /* more than a job of copies has */
    PROMPT = PROMPT_BLOCKS * TOKENS + 1,
    NUM_PROMPTS = 5
};

static struct {
    unsigned char blocks[NUM_GPU][BYTES];
    unsigned char slots[NUM_CPU][BYTES];
    quire_device device;
    faulty *flawed;
    quire_tier *tier;
    quire_worker *worker;
} ranks[RANKS];
static quire_transfer *transfer;
static quire_hasher *hasher;
static quire_offload *offload;
static quire_sched *sched;
static uint32_t content; /* of the request that runs */
static quire_block row[PROMPT_BLOCKS + 2];
static uint32_t num_row;
static uint64_t num_compared;

static void open_rank(uint32_t i)
{
    quire_page_region region = {.base = ranks[i].blocks, .stride = BYTES, .bytes = BYTES};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    quire_worker_config config = QUIRE_WORKER_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    pages.regions = &region;
    pages.num_regions = 1;
    pages.num_blocks = NUM_GPU;
    pages.num_slots = NUM_CPU;
    pages.slots = ranks[i].slots;
    assert_int_equal(quire_device_pages_open(&pages, NULL, &ranks[i].device), QUIRE_OK);
    ranks[i].flawed = faulty_create(
        &(faulty_config){.max_keys = 4000, .max_bytes = BYTES, .seed = i, .is_shared = i == 0});
    common.ops = faulty_ops();
    common.self = ranks[i].flawed;
    common.run_inline = QUIRE_ON;
    assert_int_equal(quire_tier_open(&common, NULL, &ranks[i].tier), QUIRE_OK);
    quire_worker_tier tier = {.tier = ranks[i].tier};
    config.rank = config.key_rank = i;
    config.num_ranks = RANKS;
    config.device = ranks[i].device;
    config.memory = ranks[i].slots;
    config.block_bytes = BYTES;
    config.num_slots = NUM_CPU;
    config.tiers = &tier;
    config.num_tiers = 1;
    config.run_inline = QUIRE_ON;
    assert_int_equal(quire_worker_create(&config, NULL, &ranks[i].worker), QUIRE_OK);
}

static int open_world(void **state)
{
    (void)state;
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = TOKENS,
                                                      .num_kv_heads = 1,
                                                      .head_size = 64,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_transfer_tier disk = {.label = "disk"};
    quire_transfer_config ways = QUIRE_TRANSFER_CONFIG_INIT;
    ways.num_ranks = RANKS;
    ways.num_tiers = 1;
    ways.tiers = &disk;
    assert_int_equal(quire_transfer_open(&ways, NULL, &transfer), QUIRE_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        open_rank(i);
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
    hashing.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hashing, NULL, &hasher), QUIRE_OK);
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    config.cache = &cache;
    config.hasher = hasher;
    cache.num_blocks = NUM_GPU;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.max_model_len = PROMPT + 64;
    config.max_num_seqs = 2;
    config.max_num_batched_tokens = 1024;
    quire_offload_config off = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload_tier tiers[] = {{.tier = quire_transfer_get_tier(transfer, 0)}};
    off.sched = &config;
    off.num_cpu_blocks = NUM_CPU;
    off.device = quire_transfer_device(transfer);
    off.block_bytes = BYTES;
    off.tiers = tiers;
    off.num_tiers = 1;
    off.learns = QUIRE_OFF;
    assert_int_equal(quire_offload_create(&off, NULL, &offload), QUIRE_OK);
    config.connector = quire_offload_connector(offload);
    assert_int_equal(quire_sched_create(&config, NULL, &sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(offload, sched), QUIRE_OK);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    assert_int_equal(quire_offload_check(offload), QUIRE_OK);
    quire_sched_destroy(sched);
    assert_int_equal(quire_offload_abandon(offload), QUIRE_OK);
    assert_int_equal(quire_offload_destroy(offload), QUIRE_OK);
    quire_transfer_close(transfer);
    quire_hasher_destroy(hasher);
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(quire_worker_abandon(ranks[i].worker), QUIRE_OK);
        assert_int_equal(quire_tier_close(ranks[i].tier), QUIRE_OK);
        assert_int_equal(quire_worker_destroy(ranks[i].worker), QUIRE_OK);
        quire_device_close(&ranks[i].device);
    }
    return 0;
}

/* What block n of the prompt has in a rank. */
static void pattern_of(uint32_t n, uint32_t rank, unsigned char *bytes)
{
    quire_tier_key key = faulty_key(content * 1000 + n);
    key.rank = rank;
    faulty_pattern(&key, bytes, BYTES);
}

/* One request at a time: its blocks before this step are there, the others are computed. */
static void compute(const quire_step *step)
{
    unsigned char expected[BYTES];
    if (step->num_reqs == 0)
        return;
    assert_int_equal(step->num_reqs, 1);
    num_row = step->kinds[0] == QUIRE_STEP_RUNNING ? num_row : 0;
    for (uint32_t i = 0; i < step->blocks[0].count; i++)
        row[num_row++] = step->blocks[0].ids[i];
    uint32_t first = step->num_computed_tokens[0] / TOKENS;
    uint32_t end = (step->num_computed_tokens[0] + step->num_tokens[0] + TOKENS - 1) / TOKENS;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t n = 0; n < end; n++) {
            pattern_of(n, rank, expected);
            if (n >= first)
                memcpy(ranks[rank].blocks[row[n]], expected, BYTES);
            assert_memory_equal(ranks[rank].blocks[row[n]], expected, BYTES);
        }
    num_compared += first;
}

static void make_step(void)
{
    const quire_step *step;
    const quire_outputs *outputs;
    quire_token sampled[2] = {7, 7};
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    quire_bytes plan;
    assert_int_equal(quire_sched_schedule(sched, &step), QUIRE_OK);
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    for (uint32_t i = 0; plan.len > 0 && i < RANKS; i++)
        assert_int_equal(quire_worker_submit(ranks[i].worker, plan), QUIRE_OK);
    compute(step);
    for (uint32_t i = 0; i < RANKS; i++) {
        quire_bytes report;
        assert_int_equal(quire_worker_poll(ranks[i].worker, &report), QUIRE_OK);
        if (report.len > 0)
            assert_int_equal(quire_transfer_give_report(transfer, report), QUIRE_OK);
    }
    assert_int_equal(quire_offload_poll(offload, step->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(sched, step->step, &output, &outputs), QUIRE_OK);
}

static void run_prompt(uint32_t which)
{
    static quire_token prompt[PROMPT];
    static uint32_t number;
    number++;
    content = which;
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = (quire_token)(i * 7 + which * 1000003);
    quire_req req;
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&number, sizeof number},
                                   .prompt = prompt,
                                   .num_prompt_tokens = PROMPT,
                                   .max_tokens = 1};
    assert_int_equal(quire_sched_add(sched, &params, &req), QUIRE_OK);
    for (uint32_t i = 0; quire_sched_get_num_unfinished(sched) > 0; i++) {
        make_step();
        assert_true(i < 2000);
    }
    for (uint32_t i = 0; i < 2000 && quire_offload_has_pending(offload); i++)
        make_step();
    assert_int_equal(quire_offload_check(offload), QUIRE_OK);
}

static quire_offload_stats stats(void)
{
    quire_offload_stats s = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_offload_get_stats(offload, &s), QUIRE_OK);
    return s;
}

static void prefixes_come_back(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < NUM_PROMPTS; i++)
            run_prompt(i);
    assert_true(stats().loaded_blocks > 2 * PROMPT_BLOCKS);
    assert_true(stats().tiers[0].promoted_blocks > PROMPT_BLOCKS);
    assert_true(num_compared > 4 * PROMPT_BLOCKS);
}

/* Each rank fails at times: tokens are computed instead. */
static void ranks_that_fail(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 6; round++)
        for (uint32_t i = 0; i < NUM_PROMPTS; i++) {
            faulty_set(ranks[0].flawed, FAULTY_FLIP, round == 2 ? 200 : 0);
            faulty_set(ranks[1].flawed, FAULTY_FAIL, round == 3 ? 200 : 0);
            faulty_set(ranks[1].flawed, FAULTY_LOSE, round == 4 ? 200 : 0);
            run_prompt(i);
        }
    quire_transfer_stats moved = QUIRE_TRANSFER_STATS_INIT;
    assert_int_equal(quire_transfer_get_stats(transfer, &moved), QUIRE_OK);
    assert_true(moved.rank_failures > 0);
    assert_true(stats().loaded_blocks > 0);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {IN_WORLD(prefixes_come_back), IN_WORLD(ranks_that_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
