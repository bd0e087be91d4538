/* tier/transfer/plan.h - the jobs of a step, as bytes: written by the planner, read by workers.
 *
 *      | message head 16 | session 8 | sequence 8 | jobs 4 | 0 4 |  then each job:
 *      | id 8 | kind 1 | tier 1 | flags 2 | count 4 | timeout_ns 8 |  and its items:
 *
 *      COPY_OUT, COPY_IN     block 4, slot 4              engine to slot, slot to engine
 *      LOAD, STORE, TOUCH    hash 32, group 4, slot 4     TOUCH: slot 0
 *      IDENTITY              fingerprint 32               count 1
 *      CANCEL, RESET         nothing                      count 0; CANCEL: id of the job
 *
 * Commands (CANCEL, TOUCH, RESET, IDENTITY) are not reported. The id of a job is
 * generation << 16 | place; a place has one job at a time: copies have the first places, then each
 * tier has its own.
 */
#ifndef QR_TIER_TRANSFER_PLAN_H
#define QR_TIER_TRANSFER_PLAN_H

#include "tier/transfer/message.h"

#include <quire/tier.h>
#include <quire/transfer.h>

#define QR_PLAN_MAGIC UINT32_C(0x4e4c5051) /* "QPLN" */

enum {
    QR_PLAN_HEAD = QR_MESSAGE_HEAD + 24,
    QR_PLAN_JOB = 24,
    QR_PLAN_COPY = 8,
    QR_PLAN_KEY = 40,
    QR_PLAN_MOST_COPIES = 256, /* of a job */
    QR_PLAN_MOST_KEYS = 64,
    QR_PLAN_PLACE_BITS = 16,
    QR_PLAN_COPY_JOBS = 64, /* in flight; */
    QR_PLAN_TIER_JOBS = 256 /* of each tier */
};

typedef enum qr_plan_kind {
    QR_PLAN_COPY_OUT = 1,
    QR_PLAN_COPY_IN = 2,
    QR_PLAN_LOAD = 3,
    QR_PLAN_STORE = 4,
    QR_PLAN_CANCEL = 5,
    QR_PLAN_TOUCH = 6,
    QR_PLAN_RESET = 7,
    QR_PLAN_IDENTITY = 8
} qr_plan_kind;

/* LOAD: the keys are a prefix: what is behind the first that is missing does not matter. */
enum { QR_PLAN_PREFIX = 1 };

typedef struct qr_plan_job {
    uint64_t id; /* 0: TOUCH, RESET, IDENTITY */
    uint8_t kind;
    uint8_t tier;
    uint16_t flags;
    uint32_t count;
    uint64_t timeout_ns; /* from when the worker has it; 0: the tier's */
    const unsigned char *items;
} qr_plan_job;

static inline bool qr_plan_is_copy(uint8_t kind)
{
    return kind == QR_PLAN_COPY_OUT || kind == QR_PLAN_COPY_IN;
}

/* Whether it is reported. */
static inline bool qr_plan_is_job(uint8_t kind)
{
    return kind <= QR_PLAN_STORE;
}

/* Of a job that is not a copy, the place counts from its tier's first. */
static inline uint32_t qr_plan_place(uint64_t id)
{
    return (uint32_t)(id & ((1u << QR_PLAN_PLACE_BITS) - 1));
}

static inline uint32_t qr_plan_first_place(uint32_t tier)
{
    return QR_PLAN_COPY_JOBS + tier * QR_PLAN_TIER_JOBS;
}

/* ---- items ----------------------------------------------------------------- */

static inline void qr_plan_put_copy(unsigned char *items, uint32_t i, quire_block block,
                                    uint32_t slot)
{
    qr_store_u32(items + (size_t)i * QR_PLAN_COPY, block);
    qr_store_u32(items + (size_t)i * QR_PLAN_COPY + 4, slot);
}

static inline quire_block qr_plan_block(const qr_plan_job *job, uint32_t i)
{
    return qr_load_u32(job->items + (size_t)i * QR_PLAN_COPY);
}

/* Of a copy, or of a key. */
static inline uint32_t qr_plan_slot(const qr_plan_job *job, uint32_t i)
{
    size_t bytes = qr_plan_is_copy(job->kind) ? QR_PLAN_COPY : QR_PLAN_KEY;
    return qr_load_u32(job->items + i * bytes + bytes - 4);
}

static inline void qr_plan_put_key(unsigned char *items, uint32_t i, const quire_tier_key *key,
                                   uint32_t slot)
{
    unsigned char *at = items + (size_t)i * QR_PLAN_KEY;
    memcpy(at, key->hash, QUIRE_TIER_HASH_BYTES);
    qr_store_u32(at + QUIRE_TIER_HASH_BYTES, key->group);
    qr_store_u32(at + QUIRE_TIER_HASH_BYTES + 4, slot);
}

static inline void qr_plan_get_key(const qr_plan_job *job, uint32_t i, uint32_t rank,
                                   quire_tier_key *key)
{
    const unsigned char *at = job->items + (size_t)i * QR_PLAN_KEY;
    memcpy(key->hash, at, QUIRE_TIER_HASH_BYTES);
    key->group = qr_load_u32(at + QUIRE_TIER_HASH_BYTES);
    key->rank = rank;
}

/* ---- writing --------------------------------------------------------------- */

typedef struct qr_plan_writer {
    unsigned char *bytes;
    size_t capacity;
    size_t used;
    uint32_t num_jobs;
} qr_plan_writer;

void qr_plan_begin(qr_plan_writer *writer);
/* One job more; job->items is not looked at. Returns where its items go; NULL: no room. Where there
 * are no items, the place behind it. */
unsigned char *qr_plan_add(qr_plan_writer *writer, const qr_plan_job *job);
quire_bytes qr_plan_finish(qr_plan_writer *writer, uint64_t session, uint64_t sequence);

/* ---- reading --------------------------------------------------------------- */

typedef struct qr_plan {
    uint64_t session;
    uint64_t sequence;
    uint32_t num_jobs;
    uint32_t num_left;
    const unsigned char *next;
} qr_plan;

/* QUIRE_OK: every job is what a plan may have; slots, blocks and places are for the worker to
 * check. QUIRE_E_CORRUPT, and a sentence. */
int qr_plan_read(quire_bytes bytes, qr_plan *plan);
/* The next job of a plan that was read; false: there is none. */
bool qr_plan_next(qr_plan *plan, qr_plan_job *job);

#endif
