/* tier/transfer/test_transfer.c - jobs of several ranks: what they report is merged, and what is
 * repeated, lost, of another session or of another worker is refused or counted. */
#include "base/unit.h"
#include "tier/core/tier.h"
#include "tier/transfer/transfer.h"

enum { RANKS = 3 };

static quire_transfer *transfer;
static quire_device_job copies;
static quire_device_copy pairs[2] = {{.block = 5, .slot = 7}, {.block = 6, .slot = 8}};
static quire_tier_job job;
static quire_tier_io ios[4];
static unsigned char room[4096];
static uint64_t sequences[RANKS];
static quire_bytes plan;
static uint64_t session;

static uint64_t now(void *user)
{
    assert_ptr_equal(user, &transfer);
    return 1000000000;
}

static int open_world(void **state)
{
    (void)state;
    quire_transfer_tier tier = {
        .label = "disk", .medium = "DISK", .deadline_ns = 1000000000, .is_persistent = 1};
    quire_transfer_config config = QUIRE_TRANSFER_CONFIG_INIT;
    config.num_ranks = RANKS;
    config.num_tiers = 1;
    config.tiers = &tier;
    config.hooks.user = &transfer;
    config.hooks.now_ns = now;
    assert_int_equal(quire_transfer_open(&config, NULL, &transfer), QUIRE_OK);
    memset(sequences, 0, sizeof sequences);
    copies = (quire_device_job){.op = QUIRE_DEVICE_STORE, .num_copies = 2, .copies = pairs};
    job =
        (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = COUNT(ios), .ios = ios, .is_prefix = 1};
    for (uint32_t i = 0; i < COUNT(ios); i++)
        ios[i] = (quire_tier_io){.key = {.hash = {(unsigned char)i}}, .place = 10 + i};
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    quire_transfer_close(transfer);
    return 0;
}

static const quire_device_ops *device(void)
{
    return quire_transfer_device(transfer)->ops;
}

static uint32_t poll_copies(void)
{
    quire_device_job *ended[4];
    return device()->poll(quire_transfer_device(transfer)->self, ended, 4);
}

static void take_plan(uint32_t num_jobs, qr_plan_job *jobs)
{
    qr_plan read;
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_int_equal(qr_plan_read(plan, &read), QUIRE_OK);
    assert_int_equal(read.num_jobs, num_jobs);
    session = read.session;
    for (uint32_t i = 0; i < num_jobs; i++)
        assert_true(qr_plan_next(&read, &jobs[i]));
}

static int report(uint32_t rank, uint64_t worker, uint64_t first_plan, uint64_t id,
                  const char *statuses)
{
    unsigned char bytes[8];
    qr_report_writer writer = {.bytes = room, .capacity = sizeof room};
    qr_report_result result = {.id = id, .count = (uint32_t)strlen(statuses), .statuses = bytes};
    for (uint32_t i = 0; i < result.count; i++)
        bytes[i] = (unsigned char)(statuses[i] - '0');
    qr_report_begin(&writer);
    if (result.count > 0)
        assert_true(qr_report_add(&writer, &result));
    qr_report_head head = {session, ++sequences[rank], worker, first_plan, rank, RANKS};
    int status = quire_transfer_give_report(transfer, qr_report_finish(&writer, &head));
    if (status != QUIRE_OK && status != QUIRE_LOST)
        sequences[rank]--;
    return status;
}

static quire_transfer_stats stats(void)
{
    quire_transfer_stats s = QUIRE_TRANSFER_STATS_INIT;
    assert_int_equal(quire_transfer_get_stats(transfer, &s), QUIRE_OK);
    return s;
}

static void submit_both(qr_plan_job *jobs)
{
    assert_int_equal(device()->submit(quire_transfer_device(transfer)->self, &copies), QUIRE_OK);
    assert_int_equal(quire_tier_submit(quire_transfer_get_tier(transfer, 0), &job), QUIRE_OK);
    take_plan(2, jobs);
    assert_int_equal(stats().jobs_in_flight, 2);
}

