#include "coverage/sched_kit.h"

/* ---- what the scheduler calls ---------------------------------------------- */

static const char *name_of(const sched_kit *kit, quire_req req)
{
    for (uint32_t i = 0; i < kit->num_names; i++)
        if (kit->names[i].req == req)
            return kit->names[i].name;
    return "?";
}

static const char *reason_name(quire_reason reason)
{
    static const char *const names[] = {"none",  "grammar",   "loading", "streaming",
                                        "lora",  "connector", "chunk",   "encoder",
                                        "align", "text",      "blocks"};
    return (size_t)reason < COUNT(names) ? names[reason] : "?";
}

static void note_decision(void *user, const quire_decision *d)
{
    sched_kit *kit = user;
    size_t used = strlen(kit->told);
    char *at = kit->told + used;
    size_t room = sizeof kit->told - used;
    const char *name = name_of(kit, d->req);
    assert_true(room > 64 && d->step > 0);
    if (used > 0) {
        memcpy(at, "; ", 3);
        at += 2;
        room -= 2;
    }
    switch (d->kind) {
    case QUIRE_DECISION_HELD_UP:
        snprintf(at, room, "held_up %s %s", name, reason_name(d->reason));
        break;
    case QUIRE_DECISION_NO_ROOM:
        snprintf(at, room, "no_room %s %s %u", name, reason_name(d->reason), d->num);
        break;
    case QUIRE_DECISION_PREEMPTED:
        snprintf(at, room, "preempted %s for %s", name, name_of(kit, d->other));
        break;
    case QUIRE_DECISION_EVICTED:
        assert_true(d->block != QUIRE_NULL_BLOCK);
        snprintf(at, room, "evicted for %s", name);
        break;
    case QUIRE_DECISION_DROPPED:
        snprintf(at, room, "dropped %s %u", name, d->num);
        break;
    case QUIRE_DECISION_OUTGROWN:
        snprintf(at, room, "outgrown %s", name);
        break;
    default:
        fail_msg("decision of kind %d", (int)d->kind);
    }
}

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    sched_kit *kit = user;
    kit->snapshot = *snapshot;
    kit->num_snapshots++;
}

static void note_event(void *user, const quire_event *event)
{
    sched_kit *kit = user;
    (void)event;
    kit->num_events++;
}

static uint64_t same_time(void *user)
{
    (void)user;
    return 7;
}

static int matched_tokens(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                          uint32_t *is_async)
{
    sched_kit *kit = user;
    (void)req;
    (void)num_local;
    *num_external = kit->num_external;
    *is_async = kit->is_async;
    return kit->matched_answer;
}

static void after_alloc(void *user, quire_req req, const quire_block_span *blocks, uint32_t n)
{
    sched_kit *kit = user;
    (void)req;
    (void)n;
    assert_non_null(blocks);
    kit->num_told++;
}

static void *build_meta(void *user, const quire_step *step)
{
    assert_non_null(step);
    return user;
}

static int keeps_blocks(void *user, quire_req req, const quire_block_span *blocks)
{
    sched_kit *kit = user;
    (void)req;
    assert_non_null(blocks);
    return kit->keeps_blocks;
}

static int reset_connector(void *user)
{
    sched_kit *kit = user;
    return kit->reset_answer;
}

static int is_ready(void *user, quire_req req)
{
    sched_kit *kit = user;
    (void)req;
    return kit->is_ready;
}

static int should_advance(void *user, quire_req req)
{
    sched_kit *kit = user;
    (void)req;
    return kit->advances;
}

static int accept_tokens(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    sched_kit *kit = user;
    (void)req;
    assert_true(tokens != NULL && n > 0);
    return kit->accepts;
}

static uint32_t validate_tokens(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    sched_kit *kit = user;
    (void)req;
    (void)tokens;
    (void)n;
    return kit->num_valid;
}

/* ---- making ---------------------------------------------------------------- */

void sched_kit_init(sched_kit *kit, uint32_t num_blocks)
{
    memset(kit, 0, sizeof *kit);
    kit->config = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    kit->cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    kit->config.cache = &kit->cache;
    kit->groups[0].spec = (quire_layer_spec){.kind = QUIRE_LAYER_FULL,
                                             .block_size = SCHED_KIT_BLOCK,
                                             .num_kv_heads = 1,
                                             .head_size = 8,
                                             .dtype = QUIRE_DTYPE_FLOAT16};
    quire_sched_config *c = &kit->config;
    c->cache->num_blocks = num_blocks;
    c->cache->groups = kit->groups;
    c->cache->num_groups = 1;
    c->cache->max_model_len = 64;
    c->cache->digest_bytes = 16;
    c->cache->on_event = note_event;
    c->cache->event_user = kit;
    c->max_num_seqs = SCHED_KIT_SEQS;
    c->max_num_batched_tokens = 64;
    c->max_requests = SCHED_KIT_REQS;
    c->on_decision = note_decision;
    c->on_snapshot = note_snapshot;
    c->observer = kit;
    c->max_ghosts = 1024;
    c->hooks.now_ns = same_time;
    kit->token = 'z';
    kit->accepts = 1;
}

