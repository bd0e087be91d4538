#include "tier/transfer/transfer.h"

#include "base/config.h"
#include "base/hooks.h"
#include "base/list.h"
#include "base/refuse.h"

enum {
    COMMAND_BYTES = 64 << 10, /* of a plan: TOUCH, CANCEL, RESET, IDENTITY */
    RESERVE_BYTES = 4 << 10,  /* of these for RESET and IDENTITY alone */
    MOST_GONE = QR_AT_A_TIME(16384, 4)
};
#define MOST_NS (UINT64_C(1) << 56)

/* ---- jobs ------------------------------------------------------------------ */

static uint32_t class_of(const qr_plan_job *planned)
{
    return qr_plan_is_copy(planned->kind) ? QR_TRANSFER_COPIES : planned->tier;
}

unsigned char *qr_transfer_carry(quire_transfer *t, qr_plan_job *planned, void *job,
                                 uint32_t num_statuses)
{
    qr_carried_class *class = &t->classes[class_of(planned)];
    uint32_t place = class->free;
    if (place == QR_NIL)
        return NULL;
    planned->id = (t->generation + 1) << QR_PLAN_PLACE_BITS | place;
    unsigned char *items = qr_plan_add(&t->writers[t->writer], planned);
    if (items == NULL)
        return NULL;
    qr_carried *c = &t->carried[place];
    class->free = c->next;
    t->generation++;
    *c = (qr_carried){.id = planned->id,
                      .job = job,
                      .num_left = t->num_ranks,
                      .count = num_statuses,
                      .kind = planned->kind};
    memset(c->statuses, QUIRE_TIER_DONE, sizeof c->statuses);
    qr_count_add(&t->counters.jobs, 1);
    qr_count_add(&t->counters.jobs_in_flight, 1);
    return items;
}

unsigned char *qr_transfer_command(quire_transfer *t, const qr_plan_job *planned)
{
    qr_plan_writer *writer = &t->writers[t->writer];
    bool must_fit = planned->kind == QR_PLAN_RESET || planned->kind == QR_PLAN_IDENTITY;
    size_t left = writer->capacity - writer->used;
    size_t most = QR_PLAN_JOB + (size_t)QR_PLAN_MOST_KEYS * QR_PLAN_KEY;
    if (!must_fit && left < RESERVE_BYTES + most)
        return NULL;
    return qr_plan_add(writer, planned);
}

qr_carried *qr_transfer_next_ended(quire_transfer *t, uint32_t class)
{
    qr_carried_class *c = &t->classes[class];
    uint32_t place = c->first_ended;
    if (place == QR_NIL)
        return NULL;
    qr_carried *ended = &t->carried[place];
    c->first_ended = ended->next;
    ended->id = 0;
    ended->next = c->free;
    c->free = place;
    qr_count_add(&t->counters.jobs_in_flight, UINT64_MAX);
    return ended;
}

uint32_t qr_transfer_find(const quire_transfer *t, uint32_t class, const void *job)
{
    uint32_t first = class == QR_TRANSFER_COPIES ? 0 : qr_plan_first_place(class);
    uint32_t n = class == QR_TRANSFER_COPIES ? QR_PLAN_COPY_JOBS : QR_PLAN_TIER_JOBS;
    for (uint32_t place = first; place < first + n; place++)
        if (t->carried[place].id != 0 && t->carried[place].job == job)
            return place;
    return QR_NIL;
}

/* ---- reports --------------------------------------------------------------- */

/* Of the statuses of two ranks the one that says more against the key. */
static unsigned severity(uint8_t status)
{
    static const uint8_t ORDER[QR_REPORT_LATE + 1] = {
        [QUIRE_TIER_DONE] = 0,    [QUIRE_TIER_CANCELLED] = 1, [QUIRE_TIER_MISSING] = 2,
        [QUIRE_TIER_NO_ROOM] = 3, [QUIRE_TIER_REFUSED] = 4,   [QUIRE_TIER_FAILED] = 5,
        [QR_REPORT_LATE] = 6,     [QUIRE_TIER_WRONG] = 7};
    return ORDER[status];
}

