#include "cache/host.h"

#include "base/hooks.h"
#include "cache/cache.h"

/* ---- making it -------------------------------------------------------------- */

void qr_host_carve(qr_host *host, qr_arena *arena, const quire_cache_config *c)
{
    uint32_t n = c->num_host_blocks;
    host->num_slots = n;
    host->slots = qr_arena_take(arena, n, sizeof *host->slots);
    host->moves = qr_arena_take(arena, n, sizeof *host->moves);
    host->hit = qr_arena_take(arena, n > 0 ? c->num_groups : 0, sizeof *host->hit);
}

void qr_host_init(qr_host *host)
{
    host->first_free = QR_NIL;
    for (uint32_t slot = host->num_slots; slot-- > 0;) {
        host->slots[slot] = (qr_host_slot){.next = host->first_free};
        host->first_free = slot;
    }
    host->num_free = host->num_slots;
    host->num_seqs = 0;
}

/* ---- chains ----------------------------------------------------------------- */

uint32_t qr_cache_num_saved(const quire_cache *cache, uint32_t num_tokens)
{
    uint64_t count = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_saved_range range = qr_group_saved_range(&cache->groups[g], num_tokens);
        count += range.end - range.first;
    }
    return qr_clamp_u32(count);
}

uint32_t qr_host_slot_of(const quire_cache *cache, quire_seq seq)
{
    const qr_host *host = &cache->host;
    uint32_t slot = (uint32_t)seq - QR_HOST_SEQ;
    uint32_t generation = (uint32_t)(seq >> 32);
    bool ok =
        slot < host->num_slots && generation % 2 == 1 && host->slots[slot].generation == generation;
    return ok ? slot : QR_NIL;
}

static uint32_t take_host_slot(qr_host *host)
{
    uint32_t slot = host->first_free;
    qr_assert(slot != QR_NIL);
    host->first_free = host->slots[slot].next;
    host->num_free--;
    host->slots[slot].next = QR_NIL;
    return slot;
}

void qr_host_drop(quire_cache *cache, uint32_t first)
{
    qr_host *host = &cache->host;
    host->slots[first].generation++;
    host->slots[first].num_tokens = 0;
    host->num_seqs--;
    for (uint32_t slot = first; slot != QR_NIL;) {
        uint32_t next = host->slots[slot].next;
        host->slots[slot].next = host->first_free;
        host->first_free = slot;
        host->num_free++;
        slot = next;
    }
}

uint32_t qr_host_find(const quire_cache *cache, uint32_t first, uint32_t group, uint32_t index,
                      uint32_t *prev)
{
    const qr_host *host = &cache->host;
    uint32_t num_tokens = host->slots[first].num_tokens;
    uint32_t slot = first;
    *prev = QR_NIL;
    for (uint32_t g = 0; g <= group; g++) {
        qr_saved_range range = qr_group_saved_range(&cache->groups[g], num_tokens);
        for (uint32_t i = range.first; i < range.end; i++) {
            if (g == group && i == index)
                return slot;
            *prev = g == group ? slot : QR_NIL;
            slot = host->slots[slot].next;
        }
    }
    *prev = QR_NIL;
    return QR_NIL;
}

/* ---- out -------------------------------------------------------------------- */

/* Whether the row has all blocks that the tokens need. */
static bool has_saved_blocks(const quire_cache *cache, uint32_t row, uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        const uint32_t *blocks = qr_group_row_blocks(group, row);
        qr_saved_range range = qr_group_saved_range(group, num_tokens);
        if (range.end > group->rows[row].num_blocks)
            return false;
        for (uint32_t i = range.first; i < range.end; i++)
            if (blocks[i] == QUIRE_NULL_BLOCK)
                return false;
    }
    return true;
}

/* What a block is to get by a pending copy is read from where it lies. */
static uint32_t list_moves_out(quire_cache *cache, uint32_t row, uint32_t num_tokens,
                               uint32_t *first)
{
    qr_host *host = &cache->host;
    uint32_t *link = first;
    uint32_t n = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const uint32_t *blocks = qr_group_row_blocks(&cache->groups[g], row);
        qr_saved_range range = qr_group_saved_range(&cache->groups[g], num_tokens);
        for (uint32_t i = range.first; i < range.end; i++) {
            *link = take_host_slot(host);
            host->moves[n++] = (quire_block_move){qr_cache_content_of(cache, blocks[i]), *link, g};
            link = &host->slots[*link].next;
        }
    }
    return n;
}

