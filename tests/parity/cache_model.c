#include "parity/cache_model.h"

#include "base/inner.h"
#include "parity/stream.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIGEST_FAMILY = 0xcace, EVENT_LOG_BYTES = 1 << 18 };

/* ---- digests --------------------------------------------------------------- */

static void cache_digest(uint32_t number, unsigned char *out, size_t size)
{
    stream_digest(DIGEST_FAMILY, number, out, size);
    for (size_t i = 0; i < 4; i++)
        out[size - 4 + i] = (unsigned char)((number >> (8 * i)) ^ out[i]);
}

static uint32_t digest_number(cache_model *m, const unsigned char *digest)
{
    unsigned char expanded[CACHE_MAX_DIGEST];
    size_t size = m->config.digest_bytes;
    uint32_t number = 0;
    for (size_t i = 0; i < 4; i++)
        number |= (uint32_t)(digest[size - 4 + i] ^ digest[i]) << (8 * i);
    cache_digest(number, expanded, size);
    recording_expect(&m->r, memcmp(expanded, digest, size) == 0, "hash is one of the recording's");
    return number;
}

/* A hash of several digests, joined. */
static void cache_add_hash(text *t, cache_model *m, const void *hash, size_t len)
{
    const unsigned char *digest = hash;
    size_t size = m->config.digest_bytes;
    recording_expect(&m->r, len > 0 && len % size == 0, "hash is made of whole digests");
    for (size_t at = 0; at < len; at += size)
        text_add(t, at == 0 ? "%" PRIu32 : "+%" PRIu32, digest_number(m, digest + at));
}

void cache_read_hashes(cache_model *m, cache_request *request)
{
    char *list = recording_word(&m->r);
    size_t size = m->config.digest_bytes;
    if (strcmp(list, "-") == 0)
        return;
    for (char *range = strsep(&list, ","); range != NULL; range = strsep(&list, ",")) {
        char *end;
        uint32_t first = (uint32_t)strtoul(range, &end, 10);
        uint32_t last = *end == '-' ? (uint32_t)strtoul(end + 1, NULL, 10) : first;
        for (uint32_t number = first; number <= last; number++) {
            uint32_t at = request->q.num_hashes++;
            recording_expect(&m->r, at < CACHE_MAX_HASHES, "hashes fit");
            cache_digest(number, request->hashes + at * size, size);
        }
    }
}

/* ---- events ---------------------------------------------------------------- */

/* With nulls, blocks without a key count in the number of blocks. */
static void cache_add_event(text *t, cache_model *m, const quire_event *event, bool with_nulls)
{
    text_add(t, "%s", t->len == 0 ? "" : " ");
    if (event->kind == QUIRE_EVENT_CLEARED) {
        text_add(t, "C");
        return;
    }
    bool stored = event->kind == QUIRE_EVENT_STORED;
    uint32_t num_keys = 0;
    for (uint32_t i = 0; i < event->num_blocks; i++)
        num_keys += event->blocks[i] != QUIRE_NULL_BLOCK;
    text_add(t, "%c%" PRIu32 ":", stored ? 'S' : 'R', event->group_id);
    if (stored)
        text_add(t, "%" PRIu32 "+%" PRIu32 ":", event->first_block,
                 with_nulls ? event->num_blocks : num_keys);
    bool is_first = true;
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        if (event->blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        text_add(t, "%s", is_first ? "" : ",");
        cache_add_hash(t, m, (const unsigned char *)event->hashes + (size_t)i * event->hash_bytes,
                       event->hash_bytes);
        is_first = false;
    }
    if (!stored)
        return;
    text_add(t, "^");
    if (event->parent.data == NULL)
        text_add(t, "-");
    else
        cache_add_hash(t, m, event->parent.data, event->parent.len);
    text_add(t, "/%" PRIu32, event->block_size);
}

static void on_event(void *user, const quire_event *event)
{
    cache_model *m = user;
    m->num_stored += event->kind == QUIRE_EVENT_STORED;
    m->num_removed += event->kind == QUIRE_EVENT_REMOVED;
    m->num_cleared += event->kind == QUIRE_EVENT_CLEARED;
    if (event->kind == QUIRE_EVENT_STORED) {
        recording_expect(&m->r, event->request == m->caller, "event names its request");
        bool is_keyless = true;
        for (uint32_t i = 0; i < event->num_blocks; i++)
            is_keyless = is_keyless && event->blocks[i] == QUIRE_NULL_BLOCK;
        m->num_keyless += is_keyless;
        m->num_partial += event->block_size < m->groups[event->group_id].spec.block_size;
    }
    cache_add_event(&m->events, m, event, true);
    cache_add_event(&m->log_expected, m, event, false);
}

static void take_logged(void *user, const quire_event *event)
{
    cache_model *m = user;
    cache_add_event(&m->log_taken, m, event, false);
}

static const char *shown(const text *t)
{
    return t->len == 0 ? "" : t->data;
}