static void end_carried(quire_transfer *t, qr_carried *c)
{
    uint32_t place = (uint32_t)(c - t->carried);
    uint32_t class = place < QR_PLAN_COPY_JOBS ? QR_TRANSFER_COPIES
                                               : (place - QR_PLAN_COPY_JOBS) / QR_PLAN_TIER_JOBS;
    qr_carried_class *of = &t->classes[class];
    for (uint32_t i = 0; i < c->count; i++)
        if (c->statuses[i] != QUIRE_TIER_DONE && (c->done >> i & 1) != 0)
            qr_count_add(&t->counters.rank_failures, 1);
    c->next = QR_NIL;
    if (of->first_ended == QR_NIL)
        of->first_ended = place;
    else
        t->carried[of->last_ended].next = place;
    of->last_ended = place;
}

static bool has_heard(const qr_carried *c, uint32_t rank)
{
    return (c->heard[rank / 64] >> rank % 64 & 1) != 0;
}

/* statuses NULL: the rank cannot say any more. */
static void hear(quire_transfer *t, qr_carried *c, uint32_t rank, const uint8_t *statuses)
{
    c->heard[rank / 64] |= UINT64_C(1) << rank % 64;
    for (uint32_t i = 0; i < c->count; i++) {
        uint8_t status = statuses == NULL ? QUIRE_TIER_REFUSED : statuses[i];
        if (status == QUIRE_TIER_DONE)
            c->done |= UINT64_C(1) << i;
        if (severity(status) > severity(c->statuses[i]))
            c->statuses[i] = status;
    }
    if (--c->num_left == 0)
        end_carried(t, c);
}

/* The job of a result that this rank owes; NULL: it does not. */
static qr_carried *owed(quire_transfer *t, uint32_t rank, const qr_report_result *result)
{
    uint32_t place = qr_plan_place(result->id);
    qr_carried *c = &t->carried[place < t->num_places ? place : 0];
    bool is_owed =
        c->id == result->id && c->plan != 0 && c->count == result->count && !has_heard(c, rank);
    return is_owed ? c : NULL;
}

/* Those that the worker before had, also where it had done its part: its slots are empty now. That
 * is no fault of the tier: its breaker does not count it. */
static void fail_before(quire_transfer *t, uint32_t rank, uint64_t first_plan)
{
    for (uint32_t place = 0; place < t->num_places; place++) {
        qr_carried *c = &t->carried[place];
        if (c->id == 0 || c->plan == 0 || c->plan >= first_plan)
            continue;
        if (!has_heard(c, rank))
            hear(t, c, rank, NULL);
        memset(c->statuses, QUIRE_TIER_REFUSED, c->count);
    }
}

static int check_report(const quire_transfer *t, const qr_report_head *head)
{
    if (head->session != t->session)
        return qr_fail(QUIRE_E_CORRUPT, "a report of another session");
    if (head->num_ranks != t->num_ranks || head->rank >= t->num_ranks)
        return qr_fail(QUIRE_E_CORRUPT, "a report of rank %u of %u (expected %u ranks)", head->rank,
                       head->num_ranks, t->num_ranks);
    const qr_transfer_rank *rank = &t->ranks[head->rank];
    bool is_same = head->worker == rank->worker;
    uint64_t expected = is_same ? rank->sequence + 1 : 1;
    if (head->sequence != expected || head->worker == 0 || head->first_plan == 0 ||
        head->first_plan > t->sequence)
        return qr_fail(QUIRE_E_CORRUPT, "report %llu of rank %u (expected report %llu)",
                       (unsigned long long)head->sequence, head->rank,
                       (unsigned long long)expected);
    return QUIRE_OK;
}

static void take_gone(quire_transfer *t, qr_report *report)
{
    uint32_t tier;
    quire_tier_key key;
    while (qr_report_next_gone(report, &tier, &key)) {
        if (tier >= t->num_tiers || t->most_gone == 0)
            continue;
        if (key.group == QR_REPORT_ALL_GONE || t->num_gone == t->most_gone)
            t->all_gone[tier] = t->sequence;
        else
            t->gone[t->num_gone++] =
                (qr_transfer_gone){.key = key, .plan = t->sequence, .tier = tier};
    }
}

