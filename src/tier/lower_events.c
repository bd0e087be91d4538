/* tier/lower_events.c - what lies in the tiers below the CPU pool, as KV events.
 *
 *      slots of a tier ─ key is there, or gone ──► STORED, REMOVED of block slot + 1
 *                                                  (block 0 is the null block of every tier)
 *
 * Slots change on the scheduler's thread alone: where jobs are submitted and where they are polled.
 * A key has the hash itself, up to QUIRE_TIER_HASH_BYTES; groups with longer hashes are not told.
 */
#include "tier/lower_parts.h"

#include "tier/tier.h"

#include <quire/monitor.h>
#include <quire/slots.h>

/* The hash of a key; false: it is another rank's, or not known. */
static bool hash_of(const qr_lower *lower, const quire_tier_key *key, quire_bytes *hash)
{
    if (key->rank != lower->rank || key->group >= lower->num_groups ||
        lower->groups[key->group].hash_len > QUIRE_TIER_HASH_BYTES)
        return false;
    *hash = (quire_bytes){key->hash, lower->groups[key->group].hash_len};
    return true;
}

static void take_change(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    const qr_lower_watch *watch = user;
    const qr_lower *lower = watch->lower;
    quire_block block = slot + 1;
    quire_bytes hash;
    if (!hash_of(lower, key, &hash))
        return;
    quire_event event = {.kind = is_there != 0 ? QUIRE_EVENT_STORED : QUIRE_EVENT_REMOVED,
                         .group_id = key->group,
                         .blocks = &block,
                         .num_blocks = 1,
                         .hashes = hash.data,
                         .hash_bytes = (uint32_t)hash.len,
                         .block_size = lower->groups[key->group].block_size};
    (void)quire_monitor_tell_event(lower->monitor, watch->place, &event);
}

static int get_key(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id)
{
    const qr_lower_watch *watch = user;
    const quire_tier_key *key = block == 0 ? NULL : quire_slots_key_at(watch->slots, block - 1);
    if (key == NULL || !hash_of(watch->lower, key, hash))
        return QUIRE_MISS;
    *group_id = key->group;
    return QUIRE_OK;
}

void qr_lower_watch_tiers(qr_lower *lower, quire_monitor *monitor, uint32_t first_place)
{
    lower->monitor = monitor;
    for (uint32_t t = 0; t < lower->num_tiers; t++) {
        qr_lower_watch *watch = &lower->tiers[t].watch;
        *watch = (qr_lower_watch){.lower = lower, .place = first_place + t};
        qr_tier_watch(lower->tiers[t].tier, &watch->slots, take_change, watch);
        if (watch->slots == NULL)
            continue;
        quire_watched_blocks blocks = {.user = watch, .get_key = get_key};
        blocks.num_blocks = (uint32_t)quire_slots_usage(watch->slots).total + 1;
        (void)quire_monitor_watch_blocks(monitor, watch->place, &blocks);
    }
}

void qr_lower_unwatch_tiers(qr_lower *lower)
{
    for (uint32_t t = 0; t < lower->num_tiers; t++)
        if (lower->tiers[t].watch.slots != NULL) /* else the tier is closed, or has none */
            qr_tier_unwatch(lower->tiers[t].tier);
    lower->monitor = NULL;
}
