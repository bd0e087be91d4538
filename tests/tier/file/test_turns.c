/* tier/file/test_turns.c - the private file on a disk in memory, turn by turn: what waits for what,
 * what a scan finds, and what is written when the disk fails in the middle of a reset. */
#include "tier/file/disk.h"
#include "tier/file/file_kit.h"

#include <string.h>

enum { SMALL = 512 };

typedef struct world {
    file_kit kit;
    file_disk disk;
    quire_tier_job job; /* a second one */
    quire_tier_io ios[4];
    unsigned char memory[4 * SMALL];
} world;

static world w;
static uint64_t now_ns;

static uint64_t get_now(void *user)
{
    (void)user;
    return now_ns;
}

static void open_tier(void)
{
    assert_int_equal(disk_open(&w.disk, &w.kit.config, &w.kit.common, &w.kit.tier), QUIRE_OK);
}

static void begin(uint32_t num_blocks, uint32_t depth)
{
    kit_begin(&w.kit, num_blocks, SMALL);
    w.kit.config.depth = depth;
    w.kit.common.hooks.now_ns = get_now;
    now_ns = 1000000000;
    disk_init(&w.disk, w.kit.config.capacity_bytes, 1);
    open_tier();
}

static void end(void)
{
    kit_end(&w.kit);
    disk_free(&w.disk);
}

static qr_file_layout layout_of(void)
{
    qr_file_layout layout;
    assert_true(qr_file_layout_plan(w.kit.config.capacity_bytes, SMALL, &layout));
    return layout;
}

static void submit_second(quire_tier_op op, uint64_t first, uint32_t n)
{
    w.job = (quire_tier_job){.op = op, .num_ios = n, .ios = w.ios};
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *block = w.memory + (size_t)i * SMALL;
        w.ios[i] = (quire_tier_io){.key = kit_key(first + i), .memory = block, .bytes = SMALL};
        kit_fill(block, SMALL, first + i);
    }
    assert_int_equal(quire_tier_submit(w.kit.tier, &w.job), QUIRE_OK);
}

/* Whether the second job ends within some turns. */
static bool has_second_ended(void)
{
    quire_tier_job *ended[1];
    for (uint32_t i = 0; i < 100; i++)
        if (quire_tier_poll(w.kit.tier, ended, 1) == 1)
            return ended[0] == &w.job;
    return false;
}

static void let_it_work(void)
{
    quire_tier_job *ended[1];
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(quire_tier_poll(w.kit.tier, ended, 1), 0);
}

/* Reads hang from here on, until they are let go. */
static void hang_reads(void)
{
    w.disk.fault = DISK_NEVER;
    w.disk.reads = 1;
    w.disk.one_in = 1;
}

static void let_reads_go(uint32_t num_loads)
{
    w.disk.is_let_go = true;
    kit_wait(&w.kit);
    for (uint32_t i = 0; i < num_loads; i++)
        assert_int_equal(w.kit.ios[i].status, QUIRE_TIER_DONE);
}

/* ---- what waits for what ------------------------------------------------------ */

/* A job that waits behind reads that hang is given back when it is cancelled. */
static void test_cancelled_while_it_waits(void **state)
{
    (void)state;
    begin(20, 1);
    assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, 0, 8, QUIRE_TIER_DONE), 8);
    hang_reads();
    kit_submit(&w.kit, QUIRE_TIER_LOAD, 0, 1);
    submit_second(QUIRE_TIER_LOAD, 4, 4);
    assert_false(has_second_ended());
    assert_int_equal(quire_tier_cancel(w.kit.tier, &w.job), QUIRE_OK);
    assert_true(has_second_ended());
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(w.ios[i].status, QUIRE_TIER_CANCELLED);
    let_reads_go(1);
    end();
}

/* Reads come first, but a part of the depth is left for what is stored. */
static void test_stores_beside_reads(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth < 6; depth++) {
        begin(20, depth);
        assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, 0, 8, QUIRE_TIER_DONE), 8);
        hang_reads();
        kit_submit(&w.kit, QUIRE_TIER_LOAD, 0, 8);
        uint32_t num_before = w.disk.num_waiting;
        submit_second(QUIRE_TIER_STORE, 10, 4);
        assert_int_equal(w.disk.num_waiting - num_before, depth < 5 ? 1 : 2);
        assert_true(has_second_ended());
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(w.ios[i].status, QUIRE_TIER_DONE);
        let_reads_go(8);
        end();
    }
}