/* The first plan of which the tier has jobs in flight. */
static uint64_t oldest_plan(const quire_transfer *t, uint32_t tier)
{
    uint64_t oldest = UINT64_MAX;
    const qr_carried *carried = &t->carried[qr_plan_first_place(tier)];
    for (uint32_t i = 0; i < QR_PLAN_TIER_JOBS; i++)
        if (carried[i].id != 0 && carried[i].plan != 0 && carried[i].plan < oldest)
            oldest = carried[i].plan;
    return oldest;
}

/* At once, and again when the jobs have ended that may make it known. A key that was evicted and
 * then stored again counts as gone until it is used. */
static void forget_gone(quire_transfer *t)
{
    uint64_t oldest[QUIRE_TRANSFER_MAX_TIERS];
    uint32_t kept = 0;
    for (uint32_t i = 0; t->most_gone > 0 && i < t->num_tiers; i++) {
        oldest[i] = t->num_gone > 0 || t->all_gone[i] > 0 ? oldest_plan(t, i) : 0;
        if (t->all_gone[i] == 0)
            continue;
        (void)quire_slots_reset(t->remotes[i].known);
        t->all_gone[i] = oldest[i] > t->all_gone[i] ? 0 : t->all_gone[i];
    }
    for (uint32_t i = 0; i < t->num_gone; i++) {
        qr_transfer_gone gone = t->gone[i];
        bool is_over = oldest[gone.tier] > gone.plan;
        if (is_over || !gone.is_forgotten)
            (void)quire_slots_remove(t->remotes[gone.tier].known, &gone.key);
        gone.is_forgotten = true;
        if (!is_over)
            t->gone[kept++] = gone;
    }
    t->num_gone = kept;
}

QUIRE_API int quire_transfer_give_report(quire_transfer *transfer, quire_bytes bytes)
{
    qr_report report;
    qr_report_result result;
    if (transfer == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_report_read(bytes, &report);
    if (err == QUIRE_OK)
        err = check_report(transfer, &report.head);
    if (err != QUIRE_OK) {
        qr_count_add(&transfer->counters.refused_reports, 1);
        return err;
    }
    uint32_t rank = report.head.rank;
    qr_transfer_rank *from = &transfer->ranks[rank];
    bool is_new = from->worker != report.head.worker;
    bool is_lost = is_new && (from->worker != 0 || report.head.first_plan > 1);
    *from = (qr_transfer_rank){report.head.worker, report.head.sequence};
    if (is_new)
        fail_before(transfer, rank, report.head.first_plan);
    while (qr_report_next(&report, &result)) {
        qr_carried *c = owed(transfer, rank, &result);
        if (c != NULL)
            hear(transfer, c, rank, result.statuses);
        else
            qr_count_add(&transfer->counters.unknown_results, 1);
    }
    take_gone(transfer, &report);
    qr_count_add(&transfer->counters.reports, 1);
    for (uint32_t i = 0; is_lost && i < transfer->num_tiers; i++) /* it may have evicted some */
        transfer->all_gone[i] = transfer->sequence;
    qr_count_add(&transfer->counters.lost_workers, is_lost);
    return is_lost ? QUIRE_LOST : QUIRE_OK;
}

/* ---- plans ----------------------------------------------------------------- */

static void begin_plan(quire_transfer *t)
{
    qr_plan_begin(&t->writers[t->writer]);
    for (uint32_t i = 0; i < t->num_tiers; i++)
        t->remotes[i].num_touches = 0;
}

/* The jobs of the plan count from now on. */
static void note_planned(quire_transfer *t, quire_bytes bytes)
{
    const unsigned char *head = bytes.data;
    qr_plan plan = {.num_left = t->writers[t->writer].num_jobs, .next = head + QR_PLAN_HEAD};
    qr_plan_job job;
    while (qr_plan_next(&plan, &job))
        if (qr_plan_is_job(job.kind))
            t->carried[qr_plan_place(job.id)].plan = t->sequence;
}

QUIRE_API int quire_transfer_take_plan(quire_transfer *transfer, quire_bytes *plan)
{
    if (transfer == NULL || plan == NULL)
        return QUIRE_E_ARGUMENT;
    qr_plan_writer *writer = &transfer->writers[transfer->writer];
    forget_gone(transfer);
    *plan = (quire_bytes){0};
    if (writer->num_jobs == 0)
        return QUIRE_OK;
    *plan = qr_plan_finish(writer, transfer->session, ++transfer->sequence);
    note_planned(transfer, *plan);
    transfer->writer ^= 1;
    begin_plan(transfer);
    qr_count_add(&transfer->counters.plans, 1);
    qr_count_add(&transfer->counters.plan_bytes, plan->len);
    return QUIRE_OK;
}

/* ---- opening --------------------------------------------------------------- */

static int read_transfer_config(quire_transfer_config *config, const quire_transfer_config *callers)
{
    int err = qr_refuse_reading(config, sizeof *config, callers, "quire_transfer_config");
    if (err != QUIRE_OK)
        return err;
    const qr_field fields[] = {QR_FIELD(config, num_ranks, 0, QUIRE_TRANSFER_MAX_RANKS),
                               QR_FIELD(config, num_tiers, 0, QUIRE_TRANSFER_MAX_TIERS),
                               QR_FIELD(config, event_keys, 0, QUIRE_SLOTS_MAX)};
    err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err != QUIRE_OK)
        return err;
    if (config->num_tiers > 0 && config->tiers == NULL)
        return qr_refuse("tiers is NULL, but num_tiers is %u", config->num_tiers);
    for (uint32_t i = 0; i < config->num_tiers; i++) {
        const quire_transfer_tier *tier = &config->tiers[i];
        const qr_field rest[] = {QR_FIELD(tier, deadline_ns, 0, MOST_NS),
                                 QR_FIELD(tier, unused, 0, 0)};
        err = qr_refuse_fields(rest, sizeof rest / sizeof *rest);
        if (err != QUIRE_OK)
            return qr_refuse_in(err, "tiers[%u]", i);
    }
    config->num_ranks = (uint32_t)qr_or_default(config->num_ranks, 1);
    return QUIRE_OK;
}

