/* tier/worker/test_worker.c - what a worker takes, refuses, moves and reports: copies, loads that
 * find, stores, commands, other planners, the self test. Inline, so that a run repeats. */
#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/transfer/plan.h"
#include "tier/transfer/report.h"

#include <quire/worker.h>

#include <unistd.h>

enum { BLOCKS = 8, SLOTS = 200, PAGE = 24, BYTES = 2 * PAGE, MOST_KEYS = 64 };

static unsigned char keys_of_layers[BLOCKS][2][PAGE]; /* K and V of a block lie side by side */
static unsigned char slots[SLOTS][BYTES];
static quire_device device;
static faulty *flawed;
static quire_tier *tier;
static quire_worker *worker;
static unsigned char room[1 << 16];
static qr_plan_writer writer = {.bytes = room, .capacity = sizeof room};
static uint64_t sequence;
static uint64_t generation;
static quire_bytes report;
static quire_worker_config config;
static quire_worker_tier tiers[1];

/* ---- the world ------------------------------------------------------------- */

static void open_device(void)
{
    quire_page_region regions[2] = {
        {.base = keys_of_layers[0][0], .stride = sizeof keys_of_layers[0], .bytes = PAGE},
        {.base = keys_of_layers[0][1], .stride = sizeof keys_of_layers[0], .bytes = PAGE}};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    pages.regions = regions;
    pages.num_regions = 2;
    pages.num_blocks = BLOCKS;
    pages.num_slots = SLOTS;
    pages.slots = slots;
    assert_int_equal(quire_device_pages_open(&pages, NULL, &device), QUIRE_OK);
}

static int open_world(void **state)
{
    (void)state;
    flawed = faulty_create(
        &(faulty_config){.max_keys = 300, .max_bytes = BYTES, .seed = 3, .is_shared = true});
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.ops = faulty_ops();
    common.self = flawed;
    common.run_inline = QUIRE_ON;
    common.breaker_strikes = 1000;
    assert_int_equal(quire_tier_open(&common, NULL, &tier), QUIRE_OK);
    open_device();
    tiers[0] = (quire_worker_tier){.tier = tier, .store_bytes = 0, .max_waiting_stores = 0};
    config = (quire_worker_config)QUIRE_WORKER_CONFIG_INIT;
    config.rank = 1;
    config.num_ranks = 2;
    config.key_rank = 7;
    config.device = device;
    config.memory = slots;
    config.block_bytes = BYTES;
    config.num_slots = SLOTS;
    config.tiers = tiers;
    config.num_tiers = 1;
    config.run_inline = QUIRE_ON;
    assert_int_equal(quire_worker_create(&config, NULL, &worker), QUIRE_OK);
    sequence = 0;
    qr_plan_begin(&writer);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100 && quire_worker_has_pending(worker); i++)
        (void)quire_worker_poll(worker, &report);
    assert_int_equal(quire_worker_destroy(worker), QUIRE_OK);
    assert_int_equal(quire_tier_close(tier), QUIRE_OK);
    quire_device_close(&device);
    return 0;
}

static quire_tier_key key_of(uint32_t n)
{
    quire_tier_key key = faulty_key(n);
    key.rank = 7;
    return key;
}

static void fill_block(quire_block block, uint32_t n)
{
    quire_tier_key key = key_of(n);
    faulty_pattern(&key, keys_of_layers[block], BYTES);
}

static bool has_block(quire_block block, uint32_t n)
{
    quire_tier_key key = key_of(n);
    return faulty_is_pattern(&key, keys_of_layers[block], BYTES);
}

/* ---- plans ----------------------------------------------------------------- */

static uint64_t add_copies(uint8_t kind, quire_block block, uint32_t slot, uint32_t n)
{
    generation++;
    qr_plan_job job = {
        .id = generation << 16 | generation % QR_PLAN_COPY_JOBS, .kind = kind, .count = n};
    unsigned char *items = qr_plan_add(&writer, &job);
    for (uint32_t i = 0; i < n; i++)
        qr_plan_put_copy(items, i, block + i, slot + i);
    return job.id;
}

static uint64_t add_keys(uint8_t kind, uint16_t flags, uint32_t first, uint32_t slot, uint32_t n)
{
    generation++;
    qr_plan_job job = {.id = generation << 16 | (QR_PLAN_COPY_JOBS + generation % 200),
                       .kind = kind,
                       .flags = flags,
                       .count = n};
    if (kind == QR_PLAN_TOUCH)
        job.id = 0;
    unsigned char *items = qr_plan_add(&writer, &job);
    for (uint32_t i = 0; i < n; i++) {
        quire_tier_key key = key_of(first + i);
        qr_plan_put_key(items, i, &key, slot + i);
    }
    return job.id;
}

