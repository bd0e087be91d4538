/* quire/observe.h - callbacks that report the steps of a scheduler: numbers and reasons.
 *
 *      schedule ──► on_decision   why a request waits, is preempted or loses a block: as it happens
 *               └─► on_snapshot   the numbers of the step: at its end
 *
 * Both callbacks belong to quire_sched_config and run on the thread that calls the scheduler. Other
 * threads read quire/monitor.h.
 */
#ifndef QUIRE_OBSERVE_H
#define QUIRE_OBSERVE_H

#include "config.h"
#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tiers --------------------------------------------------------------- */

#define QUIRE_CONNECTOR_TIERS 6 /* the most tiers of one connector */
#define QUIRE_MAX_TIERS       (2 + QUIRE_CONNECTOR_TIERS)
#define QUIRE_UNKNOWN_BYTES   UINT64_MAX

/* One tier, in blocks:
 *
 *      blocks.total = blocks.empty + blocks.cached + blocks.active + blocks.null_blocks
 *      pinned <= blocks.active
 *
 * active counts blocks with ref_cnt > 0: a request, a copy or a pin uses the block now. active is
 * not the amount that the tier holds: a later request can find the cached blocks, and the active
 * blocks that have a key. The active blocks of different tiers may be copies of the same block: do
 * not add them up. */
typedef struct quire_tier_usage { /* final */
    const char *name;             /* "gpu", "swap", "host", or the label of a quire_tier */
    const char *medium;           /* as in events: "GPU", "CPU", "DISK", "REDIS", ... */
    /* If the size of the tier is unknown, total is the number of blocks in it. */
    quire_usage blocks;
    uint64_t pinned;        /* active blocks that a pin keeps (quire_sched_pin) */
    uint64_t stored_blocks; /* blocks copied to the tier since the start */
    uint64_t loaded_blocks; /* blocks copied from the tier since the start */
    /* Tokens of admitted requests, counted in the first tier that has them. */
    uint64_t hit_tokens;
    uint64_t stored_bytes; /* QUIRE_UNKNOWN_BYTES: the engine makes the copies */
    uint64_t loaded_bytes;
    uint64_t failed_blocks; /* stores and loads that failed */
    /* Bytes of cached and active blocks; of Redis: the bytes that the servers report. */
    uint64_t used_bytes;
    uint64_t capacity_bytes; /* QUIRE_UNKNOWN_BYTES: unknown, or no limit */
} quire_tier_usage;

/* ---- steps ---------------------------------------------------------------- */

/* The numbers of one step, reported at the end of schedule. */
typedef struct quire_snapshot { /* lent */
    uint64_t step;
    uint64_t time_ns; /* from the clock hook */
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;   /* waiting for a grammar, a load, an adapter or a connector */
    uint32_t num_scheduled; /* requests in the step */
    uint32_t num_new;
    uint32_t num_resumed;
    uint32_t num_preempted;
    uint32_t num_finished; /* since the last step */
    uint32_t num_tokens;   /* tokens scheduled in the step */
    /* Of them: prompt tokens, and tokens computed again after preemption. */
    uint32_t num_prefill_tokens;
    uint32_t num_draft_tokens;
    /* Tokens that requests admitted in this step found in the prefix cache. */
    uint32_t num_hit_tokens;
    /* Tokens that requests admitted in this step load from the connector. */
    uint32_t num_external_tokens;
    quire_usage blocks;              /* empty, cached, active */
    uint32_t num_swapped_out_blocks; /* in this step */
    uint32_t num_swapped_in_blocks;
    uint32_t num_swapped; /* waiting requests whose KV is in host slots */
    uint32_t num_free_swap_blocks;
    uint32_t num_query_tokens;  /* tokens that requests admitted in this step looked up */
    uint32_t num_pinned;        /* finished requests whose blocks a pin keeps */
    uint32_t num_pinned_blocks; /* different blocks that pins keep */
    /* The GPU, the swap buffer if there is one, then the tiers of the connector. Valid until
     * on_snapshot returns. */
    const quire_tier_usage *tiers;
    uint32_t num_tiers;
    /* Requests admitted in this step before requests in front of them in the queue: prefix_window.
     */
    uint32_t num_overtaking;
    /* Blocks that a new request must leave free: cache.watermark, or, with use_pressure, the blocks
     * above preempt_above if they are more. */
    uint32_t num_watermark_blocks;
} quire_snapshot;

