/* tier/transfer/transfer.h - jobs on their way to all ranks, and back.
 *
 *      device, tiers ── job ──► place, and a part of the plan ──► take_plan ──► the ranks
 *           ▲                                                                     │
 *           └── ended ◄── all ranks have reported: the worst status of each key ◄─┘ give_report
 *
 * place     copies have the first places, then each tier has its own; a place has one job at a
 *           time.
 * planned   a job counts for a report only after its plan was taken.
 *
 *      jobs in flight = places whose id is not 0
 */
#ifndef QR_TIER_TRANSFER_TRANSFER_H
#define QR_TIER_TRANSFER_TRANSFER_H

#include "base/arena.h"
#include "base/count.h"
#include "base/fork_guard.h"
#include "base/memory.h"
#include "tier/transfer/plan.h"
#include "tier/transfer/report.h"

#include <quire/slots.h>
#include <quire/transfer.h>

#include <stdatomic.h>

enum {
    QR_TRANSFER_PLACES = QR_PLAN_COPY_JOBS + QUIRE_TRANSFER_MAX_TIERS * QR_PLAN_TIER_JOBS,
    QR_TRANSFER_RANK_WORDS = QUIRE_TRANSFER_MAX_RANKS / 64,
    QR_TRANSFER_COPIES = QUIRE_TRANSFER_MAX_TIERS /* the class of copies, behind those of tiers */
};

/* A job in flight. */
typedef struct qr_carried {
    uint64_t id;   /* 0: the place is free */
    void *job;     /* quire_device_job or quire_tier_job */
    uint64_t plan; /* its sequence; 0: not taken yet */
    uint64_t done; /* bits: keys that some rank has done */
    uint64_t heard[QR_TRANSFER_RANK_WORDS];
    uint32_t num_left; /* ranks */
    uint32_t count;    /* statuses */
    uint32_t next;     /* of the free, or the ended ones */
    uint8_t kind;
    uint8_t statuses[QR_REPORT_MOST_STATUSES]; /* the worst */
} qr_carried;

/* The places of the copies, or of one tier. */
typedef struct qr_carried_class {
    uint32_t free;        /* QR_NIL: none */
    uint32_t first_ended; /* QR_NIL: none */
    uint32_t last_ended;
} qr_carried_class;

typedef struct qr_transfer_rank {
    uint64_t worker; /* 0: none has reported */
    uint64_t sequence;
} qr_transfer_rank;

/* A key that a rank's tier has not got any longer; but jobs of the plans up to this one may still
 * end and say that it has. */
typedef struct qr_transfer_gone {
    quire_tier_key key;
    uint64_t plan;
    uint32_t tier;
    bool is_forgotten;
} qr_transfer_gone;

typedef struct qr_remote_tier {
    quire_slots *known; /* first: see slots/known.h; NULL: no events are told */
    quire_transfer *transfer;
    uint32_t index;
    quire_tier_caps caps;
    uint32_t num_touches; /* in this plan */
} qr_remote_tier;

typedef struct qr_transfer_counters {
    _Atomic uint64_t plans;
    _Atomic uint64_t plan_bytes;
    _Atomic uint64_t reports;
    _Atomic uint64_t refused_reports;
    _Atomic uint64_t jobs;
    _Atomic uint64_t jobs_in_flight;
    _Atomic uint64_t lost_workers;
    _Atomic uint64_t rank_failures;
    _Atomic uint64_t unknown_results;
} qr_transfer_counters;

struct quire_transfer {
    uint32_t num_ranks;
    uint32_t num_tiers;
    uint64_t session;
    uint64_t sequence;   /* of the last plan */
    uint64_t generation; /* of the last job */
    qr_plan_writer writers[2];
    uint32_t writer; /* that is being written */
    qr_carried *carried;
    uint32_t num_places;
    qr_carried_class classes[QUIRE_TRANSFER_MAX_TIERS + 1];
    qr_transfer_rank *ranks;
    qr_transfer_gone *gone;
    uint32_t num_gone;
    uint32_t most_gone;
    uint64_t all_gone[QUIRE_TRANSFER_MAX_TIERS]; /* a plan, as above: of any key; 0: no */
    quire_device device;
    quire_tier *tiers[QUIRE_TRANSFER_MAX_TIERS];
    qr_remote_tier remotes[QUIRE_TRANSFER_MAX_TIERS];
    qr_transfer_counters counters;
    quire_hooks hooks;
    qr_owner owner;
};

static inline bool qr_transfer_has_place(const quire_transfer *t, uint32_t class)
{
    return t->classes[class].free != UINT32_MAX;
}

/* A job with a place, in the plan that is being written; kind, tier, flags, count and timeout_ns of
 * planned are set. Returns where its items go; NULL: no place, or no room. num_statuses: that ranks
 * report. */
unsigned char *qr_transfer_carry(quire_transfer *t, qr_plan_job *planned, void *job,
                                 uint32_t num_statuses);
/* A command; false: no room in this plan. */
unsigned char *qr_transfer_command(quire_transfer *t, const qr_plan_job *planned);
/* The next job of a class that all ranks have reported; NULL: none. Valid until the next carry. */
qr_carried *qr_transfer_next_ended(quire_transfer *t, uint32_t class);
/* The place of a job of a class; QR_NIL: it is not in flight. */
uint32_t qr_transfer_find(const quire_transfer *t, uint32_t class, const void *job);

/* ---- remote_device.c, remote_tier.c ---------------------------------------- */

extern const quire_device_ops qr_remote_device_ops;
extern const quire_tier_ops qr_remote_tier_ops;
/* num_known: keys whose events are told. QUIRE_OK, QUIRE_E_NOMEM, QUIRE_E_RANDOM. */
int qr_remote_tier_init(qr_remote_tier *remote, quire_transfer *transfer, uint32_t index,
                        const quire_transfer_tier *config, uint32_t num_known);

#endif