void sched_kit_connect(sched_kit *kit)
{
    kit->connector = (quire_connector){.size = sizeof(quire_connector),
                                       .user = kit,
                                       .get_num_new_matched_tokens = matched_tokens,
                                       .update_state_after_alloc = after_alloc,
                                       .build_meta = build_meta,
                                       .request_finished = keeps_blocks,
                                       .reset_cache = reset_connector};
    kit->config.connector = &kit->connector;
}

void sched_kit_use_grammar(sched_kit *kit)
{
    kit->grammar = (quire_grammar){.size = sizeof(quire_grammar),
                                   .user = kit,
                                   .is_ready = is_ready,
                                   .should_advance = should_advance,
                                   .accept_tokens = accept_tokens,
                                   .validate_tokens = validate_tokens};
    kit->config.grammar = &kit->grammar;
}

void sched_kit_open(sched_kit *kit)
{
    if (kit->config.cache->enable_caching != QUIRE_OFF) {
        quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
        hasher.algo = QUIRE_HASH_QUIRE128;
        hasher.block_size = kit->config.cache->hash_block_size > 0
                                ? kit->config.cache->hash_block_size
                                : SCHED_KIT_BLOCK;
        assert_int_equal(quire_hasher_create(&hasher, NULL, &kit->hasher), QUIRE_OK);
        kit->config.hasher = kit->hasher;
    }
    assert_int_equal(quire_sched_create(&kit->config, NULL, &kit->sched), QUIRE_OK);
}

void sched_kit_close(sched_kit *kit)
{
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
    quire_sched_destroy(kit->sched);
    quire_hasher_destroy(kit->hasher);
}

/* ---- requests -------------------------------------------------------------- */

quire_request_params sched_kit_params(sched_kit *kit, const char *name, const char *text)
{
    size_t n = strlen(text);
    assert_true(n <= SCHED_KIT_PROMPTS);
    for (size_t i = 0; i < n; i++)
        kit->prompt[i] = text[i];
    return (quire_request_params){.size = sizeof(quire_request_params),
                                  .id = {name, strlen(name)},
                                  .prompt = kit->prompt,
                                  .num_prompt_tokens = (uint32_t)n};
}

quire_req sched_kit_add_params(sched_kit *kit, const quire_request_params *params)
{
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit->sched, params, &req), QUIRE_OK);
    assert_true(kit->num_names < COUNT(kit->names) && params->id.len < sizeof kit->names[0].name);
    kit->names[kit->num_names].req = req;
    memcpy(kit->names[kit->num_names++].name, params->id.data, params->id.len);
    return req;
}

quire_req sched_kit_add(sched_kit *kit, const char *name, const char *text, uint32_t max_tokens)
{
    quire_request_params params = sched_kit_params(kit, name, text);
    params.max_tokens = max_tokens;
    return sched_kit_add_params(kit, &params);
}

/* ---- steps ----------------------------------------------------------------- */

void sched_kit_schedule(sched_kit *kit)
{
    assert_int_equal(quire_sched_schedule(kit->sched, &kit->step), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

void sched_kit_update(sched_kit *kit, uint64_t step, const quire_model_output *more)
{
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    quire_token sampled[SCHED_KIT_SEQS];
    for (uint32_t i = 0; i < SCHED_KIT_SEQS; i++)
        sampled[i] = kit->token;
    if (more != NULL)
        output = *more;
    if (output.sampled == NULL)
        output.sampled = sampled;
    assert_int_equal(quire_sched_update(kit->sched, step, &output, &kit->outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

void sched_kit_step(sched_kit *kit)
{
    sched_kit_schedule(kit);
    sched_kit_update(kit, kit->step->step, NULL);
}

/* ---- looking --------------------------------------------------------------- */

const char *sched_kit_told(sched_kit *kit)
{
    static char text[sizeof kit->told];
    memcpy(text, kit->told, sizeof text);
    kit->told[0] = '\0';
    return text;
}

quire_req_status sched_kit_status(const sched_kit *kit, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(kit->sched, req, &info), QUIRE_OK);
    return info.status;
}

const quire_output *sched_kit_output(const sched_kit *kit, quire_req req)
{
    for (uint32_t i = 0; i < kit->outputs->num_outputs; i++)
        if (kit->outputs->outputs[i].req == req)
            return &kit->outputs->outputs[i];
    return NULL;
}
