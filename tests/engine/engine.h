/* engine/engine.h - an engine around Quire: scheduler, tables, backend, tiers.
 *
 *      requests ─► quire_sched ─► step ─► tables, slots ─► backend: forward ─► logits ─► update
 *                    │  quire_offload ─► backend's device ─► host memory ─► peer, file, Redis
 *                    └ with a worker: quire_offload ─ plan ─► quire_worker ─► device, tiers
 *      forks ─► quire_sched_fork: samples, beams, branches
 *
 *      sync      schedule n ─ submit n ─ wait n ─ update n
 *      async     schedule n ─ wait n - 1 ─ submit n ─ update n - 1
 *
 * Of each logits vector that the reference has, too, all bits are compared as soon as it is there.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/counts.h"
#include "engine/request.h"
#include "engine/tiers.h"
#include "engine/worker.h"

#include <quire/offload.h>

enum {
    ENGINE_MAX_SPEC = 3,
    ENGINE_MAX_REQUESTS = 48,
    ENGINE_MAX_COPIES = 64,
    ENGINE_MAX_ROW = 192
};

/* What a test breaks on purpose, to see that it is found. */
typedef enum engine_break {
    ENGINE_WHOLE = 0,
    ENGINE_BREAK_MARKS,    /* copies do not wait for compute */
    ENGINE_BREAK_SLOT,     /* now and then a token's KV goes one slot too far */
    ENGINE_BREAK_TABLE,    /* now and then a row's entry names another block */
    ENGINE_BREAK_COPY,     /* copies on write are not made */
    ENGINE_BREAK_SWAP,     /* blocks are not swapped in */
    ENGINE_BREAK_ZERO,     /* a block in use is zeroed */
    ENGINE_BREAK_POSITION, /* a request is computed one position off */
    ENGINE_BREAK_PEER      /* the peer offers the blocks of another model */
} engine_break;

/* One engine's configuration, drawn from a seed. */
typedef struct engine_setup {
    uint64_t seed;
    engine_model_config model;
    uint32_t block_sizes[ENGINE_MAX_GROUPS];
    uint32_t max_model_len;
    engine_layout layout;
    uint32_t num_blocks;
    uint32_t max_num_seqs;
    uint32_t max_num_batched_tokens;
    uint32_t long_prefill_token_threshold;
    uint32_t num_spec_tokens;
    uint32_t num_lookahead_tokens;
    uint32_t num_swap_blocks;
    uint32_t num_cpu_blocks; /* 0: no offload */
    bool is_lazy;
    bool has_file;
    bool has_redis;
    bool is_chunked;
    bool is_caching;
    bool is_async;
    bool is_priority;
    bool is_reserving;
    bool is_zeroing;
    bool is_failing;
    bool is_slow; /* copies take longer than steps */
    bool is_pinning;
    bool is_resetting;
    bool is_aborting;
    bool is_restarting; /* once, with the same file; */
    bool is_crashing;   /* with work in flight */
    bool is_saving;     /* and restoring the scheduler */
    bool is_forgetting;
    bool has_forks;
    bool has_beams; /* of them */
    bool has_samples;
    bool has_branches;
    uint32_t lookahead;
    bool has_peer;   /* another engine's host memory is a tier */
    bool is_serving; /* this is that other engine */
    bool has_worker; /* which has device and tiers */
    bool is_moving;  /* requests are preempted, offloaded and resumed from outside */
    bool use_pressure;
    double admit_below;
    double preempt_above;
    uint32_t prefix_window;
    uint32_t prefix_patience;
    quire_victim victim;
    bool has_victim_hook;
    engine_break broken;
    uint64_t quirks; /* of vLLM 0.20.0, on top of none */
} engine_setup;

enum { ENGINE_NUM_TURNS = 16 };

/* seed % ENGINE_NUM_TURNS: whose turn it is, of what is rare. */
void engine_setup_draw(engine_setup *setup, const engine_switches *switches, uint64_t seed);
void engine_setup_print(const engine_setup *setup);

