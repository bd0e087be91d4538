/* cli/page/page.h - the page of a run: collects while the run goes on, writes one HTML file at
 * its end.
 *
 *      page_open ─► page_step, page_blocks, page_request ... ─► page_write ─► one file, no network
 *                          │
 *                          ▼       while there is room          when it is full
 *      rows      s s s s s s s s   one for each step           neighbours become one row that has
 *      marks     ! !   !           steps with preemptions      minimum, maximum and sum of both
 *      frames    # # # #           the pool, block by block    every second one goes
 *      requests  - -- ---          one for each request        every second one goes, those that
 *                                                              were preempted last
 *      bins      ..:||:..          latencies of all requests   never full
 *
 * So memory does not grow with the length of the run (some 100 MB at most), no extreme is lost, and
 * the same run gives the same bytes. What the file contains: docs/page-data.md.
 *
 * Times are seconds from the start of the run on. One thread at a time.
 */
#ifndef QUIRE_CLI_PAGE_H
#define QUIRE_CLI_PAGE_H

#include <quire/sched.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct page page;

enum { PAGE_MAX_TIERS = 6 };

/* Of one tier behind the GPU's memory: host, disk, ... */
typedef struct page_tier {
    const char *name;
    uint64_t total; /* blocks */
} page_tier;

/* Texts are copied; NULL: not shown. Zero: not known. */
typedef struct page_meta {
    const char *title; /* NULL: "Quire replay" */
    const char *trace;
    const char *model;
    const char *gpu;
    uint32_t block_size;      /* tokens */
    uint64_t bytes_per_block; /* of all layers: memory is shown in bytes too */
    json_t *options;     /* pairs of texts: names without the dashes, values; stays the caller's */
    const char *made_by; /* JSON, written to snapshots; the page has it in its report */
    const page_tier *tiers;
    uint32_t num_tiers; /* at most PAGE_MAX_TIERS */
    uint32_t max_rows;  /* of steps; 0 = 262,144; rounded up to an even number */
} page_meta;

/* NULL: no memory. */
page *page_open(const page_meta *meta);
void page_close(page *p);

/* A tier at a step, and what of it belongs to the time since the step before. */
typedef struct page_tier_step {
    quire_usage blocks;
    uint64_t in_blocks;  /* came to it, */
    uint64_t out_blocks; /* and went back */
    uint64_t hit_tokens; /* from it, of the requests admitted in this step */
} page_tier_step;

/* A step: the snapshot that the scheduler told, when it started, how long it took, and how many
 * prompt tokens the requests admitted in it looked up (its hits are in the snapshot). tiers: one
 * for each tier of the meta, or NULL. Times do not decrease. */
void page_step(page *p, const quire_snapshot *snapshot, double time_s, double duration_s,
               uint64_t query_tokens, const page_tier_step *tiers);
/* Nothing to do from time_s on, until the next step. Without it the page shows the last step's
 * values up to the next one. */
void page_idle(page *p, double time_s, const quire_usage *blocks, const page_tier_step *tiers);

/* Pools that are shown block by block. */
typedef enum page_pool { PAGE_GPU = 0, PAGE_HOST = 1, PAGE_NUM_POOLS = 2 } page_pool;

/* Whether page_blocks is to be called after page_step of this step; asks for every step, then for
 * every second, fourth ... as the run gets longer. */
bool page_wants_blocks(const page *p, page_pool pool, uint64_t step);
/* The pool as quire_pool_draw draws it: 'N', 'E', 'C', 'A', one for each block. owners: the id of
 * a request that uses the block, 0: nobody; NULL: not known. They are kept for pools of at most
 * PAGE_MAX_OWNERS blocks. */
enum { PAGE_MAX_OWNERS = 1024 };
void page_blocks(page *p, page_pool pool, uint64_t step, const char *states, uint32_t num_blocks,
                 const uint64_t *owners);

/* Negative: never. */
typedef struct page_interval {
    double from_s;
    double to_s;
} page_interval;

typedef enum page_end {
    PAGE_END_STOP = 0, /* has all its tokens */
    PAGE_END_LENGTH = 1,
    PAGE_END_ABORT = 2,
    PAGE_END_ERROR = 3,
    PAGE_END_OPEN = 4 /* had not ended when the run did */
} page_end;

typedef struct page_request {
    uint64_t id;      /* its line in the trace, or another number that users know it by; not 0 */
    uint64_t session; /* 0: none */
    uint32_t turn;
    double arrival_s;
    double scheduled_s; /* first time */
    double first_token_s;
    double end_s;
    const page_interval *preempted; /* from preemption to the step that admits it again */
    uint32_t num_preempted;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t hit_tokens; /* of the prompt, when it was first admitted */
    page_end end;
} page_request;

/* When the request ends. Its latencies go into the distributions. */
void page_request_end(page *p, const page_request *request);

/* report: what --json writes, one JSON object; NULL: none. False: there was not enough memory, here
 * or in a call before, and the page is not whole. The caller checks the file for errors. */
bool page_write(const page *p, FILE *file, const char *report);

#endif
