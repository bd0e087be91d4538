#include "tier/peer/hints.h"

#include "base/count.h"
#include "base/memory.h"
#include "tier/core/key.h"

enum { COUNT_BITS = 16, COUNT_MAX = (1 << COUNT_BITS) - 1 };

int qr_peer_hints_open(qr_peer_hints *hints, uint32_t max_hints, uint64_t seed)
{
    uint64_t size = qr_round_up_pow2(2 * (uint64_t)max_hints);
    if (max_hints == 0)
        return QUIRE_OK;
    hints->entries = qr_alloc_large(size * sizeof *hints->entries);
    hints->mask = (uint32_t)(size - 1);
    hints->most = max_hints;
    hints->seed = seed;
    return hints->entries == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

void qr_peer_hints_close(qr_peer_hints *hints)
{
    qr_free(hints->entries);
    hints->entries = NULL;
}

/* ---- the table --------------------------------------------------------------- */

static void write_entry(qr_peer_hints *h, uint32_t at, uint64_t tag, uint64_t count)
{
    qr_count_set(&h->entries[at], tag << COUNT_BITS | count);
}

/* Events do not tell groups of host blocks, and a rank is the same on both sides: neither counts.
 * An entry with a count is never 0, whatever its tag is. */
static uint64_t tag_of(const qr_peer_hints *h, const quire_tier_key *key)
{
    quire_tier_key plain = *key;
    plain.group = 0;
    plain.rank = 0;
    return qr_key_place(&plain, h->seed) >> COUNT_BITS;
}

static uint32_t home_of(const qr_peer_hints *h, uint64_t tag)
{
    return (uint32_t)tag & h->mask;
}

/* Where the tag is, or the empty place where it would be. */
static uint32_t find(const qr_peer_hints *h, uint64_t tag)
{
    uint32_t at = home_of(h, tag);
    for (uint32_t n = 0; n <= h->mask; n++, at = (at + 1) & h->mask) {
        uint64_t entry = qr_count_get(&h->entries[at]);
        if (entry == 0 || entry >> COUNT_BITS == tag)
            break;
    }
    return at;
}

/* ---- hearing ------------------------------------------------------------------- */

static uint64_t tag_of_hash(const qr_peer_hints *h, quire_bytes hash)
{
    quire_tier_key key;
    qr_key_make(hash, 0, 0, &key);
    return tag_of(h, &key);
}

int qr_peer_hints_add(qr_peer_hints *hints, quire_bytes hash)
{
    uint64_t tag = tag_of_hash(hints, hash);
    uint32_t at = find(hints, tag);
    uint64_t entry = qr_count_get(&hints->entries[at]);
    if (entry == 0) {
        if (hints->num == hints->most) {
            qr_peer_hints_set_whole(hints, false);
            return QUIRE_FULL;
        }
        hints->num++;
    }
    uint64_t count = entry & COUNT_MAX;
    write_entry(hints, at, tag, count < COUNT_MAX ? count + 1 : count);
    return QUIRE_OK;
}

/* What stands behind the place moves up, so that no look ends too early. */
static void free_place(qr_peer_hints *h, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & h->mask; qr_count_get(&h->entries[at]) != 0;
         at = (at + 1) & h->mask) {
        uint64_t entry = qr_count_get(&h->entries[at]);
        uint32_t home = home_of(h, entry >> COUNT_BITS);
        if (((at - home) & h->mask) < ((at - hole) & h->mask))
            continue;
        write_entry(h, hole, entry >> COUNT_BITS, entry & COUNT_MAX);
        hole = at;
    }
    write_entry(h, hole, 0, 0);
}

void qr_peer_hints_remove(qr_peer_hints *hints, quire_bytes hash)
{
    uint64_t tag = tag_of_hash(hints, hash);
    uint32_t at = find(hints, tag);
    uint64_t count = qr_count_get(&hints->entries[at]) & COUNT_MAX;
    if (count > 1) {
        write_entry(hints, at, tag, count - 1);
    } else if (count == 1) {
        hints->num--;
        free_place(hints, at);
    }
}

void qr_peer_hints_clear(qr_peer_hints *hints)
{
    for (uint32_t at = 0; hints->num > 0 && at <= hints->mask; at++)
        write_entry(hints, at, 0, 0);
    hints->num = 0;
}

/* ---- looking ------------------------------------------------------------------- */

uint32_t qr_peer_hints_lookup(const qr_peer_hints *hints, const quire_tier_key *keys, uint32_t n,
                              uint8_t *found)
{
    enum { ABSENT = 0, THERE = 1, ASK = 2 };
    uint32_t num_known = 0;
    if (hints->entries == NULL || !atomic_load_explicit(&hints->is_whole, memory_order_acquire)) {
        memset(found, ASK, n);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool is_there = qr_count_get(&hints->entries[find(hints, tag_of(hints, &keys[i]))]) != 0;
        found[i] = is_there ? THERE : ABSENT;
        num_known += !is_there;
    }
    return num_known;
}
