/* obs/maps.h - block maps: the states of all blocks of a pool, for any thread.
 *
 *      pool    N A A A C C E E E A A C        cell_blocks = 4
 *      cells   | 3 active | 2 cached | 2 active, 1 cached |       the rest is empty
 *
 *      version of a map   | head, 3 words | cell | cell | ... |       obs/versions.h
 *      word of a cell     | pinned, 21 bits | active, 21 bits | cached, 21 bits |
 *
 * The scheduler's thread draws at most QR_MAP_PART blocks in a step, one map after the other, and
 * makes a map visible when all of its blocks are drawn. A drawing begins when period_ns have passed
 * since the last one began.
 *
 *      of each cell: blocks = null block + empty + cached + active, and pinned <= active
 */
#ifndef QR_OBS_MAPS_H
#define QR_OBS_MAPS_H

#include "base/arena.h"
#include "obs/versions.h"

#include <quire/monitor.h>
#include <quire/pool.h>

enum {
    QR_MAP_CELLS = QR_AT_A_TIME(QUIRE_MAP_CELLS, 8),
    QR_MAP_PART = QR_AT_A_TIME(8192, 3),   /* blocks that are drawn in a step, */
    QR_MAP_IDLE = QR_AT_A_TIME(65536, 20), /* and of each map when nothing is left to do */
    QR_MAP_HEAD = 3                        /* words */
};

typedef struct qr_pool_map {
    const quire_pool *pool;
    const uint32_t *pins; /* of each block: pins that keep it; NULL: none do */
    uint32_t tier;
    uint32_t num_blocks;
    uint32_t cell_blocks;
    uint32_t next;       /* block to be drawn; 0: a drawing begins */
    uint32_t cell;       /* that it belongs to, */
    uint32_t cell_end;   /* the block behind that cell, */
    uint64_t counts;     /* and what was counted in it */
    uint64_t sums;       /* of all cells before it */
    uint64_t drawn;      /* of the whole map that can be seen */
    uint64_t first_step; /* in which the drawing began */
    uint32_t place;      /* of the version that is being drawn */
    qr_versions versions;
    _Atomic uint64_t *words; /* QR_VERSIONS x (QR_MAP_HEAD + QR_MAP_CELLS) */
} qr_pool_map;

typedef struct qr_maps {
    uint64_t period_ns; /* 0: nothing is drawn */
    uint64_t due_ns;    /* when the next drawing begins */
    uint32_t count;
    uint32_t at;  /* the map that is being drawn; count: none is */
    bool is_idle; /* no request has run or waited since the last update that drew maps */
    qr_pool_map maps[QUIRE_MAX_MAPS];
} qr_maps;

void qr_maps_carve(qr_maps *maps, qr_arena *arena, uint32_t period_ms);
void qr_maps_init(qr_maps *maps);
/* The pool of a tier is drawn from now on, in place of the one that the tier had; false: there are
 * QUIRE_MAX_MAPS others. */
bool qr_maps_add(qr_maps *maps, uint32_t tier, const quire_pool *pool);

/* At the end of a schedule: the next part. is_idle: no request runs or waits. */
void qr_maps_end_schedule(qr_maps *maps, uint64_t step, uint64_t now_ns, bool is_idle);
/* At the end of an update. When it leaves no request to run or wait, no step may come for long: the
 * first such update draws each map of at most QR_MAP_IDLE blocks, and those behind it draw maps
 * whose pool has changed (copies and pins end). A larger map goes on with the next step. */
void qr_maps_end_update(qr_maps *maps, uint64_t step, bool is_idle);

/* Any thread. The place of the tier, and the map without its names; cells has room for
 * QR_MAP_CELLS. False: there is none yet. */
bool qr_maps_get(const qr_maps *maps, uint32_t i, uint32_t *tier, quire_block_map *map,
                 quire_map_cell *cells);

#endif
