#include "cache/cache_kit.h"

/* ---- groups ------------------------------------------------------------- */

static quire_group_config attention(quire_layer_kind kind, uint32_t block_size)
{
    return (quire_group_config){.spec = {.kind = kind,
                                         .block_size = block_size,
                                         .num_kv_heads = 1,
                                         .head_size = 8,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
}

quire_group_config kit_full(uint32_t block_size)
{
    return attention(QUIRE_LAYER_FULL, block_size);
}

quire_group_config kit_window(uint32_t block_size, uint32_t window)
{
    quire_group_config group = attention(QUIRE_LAYER_SLIDING_WINDOW, block_size);
    group.spec.sliding_window = window;
    return group;
}

quire_group_config kit_chunked(uint32_t block_size, uint32_t chunk)
{
    quire_group_config group = attention(QUIRE_LAYER_CHUNKED_LOCAL, block_size);
    group.spec.attention_chunk_size = chunk;
    return group;
}

quire_group_config kit_mamba(uint32_t block_size, quire_mamba_mode mode, uint32_t num_speculative)
{
    quire_group_config group = {.spec = {.kind = QUIRE_LAYER_MAMBA, .block_size = block_size}};
    group.spec.states[0] = (quire_state){.num_dims = 1, .dims = {16}, .dtype = QUIRE_DTYPE_FLOAT32};
    group.spec.mamba_mode = mode;
    group.spec.num_speculative_blocks = num_speculative;
    return group;
}

quire_group_config kit_sink(uint32_t block_size, uint32_t sink_len)
{
    quire_group_config group = attention(QUIRE_LAYER_SINK_FULL, block_size);
    group.spec.sink_len = sink_len;
    return group;
}

quire_group_config kit_cross(uint32_t block_size)
{
    return attention(QUIRE_LAYER_CROSS, block_size);
}

uint32_t kit_draw_groups(uint64_t *random, uint32_t size, quire_group_config *groups)
{
    quire_mamba_mode mode = (quire_mamba_mode)unit_random_below(random, 3);
    switch (unit_random_below(random, 10)) {
    case 0:
        groups[0] = kit_full(size);
        return 1;
    case 1:
        groups[0] = kit_window(size, 1 + unit_random_below(random, 9));
        return 1;
    case 2:
        groups[0] = kit_chunked(size, 1 + unit_random_below(random, 9));
        return 1;
    case 3:
        groups[0] = kit_mamba(size, mode, unit_random_below(random, 3));
        return 1;
    case 4:
        groups[0] = kit_sink(size, size * (1 + unit_random_below(random, 2)));
        return 1;
    case 5:
        groups[0] = kit_full(size);
        groups[1] = kit_cross(size);
        return 2;
    case 6:
        groups[0] = kit_full(size);
        groups[1] = kit_mamba(size, mode, unit_random_below(random, 3));
        return 2;
    case 7:
        groups[0] = kit_full(size);
        groups[1] = kit_window(2 * size, 1 + unit_random_below(random, 9));
        groups[2] = kit_full(size);
        groups[2].spec.head_size = 16;
        return 3;
    case 8:
        groups[0] = kit_window(size, 2 + unit_random_below(random, 3));
        groups[1] = kit_window(size, 6 + unit_random_below(random, 3));
        return 2;
    default:
        groups[0] = kit_chunked(size, 2 * size);
        groups[1] = kit_full(size);
        groups[2] = kit_mamba(size, mode, 1);
        return 3;
    }
}

static void keep_if_allowed(quire_cache_config *config, const quire_cache_config *before)
{
    if (quire_cache_bytes(config) == 0)
        *config = *before;
}

void kit_draw_switches(uint64_t *random, quire_cache_config *config)
{
    config->enable_caching = QUIRE_OFF;
    assert_true(quire_cache_bytes(config) > 0);
    quire_cache_config before = *config;
    if (unit_random_below(random, 4) > 0)
        config->enable_caching = QUIRE_ON;
    keep_if_allowed(config, &before);
    before = *config;
    if (unit_random_below(random, 3) == 0)
        config->use_eagle = QUIRE_ON;
    keep_if_allowed(config, &before);
    before = *config;
    if (unit_random_below(random, 3) == 0)
        config->dcp_world_size = 2;
    keep_if_allowed(config, &before);
}

/* ---- a cache ------------------------------------------------------------ */

quire_cache_config kit_config(const quire_group_config *groups, uint32_t num_groups,
                              uint32_t num_blocks)
{
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    config.num_blocks = num_blocks;
    config.groups = groups;
    config.num_groups = num_groups;
    config.max_model_len = KIT_MAX_TOKENS;
    config.max_requests = 32;
    config.digest_bytes = KIT_DIGEST;
    return config;
}

void kit_open(cache_kit *kit, const quire_cache_config *config)
{
    memset(kit, 0, sizeof *kit);
    assert_int_equal(quire_cache_create(config, NULL, &kit->cache), QUIRE_OK);
    kit->pool = quire_cache_get_pool(kit->cache);
    kit->num_groups = quire_cache_get_counts(kit->cache).num_groups;
    kit->hash_block_size = quire_cache_get_counts(kit->cache).hash_block_size;
    assert_int_equal(kit->num_groups, config->num_groups);
    assert_true(kit->num_groups <= KIT_MAX_GROUPS);
    kit_check(kit);
}

void kit_close(cache_kit *kit)
{
    kit_check(kit);
    quire_cache_destroy(kit->cache);
    kit->cache = NULL;
}

void kit_check(const cache_kit *kit)
{
    assert_int_equal(quire_cache_check(kit->cache), QUIRE_OK);
}

/* ---- requests ----------------------------------------------------------- */

/* FNV-1a of all letters up to the end of the hash block, twice with different starts. */
static void hash_prefix(const char *text, size_t len, unsigned char *out)
{
    for (uint64_t half = 0; half < 2; half++) {
        uint64_t h = UINT64_C(0xcbf29ce484222325) + half;
        for (size_t i = 0; i < len; i++)
            h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
        memcpy(out + half * sizeof h, &h, sizeof h);
    }
}

void kit_request_init(const cache_kit *kit, kit_request *request, const char *text)
{
    size_t len = strlen(text);
    assert_true(len > 0 && len <= KIT_MAX_TOKENS);
    memset(request, 0, sizeof *request);
    request->r.num_tokens = (uint32_t)len;
    request->r.num_hashes = (uint32_t)len / kit->hash_block_size;
    request->r.hashes = request->hashes;
    for (uint32_t i = 0; i < request->r.num_hashes; i++)
        hash_prefix(text, (size_t)(i + 1) * kit->hash_block_size, request->hashes + i * KIT_DIGEST);
}

void kit_append(const cache_kit *kit, kit_request *request, char *text, char token)
{
    size_t len = strlen(text);
    assert_true(len == request->r.num_tokens && len < KIT_MAX_TOKENS);
    text[len] = token;
    text[len + 1] = '\0';
    request->r.num_tokens++;
    uint32_t i = request->r.num_hashes;
    if (request->r.num_tokens / kit->hash_block_size == i)
        return;
    hash_prefix(text, len + 1, request->hashes + i * KIT_DIGEST);
    request->r.num_hashes++;
}

int kit_try_prefill(cache_kit *kit, kit_request *request)
{
    quire_block_span hit[KIT_MAX_GROUPS];
    uint32_t num_hit = 0;
    assert_int_equal(quire_cache_get_computed_blocks(kit->cache, &request->r, hit, &num_hit),
                     QUIRE_OK);
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = request->r.num_tokens - num_hit,
                                    .num_new_computed_tokens = num_hit,
                                    .new_computed_blocks = hit};
    int status = quire_cache_allocate_slots(kit->cache, &request->r, &params, NULL);
    kit_check(kit);
    if (status == QUIRE_OK)
        request->r.num_computed_tokens = request->r.num_tokens;
    return status;
}

uint32_t kit_prefill(cache_kit *kit, kit_request *request)
{
    quire_block_span hit[KIT_MAX_GROUPS];
    uint32_t num_hit = 0;
    assert_int_equal(quire_cache_get_computed_blocks(kit->cache, &request->r, hit, &num_hit),
                     QUIRE_OK);
    assert_int_equal(kit_try_prefill(kit, request), QUIRE_OK);
    return num_hit;
}

int kit_extend(cache_kit *kit, kit_request *request, uint32_t num_new)
{
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = num_new};
    int status = quire_cache_allocate_slots(kit->cache, &request->r, &params, NULL);
    kit_check(kit);
    if (status == QUIRE_OK)
        request->r.num_computed_tokens += num_new;
    return status;
}

