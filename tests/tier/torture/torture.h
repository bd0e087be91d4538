/* tier/torture/torture.h - a whole engine with all tiers, in which everything goes wrong.
 *
 *      requests ──► scheduler ── offload ── host device (a thread computes, another copies)
 *                                   │
 *                                tiers: a file, a directory, a Redis cluster, one that fails on
 *                                demand
 *
 * The KV of a token follows from the tokens up to it. When a step is computed, all KV that its
 * requests look at is compared with what their tokens say, and the new tokens' is written: on the
 * device's thread, in the order of its stream. A wrong word anywhere is found when it is used.
 *
 * era      a life of the engine: opened, tortured, drained, closed. Modes change from era to era.
 * move     a block that went from one memory to another. A request that is moved loses its blocks
 *          because the caller wants it: its KV goes to host memory, and from there to the tiers.
 *
 *      torture.c         options, eras, what is counted
 *      torture_engine.c  requests, steps, what is computed
 *      torture_tiers.c   tiers, and what goes wrong in them
 *      torture_events.c  what KV events say of them, beside what is there
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/redis/redis_kit.h"

#include <quire/device.h>
#include <quire/monitor.h>
#include <quire/offload.h>
#include <quire/tier_file.h>

#include <stdatomic.h>

enum {
    TORTURE_TOKENS = 16, /* of a block */
    TORTURE_WORDS = 32,  /* of a token's KV */
    TORTURE_BYTES = TORTURE_TOKENS * TORTURE_WORDS * 8,
    TORTURE_WINDOW = 100,
    TORTURE_LEN = 512,
    TORTURE_ROW = TORTURE_LEN / TORTURE_TOKENS,
    TORTURE_REQUESTS = 48,
    TORTURE_SEQS = 8,
    TORTURE_GROUPS = 2,
    TORTURE_WORKS = 4,
    TORTURE_GPU = 180,
    TORTURE_CPU = 300,
    TORTURE_NODES = 3,
    TORTURE_TIERS = 4
};

typedef struct torture_options {
    uint64_t moves;
    uint64_t seed;
    bool has_file;
    bool has_directory;
    bool has_redis;
    bool has_faulty;
    bool is_calm; /* nothing goes wrong */
    bool is_talking;
} torture_options;

typedef struct torture_request {
    quire_req req; /* 0: none */
    uint32_t num_prompt;
    uint32_t length; /* prompt and output */
    quire_token tokens[TORTURE_LEN + 1];
    uint64_t states[TORTURE_LEN + 2]; /* [p]: of the tokens before p */
    uint64_t since_ns;
    uint32_t num_saved; /* tokens that were saved when it was moved */
} torture_request;

/* A request's part in a step. */
typedef struct torture_part {
    uint32_t num_computed;
    uint32_t num_total;
    uint32_t counts[TORTURE_GROUPS];
    quire_block rows[TORTURE_GROUPS][TORTURE_ROW + 1];
    uint64_t states[TORTURE_LEN + 2];
} torture_part;

struct torture;
typedef struct torture_view torture_view;

/* A step, as the device computes it. */
typedef struct torture_work {
    struct torture *t;
    uint64_t step;
    uint32_t num_parts;
    torture_part parts[TORTURE_SEQS];
    uint32_t num_zeroed; /* blocks that the step wants zeroed first */
    quire_block zeroed[2 * TORTURE_GPU];
    quire_req reqs[TORTURE_SEQS];
    quire_token sampled[TORTURE_SEQS];
    _Atomic bool is_computed;
} torture_work;

typedef struct torture {
    torture_options options;
    uint64_t random;

    /* of an era */
    quire_offload_mode mode;
    bool is_hybrid;
    bool is_async;
    bool is_zeroing; /* new blocks */
    bool is_pinning; /* blocks of requests that ended, and those of requests that wait */
    uint32_t num_groups;
    quire_group_config groups[TORTURE_GROUPS];
    quire_cache_config cache_config;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_offload *offload;
    quire_device device;
    quire_tier *tiers[TORTURE_TIERS];
    const char *labels[TORTURE_TIERS];
    bool is_faulty[TORTURE_TIERS];
    uint32_t num_tiers;
    faulty *part;
    torture_request requests[TORTURE_REQUESTS];
    uint64_t next_id;
    torture_work works[TORTURE_WORKS];
    uint32_t first_work; /* in flight */
    uint32_t num_works;
    quire_monitor_config monitor;
    quire_reader *reader;
    torture_view *view;
    bool is_view_whole; /* it was there from the beginning, or a walk has ended */

    /* for ever */
    unsigned char *gpu;
    quire_host_memory *host;
    unsigned char *cpu;
    char folder[64];
    redis_server servers[TORTURE_NODES];
    int stopped; /* a node that does not answer, or is gone; -1: none */
    uint64_t next_trouble;

    /* what was seen */
    _Atomic uint64_t wrong_tokens;
    _Atomic uint64_t checked_blocks;
    uint64_t moves; /* of eras that ended */
    uint64_t steps;
    uint64_t added;
    uint64_t ended;
    uint64_t aborted;
    uint64_t moved; /* requests, by the caller */
    uint64_t saved_tokens;
    uint64_t found_tokens; /* of them, when the requests came back */
    uint64_t preempted;
    uint64_t resets;
    uint64_t identities;
    bool wants_identity;
    uint32_t identity_tries;
    uint64_t troubles;
    uint64_t compared;      /* views, with all that is there */
    uint64_t loaded_blocks; /* of views */
} torture;

uint64_t torture_draw(torture *t, uint64_t below);
bool torture_chance(torture *t, uint32_t one_in);
uint64_t torture_now_ns(void);
void torture_sleep_us(long us);

/* ---- torture_engine.c ---------------------------------------------------------- */

void torture_open_engine(torture *t);
/* One step: requests come and go, the scheduler decides, the device computes. */
void torture_step(torture *t, bool is_ending);
bool torture_is_quiet(const torture *t);
void torture_close_engine(torture *t);

/* ---- torture_tiers.c ----------------------------------------------------------- */

void torture_begin_tiers(torture *t); /* once: folder, servers */
void torture_end_tiers(torture *t);
void torture_open_tiers(torture *t, uint32_t era);
void torture_close_tiers(torture *t);
/* Something goes wrong in some tier, or is well again. */
void torture_trouble(torture *t);
void torture_calm(torture *t);

/* ---- torture_events.c ---------------------------------------------------------- */

void torture_open_events(torture *t);
void torture_close_events(torture *t);
void torture_follow(torture *t); /* after each step */
void torture_compare_events(torture *t);
/* When nothing is in flight any more. */
void torture_end_events(torture *t);

#endif
