#include "tier/file/slot_map.h"

#include "base/bits.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Blocks that a scan found, taken over in one call: a step stays short. */
enum { CATCH_UP = QR_AT_A_TIME(1024, 2) };

/* ---- opening ------------------------------------------------------------ */

int qr_file_slot_map_open(qr_file_slot_map *map, uint32_t num_slots, quire_slots_policy policy,
                          const quire_hooks *hooks)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_slots;
    config.policy = policy;
    config.hooks = *hooks;
    *map = (qr_file_slot_map){.num_slots = num_slots};
    map->known = qr_alloc(num_slots, sizeof *map->known);
    map->slot_at = qr_alloc(num_slots, sizeof(uint32_t));
    if (map->known == NULL || map->slot_at == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < num_slots; i++) {
        map->known[i].place = i;
        map->slot_at[i] = i;
    }
    return quire_slots_create(&config, NULL, &map->slots);
}

void qr_file_slot_map_close(qr_file_slot_map *map)
{
    quire_slots_destroy(map->slots);
    qr_free(map->known);
    qr_free(map->slot_at);
    *map = (qr_file_slot_map){0};
}

static void set_doomed(qr_file_slot_map *map, uint32_t slot, bool is_doomed)
{
    map->num_doomed += (uint32_t)is_doomed - map->known[slot].is_doomed;
    map->known[slot].is_doomed = is_doomed;
}

/* ---- what the file had -------------------------------------------------- */

static void turn_place(qr_file_slot_map *map, uint32_t slot, uint32_t place)
{
    uint32_t other = map->slot_at[place];
    uint32_t before = map->known[slot].place;
    map->known[slot].place = place;
    map->slot_at[place] = slot;
    map->known[other].place = before;
    map->slot_at[before] = other;
}

/* A key that is there already moves to the newer place. Returns the place that has lost it;
 * QR_NIL: none has. */
static uint32_t take_entry(qr_file_slot_map *map, const qr_file_entry *entries, uint32_t place)
{
    const qr_file_entry *entry = &entries[place];
    uint32_t slot;
    uint32_t is_ready;
    uint32_t num_evicted;
    uint32_t loser = QR_NIL;
    uint8_t is_new;
    if (quire_slots_find(map->slots, &entry->key, &slot, &is_ready) == QUIRE_OK) {
        loser = map->known[slot].place;
        if (entry->seq <= entries[loser].seq)
            return place;
    } else {
        if (quire_slots_prepare_store(map->slots, &entry->key, 1, &slot, &is_new, NULL,
                                      &num_evicted) != QUIRE_OK)
            return place;
        quire_slots_end_store(map->slots, &slot, 1, 1);
    }
    turn_place(map, slot, place);
    map->known[slot].key = entry->key;
    map->known[slot].bytes = entry->bytes;
    set_doomed(map, slot, false);
    return loser;
}

static int compare_age(const void *a, const void *b, void *entries)
{
    const qr_file_entry *all = entries;
    uint64_t first = all[*(const uint32_t *)a].seq;
    uint64_t second = all[*(const uint32_t *)b].seq;
    return (first > second) - (first < second);
}

void qr_file_slot_map_take_index(qr_file_slot_map *map, qr_file_entry *entries, uint32_t *memory)
{
    uint32_t n = 0;
    for (uint32_t place = 0; place < map->num_slots; place++)
        if (entries[place].state == QR_FILE_STORED)
            memory[n++] = place;
    qsort_r(memory, n, sizeof *memory, compare_age, entries);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t loser = take_entry(map, entries, memory[i]);
        if (loser != QR_NIL)
            entries[loser] = (qr_file_entry){0};
    }
}

static bool is_catching_up(const qr_file_slot_map *map)
{
    return map->scan != NULL && map->num_taken < map->num_slots;
}

static void catch_up(qr_file_slot_map *map)
{
    if (!is_catching_up(map))
        return;
    uint32_t end = atomic_load_explicit(&map->scan->num_found, memory_order_acquire);
    if (end > map->num_taken + CATCH_UP)
        end = map->num_taken + CATCH_UP;
    for (; map->num_taken < end; map->num_taken++)
        if (map->scan->found[map->num_taken].state == QR_FILE_STORED)
            (void)take_entry(map, map->scan->found, map->num_taken);
}

/* ---- jobs --------------------------------------------------------------- */

/* io->generation: 1 + num_resets while the io has a slot, as its writer or its user: the tier's
 * thread does not begin what was prepared before a reset. */