void kit_free(cache_kit *kit, kit_request *request)
{
    assert_int_equal(quire_cache_free(kit->cache, &request->r), QUIRE_OK);
    assert_true(request->r.seq == 0);
    request->r.num_computed_tokens = 0;
    kit_check(kit);
}

/* ---- the pool ----------------------------------------------------------- */

uint32_t kit_num_free(const cache_kit *kit)
{
    return quire_pool_get_num_free_blocks(kit->pool);
}

uint32_t kit_fill(cache_kit *kit, uint32_t num_free, quire_block *taken)
{
    uint32_t now = kit_num_free(kit);
    assert_true(num_free <= now);
    assert_int_equal(quire_pool_get_new_blocks(kit->pool, now - num_free, taken), QUIRE_OK);
    kit_check(kit);
    return now - num_free;
}

void kit_unfill(cache_kit *kit, const quire_block *taken, uint32_t num_taken)
{
    assert_int_equal(quire_pool_free_blocks(kit->pool, taken, num_taken), QUIRE_OK);
    kit_check(kit);
}

/* ---- text --------------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t used;
    size_t bytes;
} writer;

static void say(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->text + w->used, w->bytes - w->used, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && w->used + (size_t)n < w->bytes);
    w->used += (size_t)n;
}

static void say_spans(writer *w, const cache_kit *kit, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < kit->num_groups; g++) {
        say(w, g == 0 ? "" : " |");
        for (uint32_t i = 0; i < spans[g].count; i++)
            say(w, g == 0 && i == 0 ? "%u" : " %u", (unsigned)spans[g].ids[i]);
    }
}

const char *kit_spans(const cache_kit *kit, const quire_block_span *spans)
{
    static char texts[4][KIT_TEXT]; /* some may be wanted at the same time */
    static unsigned next;
    writer w = {texts[next++ % 4], 0, KIT_TEXT};
    w.text[0] = '\0';
    say_spans(&w, kit, spans);
    return w.text;
}

