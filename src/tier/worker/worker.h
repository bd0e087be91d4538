/* tier/worker/worker.h - what a worker knows, and which thread has it.
 *
 *      caller's thread                                 worker's thread
 *      submit: plan checked, then                      turn.c:
 *        copies ──► device (copies.c)
 *        tier jobs, commands ──► inbox ────────────►   queues of each tier: loads, stores ──► tier
 *      poll: device, report ◄──────────── outbox ◄──   ended jobs
 *                        free commands ◄── freed ◄──
 *
 * A place is free, or has the job of a plan from submit to its report. The job of a place is the
 * thread's while it is between inbox and outbox, and the caller's otherwise.
 *
 *      num_in_flight == places whose id is not 0
 */
#ifndef QR_TIER_WORKER_WORKER_H
#define QR_TIER_WORKER_WORKER_H

#include "base/count.h"
#include "base/fork_guard.h"
#include "base/list.h"
#include "base/memory.h"
#include "tier/core/spsc.h"
#include "tier/transfer/plan.h"
#include "tier/transfer/report.h"

#include <quire/worker.h>

#include <pthread.h>

#define QR_WORKER_MAGIC UINT32_C(0x514b5257) /* "WRKQ" */

enum { QR_WORKER_COMMANDS = 64, QR_WORKER_GONE = QR_AT_A_TIME(4096, 2) };

/* Copies of a plan; the caller's. */
typedef struct qr_worker_copies {
    quire_device_job job; /* first: the device gives this back */
    uint64_t id;          /* 0: the place is free */
    uint64_t start_ns;
    uint32_t next; /* of those that wait for the device */
    quire_device_copy copies[QR_PLAN_MOST_COPIES];
} qr_worker_copies;

/* Loads or stores of a plan. */
typedef struct qr_worker_job {
    quire_tier_job job; /* first: the tier gives this back */
    uint64_t id;
    uint64_t start_ns;
    uint64_t due_ns;
    uint32_t num_keys;
    uint32_t num_begun; /* keys that the tier has, or had */
    qr_link link;       /* in a queue of its tier */
    uint8_t kind;
    uint8_t tier;
    bool is_prefix;
    bool is_queued;
    bool is_out; /* the tier has it */
    bool is_cancelled;
    quire_tier_io ios[QR_PLAN_MOST_KEYS];
    uint8_t which[QR_PLAN_MOST_KEYS]; /* the key of an io */
    quire_tier_key keys[QR_PLAN_MOST_KEYS];
    uint32_t slots[QR_PLAN_MOST_KEYS];
    uint8_t statuses[QR_PLAN_MOST_KEYS];
} qr_worker_job;

typedef struct qr_worker_command {
    uint64_t id; /* CANCEL */
    uint8_t kind;
    uint8_t tier;
    uint32_t count;
    quire_tier_key keys[QR_PLAN_MOST_KEYS];
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
} qr_worker_command;

/* A key that a tier has not got any longer. */
typedef struct qr_worker_gone {
    quire_tier_key key;
    uint32_t tier;
} qr_worker_gone;

/* The thread's. */
typedef struct qr_worker_tier {
    quire_tier *tier;
    struct quire_worker *worker;
    struct quire_slots *slots; /* watched; NULL: not */
    uint64_t most_store_bytes;
    uint32_t most_waiting_stores;
    qr_chain loads;
    qr_chain stores;
    uint32_t num_waiting_stores;
    uint32_t num_out;
    uint64_t store_bytes_out;
    bool is_void; /* it has not got the identity that it should have */
} qr_worker_tier;

typedef struct qr_worker_counters {
    _Atomic uint64_t plans;
    _Atomic uint64_t refused_plans;
    _Atomic uint64_t reports;
    _Atomic uint64_t copies_in;
    _Atomic uint64_t copies_out;
    _Atomic uint64_t failed_copies;
    _Atomic uint64_t loaded_keys;
    _Atomic uint64_t stored_keys;
    _Atomic uint64_t missing_keys;
    _Atomic uint64_t corrupt_keys;
    _Atomic uint64_t late_keys;
    _Atomic uint64_t failed_keys;
    _Atomic uint64_t dropped_keys;
    _Atomic uint64_t jobs_in_flight;
} qr_worker_counters;

