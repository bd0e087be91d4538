#include "tier/transfer/plan.h"

#include "base/assert.h"
#include "base/refuse.h"

/* ---- what a job may be ----------------------------------------------------- */

static size_t item_bytes(uint8_t kind)
{
    switch (kind) {
    case QR_PLAN_COPY_OUT:
    case QR_PLAN_COPY_IN:
        return QR_PLAN_COPY;
    case QR_PLAN_LOAD:
    case QR_PLAN_STORE:
    case QR_PLAN_TOUCH:
        return QR_PLAN_KEY;
    case QR_PLAN_IDENTITY:
        return QUIRE_FINGERPRINT_BYTES;
    default:
        return 0;
    }
}

static uint32_t most_items(uint8_t kind)
{
    if (qr_plan_is_copy(kind))
        return QR_PLAN_MOST_COPIES;
    if (kind == QR_PLAN_IDENTITY)
        return 1;
    return item_bytes(kind) > 0 ? QR_PLAN_MOST_KEYS : 0;
}

static bool is_job_valid(const qr_plan_job *job)
{
    uint32_t most = most_items(job->kind);
    bool is_kind = job->kind >= QR_PLAN_COPY_OUT && job->kind <= QR_PLAN_IDENTITY;
    bool is_tier =
        qr_plan_is_copy(job->kind) ? job->tier == 0 : job->tier < QUIRE_TRANSFER_MAX_TIERS;
    bool has_id = qr_plan_is_job(job->kind) || job->kind == QR_PLAN_CANCEL;
    uint16_t flags = job->kind == QR_PLAN_LOAD ? QR_PLAN_PREFIX : 0;
    return is_kind && is_tier && job->count <= most && (job->count > 0) == (most > 0) &&
           (job->id != 0) == has_id && (job->flags & ~flags) == 0;
}

/* ---- writing --------------------------------------------------------------- */

void qr_plan_begin(qr_plan_writer *writer)
{
    writer->used = QR_PLAN_HEAD;
    writer->num_jobs = 0;
}

unsigned char *qr_plan_add(qr_plan_writer *writer, const qr_plan_job *job)
{
    size_t bytes = QR_PLAN_JOB + job->count * item_bytes(job->kind);
    qr_assert(is_job_valid(job));
    if (bytes > writer->capacity - writer->used)
        return NULL;
    unsigned char *at = writer->bytes + writer->used;
    qr_store_u64(at, job->id);
    at[8] = job->kind;
    at[9] = job->tier;
    at[10] = (unsigned char)job->flags;
    at[11] = (unsigned char)(job->flags >> 8);
    qr_store_u32(at + 12, job->count);
    qr_store_u64(at + 16, job->timeout_ns);
    writer->used += bytes;
    writer->num_jobs++;
    return at + QR_PLAN_JOB;
}

quire_bytes qr_plan_finish(qr_plan_writer *writer, uint64_t session, uint64_t sequence)
{
    unsigned char *at = writer->bytes + QR_MESSAGE_HEAD;
    qr_store_u64(at, session);
    qr_store_u64(at + 8, sequence);
    qr_store_u32(at + 16, writer->num_jobs);
    qr_store_u32(at + 20, 0);
    qr_message_seal(writer->bytes, QR_PLAN_MAGIC, (uint32_t)writer->used);
    return (quire_bytes){writer->bytes, writer->used};
}

/* ---- reading --------------------------------------------------------------- */

static void read_job(const unsigned char *at, qr_plan_job *job)
{
    *job = (qr_plan_job){.id = qr_load_u64(at),
                         .kind = at[8],
                         .tier = at[9],
                         .flags = (uint16_t)(at[10] | at[11] << 8),
                         .count = qr_load_u32(at + 12),
                         .timeout_ns = qr_load_u64(at + 16),
                         .items = at + QR_PLAN_JOB};
}

int qr_plan_read(quire_bytes bytes, qr_plan *plan)
{
    int err = qr_message_check(bytes, QR_PLAN_MAGIC, QR_PLAN_HEAD, "plan");
    if (err != QUIRE_OK)
        return err;
    const unsigned char *at = (const unsigned char *)bytes.data + QR_MESSAGE_HEAD;
    *plan = (qr_plan){.session = qr_load_u64(at),
                      .sequence = qr_load_u64(at + 8),
                      .num_jobs = qr_load_u32(at + 16),
                      .next = at + 24};
    plan->num_left = plan->num_jobs;
    if (qr_load_u32(at + 20) != 0)
        return qr_fail(QUIRE_E_CORRUPT, "a plan with a field that is not known");
    size_t left = bytes.len - QR_PLAN_HEAD;
    at = plan->next;
    for (uint32_t i = 0; i < plan->num_jobs; i++) {
        qr_plan_job job;
        if (left < QR_PLAN_JOB)
            return qr_fail(QUIRE_E_CORRUPT, "job %u of a plan is cut", i);
        read_job(at, &job);
        if (!is_job_valid(&job) || job.count * item_bytes(job.kind) > left - QR_PLAN_JOB)
            return qr_fail(QUIRE_E_CORRUPT, "job %u of a plan: invalid kind %u, tier %u, count %u",
                           i, job.kind, job.tier, job.count);
        size_t used = QR_PLAN_JOB + job.count * item_bytes(job.kind);
        at += used;
        left -= used;
    }
    if (left > 0)
        return qr_fail(QUIRE_E_CORRUPT, "%zu bytes behind the last job of a plan", left);
    return QUIRE_OK;
}

bool qr_plan_next(qr_plan *plan, qr_plan_job *job)
{
    if (plan->num_left == 0)
        return false;
    plan->num_left--;
    read_job(plan->next, job);
    plan->next += QR_PLAN_JOB + job->count * item_bytes(job->kind);
    return true;
}
