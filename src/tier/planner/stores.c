/* tier/planner/stores.c - full blocks that the host pool has not.
 *
 *      computed ─► no host block has the key ─► a host block, held, with the key ─► copied: a hit
 *                                                                  └─ failed, reset: it stays empty
 */
#include "tier/planner/planner.h"

enum { AT_ONCE = QR_AT_A_TIME(64, 2) };

/* Which of the group's blocks [first, first + n) the host pool has. */
static void find_blocks(const quire_planner *p, uint32_t group, const unsigned char *hashes,
                        uint32_t first, uint32_t n, quire_block *found)
{
    qr_key_form form = p->host.groups[group].key_form;
    if (!form.by_last || form.joined == 1) {
        quire_bytes row = qr_block_key(form, hashes, first);
        if (quire_pool_get_cached_each(p->host.pool, row.data, row.len, n, group, found) !=
            QUIRE_OK)
            memset(found, 0xff, n * sizeof *found); /* none is stored */
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (quire_pool_get_cached_block(p->host.pool, qr_block_key(form, hashes, first + i), &group,
                                        1, &found[i]) != QUIRE_OK)
            found[i] = QUIRE_NULL_BLOCK;
}

static bool is_batch_open(const quire_planner *p)
{
    return p->open_store != QR_NIL && p->batches[p->open_store].job.num_copies < QR_BATCH_COPIES;
}

/* A quarter of the batches is for loads. */
static bool has_batch(const quire_planner *p)
{
    return is_batch_open(p) || p->num_free_batches > p->num_batches / 4;
}

/* The batch that a store is added to. There is one. It must not stay empty: devices refuse that. */
static qr_planner_batch *open_batch(quire_planner *p)
{
    if (is_batch_open(p))
        return &p->batches[p->open_store];
    qr_planner_batch *batch = qr_planner_new_batch(p, QUIRE_DEVICE_STORE);
    qr_planner_queue_batch(p, batch);
    p->open_store = (uint32_t)(batch - p->batches);
    return batch;
}

/* A host block for the key, held; the null block: no room. */
static quire_block take_slot(quire_planner *p, uint32_t group, quire_bytes key)
{
    quire_block slot;
    if (quire_pool_get_new_blocks(p->host.pool, 1, &slot) != QUIRE_OK)
        return QUIRE_NULL_BLOCK;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &slot,
                                      .num_full_blocks = 1,
                                      .hashes = key.data,
                                      .hash_len = key.len,
                                      .num_hashes = 1,
                                      .group_id = group,
                                      .block_size = p->host.groups[group].block_size};
    if (p->promote != NULL)
        qr_promote_forget_content(p->promote, &slot, 1);
    (void)quire_pool_hold(p->host.pool, &slot, 1);
    (void)quire_pool_free_blocks(p->host.pool, &slot, 1);
    (void)quire_pool_cache_full_blocks(p->host.pool, &params);
    return slot;
}

/* False: no room, now. most: stores in flight. */
static bool store_block(quire_planner *p, uint32_t most, uint32_t group, quire_bytes key,
                        quire_block block)
{
    if (p->num_storing >= most || !has_batch(p))
        return false;
    if (quire_pool_get_num_free_blocks(p->host.pool) == 0)
        qr_planner_release_match(p); /* it is looked up again when its request is asked for */
    quire_block slot = take_slot(p, group, key);
    if (slot == QUIRE_NULL_BLOCK)
        return false;
    qr_planner_batch *batch = open_batch(p);
    batch->copies[batch->job.num_copies++] = (quire_device_copy){.block = block, .slot = slot};
    p->num_storing++;
    qr_planner_hold(p, block);
    qr_count_add(&p->counters.stores_in_flight, 1);
    return true;
}

/* The group's blocks [first, end); returns how many of them are done with. */
static uint32_t store_group(quire_planner *p, uint32_t most, uint32_t group,
                            const unsigned char *hashes, const quire_block *blocks, uint32_t first,
                            uint32_t end)
{
    quire_block found[AT_ONCE];
    for (uint32_t at = first; at < end;) {
        uint32_t n = end - at < AT_ONCE ? end - at : AT_ONCE;
        find_blocks(p, group, hashes, at, n, found);
        for (uint32_t i = 0; i < n; i++, at++) {
            quire_block block = blocks[at];
            if (found[i] != QUIRE_NULL_BLOCK || block == QUIRE_NULL_BLOCK || block >= p->num_gpu)
                continue;
            quire_bytes key = qr_block_key(p->host.groups[group].key_form, hashes, at);
            if (!store_block(p, most, group, key, block))
                return at;
        }
    }
    return end;
}

/* The group's blocks [0, end) of the host pool were used: the start of the prefix last, so that it
 * is evicted last. */
