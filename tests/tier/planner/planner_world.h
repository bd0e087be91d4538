/* tier/planner/planner_world.h - a planner with the workers of two ranks in one process, for tests:
 * a function call carries plans and reports. The block of a key has other bytes in each rank. */
#ifndef TEST_TIER_PLANNER_WORLD_H
#define TEST_TIER_PLANNER_WORLD_H

#include "base/bits.h"
#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire/planner.h>
#include <quire/worker.h>

enum { RANKS = 2, TOKENS = 16, BYTES = 32, HASH = 32 };
/* The hostile build walks over the world in every call, and has batches of four copies. */
enum {
    BLOCKS = QR_AT_A_TIME(6000, 900),
    SLOTS = QR_AT_A_TIME(9000, 1300),
    LONG = QR_AT_A_TIME(4096, 600),
    WIDE = QR_AT_A_TIME(600, 200) /* more than two batches, fewer than a plan has */
};

typedef struct world_rank {
    unsigned char blocks[BLOCKS][BYTES];
    unsigned char slots[SLOTS][BYTES];
    quire_device device;
    faulty *flawed;
    quire_tier *tier;
    quire_worker *worker;
    bool is_deaf; /* its reports are lost in this step */
} world_rank;

extern quire_planner *planner;
extern quire_planner_config config; /* of the next planner; open_world makes it */
extern quire_planner_tier disk;     /* the only one of config */
extern world_rank ranks[RANKS];
extern unsigned char hashes[LONG][HASH];
extern quire_block blocks[LONG]; /* of the engine; others are other blocks */
extern quire_block others[LONG];
extern quire_planner_out out; /* of the last step */
extern quire_planner_results results;
extern uint64_t step;
extern uint64_t clock_ns;
extern uint64_t num_events;
extern uint64_t num_tier_events[2]; /* stored, removed */

int open_world(void **state);
int close_world(void **state);
void open_rank(uint32_t i);
void close_rank(uint32_t i);

/* The engine's block has what it computes for hash n; whether it has it. */
void fill(quire_block block, uint32_t n);
bool has(quire_block block, uint32_t n);

quire_req add(void);
/* A request of the first n hashes. */
quire_planner_request request_of(quire_req req, uint32_t n);
int match(quire_req req, uint32_t n, uint32_t *num_blocks);
/* Both return what the reports returned. */
int report_all(void);
int make_step(uint32_t num_tokens);
/* Steps until nothing is pending; how many blocks were held and released, requests loaded. */
typedef struct world_sums {
    uint32_t num_held;
    uint32_t num_released;
    uint32_t num_loaded;
} world_sums;
world_sums settle(void);
/* A request computes the first n blocks, and they are stored. */
void store(quire_req req, uint32_t n);
quire_offload_stats stats(void);

#endif