const char *kit_blocks(const cache_kit *kit, quire_seq seq)
{
    quire_block_span spans[KIT_MAX_GROUPS];
    assert_int_equal(quire_cache_get_blocks(kit->cache, seq, spans), QUIRE_OK);
    return kit_spans(kit, spans);
}

static void say_block(writer *w, const cache_kit *kit, quire_block block)
{
    quire_block_info info;
    assert_int_equal(quire_pool_get_block(kit->pool, block, &info), QUIRE_OK);
    say(w, "%c%u", info.state, (unsigned)info.ref_cnt);
    const unsigned char *hash = info.hash.data;
    if (hash != NULL)
        say(w, ".%u", (unsigned)info.group_id);
    for (size_t i = 0; hash != NULL && i < info.hash.len; i++)
        say(w, "%02x", hash[i]);
    say(w, " ");
}

void kit_snapshot(const cache_kit *kit, const kit_request *const *requests, uint32_t num_requests,
                  char *text, size_t bytes)
{
    quire_block queue[KIT_MAX_BLOCKS];
    writer w = {text, 0, bytes};
    uint32_t total = (uint32_t)quire_cache_get_usage(kit->cache).total;
    assert_true(total <= KIT_MAX_BLOCKS);
    for (quire_block b = 0; b < total; b++)
        say_block(&w, kit, b);
    uint32_t num_free = quire_pool_get_all_free_blocks(kit->pool, queue, KIT_MAX_BLOCKS);
    say(&w, "queue");
    for (uint32_t i = 0; i < num_free; i++)
        say(&w, " %u", (unsigned)queue[i]);
    say(&w, " seqs %u", (unsigned)quire_cache_get_counts(kit->cache).num_seqs);
    for (uint32_t i = 0; i < num_requests; i++) {
        quire_block_span spans[KIT_MAX_GROUPS];
        quire_seq seq = requests[i]->r.seq;
        say(&w, " seq %llu: ", (unsigned long long)seq);
        assert_int_equal(quire_cache_get_blocks(kit->cache, seq, spans), QUIRE_OK);
        say_spans(&w, kit, spans);
    }
}
