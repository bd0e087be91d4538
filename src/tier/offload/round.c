/* tier/offload/round.c - CPU blocks for stores. */
#include "tier/offload/offload.h"

bool qr_round_has_room(quire_offload *o, qr_store_round *round)
{
    while (round->num_free == 0 || round->num_left == 0) {
        bool gave_way = round->num_left > 0 && qr_protect_give_way(o);
        if (!gave_way && round->num_left > 0 && o->match.is_pinned) {
            qr_match_release(o); /* it is looked up again when its request is asked for */
            gave_way = true;
        }
        if (!gave_way) {
            round->is_full = true;
            return false;
        }
        round->num_free = quire_pool_get_num_free_blocks(o->cpu);
    }
    return true;
}

void qr_round_count_missing(quire_offload *o, const quire_block *gpu, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        quire_block found = UINT32_MAX;
        if (gpu[i] != QUIRE_NULL_BLOCK)
            quire_pool_find_same(o->cpu, o->gpu, &gpu[i], 1, &found);
        if (found == QUIRE_NULL_BLOCK && !qr_bit_get(o->is_storing, gpu[i]))
            qr_count_add(&o->counters.no_room, 1);
    }
}

uint32_t qr_round_take_missing(quire_offload *o, const quire_block *gpu, uint32_t n,
                               qr_store_round *round, uint32_t *num_with_key)
{
    uint32_t done = 0;
    *num_with_key = 0;
    while (done < n) {
        quire_same same = {0};
        quire_block *from = round->gpu + round->count;
        quire_block *to = round->cpu + round->count;
        uint32_t most = n - done < round->num_left ? n - done : round->num_left;
        if (quire_pool_take_same(o->cpu, o->gpu, gpu + done, most, from, to, &same) != QUIRE_OK)
            break;
        qr_share_withdraw(&o->share, to, same.num_taken);
        for (uint32_t i = 0; o->is_lazy && i < same.num_taken; i++)
            qr_bit_set(o->is_storing, from[i]);
        *num_with_key += *num_with_key == done ? same.num_with_key : 0;
        done += same.num_done;
        round->count += same.num_taken;
        round->num_left -= same.num_taken;
        o->num_flight += same.num_taken;
        qr_count_add(&o->counters.stores_in_flight, same.num_taken);
        round->num_free = quire_pool_get_num_free_blocks(o->cpu);
        if (done < n && !qr_round_has_room(o, round))
            break;
    }
    return done;
}
