#include "sched/step/admissible.h"

#include "base/refuse.h"
#include "sched/sched.h"

/* ---- features ---------------------------------------------------------------- */

/* The smallest step of a request inside its prompt. */
static uint32_t smallest_step(const quire_sched *s)
{
    return s->settings.mamba_block_size > 0 ? s->settings.mamba_block_size : 1;
}

static uint32_t largest_step(const quire_sched *s)
{
    uint32_t threshold = s->settings.long_prefill_threshold;
    return threshold > 0 && threshold < s->settings.max_scheduled ? threshold
                                                                  : s->settings.max_scheduled;
}

static uint64_t offset_of(const qr_admissible_ask *ask, uint32_t i)
{
    return (uint64_t)ask->features[i].offset + (i >= ask->first_new ? ask->base : 0);
}

/* The lowest position from which the smallest step reaches the feature. */
static uint64_t first_position(const quire_sched *s, const qr_admissible_ask *ask, uint32_t i)
{
    uint64_t offset = offset_of(ask, i);
    uint64_t before = (uint64_t)smallest_step(s) + s->settings.use_eagle - 1;
    return offset > before ? offset - before : 0;
}

static bool is_repeated(const qr_admissible_ask *ask, uint32_t i, uint32_t last)
{
    for (uint32_t k = i + 1; k <= last; k++)
        if (qr_feature_is_same(&ask->features[i], &ask->features[k]))
            return true;
    return false;
}

/* The features that must be in the encoder cache with feature `last`, in the smallest step that
 * reaches it. An encoder-decoder model needs all of them, and shares none. */
static qr_never check_together(const quire_sched *s, const qr_admissible_ask *ask, uint32_t last)
{
    uint64_t position = first_position(s, ask, last);
    uint64_t num_embeds = 0;
    uint64_t num_items = 0;
    for (uint32_t i = 0; i <= last; i++) {
        bool is_past = offset_of(ask, i) + ask->features[i].length <= position;
        if (!s->settings.is_encoder_decoder && (is_past || is_repeated(ask, i, last)))
            continue;
        num_embeds += ask->features[i].num_embeds;
        num_items++;
    }
    if (num_embeds > s->settings.encoder_budget)
        return (qr_never){"embeddings of mm_inputs that one step needs together", num_embeds,
                          "encoder_compute_budget", s->settings.encoder_budget};
    if (num_embeds > s->encoder.config.cache_size)
        return (qr_never){"embeddings of mm_inputs that one step needs together", num_embeds,
                          "encoder_cache_size", s->encoder.config.cache_size};
    if (num_items > s->encoder.config.max_items)
        return (qr_never){"mm_inputs that one step needs together", num_items, "max_encoder_items",
                          s->encoder.config.max_items};
    return (qr_never){0};
}

/* With disable_chunked_mm_input a step that begins before a feature must reach its end. */
static qr_never check_split(const quire_sched *s, const qr_admissible_ask *ask, uint32_t i)
{
    uint64_t offset = offset_of(ask, i);
    uint64_t position = first_position(s, ask, i);
    uint64_t needed = offset + ask->features[i].length - position;
    uint64_t most = largest_step(s);
    if (s->settings.disable_chunked_mm && position < offset && needed > most)
        return (qr_never){"tokens of an mm_input in one step, with disable_chunked_mm_input",
                          needed, "the largest step", most};
    return (qr_never){0};
}

static qr_never check_mm_inputs(const quire_sched *s, const qr_admissible_ask *ask)
{
    qr_never never = {0};
    for (uint32_t i = 0; i < ask->num_features && never.needs == NULL; i++) {
        never = check_together(s, ask, i);
        if (never.needs == NULL && !s->settings.is_encoder_decoder)
            never = check_split(s, ask, i);
    }
    return never;
}

/* ---- blocks ------------------------------------------------------------------ */

static uint64_t tokens_of_encoder(const quire_sched *s, const qr_admissible_ask *ask)
{
    uint64_t n = 0;
    for (uint32_t i = 0; s->settings.is_encoder_decoder && i < ask->num_features; i++)
        n += ask->features[i].num_embeds;
    return n;
}

static qr_never check_alone(const quire_sched *s, const qr_admissible_ask *ask)
{
    const quire_cache *cache = s->cache;
    uint64_t num_encoder = tokens_of_encoder(s, ask);
    if (num_encoder > cache->max_encoder_tokens && s->settings.is_encoder_decoder)
        return (qr_never){"embeddings of mm_inputs", num_encoder, "cache.max_encoder_tokens",
                          cache->max_encoder_tokens};
    uint64_t needed =
        qr_cache_blocks_alone(cache, ask->num_tokens + ask->has_second, (uint32_t)num_encoder);
    uint64_t most = qr_cache_most_blocks(cache);
    if (needed > most)
        return (qr_never){"blocks of the request", needed, "an empty pool", most};
    return (qr_never){0};
}

/* ---- all ----------------------------------------------------------------------- */

qr_never qr_why_never(const quire_sched *s, const qr_admissible_ask *ask)
{
    qr_never never = check_mm_inputs(s, ask);
    return never.needs != NULL ? never : check_alone(s, ask);
}

int qr_admissible_check(quire_sched *s, const qr_admissible_ask *ask)
{
    if ((s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0)
        return QUIRE_OK;
    qr_never never = qr_why_never(s, ask);
    if (never.needs == NULL)
        return QUIRE_OK;
    (void)qr_refuse("%s: %llu (%s: %llu)", never.needs, (unsigned long long)never.needed,
                    never.limit_name, (unsigned long long)never.limit);
    return QUIRE_E_TOO_LONG;
}

const char *qr_admissible_config(const quire_sched_config *c, uint32_t align_size)
{
    uint32_t budget = c->max_num_scheduled_tokens < c->max_num_batched_tokens
                          ? c->max_num_scheduled_tokens
                          : c->max_num_batched_tokens;
    uint32_t threshold = c->long_prefill_token_threshold;
    bool is_strict = (qr_quirks(c->profile) & QR_QUIRK(HOPELESS_WAITS)) == 0;
    if (is_strict && c->enable_chunked_prefill == QUIRE_OFF && budget < c->cache->max_model_len)
        return "without enable_chunked_prefill, max_num_batched_tokens and "
               "max_num_scheduled_tokens must not be smaller than cache.max_model_len";
    if (align_size > budget)
        return "max_num_batched_tokens and max_num_scheduled_tokens must not be smaller than the "
               "block of a Mamba group in align mode";
    if (threshold > 0 && align_size > threshold)
        return "long_prefill_token_threshold must not be smaller than the block of a Mamba group "
               "in align mode";
    if (is_strict && c->is_encoder_decoder == QUIRE_ON && c->encoder_connector != NULL)
        return "encoder_connector is given, but is_encoder_decoder is on: encoder input that is "
               "loaded has no blocks of cross attention";
    return NULL;
}
