/* quire/observe.h - what a scheduler tells of its steps, in numbers and in reasons.
 *
 *      schedule ──► on_decision   why somebody waits, is preempted, loses a block: as it happens
 *               └─► on_snapshot   the step, in numbers: at its end
 *
 * Both are callbacks of quire_sched_config, on the scheduler's thread. Other threads look through
 * quire/monitor.h.
 */
#ifndef QUIRE_OBSERVE_H
#define QUIRE_OBSERVE_H

#include "config.h"
#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tiers --------------------------------------------------------------- */

#define QUIRE_CONNECTOR_TIERS 6 /* at most, of one connector */
#define QUIRE_MAX_TIERS       (2 + QUIRE_CONNECTOR_TIERS)
#define QUIRE_UNKNOWN_BYTES   UINT64_MAX

/* One tier, in blocks:
 *
 *      blocks.total = blocks.empty + blocks.cached + blocks.active + blocks.null_blocks
 *      pinned <= blocks.active
 *
 * active: ref_cnt > 0: a request, a copy or a pin uses the block now. This is not how much the
 * tier holds: what a later request can find is in cached blocks, and in active ones that have a
 * key. The active blocks of different tiers may be copies of the same block: their sum means
 * nothing. */
typedef struct quire_tier_usage {
    const char *name;       /* "gpu", "swap", "host", or the label of a quire_tier */
    const char *medium;     /* as in events: "GPU", "CPU", "DISK", "REDIS", ... */
    quire_usage blocks;     /* of a tier whose size is not known: total is what it holds */
    uint64_t pinned;        /* of the active blocks: those that a pin keeps (quire_sched_pin) */
    uint64_t stored_blocks; /* blocks that were copied to the tier, and */
    uint64_t loaded_blocks; /* from it, since the start */
    uint64_t hit_tokens;    /* of admitted requests: found in this tier first */
    uint64_t stored_bytes;  /* QUIRE_UNKNOWN_BYTES: who copies is not known here */
    uint64_t loaded_bytes;
    uint64_t failed_blocks; /* stores and loads that failed */
    uint64_t used_bytes;    /* of cached and active blocks; of Redis: of the servers, as they say */
    uint64_t capacity_bytes; /* QUIRE_UNKNOWN_BYTES: not known, or without a limit */
} quire_tier_usage;

/* ---- steps ---------------------------------------------------------------- */

/* One step, in numbers; told at the end of schedule. */
typedef struct quire_snapshot {
    uint64_t step;
    uint64_t time_ns; /* of the clock hook */
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;   /* held up: grammar, load, adapter, connector */
    uint32_t num_scheduled; /* requests in the step, of which */
    uint32_t num_new;
    uint32_t num_resumed;
    uint32_t num_preempted;
    uint32_t num_finished;       /* since the step before */
    uint32_t num_tokens;         /* scheduled, of which */
    uint32_t num_prefill_tokens; /* are of prompts, or computed again after preemption */
    uint32_t num_draft_tokens;
    uint32_t num_hit_tokens;         /* of requests admitted in this step: from the prefix cache */
    uint32_t num_external_tokens;    /* and from the connector */
    quire_usage blocks;              /* empty, cached, active */
    uint32_t num_swapped_out_blocks; /* in this step */
    uint32_t num_swapped_in_blocks;
    uint32_t num_swapped; /* requests that wait and whose KV is in host slots */
    uint32_t num_free_swap_blocks;
    uint32_t num_query_tokens;  /* of requests admitted in this step: looked up */
    uint32_t num_pinned;        /* requests that have ended and whose blocks are kept, */
    uint32_t num_pinned_blocks; /* so many different ones */
    /* The GPU, the swap buffer where there is one, then those of the connector. Valid until
     * on_snapshot returns. */
    const quire_tier_usage *tiers;
    uint32_t num_tiers;
    uint32_t num_overtaking; /* admitted in this step before others of the queue: prefix_window */
    uint32_t num_watermark_blocks; /* that a new request must leave free: cache.watermark, or with
                                      use_pressure what is above preempt_above, if that is more */
} quire_snapshot;

/* Why something was decided. */
typedef enum quire_decision_kind {
    QUIRE_DECISION_HELD_UP = 1,   /* a waiting request was passed over: reason */
    QUIRE_DECISION_NO_ROOM = 2,   /* it could not be admitted, and nobody behind it: reason */
    QUIRE_DECISION_PREEMPTED = 3, /* req gave its blocks back for other (itself: nobody else was);
                                     other 0: reason PRESSURE or ASKED */
    QUIRE_DECISION_EVICTED = 4,   /* a cached block was taken for req: block */
    QUIRE_DECISION_DROPPED = 5,   /* num blocks behind req's hit were cached once, and evicted */
    QUIRE_DECISION_OUTGROWN = 6,  /* req ended since it no longer fits the whole pool */
    QUIRE_DECISION_SWAPPED = 7,   /* req is about to be preempted, and num blocks of it are kept */
    QUIRE_DECISION_OVERTOOK = 8,  /* req was admitted before num others, the first of them other */
    /* Pins (quire_sched_pin). req: the request that had the blocks; 0 for a pin of a restored
     * scheduler. num: its blocks. */
    QUIRE_DECISION_PINNED = 9,       /* req has ended, and num blocks of it are kept */
    QUIRE_DECISION_UNPINNED = 10,    /* other has them all as its hit; 0: the cache is reset */
    QUIRE_DECISION_PIN_EXPIRED = 11, /* its time is over */
    QUIRE_DECISION_PIN_GAVE_WAY = 12 /* its blocks are needed, or max_pins others are kept */
} quire_decision_kind;

typedef enum quire_reason {
    QUIRE_REASON_NONE = 0,
    QUIRE_REASON_GRAMMAR = 1,   /* its grammar is not compiled yet */
    QUIRE_REASON_LOADING = 2,   /* its KV is being loaded */
    QUIRE_REASON_STREAMING = 3, /* its next input is not there yet */
    QUIRE_REASON_LORA = 4,      /* its adapter would be one too many */
    QUIRE_REASON_CONNECTOR = 5, /* the connector does not know yet */
    QUIRE_REASON_CHUNK = 6,     /* without chunked prefill it does not fit the budget */
    QUIRE_REASON_ENCODER = 7,   /* its images do not fit the encoder's budget or cache */
    QUIRE_REASON_ALIGN = 8,     /* too little budget for a whole block of states */
    QUIRE_REASON_TEXT = 9,      /* no page for its tokens */
    QUIRE_REASON_BLOCKS = 10,   /* not enough free blocks: num is how many are free */
    QUIRE_REASON_PRESSURE = 11, /* the pool is used above admit_below, or above preempt_above */
    QUIRE_REASON_ASKED = 12,    /* the caller called quire_sched_preempt or _offload */
    QUIRE_REASON_OFFLOADED = 13 /* it waits for quire_sched_resume */
} quire_reason;

typedef struct quire_decision {
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