static int submit(void)
{
    int status = quire_worker_submit(worker, qr_plan_finish(&writer, 99, sequence + 1));
    sequence += status == QUIRE_OK;
    qr_plan_begin(&writer);
    return status;
}

/* The statuses of a job, as a text of digits; "" as long as it is not reported. */
static const char *await(uint64_t id)
{
    static char text[MOST_KEYS + 1];
    memset(text, 0, sizeof text);
    for (uint32_t i = 0; i < 60; i++) {
        qr_report read;
        qr_report_result result;
        assert_int_equal(quire_worker_poll(worker, &report), QUIRE_OK);
        if (report.len == 0)
            continue;
        assert_int_equal(qr_report_read(report, &read), QUIRE_OK);
        assert_int_equal(read.head.rank, 1);
        assert_int_equal(read.head.num_ranks, 2);
        while (qr_report_next(&read, &result))
            for (uint32_t k = 0; result.id == id && k < result.count; k++)
                text[k] = (char)('0' + result.statuses[k]);
        if (text[0] != 0)
            return text;
    }
    return text;
}

static quire_worker_stats stats(void)
{
    quire_worker_stats s = QUIRE_WORKER_STATS_INIT;
    assert_int_equal(quire_worker_get_stats(worker, &s), QUIRE_OK);
    assert_int_equal(s.size, sizeof s);
    return s;
}

/* Blocks 1 to n to slots and into the tier, as keys 1 to n. */
static void store(uint32_t n)
{
    for (uint32_t i = 1; i <= n; i++)
        fill_block(i, i);
    uint64_t id = add_copies(QR_PLAN_COPY_OUT, 1, 1, n);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "1");
    id = add_keys(QR_PLAN_STORE, 0, 1, 1, n);
    assert_int_equal(submit(), QUIRE_OK);
    assert_int_equal(strspn(await(id), "1"), n);
}

/* ---- tests ----------------------------------------------------------------- */

static void there_and_back(void **state)
{
    (void)state;
    store(3);
    uint64_t id = add_keys(QR_PLAN_LOAD, QR_PLAN_PREFIX, 1, 50, 3);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "111");
    id = add_copies(QR_PLAN_COPY_IN, 4, 50, 3);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "1");
    for (uint32_t i = 1; i <= 3; i++)
        assert_true(has_block(3 + i, i));
    quire_worker_stats s = stats();
    assert_int_equal(s.copies_out, 3);
    assert_int_equal(s.copies_in, 3);
    assert_int_equal(s.loaded_keys, 3);
    assert_int_equal(s.stored_keys, 3);
    assert_int_equal(s.plans, 4);
    assert_true(s.reports >= 4 && s.jobs_in_flight == 0);
    quire_tier_key key = key_of(2);
    assert_true(faulty_has(flawed, &key)); /* under the worker's key_rank */
}

/* What is not there: of a prefix one key is asked, of others all. */
static void missing_keys(void **state)
{
    (void)state;
    uint64_t begun = faulty_num_begun(flawed);
    uint64_t id = add_keys(QR_PLAN_LOAD, QR_PLAN_PREFIX, 40, 50, 64);
    assert_int_equal(submit(), QUIRE_OK);
    const char *statuses = await(id);
    assert_int_equal(statuses[0], '2');
    assert_int_equal(strspn(statuses + 1, "6"), 63);
    assert_int_equal(faulty_num_begun(flawed), begun + 1);
    store(2);
    id = add_keys(QR_PLAN_LOAD, QR_PLAN_PREFIX, 1, 50, 4); /* keys 3 and 4 are not there */
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "1122");
    id = add_keys(QR_PLAN_LOAD, 0, 2, 50, 2);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "12");
    assert_int_equal(stats().missing_keys, 4);
}

static void faults(void **state)
{
    (void)state;
    store(4);
    faulty_set(flawed, FAULTY_FLIP, 1000);
    uint64_t id = add_keys(QR_PLAN_LOAD, 0, 1, 50, 4);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "4444"); /* corrupt */
    assert_int_equal(stats().corrupt_keys, 4);
    faulty_set(flawed, FAULTY_FLIP, 0);
    faulty_set(flawed, FAULTY_FAIL, 1000);
    id = add_keys(QR_PLAN_LOAD, 0, 1, 50, 4);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "5555");
    assert_int_equal(stats().failed_keys, 4);
    faulty_set(flawed, FAULTY_FAIL, 0);
    id = add_copies(QR_PLAN_COPY_IN, 5, 50, 2); /* what did not come is not used */
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "5");
    id = add_keys(QR_PLAN_STORE, 0, 60, 50, 2);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "55");
    id = add_copies(QR_PLAN_COPY_OUT, BLOCKS, 60, 1); /* there is no such block */
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "5");
    assert_int_equal(stats().failed_copies, 3);
}