void cache_check_log(cache_model *m)
{
    uint64_t lost = 0;
    int status = quire_cache_take_events(m->cache, take_logged, m, &lost);
    recording_expect(&m->r, status == QUIRE_OK && lost == 0, "the log has all events");
    if (strcmp(shown(&m->log_taken), shown(&m->log_expected)) != 0)
        recording_differs(&m->r, "event log", shown(&m->log_expected), shown(&m->log_taken));
    text_clear(&m->log_taken);
    text_clear(&m->log_expected);
}

/* ---- the cache ------------------------------------------------------------- */

static quire_layer_kind layer_kind(char letter)
{
    switch (letter) {
    case 'F':
        return QUIRE_LAYER_FULL;
    case 'Q':
        return QUIRE_LAYER_TQ_FULL;
    case 'M':
        return QUIRE_LAYER_MLA;
    case 'K':
        return QUIRE_LAYER_SINK_FULL;
    case 'W':
        return QUIRE_LAYER_SLIDING_WINDOW;
    case 'V':
        return QUIRE_LAYER_SLIDING_WINDOW_MLA;
    case 'L':
        return QUIRE_LAYER_CHUNKED_LOCAL;
    case 'S':
        return QUIRE_LAYER_MAMBA;
    default:
        return QUIRE_LAYER_CROSS;
    }
}

static void set_option(cache_model *m, quire_group_config *group, char letter, uint32_t value)
{
    quire_layer_spec *spec = &group->spec;
    if (letter == 'w')
        spec->sliding_window = value;
    else if (letter == 'c')
        spec->attention_chunk_size = value;
    else if (letter == 's')
        spec->sink_len = value;
    else if (letter == 'h')
        spec->num_kv_heads = value;
    else if (letter == 'q')
        spec->tq_slot_size = value;
    else if (letter == 'm')
        spec->mamba_mode = (quire_mamba_mode)value;
    else if (letter == 'n')
        spec->num_speculative_blocks = value;
    else if (letter == 'e')
        group->is_eagle = value;
    else
        recording_expect(&m->r, false, "option of a group is known");
}

/* W16w48e1: cache_mixes.py has the letters. */
static void read_group(cache_model *m, const char *word, quire_group_config *group)
{
    char *end;
    *group = (quire_group_config){.spec = {.kind = layer_kind(word[0])}};
    group->spec.block_size = (uint32_t)strtoul(word + 1, &end, 10);
    if (group->spec.kind == QUIRE_LAYER_MAMBA) {
        group->spec.states[0] =
            (quire_state){.num_dims = 2, .dims = {2, 2}, .dtype = QUIRE_DTYPE_FLOAT32};
    } else {
        group->spec.num_kv_heads = 1;
        group->spec.head_size = 2;
        group->spec.dtype = QUIRE_DTYPE_FLOAT32;
    }
    while (*end != '\0') {
        char letter = *end;
        set_option(m, group, letter, (uint32_t)strtoul(end + 1, &end, 10));
    }
}

/* What vLLM 0.32 has besides; the replay with another profile leaves it out. */
static void read_rules(cache_model *m, quire_cache_config *config)
{
    const char *word = recording_word(&m->r);
    uint32_t interval =
        strcmp(word, "all") == 0 ? QUIRE_RETAIN_ALL : (uint32_t)strtoul(word, NULL, 10);
    double watermark = recording_u32(&m->r) / 100.0;
    uint32_t lookahead = recording_u32(&m->r);
    if (m->profile != QUIRE_PROFILE_VLLM_0_32)
        return;
    config->prefix_cache_retention_interval = interval;
    config->watermark = watermark;
    config->num_prefill_lookahead = lookahead;
}

static void read_config(cache_model *m)
{
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    snprintf(m->mix, sizeof m->mix, "%s", recording_word(&m->r));
    config.num_blocks = recording_u32(&m->r);
    config.max_model_len = recording_u32(&m->r);
    config.max_num_batched_tokens = recording_u32(&m->r);
    config.enable_caching = recording_u32(&m->r) != 0 ? QUIRE_ON : QUIRE_OFF;
    config.use_eagle = recording_u32(&m->r) != 0 ? QUIRE_ON : QUIRE_OFF;
    config.log_stats = recording_u32(&m->r) != 0 ? QUIRE_ON : QUIRE_OFF;
    config.dcp_world_size = recording_u32(&m->r);
    config.pcp_world_size = recording_u32(&m->r);
    config.hash_block_size = recording_u32(&m->r);
    config.digest_bytes = recording_u32(&m->r);
    config.max_encoder_tokens = recording_u32(&m->r);
    if (cache_is_0_32(&m->r))
        read_rules(m, &config);
    while (m->r.cursor != NULL) {
        recording_expect(&m->r, config.num_groups < CACHE_MAX_GROUPS, "groups fit");
        read_group(m, recording_word(&m->r), &m->groups[config.num_groups++]);
    }
    recording_expect(
        &m->r, config.num_blocks <= CACHE_MAX_BLOCKS && config.digest_bytes <= CACHE_MAX_DIGEST,
        "cache fits");
    config.groups = config.num_groups > 0 ? m->groups : NULL;
    config.max_requests = CACHE_MAX_REQUESTS;
    config.track_new_blocks = QUIRE_ON;
    config.profile = m->profile;
    config.event_log_bytes = EVENT_LOG_BYTES;
    config.on_event = on_event;
    config.event_user = m;
    m->config = config;
}

