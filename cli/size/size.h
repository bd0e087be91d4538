/* cli/size/size.h - the fewest GPUs that keep an SLO: a search over workers for each combination
 * of options.
 *
 *      --gpu H100,H200 --tp 1,2      combination   gpu   tp   round 1   round 2   round 3
 *                                         0        H100   1   1: no     2: no     4: yes
 *                                         1        H100   2   1: no     2: yes    over
 *                                         2        H200   1   1: no     2: yes    over
 *                                         3        H200   2   1: yes    over
 *
 * A round has the next try of every combination whose search is not over; the tries of a round run
 * at the same time, each in a process of its own. What is tried depends on results of whole rounds
 * alone, so the answer does not depend on the number of processes.
 *
 * A combination that needs more GPUs than two others are known to need can be neither the answer
 * nor the runner-up: its search ends, unless prices are compared too.
 */
#ifndef QUIRE_CLI_SIZE_SIZE_H
#define QUIRE_CLI_SIZE_SIZE_H

#include "replay/slo.h"
#include "search.h"
#include "sweep/sweep.h"

typedef enum size_state {
    SIZE_OPEN,
    SIZE_MET,    /* the search found the fewest workers */
    SIZE_UNMET,  /* not even with --max-gpus */
    SIZE_MORE,   /* ended: two others need fewer GPUs */
    SIZE_FAILED, /* it does not run: `error` */
    SIZE_STOPPED /* by a signal */
} size_state;

/* A fleet that ran. */
typedef struct size_run {
    uint32_t workers;
    double values_ms[SLO_MAX_TARGETS]; /* by target */
    bool is_enough;                    /* all limits are kept, and no request is refused */
    double worst;                      /* the largest value / limit */
    uint64_t refused;                  /* requests, by the router */
    double gpu_hours;
    double hit_rate;
} size_run;

typedef struct size_combination {
    uint32_t tp;
    double price; /* of a GPU for an hour; 0: not known */
    size_state state;
    char *error;
    search search;
    size_run runs[SEARCH_MAX_TRIES]; /* as search.tries */
} size_combination;

/* What runs in the process of a try: 0, and a size_run as size_print_run prints it; else a sentence
 * on stderr. */
typedef int (*size_try)(uint32_t combination, uint32_t workers, uint32_t num_threads, FILE *out);

typedef struct size_settings {
    slo_targets slo;
    const char *const *traces; /* for the command that runs the answer */
    uint32_t num_traces;
    uint32_t num_jobs;
    uint32_t max_gpus;
    bool has_prices;
    size_try run;
    const char *(*stop)(void); /* NULL, or why it ends now */
    /* so many combinations are done; NULL: not */
    void (*progress)(void *user, uint32_t num_done, const sweep_progress *round);
    void *progress_user;
} size_settings;

typedef struct size {
    sweep *grid; /* its axes, whose points are the combinations */
    size_settings settings;
    size_combination *combinations;
    uint32_t num_combinations;
    uint32_t num_runs;
    const char *stopped;
    double wall_s;
} size;

/* The memory for so many combinations, which the caller fills in: tp, price. False: no memory. */
bool size_open(size *s, sweep *grid, const size_settings *settings);
/* 0, or -1: no processes or no memory. */
int size_search(size *s);
void size_close(size *s);

/* In the process of a try. */
int size_print_run(FILE *out, const slo_targets *targets, const size_run *run);

/* ---- answers --------------------------------------------------------------------- */

/* Combinations whose SLO is met, best first: fewest GPUs, lowest cost, farthest from the limits.
 * order has room for num_combinations; returns how many there are. */
uint32_t size_order(const size *s, uint32_t *order);
uint32_t size_gpus(const size_combination *c, uint32_t workers);
double size_cost(const size_combination *c, const size_run *run);
/* The run with so many workers; NULL: none. */
const size_run *size_find_run(const size_combination *c, uint32_t workers);
/* The run that came nearest to the SLO, of all combinations; NULL: none ran. */
const size_run *size_nearest(const size *s, uint32_t *combination);

/* ---- report.c --------------------------------------------------------------------- */

void size_report_print(FILE *out, const size *s, bool is_deterministic);
/* False: no memory, or it could not be written. */
bool size_report_json(FILE *out, const size *s, bool is_deterministic);

#endif