static void (*disk_submit)(qr_file_io *io, qr_file_op *op);
static uint32_t (*disk_wait)(qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                             uint32_t capacity);
static bool is_next_given; /* the read of the second block: submitted, */
static bool is_next_begun; /* and begun */

static void note_next(qr_file_io *io, qr_file_op *op)
{
    is_next_given = is_next_given || op->memory == w.kit.ios[1].memory;
    disk_submit(io, op);
}

static uint32_t expect_unchecked(qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                                 uint32_t capacity)
{
    if (is_next_given && !is_next_begun) {
        assert_int_equal(w.kit.ios[0].status, QUIRE_TIER_PENDING);
        is_next_begun = true;
    }
    return disk_wait(io, wake_fd, timeout_ms, ended, capacity);
}

/* The disk is at work on the next block while the bytes of the last one are checked. */
static void test_disk_is_kept_busy(void **state)
{
    (void)state;
    begin(20, 1);
    assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, 0, 2, QUIRE_TIER_DONE), 2);
    is_next_given = is_next_begun = false;
    disk_submit = w.disk.io.submit;
    disk_wait = w.disk.io.wait;
    w.disk.io.submit = note_next;
    w.disk.io.wait = expect_unchecked;
    assert_int_equal(kit_load_all(&w.kit, 0, 2), 2);
    assert_true(is_next_begun);
    end();
}

/* ---- without an index --------------------------------------------------------- */

static void close_and_lose_index(void)
{
    qr_file_layout layout = layout_of();
    kit_close(&w.kit);
    for (uint32_t i = 0; i < 2; i++)
        memset(w.disk.image + layout.index_at[i], 0, QR_FILE_PAGE);
}

/* Opens it, and turns until all slots were read; nobody asks for a block meanwhile. */
static void open_and_scan(const char *words)
{
    quire_tier_job *ended[1];
    w.kit.log[0] = 0;
    open_tier();
    for (uint32_t i = 0; i < 20000 && strstr(w.kit.log, words) == NULL; i++)
        assert_int_equal(quire_tier_poll(w.kit.tier, ended, 1), 0);
    assert_non_null(strstr(w.kit.log, words));
}

/* One call takes over a thousand blocks of those that were found, and the next ones the others. */
static void test_many_are_found(void **state)
{
    enum { MANY = 1200, AT_ONCE = QR_AT_A_TIME(1024, 2) };
    static quire_tier_key keys[MANY];
    static uint8_t found[MANY];
    uint32_t num_found = 0;
    (void)state;
    begin(MANY, 32);
    for (uint32_t i = 0; i < MANY; i += 60)
        assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, i, 60, QUIRE_TIER_DONE), 60);
    close_and_lose_index();
    open_and_scan("1200 of 1200 slots read, 1200 blocks found");
    for (uint32_t i = 0; i < MANY; i++)
        keys[i] = kit_key(i);
    for (uint32_t calls = 1; num_found < MANY; calls++) {
        assert_int_equal(quire_tier_lookup(w.kit.tier, keys, MANY, found), QUIRE_OK);
        num_found = 0;
        for (uint32_t i = 0; i < MANY; i++)
            num_found += found[i];
        assert_int_equal(num_found, calls * AT_ONCE < MANY ? calls * AT_ONCE : MANY);
    }
    assert_int_equal(kit_load_all(&w.kit, 0, MANY), MANY);
    end();
}

static const qr_file_entry *entries_of_newest(const qr_file_layout *layout)
{
    qr_file_index index[2];
    for (uint32_t i = 0; i < 2; i++)
        if (qr_file_index_read(w.disk.image + layout->index_at[i], &index[i]) != QR_FILE_GOOD)
            index[i].seq = 0;
    uint64_t at = layout->index_at[index[1].seq > index[0].seq];
    return (const qr_file_entry *)(const void *)(w.disk.image + at + QR_FILE_PAGE);
}

