#include "cache/cache.h"

#include "base/hooks.h"
#include "base/refuse.h"
#include "base/rules.h"
#include "cache/parts.h"
#include "cache/retain.h"
#include "group/spec.h"

enum { DEFAULT_MAX_REQUESTS = 256, DEFAULT_DIGEST_BYTES = 32 };

/* ---- reading the config ---------------------------------------------------- */

/* Ranks that share the tokens of a block. */
static uint32_t cp_of(const quire_cache_config *c, quire_layer_kind kind)
{
    if (!qr_rules_of(c->profile)->shards_attention_only)
        return c->dcp_world_size * c->pcp_world_size;
    return kind == QUIRE_LAYER_MAMBA ? 1 : c->dcp_world_size;
}

static uint32_t block_size_of(const quire_cache_config *c, uint32_t group)
{
    const quire_layer_spec *spec = &c->groups[group].spec;
    return spec->block_size * cp_of(c, spec->kind);
}

static bool has_kind(const quire_cache_config *c, quire_layer_kind kind)
{
    for (uint32_t g = 0; g < c->num_groups; g++)
        if (c->groups[g].spec.kind == kind)
            return true;
    return false;
}

/* Where no group says that it is the drafter's, all are. */
static bool is_eagle_group(const quire_cache_config *c, uint32_t group)
{
    bool any_flagged = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        any_flagged = any_flagged || c->groups[g].is_eagle != 0;
    return c->groups[group].is_eagle || (c->use_eagle == QUIRE_ON && !any_flagged);
}

bool qr_cache_can_move(const quire_cache_config *c)
{
    return !has_kind(c, QUIRE_LAYER_MAMBA) && !has_kind(c, QUIRE_LAYER_CROSS);
}

static void fill_defaults(quire_cache_config *c)
{
    qr_default_u32(&c->max_num_batched_tokens, c->max_model_len);
    qr_default_u32(&c->max_in_flight_tokens, c->max_num_batched_tokens);
    qr_default_u32(&c->max_requests, DEFAULT_MAX_REQUESTS);
    qr_default_u32(&c->digest_bytes, DEFAULT_DIGEST_BYTES);
    qr_default_u32(&c->dcp_world_size, 1);
    qr_default_u32(&c->pcp_world_size, 1);
    if (c->admit_below == 0)
        c->admit_below = 0.80;
    if (c->preempt_above == 0)
        c->preempt_above = 0.95;
    qr_default_switch(&c->enable_caching, c->num_groups > 0);
    qr_default_switch(&c->use_eagle, false);
    qr_default_switch(&c->log_stats, false);
    qr_default_switch(&c->mamba_shared_prefix_checkpoint, false);
    qr_default_switch(&c->track_new_blocks, has_kind(c, QUIRE_LAYER_MAMBA));
}

/* A group's layers, with zeros where their kind has no such field: what a caller left there does
 * not count. */
static quire_layer_spec spec_of(const quire_cache_config *c, uint32_t g)
{
    return qr_spec_resolve(&c->groups[g].spec);
}

static uint32_t num_sinks_of(const quire_cache_config *c, uint32_t g)
{
    return spec_of(c, g).sink_len / block_size_of(c, g);
}

/* What a release of vLLM cannot run, and what the profile does not have yet. */
static int check_kind(const quire_cache_config *c, const quire_layer_spec *spec)
{
    const qr_rules *rules = qr_rules_of(c->profile);
    if (qr_spec_is_new(spec) && !rules->has_new_kinds)
        return qr_refuse("invalid kind %d (layers of this kind need QUIRE_PROFILE_VLLM_0_32)",
                         (int)spec->kind);
    uint32_t num_checkpoints = spec->num_prefill_checkpoint_blocks;
    bool has_checkpoints =
        spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN && rules->takes_parts && num_checkpoints == 1;
    if (num_checkpoints > 0 && !has_checkpoints)
        return qr_refuse("invalid num_prefill_checkpoint_blocks %u (expected 0, or 1 in mode ALIGN "
                         "of QUIRE_PROFILE_VLLM_0_32)",
                         num_checkpoints);
    if (!rules->has_no_old_kinds)
        return QUIRE_OK;
    if (spec->kind == QUIRE_LAYER_TQ_FULL || spec->kind == QUIRE_LAYER_SINK_FULL)
        return qr_refuse("invalid kind %d (vLLM 0.32 has no layers of this kind, or cannot start "
                         "them)",
                         (int)spec->kind);
    bool is_mamba = spec->kind == QUIRE_LAYER_MAMBA;
    if (is_mamba && spec->mamba_mode == QUIRE_MAMBA_MODE_ALL)
        return qr_refuse("invalid mamba_mode %d (vLLM 0.32 has no mode ALL)",
                         (int)spec->mamba_mode);
    return QUIRE_OK;
}

