#include "tier/transfer/report.h"

#include "base/assert.h"
#include "base/refuse.h"

#include <quire/transfer.h>

static size_t result_bytes(uint32_t count)
{
    return QR_REPORT_RESULT + ((size_t)count + 7) / 8 * 8;
}

/* ---- writing --------------------------------------------------------------- */

void qr_report_begin(qr_report_writer *writer)
{
    writer->used = QR_REPORT_HEAD;
    writer->num_results = writer->num_gone = 0;
}

bool qr_report_add(qr_report_writer *writer, const qr_report_result *result)
{
    size_t bytes = result_bytes(result->count);
    qr_assert(result->count > 0 && result->count <= QR_REPORT_MOST_STATUSES);
    if (bytes > writer->capacity - writer->used)
        return false;
    unsigned char *at = writer->bytes + writer->used;
    qr_store_u64(at, result->id);
    qr_store_u32(at + 8, result->count);
    qr_store_u32(at + 12, 0);
    qr_store_u64(at + 16, result->ns);
    memset(at + bytes - 8, 0, 8);
    memcpy(at + QR_REPORT_RESULT, result->statuses, result->count);
    writer->used += bytes;
    writer->num_results++;
    return true;
}

bool qr_report_add_gone(qr_report_writer *writer, uint32_t tier, const quire_tier_key *key)
{
    if (QR_REPORT_GONE > writer->capacity - writer->used)
        return false;
    unsigned char *at = writer->bytes + writer->used;
    memset(at, 0, QR_REPORT_GONE);
    qr_store_u32(at, tier);
    qr_store_u32(at + 4, key == NULL ? QR_REPORT_ALL_GONE : key->group);
    if (key != NULL)
        memcpy(at + 8, key->hash, QUIRE_TIER_HASH_BYTES);
    writer->used += QR_REPORT_GONE;
    writer->num_gone++;
    return true;
}

quire_bytes qr_report_finish(qr_report_writer *writer, const qr_report_head *head)
{
    unsigned char *at = writer->bytes + QR_MESSAGE_HEAD;
    qr_store_u64(at, head->session);
    qr_store_u64(at + 8, head->sequence);
    qr_store_u64(at + 16, head->worker);
    qr_store_u64(at + 24, head->first_plan);
    qr_store_u32(at + 32, head->rank);
    qr_store_u32(at + 36, head->num_ranks);
    qr_store_u32(at + 40, writer->num_results);
    qr_store_u32(at + 44, writer->num_gone);
    qr_message_seal(writer->bytes, QR_REPORT_MAGIC, (uint32_t)writer->used);
    return (quire_bytes){writer->bytes, writer->used};
}

/* ---- reading --------------------------------------------------------------- */

static void read_result(const unsigned char *at, qr_report_result *result)
{
    *result = (qr_report_result){.id = qr_load_u64(at),
                                 .count = qr_load_u32(at + 8),
                                 .ns = qr_load_u64(at + 16),
                                 .statuses = at + QR_REPORT_RESULT};
}

/* What fills up its statuses, and the field in reserve, are zero. */
static bool has_zeros(const unsigned char *at, uint32_t count)
{
    uint32_t sum = qr_load_u32(at + 12);
    for (size_t i = QR_REPORT_RESULT + (size_t)count; i < result_bytes(count); i++)
        sum |= at[i];
    return sum == 0;
}

static bool is_result_valid(const qr_report_result *result, size_t left)
{
    if (result->id == 0 || result->count == 0 || result->count > QR_REPORT_MOST_STATUSES ||
        result_bytes(result->count) > left)
        return false;
    for (uint32_t i = 0; i < result->count; i++)
        if (result->statuses[i] == QUIRE_TIER_PENDING || result->statuses[i] > QR_REPORT_LATE)
            return false;
    return has_zeros(result->statuses - QR_REPORT_RESULT, result->count);
}

/* What stands for all keys has no hash. */
static bool is_gone_valid(const unsigned char *at)
{
    static const unsigned char none[QUIRE_TIER_HASH_BYTES];
    return qr_load_u32(at) < QUIRE_TRANSFER_MAX_TIERS &&
           (qr_load_u32(at + 4) != QR_REPORT_ALL_GONE || memcmp(at + 8, none, sizeof none) == 0);
}

int qr_report_read(quire_bytes bytes, qr_report *report)
{
    int err = qr_message_check(bytes, QR_REPORT_MAGIC, QR_REPORT_HEAD, "report");
    if (err != QUIRE_OK)
        return err;
    const unsigned char *at = (const unsigned char *)bytes.data + QR_MESSAGE_HEAD;
    *report = (qr_report){.head = {.session = qr_load_u64(at),
                                   .sequence = qr_load_u64(at + 8),
                                   .worker = qr_load_u64(at + 16),
                                   .first_plan = qr_load_u64(at + 24),
                                   .rank = qr_load_u32(at + 32),
                                   .num_ranks = qr_load_u32(at + 36)},
                          .num_results = qr_load_u32(at + 40),
                          .num_gone = qr_load_u32(at + 44),
                          .next = at + 48};
    report->num_left = report->num_results;
    size_t left = bytes.len - QR_REPORT_HEAD;
    at = report->next;
    for (uint32_t i = 0; i < report->num_results; i++) {
        qr_report_result result;
        if (left < QR_REPORT_RESULT)
            return qr_fail(QUIRE_E_CORRUPT, "result %u of a report is cut", i);
        read_result(at, &result);
        if (!is_result_valid(&result, left))
            return qr_fail(QUIRE_E_CORRUPT, "result %u of a report: invalid count %u or status", i,
                           result.count);
        at += result_bytes(result.count);
        left -= result_bytes(result.count);
    }
    if (left != (size_t)report->num_gone * QR_REPORT_GONE)
        return qr_fail(QUIRE_E_CORRUPT,
                       "%zu bytes behind the last result of a report (expected %u "
                       "keys of %d)",
                       left, report->num_gone, QR_REPORT_GONE);
    for (uint32_t i = 0; i < report->num_gone; i++, at += QR_REPORT_GONE)
        if (!is_gone_valid(at))
            return qr_fail(QUIRE_E_CORRUPT,
                           "gone key %u of a report: invalid tier %u, or a hash of "
                           "all keys",
                           i, qr_load_u32(at));
    return QUIRE_OK;
}

bool qr_report_next(qr_report *report, qr_report_result *result)
{
    if (report->num_left == 0)
        return false;
    report->num_left--;
    read_result(report->next, result);
    report->next += result_bytes(result->count);
    return true;
}

bool qr_report_next_gone(qr_report *report, uint32_t *tier, quire_tier_key *key)
{
    if (report->num_left > 0 || report->num_gone == 0)
        return false;
    report->num_gone--;
    *tier = qr_load_u32(report->next);
    *key = (quire_tier_key){.group = qr_load_u32(report->next + 4)};
    memcpy(key->hash, report->next + 8, QUIRE_TIER_HASH_BYTES);
    report->next += QR_REPORT_GONE;
    return true;
}
