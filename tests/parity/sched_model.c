#include "parity/sched_model.h"

#include "parity/stream.h"

#include <ctype.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_LIVE = 128, MAX_TEXT_TOKENS = 1 << 16, MAX_REQUEST_BYTES = 8192 };

uint64_t sched_draw(const sched_model *m, enum sched_draw kind, uint64_t a, uint64_t b)
{
    uint64_t state = m->seed ^ ((uint64_t)kind << 60) ^ (a << 28) ^ b;
    return stream_next(&state);
}

void sched_expect_ok(sched_model *m, const char *what, int status)
{
    if (status != QUIRE_OK)
        recording_differs(&m->r, what, "QUIRE_OK", quire_status_name(status));
}

char *sched_option(sched_model *m)
{
    const char *cursor = m->r.cursor;
    if (cursor == NULL || cursor[0] == '~' || strchr(cursor, ' ') == NULL)
        return NULL;
    return recording_word(&m->r);
}

/* ---- requests -------------------------------------------------------------- */

sched_request *sched_request_at(sched_model *m, unsigned long number)
{
    recording_expect(&m->r, number < m->num_requests, "request was added");
    return &m->requests[number];
}

uint32_t sched_number(sched_model *m, quire_req req)
{
    uint32_t i = m->num_requests;
    while (i > 0 && m->requests[i - 1].req != req)
        i--;
    recording_expect(&m->r, i > 0 && req != 0, "request is one of the recording's");
    return i - 1;
}

/* ---- config ---------------------------------------------------------------- */

static quire_layer_kind layer_kind(sched_model *m, char letter)
{
    switch (letter) {
    case 'F':
        return QUIRE_LAYER_FULL;
    case 'M':
        return QUIRE_LAYER_MLA;
    case 'W':
        return QUIRE_LAYER_SLIDING_WINDOW;
    case 'L':
        return QUIRE_LAYER_CHUNKED_LOCAL;
    case 'S':
        return QUIRE_LAYER_MAMBA;
    case 'R':
        return QUIRE_LAYER_RSWA;
    case 'C':
        return QUIRE_LAYER_CIRCULAR_BUFFER;
    case 'H':
        return QUIRE_LAYER_HIDDEN_STATE;
    default:
        recording_expect(&m->r, letter == 'X', "kind of group is known");
        return QUIRE_LAYER_CROSS;
    }
}

static void set_checkpoints(quire_layer_spec *spec, uint32_t alignment)
{
    spec->num_prefill_checkpoint_blocks = 1;
    spec->prefill_checkpoint_alignment = alignment;
}

/* W16w48: cache_mixes.py has the letters. */
static void read_group(sched_model *m, const char *word, quire_group_config *group)
{
    char *end;
    quire_layer_spec *spec = &group->spec;
    *group = (quire_group_config){.spec = {.kind = layer_kind(m, word[0])}};
    spec->block_size = (uint32_t)strtoul(word + 1, &end, 10);
    if (spec->kind == QUIRE_LAYER_MAMBA) {
        spec->states[0] =
            (quire_state){.num_dims = 2, .dims = {2, 2}, .dtype = QUIRE_DTYPE_FLOAT32};
    } else {
        spec->num_kv_heads = 1;
        spec->head_size = 2;
        spec->dtype = QUIRE_DTYPE_FLOAT32;
    }
    while (*end != '\0') {
        char letter = *end;
        uint32_t value = (uint32_t)strtoul(end + 1, &end, 10);
        if (letter == 'w')
            spec->sliding_window = value;
        else if (letter == 'c')
            spec->attention_chunk_size = value;
        else if (letter == 'g')
            spec->rswa_window = value;
        else if (letter == 'h')
            spec->num_kv_heads = value;
        else if (letter == 'm')
            spec->mamba_mode = (quire_mamba_mode)value;
        else if (letter == 'n')
            spec->num_speculative_blocks = value;
        else if (letter == 'a')
            set_checkpoints(spec, value);
        else if (letter == 'j')
            m->cache_config.mamba_shared_prefix_checkpoint = QUIRE_ON;
        else
            recording_expect(&m->r, false, "option of a group is known");
    }
}

static quire_switch read_switch(sched_model *m)
{
    return recording_u32(&m->r) != 0 ? QUIRE_ON : QUIRE_OFF;
}

static void read_limits(sched_model *m, quire_sched_config *config)
{
    recording *r = &m->r;
    m->seed = recording_number(r);
    config->cache->num_blocks = recording_u32(r);
    config->cache->max_model_len = recording_u32(r);
    config->max_num_batched_tokens = recording_u32(r);
    config->cache->max_num_batched_tokens = config->max_num_batched_tokens;
    config->max_num_scheduled_tokens = recording_u32(r);
    config->max_num_seqs = recording_u32(r);
    config->long_prefill_token_threshold = recording_u32(r);
    config->enable_chunked_prefill = read_switch(m);
    config->reserve_full_sequence = read_switch(m);
    config->async_scheduling = read_switch(m);
    config->max_batches = recording_u32(r);
    config->num_spec_tokens = recording_u32(r);
    config->num_lookahead_tokens = recording_u32(r);
    config->cache->use_eagle = read_switch(m);
    config->max_loras = recording_u32(r);
    config->is_encoder_decoder = read_switch(m);
    config->disable_chunked_mm_input = read_switch(m);
    config->encoder_compute_budget = recording_u32(r);
    config->encoder_cache_size = recording_u32(r);
    uint32_t image_size = recording_u32(r);
    if (config->is_encoder_decoder == QUIRE_ON)
        config->cache->max_encoder_tokens = image_size;
}