static int check_parallel(const quire_cache_config *c, const quire_layer_spec *spec)
{
    uint32_t ranks = c->dcp_world_size * c->pcp_world_size;
    if (ranks == 1)
        return QUIRE_OK;
    bool is_full = qr_spec_is_full(spec);
    if (!qr_rules_of(c->profile)->shards_attention_only)
        return is_full && c->num_groups == 1
                   ? QUIRE_OK
                   : qr_refuse("context parallelism needs one group of full attention");
    bool is_state = spec->kind == QUIRE_LAYER_MAMBA && c->pcp_world_size == 1;
    return is_full || is_state ? QUIRE_OK
                               : qr_refuse("dcp_world_size is %u and pcp_world_size is %u, but a "
                                           "layer of kind %d cannot be shared by ranks",
                                           c->dcp_world_size, c->pcp_world_size, (int)spec->kind);
}

static int check_group(const quire_cache_config *c, uint32_t g)
{
    int err = qr_spec_check(&c->groups[g].spec);
    if (err != QUIRE_OK)
        return err;
    quire_layer_spec spec = spec_of(c, g);
    if (qr_group_ops_of(spec.kind) == NULL)
        return qr_refuse("layers of kind %d keep no KV", (int)spec.kind);
    uint64_t block_size = (uint64_t)spec.block_size * cp_of(c, spec.kind);
    err = check_kind(c, &spec);
    if (err == QUIRE_OK)
        err = check_parallel(c, &spec);
    if (err != QUIRE_OK)
        return err;
    if (spec.sink_len % block_size != 0)
        return qr_refuse("invalid sink_len %u (expected a multiple of block_size %u)",
                         spec.sink_len, (unsigned)block_size);
    if (spec.kind == QUIRE_LAYER_CROSS && c->max_encoder_tokens == 0)
        return qr_refuse("cross attention needs max_encoder_tokens");
    const qr_field fields[] = {
        {"block_size", block_size, 1, QR_MAX_TOKENS},
        {"num_speculative_blocks", spec.num_speculative_blocks, 0, QR_MAX_TOKENS / block_size},
    };
    return qr_refuse_fields(fields, sizeof fields / sizeof *fields);
}

/* The least number of tokens that is a whole number of blocks in every group, of which there is one
 * at least. */
static uint32_t common_multiple(const quire_cache_config *c)
{
    uint64_t multiple = 1;
    for (uint32_t g = 0; g < c->num_groups; g++) {
        uint32_t size = block_size_of(c, g);
        multiple *= size / qr_gcd(size, multiple); /* both are 1 or more */
        if (multiple > QR_MAX_TOKENS)
            return QR_MAX_TOKENS; /* no request is that long: no hit is */
    }
    return (uint32_t)multiple;
}

/* Sets hash_block_size, and says where no keys can be made. States inside a chunk are kept at ends
 * of hashes, with caching or without. */