/* All ranks must have done it; the worst status counts. */
static void ranks_are_merged(void **state)
{
    (void)state;
    qr_plan_job jobs[2];
    quire_tier_job *ended[4];
    quire_tier *tier = quire_transfer_get_tier(transfer, 0);
    uint64_t mark = 9;
    assert_int_equal(device()->mark(NULL, &mark), QUIRE_OK);
    submit_both(jobs);
    assert_int_equal(jobs[0].kind, QR_PLAN_COPY_OUT);
    assert_int_equal(qr_plan_block(&jobs[0], 1), 6);
    assert_int_equal(qr_plan_slot(&jobs[0], 1), 8);
    assert_int_equal(jobs[1].kind, QR_PLAN_LOAD);
    assert_int_equal(jobs[1].flags, QR_PLAN_PREFIX);
    assert_int_equal(qr_plan_slot(&jobs[1], 3), 13);
    assert_in_range(jobs[1].timeout_ns, 1, 1000000000);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(poll_copies(), 0);
        assert_int_equal(quire_tier_poll(tier, ended, 4), 0);
        assert_int_equal(report(rank, 100 + rank, 1, jobs[0].id, "1"), QUIRE_OK);
        const char *statuses[RANKS] = {"1111", "1216", "1181"}; /* done, missing, late, cancelled */
        assert_int_equal(report(rank, 100 + rank, 1, jobs[1].id, statuses[rank]), QUIRE_OK);
    }
    assert_int_equal(poll_copies(), 1);
    assert_int_equal(copies.status, QUIRE_OK);
    assert_int_equal(quire_tier_poll(tier, ended, 4), 1);
    assert_int_equal(ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(ios[1].status, QUIRE_TIER_MISSING);
    assert_int_equal(ios[2].status, QUIRE_TIER_FAILED);
    assert_int_equal(ios[3].status, QUIRE_TIER_CANCELLED);
    assert_int_equal(stats().rank_failures, 3);
    assert_int_equal(stats().jobs_in_flight, 0);
    assert_int_equal(stats().plans, 1);
    assert_int_equal(stats().plan_bytes, plan.len);
    assert_int_equal(stats().reports, 6);
    assert_int_equal(stats().jobs, 2);
}

/* A rank that failed fails all. */
static void one_failed_copy(void **state)
{
    (void)state;
    qr_plan_job jobs[2];
    submit_both(jobs);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(report(rank, 5, 1, jobs[0].id, rank == 1 ? "5" : "1"), QUIRE_OK);
    assert_int_equal(poll_copies(), 1);
    assert_int_equal(copies.status, QUIRE_E_SYSTEM);
    assert_int_equal(copies.state, 0);
}

/* Results that no rank owes are counted, and change nothing. */
static void unknown_results(void **state)
{
    (void)state;
    qr_plan_job jobs[2];
    submit_both(jobs);
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_OK);
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_OK);         /* twice */
    assert_int_equal(report(1, 5, 1, jobs[0].id + 1, "1"), QUIRE_OK);     /* no such place */
    assert_int_equal(report(1, 5, 1, UINT64_MAX, "1"), QUIRE_OK);         /* not at all */
    assert_int_equal(report(1, 5, 1, jobs[0].id, "11"), QUIRE_OK);        /* other statuses */
    assert_int_equal(report(1, 5, 1, jobs[0].id + 65536, "1"), QUIRE_OK); /* another generation */
    assert_int_equal(stats().unknown_results, 5);
    assert_int_equal(poll_copies(), 0);
    quire_device_job more = copies; /* not in a plan that was taken */
    more.state = 0;
    assert_int_equal(device()->submit(quire_transfer_device(transfer)->self, &more), QUIRE_OK);
    assert_int_equal(report(1, 5, 1, (UINT64_C(3) << 16) + 1, "1"), QUIRE_OK);
    assert_int_equal(stats().unknown_results, 6);
}

static void refused_reports(void **state)
{
    (void)state;
    qr_plan_job jobs[2];
    submit_both(jobs);
    session++;
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_E_CORRUPT);
    assert_non_null(strstr(quire_refusal(), "another session"));
    session--;
    assert_int_equal(report(0, 0, 1, jobs[0].id, "1"), QUIRE_E_CORRUPT); /* no worker */
    assert_int_equal(report(0, 5, 2, jobs[0].id, "1"), QUIRE_E_CORRUPT); /* no such plan yet */
    assert_int_equal(report(0, 5, 0, jobs[0].id, "1"), QUIRE_E_CORRUPT);
    sequences[0] = 1;
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_E_CORRUPT); /* the first is missing */
    assert_non_null(strstr(quire_refusal(), "expected report 1"));
    sequences[0] = 0;
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_OK);
    sequences[0] = 0;
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_E_CORRUPT); /* twice */
    assert_int_equal(quire_transfer_give_report(transfer, plan), QUIRE_E_CORRUPT);
    assert_int_equal(quire_transfer_give_report(transfer, (quire_bytes){0}), QUIRE_E_CORRUPT);
    room[20] ^= 1;
    assert_int_equal(quire_transfer_give_report(transfer, (quire_bytes){room, 96}),
                     QUIRE_E_CORRUPT);
    assert_int_equal(stats().refused_reports, 9);
    assert_int_equal(stats().reports, 1);
}

