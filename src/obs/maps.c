#include "obs/maps.h"

enum { CELL_BITS = 21, MAP_LETTERS = QR_AT_A_TIME(256, 2), MAP_MS_NS = 1000000 };
#define ONE_CACHED UINT64_C(1)
#define ONE_ACTIVE (ONE_CACHED << CELL_BITS)
#define ONE_PINNED (ONE_ACTIVE << CELL_BITS)
#define CELL_MASK  (ONE_ACTIVE - 1)

/* ---- making ---------------------------------------------------------------- */

enum { MAP_WORDS = QR_MAP_HEAD + QR_MAP_CELLS };

void qr_maps_carve(qr_maps *maps, qr_arena *arena, uint32_t period_ms)
{
    *maps = (qr_maps){.period_ns = (uint64_t)period_ms * MAP_MS_NS};
    for (uint32_t i = 0; period_ms > 0 && i < QUIRE_MAX_MAPS; i++)
        maps->maps[i].words =
            qr_arena_take(arena, (size_t)QR_VERSIONS * MAP_WORDS, sizeof *maps->maps[i].words);
}

void qr_maps_init(qr_maps *maps)
{
    for (uint32_t i = 0; i < QUIRE_MAX_MAPS; i++) {
        qr_pool_map *map = &maps->maps[i];
        qr_versions_init(&map->versions);
        for (uint32_t w = 0; map->words != NULL && w < QR_VERSIONS * MAP_WORDS; w++)
            atomic_init(&map->words[w], 0);
    }
}

bool qr_maps_add(qr_maps *maps, uint32_t tier, const quire_pool *pool)
{
    uint32_t i = 0;
    while (i < maps->count && maps->maps[i].tier != tier)
        i++;
    if (i == QUIRE_MAX_MAPS)
        return false;
    qr_pool_map *map = &maps->maps[i];
    map->pool = pool;
    map->pins = NULL;
    map->tier = tier;
    map->num_blocks = (uint32_t)quire_pool_get_usage(pool).total;
    map->cell_blocks = (uint32_t)(((uint64_t)map->num_blocks + QR_MAP_CELLS - 1) / QR_MAP_CELLS);
    map->next = 0;
    maps->count += i == maps->count;
    maps->at = maps->count;
    return true;
}

/* ---- drawing ---------------------------------------------------------------- */

static void begin_map(qr_pool_map *map, uint64_t step)
{
    map->first_step = step;
    map->place = (uint32_t)(qr_versions_begin(&map->versions) % QR_VERSIONS);
    map->cell = 0;
    map->cell_end = map->cell_blocks;
    map->counts = 0;
    map->sums = 0;
}

static void count_block(qr_pool_map *map, char state)
{
    if (state == 'C')
        map->counts += ONE_CACHED;
    if (state == 'A')
        map->counts +=
            ONE_ACTIVE + (map->pins != NULL && map->pins[map->next] > 0 ? ONE_PINNED : 0);
    map->next++;
    if (map->next != map->cell_end && map->next != map->num_blocks)
        return;
    _Atomic uint64_t *to = map->words + (size_t)map->place * MAP_WORDS + QR_MAP_HEAD + map->cell;
    atomic_store_explicit(to, map->counts, QR_FEED_STORE);
    map->sums += map->counts & (ONE_PINNED - 1);
    map->cell++;
    map->cell_end += map->cell_blocks;
    map->counts = 0;
}

/* The next part, of at most `most` blocks. True when that was the last one: then the map can be
 * seen. */
static bool draw_part(qr_pool_map *map, uint64_t step, bool is_after_update, uint32_t most)
{
    if (map->next == 0)
        begin_map(map, step);
    while (most > 0 && map->next < map->num_blocks) {
        char letters[MAP_LETTERS + 1];
        uint32_t n = map->num_blocks - map->next;
        n = n < most ? n : most;
        n = n < MAP_LETTERS ? n : MAP_LETTERS;
        (void)quire_pool_draw(map->pool, map->next, n, letters);
        for (uint32_t i = 0; i < n; i++)
            count_block(map, letters[i]);
        most -= n;
    }
    if (map->next < map->num_blocks)
        return false;
    const uint64_t head[QR_MAP_HEAD] = {map->first_step, step << 1 | is_after_update,
                                        (uint64_t)map->tier << 32 | map->num_blocks};
    qr_words_put(map->words + (size_t)map->place * MAP_WORDS, head, QR_MAP_HEAD);
    qr_versions_end(&map->versions);
    map->drawn = map->sums;
    map->next = 0;
    return true;
}