static int check_hashing(quire_cache_config *c)
{
    uint32_t divisor = 0;
    uint32_t largest = 0;
    bool any_cacheable = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        any_cacheable = any_cacheable || qr_spec_is_cacheable(&c->groups[g].spec);
    for (uint32_t g = 0; g < c->num_groups; g++) {
        if (any_cacheable && !qr_spec_is_cacheable(&c->groups[g].spec))
            continue; /* its blocks have no keys */
        divisor = (uint32_t)qr_gcd(block_size_of(c, g), divisor);
        if (block_size_of(c, g) > largest)
            largest = block_size_of(c, g);
    }
    if (c->hash_block_size == 0)
        c->hash_block_size = divisor;
    if (qr_cache_has_checkpoints(c) && common_multiple(c) % c->hash_block_size != 0)
        return qr_refuse("invalid hash_block_size %u (expected a divisor of %u)",
                         c->hash_block_size, common_multiple(c));
    if (c->enable_caching == QUIRE_OFF)
        return QUIRE_OK;
    bool is_one = c->num_groups > 1 || c->hash_block_size == divisor;
    if (c->hash_block_size == 0 || divisor % c->hash_block_size != 0 || !is_one)
        return qr_refuse("invalid hash_block_size %u (expected %u%s)", c->hash_block_size, divisor,
                         c->num_groups > 1 ? ", or a divisor of it" : "");
    if (c->digest_bytes % QR_HASH_UNIT != 0)
        return qr_refuse("invalid digest_bytes %u (expected a multiple of %d)", c->digest_bytes,
                         (int)QR_HASH_UNIT);
    uint32_t joined = qr_rules_of(c->profile)->keys_by_last_hash ? 1 : largest / c->hash_block_size;
    if (joined > QR_MAX_HASH_BYTES / c->digest_bytes)
        return qr_refuse("a block of %u tokens has %u hashes of %u bytes (expected at most %d "
                         "bytes in all)",
                         largest, joined, c->digest_bytes, (int)QR_MAX_HASH_BYTES);
    return QUIRE_OK;
}

/* What vLLM cannot do with caching on. */
static bool caching_ok(const quire_cache_config *c)
{
    if (c->enable_caching == QUIRE_OFF)
        return true;
    if (c->num_groups == 0 || has_kind(c, QUIRE_LAYER_CROSS))
        return false;
    bool all_alike = c->num_groups > 1;
    bool any_cacheable = c->num_groups == 1; /* one group alone may have no keys: no hits then */
    for (uint32_t g = 0; g < c->num_groups; g++) {
        any_cacheable = any_cacheable || qr_spec_is_cacheable(&c->groups[g].spec);
        all_alike = all_alike && qr_spec_equal(&c->groups[g].spec, &c->groups[0].spec);
        if (c->groups[g].spec.kind != QUIRE_LAYER_CHUNKED_LOCAL)
            continue;
        bool is_one = qr_cache_takes_parts(c); /* then its hits end at every block */
        for (uint32_t other = 0; other < c->num_groups; other++)
            if (is_eagle_group(c, g) ||
                (!is_one && block_size_of(c, g) % block_size_of(c, other) != 0))
                return false;
    }
    return any_cacheable && (!all_alike || qr_rules_of(c->profile)->takes_equal_groups);
}

static int check_retention(const quire_cache_config *c)
{
    bool any_eagle = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        any_eagle = any_eagle || is_eagle_group(c, g);
    return qr_retain_check(c, common_multiple(c), any_eagle);
}

int qr_cache_config_read(quire_cache_config *c, const quire_cache_config *callers)
{
    int err = qr_refuse_reading(c, sizeof *c, callers, "quire_cache_config");
    if (err != QUIRE_OK)
        return err;
    fill_defaults(c);
    if (c->admit_below > c->preempt_above)
        return qr_refuse("invalid admit_below %g (expected 0..%g, which is preempt_above)",
                         c->admit_below, c->preempt_above);
    bool can_move = c->profile == QUIRE_PROFILE_DEFAULT && qr_cache_can_move(c);
    if (c->num_host_blocks > 0 && !can_move)
        return qr_refuse("num_host_blocks is %u, but moving blocks needs the default profile and "
                         "no Mamba or cross-attention groups",
                         c->num_host_blocks);
    uint64_t num_sinks = 0;
    for (uint32_t g = 0; g < c->num_groups && err == QUIRE_OK; g++) {
        err = qr_refuse_in(check_group(c, g), "groups[%u]", g);
        if (err == QUIRE_OK)
            num_sinks += num_sinks_of(c, g);
    }
    if (err != QUIRE_OK)
        return err;
    if (num_sinks >= c->num_blocks)
        return qr_refuse("the sinks of all groups need %llu blocks, but num_blocks is %u",
                         (unsigned long long)num_sinks, c->num_blocks);
    if (!caching_ok(c))
        return qr_refuse("prefix caching does not go with these groups: it needs a group and no "
                         "cross attention; several equal groups, several circular buffers alone, "
                         "and chunked attention with EAGLE or with other block sizes, are not "
                         "possible");
    if (c->max_copies > 0 && qr_cache_copies_parts(c))
        return qr_refuse("max_copies is %u, but there are no forks with Mamba in align mode",
                         c->max_copies);
    err = check_retention(c);
    return err == QUIRE_OK ? check_hashing(c) : err;
}