/* The block of one slot in another one too, stored later. */
static void copy_slot(const qr_file_layout *layout, uint32_t from, uint32_t to)
{
    unsigned char *source = w.disk.image + qr_file_slot_at(layout, from);
    unsigned char *target = w.disk.image + qr_file_slot_at(layout, to);
    qr_file_head head;
    assert_int_equal(qr_file_head_read(source, &head), QR_FILE_GOOD);
    memcpy(target, source, layout->slot_bytes);
    head.slot = to;
    head.entry.seq++;
    qr_file_head_write(target, &head);
}

/* Of two heads with one key the older is as good as none: the next index knows nothing of it. */
static void test_two_of_a_key(void **state)
{
    enum { OTHER = 70 }; /* it is read later */
    static const unsigned char nothing[QR_FILE_ENTRY];
    uint32_t slot = 0;
    (void)state;
    begin(80, 4);
    qr_file_layout layout = layout_of();
    assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, 0, 1, QUIRE_TIER_DONE), 1);
    kit_close(&w.kit);
    while (entries_of_newest(&layout)[slot].state != QR_FILE_STORED)
        slot++;
    assert_true(slot < 32);
    open_tier();
    close_and_lose_index();
    copy_slot(&layout, slot, OTHER);
    open_and_scan("80 of 80 slots read, 1 blocks found");
    for (uint32_t i = 0; i < 100 && kit_load_all(&w.kit, 0, 1) == 0; i++)
        continue; /* each takes over some of what was found */
    assert_int_equal(kit_load_all(&w.kit, 0, 1), 1);
    kit_close(&w.kit);
    const qr_file_entry *entries = entries_of_newest(&layout);
    assert_int_equal(entries[OTHER].state, QR_FILE_STORED);
    assert_memory_equal(&entries[slot], nothing, sizeof nothing);
    open_tier();
    assert_non_null(strstr(w.kit.log, "holds 1 of 80 blocks"));
    assert_int_equal(kit_load_all(&w.kit, 0, 1), 1);
    end();
}

/* ---- resets ------------------------------------------------------------------- */

static uint32_t num_good; /* writes of first pages and index that go well, before all fail */

static void fail_after(qr_file_io *io, qr_file_op *op)
{
    if (op->kind == QR_FILE_SYNCED && num_good-- == 0) {
        w.disk.fault = DISK_EIO;
        w.disk.one_in = 1;
    }
    disk_submit(io, op);
}

/* A reset is on the disk when the first pages are. The index that could not be written then is
 * written later, so that the next life need not read all heads. */
static void test_reset_without_index(void **state)
{
    (void)state;
    begin(20, 4);
    assert_int_equal(kit_run(&w.kit, QUIRE_TIER_STORE, 0, 5, QUIRE_TIER_DONE), 5);
    now_ns += UINT64_C(31000000000);
    let_it_work();
    assert_int_equal(kit_run(&w.kit, QUIRE_TIER_REMOVE, 0, 1, QUIRE_TIER_DONE), 1);
    disk_submit = w.disk.io.submit;
    w.disk.io.submit = fail_after;
    num_good = 2;
    assert_int_equal(quire_tier_reset(w.kit.tier), QUIRE_OK);
    let_it_work();
    assert_non_null(strstr(w.kit.log, "cannot write the index"));
    w.disk.io.submit = disk_submit;
    w.disk.one_in = 0;
    kit_close(&w.kit);
    w.kit.log[0] = 0;
    open_tier();
    assert_non_null(strstr(w.kit.log, "holds 0 of 20 blocks"));
    assert_int_equal(kit_load_all(&w.kit, 0, 5), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled_while_it_waits),
        cmocka_unit_test(test_stores_beside_reads),
        cmocka_unit_test(test_disk_is_kept_busy),
        cmocka_unit_test(test_many_are_found),
        cmocka_unit_test(test_two_of_a_key),
        cmocka_unit_test(test_reset_without_index),
    };
    return cmocka_run_group_tests_name("a private file, turn by turn", tests, NULL, NULL);
}
