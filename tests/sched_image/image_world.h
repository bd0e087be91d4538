/* sched_image/image_world.h - a small engine from one seed, on one scheduler or on two at once.
 *
 *      steps   0 . . . . . . k . . . . . . . . . n
 *      side 0  ──────────────●──────────────────►       the one that goes on
 *                            └─ image ─┐
 *      side 1                          ●────────►       the one that was restored
 *
 * Whatever the world does from step k on it does to both sides, and everything that can be seen of
 * a side goes into its digest: answers, steps, outputs, events, queues, tables, stats. Connector
 * and grammar answer by seed, request and time alone, so both sides hear the same.
 *
 * The seed also draws the config: policies, quirks, drafts, asynchronous steps, kinds of groups,
 * sessions, features, adapters, connectors, algorithms. In small worlds there are at most
 * WORLD_SMALL_SEQS requests in a step.
 */
#ifndef SCHED_IMAGE_IMAGE_WORLD_H
#define SCHED_IMAGE_IMAGE_WORLD_H

#include "base/unit.h"

#include <quire/image.h>

enum {
    WORLD_MAX_GROUPS = 3,
    WORLD_MAX_REQUESTS = 112,
    WORLD_MAX_SEQS = 56,
    WORLD_SMALL_REQUESTS = 14,
    WORLD_SMALL_SEQS = 8,
    WORLD_MAX_BATCHES = 3,
    WORLD_MAX_DRAFTS = 3,
    WORLD_MAX_PROMPT = 2600,
    WORLD_MAX_BLOCKS = 2400,
    WORLD_SMALL_BLOCKS = 96,
    WORLD_MAX_LOOKAHEAD = 48,
    WORLD_MAX_FEATURES = 3
};

typedef struct world_side {
    struct world *world;
    quire_hasher *hasher;
    quire_sched *sched;
    uint64_t digest;
} world_side;

/* A step that both sides have scheduled and not updated. */
typedef struct world_batch {
    uint64_t step;
    uint32_t num_reqs;
    quire_req reqs[WORLD_MAX_SEQS];
    uint32_t num_drafts[WORLD_MAX_SEQS];
    uint8_t is_past_prompt[WORLD_MAX_SEQS];
} world_batch;

typedef struct world {
    uint64_t seed;
    uint64_t random;
    uint64_t now; /* counts what was done */
    quire_hasher_config hasher_config;
    quire_sched_config config;
    quire_cache_config cache_config; /* of config */
    quire_group_config groups[WORLD_MAX_GROUPS];
    uint32_t max_prompt;
    bool is_wide;
    bool has_features;
    bool has_loads;
    uint32_t num_sides;
    world_side sides[2];
    world_batch batches[WORLD_MAX_BATCHES];
    uint32_t num_batches;
    uint32_t num_added;
    quire_req known[WORLD_MAX_REQUESTS * 4]; /* the last that were added, gone or not */
    uint32_t num_preempted;                  /* in all steps */
    uint32_t num_drafted;
    uint32_t num_finished;
} world;

void world_open(world *w, uint64_t seed);
/* A world that is larger than twice every look-ahead, batch, portion and page of the code: 40 to 56
 * requests in a step, and in some worlds prompts of 2,600 tokens in blocks of 4. With
 * may_look_ahead some worlds have a lookahead, which a restored scheduler begins anew: the sides of
 * such a world may differ. */
void world_open_wide(world *w, uint64_t seed, bool may_look_ahead);
void world_close(world *w);

/* The config for one side: the same for both, but for whom the callbacks belong to. */
quire_sched_config world_side_config(world *w, uint32_t side);
quire_hasher *world_make_hasher(const world *w);

/* One round: requests come and go, a step is scheduled, another one updated. False when the sides
 * differ. */
bool world_round(world *w);

/* The image of a side, in memory that the caller frees. */
unsigned char *world_save(const world *w, uint32_t side, size_t *bytes);
/* Makes side 1 from an image; what restore answered. */
int world_restore(world *w, const void *image, size_t bytes);

#endif
