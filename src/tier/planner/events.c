/* tier/planner/events.c - what lies in the tiers of the workers, as events.
 *
 *      known keys of a remote tier ─ a store or a load is done, a load misses, a worker's tier has
 *      evicted it, too many are known ──► STORED, REMOVED of block slot + 1
 *
 * A key has the hash itself, up to QUIRE_TIER_HASH_BYTES; groups with longer hashes are not told.
 */
#include "tier/planner/planner.h"

#include "tier/core/tier.h"

static void take_change(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    const qr_planner_watch *watch = user;
    const qr_host_pool *host = &watch->planner->host;
    quire_block block = slot + 1;
    uint32_t len = key->group < host->num_groups
                       ? qr_block_key_len(host->groups[key->group].key_form)
                       : UINT32_MAX;
    if (len > QUIRE_TIER_HASH_BYTES)
        return;
    quire_event event = {.size = sizeof(quire_event),
                         .kind = is_there != 0 ? QUIRE_EVENT_STORED : QUIRE_EVENT_REMOVED,
                         .group_id = key->group,
                         .blocks = &block,
                         .num_blocks = 1,
                         .hashes = key->hash,
                         .hash_bytes = len,
                         .block_size = host->groups[key->group].block_size};
    watch->on_event(watch->user, watch->tier, &event);
}

void qr_planner_watch_tiers(quire_planner *p, const quire_planner_config *config)
{
    for (uint32_t i = 0; config->on_tier_event != NULL && i < config->num_tiers; i++) {
        qr_planner_watch *watch = &p->watches[i];
        *watch = (qr_planner_watch){
            .planner = p, .on_event = config->on_tier_event, .user = config->event_user, .tier = i};
        qr_tier_watch(quire_transfer_get_tier(p->transfer, i), &watch->slots, take_change, watch);
    }
}