/* ---- plan and carve -------------------------------------------------------- */

static uint32_t max_row_of(const quire_cache_config *c, uint32_t g)
{
    quire_layer_spec spec = spec_of(c, g);
    if (spec.kind == QUIRE_LAYER_CIRCULAR_BUFFER)
        return 1;
    uint32_t tokens = spec.kind == QUIRE_LAYER_CROSS ? c->max_encoder_tokens : c->max_model_len;
    return qr_ceil_div(tokens, block_size_of(c, g)) + spec.num_speculative_blocks;
}

static uint32_t hashes_joined_of(const quire_cache_config *c, uint32_t g)
{
    bool has_keys = c->enable_caching == QUIRE_ON && qr_spec_is_cacheable(&c->groups[g].spec);
    return has_keys ? block_size_of(c, g) / c->hash_block_size : 1;
}

static void forward_event(void *user, const quire_event *event)
{
    quire_cache *cache = user;
    if (cache->events.size > 0)
        qr_event_log_add(&cache->events, event);
    if (cache->on_event != NULL)
        cache->on_event(cache->event_user, event);
}

uint32_t qr_cache_hash_bytes(const quire_cache_config *c)
{
    uint32_t joined = 1;
    bool joins = !qr_rules_of(c->profile)->keys_by_last_hash;
    for (uint32_t g = 0; joins && g < c->num_groups; g++)
        if (hashes_joined_of(c, g) > joined)
            joined = hashes_joined_of(c, g);
    return c->digest_bytes * joined;
}

static quire_pool_config pool_config_of(const quire_cache_config *c, quire_cache *cache)
{
    quire_pool_config p = QUIRE_POOL_CONFIG_INIT;
    p.num_blocks = c->num_blocks;
    p.enable_caching = c->enable_caching;
    p.hash_bytes = qr_cache_hash_bytes(c);
    p.profile = c->profile;
    p.hooks = c->hooks;
    if (c->event_log_bytes > 0 || c->on_event != NULL) {
        p.on_event = forward_event;
        p.event_user = cache;
    }
    return p;
}

static bool has_tails(const quire_cache_config *c, uint32_t g)
{
    const quire_layer_spec *spec = &c->groups[g].spec;
    bool is_aligned = spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN;
    return qr_rules_of(c->profile)->keys_prompt_tails && c->enable_caching == QUIRE_ON &&
           (is_aligned || (qr_spec_is_full(spec) && hashes_joined_of(c, g) > 1));
}

/* Records for extra keys. A block cannot have more of them than hashes that end inside it. Few have
 * that many: two for each block are enough, but in a small pool there are as many as there can be.
 */
static uint32_t num_extras_of(const quire_cache_config *c)
{
    enum { SMALL = 4096, USUAL = 2 };
    uint64_t most = 0;
    for (uint32_t g = 0; g < c->num_groups; g++)
        if (has_tails(c, g) && hashes_joined_of(c, g) - 1 > most)
            most = hashes_joined_of(c, g) - 1;
    uint64_t all = most * c->num_blocks;
    uint64_t usual = (most < USUAL ? most : USUAL) * (uint64_t)c->num_blocks;
    uint64_t small = all < SMALL ? all : SMALL;
    uint64_t n = usual > small ? usual : small;
    uint64_t room = UINT32_C(1) << 31; /* ids of blocks and extras together */
    return (uint32_t)(n < room - c->num_blocks ? n : room - c->num_blocks);
}