void qr_maps_end_schedule(qr_maps *maps, uint64_t step, uint64_t now_ns, bool is_idle)
{
    maps->is_idle &= is_idle;
    if (maps->at == maps->count) {
        bool is_early = now_ns < maps->due_ns && maps->due_ns - now_ns <= maps->period_ns;
        if (is_early)
            return;
        maps->due_ns = now_ns + maps->period_ns;
        maps->at = 0;
    }
    if (draw_part(&maps->maps[maps->at], step, false, QR_MAP_PART))
        maps->at++;
}

/* Whether other numbers of blocks are cached and active than in the map that can be seen. */
static bool has_changed(const qr_pool_map *map)
{
    quire_usage now = quire_pool_get_usage(map->pool);
    return map->drawn != now.active * ONE_ACTIVE + now.cached * ONE_CACHED;
}

void qr_maps_end_update(qr_maps *maps, uint64_t step, bool is_idle)
{
    bool has_drawn = maps->is_idle;
    maps->is_idle = is_idle;
    for (uint32_t i = 0; is_idle && i < maps->count; i++) {
        qr_pool_map *map = &maps->maps[i];
        if (map->num_blocks > QR_MAP_IDLE || (has_drawn && !has_changed(map)))
            continue;
        map->next = 0;
        (void)draw_part(map, step, true, QR_MAP_IDLE);
        maps->at += maps->at == i; /* that one is done */
    }
}

/* ---- reading ---------------------------------------------------------------- */

static void copy_map(const _Atomic uint64_t *from, uint32_t *tier, quire_block_map *map,
                     quire_map_cell *cells)
{
    uint64_t head[QR_MAP_HEAD];
    qr_words_take(from, head, QR_MAP_HEAD);
    uint32_t n = (uint32_t)head[2];
    uint32_t size = (uint32_t)(((uint64_t)n + QR_MAP_CELLS - 1) / QR_MAP_CELLS);
    *tier = (uint32_t)(head[2] >> 32);
    *map = (quire_block_map){.size = sizeof(quire_block_map),
                             .first_step = head[0],
                             .last_step = head[1] >> 1,
                             .is_after_update = head[1] & 1,
                             .num_blocks = n,
                             .cell_blocks = size,
                             .num_cells = size == 0 ? 0 : (n - 1) / size + 1};
    for (uint32_t i = 0; i < map->num_cells; i++) {
        uint64_t word = atomic_load_explicit(&from[QR_MAP_HEAD + i], QR_FEED_LOAD);
        uint32_t blocks = i + 1 < map->num_cells ? size : n - i * size;
        quire_map_cell *cell = &cells[i];
        cell->cached = (uint32_t)(word & CELL_MASK);
        cell->active = (uint32_t)(word >> CELL_BITS & CELL_MASK);
        cell->pinned = (uint32_t)(word >> 2 * CELL_BITS & CELL_MASK);
        cell->empty = blocks - (i == 0) - cell->cached - cell->active;
    }
}

bool qr_maps_get(const qr_maps *maps, uint32_t i, uint32_t *tier, quire_block_map *map,
                 quire_map_cell *cells)
{
    const qr_pool_map *from = &maps->maps[i];
    uint64_t seen;
    do {
        seen = qr_versions_seen(&from->versions);
        if (seen == 0)
            return false;
        copy_map(from->words + (seen - 1) % QR_VERSIONS * MAP_WORDS, tier, map, cells);
    } while (!qr_versions_is_whole(&from->versions, seen - 1, QR_VERSIONS));
    return true;
}
