/* tier/core/runner.h - the tier's thread, and what it shares with the scheduler's.
 *
 *      scheduler                                              tier's thread
 *      flight filled ──► submitted: slot                 ──►  begin
 *      is_cancelled  ──► has_cancels                     ──►  cancel
 *                                                             turn ... end ... end
 *      flight free   ◄── ended: slot                     ◄──  when begin, turn or cancel returns
 *
 * flight   a job on its way, in one of max_jobs slots. The scheduler fills it before submitted and
 *          looks at it again after ended; between the two it is the thread's.
 *
 * A job stays in the table of the thread until the call returns in which its last io ended: the
 * tier's own part may still look at it there. What it ends twice, or never had, is found in that
 * table, and nowhere else: a job that is gone is not looked at.
 *
 * part     a FIND of a prefix is begun in parts: 1 key, then 4, 16, ... more, each after the part
 *          before was found. The tier's own part sees a job (part) that grows; the caller's job is
 *          not changed, since the scheduler may look at it.
 *
 * wake     the thread says that it will sleep, looks at submitted once more, and sleeps in the
 *          tier's turn until wake_fd can be read. Whoever submits looks whether it sleeps, and only
 *          then writes there: a thread that is awake costs no call.
 */
#ifndef QR_TIER_CORE_RUNNER_H
#define QR_TIER_CORE_RUNNER_H

#include <quire/tier.h>

#include "base/buckets.h"
#include "tier/core/spsc.h"

#include <pthread.h>

typedef struct qr_flight {
    quire_tier_job *job; /* NULL: the slot is free */
    quire_tier_io *ios;  /* of the job, as they were when it came */
    uint32_t num_ios;
    uint32_t epoch; /* of the breaker */
    uint64_t bytes;
    bool is_late; /* the scheduler's: counted as late */
    _Atomic bool is_cancelled;
    /* the thread's */
    bool is_under_way;
    bool is_told;           /* the tier's own part, that it is cancelled */
    bool has_answered;      /* one of the ios that the tier tried */
    uint32_t num_left;      /* ios that are PENDING */
    uint32_t num_failed;    /* that the tier tried, and got no answer to */
    quire_tier_job *given;  /* what the tier's own part knows it by: job, or part */
    uint32_t num_part_left; /* ios of the part that are PENDING */
    quire_tier_job part;
} qr_flight;

typedef struct qr_runner {
    quire_tier_ends ends; /* first: the tier's own part gives it back */
    quire_tier_ops ops;
    void *self;
    quire_tier_caps caps;
    const quire_hooks *hooks;
    uint32_t max_jobs;
    qr_flight *flights; /* max_jobs */
    qr_spsc submitted;  /* slots; one is in there once at most, as in ended */
    qr_spsc ended;
    _Atomic bool has_cancels; /* some flight has become is_cancelled */
    _Atomic uint32_t epoch;   /* of the breaker; what is from before is not begun */
    _Atomic bool is_stopping;
    _Atomic bool is_asleep;
    _Atomic uint64_t bad_ends;
    int wake_fd; /* -1: there is no thread */
    int gone_fd;
    pthread_t thread;
    bool has_thread;
    /* the thread's: slots under way by their jobs' addresses (slot + 1), and those whose last io
     * ended in the present call */
    qr_buckets table;
    uint32_t num_under_way;
    uint32_t *ended_now; /* max_jobs */
    uint32_t num_ended_now;
    uint32_t *part_ended; /* max_jobs: slots that wait for their next part */
    uint32_t num_part_ended;
} qr_runner;

/* A zeroed runner with its arrays. Without a start it has no thread. */
void qr_runner_init(qr_runner *runner);
/* QUIRE_OK or QUIRE_E_SYSTEM. Arrays, ops, self and caps have been set. */
int qr_runner_start(qr_runner *runner);
/* Whether everything ended, and the thread came back, in this time; then it is gone, with its
 * descriptors. */
bool qr_runner_stop(qr_runner *runner, uint64_t wait_ns);

/* A slot whose flight is filled. */
void qr_runner_submit(qr_runner *runner, uint32_t slot);
/* Any number of times, also when it has ended: the tier's own part hears of it once at most. */
void qr_runner_cancel(qr_runner *runner, uint32_t slot);
/* Something is to be done that no job tells: the tier's own part gets a turn. */
void qr_runner_wake(qr_runner *runner);
/* Without a thread: what it would do now. */
void qr_runner_turn(qr_runner *runner);

#endif