/* The memory stays the worker's until the end of a late job; then it is reported as late. */
static void late_loads(void **state)
{
    (void)state;
    store(1);
    faulty_hold(flawed, true);
    qr_plan_job job = {.id = UINT64_C(900) << 16 | (QR_PLAN_COPY_JOBS + 250),
                       .kind = QR_PLAN_LOAD,
                       .count = 1,
                       .timeout_ns = 1000};
    quire_tier_key key = key_of(1);
    qr_plan_put_key(qr_plan_add(&writer, &job), 0, &key, 60);
    assert_int_equal(submit(), QUIRE_OK);
    (void)usleep(2000);
    const char *statuses = await(job.id);
    assert_true(statuses[0] == 0 || statuses[0] == '8' || statuses[0] == '6');
    faulty_hold(flawed, false);
    if (statuses[0] == 0)
        statuses = await(job.id);
    assert_int_equal(statuses[0], '8');
    assert_int_equal(stats().late_keys, 1);
}

/* Loads go first; stores beyond what may wait are dropped. */
static void stores_are_dropped(void **state)
{
    (void)state;
    uint64_t ids[80];
    store(4);
    assert_int_equal(close_world(NULL), 0);
    assert_int_equal(open_world(NULL), 0);
    tiers[0].max_waiting_stores = 2;
    tiers[0].store_bytes = BYTES;
    quire_worker *few;
    assert_int_equal(quire_worker_create(&config, NULL, &few), QUIRE_OK);
    assert_int_equal(quire_worker_destroy(worker), QUIRE_OK);
    worker = few;
    store(4);
    faulty_hold(flawed, true);
    for (uint32_t i = 0; i < 8; i++)
        ids[i] = add_keys(QR_PLAN_STORE, 0, 100 + i, 1, 1);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(ids[7]), "7"); /* two may wait */
    faulty_hold(flawed, false);
    assert_string_equal(await(ids[1]), "1");
    assert_int_equal(stats().dropped_keys, 6);
}

/* MLA: another rank stores the same bytes. */
static void one_writer(void **state)
{
    (void)state;
    store(2);
    config.stores = QUIRE_OFF;
    config.rank = 1;
    assert_int_equal(quire_worker_destroy(worker), QUIRE_OK);
    assert_int_equal(quire_worker_create(&config, NULL, &worker), QUIRE_OK);
    sequence = 0;
    uint64_t id = add_keys(QR_PLAN_STORE, 0, 100, 1, 2);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "11");
    quire_tier_key key = key_of(100);
    assert_false(faulty_has(flawed, &key));
    id = add_keys(QR_PLAN_LOAD, QR_PLAN_PREFIX, 1, 50, 2);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "11");
}

static void commands(void **state)
{
    (void)state;
    store(2);
    faulty_hold(flawed, true);
    uint64_t id = add_keys(QR_PLAN_LOAD, 0, 1, 50, 2);
    (void)add_keys(QR_PLAN_TOUCH, 0, 1, 0, 2);
    qr_plan_job cancel = {.id = id, .kind = QR_PLAN_CANCEL};
    (void)qr_plan_add(&writer, &cancel);
    assert_int_equal(submit(), QUIRE_OK);
    faulty_hold(flawed, false);
    const char *statuses = await(id);
    assert_true(strcmp(statuses, "66") == 0 || strcmp(statuses, "11") == 0);
    qr_plan_job reset = {.kind = QR_PLAN_RESET};
    (void)qr_plan_add(&writer, &reset);
    assert_int_equal(submit(), QUIRE_OK);
    id = add_keys(QR_PLAN_LOAD, 0, 1, 50, 2);
    assert_int_equal(submit(), QUIRE_OK);
    assert_string_equal(await(id), "22");
}

static void refuse(const char *what)
{
    assert_int_equal(submit(), QUIRE_E_CORRUPT);
    if (strstr(quire_refusal(), what) == NULL)
        fail_msg("\"%s\" has no \"%s\"", quire_refusal(), what);
}

