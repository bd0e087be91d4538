/* tier/worker/test_worker_gone.c - keys that a worker's tier has evicted, in its reports. */
#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/transfer/plan.h"
#include "tier/worker/worker.h"

#include <quire/slots.h>

enum { BLOCKS = 4, SLOTS = 8, BYTES = 32, KEY_RANK = 7, MANY = QR_WORKER_GONE + 1 };

static unsigned char blocks[BLOCKS][BYTES];
static unsigned char slab[SLOTS][BYTES];
static quire_device device;
static quire_tier_ops ops;
static quire_slots *slots; /* of the tier; the test changes them */
static quire_tier *tier;
static quire_worker *worker;
static quire_bytes report;

static quire_slots *get_slots(void *self)
{
    (void)self;
    return slots;
}

static void open_worker(quire_switch tells_gone)
{
    quire_worker_config config = QUIRE_WORKER_CONFIG_INIT;
    quire_worker_tier tiers[1] = {{.tier = tier}};
    config.key_rank = KEY_RANK;
    config.device = device;
    config.memory = slab;
    config.block_bytes = BYTES;
    config.num_slots = SLOTS;
    config.tiers = tiers;
    config.num_tiers = 1;
    config.tells_gone = tells_gone;
    config.run_inline = QUIRE_ON;
    assert_int_equal(quire_worker_create(&config, NULL, &worker), QUIRE_OK);
}

static int open_world(void **state)
{
    (void)state;
    quire_page_region region = {.base = blocks, .stride = BYTES, .bytes = BYTES};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    pages.regions = &region;
    pages.num_regions = 1;
    pages.num_blocks = BLOCKS;
    pages.num_slots = SLOTS;
    pages.slots = slab;
    assert_int_equal(quire_device_pages_open(&pages, NULL, &device), QUIRE_OK);
    config.num_slots = MANY + 2;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_OK);
    ops = *faulty_ops();
    ops.slots = get_slots;
    common.ops = &ops;
    common.self = faulty_create(&(faulty_config){.max_keys = 9, .max_bytes = BYTES, .seed = 3});
    common.run_inline = QUIRE_ON;
    assert_int_equal(quire_tier_open(&common, NULL, &tier), QUIRE_OK);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    assert_int_equal(quire_worker_destroy(worker), QUIRE_OK);
    assert_int_equal(quire_tier_close(tier), QUIRE_OK);
    quire_device_close(&device);
    quire_slots_destroy(slots);
    return 0;
}

static quire_tier_key key_of(uint32_t n)
{
    quire_tier_key key = faulty_key(n);
    key.rank = KEY_RANK;
    return key;
}

static void put(quire_tier_key key)
{
    uint32_t slot;
    uint32_t num_evicted;
    uint8_t is_new;
    assert_int_equal(quire_slots_prepare_store(slots, &key, 1, &slot, &is_new, NULL, &num_evicted),
                     QUIRE_OK);
    assert_int_equal(quire_slots_complete_store(slots, &key, 1, 1), QUIRE_OK);
}

static void evict(quire_tier_key key)
{
    assert_int_equal(quire_slots_remove(slots, &key), QUIRE_OK);
}

/* A plan of one copy: from now on there is a planner to report to. */
static void begin_session(void)
{
    static unsigned char room[256];
    qr_plan_writer writer = {.bytes = room, .capacity = sizeof room};
    qr_plan_job job = {.id = UINT64_C(1) << 16, .kind = QR_PLAN_COPY_OUT, .count = 1};
    qr_plan_begin(&writer);
    qr_plan_put_copy(qr_plan_add(&writer, &job), 0, 1, 1);
    assert_int_equal(quire_worker_submit(worker, qr_plan_finish(&writer, 99, 1)), QUIRE_OK);
}

/* How many keys the next report names; the first and the last of them. */
static uint32_t read_gone(quire_tier_key *first, quire_tier_key *last)
{
    qr_report read;
    qr_report_result result;
    uint32_t n = 0;
    uint32_t place;
    assert_int_equal(quire_worker_poll(worker, &report), QUIRE_OK);
    if (report.len == 0)
        return 0;
    assert_int_equal(qr_report_read(report, &read), QUIRE_OK);
    while (qr_report_next(&read, &result))
        ;
    while (qr_report_next_gone(&read, &place, last)) {
        assert_int_equal(place, 0);
        *first = n++ == 0 ? *last : *first;
    }
    return n;
}

/* They are named once; what belongs to another rank, or to the self test, is not. */
static void evicted_keys(void **state)
{
    (void)state;
    quire_tier_key first;
    quire_tier_key last;
    quire_tier_key other = key_of(1);
    quire_tier_key tested = key_of(1);
    other.rank++;
    tested.group = QR_REPORT_ALL_GONE;
    open_worker(QUIRE_ON);
    put(other);
    put(tested);
    put(key_of(0));
    put(key_of(1));
    evict(key_of(0));
    assert_int_equal(read_gone(&first, &last), 0); /* no planner yet */
    begin_session();
    evict(other);
    evict(tested);
    evict(key_of(1));
    assert_int_equal(read_gone(&first, &last), 2);
    assert_memory_equal(first.hash, key_of(0).hash, QUIRE_TIER_HASH_BYTES);
    assert_memory_equal(last.hash, key_of(1).hash, QUIRE_TIER_HASH_BYTES);
    assert_int_equal(last.group, key_of(1).group);
    assert_int_equal(last.rank, 0);
    assert_int_equal(read_gone(&first, &last), 0);
}

/* If they are too many for a report, all may be gone. */
static void too_many_keys(void **state)
{
    (void)state;
    quire_tier_key first;
    quire_tier_key last;
    open_worker(QUIRE_ON);
    begin_session();
    for (uint32_t round = 0; round < 3; round++) { /* places are used again */
        for (uint32_t i = 0; i < MANY; i++)
            put(key_of(i));
        for (uint32_t i = 0; i < MANY; i++)
            evict(key_of(i));
        assert_int_equal(read_gone(&first, &last), MANY);
        assert_memory_equal(first.hash, key_of(0).hash, QUIRE_TIER_HASH_BYTES);
        assert_int_equal(last.group, QR_REPORT_ALL_GONE);
        assert_int_equal(read_gone(&first, &last), 0);
    }
}

/* A tier that is closed first is not watched any more, or one whose worker was not asked. */
static void not_watched(void **state)
{
    (void)state;
    quire_tier_key first;
    quire_tier_key last;
    open_worker(QUIRE_OFF);
    begin_session();
    put(key_of(5));
    evict(key_of(5));
    assert_int_equal(read_gone(&first, &last), 0);
    assert_int_equal(quire_worker_destroy(worker), QUIRE_OK);
    open_worker(QUIRE_ON);
    begin_session();
    put(key_of(5));
    assert_int_equal(quire_tier_close(tier), QUIRE_OK);
    evict(key_of(5));
    assert_int_equal(read_gone(&first, &last), 0);
    tier = NULL;
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {IN_WORLD(evicted_keys), IN_WORLD(too_many_keys),
                                       IN_WORLD(not_watched)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
