/* block/test_queue.c - the free queue: first in, first out, and out from anywhere. */
#include "block/queue_kit.h"

#include "base/unit.h"

enum { NUM_BLOCKS = 6 };

typedef struct fixture {
    qr_block blocks[NUM_BLOCKS + 1];
    qr_queue queue;
} fixture;

static void init(fixture *f, uint32_t first)
{
    memset(f->blocks, 0xa5, sizeof f->blocks); /* init relies on nothing */
    qr_queue_init(&f->queue, f->blocks, NUM_BLOCKS, first);
}

/* The queue is this one, a digit for a block. */
static void assert_queue(const fixture *f, const char *wanted)
{
    assert_true(qr_queue_is_valid(&f->queue));
    assert_int_equal(f->queue.num_free, strlen(wanted));
    uint32_t block = qr_queue_head(&f->queue);
    for (const char *w = wanted; *w != '\0'; w++) {
        assert_int_equal(block, *w - '0');
        block = qr_queue_next(&f->queue, block);
    }
    assert_int_equal(block, NUM_BLOCKS);
    for (uint32_t b = 0; b < NUM_BLOCKS; b++)
        assert_int_equal(qr_queue_contains(&f->queue, b), strchr(wanted, (int)('0' + b)) != NULL);
}

static uint32_t pop(fixture *f)
{
    uint32_t block = NUM_BLOCKS;
    kit_popleft_n(&f->queue, 1, &block);
    return block;
}

static void starts_in_order_of_ids(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    assert_queue(&f, "12345");
    init(&f, 0);
    assert_queue(&f, "012345");
    init(&f, NUM_BLOCKS);
    assert_queue(&f, "");
}

static void head_is_taken_first(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    assert_int_equal(pop(&f), 1);
    assert_int_equal(pop(&f), 2);
    assert_queue(&f, "345");
}

static void tail_is_where_blocks_return(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    pop(&f);
    pop(&f);
    qr_queue_append(&f.queue, 2);
    qr_queue_append(&f.queue, 1);
    assert_queue(&f, "34521");
}

static void remove_from_head_middle_and_tail(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    qr_queue_remove(&f.queue, 3);
    assert_queue(&f, "1245");
    qr_queue_remove(&f.queue, 1);
    assert_queue(&f, "245");
    qr_queue_remove(&f.queue, 5);
    assert_queue(&f, "24");
}

static void queue_can_run_empty_and_fill_again(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    for (uint32_t b = 1; b < NUM_BLOCKS; b++)
        assert_int_equal(pop(&f), b);
    assert_queue(&f, "");
    qr_queue_append(&f.queue, 4);
    assert_queue(&f, "4");
    qr_queue_remove(&f.queue, 4);
    assert_queue(&f, "");
}

static void several_at_once_keep_their_order(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    uint32_t out[3] = {9, 9, 9};
    kit_popleft_n(&f.queue, 3, out);
    assert_int_equal(out[0] * 100 + out[1] * 10 + out[2], 123);
    assert_queue(&f, "45");
    static const uint32_t BACK[] = {2, 3, 1};
    kit_append_n(&f.queue, BACK, 3);
    assert_queue(&f, "45231");
    kit_popleft_n(&f.queue, 0, out);
    kit_append_n(&f.queue, BACK, 0);
    assert_queue(&f, "45231");
}

/* More rounds than the ring of hints has places. */
static void order_survives_many_rounds(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    for (uint32_t round = 0; round < 10 * QR_QUEUE_AHEAD; round++) {
        uint32_t block = pop(&f);
        assert_int_equal(block, round % 5 + 1);
        qr_queue_append(&f.queue, block);
        assert_true(qr_queue_is_valid(&f.queue));
    }
    assert_queue(&f, "12345");
}

static void hint_names_the_block_far_behind(void **state)
{
    (void)state;
    enum { MANY = 3 * QR_QUEUE_AHEAD };
    qr_block blocks[MANY + 1];
    uint32_t row[MANY];
    qr_queue queue;
    memset(blocks, 0, sizeof blocks);
    qr_queue_init(&queue, blocks, MANY, 0);
    for (uint32_t b = 0; b < MANY; b++)
        assert_int_equal(blocks[b].ahead, 0); /* not known yet */
    kit_popleft_n(&queue, MANY, row);
    kit_append_n(&queue, row, MANY);
    for (uint32_t b = 0; b + QR_QUEUE_AHEAD < MANY; b++)
        assert_int_equal(blocks[b].ahead, b + QR_QUEUE_AHEAD);
}

/* Over zeros: the same queue, of which only the ends are written. */
static void zeros_are_blocks_in_order(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static const qr_block untouched;
    qr_block blocks[2][MANY + 1];
    qr_queue queues[2];
    for (uint32_t first = 0; first <= MANY; first += 10) {
        memset(blocks[0], 0xa5, sizeof blocks[0]);
        memset(blocks[1], 0, sizeof blocks[1]);
        qr_queue_init(&queues[0], blocks[0], MANY, first);
        qr_queue_init_zeros(&queues[1], blocks[1], MANY, first);
        assert_true(qr_queue_is_valid(&queues[1]));
        assert_int_equal(queues[1].num_free, MANY - first);
        for (uint32_t b = 0; b <= MANY; b++) {
            assert_memory_equal(&blocks[0][b].free, &blocks[1][b].free, sizeof untouched.free);
            assert_int_equal(blocks[1][b].ahead, 0);
            if (b > first && b < MANY)
                assert_memory_equal(&blocks[1][b], &untouched, sizeof untouched);
        }
        queues[0].blocks = queues[1].blocks = NULL;
        assert_memory_equal(&queues[0], &queues[1], sizeof queues[0]);
    }
}

