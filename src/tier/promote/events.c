/* tier/promote/events.c - what lies in the tiers below the CPU pool, as KV events.
 *
 *      slots of a tier ─ key is there, or gone ──► STORED, REMOVED of block slot + 1
 *                                                  (block 0 is the null block of every tier)
 *
 * Slots change on the scheduler's thread alone: where jobs are submitted and where they are polled.
 * A key has the hash itself, up to QUIRE_TIER_HASH_BYTES; groups with longer hashes are not told.
 */
#include "tier/promote/parts.h"

#include "tier/core/tier.h"

#include <quire/monitor.h>
#include <quire/slots.h>

/* The hash of a key; false: it is another rank's, or not known. */
static bool hash_of(const qr_promote *promote, const quire_tier_key *key, quire_bytes *hash)
{
    if (key->rank != promote->rank || key->group >= promote->num_groups ||
        promote->groups[key->group].hash_len > QUIRE_TIER_HASH_BYTES)
        return false;
    *hash = (quire_bytes){key->hash, promote->groups[key->group].hash_len};
    return true;
}

static void take_change(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    const qr_promote_watch *watch = user;
    const qr_promote *promote = watch->promote;
    quire_block block = slot + 1;
    quire_bytes hash;
    if (!hash_of(promote, key, &hash))
        return;
    quire_event event = {.size = sizeof(quire_event),
                         .kind = is_there != 0 ? QUIRE_EVENT_STORED : QUIRE_EVENT_REMOVED,
                         .group_id = key->group,
                         .blocks = &block,
                         .num_blocks = 1,
                         .hashes = hash.data,
                         .hash_bytes = (uint32_t)hash.len,
                         .block_size = promote->groups[key->group].block_size};
    (void)quire_monitor_tell_event(promote->monitor, watch->place, &event);
}

static int get_key(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id)
{
    const qr_promote_watch *watch = user;
    const quire_tier_key *key = block == 0 ? NULL : quire_slots_key_at(watch->slots, block - 1);
    if (key == NULL || !hash_of(watch->promote, key, hash))
        return QUIRE_MISS;
    *group_id = key->group;
    return QUIRE_OK;
}

void qr_promote_watch_tiers(qr_promote *promote, quire_monitor *monitor, uint32_t first_place)
{
    promote->monitor = monitor;
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        qr_promote_watch *watch = &promote->tiers[t].watch;
        *watch = (qr_promote_watch){.promote = promote, .place = first_place + t};
        qr_tier_watch(promote->tiers[t].tier, &watch->slots, take_change, watch);
        if (watch->slots == NULL)
            continue;
        quire_watched_blocks blocks = {
            .size = sizeof(quire_watched_blocks), .user = watch, .get_key = get_key};
        blocks.num_blocks = (uint32_t)quire_slots_usage(watch->slots).total + 1;
        (void)quire_monitor_watch_blocks(monitor, watch->place, &blocks);
    }
}

void qr_promote_unwatch_tiers(qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if (promote->tiers[t].watch.slots != NULL) /* else the tier is closed, or has none */
            qr_tier_unwatch(promote->tiers[t].tier);
    promote->monitor = NULL;
}
