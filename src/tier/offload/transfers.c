/* tier/offload/transfers.c - pairs of blocks on their way. */
#include "tier/offload/offload.h"

#include "base/assert.h"

void qr_transfers_init(quire_offload *o)
{
    o->free_transfer = QR_NIL;
    o->num_fresh_transfers = o->num_transfers;
}

/* Memory that was used lately before memory that never was. */
static uint32_t take_transfer(quire_offload *o, uint32_t prev)
{
    uint32_t batch = o->free_transfer;
    if (batch != QR_NIL) {
        o->free_transfer = o->transfers[batch].next;
    } else {
        qr_assert(o->num_fresh_transfers > 0); /* there are enough for all blocks: plan.c */
        batch = o->num_transfers - o->num_fresh_transfers--;
    }
    o->transfers[batch].next = QR_NIL;
    o->transfers[batch].prev = prev;
    o->transfers[batch].count = 0;
    return batch;
}

void qr_transfers_return(quire_offload *o, uint32_t batch)
{
    o->transfers[batch].next = o->free_transfer;
    o->free_transfer = batch;
}

void qr_transfers_add(quire_offload *o, qr_transfers *list, const quire_block *gpu,
                      const quire_block *cpu, uint32_t n)
{
    list->count += n;
    for (uint32_t done = 0; done < n;) {
        if (list->first == QR_NIL) {
            list->first = list->last = take_transfer(o, QR_NIL);
        } else if (o->transfers[list->last].count == QR_TRANSFER_PAIRS) {
            uint32_t batch = take_transfer(o, list->last);
            o->transfers[list->last].next = batch;
            list->last = batch;
        }
        qr_transfer_batch *batch = &o->transfers[list->last];
        uint32_t room = QR_TRANSFER_PAIRS - batch->count;
        uint32_t part = n - done < room ? n - done : room;
        memcpy(batch->gpu + batch->count, gpu + done, part * sizeof *gpu);
        memcpy(batch->cpu + batch->count, cpu + done, part * sizeof *cpu);
        batch->count += part;
        done += part;
    }
}
