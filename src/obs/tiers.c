#include "obs/tiers.h"

#include <string.h>

void qr_tiers_init(qr_tiers *t)
{
    t->count = 0;
    memset(t->names, 0, sizeof t->names);
    memset(t->mediums, 0, sizeof t->mediums);
    qr_versions_init(&t->versions);
    for (uint32_t v = 0; v < QR_VERSIONS; v++)
        for (uint32_t i = 0; i < QUIRE_MAX_TIERS; i++)
            for (uint32_t w = 0; w < QR_TIER_WORDS; w++)
                atomic_init(&t->words[v][i][w], 0);
}

/* ---- names ----------------------------------------------------------------- */

static void copy_name(char *to, const char *from)
{
    size_t len = from == NULL ? 0 : strnlen(from, QR_TIER_NAME_BYTES - 1);
    memcpy(to, from == NULL ? "" : from, len);
    to[len] = 0;
}

static bool has_name(const qr_tiers *t, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(t->names[i], name) == 0)
            return true;
    return false;
}

/* "file", "file_2", "file_3": series of one name must differ in a label. */
static void set_name(qr_tiers *t, uint32_t tier, const char *name)
{
    char base[QR_TIER_NAME_BYTES];
    copy_name(base, name);
    copy_name(t->names[tier], base);
    for (uint32_t n = 2; has_name(t, tier, t->names[tier]); n++) {
        size_t most = QR_TIER_NAME_BYTES - 3; /* "_", a digit, zero: no more than 8 tiers */
        size_t len = strnlen(base, most);
        memcpy(t->names[tier], base, len);
        t->names[tier][len] = '_';
        t->names[tier][len + 1] = (char)('0' + n);
        t->names[tier][len + 2] = 0;
    }
}

/* ---- versions -------------------------------------------------------------- */

void qr_tiers_set(qr_tiers *t, const quire_tier_usage *now, uint32_t count)
{
    if (qr_versions_seen(&t->versions) == 0) {
        t->count = count < QUIRE_MAX_TIERS ? count : QUIRE_MAX_TIERS;
        for (uint32_t i = 0; i < t->count; i++) {
            set_name(t, i, now[i].name);
            copy_name(t->mediums[i], now[i].medium);
        }
    }
    uint32_t place = qr_versions_begin(&t->versions);
    for (uint32_t i = 0; i < t->count && i < count; i++) {
        const quire_tier_usage *n = &now[i];
        const uint64_t words[QR_TIER_WORDS] = {
            n->blocks.total,       n->blocks.empty,  n->blocks.cached, n->blocks.active,
            n->blocks.null_blocks, n->pinned,        n->stored_blocks, n->loaded_blocks,
            n->hit_tokens,         n->stored_bytes,  n->loaded_bytes,  n->failed_blocks,
            n->used_bytes,         n->capacity_bytes};
        _Atomic uint64_t *to = t->words[place][i];
        for (uint32_t w = 0; w < QR_TIER_WORDS; w++)
            atomic_store_explicit(&to[w], words[w], QR_FEED_STORE);
    }
    qr_versions_end(&t->versions);
}

static void copy_tier(const qr_tiers *t, uint64_t place, uint32_t i, quire_tier_usage *out)
{
    uint64_t w[QR_TIER_WORDS];
    for (uint32_t k = 0; k < QR_TIER_WORDS; k++)
        w[k] = atomic_load_explicit(&t->words[place][i][k], QR_FEED_LOAD);
    *out = (quire_tier_usage){.name = t->names[i],
                              .medium = t->mediums[i],
                              .blocks = {.total = w[0],
                                         .empty = w[1],
                                         .cached = w[2],
                                         .active = w[3],
                                         .null_blocks = w[4]},
                              .pinned = w[5],
                              .stored_blocks = w[6],
                              .loaded_blocks = w[7],
                              .hit_tokens = w[8],
                              .stored_bytes = w[9],
                              .loaded_bytes = w[10],
                              .failed_blocks = w[11],
                              .used_bytes = w[12],
                              .capacity_bytes = w[13]};
}

uint32_t qr_tiers_get(const qr_tiers *t, quire_tier_usage *out, uint32_t capacity)
{
    for (;;) {
        uint64_t seen = qr_versions_seen(&t->versions);
        if (seen == 0)
            return 0;
        uint32_t n = t->count < capacity ? t->count : capacity;
        for (uint32_t i = 0; i < n; i++)
            copy_tier(t, (seen - 1) % QR_VERSIONS, i, &out[i]);
        if (qr_versions_is_whole(&t->versions, seen))
            return t->count;
    }
}
