#include "obs/tiers.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* All that a tier has besides its names is numbers of one word each, one after the other. */
enum { NUMBERS_AT = offsetof(quire_tier_usage, blocks) };
_Static_assert(NUMBERS_AT + 8 * QR_TIER_WORDS == sizeof(quire_tier_usage), "words alone");

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
    (void)snprintf(to, QR_TIER_NAME_BYTES, "%s", from == NULL ? "" : from);
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
    int most = QR_TIER_NAME_BYTES - 3; /* "_", a digit, zero: no more than 8 tiers */
    for (uint32_t n = 2; has_name(t, tier, t->names[tier]); n++)
        (void)snprintf(t->names[tier], QR_TIER_NAME_BYTES, "%.*s_%u", most, base, n);
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
    uint64_t place = qr_versions_begin(&t->versions) % QR_VERSIONS;
    for (uint32_t i = 0; i < t->count && i < count; i++)
        qr_words_put(t->words[place][i], (const char *)&now[i] + NUMBERS_AT, QR_TIER_WORDS);
    qr_versions_end(&t->versions);
}

uint32_t qr_tiers_get(const qr_tiers *t, quire_tier_usage *out, uint32_t capacity)
{
    for (;;) {
        uint64_t seen = qr_versions_seen(&t->versions);
        if (seen == 0)
            return 0;
        uint32_t n = t->count < capacity ? t->count : capacity;
        for (uint32_t i = 0; i < n; i++) {
            out[i].name = t->names[i];
            out[i].medium = t->mediums[i];
            qr_words_take(t->words[(seen - 1) % QR_VERSIONS][i], (char *)&out[i] + NUMBERS_AT,
                          QR_TIER_WORDS);
        }
        if (qr_versions_is_whole(&t->versions, seen - 1, QR_VERSIONS))
            return t->count;
    }
}