/* All of a row at once: order, links and hints are as if they had joined one by one. */
static void row_joins_as_its_blocks_do(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static qr_block blocks[2][MANY + 1];
    for (uint32_t n = 1; n < MANY - 60; n += 7) {
        qr_queue queues[2];
        uint32_t row[MANY];
        uint32_t num_with_key = 0;
        memset(blocks, 0, sizeof blocks);
        for (uint32_t way = 0; way < 2; way++) {
            qr_queue_init(&queues[way], blocks[way], MANY, 1);
            kit_popleft_n(&queues[way], n + 50, row);
            kit_append_n(&queues[way], row, n % 50); /* some have joined before */
        }
        for (uint32_t i = 50; i < n + 50; i++)
            num_with_key += blocks[0][row[i]].key_units = blocks[1][row[i]].key_units = i % 3 == 0;
        qr_queue_joining joining = qr_queue_join_begin(&queues[0]);
        for (uint32_t i = n + 50; i-- > 50;)
            qr_queue_join(&queues[0], &joining, row[i]);
        qr_queue_join_end(&queues[0], &joining);
        joining = qr_queue_join_begin(&queues[1]);
        assert_int_equal(qr_queue_join_row(&queues[1], &joining, row + 50, n), num_with_key);
        qr_queue_join_end(&queues[1], &joining);
        queues[0].blocks = queues[1].blocks = NULL;
        assert_memory_equal(&queues[0], &queues[1], sizeof queues[0]);
        assert_memory_equal(blocks[0], blocks[1], sizeof blocks[0]);
    }
}

/* 2 and 4 have a key and are wanted: they stay behind the others until they are not. */
static void wanted_blocks_are_kept_back(void **state)
{
    (void)state;
    fixture f;
    uint16_t wanted[NUM_BLOCKS] = {0};
    init(&f, 1);
    for (uint32_t b = 0; b < NUM_BLOCKS; b++)
        f.blocks[b].key_units = b == 5 ? 0 : 4;
    f.queue.wanted = wanted;
    qr_queue_want(&f.queue, 2);
    qr_queue_want(&f.queue, 4);
    qr_queue_want(&f.queue, 4);
    qr_queue_want(&f.queue, 5); /* it has nothing to be found by */
    assert_queue(&f, "13542");
    assert_int_equal(qr_queue_num_others(&f.queue), 3);
    assert_int_equal(pop(&f), 1);
    qr_queue_append(&f.queue, 1);
    assert_queue(&f, "35142");
    qr_queue_remove(&f.queue, 4);
    qr_queue_remove(&f.queue, 2);
    assert_queue(&f, "351");
    qr_queue_append(&f.queue, 2);
    qr_queue_append(&f.queue, 4);
    assert_queue(&f, "35142");
    qr_queue_unwant(&f.queue, 4); /* one more wants it */
    assert_int_equal(qr_queue_num_others(&f.queue), 3);
    qr_queue_unwant(&f.queue, 4);
    assert_queue(&f, "35142");
    assert_int_equal(qr_queue_num_others(&f.queue), 4);
    qr_queue_unwant(&f.queue, 5);
    qr_queue_unwant(&f.queue, 2);
    assert_int_equal(qr_queue_num_others(&f.queue), 5);
    assert_queue(&f, "35142");
}

static void walker_sees_broken_links(void **state)
{
    (void)state;
    fixture f;
    init(&f, 1);
    qr_queue_set_prev(f.blocks, 3, 1);
    assert_false(qr_queue_is_valid(&f.queue));
    init(&f, 1);
    qr_queue_set_next(f.blocks, 3, 1); /* a circle */
    assert_false(qr_queue_is_valid(&f.queue));
    init(&f, 1);
    f.blocks[3].free.next = QR_NIL;
    assert_false(qr_queue_is_valid(&f.queue));
    init(&f, 1);
    f.queue.num_free = 4;
    assert_false(qr_queue_is_valid(&f.queue));
    init(&f, 1);
    f.blocks[2].ahead = NUM_BLOCKS + 1;
    assert_false(qr_queue_is_valid(&f.queue));
    init(&f, 1);
    qr_queue_set_prev(f.blocks, NUM_BLOCKS, 2);
    assert_false(qr_queue_is_valid(&f.queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_in_order_of_ids),
        cmocka_unit_test(head_is_taken_first),
        cmocka_unit_test(tail_is_where_blocks_return),
        cmocka_unit_test(remove_from_head_middle_and_tail),
        cmocka_unit_test(queue_can_run_empty_and_fill_again),
        cmocka_unit_test(several_at_once_keep_their_order),
        cmocka_unit_test(order_survives_many_rounds),
        cmocka_unit_test(hint_names_the_block_far_behind),
        cmocka_unit_test(zeros_are_blocks_in_order),
        cmocka_unit_test(row_joins_as_its_blocks_do),
        cmocka_unit_test(wanted_blocks_are_kept_back),
        cmocka_unit_test(walker_sees_broken_links),
    };
    return cmocka_run_group_tests_name("block_queue", tests, NULL, NULL);
}