/* A request's part of a step in flight. */
typedef struct engine_part {
    engine_request *request;
    quire_req req;
    uint32_t row;
    uint32_t first_position;
    uint32_t num_tokens;
    const quire_token *history; /* by position: those that are known */
    uint32_t num_history;
    uint32_t num_drafts; /* that follow them */
    quire_token drafts[ENGINE_MAX_SPEC];
    uint32_t num_logits;  /* of its last tokens; they are */
    uint32_t first_logit; /* number [first_logit, ...) of the work */
    bool is_sampling;
    quire_token sampled[1 + ENGINE_MAX_SPEC];
    uint32_t num_sampled;
} engine_part;

typedef struct engine_flight {
    bool is_there;
    uint64_t step;
    uint64_t ticket;
    uint32_t num_reqs;
    engine_part parts[ENGINE_MAX_REQUESTS];
} engine_flight;

/* The work that is being put together: arrays of engine_work. */
typedef struct engine_batch {
    quire_token *tokens;
    int64_t *positions;
    int32_t *query_starts; /* by row */
    uint32_t *logit_tokens;
    engine_span *spans;
    engine_table_diff *diffs;
    quire_block *diff_blocks; /* that diffs point at */
    quire_block *zeroed;
    int64_t *slots; /* a mapping that was broken */
    quire_block_copy copies[ENGINE_MAX_COPIES];
    uint32_t num_diffs;
    uint32_t num_diff_blocks;
    uint32_t num_zeroed;
} engine_batch;

typedef struct engine_forks engine_forks;

typedef struct engine {
    const engine_setup *setup;
    const engine_model *model;
    const engine_backend_ops *ops;
    void *backend;
    engine_tiers *tiers;
    engine_counts *counts;
    uint64_t random;
    quire_hasher *hasher;
    quire_sched_config config;
    quire_cache_config cache_config; /* of config */
    quire_group_config groups[ENGINE_MAX_GROUPS];
    quire_sched *sched;
    quire_offload *offload;
    engine_worker worker;
    quire_host_memory *host;
    quire_table *tables[ENGINE_MAX_GROUPS];
    uint32_t max_rows;
    uint32_t max_row_blocks;
    engine_batch batch;
    engine_flight flights[2];
    uint32_t which; /* flights[which] is the next */
    engine_forks *forks;
    uint64_t block_bytes;
    bool is_verbose;
    bool was_restarted;
    bool is_disabled; /* the backend is not for this machine */
    char message[256];
} engine;

/* 0, or 1 with a message. model, tiers and counts stay the caller's. */
int engine_open(engine *e, const engine_setup *setup, const engine_model *model,
                const engine_backend_ops *ops, engine_tiers *tiers, engine_counts *counts);
/* is_crash: with whatever is in flight. */
void engine_close(engine *e, bool is_crash);

/* 0; 1: there is no place for it now. */
int engine_add(engine *e, engine_request *request);
/* 0, or 1 with a message: a call that must not fail did. */
int engine_step(engine *e);
bool engine_is_idle(const engine *e);

/* ---- between step.c, batch.c, moves.c and forks.c ----------------------------- */

/* One of those that are there, at random; 0: none. */
quire_req engine_any_request(engine *e);
/* Preempts, offloads and resumes some, at random. */
int engine_move_requests(engine *e);

void engine_batch_begin(engine *e);
/* The row's blocks of a group become these: all of them, or those from the end on. */
int engine_batch_set_row(engine *e, uint32_t row, uint32_t group, quire_block_span blocks);
int engine_batch_extend_row(engine *e, uint32_t row, uint32_t group, quire_block_span blocks);
/* One of them becomes another. */
int engine_batch_change_row(engine *e, uint32_t row, uint32_t group, uint32_t index,
                            quire_block block);
/* Orders the parts by row, maps their slots, and submits. */
int engine_batch_submit(engine *e, engine_flight *flight, const quire_step *step);
int engine_batch_create(engine *e);
void engine_batch_destroy(engine *e);
/* expected NULL: the reference has none. */
void engine_compare(engine *e, const float *expected, const float *got, const char *what,
                    uint32_t id, uint32_t position);
int engine_fail(engine *e, const char *what, int status);

#endif
