/* tier/promote/store.c - which CPU blocks go down, and to which tiers.
 *
 *      new in the CPU pool ──► ALL, LONG ─┐
 *      was a hit           ──► all        ┴──► not there, not on its way ──► the tier's queue
 *
 * A block in a queue has no user there: if it is evicted before its turn, it is not stored. A queue
 * that is full takes no more: stores never hold up anybody.
 */
#include "tier/promote/parts.h"

typedef struct offer {
    quire_tier_key keys[QR_LOWER_BATCH];
    quire_block blocks[QR_LOWER_BATCH];
    uint32_t crcs[QR_LOWER_BATCH];
    uint32_t n;
    bool has_crcs;
    bool was_hit;
} offer;

static inline void add_block(offer *o, quire_block block, uint32_t crc)
{
    o->blocks[o->n] = block;
    o->crcs[o->n] = crc;
    o->n++;
}

/* The keys of its blocks, as the CPU pool knows them; those that have none leave the offer. A hit
 * that came from a tier is that tier's, the first time. */
static void find_keys(qr_promote *promote, offer *o)
{
    quire_block_info keys[QR_LOWER_BATCH];
    uint32_t n = o->n;
    o->n = 0;
    if (quire_pool_get_blocks(promote->pool, o->blocks, n, keys) != QUIRE_OK)
        return;
    for (uint32_t i = 0; i < n; i++) {
        quire_block block = o->blocks[i];
        uint32_t group = keys[i].group_id;
        if (keys[i].hash.data == NULL || group >= promote->num_groups)
            continue;
        qr_key_make(keys[i].hash, group, promote->rank, &o->keys[o->n]);
        add_block(o, block, o->crcs[i]);
        uint32_t origin = promote->blocks[block].origin;
        promote->blocks[block].origin = 0;
        if (origin > 0 && group == promote->count_group)
            qr_count_add(&promote->tiers[origin - 1].counters.hit_tokens,
                         promote->groups[group].block_size);
    }
}

static void note_offered(qr_promote *promote, quire_block block, uint32_t t)
{
    qr_promote_block past = promote->blocks[block];
    past.offered |= (uint8_t)(1u << t);
    qr_promote_set_block(promote, block, past);
}

static void queue_store(qr_promote *promote, const offer *o, uint32_t i, uint32_t t)
{
    uint32_t move = qr_promote_move_new_store(promote, &o->keys[i], t);
    if (move == QR_NIL) {
        qr_count_add(&promote->tiers[t].counters.dropped_blocks, 1);
        return;
    }
    qr_move *m = &promote->moves[move];
    m->block = o->blocks[i];
    m->has_crc = o->has_crcs;
    m->crc = o->crcs[i];
    m->content = promote->contents[m->block];
    note_offered(promote, m->block, t);
    qr_promote_queue_push(promote, move, QR_QUEUE_STORE, false);
}

/* Which of them the tier shall have, by their places in the offer. */
static uint32_t admit(qr_promote *promote, const offer *o, uint32_t t, uint8_t *at)
{
    qr_promote_tier *tier = &promote->tiers[t];
    double tokens = promote->groups[promote->count_group].block_size;
    bool is_admitted = tier->admit != QUIRE_ADMIT_REUSED || o->was_hit;
    if (tier->admit == QUIRE_ADMIT_LONG) /* all prefixes count as long */
        is_admitted = qr_costs_least_tokens(&promote->costs, t,
                                            (double)promote->block_bytes / tokens) < UINT32_MAX;
    uint32_t n = is_admitted ? o->n : 0;
    for (uint32_t i = 0; i < n; i++)
        at[i] = (uint8_t)i;
    if (!o->was_hit)
        qr_count_add(&tier->counters.not_admitted, o->n - n);
    return n;
}

static bool was_offered(const qr_promote *promote, const offer *o, uint32_t i, uint32_t t)
{
    return (promote->blocks[o->blocks[i]].offered >> t & 1) != 0;
}

/* What the tier has had already is not looked for again. */
static uint32_t leave_out_offered(const qr_promote *promote, const offer *o, uint32_t t,
                                  uint8_t *at, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!was_offered(promote, o, at[i], t))
            at[kept++] = at[i];
    return kept;
}

/* A hit, and in this tier too: it is kept there longer. Those that it never had are left out: in a
 * tier that is slower than the engine these are most. */
static void touch_offered(qr_promote *promote, const offer *o, uint32_t t)
{
    quire_tier_key keys[QR_LOWER_BATCH];
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n; i++)
        if (was_offered(promote, o, i, t))
            keys[n++] = o->keys[i];
    if (n > 0)
        quire_tier_touch(promote->tiers[t].tier, keys, n);
}

