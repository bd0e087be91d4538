/* cli/fleet/history.h - what a fleet did over time, for its page.
 *
 *              bin 0   bin 1   bin 2  ...        all bins have the same width; if the run is longer
 *      row 0     .       .       .               than the bins, two neighbours become one bin
 *      row 1     .       .       .               row: one worker; beyond HISTORY_ROWS workers,
 *      ...                                       some neighbours
 *      fleet     .       .       .
 *
 * A cell has sums: seconds of requests, tokens. So merging bins or workers loses no request and no
 * token, and the sums over all bins are the totals of the run.
 *
 * All calls come from one thread, in the order of time for each worker. Where memory is short a
 * call does nothing more, and history_is_whole is false.
 */
#ifndef QUIRE_CLI_FLEET_HISTORY_H
#define QUIRE_CLI_FLEET_HISTORY_H

#include "copies.h"
#include "decisions.h"
#include "prefixes.h"
#include "replay/slo.h"
#include "trace/ideal.h"

enum {
    HISTORY_ROWS = 1024,
    HISTORY_CELLS = 131072, /* of all rows */
    HISTORY_BINS = 512,     /* at most; an even number */
    HISTORY_LEAST_BINS = 128,
    HISTORY_OCTAVE = 8, /* bins of latencies from t to 2 t */
    HISTORY_LATENCY_BINS = 384,
    HISTORY_CLASSES = 16
};

/* Of one row in one bin. */
typedef struct history_cell {
    double waiting_s; /* seconds of requests that wait at the worker, */
    double running_s; /* and that were admitted and have not ended */
    uint64_t prompt_tokens;
    uint64_t hit_tokens;
} history_cell;

/* Of the fleet in one bin. Tokens count when the prompt is computed. */
typedef struct history_bin {
    uint64_t arrived;
    uint64_t ended;
    uint64_t good; /* of them, that kept the SLO */
    uint64_t prompt_tokens;
    uint64_t output_tokens; /* of requests that ended */
    uint64_t hit_tokens;
    uint64_t believed_tokens;
    uint64_t ideal_tokens;
    ideal_losses losses;
    int64_t new_copies; /* blocks that caches have at the end of the bin, less those before it */
    int64_t new_blocks; /* the same; a block that several caches have counts once */
} history_bin;

typedef struct history_latency {
    uint64_t count;
    uint64_t bins[HISTORY_LATENCY_BINS]; /* bin i: 2^(i / 8) up to 2^((i + 1) / 8) microseconds */
} history_latency;

typedef enum history_time { HISTORY_TTFT, HISTORY_TPOT, HISTORY_E2E, HISTORY_QUEUE } history_time;
enum { HISTORY_NUM_TIMES = 4 };

/* Requests of one class, and those that kept the SLO. */
typedef struct history_class {
    const char *group; /* "prompt", "turn", "priority" */
    int64_t from;      /* tokens of the prompt, number of the turn, priority: from, */
    int64_t to;        /* up to and with; INT64_MAX: no limit */
    uint64_t ended;
    uint64_t good;
} history_class;

typedef struct history {
    uint32_t num_workers;
    uint32_t workers_per_row;
    uint32_t num_rows;
    uint32_t num_bins; /* room for them */
    double width_s;
    double end_s;
    slo limits;
    history_cell *cells; /* by row, then by bin */
    history_bin *bins;
    struct history_now *now; /* of workers */
    history_latency times[HISTORY_NUM_TIMES];
    history_class classes[HISTORY_CLASSES];
    uint32_t num_classes;
    copies copies;
    prefixes prefixes;
    decisions decisions;
    bool has_failed;
} history;

/* NULL: no memory. */
history *history_open(uint32_t num_workers, const slo *limits);
void history_close(history *h);

/* A request has come to the fleet. blocks: names of the blocks of its prompt. */
void history_arrived(history *h, double time_s, uint64_t number, const uint64_t *blocks,
                     uint32_t num_blocks);
/* A router has decided where it goes. */
void history_decided(history *h, const routers *r, const router_request *request,
                     const router_answer *answer);
/* It was sent to a worker, and waits there; */
void history_routed(history *h, uint32_t worker, double time_s);
/* it will never be served; */
void history_left_out(history *h, uint32_t worker, double time_s);
/* its worker has admitted it; */
void history_admitted(history *h, uint32_t worker, double time_s);

/* it has left the worker: that has computed the prompt for another one, or has crashed; */
void history_left(history *h, uint32_t worker, double time_s);

/* its prompt is computed; */
typedef struct history_prompt {
    uint64_t number;
    uint32_t prompt_tokens;
    uint32_t hit_tokens;
    uint32_t believed_tokens;
    const ideal_share *ideal;
} history_prompt;

void history_first_token(history *h, uint32_t worker, double time_s, const history_prompt *prompt);

/* it has ended. */
typedef struct history_end {
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t turn;
    int32_t priority;
    double ttft_ms;
    double tpot_ms; /* negative: the request has one token */
    double e2e_ms;
    double queue_ms;
} history_end;

void history_ended(history *h, uint32_t worker, double time_s, const history_end *end);

/* Blocks that a worker's cache has from now on, or no longer; cleared: it has none. */
void history_stored(history *h, uint32_t worker, double time_s, const uint64_t *names, uint32_t n);
void history_removed(history *h, uint32_t worker, double time_s, const uint64_t *names, uint32_t n);
void history_cleared(history *h, uint32_t worker, double time_s);

/* The run is over, at that time: requests that have not ended count up to it. */
void history_finish(history *h, double end_s);
/* Bins from the first one up to the end of the run; at least one. */
uint32_t history_used_bins(const history *h);
bool history_is_whole(const history *h);

#endif