int qr_host_move_out(quire_cache *cache, quire_cache_request *request, uint32_t row,
                     uint32_t *num_moves)
{
    qr_host *host = &cache->host;
    uint32_t num_tokens = request->num_computed_tokens;
    uint32_t n = qr_cache_num_saved(cache, num_tokens);
    if (n == 0)
        return QUIRE_MISS;
    if (!has_saved_blocks(cache, row, num_tokens))
        return QUIRE_E_RANGE;
    if (n > host->num_free)
        return QUIRE_FULL;
    uint32_t first = QR_NIL;
    *num_moves = list_moves_out(cache, row, num_tokens, &first);
    host->slots[first].num_tokens = num_tokens;
    uint32_t generation = ++host->slots[first].generation;
    host->num_seqs++;
    qr_cache_free(cache, row);
    request->seq = (quire_seq)generation << 32 | (QR_HOST_SEQ + first);
    return QUIRE_OK;
}

/* ---- in --------------------------------------------------------------------- */

/* The request as a new one whose tokens come from outside, except those of a prefix hit. At least
 * one token comes from outside. */
static int read_move_in(quire_cache *cache, const quire_cache_request *request, uint32_t slot,
                        quire_cache_request *fresh, quire_allocate_params *p)
{
    uint32_t num_tokens = cache->host.slots[slot].num_tokens;
    if (request->num_computed_tokens != num_tokens)
        return QUIRE_E_ARGUMENT;
    *fresh = *request;
    fresh->seq = 0;
    fresh->num_computed_tokens = 0;
    fresh->was_preempted = 1;
    quire_cache_request asked = *fresh;
    asked.num_tokens = num_tokens;
    *p = (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                 .new_computed_blocks = cache->host.hit};
    int err =
        qr_cache_get_computed_blocks(cache, &asked, cache->host.hit, &p->num_new_computed_tokens);
    p->num_external_computed_tokens = num_tokens - p->num_new_computed_tokens;
    return err;
}

int qr_host_can_move_in(quire_cache *cache, const quire_cache_request *request, uint32_t slot)
{
    quire_cache_request fresh;
    quire_allocate_params p;
    int err = read_move_in(cache, request, slot, &fresh, &p);
    return err == QUIRE_OK ? qr_cache_can_allocate(cache, &fresh, &p) : err;
}

int qr_host_move_in(quire_cache *cache, quire_cache_request *request, uint32_t slot,
                    uint32_t *num_moves)
{
    quire_cache_request fresh;
    quire_allocate_params p;
    int err = read_move_in(cache, request, slot, &fresh, &p);
    if (err == QUIRE_OK)
        err = qr_cache_allocate_slots(cache, &fresh, &p, NULL);
    if (err != QUIRE_OK)
        return err;
    uint32_t row = qr_cache_row_of(cache, fresh.seq);
    uint32_t n = 0;
    uint32_t at = slot;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        const uint32_t *blocks = qr_group_row_blocks(group, row);
        qr_saved_range range = qr_group_saved_range(group, request->num_computed_tokens);
        for (uint32_t i = range.first; i < range.end; i++) {
            if (i >= p.num_new_computed_tokens / group->block_size)
                cache->host.moves[n++] = (quire_block_move){blocks[i], at, g};
            at = cache->host.slots[at].next;
        }
    }
    qr_assert(at == QR_NIL);
    qr_host_drop(cache, slot);
    *num_moves = n;
    request->seq = fresh.seq;
    return QUIRE_OK;
}

/* ---- the walker ------------------------------------------------------------- */

/* n slots from here on, none but the first of which begins a request; adds them to `named`. */
static bool host_chain_is_valid(const qr_host *host, uint32_t slot, uint64_t n, bool is_free,
                                qr_tally *named)
{
    for (uint64_t i = 0; i < n; i++) {
        if (slot >= host->num_slots)
            return false;
        bool begins = i == 0 && !is_free;
        const qr_host_slot *s = &host->slots[slot];
        if ((s->generation % 2 == 1) != begins || (s->num_tokens > 0) != begins)
            return false;
        qr_tally_add(named, slot, 1);
        slot = s->next;
    }
    return slot == QR_NIL;
}

bool qr_host_is_valid(const quire_cache *cache)
{
    const qr_host *host = &cache->host;
    uint64_t used = 0;
    qr_tally all = {0};
    qr_tally named = {0};
    uint32_t num_seqs = 0;
    for (uint32_t slot = 0; slot < host->num_slots; slot++) {
        qr_tally_add(&all, slot, 1);
        if (host->slots[slot].generation % 2 == 0)
            continue;
        uint32_t n = qr_cache_num_saved(cache, host->slots[slot].num_tokens);
        if (n == 0 || !host_chain_is_valid(host, slot, n, false, &named))
            return false;
        used += n;
        num_seqs++;
    }
    return used + host->num_free == host->num_slots && num_seqs == host->num_seqs &&
           (host->num_slots == 0 ||
            host_chain_is_valid(host, host->first_free, host->num_free, true, &named)) &&
           qr_tally_is_same(all, named);
}