/* A plan is taken as a whole, or not at all. */
static void refused_plans(void **state)
{
    (void)state;
    fill_block(1, 1);
    (void)add_copies(QR_PLAN_COPY_OUT, 1, 1, 1);
    (void)add_copies(QR_PLAN_COPY_OUT, 1, SLOTS, 1);
    refuse("slot");
    (void)add_copies(QR_PLAN_COPY_OUT, 1, 0, 1);
    refuse("slot");
    (void)add_keys(QR_PLAN_LOAD, 0, 1, SLOTS - 1, 2);
    refuse("slot");
    qr_plan_job job = {.id = 5, .kind = QR_PLAN_COPY_OUT, .count = 1};
    for (uint32_t i = 0; i < 2; i++)
        qr_plan_put_copy(qr_plan_add(&writer, &job), 0, 1, 1);
    refuse("place 5");
    job.id = QR_PLAN_COPY_JOBS;
    qr_plan_put_copy(qr_plan_add(&writer, &job), 0, 1, 1);
    refuse("place 64");
    job = (qr_plan_job){.kind = QR_PLAN_RESET, .tier = 1};
    (void)qr_plan_add(&writer, &job);
    refuse("tier 1");
    sequence++;
    (void)add_copies(QR_PLAN_COPY_OUT, 1, 1, 1);
    assert_int_equal(submit(), QUIRE_OK); /* a worker may come late */
    sequence++;
    (void)add_copies(QR_PLAN_COPY_OUT, 1, 1, 1);
    refuse("expected plan 3");
    assert_int_equal(quire_worker_submit(worker, (quire_bytes){"QPLN", 4}), QUIRE_E_CORRUPT);
    assert_int_equal(stats().refused_plans, 8);
    assert_int_equal(stats().plans, 1);
    assert_true(quire_worker_has_pending(worker));
    assert_int_equal(quire_worker_destroy(worker), QUIRE_BUSY);
}

/* Another planner waits until the jobs of the one before have ended. */
static void another_planner(void **state)
{
    (void)state;
    uint64_t id = add_copies(QR_PLAN_COPY_OUT, 1, 1, 1);
    assert_int_equal(submit(), QUIRE_OK);
    (void)add_copies(QR_PLAN_COPY_OUT, 2, 2, 1);
    quire_bytes other = qr_plan_finish(&writer, 100, 1);
    assert_int_equal(quire_worker_submit(worker, other), QUIRE_BUSY);
    assert_string_equal(await(id), "1");
    assert_int_equal(quire_worker_submit(worker, other), QUIRE_OK);
    assert_int_equal(quire_worker_poll(worker, &report), QUIRE_OK);
    qr_report read;
    assert_int_equal(qr_report_read(report, &read), QUIRE_OK);
    assert_int_equal(read.head.session, 100);
    assert_int_equal(read.head.sequence, 1);
    assert_int_equal(read.head.first_plan, 1);
}

/* A device that mixes blocks up is found out, and so is a tier that forgets. */
static void self_test(void **state)
{
    (void)state;
    assert_int_equal(quire_worker_self_test(worker, 1, 2, 1000000000), QUIRE_OK);
    assert_int_equal(quire_worker_self_test(worker, 1, 1, 1000000000), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_self_test(worker, 1, BLOCKS, 1000000000), QUIRE_E_SYSTEM);
    faulty_set(flawed, FAULTY_FAIL, 1000);
    assert_int_equal(quire_worker_self_test(worker, 1, 2, 1000000000), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "failed"));
    faulty_set(flawed, FAULTY_FAIL, 0);
    uint64_t id = add_copies(QR_PLAN_COPY_OUT, 1, 1, 1);
    assert_int_equal(submit(), QUIRE_OK);
    assert_int_equal(quire_worker_self_test(worker, 1, 2, 1000000000), QUIRE_BUSY);
    assert_string_equal(await(id), "1");
}

static int copy_nothing(void *self, quire_device_job *job)
{
    int status = device.ops->submit(self, job);
    for (uint32_t i = 0; job->op == QUIRE_DEVICE_STORE && i < job->num_copies; i++)
        memset(slots[job->copies[i].slot], 7, BYTES);
    return status;
}

static void self_test_of_a_wrong_device(void **state)
{
    (void)state;
    quire_device_ops ops = *device.ops;
    quire_worker *wrong;
    ops.submit = copy_nothing;
    config.device = (quire_device){.ops = &ops, .self = device.self};
    assert_int_equal(quire_worker_create(&config, NULL, &wrong), QUIRE_OK);
    assert_int_equal(quire_worker_self_test(wrong, 1, 2, 1000000000), QUIRE_E_CORRUPT);
    assert_non_null(strstr(quire_refusal(), "do not use it"));
    assert_int_equal(quire_worker_destroy(wrong), QUIRE_OK);
}