/* A worker that restarted has lost what it had, also what it had reported. */
static void lost_worker(void **state)
{
    (void)state;
    qr_plan_job jobs[2];
    quire_tier_job *ended[4];
    submit_both(jobs);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(report(rank, 5, 1, jobs[1].id, "1111"), QUIRE_OK);
    quire_device_job more = copies;
    more.state = 0;
    assert_int_equal(device()->submit(quire_transfer_device(transfer)->self, &more), QUIRE_OK);
    take_plan(1, jobs + 1);
    sequences[1] = 0;
    assert_int_equal(report(1, 6, 2, jobs[1].id, "1"), QUIRE_LOST);
    assert_int_equal(quire_tier_poll(quire_transfer_get_tier(transfer, 0), ended, 4), 1);
    for (uint32_t i = 0; i < COUNT(ios); i++)
        assert_int_equal(ios[i].status, QUIRE_TIER_REFUSED);
    assert_int_equal(poll_copies(), 0); /* the other ranks still have the first copies */
    assert_int_equal(report(0, 5, 1, jobs[0].id, "1"), QUIRE_OK);
    assert_int_equal(report(2, 5, 1, jobs[0].id, "1"), QUIRE_OK);
    assert_int_equal(poll_copies(), 1);
    assert_int_equal(copies.status, QUIRE_E_SYSTEM);
    assert_int_equal(report(0, 5, 1, jobs[1].id, "1"), QUIRE_OK);
    assert_int_equal(report(2, 5, 1, jobs[1].id, "1"), QUIRE_OK);
    assert_int_equal(poll_copies(), 1);
    assert_int_equal(more.status, QUIRE_OK);
    assert_int_equal(stats().lost_workers, 1);
}

/* ---- keys that are known --------------------------------------------------- */

static quire_slots *known;
static char told[64]; /* '+' and '-', then the first byte of the hash */

static void note_change(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    assert_ptr_equal(user, told);
    assert_true(slot < 3);
    size_t n = strlen(told);
    assert_true(n + 3 < sizeof told);
    told[n] = is_there != 0 ? '+' : '-';
    told[n + 1] = (char)('0' + key->hash[0]);
}

/* A rank's report of keys that are gone; n = 0: all of the tier. */
static void report_gone(uint32_t rank, uint32_t tier, const quire_tier_key *keys, uint32_t n)
{
    qr_report_writer writer = {.bytes = room, .capacity = sizeof room};
    qr_report_begin(&writer);
    for (uint32_t i = 0; i < n || i == 0; i++)
        assert_true(qr_report_add_gone(&writer, tier, n == 0 ? NULL : &keys[i]));
    qr_report_head head = {session, ++sequences[rank], 5, 1, rank, RANKS};
    assert_int_equal(quire_transfer_give_report(transfer, qr_report_finish(&writer, &head)),
                     QUIRE_OK);
}

static void run_job(quire_tier_op op, const char *statuses)
{
    qr_plan_job planned;
    quire_tier_job *ended[4];
    quire_tier *tier = quire_transfer_get_tier(transfer, 0);
    job.op = op;
    job.state = 0;
    assert_int_equal(quire_tier_submit(tier, &job), QUIRE_OK);
    take_plan(1, &planned);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(report(rank, 5, 1, planned.id, statuses), QUIRE_OK);
    assert_int_equal(quire_tier_poll(tier, ended, 4), 1);
}

static const char *take_told(void)
{
    static char taken[sizeof told];
    memcpy(taken, told, sizeof told);
    memset(told, 0, sizeof told);
    return taken;
}

/* Again, with so many keys known at a time, and watched. */
static quire_tier *open_watched(uint32_t event_keys)
{
    quire_transfer_tier config_tier = {.label = "disk"};
    quire_transfer_config config = QUIRE_TRANSFER_CONFIG_INIT;
    quire_transfer_close(transfer);
    config.num_ranks = RANKS;
    config.num_tiers = 1;
    config.tiers = &config_tier;
    config.event_keys = event_keys;
    assert_int_equal(quire_transfer_open(&config, NULL, &transfer), QUIRE_OK);
    quire_tier *tier = quire_transfer_get_tier(transfer, 0);
    qr_tier_watch(tier, &known, note_change, told);
    assert_non_null(known);
    (void)take_told();
    return tier;
}