/* Room for one row's keys, and for a row without the blocks that get none: of the longest row. */
static void carve_key_rows(quire_cache *parts, qr_arena *arena, const quire_cache_config *c)
{
    const qr_rules *rules = qr_rules_of(c->profile);
    uint32_t longest = 0;
    bool gathers = false;
    bool masks = false;
    bool asks = has_kind(c, QUIRE_LAYER_RSWA) || qr_cache_has_checkpoints(c);
    for (uint32_t g = 0; g < c->num_groups; g++) {
        longest = max_row_of(c, g) > longest ? max_row_of(c, g) : longest;
        gathers = gathers || hashes_joined_of(c, g) > 1;
        masks = masks || qr_retain_has_mask(c, g);
        asks = asks || has_tails(c, g);
    }
    if (masks)
        parts->masked = qr_arena_take(arena, longest, sizeof *parts->masked);
    if (masks || asks)
        parts->prompts = qr_arena_take(arena, c->max_requests, sizeof *parts->prompts);
    if (c->enable_caching == QUIRE_ON && rules->keys_by_last_hash && gathers)
        parts->keys = qr_arena_take(arena, longest, c->digest_bytes);
}

quire_cache *qr_cache_carve(qr_arena *arena, const quire_cache_config *c)
{
    quire_cache *cache = qr_arena_take(arena, 1, sizeof *cache);
    quire_cache parts = {0};
    uint32_t n = c->num_groups;
    parts.groups = qr_arena_take(arena, n, sizeof *parts.groups);
    parts.sets = qr_arena_take(arena, n, sizeof *parts.sets);
    parts.set_ids = qr_arena_take(arena, n, sizeof *parts.set_ids);
    parts.hits = qr_arena_take(arena, n, sizeof *parts.hits);
    parts.row_states = qr_arena_take(arena, c->max_requests, sizeof *parts.row_states);
    parts.free_rows = qr_arena_take(arena, c->max_requests, sizeof *parts.free_rows);
    parts.copy_room = qr_cache_copies_parts(c) ? c->num_blocks : c->max_copies;
    parts.copies = qr_arena_take(arena, parts.copy_room, sizeof *parts.copies);
    parts.copy_places = qr_arena_take(arena, parts.copy_room, sizeof *parts.copy_places);
    qr_host_carve(&parts.host, arena, c);
    if (c->enable_caching == QUIRE_ON && has_kind(c, QUIRE_LAYER_MAMBA))
        parts.stamps = qr_arena_take(arena, c->num_blocks, sizeof *parts.stamps);
    if (c->track_new_blocks == QUIRE_ON)
        qr_fresh_carve(&parts.fresh, arena, c->num_blocks);
    qr_event_log_carve(&parts.events, arena, c->event_log_bytes);
    carve_key_rows(&parts, arena, c);
    bool has_parts = qr_cache_copies_parts(c) || qr_cache_has_checkpoints(c);
    for (uint32_t g = 0; g < n; g++) {
        uint32_t max_row = max_row_of(c, g);
        qr_row *rows = qr_arena_take(arena, c->max_requests, sizeof *rows);
        uint32_t *blocks = qr_arena_take(arena, c->max_requests, (size_t)max_row * sizeof *blocks);
        uint32_t *hits = qr_arena_take(arena, max_row, sizeof *hits);
        qr_part *of_rows = qr_arena_take(arena, has_parts ? c->max_requests : 0, sizeof *of_rows);
        uint32_t num_sinks = num_sinks_of(c, g);
        uint32_t *sinks = qr_arena_take(arena, num_sinks, sizeof *sinks);
        if (cache == NULL)
            continue;
        parts.groups[g] = (qr_group){.rows = rows,
                                     .parts = has_parts ? of_rows : NULL,
                                     .blocks = blocks,
                                     .max_row = max_row,
                                     .sinks = sinks,
                                     .num_sinks = num_sinks};
        parts.hits[g] = hits;
    }
    quire_pool_config p = pool_config_of(c, cache);
    parts.pool = qr_pool_carve(arena, &p, num_extras_of(c));
    if (cache != NULL)
        *cache = parts;
    return cache;
}

/* ---- filling it ------------------------------------------------------------ */