#define REFUSED(field, value, word)                                                                \
    do {                                                                                           \
        quire_worker_config wrong = config;                                                        \
        quire_worker *none = NULL;                                                                 \
        wrong.field = value;                                                                       \
        assert_int_equal(quire_worker_create(&wrong, NULL, &none), QUIRE_E_CONFIG);                \
        assert_non_null(strstr(quire_refusal(), word));                                            \
        assert_null(none);                                                                         \
    } while (0)

static void refused_configs(void **state)
{
    (void)state;
    REFUSED(rank, 2, "rank");
    REFUSED(num_ranks, QUIRE_TRANSFER_MAX_RANKS + 1, "num_ranks");
    REFUSED(stores, QUIRE_OFF + 1, "stores");
    REFUSED(device.ops, NULL, "device");
    REFUSED(memory, NULL, "memory");
    REFUSED(block_bytes, 0, "block_bytes");
    REFUSED(num_slots, 1, "num_slots");
    REFUSED(num_tiers, QUIRE_TRANSFER_MAX_TIERS + 1, "num_tiers");
    REFUSED(tiers, NULL, "tiers");
    REFUSED(run_inline, QUIRE_OFF + 1, "run_inline");
    tiers[0].unused = 1;
    REFUSED(key_rank, 0, "unused");
    tiers[0] = (quire_worker_tier){0};
    REFUSED(key_rank, 0, "tier is NULL");
    assert_int_equal(quire_worker_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_poll(worker, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_submit(NULL, report), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_destroy(NULL), QUIRE_OK);
    assert_int_equal(quire_worker_has_pending(NULL), 0);
    quire_worker *gone;
    config.tiers = tiers;
    tiers[0].tier = tier;
    assert_int_equal(quire_worker_create(&config, NULL, &gone), QUIRE_OK);
    assert_int_equal(quire_worker_abandon(gone), QUIRE_OK);
    assert_int_equal(quire_worker_poll(gone, &report), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_worker_destroy(gone), QUIRE_OK);
}

#define WRONG_PAGES(field, value)                                                                  \
    do {                                                                                           \
        quire_device_pages_config wrong = pages;                                                   \
        quire_device none = {0};                                                                   \
        wrong.field = value;                                                                       \
        assert_int_equal(quire_device_pages_open(&wrong, NULL, &none), QUIRE_E_CONFIG);            \
        assert_true(quire_refusal()[0] != 0);                                                      \
    } while (0)

static void refused_pages(void **state)
{
    (void)state;
    quire_page_region regions[2] = {{.base = keys_of_layers[0][0], .stride = BYTES, .bytes = PAGE},
                                    {.base = keys_of_layers[0][1], .stride = BYTES, .bytes = PAGE}};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    pages.regions = regions;
    pages.num_regions = 2;
    pages.num_blocks = BLOCKS;
    pages.num_slots = SLOTS;
    pages.slots = slots;
    WRONG_PAGES(regions, NULL);
    WRONG_PAGES(num_regions, 0);
    WRONG_PAGES(num_blocks, 0);
    WRONG_PAGES(num_slots, 0);
    WRONG_PAGES(slots, NULL);
    regions[1].bytes = PAGE + 1; /* into the next block's K */
    WRONG_PAGES(num_slots, SLOTS);
    assert_non_null(strstr(quire_refusal(), "in common"));
    regions[1] = regions[0];
    WRONG_PAGES(num_slots, SLOTS);
    regions[1].base = NULL;
    WRONG_PAGES(num_slots, SLOTS);
    regions[1] = (quire_page_region){keys_of_layers[0][1], PAGE - 1, PAGE};
    WRONG_PAGES(num_slots, SLOTS);
    assert_int_equal(quire_device_pages_open(&pages, NULL, NULL), QUIRE_E_ARGUMENT);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        IN_WORLD(there_and_back),
        IN_WORLD(missing_keys),
        IN_WORLD(faults),
        IN_WORLD(late_loads),
        IN_WORLD(stores_are_dropped),
        IN_WORLD(one_writer),
        IN_WORLD(commands),
        IN_WORLD(refused_plans),
        IN_WORLD(another_planner),
        IN_WORLD(self_test),
        IN_WORLD(self_test_of_a_wrong_device),
        IN_WORLD(refused_configs),
        cmocka_unit_test(refused_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
