#include "sched/sched_kit.h"

quire_sched_config kit_config(sched_kit *kit)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    memset(kit, 0, sizeof *kit);
    hasher.block_size = KIT_BLOCK;
    hasher.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hasher, NULL, &kit->hasher), QUIRE_OK);
    kit->group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                               .block_size = KIT_BLOCK,
                                               .num_kv_heads = 1,
                                               .head_size = 8,
                                               .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    kit->cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    config.cache = &kit->cache;
    config.cache->num_blocks = 17;
    config.cache->groups = &kit->group;
    config.cache->num_groups = 1;
    config.cache->max_model_len = KIT_LEN;
    config.hasher = kit->hasher;
    config.max_num_seqs = KIT_RUNNING;
    config.max_requests = KIT_REQUESTS;
    config.max_num_batched_tokens = 64;
    config.max_text_tokens = 4096;
    return config;
}

void kit_open(sched_kit *kit, const quire_sched_config *config)
{
    assert_int_equal(quire_sched_create(config, NULL, &kit->sched), QUIRE_OK);
}

void kit_close(sched_kit *kit)
{
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
    quire_sched_destroy(kit->sched);
    quire_hasher_destroy(kit->hasher);
}

const quire_request_params *kit_params(sched_kit *kit, const char *id, uint32_t n)
{
    assert_true(n <= KIT_MAX_PROMPT);
    for (uint32_t i = 0; i < n; i++)
        kit->prompt[i] = (quire_token)((unsigned char)id[0] * 100u + i);
    kit->params.size = sizeof kit->params;
    kit->params.id = (quire_bytes){id, strlen(id)};
    kit->params.prompt = kit->prompt;
    kit->params.num_prompt_tokens = n;
    return &kit->params;
}

quire_req kit_add(sched_kit *kit, const char *id, uint32_t n)
{
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit->sched, kit_params(kit, id, n), &req), QUIRE_OK);
    assert_true(req != 0);
    return req;
}

void kit_step(sched_kit *kit)
{
    assert_int_equal(quire_sched_schedule(kit->sched, &kit->step), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

void kit_answer(sched_kit *kit, uint64_t step, quire_token token)
{
    quire_token sampled[KIT_RUNNING];
    for (uint32_t i = 0; i < KIT_RUNNING; i++)
        sampled[i] = token;
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(kit->sched, step, &output, &kit->outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

void kit_run(sched_kit *kit, quire_token token)
{
    kit_step(kit);
    kit_answer(kit, kit->step->step, token);
}

quire_req_info kit_info(const sched_kit *kit, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(kit->sched, req, &info), QUIRE_OK);
    return info;
}

const char *kit_shown_step(const sched_kit *kit)
{
    static char text[256];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < kit->step->num_reqs; i++) {
        quire_req_info info = kit_info(kit, kit->step->reqs[i]);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s:%u", i == 0 ? "" : " ",
                                 (int)info.id.len, (const char *)info.id.data,
                                 kit->step->num_tokens[i]);
    }
    return text;
}

const char *kit_shown_queue(const sched_kit *kit, uint32_t which)
{
    static char text[256];
    quire_req reqs[KIT_REQUESTS];
    size_t used = 0;
    text[0] = '\0';
    uint32_t n = quire_sched_get_queue(kit->sched, which, reqs, KIT_REQUESTS);
    for (uint32_t i = 0; i < n; i++) {
        quire_req_info info = kit_info(kit, reqs[i]);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", i == 0 ? "" : " ",
                                 (int)info.id.len, (const char *)info.id.data);
    }
    return text;
}

kit_state kit_save(const quire_sched *sched)
{
    kit_state state = {.bytes = quire_sched_image_bytes(sched)};
    state.image = malloc(state.bytes);
    assert_non_null(state.image);
    assert_int_equal(quire_sched_save(sched, state.image, state.bytes, &state.bytes), QUIRE_OK);
    return state;
}

void kit_same(const quire_sched *sched, kit_state before)
{
    assert_int_equal(quire_sched_check(sched), QUIRE_OK);
    kit_state now = kit_save(sched);
    assert_int_equal(now.bytes, before.bytes);
    assert_memory_equal(now.image, before.image, before.bytes);
    free(now.image);
    free(before.image);
}