static size_t plan_capacity(uint32_t num_tiers)
{
    size_t copies = QR_PLAN_JOB + (size_t)QR_PLAN_MOST_COPIES * QR_PLAN_COPY;
    size_t keys = QR_PLAN_JOB + (size_t)QR_PLAN_MOST_KEYS * QR_PLAN_KEY;
    return QR_PLAN_HEAD + QR_PLAN_COPY_JOBS * copies +
           (size_t)num_tiers * (QR_PLAN_TIER_JOBS * keys + COMMAND_BYTES) + COMMAND_BYTES;
}

static quire_transfer *carve_transfer(qr_arena *arena, const quire_transfer_config *config,
                                      quire_transfer *t)
{
    quire_transfer *made = qr_arena_take(arena, 1, sizeof *made);
    memset(t, 0, sizeof *t);
    t->num_ranks = config->num_ranks;
    t->num_tiers = config->num_tiers;
    t->num_places = QR_PLAN_COPY_JOBS + config->num_tiers * QR_PLAN_TIER_JOBS;
    t->carried = qr_arena_take(arena, t->num_places, sizeof *t->carried);
    t->ranks = qr_arena_take(arena, t->num_ranks, sizeof *t->ranks);
    t->most_gone = config->event_keys > 0 ? MOST_GONE : 0;
    t->gone = qr_arena_take(arena, t->most_gone, sizeof *t->gone);
    for (uint32_t i = 0; i < 2; i++) {
        t->writers[i].capacity = plan_capacity(config->num_tiers);
        t->writers[i].bytes = qr_arena_take(arena, t->writers[i].capacity, 1);
    }
    return made;
}

static void init_places(quire_transfer *t)
{
    memset(t->carried, 0, t->num_places * sizeof *t->carried);
    memset(t->ranks, 0, t->num_ranks * sizeof *t->ranks);
    for (uint32_t class = 0; class <= QR_TRANSFER_COPIES; class ++)
        t->classes[class] = (qr_carried_class){QR_NIL, QR_NIL, QR_NIL};
    for (uint32_t place = t->num_places; place-- > 0;) {
        uint32_t class = place < QR_PLAN_COPY_JOBS
                             ? QR_TRANSFER_COPIES
                             : (place - QR_PLAN_COPY_JOBS) / QR_PLAN_TIER_JOBS;
        t->carried[place].next = t->classes[class].free;
        t->classes[class].free = place;
    }
}