static void init_group(quire_cache *cache, const quire_cache_config *c, uint32_t g)
{
    qr_group *group = &cache->groups[g];
    group->spec = spec_of(c, g);
    const quire_layer_spec *spec = &group->spec;
    group->ops = qr_group_ops_of(spec->kind);
    group->pool = cache->pool;
    group->id = g;
    group->block_size = block_size_of(c, g);
    group->hashes_joined = hashes_joined_of(c, g);
    group->hash_size = c->hash_block_size;
    group->key_stride = group->hashes_joined * c->digest_bytes;
    group->hash_len = cache->rules.keys_by_last_hash ? c->digest_bytes : group->key_stride;
    group->first_key = group->key_stride - group->hash_len;
    group->quirks = cache->quirks;
    group->rules = cache->rules;
    group->enable_caching = cache->enable_caching && qr_spec_is_cacheable(spec);
    group->is_eagle = is_eagle_group(c, g);
    group->alignment = cache->lookup_alignment;
    group->multiple = cache->block_multiple;
    group->takes_parts =
        cache->takes_parts && group->block_size > c->hash_block_size && qr_spec_is_cacheable(spec);
    group->drops_state = c->use_eagle == QUIRE_ON;
    group->has_junctions = c->mamba_shared_prefix_checkpoint == QUIRE_ON && cache->takes_parts &&
                           cache->num_recomputed == 0;
    group->retention = c->prefix_cache_retention_interval;
    bool is_window = qr_spec_is_window(spec);
    bool is_mamba = spec->kind == QUIRE_LAYER_MAMBA;
    group->extra_tokens = is_window ? cache->num_recomputed : 0;
    group->admission_cap = qr_spec_max_admission_blocks(
        spec, c->max_in_flight_tokens + group->extra_tokens, c->max_model_len);
    group->has_tails = has_tails(c, g);
    group->has_mask = qr_retain_has_mask(c, g);
    group->has_own_keys =
        group->has_tails || group->has_mask || group->key_stride != group->hash_len;
    group->masked = cache->masked;
    group->keys = cache->keys;
    group->prompts = cache->prompts;
    bool is_plain = spec->kind == QUIRE_LAYER_FULL || spec->kind == QUIRE_LAYER_TQ_FULL;
    bool is_ring = spec->kind == QUIRE_LAYER_CIRCULAR_BUFFER;
    bool is_zeroed = cache->rules.zeroes_all_attention ? !is_mamba && !is_ring : is_plain;
    group->tracks_new = is_zeroed && c->track_new_blocks == QUIRE_ON;
    group->fresh = &cache->fresh;
    group->stamps = spec->kind == QUIRE_LAYER_MAMBA ? cache->stamps : NULL;
    group->step = 1;
    for (uint32_t row = 0; row < cache->max_requests; row++)
        qr_group_init_row(group, row);
}

/* Takes the sinks' blocks out of circulation. */
static void take_sinks(quire_cache *cache)
{
    uint32_t taken = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        int err = qr_pool_get_new_blocks(cache->pool, group->num_sinks, group->sinks);
        qr_assert(err == QUIRE_OK); /* the config was read */
        taken += group->num_sinks;
    }
    if ((cache->quirks & QR_QUIRK(SINK_BLOCKS_BUSY)) == 0)
        cache->pool->num_reserved = taken;
}

/* Groups with equal specs form a set; sets of full kinds come first, else in order of groups. A
 * group whose blocks get no keys is in no set. */
static void make_sets(quire_cache *cache)
{
    uint32_t used = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t g = 0; g < cache->num_groups; g++) {
            const quire_layer_spec *spec = &cache->groups[g].spec;
            bool is_full = qr_spec_is_full(spec);
            bool is_first = true;
            for (uint32_t before = 0; before < g; before++)
                is_first = is_first && !qr_spec_equal(&cache->groups[before].spec, spec);
            if (!is_first || is_full != (pass == 0) || !qr_spec_is_cacheable(spec))
                continue;
            qr_group_set *set = &cache->sets[cache->num_sets++];
            *set = (qr_group_set){.ids = cache->set_ids + used, .is_full = is_full};
            for (uint32_t other = g; other < cache->num_groups; other++) {
                if (!qr_spec_equal(&cache->groups[other].spec, spec))
                    continue;
                cache->set_ids[used++] = other;
                set->num_ids++;
                set->is_eagle = set->is_eagle || cache->groups[other].is_eagle;
            }
            for (uint32_t i = 0; i < set->num_ids; i++)
                cache->groups[set->ids[i]].drops_eagle = set->is_eagle;
        }
    }
}

