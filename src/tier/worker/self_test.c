/* tier/worker/self_test.c - a worker shows, before its first plan, that bytes come back as they
 * were.
 *
 *      pattern ──► slot 1 ──► first block ──► slot 3: the same?
 *                  slot 2 ──► second block ─► slot 4: the same? (two blocks must not share bytes)
 *                  slot 1 ──► each tier ────► slot 3: the same?
 *
 * The steps are plans of the worker's own, so that they take the way that all plans take.
 */
#include "tier/worker/worker.h"

#include "base/hooks.h"
#include "base/refuse.h"

#include <time.h>

enum {
    PLAN_BYTES = 512,
    FIRST_SLOT = 1,
    SECOND_SLOT = 2,
    BACK = 3,
    SECOND_BACK = 4,
    NUM_SLOTS = 5
};

typedef struct self_test {
    quire_worker *worker;
    uint64_t session;
    uint64_t sequence;
    uint64_t until_ns;
    unsigned char bytes[PLAN_BYTES];
    qr_plan_writer writer;
} self_test;

static unsigned char *slot_at(const quire_worker *w, uint32_t slot)
{
    return w->memory + (size_t)slot * w->block_bytes;
}

/* The same in all engines: a tier may have the block of another one. */
static void fill_slot(const quire_worker *w, uint32_t slot)
{
    uint64_t word =
        UINT64_C(0x9e3779b97f4a7c15) * (slot + 1) ^ w->block_bytes ^ (uint64_t)w->key_rank << 40;
    unsigned char *at = slot_at(w, slot);
    w->has_bytes[slot] = 1;
    for (uint64_t i = 0; i < w->block_bytes; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        at[i] = (unsigned char)word;
    }
}

/* Its one job ends: QUIRE_OK, or QUIRE_E_SYSTEM. */
static int run_plan(self_test *t, const char *what)
{
    const struct timespec a_little = {.tv_nsec = 100000};
    quire_bytes report;
    int err = quire_worker_submit(t->worker, qr_plan_finish(&t->writer, t->session, ++t->sequence));
    while (err == QUIRE_OK) {
        qr_report read;
        qr_report_result result;
        (void)quire_worker_poll(t->worker, &report);
        if (report.len > 0 && qr_report_read(report, &read) == QUIRE_OK &&
            qr_report_next(&read, &result)) {
            bool is_done = true;
            for (uint32_t i = 0; i < result.count; i++)
                is_done = is_done && result.statuses[i] == QUIRE_TIER_DONE;
            return is_done ? QUIRE_OK
                           : qr_fail(QUIRE_E_SYSTEM, "self test: %s failed (status %u)", what,
                                     result.statuses[0]);
        }
        if (qr_now_ns(NULL) > t->until_ns) /* true time: the caller's clock may stand still */
            return qr_fail(QUIRE_E_SYSTEM, "self test: %s took too long", what);
        (void)nanosleep(&a_little, NULL);
    }
    return err;
}

static int copy_blocks(self_test *t, uint8_t kind, const quire_block *blocks, uint32_t slot)
{
    qr_plan_begin(&t->writer);
    qr_plan_job job = {.id = UINT64_C(1) << QR_PLAN_PLACE_BITS, .kind = kind, .count = 2};
    unsigned char *items = qr_plan_add(&t->writer, &job);
    for (uint32_t i = 0; i < 2; i++)
        qr_plan_put_copy(items, i, blocks[i], slot + i);
    return run_plan(t, kind == QR_PLAN_COPY_IN ? "a copy to the engine" : "a copy to a slot");
}

static int compare(const quire_worker *w, uint32_t slot, uint32_t with, const char *what)
{
    if (memcmp(slot_at(w, slot), slot_at(w, with), w->block_bytes) == 0)
        return QUIRE_OK;
    return qr_fail(QUIRE_E_CORRUPT,
                   "self test: %s did not return the bytes that were written; do not use it", what);
}

static int test_device(self_test *t, const quire_block *blocks)
{
    quire_worker *w = t->worker;
    int err = copy_blocks(t, QR_PLAN_COPY_IN, blocks, FIRST_SLOT);
    memset(slot_at(w, BACK), 0, 2 * w->block_bytes);
    if (err == QUIRE_OK)
        err = copy_blocks(t, QR_PLAN_COPY_OUT, blocks, BACK);
    if (err == QUIRE_OK)
        err = compare(w, BACK, FIRST_SLOT, "the device");
    return err == QUIRE_OK ? compare(w, SECOND_BACK, SECOND_SLOT, "the device") : err;
}

static int move_key(self_test *t, uint32_t tier, uint8_t kind, uint32_t slot)
{
    static const quire_tier_key key = {.hash = "quire self test", .group = UINT32_MAX};
    qr_plan_begin(&t->writer);
    qr_plan_job job = {.id = UINT64_C(1) << QR_PLAN_PLACE_BITS | qr_plan_first_place(tier),
                       .kind = kind,
                       .tier = (uint8_t)tier,
                       .count = 1};
    qr_plan_put_key(qr_plan_add(&t->writer, &job), 0, &key, slot);
    return run_plan(t, quire_tier_label(t->worker->tiers[tier].tier));
}

static int test_tier(self_test *t, uint32_t tier)
{
    quire_worker *w = t->worker;
    const quire_tier_caps *caps = quire_tier_get_caps(w->tiers[tier].tier);
    if (caps->is_read_only != 0 || caps->is_simulated != 0)
        return QUIRE_OK;
    int err = move_key(t, tier, QR_PLAN_STORE, FIRST_SLOT);
    memset(slot_at(w, BACK), 0, w->block_bytes);
    if (err == QUIRE_OK)
        err = move_key(t, tier, QR_PLAN_LOAD, BACK);
    return err == QUIRE_OK ? compare(w, BACK, FIRST_SLOT, quire_tier_label(w->tiers[tier].tier))
                           : err;
}

QUIRE_API int quire_worker_self_test(quire_worker *worker, quire_block first, quire_block second,
                                     uint64_t timeout_ns)
{
    if (worker == NULL || worker->magic != QR_WORKER_MAGIC || first == second)
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&worker->guard))
        return QUIRE_E_SYSTEM;
    if (quire_worker_has_pending(worker) || worker->session != 0)
        return QUIRE_BUSY;
    if (worker->num_slots < NUM_SLOTS)
        return qr_fail(QUIRE_E_RANGE, "the self test needs %d slots (num_slots is %u)",
                       (int)NUM_SLOTS, worker->num_slots);
    qr_refuse_clear();
    self_test t = {.worker = worker, .session = worker->id, .until_ns = qr_now_ns(NULL)};
    t.writer = (qr_plan_writer){.bytes = t.bytes, .capacity = sizeof t.bytes};
    t.until_ns = timeout_ns < UINT64_MAX - t.until_ns ? t.until_ns + timeout_ns : UINT64_MAX;
    quire_block blocks[2] = {first, second};
    fill_slot(worker, FIRST_SLOT);
    fill_slot(worker, SECOND_SLOT);
    int err = test_device(&t, blocks);
    for (uint32_t i = 0; err == QUIRE_OK && worker->stores && i < worker->num_tiers; i++)
        err = test_tier(&t, i);
    if (err != QUIRE_OK && quire_worker_has_pending(worker))
        return err; /* late jobs: the planner's plans are refused until they have ended */
    memset(worker->has_bytes, 0, NUM_SLOTS);
    memset(worker->crcs, 0, NUM_SLOTS * sizeof *worker->crcs);
    worker->session = worker->sequence = worker->num_reports = 0;
    worker->is_new = false;
    return err;
}
