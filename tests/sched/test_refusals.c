/* sched/test_refusals.c - a config that is refused says which field, its value and its range. */
#include "base/unit.h"

#include <quire.h>
#include <quire/monitor.h>

#include <pthread.h>

static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                  .block_size = 16,
                                                  .num_kv_heads = 1,
                                                  .head_size = 64,
                                                  .dtype = QUIRE_DTYPE_FLOAT16}};
static quire_hasher *hasher;

static quire_sched_config good_config(void)
{
    static quire_cache_config cache;
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache = &cache;
    c.hasher = hasher;
    c.cache->num_blocks = 100;
    c.cache->groups = &group;
    c.cache->num_groups = 1;
    c.cache->max_model_len = 1000;
    return c;
}

static int open_hasher(void **state)
{
    (void)state;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    return quire_hasher_create(&config, NULL, &hasher);
}

static int close_hasher(void **state)
{
    (void)state;
    quire_hasher_destroy(hasher);
    return 0;
}

static void expect_sentence(int status, int wanted, const char *sentence)
{
    assert_int_equal(status, wanted);
    if (strstr(quire_refusal(), sentence) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", sentence, quire_refusal());
}

static void expect_sched(const quire_sched_config *c, const char *sentence)
{
    quire_sched *sched = NULL;
    expect_sentence(quire_sched_create(c, NULL, &sched), QUIRE_E_CONFIG, sentence);
    assert_null(sched);
}

/* ---- every number of a scheduler --------------------------------------------- */

typedef struct number_field {
    const char *name;
    size_t offset;
    size_t bytes;
} number_field;

#define CACHE_NUMBER(name)                                                                         \
    {                                                                                              \
#name, offsetof(quire_cache_config, name), sizeof(((quire_cache_config *)0)->name)         \
    }
#define NUMBER(name)                                                                               \
    {                                                                                              \
#name, offsetof(quire_sched_config, name), sizeof(((quire_sched_config *)0)->name)         \
    }

static void every_number_has_its_name_in_the_sentence(void **state)
{
    (void)state;
    static const number_field fields[] = {
        NUMBER(policy),
        NUMBER(max_num_seqs),
        NUMBER(max_num_batched_tokens),
        NUMBER(max_num_scheduled_tokens),
        NUMBER(enable_chunked_prefill),
        NUMBER(reserve_full_sequence),
        NUMBER(async_scheduling),
        NUMBER(max_batches),
        NUMBER(num_spec_tokens),
        NUMBER(num_lookahead_tokens),
        NUMBER(max_loras),
        NUMBER(is_encoder_decoder),
        NUMBER(disable_chunked_mm_input),
        NUMBER(encoder_compute_budget),
        NUMBER(encoder_cache_size),
        NUMBER(include_finished_set),
        NUMBER(fail_on_load_error),
        NUMBER(log_stats),
        NUMBER(max_requests),
        NUMBER(max_loading),
        NUMBER(max_text_tokens),
        NUMBER(max_request_bytes),
        NUMBER(max_encoder_items),
        NUMBER(max_ghosts),
        NUMBER(profile),
        NUMBER(num_swap_blocks),
        NUMBER(swap_setup_ns),
        NUMBER(max_pins),
        NUMBER(lookahead),
        NUMBER(prefix_window),
        NUMBER(prefix_patience),
    };
    static const number_field cache_fields[] = {
        CACHE_NUMBER(num_blocks),       CACHE_NUMBER(num_groups),
        CACHE_NUMBER(max_model_len),    CACHE_NUMBER(max_encoder_tokens),
        CACHE_NUMBER(hash_block_size),  CACHE_NUMBER(digest_bytes),
        CACHE_NUMBER(enable_caching),   CACHE_NUMBER(use_eagle),
        CACHE_NUMBER(track_new_blocks), CACHE_NUMBER(dcp_world_size),
        CACHE_NUMBER(pcp_world_size),   CACHE_NUMBER(num_host_blocks),
    };
    for (size_t i = 0; i < COUNT(fields); i++) {
        quire_sched_config c = good_config();
        memset((char *)&c + fields[i].offset, 0xff, fields[i].bytes);
        expect_sched(&c, fields[i].name);
    }
    for (size_t i = 0; i < COUNT(cache_fields); i++) {
        quire_sched_config c = good_config();
        memset((char *)c.cache + cache_fields[i].offset, 0xff, cache_fields[i].bytes);
        expect_sched(&c, cache_fields[i].name);
        assert_int_equal(strncmp(quire_refusal(), "cache: ", 7), 0);
    }
}

static void sentences_have_value_and_range(void **state)
{
    (void)state;
    quire_sched_config c = good_config();
    c.cache->num_blocks = 4000000000u;
    expect_sched(&c, "cache: invalid num_blocks 4000000000 (expected 1..");
    c = good_config();
    c.max_num_seqs = 5000;
    expect_sched(&c, "invalid max_num_seqs 5000 (expected 0..4096)");
    c.max_requests = 5000;
    quire_sched *sched;
    assert_int_equal(quire_sched_create(&c, NULL, &sched), QUIRE_OK);
    assert_string_equal(quire_refusal(), ""); /* what was refused before is over */
    quire_sched_destroy(sched);
    c = good_config();
    c.hasher = NULL;
    expect_sched(&c, "hasher is NULL");
    c = good_config();
    c.cache->watermark = 1.5;
    expect_sched(&c, "invalid watermark 1.5 (expected 0..1)");
    c = good_config();
    c.num_swap_blocks = 10;
    c.profile = QUIRE_PROFILE_VLLM_0_20;
    expect_sched(&c, "num_swap_blocks is 10");
    c = good_config();
    c.cache->max_copies = 3;
    c.profile = QUIRE_PROFILE_VLLM_0_20;
    expect_sched(&c, "cache.max_copies is 3, but forks need the default profile");
    c = good_config();
    c.cache->num_host_blocks = 4;
    expect_sched(&c, "cache.num_host_blocks is 4, but a scheduler moves requests itself");
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.sample_rate = 2;
    c = good_config();
    c.monitor = &monitor;
    expect_sched(&c, "monitor: invalid sample_rate 2 (expected 0..1)");
    quire_group_config bad = group;
    bad.spec.head_size = 0;
    c = good_config();
    c.cache->groups = &bad;
    expect_sched(&c, "cache: groups[0]: invalid head_size 0 (expected 1 or more)");
    c.size = 3;
    expect_sched(&c, "invalid size 3 of quire_sched_config");
    assert_int_equal(quire_sched_create(NULL, NULL, &sched), QUIRE_E_ARGUMENT);
    assert_non_null(strstr(quire_refusal(), "quire_sched_config is NULL"));
}

/* ---- the others --------------------------------------------------------------- */

static void other_configs_have_sentences(void **state)
{
    (void)state;
    quire_pool_config pool = QUIRE_POOL_CONFIG_INIT;
    quire_pool *made_pool;
    expect_sentence(quire_pool_create(&pool, NULL, &made_pool), QUIRE_E_CONFIG,
                    "invalid num_blocks 0 (expected 1..");
    quire_hasher_config hash = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *made_hasher;
    hash.block_size = 70000;
    expect_sentence(quire_hasher_create(&hash, NULL, &made_hasher), QUIRE_E_CONFIG,
                    "invalid block_size 70000 (expected 0..65536)");
    quire_plan_params plan = QUIRE_PLAN_PARAMS_INIT;
    quire_plan_worker worker = {.memory_bytes = 1 << 20};
    quire_plan *made_plan;
    plan.workers = &worker;
    plan.num_workers = 1;
    plan.layers = &group.spec;
    plan.num_layers = 1;
    expect_sentence(quire_plan_create(&plan, NULL, &made_plan), QUIRE_E_CONFIG,
                    "invalid max_model_len 0 (expected 1 or more)");
    quire_model_params model = QUIRE_MODEL_PARAMS_INIT;
    uint32_t num_layers;
    model.model_type = "gpt-17";
    expect_sentence(quire_model_layers(&model, NULL, 0, &num_layers), QUIRE_E_UNKNOWN_NAME,
                    "unknown model_type \"gpt-17\"");
    model.model_type = "llama";
    model.num_hidden_layers = 2;
    model.hidden_size = 64;
    model.num_attention_heads = 4;
    model.tensor_parallel_size = 3;
    expect_sentence(quire_model_layers(&model, NULL, 0, &num_layers), QUIRE_E_CONFIG,
                    "invalid tensor_parallel_size 3");
    quire_table_config table = QUIRE_TABLE_CONFIG_INIT;
    quire_table *made_table;
    expect_sentence(quire_table_create(&table, NULL, &made_table), QUIRE_E_CONFIG,
                    "invalid max_num_reqs 0 (expected 1..4294967295)");
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    quire_sched_config c = good_config();
    c.max_batches = 65;
    expect_sched(&c, "invalid max_batches 65 (expected 0..64)");
    return NULL;
}

static void threads_have_their_own_sentence(void **state)
{
    (void)state;
    pthread_t thread;
    quire_sched_config c = good_config();
    c.max_loras = 70000;
    expect_sched(&c, "max_loras");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(quire_refusal(), "max_loras"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_has_its_name_in_the_sentence),
        cmocka_unit_test(sentences_have_value_and_range),
        cmocka_unit_test(other_configs_have_sentences),
        cmocka_unit_test(threads_have_their_own_sentence),
    };
    return cmocka_run_group_tests_name("refusals", tests, open_hasher, close_hasher);
}
