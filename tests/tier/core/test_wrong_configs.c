/* core/test_wrong_configs.c - one wrong config of each kind that a program has: the refusal names
 * the field, the value and what is allowed. The program prints them all. */
#include "base/unit.h"

#include <quire.h>
#include <quire/device.h>
#include <quire/monitor.h>
#include <quire/offload.h>
#include <quire/plan.h>
#include <quire/slots.h>
#include <quire/table.h>
#include <quire/tier_file.h>
#include <quire/tier_peer.h>
#include <quire/tier_redis.h>

typedef struct world {
    quire_hasher_config hasher_config;
    quire_group_config group;
    quire_cache_config cache;
    quire_monitor_config monitor;
    quire_sched_config sched;
    quire_offload_config offload;
    quire_hasher *hasher;
} world;

static void set_up(world *w)
{
    memset(w, 0, sizeof *w);
    w->hasher_config = (quire_hasher_config)QUIRE_HASHER_CONFIG_INIT;
    assert_int_equal(quire_hasher_create(&w->hasher_config, NULL, &w->hasher), QUIRE_OK);
    w->group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                             .block_size = 16,
                                             .num_kv_heads = 8,
                                             .head_size = 128,
                                             .dtype = QUIRE_DTYPE_BFLOAT16}};
    w->cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    w->cache.num_blocks = 1000;
    w->cache.max_model_len = 4096;
    w->cache.groups = &w->group;
    w->cache.num_groups = 1;
    w->monitor = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    w->sched = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    w->sched.cache = &w->cache;
    w->sched.hasher = w->hasher;
    w->offload = (quire_offload_config)QUIRE_OFFLOAD_CONFIG_INIT;
    w->offload.sched = &w->sched;
    w->offload.num_cpu_blocks = 100;
}

static int create_sched(world *w)
{
    quire_sched *sched = NULL;
    return quire_sched_create(&w->sched, NULL, &sched);
}

static int create_offload(world *w)
{
    quire_offload *offload = NULL;
    return quire_offload_create(&w->offload, NULL, &offload);
}

/* ---- each with one field wrong ----------------------------------------------- */

static int no_blocks(world *w)
{
    w->cache.num_blocks = 0;
    return create_sched(w);
}

static int too_many_seqs(world *w)
{
    w->sched.max_num_seqs = 20000000;
    return create_sched(w);
}

static int watermark_above_one(world *w)
{
    w->cache.watermark = 1.5;
    return create_sched(w);
}

static int marks_in_the_wrong_order(world *w)
{
    w->cache.admit_below = 0.9;
    w->cache.preempt_above = 0.5;
    return create_sched(w);
}

static int unknown_policy(world *w)
{
    w->sched.policy = (quire_policy)7;
    return create_sched(w);
}

static int unknown_profile(world *w)
{
    w->sched.profile = (quire_profile)9;
    return create_sched(w);
}

static int head_size_zero(world *w)
{
    w->group.spec.head_size = 0;
    return create_sched(w);
}

static int window_zero(world *w)
{
    w->group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    return create_sched(w);
}

static int ring_in_tiers(world *w)
{
    w->sched.profile = w->cache.profile = QUIRE_PROFILE_VLLM_0_32;
    w->group.spec.kind = QUIRE_LAYER_CIRCULAR_BUFFER;
    return create_offload(w);
}

static int rswa_in_tiers(world *w)
{
    w->sched.profile = w->cache.profile = QUIRE_PROFILE_VLLM_0_32;
    w->group.spec.kind = QUIRE_LAYER_RSWA;
    w->group.spec.rswa_window = 64;
    return create_offload(w);
}

static int no_hasher(world *w)
{
    w->sched.hasher = NULL;
    return create_sched(w);
}

static int other_block_size(world *w)
{
    w->cache.hash_block_size = 8;
    return create_sched(w);
}

static int budget_below_the_longest_prompt(world *w)
{
    w->sched.enable_chunked_prefill = QUIRE_OFF;
    w->sched.max_num_batched_tokens = 512;
    return create_sched(w);
}

static int swapping_in_the_vllm_profile(world *w)
{
    w->sched.profile = QUIRE_PROFILE_VLLM_0_20;
    w->sched.num_swap_blocks = 64;
    return create_sched(w);
}

static int size_not_set(world *w)
{
    w->sched.size = 0;
    return create_sched(w);
}

static int sample_rate_of_two(world *w)
{
    w->monitor.sample_rate = 2;
    w->sched.monitor = &w->monitor;
    return create_sched(w);
}

