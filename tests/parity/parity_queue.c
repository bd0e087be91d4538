/* parity/parity_queue.c - Quire's free queue against vLLM's FreeKVCacheBlockQueue.
 *
 *      queue 8 1     blocks 1..7 of 8        P 3    popleft_n       a 5      append
 *      p             popleft, or refused     r 5    remove          A 5,6    append_n
 *      B 5,6         prepend_n (0.32)
 *
 * After each operation the number of blocks in the queue and all of their ids are compared.
 */
#include "block/queue_kit.h"
#include "parity/recording.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_BLOCKS = 256 };

static const char *path;

typedef struct queue_case {
    recording r;
    qr_queue queue;
    qr_block blocks[MAX_BLOCKS + 1];
} queue_case;

static void start_case(queue_case *c)
{
    uint32_t size = recording_u32(&c->r);
    uint32_t first = recording_u32(&c->r);
    recording_expect(&c->r, size <= MAX_BLOCKS, "queue fits");
    memset(c->blocks, 0, sizeof c->blocks);
    qr_queue_init(&c->queue, c->blocks, size, first);
    recording_start_case(&c->r);
}

static void pop(queue_case *c, char op, uint32_t n)
{
    uint32_t popped[MAX_BLOCKS];
    if (n > c->queue.num_free) {
        text_add(&c->r.answer, "%c=!", op);
        return;
    }
    kit_popleft_n(&c->queue, n, popped);
    text_add(&c->r.answer, "%c=", op);
    text_add_ids(&c->r.answer, popped, n);
}

static void run_operation(queue_case *c, char op)
{
    uint32_t list[MAX_BLOCKS];
    if (op == 'p' || op == 'P') {
        pop(c, op, op == 'p' ? 1 : recording_u32(&c->r));
        return;
    }
    uint32_t count = recording_ids(&c->r, list, MAX_BLOCKS);
    if (op == 'r')
        qr_queue_remove(&c->queue, list[0]);
    else if (op == 'a')
        qr_queue_append(&c->queue, list[0]);
    else if (op == 'A')
        kit_append_n(&c->queue, list, count);
    else if (op == 'B')
        kit_prepend_n(&c->queue, list, count);
    else
        recording_expect(&c->r, false, "operation is known");
    text_add(&c->r.answer, "%c", op);
}

static void check_state(queue_case *c)
{
    uint32_t list[MAX_BLOCKS];
    uint32_t count = 0;
    const qr_queue *queue = &c->queue;
    recording_expect(&c->r, qr_queue_is_valid(queue), "queue is valid");
    for (uint32_t b = qr_queue_head(queue); b != queue->num_blocks; b = qr_queue_next(queue, b))
        list[count++] = b;
    text_add(&c->r.answer, "|%u|", queue->num_free);
    text_add_ids(&c->r.answer, list, count);
    recording_check_answer(&c->r);
}

static void queue_answers_as_vllm(void **state)
{
    (void)state;
    static queue_case c;
    recording_open(&c.r, path, "queue");
    while (recording_next(&c.r)) {
        const char *op = recording_word(&c.r);
        if (strcmp(op, "queue") == 0) {
            start_case(&c);
        } else if (strcmp(op, "end") == 0) {
            recording_check_case(&c.r);
        } else {
            run_operation(&c, op[0]);
            check_state(&c);
        }
    }
    recording_close(&c.r);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/queue.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(queue_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_queue", tests, NULL, NULL);
}