static quire_tier_status prepare_store(qr_file_slot_map *map, quire_tier_io *io)
{
    uint32_t slot;
    uint32_t is_ready;
    uint32_t num_evicted;
    uint8_t is_new = 0;
    if (quire_slots_find(map->slots, &io->key, &slot, &is_ready) == QUIRE_OK) {
        if (map->known[slot].is_doomed)
            return QUIRE_TIER_REFUSED;
        if (is_ready)
            quire_slots_touch(map->slots, &io->key, 1);
        return is_ready ? QUIRE_TIER_DONE : QUIRE_TIER_REFUSED;
    }
    if (is_catching_up(map) || quire_slots_prepare_store(map->slots, &io->key, 1, &slot, &is_new,
                                                         NULL, &num_evicted) != QUIRE_OK)
        return QUIRE_TIER_NO_ROOM;
    map->known[slot].key = io->key;
    map->known[slot].bytes = io->bytes;
    set_doomed(map, slot, false);
    io->place = map->known[slot].place;
    io->generation = 1 + map->num_resets;
    return QUIRE_TIER_PENDING;
}

/* LOAD, REMOVE: the io is a user of the slot until it ends, so that nobody else gets it. */
static quire_tier_status prepare_use(qr_file_slot_map *map, quire_tier_io *io)
{
    uint32_t slot;
    if (quire_slots_prepare_load(map->slots, &io->key, 1, &slot) != QUIRE_OK)
        return QUIRE_TIER_MISSING;
    if (map->known[slot].is_doomed) {
        quire_slots_end_load(map->slots, &slot, 1);
        return QUIRE_TIER_MISSING;
    }
    io->place = map->known[slot].place;
    io->generation = 1 + map->num_resets;
    return QUIRE_TIER_PENDING;
}

static quire_tier_status find_key(qr_file_slot_map *map, quire_tier_io *io)
{
    uint32_t slot;
    uint32_t is_ready = 0;
    if (quire_slots_find(map->slots, &io->key, &slot, &is_ready) != QUIRE_OK || !is_ready ||
        map->known[slot].is_doomed)
        return QUIRE_TIER_MISSING;
    io->bytes = map->known[slot].bytes;
    return QUIRE_TIER_DONE;
}

void qr_file_slot_map_prepare(void *self, quire_tier_job *job)
{
    qr_file_slot_map *map = self;
    catch_up(map);
    for (uint32_t i = job->num_ios; i-- > 0;) { /* so that the end of a prompt is the oldest */
        quire_tier_io *io = &job->ios[i];
        io->generation = 0;
        io->place = 0;
        if (job->op == QUIRE_TIER_STORE)
            io->status = prepare_store(map, io);
        else if (job->op == QUIRE_TIER_FIND)
            io->status = find_key(map, io);
        else
            io->status = prepare_use(map, io);
    }
}

static void finish_use(qr_file_slot_map *map, const quire_tier_job *job, const quire_tier_io *io,
                       uint32_t slot)
{
    bool is_gone = job->op == QUIRE_TIER_REMOVE
                       ? io->status == QUIRE_TIER_DONE
                       : io->status == QUIRE_TIER_WRONG || io->status == QUIRE_TIER_MISSING;
    if (is_gone || (io->place & QR_FILE_FORGET) != 0)
        set_doomed(map, slot, true);
    quire_slots_end_load(map->slots, &slot, 1);
    if (map->known[slot].is_doomed && quire_slots_remove(map->slots, &io->key) == QUIRE_OK)
        set_doomed(map, slot, false);
}

void qr_file_slot_map_finish(void *self, quire_tier_job *job)
{
    qr_file_slot_map *map = self;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        quire_tier_io *io = &job->ios[i];
        uint32_t slot;
        uint32_t is_ready;
        if (io->generation == 0 ||
            quire_slots_find(map->slots, &io->key, &slot, &is_ready) != QUIRE_OK)
            continue;
        io->generation = 0;
        if (job->op != QUIRE_TIER_STORE) {
            finish_use(map, job, io, slot);
            continue;
        }
        bool is_good = io->status == QUIRE_TIER_DONE && !map->known[slot].is_doomed;
        quire_slots_end_store(map->slots, &slot, 1, is_good);
        set_doomed(map, slot, false);
    }
}

/* ---- looking ------------------------------------------------------------ */

void qr_file_slot_map_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    qr_file_slot_map *map = self;
    catch_up(map);
    quire_slots_lookup_each(map->slots, keys, n, found);
    for (uint32_t i = 0; i < n && map->num_doomed > 0; i++) {
        uint32_t slot;
        uint32_t is_ready;
        if (found[i] && quire_slots_find(map->slots, &keys[i], &slot, &is_ready) == QUIRE_OK)
            found[i] = !map->known[slot].is_doomed;
    }
}

/* What has users or is being written goes when they are done. */
void qr_file_slot_map_reset(qr_file_slot_map *map)
{
    map->num_taken = map->num_slots;
    map->num_resets++;
    for (uint32_t slot = 0; slot < map->num_slots; slot++) {
        uint32_t now;
        uint32_t is_ready;
        if (quire_slots_find(map->slots, &map->known[slot].key, &now, &is_ready) != QUIRE_OK ||
            now != slot)
            continue;
        set_doomed(map, slot, quire_slots_remove(map->slots, &map->known[slot].key) != QUIRE_OK);
    }
}