void cache_model_start(cache_model *m)
{
    read_config(m);
    quire_cache_destroy(m->cache);
    m->cache = NULL;
    int status = quire_cache_create(&m->config, NULL, &m->cache);
    m->is_passed_over = status == QUIRE_E_CONFIG && m->profile != m->r.profile;
    if (status != QUIRE_OK && !m->is_passed_over)
        recording_differs(&m->r, "status of create", "QUIRE_OK", quire_status_name(status));
    for (uint32_t i = 0; i < CACHE_MAX_REQUESTS; i++)
        m->requests[i].q = (quire_cache_request){0};
    text_clear(&m->events);
    text_clear(&m->log_expected);
    recording_start_case(&m->r);
}

void cache_model_refuse(cache_model *m)
{
    quire_cache *cache = NULL;
    read_config(m);
    m->r.compared++;
    if (m->profile != m->r.profile && cache_is_0_32(&m->r))
        return; /* other releases are less strict */
    int status = quire_cache_create(&m->config, NULL, &cache);
    if (status != QUIRE_E_CONFIG || quire_cache_bytes(&m->config) != 0)
        recording_differs(&m->r, "status of create", "QUIRE_E_CONFIG", quire_status_name(status));
    quire_cache_destroy(cache);
}

void cache_model_free(cache_model *m)
{
    quire_cache_destroy(m->cache);
    text_free(&m->events);
    text_free(&m->log_expected);
    text_free(&m->log_taken);
}

/* ---- descriptions ---------------------------------------------------------- */

void cache_add_spans(text *t, const cache_model *m, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < m->config.num_groups; g++) {
        text_add(t, "%s", g == 0 ? "" : ";");
        text_add_ids(t, spans[g].ids, spans[g].count);
    }
    if (m->config.num_groups == 0)
        text_add(t, ".");
}

void cache_add_request(text *t, cache_model *m, const cache_request *request)
{
    quire_block_span spans[CACHE_MAX_GROUPS] = {{0}};
    int status = quire_cache_get_blocks(m->cache, request->q.seq, spans);
    if (status != QUIRE_OK)
        recording_differs(&m->r, "status of get_blocks", "QUIRE_OK", quire_status_name(status));
    cache_add_spans(t, m, spans);
}

uint32_t cache_num_sink_blocks(const cache_model *m)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < m->config.num_groups; g++) {
        quire_block_span span = {0};
        span = inner_sinks(m->cache, g);
        count += span.count;
    }
    return count;
}

static bool is_sink(const cache_model *m, quire_block block)
{
    for (uint32_t g = 0; g < m->config.num_groups; g++) {
        quire_block_span span = {0};
        span = inner_sinks(m->cache, g);
        for (uint32_t i = 0; i < span.count; i++) {
            if (span.ids[i] == block)
                return true;
        }
    }
    return false;
}

static void cache_add_extra_keys(text *t, cache_model *m, quire_block block)
{
    const quire_pool *pool = quire_cache_get_pool(m->cache);
    quire_bytes key;
    for (uint32_t i = 0; inner_extra_key(pool, block, i, &key); i++) {
        text_add(t, "~");
        cache_add_hash(t, m, key.data, key.len);
    }
}

/* vLLM gives the blocks of a sink no user, so they are left out. */
static void cache_add_blocks(text *t, cache_model *m)
{
    quire_block free_blocks[CACHE_MAX_BLOCKS];
    const quire_pool *pool = quire_cache_get_pool(m->cache);
    uint32_t count = quire_pool_get_all_free_blocks(pool, free_blocks, CACHE_MAX_BLOCKS);
    text_add(t, "|");
    text_add_ids(t, free_blocks, count);
    text_add(t, "|");
    bool is_first = true;
    for (quire_block b = 1; b < m->config.num_blocks; b++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(pool, b, &info), QUIRE_OK);
        if ((info.ref_cnt == 0 && info.hash.data == NULL) || is_sink(m, b))
            continue;
        text_add(t, is_first ? "%" PRIu32 ":%" PRIu32 : " %" PRIu32 ":%" PRIu32, b, info.ref_cnt);
        is_first = false;
        if (info.hash.data != NULL) {
            text_add(t, "@%" PRIu32 ".", info.group_id);
            cache_add_hash(t, m, info.hash.data, info.hash.len);
            cache_add_extra_keys(t, m, b);
        }
    }
}

void cache_add_state(text *t, cache_model *m, bool all)
{
    uint64_t bits;
    double usage = quire_usage_level(quire_cache_get_usage(m->cache));
    const quire_pool *pool = quire_cache_get_pool(m->cache);
    memcpy(&bits, &usage, sizeof bits);
    text_add(t, "|%" PRIu32 " %016" PRIx64 " %" PRIu32, quire_pool_get_num_free_blocks(pool), bits,
             quire_pool_get_counts(pool).num_keys);
    if (all)
        cache_add_blocks(t, m);
}