/* What was decided. req, other, num, block and reason are fields of quire_decision. */
typedef enum quire_decision_kind {
    QUIRE_DECISION_HELD_UP = 1, /* req waits and was skipped: reason */
    QUIRE_DECISION_NO_ROOM = 2, /* req was not admitted, nor any request behind it: reason */
    /* req lost its blocks for other; other == req: no other request could be preempted; other 0:
     * reason PRESSURE or ASKED. */
    QUIRE_DECISION_PREEMPTED = 3,
    QUIRE_DECISION_EVICTED = 4, /* a cached block was evicted for req: block */
    /* num blocks after req's hit had been cached and were evicted. */
    QUIRE_DECISION_DROPPED = 5,
    QUIRE_DECISION_OUTGROWN = 6, /* req ended: it no longer fits in the whole pool */
    QUIRE_DECISION_SWAPPED = 7,  /* req will be preempted, and num of its blocks are kept */
    QUIRE_DECISION_OVERTOOK = 8, /* req was admitted before num others; the first is other */
    /* Pins (quire_sched_pin). req is the request that had the blocks, 0 for a pin of a restored
     * scheduler. num is the number of its blocks. */
    QUIRE_DECISION_PINNED = 9,       /* req has ended, and num of its blocks are kept */
    QUIRE_DECISION_UNPINNED = 10,    /* other has all of them as its hit; 0: reset or dropped */
    QUIRE_DECISION_PIN_EXPIRED = 11, /* its time has passed */
    QUIRE_DECISION_PIN_GAVE_WAY = 12 /* its blocks are needed, or max_pins pins are kept */
} quire_decision_kind;

typedef enum quire_reason {
    QUIRE_REASON_NONE = 0,
    QUIRE_REASON_GRAMMAR = 1,   /* its grammar is not compiled yet */
    QUIRE_REASON_LOADING = 2,   /* its KV is being loaded */
    QUIRE_REASON_STREAMING = 3, /* its next input has not arrived yet */
    QUIRE_REASON_LORA = 4,      /* its adapter would exceed max_loras */
    QUIRE_REASON_CONNECTOR = 5, /* the connector returned QUIRE_RETRY or cut the prompt */
    QUIRE_REASON_CHUNK = 6,     /* without chunked prefill its prompt exceeds the budget */
    QUIRE_REASON_ENCODER = 7,   /* its images exceed the encoder's budget or cache */
    QUIRE_REASON_ALIGN = 8,     /* the budget is smaller than a whole block of states */
    QUIRE_REASON_TEXT = 9,      /* no free page for its tokens */
    QUIRE_REASON_BLOCKS = 10,   /* not enough free blocks; num is the number of free blocks */
    /* The usage of the pool is above admit_below or preempt_above. */
    QUIRE_REASON_PRESSURE = 11,
    QUIRE_REASON_ASKED = 12,     /* the caller called quire_sched_preempt or _offload */
    QUIRE_REASON_OFFLOADED = 13, /* it waits for quire_sched_resume */
    QUIRE_REASON_STALE = 14 /* steps from before its preemption are still in flight (VLLM_0_32) */
} quire_reason;

typedef struct quire_decision { /* lent */
    quire_decision_kind kind;
    quire_reason reason;
    uint64_t step;
    quire_req req;
    quire_req other;
    uint32_t num;
    quire_block block;
} quire_decision;

#ifdef __cplusplus
}
#endif
#endif
