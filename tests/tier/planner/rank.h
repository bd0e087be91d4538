/* tier/planner/rank.h - a rank of an engine in a process of its own: a quire_worker, a device, a
 * tier that fails, and blocks whose bytes tell which key and rank they are of.
 *
 *      engine ── step: faults, blocks to check, a plan, blocks to compute ──► rank
 *             ◄── answer: blocks that were wrong so far, a report ────────────
 *
 * A step's blocks are checked and computed on the device's compute stream, in the order of steps:
 * nobody waits for them. */
#ifndef PLANNER_RANK_H
#define PLANNER_RANK_H

#include <quire/planner.h>
#include <quire/worker.h>

#include <stdbool.h>
#include <sys/types.h>

enum { RANK_BLOCK_BYTES = 192, RANK_HASH_BYTES = 16 };

typedef struct rank_config {
    uint32_t rank;
    uint32_t num_ranks;
    uint32_t num_blocks;
    uint32_t num_slots;
    uint64_t seed;
    bool ignores_marks;    /* to show that the test sees it */
    bool has_same_bytes;   /* MLA: all ranks have the bytes of rank 0; rank 0 stores */
    const char *directory; /* of a tier that all ranks share; NULL: each has its own, in memory */
} rank_config;

/* A block, and what it has or shall have. */
typedef struct rank_block {
    uint32_t block;
    uint32_t group;
    unsigned char hash[RANK_HASH_BYTES];
} rank_block;

typedef struct rank_faults {
    uint32_t tier_per_mille;
    uint32_t device_per_mille;
    uint32_t copy_delay_us;
    uint32_t must_stop; /* 1: the process ends after this step */
} rank_faults;

typedef struct rank_answer {
    uint64_t num_wrong;
    uint64_t num_checked;
    quire_bytes report; /* valid until the next answer of this rank */
} rank_answer;

typedef struct rank rank;

/* Starts the process; NULL: it could not. */
rank *rank_start(const rank_config *config);
/* False: the process is gone. */
bool rank_send(rank *r, const rank_faults *faults, const rank_block *checked, uint32_t num_checked,
               quire_bytes plan, const rank_block *computed, uint32_t num_computed);
bool rank_receive(rank *r, rank_answer *answer);
/* As a fault does it: SIGKILL. */
void rank_kill(rank *r);
/* Waits for the end of the process and frees the rank. Returns its exit status, or -1. */
int rank_end(rank *r);

#endif