/* A rank may have evicted a key before the last rank says that it has stored it: with the end of
 * the job the key would be known for ever. */
static void gone_before_its_job_has_ended(void **state)
{
    (void)state;
    quire_tier_job *ended[4];
    for (uint32_t all = 0; all < 2; all++) {
        qr_plan_job planned;
        quire_tier *tier = open_watched(3);
        memset(sequences, 0, sizeof sequences);
        job.op = QUIRE_TIER_STORE;
        job.state = 0;
        assert_int_equal(quire_tier_submit(tier, &job), QUIRE_OK);
        take_plan(1, &planned);
        assert_int_equal(report(0, 5, 1, planned.id, "1155"), QUIRE_OK);
        report_gone(0, 0, &ios[1].key, 1 - all);
        assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
        assert_int_equal(report(1, 5, 1, planned.id, "1155"), QUIRE_OK);
        assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
        assert_int_equal(report(2, 5, 1, planned.id, "1155"), QUIRE_OK);
        assert_int_equal(quire_tier_poll(tier, ended, 4), 1);
        assert_string_equal(take_told(), "+1+0");
        assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
        assert_int_equal(strlen(take_told()), all ? 4 : 2); /* both are gone, or one is */
        run_job(QUIRE_TIER_STORE, "1155");                  /* and once more: it is over */
        assert_string_equal(take_told(), all ? "+1+0" : "+1");
        assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
        assert_string_equal(take_told(), "");
    }
}

/* A worker that restarts may have evicted what it did not tell. */
static void known_keys_of_a_lost_worker(void **state)
{
    (void)state;
    qr_report_writer writer = {.bytes = room, .capacity = sizeof room};
    (void)open_watched(3);
    run_job(QUIRE_TIER_STORE, "1155");
    assert_string_equal(take_told(), "+1+0");
    qr_report_begin(&writer);
    quire_bytes first = qr_report_finish(&writer, &(qr_report_head){session, 1, 6, 1, 2, RANKS});
    assert_int_equal(quire_transfer_give_report(transfer, first), QUIRE_LOST);
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_int_equal(strlen(take_told()), 4);
}

/* Of four keys three are known at a time. */
static void known_keys(void **state)
{
    (void)state;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = "new weights";
    quire_tier *tier = open_watched(3);
    run_job(QUIRE_TIER_STORE, "1151"); /* the last first: the end of a prompt is the oldest */
    assert_string_equal(take_told(), "+3+1+0");
    run_job(QUIRE_TIER_LOAD, "1111"); /* found; there is no room for all */
    assert_string_equal(take_told(), "-1+2-0+1-3+0");
    report_gone(1, 0, &ios[2].key, 1);
    assert_string_equal(take_told(), ""); /* behind the ends of the jobs of this report */
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_string_equal(take_told(), "-2");
    report_gone(2, 0, &ios[2].key, 1); /* by another rank too */
    report_gone(0, 3, &ios[0].key, 1); /* a tier that there is not */
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_string_equal(take_told(), "");
    run_job(QUIRE_TIER_LOAD, "1266"); /* missing */
    assert_string_equal(take_told(), "-1");
    run_job(QUIRE_TIER_STORE, "1155");
    assert_string_equal(take_told(), "+1");
    report_gone(0, 0, NULL, 0); /* the worker has lost count */
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_int_equal(strlen(take_told()), 4);
    run_job(QUIRE_TIER_STORE, "1155");
    (void)take_told();
    assert_int_equal(quire_tier_reset(tier), QUIRE_OK);
    assert_int_equal(strlen(take_told()), 4);
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK); /* the ranks reset */
    run_job(QUIRE_TIER_STORE, "1155");
    (void)take_told();
    assert_int_equal(quire_tier_set_identity(tier, fingerprint), QUIRE_OK);
    assert_int_equal(strlen(take_told()), 4);
}

