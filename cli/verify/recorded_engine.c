#include "recorded_engine.h"

#include "output/failure.h"

#include <jansson.h>
#include <string.h>

enum { MAX_GROUPS = 64 };

typedef struct field {
    const char *name; /* NULL ends a table */
    size_t offset;
} field;

#define FIELD(type, name)                                                                          \
    {                                                                                              \
#name, offsetof(type, name)                                                                \
    }
#define SCHED(name) FIELD(quire_sched_config, name)
#define CACHE(name) FIELD(quire_cache_config, name)
#define LAYER(name) FIELD(quire_layer_spec, name)

_Static_assert(sizeof(quire_switch) == sizeof(uint32_t), "switches are read as numbers");

static const field sched_fields[] = {SCHED(max_num_seqs),
                                     SCHED(max_num_batched_tokens),
                                     SCHED(max_num_scheduled_tokens),
                                     SCHED(long_prefill_token_threshold),
                                     SCHED(enable_chunked_prefill),
                                     SCHED(reserve_full_sequence),
                                     SCHED(async_scheduling),
                                     SCHED(max_batches),
                                     SCHED(num_spec_tokens),
                                     SCHED(num_lookahead_tokens),
                                     SCHED(max_loras),
                                     SCHED(disable_chunked_mm_input),
                                     SCHED(encoder_compute_budget),
                                     SCHED(encoder_cache_size),
                                     SCHED(mamba_block_size),
                                     SCHED(max_requests),
                                     SCHED(max_loading),
                                     SCHED(max_encoder_items),
                                     SCHED(max_num_active_seqs),
                                     SCHED(long_prefill_token_threshold_adaptive),
                                     SCHED(num_draft_slots),
                                     SCHED(num_prefill_lookahead_tokens),
                                     SCHED(is_pooling_model),
                                     SCHED(decode_interval),
                                     {NULL, 0}};

static const field cache_fields[] = {CACHE(num_blocks),
                                     CACHE(max_model_len),
                                     CACHE(hash_block_size),
                                     CACHE(enable_caching),
                                     CACHE(use_eagle),
                                     CACHE(dcp_world_size),
                                     CACHE(pcp_world_size),
                                     CACHE(max_encoder_tokens),
                                     CACHE(track_new_blocks),
                                     CACHE(prefix_cache_retention_interval),
                                     CACHE(num_prefill_lookahead),
                                     CACHE(max_in_flight_tokens),
                                     CACHE(mamba_shared_prefix_checkpoint),
                                     {NULL, 0}};

static const field layer_fields[] = {LAYER(kind),
                                     LAYER(block_size),
                                     LAYER(num_kv_heads),
                                     LAYER(head_size),
                                     LAYER(dtype),
                                     LAYER(sliding_window),
                                     LAYER(attention_chunk_size),
                                     LAYER(sink_len),
                                     LAYER(tq_slot_size),
                                     LAYER(mamba_mode),
                                     LAYER(num_speculative_blocks),
                                     LAYER(num_prefill_checkpoint_blocks),
                                     LAYER(prefill_checkpoint_alignment),
                                     LAYER(rswa_window),
                                     {NULL, 0}};

/* Numbers, and switches: true is QUIRE_ON. */
static int read_fields(json_t *object, const field *fields, void *target)
{
    for (; fields->name != NULL; fields++) {
        json_t *value = json_object_get(object, fields->name);
        uint32_t number;
        if (value == NULL)
            continue;
        if (json_is_boolean(value))
            number = json_is_true(value) ? QUIRE_ON : QUIRE_OFF;
        else if (json_is_integer(value) && json_integer_value(value) >= 0 &&
                 json_integer_value(value) <= UINT32_MAX)
            number = (uint32_t)json_integer_value(value);
        else
            return fail_with("config: field \"%s\" is not a number of 32 bits", fields->name);
        memcpy((char *)target + fields->offset, &number, sizeof number);
    }
    return 0;
}