static void use_group(quire_planner *p, uint32_t group, const unsigned char *hashes, uint32_t end)
{
    quire_block found[AT_ONCE];
    quire_block used[AT_ONCE];
    while (end > 0) {
        uint32_t n = end < AT_ONCE ? end : AT_ONCE;
        uint32_t num_used = 0;
        end -= n;
        find_blocks(p, group, hashes, end, n, found);
        while (n-- > 0)
            if (found[n] != QUIRE_NULL_BLOCK)
                used[num_used++] = found[n];
        (void)quire_pool_touch(p->host.pool, used, num_used);
        (void)quire_pool_free_blocks(p->host.pool, used, num_used);
    }
}

/* A request that ends has used all its blocks. Those of a load were used when it ended; they are
 * used once more if blocks behind them were stored: a prefix is evicted after what follows. */
static void use_blocks(quire_planner *p, qr_planner_req *r, const quire_planner_request *request)
{
    const uint32_t *num_stored = &p->num_stored[(size_t)(r - p->reqs) * p->host.num_groups];
    for (uint32_t g = 0; r->has_stored && g < p->host.num_groups; g++)
        use_group(p, g, request->hashes, num_stored[g]);
}

bool qr_planner_store(quire_planner *p, qr_planner_req *r, const quire_planner_request *request,
                      const quire_block_span *blocks, uint32_t num_computed)
{
    uint32_t *num_stored = &p->num_stored[(size_t)(r - p->reqs) * p->host.num_groups];
    uint32_t most = request->is_last != 0 ? p->most_ending : p->most_storing;
    uint32_t num_left = 0;
    for (uint32_t g = 0; g < p->host.num_groups; g++) {
        const qr_host_group *group = &p->host.groups[g];
        uint32_t end = num_computed / group->block_size;
        uint32_t hashed = request->num_hashes / group->key_form.joined;
        end = end < hashed ? end : hashed;
        end = end < blocks[g].count ? end : blocks[g].count;
        if (num_stored[g] >= end)
            continue;
        num_stored[g] = store_group(p, most, g, request->hashes, blocks[g].ids, num_stored[g], end);
        r->has_stored = true;
        num_left += end - num_stored[g];
    }
    if (request->is_last != 0) {
        qr_count_add(&p->counters.no_room, num_left); /* nobody stores these later */
        use_blocks(p, r, request);
    }
    return num_left == 0 || request->is_last != 0;
}

/* ---- ends ------------------------------------------------------------------ */

/* From the last to the first: the start of a prefix is evicted last. */
static void keep_slots(quire_planner *p, const qr_planner_batch *batch)
{
    uint32_t n = batch->job.num_copies;
    for (uint32_t i = 0; i < n; i++)
        p->scratch[i] = batch->copies[i].slot;
    if (p->promote != NULL)
        qr_promote_stored(p->promote, p->scratch, NULL, n);
    for (uint32_t i = 0; i < n; i++)
        p->scratch2[i] = batch->copies[n - 1 - i].slot;
    (void)quire_pool_let_go(p->host.pool, p->scratch2, n, 0);
}

/* They have no keys any longer: other blocks may get these. */
static void forget_slots(quire_planner *p, const qr_planner_batch *batch)
{
    uint32_t n = batch->job.num_copies;
    for (uint32_t i = 0; i < n; i++)
        p->scratch[i] = batch->copies[i].slot;
    if (p->promote != NULL)
        qr_promote_forget_content(p->promote, p->scratch, n);
    (void)quire_pool_evict_blocks(p->host.pool, p->scratch, n);
}

static void drop_slots(quire_planner *p, const qr_planner_batch *batch)
{
    uint32_t n = batch->job.num_copies;
    forget_slots(p, batch);
    (void)quire_pool_let_go(p->host.pool, p->scratch, n, 1);
}

void qr_planner_end_store(quire_planner *p, qr_planner_batch *batch, bool is_good)
{
    uint32_t n = batch->job.num_copies;
    is_good = is_good && !batch->is_dropped;
    p->num_storing -= n;
    if (is_good)
        keep_slots(p, batch);
    else
        drop_slots(p, batch);
    qr_count_add(&p->counters.stores_in_flight, UINT64_C(0) - n);
    qr_count_add(is_good ? &p->counters.stored_blocks : &p->counters.failed_stores, n);
    qr_planner_free_batch(p, batch);
}

void qr_planner_drop_stores(quire_planner *p)
{
    for (uint32_t i = 0; i < p->num_batches; i++)
        if (p->batches[i].is_used && p->batches[i].job.op == QUIRE_DEVICE_STORE) {
            p->batches[i].is_dropped = true;
            forget_slots(p, &p->batches[i]);
        }
    while (p->waiting_stores.first != QR_NIL) { /* nobody has begun these */
        qr_planner_batch *batch = &p->batches[p->waiting_stores.first];
        p->waiting_stores.first = batch->next;
        qr_planner_release(p, batch);
        qr_planner_end_store(p, batch, false);
    }
    p->open_store = QR_NIL;
}