/* Places and room are limits, not errors. */
static void full(void **state)
{
    (void)state;
    static quire_device_job many[QR_PLAN_COPY_JOBS + 1];
    void *self = quire_transfer_device(transfer)->self;
    for (uint32_t i = 0; i < COUNT(many); i++) {
        many[i] = copies;
        int expected = i < QR_PLAN_COPY_JOBS ? QUIRE_OK : QUIRE_FULL;
        assert_int_equal(device()->submit(self, &many[i]), expected);
    }
    assert_int_equal(device()->submit(self, &many[0]), QUIRE_E_ARGUMENT); /* in flight */
    quire_device_job wrong = copies;
    wrong.num_copies = QR_PLAN_MOST_COPIES + 1;
    assert_int_equal(device()->submit(self, &wrong), QUIRE_E_RANGE);
    quire_tier_job find = {.op = QUIRE_TIER_FIND, .num_ios = 1, .ios = ios};
    quire_tier_job *ended[4];
    assert_int_equal(quire_tier_submit(quire_transfer_get_tier(transfer, 0), &find), QUIRE_OK);
    assert_int_equal(quire_tier_poll(quire_transfer_get_tier(transfer, 0), ended, 4), 1);
    assert_int_equal(ios[0].status, QUIRE_TIER_REFUSED); /* ranks find what they load */
}

/* Commands have no reports. */
static void commands(void **state)
{
    (void)state;
    qr_plan_job jobs[5];
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = "new weights";
    quire_tier *tier = quire_transfer_get_tier(transfer, 0);
    quire_tier_key key = {.hash = "k"};
    assert_int_equal(quire_tier_touch(tier, &key, 1), QUIRE_OK);
    assert_int_equal(quire_tier_reset(tier), QUIRE_OK);
    assert_int_equal(quire_tier_set_identity(tier, fingerprint), QUIRE_OK);
    assert_int_equal(quire_tier_submit(tier, &job), QUIRE_OK);
    assert_int_equal(quire_tier_cancel(tier, &job), QUIRE_OK);
    take_plan(5, jobs);
    assert_int_equal(jobs[0].kind, QR_PLAN_TOUCH);
    assert_int_equal(jobs[1].kind, QR_PLAN_RESET);
    assert_int_equal(jobs[2].kind, QR_PLAN_IDENTITY);
    assert_memory_equal(jobs[2].items, fingerprint, sizeof fingerprint);
    assert_int_equal(jobs[4].kind, QR_PLAN_CANCEL);
    assert_int_equal(jobs[4].id, jobs[3].id);
    assert_int_equal(quire_transfer_take_plan(transfer, &plan), QUIRE_OK);
    assert_int_equal(plan.len, 0);
}

static void refused_configs(void **state)
{
    (void)state;
    quire_transfer *none = NULL;
    quire_transfer_tier tier = {.label = "x"};
    quire_transfer_config config = QUIRE_TRANSFER_CONFIG_INIT;
    config.num_ranks = QUIRE_TRANSFER_MAX_RANKS + 1;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "num_ranks"));
    config.num_ranks = 0;
    config.num_tiers = 1;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_E_CONFIG);
    config.tiers = &tier;
    tier.unused = 1;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "tiers[0]"));
    tier.unused = 0;
    tier.deadline_ns = UINT64_MAX;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_E_CONFIG);
    tier.deadline_ns = 0;
    config.num_tiers = QUIRE_TRANSFER_MAX_TIERS + 1;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_E_CONFIG);
    config.num_tiers = 1;
    tier.is_shared = tier.is_read_only = 1;
    assert_int_equal(quire_transfer_open(&config, NULL, &none), QUIRE_OK);
    const quire_tier_caps *caps = quire_tier_get_caps(quire_transfer_get_tier(none, 0));
    assert_true(caps->is_shared && caps->is_read_only && caps->loads_unknown);
    assert_null(quire_transfer_get_tier(none, 1));
    quire_transfer_close(none);
    assert_int_equal(quire_transfer_open(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_transfer_take_plan(NULL, &plan), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_transfer_give_report(NULL, plan), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_transfer_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
    assert_null(quire_transfer_device(NULL));
    quire_transfer_close(NULL);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        IN_WORLD(ranks_are_merged),
        IN_WORLD(one_failed_copy),
        IN_WORLD(unknown_results),
        IN_WORLD(refused_reports),
        IN_WORLD(lost_worker),
        IN_WORLD(full),
        IN_WORLD(commands),
        IN_WORLD(known_keys),
        IN_WORLD(gone_before_its_job_has_ended),
        IN_WORLD(known_keys_of_a_lost_worker),
        cmocka_unit_test(refused_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