/* The place of a text in a list that NULL ends; -1: the text is not in it, or it is no text. */
static int place_of(json_t *object, const char *name, const char *const *texts)
{
    const char *text = json_string_value(json_object_get(object, name));
    for (int i = 0; text != NULL && texts[i] != NULL; i++)
        if (strcmp(texts[i], text) == 0)
            return i;
    return fail_with("config: field \"%s\": unknown value \"%s\"", name,
                     text != NULL ? text : "(missing)");
}

static int read_groups(json_t *config, quire_group_config *groups, uint32_t *num_groups)
{
    json_t *list = json_object_get(config, "groups");
    if (!json_is_array(list) || json_array_size(list) > MAX_GROUPS)
        return fail_with("config: field \"groups\" is not a list of at most %d", MAX_GROUPS);
    *num_groups = (uint32_t)json_array_size(list);
    for (uint32_t i = 0; i < *num_groups; i++) {
        json_t *group = json_array_get(list, i);
        if (read_fields(group, layer_fields, &groups[i].spec) != 0)
            return -1;
        groups[i].is_eagle = json_integer_value(json_object_get(group, "is_eagle")) != 0;
        if (groups[i].spec.kind == QUIRE_LAYER_MAMBA)
            groups[i].spec.states[0] = (quire_state){1, {1}, QUIRE_DTYPE_FLOAT32};
    }
    return 0;
}

static int create(recorded_engine *engine, quire_sched_config *config)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = QUIRE_HASH_QUIRE128;
    hasher.profile = config->profile;
    hasher.block_size = config->cache->hash_block_size;
    int status = quire_hasher_create(&hasher, NULL, &engine->hasher);
    config->hasher = engine->hasher;
    config->cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(hasher.algo);
    if (status == QUIRE_OK)
        status = quire_sched_create(config, NULL, &engine->sched);
    if (status != QUIRE_OK)
        return fail_with("config: %s",
                         quire_refusal()[0] != 0 ? quire_refusal() : quire_strerror(status));
    return 0;
}

static int open_with(recorded_engine *engine, json_t *given)
{
    static const char *const profiles[] = {"default", "vllm-0.20", "vllm-0.32", NULL};
    static const char *const policies[] = {"fcfs", "priority", NULL};
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_group_config groups[MAX_GROUPS];
    memset(groups, 0, sizeof groups);
    int profile = place_of(given, "profile", profiles);
    int policy = profile < 0 ? -1 : place_of(given, "policy", policies);
    if (policy < 0 || read_fields(given, sched_fields, &config) != 0 ||
        read_fields(given, cache_fields, &cache) != 0 ||
        read_groups(given, groups, &cache.num_groups) != 0)
        return -1;
    config.cache = &cache;
    config.policy = (quire_policy)policy;
    config.profile = cache.profile = (quire_profile)profile;
    cache.groups = groups;
    cache.watermark = json_number_value(json_object_get(given, "watermark"));
    json_t *tokens = json_object_get(given, "max_text_tokens");
    config.max_text_tokens = (uint64_t)json_integer_value(tokens);
    engine->hash_block_size = cache.hash_block_size;
    engine->max_num_seqs = config.max_num_seqs;
    engine->num_spec_tokens = config.num_spec_tokens;
    return create(engine, &config);
}

int recorded_engine_open(recorded_engine *engine, const char *config, size_t bytes)
{
    json_error_t error;
    json_t *given = json_loadb(config, bytes, 0, &error);
    *engine = (recorded_engine){0};
    int failed = given == NULL ? fail_with("config: %s", error.text) : open_with(engine, given);
    json_decref(given);
    if (failed != 0)
        recorded_engine_close(engine);
    return failed;
}

void recorded_engine_close(recorded_engine *engine)
{
    quire_sched_destroy(engine->sched);
    quire_hasher_destroy(engine->hasher);
    *engine = (recorded_engine){0};
}
