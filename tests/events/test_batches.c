/* events/test_batches.c - two tiers of one medium are one to a listener: a key is stored when the
 * first of them has it, and removed when the last of them has lost it. */
#include "events/publish/batches.h"
#include "sched/sched_kit.h"

enum { BLOCKS = 4, LEN = 32 };

static uint32_t give_three(void *user, quire_tier_usage *tiers, uint32_t capacity)
{
    (void)user;
    (void)capacity;
    tiers[0] = (quire_tier_usage){.name = "host", .medium = "CPU"};
    tiers[1] = (quire_tier_usage){.name = "file", .medium = "DISK"};
    tiers[2] = (quire_tier_usage){.name = "directory", .medium = "DISK"};
    return 3;
}

static int get_no_key(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id)
{
    (void)user;
    (void)block;
    (void)hash;
    (void)group_id;
    return QUIRE_MISS;
}

static void tell(quire_monitor *m, uint32_t tier, quire_event_kind kind, unsigned char key)
{
    const quire_block block = 2;
    unsigned char hash[LEN] = {key};
    quire_event event = {.size = sizeof(quire_event),
                         .kind = kind,
                         .blocks = &block,
                         .num_blocks = 1,
                         .hashes = hash,
                         .hash_bytes = LEN};
    assert_int_equal(quire_monitor_tell_event(m, tier, &event), QUIRE_OK);
}

/* How many events reach listeners with the next batch. */
static uint32_t heard(sched_kit *kit, qr_batches *batches)
{
    quire_bytes bytes;
    uint32_t num_events = 0;
    uint32_t sum = 0;
    kit_run(kit, 1);
    while (qr_batches_next(batches, &bytes, &num_events) == QUIRE_OK)
        sum += num_events;
    return sum;
}

static void tiers_of_one_medium_are_one(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_connector connector = {.size = sizeof(quire_connector), .get_tiers = give_three};
    quire_watched_blocks blocks = {
        .size = sizeof(quire_watched_blocks), .num_blocks = BLOCKS, .get_key = get_no_key};
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.monitor = &monitor;
    config.connector = &connector;
    kit_open(&kit, &config);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    for (uint32_t tier = 1; tier <= 3; tier++)
        assert_int_equal(quire_monitor_watch_blocks(m, tier, &blocks), QUIRE_OK);
    qr_batches_config batches_config = {.monitor = m};
    qr_batches *batches;
    assert_int_equal(qr_batches_create(&batches_config, &batches), QUIRE_OK);
    tell(m, 1, QUIRE_EVENT_STORED, 7); /* another medium */
    tell(m, 2, QUIRE_EVENT_STORED, 7);
    assert_int_equal(heard(&kit, batches), 2);
    tell(m, 3, QUIRE_EVENT_STORED, 7);
    assert_int_equal(heard(&kit, batches), 0);
    tell(m, 2, QUIRE_EVENT_REMOVED, 7);
    assert_int_equal(heard(&kit, batches), 0); /* the directory has it still */
    tell(m, 3, QUIRE_EVENT_REMOVED, 7);
    assert_int_equal(heard(&kit, batches), 1);
    tell(m, 1, QUIRE_EVENT_REMOVED, 7);
    assert_int_equal(heard(&kit, batches), 1);
    qr_batches_destroy(batches);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiers_of_one_medium_are_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