static void offer_tier(qr_promote *promote, const offer *o, uint32_t t)
{
    quire_tier_key keys[QR_LOWER_BATCH];
    uint8_t at[QR_LOWER_BATCH];
    uint8_t found[QR_LOWER_BATCH];
    qr_promote_tier *tier = &promote->tiers[t];
    if (tier->is_read_only)
        return;
    uint32_t n = admit(promote, o, t, at);
    if (o->was_hit) {
        touch_offered(promote, o, t);
        n = leave_out_offered(promote, o, t, at, n);
    }
    uint32_t room = qr_promote_is_out(tier) ? 0 : promote->max_stores - tier->num_queued;
    if (n > room) {
        qr_count_add(&tier->counters.dropped_blocks, n - room);
        n = room;
    }
    const quire_tier_key *asked = n < o->n ? keys : o->keys; /* mostly it is all of them */
    for (uint32_t i = 0; asked == keys && i < n; i++)
        keys[i] = o->keys[at[i]];
    if (n == 0 || quire_tier_lookup(tier->tier, asked, n, found) != QUIRE_OK)
        return;
    uint32_t num_there = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (found[i] != 1) {
            queue_store(promote, o, at[i], t);
            continue;
        }
        note_offered(promote, o->blocks[at[i]], t);
        keys[num_there++] = o->keys[at[i]];
    }
    if (o->was_hit && num_there > 0)
        quire_tier_touch(tier->tier, keys, num_there);
}

/* How many some tier has room for; is_hit: also one that takes nothing but hits. */
static uint32_t most_room(const qr_promote *promote, bool is_hit)
{
    uint32_t most = 0;
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        const qr_promote_tier *tier = &promote->tiers[t];
        uint32_t room = qr_promote_is_out(tier) ? 0 : promote->max_stores - tier->num_queued;
        if (room > most && !tier->is_read_only && (is_hit || tier->admit != QUIRE_ADMIT_REUSED))
            most = room;
    }
    return most;
}

/* Where no tier was asked to take it, nobody waits for the old content. */
void qr_promote_forget_content(qr_promote *promote, const quire_block *blocks, uint32_t num_blocks)
{
    uint64_t *has_past = promote->has_past;
    uint32_t num_ours = promote->num_cpu_blocks;
    for (uint32_t i = 0; i < num_blocks; i++)
        if (blocks[i] < num_ours && qr_bit_get(has_past, blocks[i])) { /* few have */
            qr_bit_clear(has_past, blocks[i]);
            promote->blocks[blocks[i]] = (qr_promote_block){0};
            promote->contents[blocks[i]]++;
        }
}

static void turn_away(qr_promote *promote, uint32_t num_blocks, bool was_hit)
{
    for (uint32_t t = 0; t < promote->num_tiers && num_blocks > 0; t++) {
        qr_promote_tier *tier = &promote->tiers[t];
        if (tier->is_read_only)
            continue;
        bool is_admitted = was_hit || tier->admit != QUIRE_ADMIT_REUSED;
        qr_count_add(is_admitted ? &tier->counters.dropped_blocks : &tier->counters.not_admitted,
                     num_blocks);
    }
}

static void offer_all(qr_promote *promote, offer *o)
{
    find_keys(promote, o);
    for (uint32_t t = 0; t < promote->num_tiers && o->n > 0; t++)
        offer_tier(promote, o, t);
    o->n = 0;
}

static inline bool is_ours(const qr_promote *promote, quire_block block)
{
    return block != QUIRE_NULL_BLOCK && block < promote->num_cpu_blocks;
}

void qr_promote_stored(qr_promote *promote, const quire_block *blocks, const uint32_t *crcs,
                       uint32_t num_blocks)
{
    offer o;
    o.n = 0;
    o.has_crcs = crcs != NULL;
    o.was_hit = false;
    qr_promote_forget_content(promote, blocks, num_blocks);
    uint32_t room = most_room(promote, false);
    uint32_t i = 0;
    for (; i < num_blocks && room > 0; i++) {
        if (is_ours(promote, blocks[i]))
            add_block(&o, blocks[i], crcs != NULL ? crcs[i] : 0);
        if (o.n < QR_LOWER_BATCH && o.n < room && i + 1 < num_blocks)
            continue;
        offer_all(promote, &o);
        room = most_room(promote, false);
    }
    turn_away(promote, num_blocks - i, false); /* without keys, which take time to make */
}

/* Without room only what a tier has had is of interest: it is kept there longer. */
void qr_promote_reused(qr_promote *promote, const quire_block *blocks, uint32_t num_blocks)
{
    offer o;
    o.n = 0;
    o.has_crcs = false;
    o.was_hit = true;
    bool has_room = most_room(promote, true) > 0;
    uint32_t num_left = 0;
    for (uint32_t i = 0; i < num_blocks; i++) {
        if (!is_ours(promote, blocks[i]))
            continue;
        if (!has_room && promote->blocks[blocks[i]].offered == 0) {
            num_left++;
            continue;
        }
        add_block(&o, blocks[i], 0);
        if (o.n < QR_LOWER_BATCH)
            continue;
        offer_all(promote, &o);
        has_room = most_room(promote, true) > 0;
    }
    offer_all(promote, &o);
    turn_away(promote, num_left, true);
}
