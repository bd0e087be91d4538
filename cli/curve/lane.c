#include "lane.h"

#include "output/grown.h"

/* ---- blocks by their identity ---------------------------------------------- */

/* Keys are as good as random: their upper bits spread over any number of slots. */
static uint64_t home_of(const curve_table *table, uint64_t key)
{
    return (uint64_t)(((unsigned __int128)key * table->num_slots) >> 64);
}

static curve_entry *probe(const curve_table *table, uint64_t key)
{
    uint64_t at = home_of(table, key);
    while (table->entries[at].key != 0 && table->entries[at].key != key)
        if (++at == table->num_slots)
            at = 0;
    return &table->entries[at];
}

/* Room for `more` new keys; entries may move. False: no memory. */
static bool table_reserve(curve_table *table, uint64_t more)
{
    uint64_t wanted = table->num_used + more;
    if (wanted <= table->num_slots / 4 * 3)
        return true;
    curve_table larger = {.num_slots = wanted * 2 + 1024, .num_used = table->num_used};
    larger.entries = calloc(larger.num_slots, sizeof *larger.entries);
    if (larger.entries == NULL)
        return false;
    for (uint64_t i = 0; i < table->num_slots; i++)
        if (table->entries[i].key != 0)
            *probe(&larger, table->entries[i].key) = table->entries[i];
    free(table->entries);
    *table = larger;
    return true;
}

/* The entry of a key, a new one where there is none; there must be room. It stays where it is until
 * the next reserve. */
static curve_entry *table_take(curve_table *table, uint64_t key)
{
    curve_entry *entry = probe(table, key);
    if (entry->key == 0) {
        *entry = (curve_entry){.key = key, .position = CURVE_NOWHERE};
        table->num_used++;
    }
    return entry;
}

/* Of the next copy of the same block. */
static uint64_t next_key(uint64_t key)
{
    uint64_t next = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93) + 1;
    next ^= next >> 29;
    return next != 0 ? next : 1;
}

/* ---- ghosts ---------------------------------------------------------------- */

/* The first ghost above a position. */
static uint32_t first_above(const curve_ghosts *ghosts, uint32_t position)
{
    uint32_t low = 0;
    uint32_t high = ghosts->num_ghosts;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ghosts->list[middle].position > position)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool curve_ghosts_add(curve_ghosts *ghosts, curve_ghost ghost)
{
    if (!grow(&ghosts->list, ghosts->num_ghosts, &ghosts->room, UINT32_MAX, sizeof ghost))
        return false;
    uint32_t at = first_above(ghosts, ghost.position);
    memmove(ghosts->list + at + 1, ghosts->list + at,
            (ghosts->num_ghosts - at) * sizeof *ghosts->list);
    ghosts->list[at] = ghost;
    ghosts->num_ghosts++;
    return true;
}

/* From the smallest pool that could be: as long as ghosts that count in it make it too small, the
 * next candidate has room for them. */
uint32_t curve_ghosts_min_blocks(const curve_ghosts *ghosts, uint32_t position, uint32_t num_above)
{
    uint32_t first = first_above(ghosts, position);
    uint32_t count = 0;
    for (;;) {
        uint32_t candidate = num_above + count + 1;
        uint32_t before = count;
        count = 0;
        for (uint32_t i = first; i < ghosts->num_ghosts; i++)
            count += ghosts->list[i].min_blocks <= candidate;
        if (count == before)
            return candidate;
    }
}

void curve_lane_free(curve_lane *lane)
{
    stack_free(&lane->stack);
    free(lane->table.entries);
    free(lane->ghosts.list);
    free(lane->leaving.list);
    free(lane->belady.requests);
    free(lane->belady.runs);
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

/* A block is found in a pool that is larger by one than what is above it, ghosts included, and what
 * the last request held besides. */
static bool reserve_hits(curve_lane *lane)
{
    uint64_t wanted =
        (uint64_t)lane->stack.num_elements + lane->ghosts.num_ghosts + 2 + lane->num_others;
    uint64_t before = lane->hits_room;
    if (!reserve(&lane->hits, wanted, &lane->hits_room, sizeof *lane->hits))
        return false;
    for (uint64_t i = before; i < lane->hits_room; i++)
        lane->hits[i] = 0;
    return true;
}

/* ---- lookups --------------------------------------------------------------- */

static curve_entry *copy_of(curve_lane *lane, const curve_entry *entry)
{
    return table_take(&lane->table, next_key(entry->key));
}

static uint32_t min_blocks_of(const curve_lane *lane, const curve_entry *entry)
{
    uint32_t above = stack_above(&lane->stack, entry->position) + lane->num_others;
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
    /* Twice in the table: a block may get an entry for a copy of it. */
    if (!reserve(&lane->entries, blocks->num_full, &lane->entries_room, sizeof *lane->entries) ||
        !table_reserve(&lane->table, 2 * (uint64_t)blocks->num_full) ||
        !reserve_stack(lane, blocks->num_full) || !reserve_hits(lane))
        return false;
    if (lane->has_belady && !belady_add_request(&lane->belady, blocks->num_held))
        return false;
    for (uint32_t i = 0; i < blocks->num_full; i++)
        __builtin_prefetch(&lane->table.entries[home_of(&lane->table, blocks->keys[i])], 1);
    for (uint32_t i = 0; i < blocks->num_full; i++) {
        lane->entries[i] = table_take(&lane->table, blocks->keys[i]);
        lane->num_distinct += lane->entries[i]->position == CURVE_NOWHERE;
    }
    if (!look_up_all(lane, blocks))
        return false;
    lane->num_others = blocks->num_held - blocks->num_full;
    if (lane->num_others > lane->most_others) {
        lane->num_distinct += lane->num_others - lane->most_others;
        lane->most_others = lane->num_others;
    }
    for (uint32_t i = 0; i < blocks->num_lookups; i++)
        take_out(lane, lane->entries[i]);
    for (uint32_t i = 0; i < lane->leaving.num_ghosts; i++) /* they stay where the copies were */
        if (!curve_ghosts_add(&lane->ghosts, lane->leaving.list[i]))
            return false;
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