/* What 0.32 has and 0.20 has not. */
static void read_new(sched_model *m, quire_sched_config *config)
{
    recording *r = &m->r;
    config->max_num_active_seqs = recording_u32(r);
    config->long_prefill_token_threshold_adaptive = read_switch(m);
    config->num_draft_slots = recording_u32(r);
    config->num_prefill_lookahead_tokens = recording_u32(r);
    config->is_pooling_model = read_switch(m);
    config->cache->watermark = recording_u32(r) / 100.0;
    m->requires_kv_delivery = recording_u32(r) != 0;
    const char *interval = recording_word(r); /* -1: None */
    config->cache->prefix_cache_retention_interval =
        interval[0] == '-' ? QUIRE_RETAIN_ALL : (uint32_t)strtoul(interval, NULL, 10);
    m->is_kv_consumer = recording_u32(r) != 0;
    m->diverges = r->cursor != NULL && strncmp(r->cursor, "+diverges ", 10) == 0;
    if (m->diverges)
        (void)recording_word(r);
}

/* x1 answers say more; k2.1 drafts after a step of 1, 2, ...; g3 decodes 3 steps apart. Of
 * extra_mixes.py: t1 the connector takes states; b1 it is asked for pending frees; d1 an encoder
 * connector; o1 an engine that encodes only; z1 new blocks are zeroed; n1 EAGLE that drops no block
 * of a hit, but still looks ahead in prefill. */
static void read_option(sched_model *m, const char *word, quire_sched_config *config)
{
    char *end;
    uint32_t value = (uint32_t)strtoul(word + 1, &end, 10);
    m->is_extended = m->is_extended || word[0] == 'x';
    if (word[0] == 'g')
        config->decode_interval = value;
    m->takes_states = m->takes_states || word[0] == 't';
    m->asks_pending_frees = m->asks_pending_frees || word[0] == 'b';
    m->has_encoder_connector = m->has_encoder_connector || word[0] == 'd';
    if (word[0] == 'z')
        config->cache->track_new_blocks = QUIRE_ON;
    if (word[0] == 'o')
        config->is_encoder_only = QUIRE_ON;
    if (word[0] == 'n') {
        config->cache->use_eagle = QUIRE_OFF;
        if (config->num_prefill_lookahead_tokens == 0)
            config->num_prefill_lookahead_tokens = 1;
    }
    if (word[0] != 'k')
        return;
    m->drafts_by_batch[config->num_batch_sizes++] = value;
    while (*end == '.')
        m->drafts_by_batch[config->num_batch_sizes++] = (uint32_t)strtoul(end + 1, &end, 10);
    config->num_spec_tokens_by_batch = m->drafts_by_batch;
}

static quire_hash_algo read_config(sched_model *m)
{
    recording *r = &m->r;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    m->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    config.cache = &m->cache_config;
    snprintf(m->mix, sizeof m->mix, "%s", recording_word(r));
    read_limits(m, &config);
    config.policy = recording_u32(r) != 0 ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    config.cache->enable_caching = read_switch(m);
    config.log_stats = read_switch(m);
    config.include_finished_set = read_switch(m);
    bool has_connector = recording_u32(r) != 0;
    config.fail_on_load_error = read_switch(m);
    m->is_pipeline = recording_u32(r) != 0;
    config.cache->dcp_world_size = recording_u32(r);
    config.cache->pcp_world_size = recording_u32(r);
    config.cache->hash_block_size = recording_u32(r);
    quire_hash_algo algo = (quire_hash_algo)recording_u32(r);
    m->alphabet = recording_u32(r);
    config.cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(algo);
    if (r->profile == QUIRE_PROFILE_VLLM_0_32)
        read_new(m, &config);
    m->is_extended = false;
    m->takes_states = m->asks_pending_frees = m->has_encoder_connector = false;
    while (r->cursor != NULL) {
        const char *word = recording_word(r);
        if (islower((unsigned char)word[0])) {
            read_option(m, word, &config);
            continue;
        }
        recording_expect(r, config.cache->num_groups < SCHED_MAX_GROUPS, "groups fit");
        read_group(m, word, &m->groups[config.cache->num_groups++]);
    }
    recording_expect(r, config.cache->num_blocks <= SCHED_MAX_BLOCKS, "blocks fit");
    config.cache->groups = m->groups;
    config.max_requests = config.max_loading = MAX_LIVE;
    config.max_text_tokens = MAX_TEXT_TOKENS;
    config.max_request_bytes = MAX_REQUEST_BYTES;
    config.profile = r->profile;
    m->config = config;
    sched_set_callbacks(m, has_connector);
    return algo;
}

/* ---- the scheduler --------------------------------------------------------- */

static void destroy(sched_model *m)
{
    quire_sched_destroy(m->sched);
    quire_hasher_destroy(m->hasher);
    m->sched = NULL;
    m->hasher = NULL;
    sched_forget_requests(m);
}

void sched_model_start(sched_model *m)
{
    destroy(m);
    quire_hash_algo algo = read_config(m);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = algo;
    hasher.block_size = m->config.cache->hash_block_size;
    hasher.profile = m->r.profile;
    hasher.seed = (quire_bytes){"0", 1};
    sched_expect_ok(m, "status of the hasher's create",
                    quire_hasher_create(&hasher, NULL, &m->hasher));
    m->config.hasher = m->hasher;
    sched_expect_ok(m, "status of create", quire_sched_create(&m->config, NULL, &m->sched));
    m->num_flight = 0;
    m->num_steps = m->num_operations = 0;
    m->updated.num_reqs = 0;
    text_clear(&m->calls);
    text_clear(&m->events);
    sched_tally_start(&m->tally, m->mix);
    recording_start_case(&m->r);
}

void sched_model_free(sched_model *m)
{
    destroy(m);
    text_free(&m->calls);
    text_free(&m->events);
}