static int hashed_blocks_too_long(world *w)
{
    quire_hasher *hasher = NULL;
    w->hasher_config.block_size = 70000;
    return quire_hasher_create(&w->hasher_config, NULL, &hasher);
}

static int pool_too_large(world *w)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    quire_pool *pool = NULL;
    (void)w;
    config.num_blocks = UINT32_MAX;
    return quire_pool_create(&config, NULL, &pool);
}

static int table_without_rows(world *w)
{
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    quire_table *table = NULL;
    (void)w;
    return quire_table_create(&config, NULL, &table);
}

static int offload_mode_unknown(world *w)
{
    w->offload.mode = (quire_offload_mode)5;
    return create_offload(w);
}

static int tiers_that_are_not_there(world *w)
{
    w->offload.num_tiers = 2;
    return create_offload(w);
}

static int slots_without_slots(world *w)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    quire_slots *slots = NULL;
    (void)w;
    return quire_slots_create(&config, NULL, &slots);
}

static int file_without_a_path(world *w)
{
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    quire_tier *tier = NULL;
    (void)w;
    return quire_tier_file_open(&config, NULL, NULL, &tier);
}

static int redis_without_servers(world *w)
{
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    quire_tier *tier = NULL;
    (void)w;
    config.fingerprint = fingerprint;
    return quire_tier_redis_open(&config, NULL, NULL, &tier, NULL);
}

static int peer_beyond_this_machine(world *w)
{
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_peer_server_config config = QUIRE_PEER_SERVER_CONFIG_INIT;
    quire_peer_server *server = NULL;
    (void)w;
    config.address = "0.0.0.0:7077";
    config.secret = "sixteen letters or more";
    config.fingerprint = fingerprint;
    config.max_blocks = 16;
    config.max_block_bytes = 4096;
    return quire_peer_server_open(&config, &server);
}

static int memory_of_no_bytes(world *w)
{
    quire_host_memory_config config = QUIRE_HOST_MEMORY_CONFIG_INIT;
    quire_host_memory *memory = NULL;
    (void)w;
    return quire_host_memory_open(&config, &memory);
}

/* ---- all of them --------------------------------------------------------------- */

static void each_refusal_names_the_field(void **state)
{
    static const struct {
        int (*create)(world *w);
        const char *says;
    } CASES[] = {
        {no_blocks, "num_blocks 0 (expected 1.."},
        {too_many_seqs, "max_num_seqs 20000000 (expected 0.."},
        {watermark_above_one, "watermark 1.5 (expected 0..1)"},
        {marks_in_the_wrong_order, "admit_below"},
        {unknown_policy, "policy 7 (expected 0..1)"},
        {unknown_profile, "profile 9 (expected 0..2)"},
        {head_size_zero, "groups[0]: invalid head_size 0 (expected 1 or more)"},
        {window_zero, "groups[0]: invalid sliding_window 0 (expected 1 or more)"},
        {ring_in_tiers, "groups[0]: invalid kind 12 (tiers keep no blocks"},
        {rswa_in_tiers, "groups[0]: invalid kind 11 (tiers keep no blocks"},
        {no_hasher, "hasher is NULL"},
        {other_block_size, "cache: invalid hash_block_size 8 (expected 16)"},
        {budget_below_the_longest_prompt, "max_num_batched_tokens"},
        {swapping_in_the_vllm_profile, "num_swap_blocks is 64"},
        {size_not_set, "invalid size 0 of quire_sched_config"},
        {sample_rate_of_two, "monitor: invalid sample_rate 2 (expected 0..1)"},
        {hashed_blocks_too_long, "block_size 70000 (expected 0..65536)"},
        {pool_too_large, "num_blocks 4294967295 (expected 1.."},
        {table_without_rows, "max_num_reqs 0 (expected 1.."},
        {offload_mode_unknown, "mode 5 (expected 0..1)"},
        {tiers_that_are_not_there, "tiers is NULL, but num_tiers is 2"},
        {slots_without_slots, "num_slots 0 (expected 1.."},
        {file_without_a_path, "path"},
        {redis_without_servers, "num_servers 0 (expected 1..32, and servers)"},
        {peer_beyond_this_machine, "0.0.0.0"},
        {memory_of_no_bytes, "bytes"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(CASES); i++) {
        world w;
        set_up(&w);
        int status = CASES[i].create(&w);
        printf("%2zu  %-18s %s\n", i + 1, quire_status_name(status), quire_refusal());
        assert_true(status < 0);
        if (strstr(quire_refusal(), CASES[i].says) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", CASES[i].says, quire_refusal());
        quire_hasher_destroy(w.hasher);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_refusal_names_the_field)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
