#include "lane.h"

#include "output/grown.h"

void curve_lane_free(curve_lane *lane)
{
    stack_free(&lane->stack);
    curve_table_free(&lane->table);
    curve_ghosts_free(&lane->ghosts);
    curve_ghosts_free(&lane->leaving);
    belady_free(&lane->belady);
    free(lane->hits);
    free(lane->entries);
    *lane = (curve_lane){0};
}

/* ---- room ------------------------------------------------------------------ */

static bool reserve_stack(curve_lane *lane, uint32_t more)
{
    stack_distance *stack = &lane->stack;
    if (stack_has_room(stack, more))
        return true;
    for (uint64_t i = 0; i < lane->table.num_slots; i++) {
        curve_entry *entry = &lane->table.entries[i];
        if (entry->key != 0 && entry->position != CURVE_NOWHERE)
            entry->position = stack_below(stack, entry->position);
    }
    for (uint32_t i = 0; i < lane->ghosts.num_ghosts; i++) {
        curve_ghost *ghost = &lane->ghosts.list[i];
        ghost->position = stack_below(stack, ghost->position);
    }
    return stack_compact(stack, more);
}

/* A block is found in a pool that is larger by one than what is above it, ghosts included. */
static bool reserve_hits(curve_lane *lane)
{
    uint64_t wanted = (uint64_t)lane->stack.num_elements + lane->ghosts.num_ghosts + 2;
    uint64_t before = lane->hits_room;
    if (!reserve(&lane->hits, wanted, &lane->hits_room, sizeof *lane->hits))
        return false;
    for (uint64_t i = before; i < lane->hits_room; i++)
        lane->hits[i] = 0;
    return true;
}

static bool reserve_all(curve_lane *lane, const curve_blocks *blocks)
{
    /* Twice: a block may get an entry for a copy of it. */
    return reserve(&lane->entries, blocks->num_full, &lane->entries_room, sizeof *lane->entries) &&
           curve_table_reserve(&lane->table, 2 * (uint64_t)blocks->num_full) &&
           reserve_stack(lane, blocks->num_held) && reserve_hits(lane);
}

/* ---- lookups --------------------------------------------------------------- */

static curve_entry *copy_of(curve_lane *lane, const curve_entry *entry)
{
    return curve_table_take(&lane->table, curve_table_next_key(entry->key));
}

static uint32_t min_blocks_of(const curve_lane *lane, const curve_entry *entry)
{
    uint32_t above = stack_above(&lane->stack, entry->position);
    if (lane->ghosts.num_ghosts == 0)
        return above + 1;
    return curve_ghosts_min_blocks(&lane->ghosts, entry->position, above);
}

/* Copies stand above the one that was cached first, each above those before it. In the pools that
 * hold an older one a copy is left where it is; the block is found where the newest is. */
static bool look_up(curve_lane *lane, const curve_entry *entry)
{
    uint32_t min_blocks = min_blocks_of(lane, entry);
    while (entry->has_more) {
        entry = copy_of(lane, entry);
        if (!curve_ghosts_add(&lane->leaving, (curve_ghost){entry->position, min_blocks}))
            return false;
        min_blocks = min_blocks_of(lane, entry);
    }
    lane->hits[min_blocks]++;
    return true;
}

/* All lookups are made before the request takes blocks, so the stack is as it was. */
static bool look_up_all(curve_lane *lane, const curve_blocks *blocks)
{
    uint32_t user = lane->belady.num_requests - 1;
    lane->leaving.num_ghosts = 0;
    lane->num_lookups += blocks->num_lookups;
    for (uint32_t i = 0; i < blocks->num_lookups; i++) {
        const curve_entry *entry = lane->entries[i];
        if (entry->position == CURVE_NOWHERE)
            break; /* nobody had it, nor those behind it */
        if (!look_up(lane, entry))
            return false;
        if (lane->has_belady && !belady_add_lookup(&lane->belady, entry->last_user, user, i))
            return false;
    }
    return true;
}

/* ---- moving ---------------------------------------------------------------- */

static void take_out(curve_lane *lane, curve_entry *entry)
{
    while (entry->position != CURVE_NOWHERE) {
        bool has_more = entry->has_more;
        stack_remove(&lane->stack, entry->position);
        entry->position = CURVE_NOWHERE;
        entry->has_more = false;
        if (!has_more)
            return;
        entry = copy_of(lane, entry);
    }
}

/* Ghosts stay where the copies were. */
static bool leave_ghosts(curve_lane *lane)
{
    for (uint32_t i = 0; i < lane->leaving.num_ghosts; i++)
        if (!curve_ghosts_add(&lane->ghosts, lane->leaving.list[i]))
            return false;
    return true;
}

/* A block that was not looked up is computed, whether there is one or not. */
static void put_on_top(curve_lane *lane, curve_entry *entry)
{
    while (entry->position != CURVE_NOWHERE) {
        curve_entry *copy = copy_of(lane, entry);
        entry->has_more = true;
        entry = copy;
    }
    entry->position = stack_push(&lane->stack);
}

bool curve_lane_add(curve_lane *lane, const curve_blocks *blocks)
{
    if (!reserve_all(lane, blocks))
        return false;
    if (lane->has_belady && !belady_add_request(&lane->belady, blocks->num_held))
        return false;
    for (uint32_t i = 0; i < blocks->num_full; i++)
        curve_table_expect(&lane->table, blocks->keys[i]);
    for (uint32_t i = 0; i < blocks->num_full; i++) {
        lane->entries[i] = curve_table_take(&lane->table, blocks->keys[i]);
        lane->num_distinct += lane->entries[i]->position == CURVE_NOWHERE;
    }
    lane->num_distinct += blocks->num_held - blocks->num_full;
    if (!look_up_all(lane, blocks))
        return false;
    for (uint32_t i = 0; i < blocks->num_lookups; i++)
        take_out(lane, lane->entries[i]);
    if (!leave_ghosts(lane))
        return false;
    for (uint32_t i = blocks->num_full; i < blocks->num_held; i++)
        stack_push(&lane->stack);
    for (uint32_t i = blocks->num_full; i-- > 0;) {
        put_on_top(lane, lane->entries[i]);
        if (lane->has_belady)
            lane->entries[i]->last_user = (lane->belady.num_requests - 1) & INT32_MAX;
    }
    return true;
}

/* ---- the curve ------------------------------------------------------------- */

void curve_lane_finish(curve_lane *lane)
{
    for (uint64_t i = 1; i < lane->hits_room; i++)
        lane->hits[i] += lane->hits[i - 1];
}

uint64_t curve_lane_hits(const curve_lane *lane, uint64_t num_blocks)
{
    if (lane->hits_room == 0)
        return 0;
    uint64_t at = num_blocks < lane->hits_room ? num_blocks : lane->hits_room - 1;
    return lane->hits[at];
}