/* What groups have to know of all of them. */
static void tell_groups(quire_cache *cache)
{
    bool any_eagle = false;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        any_eagle = any_eagle || cache->groups[g].is_eagle;
        cache->has_tails = cache->has_tails || cache->groups[g].has_tails;
    }
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        cache->groups[g].cache_eagles = any_eagle;
        cache->groups[g].has_junctions = cache->groups[g].has_junctions && any_eagle;
    }
}

static void init_numbers(quire_cache *cache, const quire_cache_config *c)
{
    cache->num_groups = c->num_groups;
    cache->max_model_len = c->max_model_len;
    cache->max_requests = c->max_requests;
    cache->hash_block_size = c->hash_block_size;
    cache->watermark_blocks = (uint32_t)((double)c->num_blocks * c->watermark);
    cache->max_encoder_tokens = c->max_encoder_tokens;
    cache->quirks = qr_quirks(c->profile);
    cache->rules = *qr_rules_of(c->profile);
    cache->block_multiple = common_multiple(c);
    cache->takes_parts = qr_cache_takes_parts(c);
    cache->copies_parts = qr_cache_copies_parts(c);
    cache->has_checkpoints = qr_cache_has_checkpoints(c);
    cache->lookup_alignment = cache->takes_parts ? c->hash_block_size : cache->block_multiple;
    cache->num_recomputed = c->num_prefill_lookahead > 0 ? c->num_prefill_lookahead - 1 : 0;
    cache->caches_all_tokens = cache->num_recomputed == 0 &&
                               !has_kind(c, QUIRE_LAYER_CIRCULAR_BUFFER) &&
                               (c->num_groups < 2 || !cache->rules.caches_to_alignment);
    cache->enable_caching = c->enable_caching == QUIRE_ON;
    cache->log_stats = c->log_stats == QUIRE_ON;
    cache->is_admitting = true;
    cache->admit_below = c->admit_below;
    cache->preempt_above = c->preempt_above;
    cache->max_copies = c->max_copies;
    cache->on_event = c->on_event;
    cache->event_user = c->event_user;
}

int qr_cache_init(quire_cache *cache, const quire_cache_config *c)
{
    quire_pool_config p = pool_config_of(c, cache);
    int err = qr_pool_init(cache->pool, &p);
    if (err != QUIRE_OK)
        return err;
    init_numbers(cache, c);
    qr_host_init(&cache->host);
    for (uint32_t g = 0; g < c->num_groups; g++)
        init_group(cache, c, g);
    for (uint32_t i = 0; i < c->max_requests; i++) {
        cache->row_states[i] = (qr_row_state){0};
        cache->free_rows[i] = c->max_requests - 1 - i; /* row 0 is the first to go */
    }
    if (cache->stamps != NULL)
        memset(cache->stamps, 0, (size_t)c->num_blocks * sizeof *cache->stamps);
    make_sets(cache);
    tell_groups(cache);
    for (uint32_t g = 0; g < c->num_groups; g++)
        cache->retains_ends =
            cache->retains_ends || (cache->rules.retains_ends && cache->groups[g].has_mask);
    cache->caches_all_tokens = cache->caches_all_tokens && !cache->has_tails;
    cache->is_plain = c->max_copies == 0 && cache->caches_all_tokens;
    for (uint32_t g = 0; g < c->num_groups; g++)
        cache->is_plain = cache->is_plain && (cache->groups[g].ops == &qr_full_ops ||
                                              cache->groups[g].ops == &qr_window_ops);
    take_sinks(cache);
    cache->magic = QR_CACHE_MAGIC;
    qr_assert_expensive(qr_cache_is_valid(cache));
    return QUIRE_OK;
}