static int open_remote(quire_transfer *t, uint32_t i, const quire_transfer_tier *tier,
                       uint32_t event_keys)
{
    quire_tier_ops ops = qr_remote_tier_ops;
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    ops.medium = tier->medium;
    ops.name = tier->label == NULL ? ops.name : tier->label;
    int err = qr_remote_tier_init(&t->remotes[i], t, i, tier, event_keys);
    if (err != QUIRE_OK)
        return err;
    config.ops = &ops;
    config.self = &t->remotes[i];
    config.label = tier->label;
    config.max_jobs = QR_PLAN_TIER_JOBS;
    config.max_bytes_in_flight = UINT64_MAX; /* the workers have budgets */
    config.deadline_ns = tier->deadline_ns;
    config.close_ns = 1;
    config.run_inline = QUIRE_ON;
    config.hooks = t->hooks;
    return quire_tier_open(&config, NULL, &t->tiers[i]);
}

QUIRE_API int quire_transfer_open(const quire_transfer_config *callers,
                                  const quire_allocator *allocator, quire_transfer **transfer)
{
    quire_transfer_config config;
    quire_transfer parts;
    qr_arena plan = qr_arena_plan();
    qr_arena arena;
    qr_owner owner;
    if (transfer == NULL)
        return QUIRE_E_ARGUMENT;
    int err = read_transfer_config(&config, callers);
    if (err != QUIRE_OK)
        return err;
    (void)carve_transfer(&plan, &config, &parts);
    err = qr_owner_begin(&owner, allocator, &plan, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_transfer *made = carve_transfer(&arena, &config, &parts);
    *made = parts;
    made->owner = owner;
    made->hooks = config.hooks;
    init_places(made);
    begin_plan(made);
    made->device = (quire_device){.ops = &qr_remote_device_ops, .self = made};
    if (qr_random_bytes(&config.hooks, &made->session, sizeof made->session) != 0)
        err = qr_fail(QUIRE_E_RANDOM, "%s", quire_strerror(QUIRE_E_RANDOM));
    made->session |= 1; /* 0: none */
    for (uint32_t i = 0; err == QUIRE_OK && i < config.num_tiers; i++)
        err = open_remote(made, i, &config.tiers[i], config.event_keys);
    if (err != QUIRE_OK) {
        quire_transfer_close(made);
        return err;
    }
    *transfer = made;
    return QUIRE_OK;
}

QUIRE_API void quire_transfer_close(quire_transfer *transfer)
{
    if (transfer == NULL)
        return;
    for (uint32_t i = 0; i < transfer->num_tiers; i++) {
        (void)quire_tier_close(transfer->tiers[i]);
        quire_slots_destroy(transfer->remotes[i].known); /* of a tier that was not opened */
    }
    qr_owner_release(&transfer->owner);
}

QUIRE_API const quire_device *quire_transfer_device(const quire_transfer *transfer)
{
    return transfer == NULL ? NULL : &transfer->device;
}

QUIRE_API quire_tier *quire_transfer_get_tier(const quire_transfer *transfer, uint32_t tier)
{
    return transfer == NULL || tier >= transfer->num_tiers ? NULL : transfer->tiers[tier];
}

QUIRE_API int quire_transfer_get_stats(const quire_transfer *transfer, quire_transfer_stats *stats)
{
    if (transfer == NULL)
        return QUIRE_E_ARGUMENT;
    const qr_transfer_counters *c = &transfer->counters;
    quire_transfer_stats own = {.plans = qr_count_get(&c->plans),
                                .plan_bytes = qr_count_get(&c->plan_bytes),
                                .reports = qr_count_get(&c->reports),
                                .refused_reports = qr_count_get(&c->refused_reports),
                                .jobs = qr_count_get(&c->jobs),
                                .jobs_in_flight = qr_count_get(&c->jobs_in_flight),
                                .lost_workers = qr_count_get(&c->lost_workers),
                                .rank_failures = qr_count_get(&c->rank_failures),
                                .unknown_results = qr_count_get(&c->unknown_results)};
    return qr_struct_out(stats, &own, sizeof own);
}