struct quire_worker {
    qr_fork_guard guard;
    uint32_t magic;
    uint32_t rank;
    uint32_t num_ranks;
    uint32_t key_rank;
    bool stores;
    bool is_inline;
    bool is_abandoned;
    bool tells_gone;
    quire_device device;
    unsigned char *memory;
    uint64_t block_bytes;
    uint32_t num_slots;
    uint32_t num_tiers;
    uint32_t num_jobs; /* places of tier jobs */
    quire_hooks hooks;

    /* the caller's */
    uint64_t id;       /* of this worker, random */
    uint64_t session;  /* of the planner; 0: none yet */
    uint64_t sequence; /* of the last plan, */
    uint64_t first_plan;
    uint64_t num_reports; /* and of the reports */
    bool is_new;          /* the planner has not heard of this worker */
    qr_worker_copies *copies;
    uint32_t first_in[2]; /* copies that wait for the device: COPY_IN, then COPY_OUT; QR_NIL */
    uint32_t last_in[2];
    uint32_t *ended; /* places of copies that ended, and are not reported */
    uint32_t num_ended;
    uint64_t *job_ids;       /* of the places of tier jobs; 0: free */
    uint64_t *seen;          /* number of the plan that a place was met in last, */
    uint64_t num_looks;      /* and of this plan */
    uint32_t *free_commands; /* their numbers */
    uint32_t num_free_commands;
    qr_report_writer writer;
    qr_worker_counters counters;

    uint32_t *taken; /* places of gone keys for the next report */
    uint32_t num_taken;
    uint32_t all_taken; /* bits: as all_gone */

    /* of the one that has the job */
    qr_worker_job *jobs;
    qr_worker_command *commands;
    uint32_t *crcs;     /* of slots; 0: not known */
    uint8_t *has_bytes; /* of slots: 1: this worker has filled it; else nothing is read from it */

    /* between the two */
    qr_spsc inbox; /* places of tier jobs; from num_jobs on, commands */
    qr_spsc outbox;
    qr_spsc freed; /* commands */
    qr_worker_gone *gone;
    qr_spsc gone_out; /* their places */
    qr_spsc gone_free;
    _Atomic uint32_t all_gone; /* bits: tiers whose keys found no place */
    _Atomic bool is_asleep;
    _Atomic bool is_stopping;
    int wake_fd;
    pthread_t thread;
    bool has_thread;

    /* the thread's */
    qr_worker_tier tiers[QUIRE_TRANSFER_MAX_TIERS];
    uint32_t num_active;    /* jobs that are queued or out */
    uint32_t num_gone_used; /* places that were used once */

    qr_owner owner;
};

/* ---- copies.c: the device -------------------------------------------------- */

/* The copies of a planned job; its place is free. */
void qr_worker_copy(quire_worker *w, const qr_plan_job *planned, uint64_t now_ns);
/* Takes a mark for the copies that were added, and gives them to the device. */
void qr_worker_send_copies(quire_worker *w, bool has_new);
/* Those that the device has ended are listed in w->ended. */
void qr_worker_poll_copies(quire_worker *w);

/* ---- turn.c: the tiers ----------------------------------------------------- */

/* Everything that can be done now; on the worker's thread, or inline. */
void qr_worker_turn(quire_worker *w);
/* QUIRE_OK or QUIRE_E_SYSTEM. */
int qr_worker_start(quire_worker *w);
void qr_worker_stop(quire_worker *w);
/* Something is in the inbox. */
void qr_worker_wake(quire_worker *w);

/* ---- gone.c ---------------------------------------------------------------- */

/* Before the thread starts. */
void qr_worker_watch_tiers(quire_worker *w);
void qr_worker_unwatch_tiers(quire_worker *w);
/* Those of now. Before the ends of jobs are taken: a job that ended before its key was evicted is
 * in the same report, or an earlier one. */
void qr_worker_take_gone(quire_worker *w);
/* Into the report, behind all results. */
void qr_worker_report_gone(quire_worker *w);

/* ---- submit.c -------------------------------------------------------------- */

/* Checks a plan against what the worker has: QUIRE_OK, QUIRE_BUSY or QUIRE_E_CORRUPT. */
int qr_worker_check_plan(quire_worker *w, quire_bytes bytes, qr_plan *plan);
/* A plan that was checked. */
void qr_worker_take_plan(quire_worker *w, qr_plan *plan);

#endif
