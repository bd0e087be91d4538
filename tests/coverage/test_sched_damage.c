/* The scheduler's walker: one thing at a time is damaged, and found; whole again, all is well. */
#include "coverage/sched_kit.h"

#include "sched/sched.h"

static sched_kit kit;

/* Writes a wrong value where there is a right one, looks, and puts the right one back. */
#define SPOIL(field, value)                                                                        \
    do {                                                                                           \
        __typeof__(field) right = (field);                                                         \
        (field) = (__typeof__(field))(value);                                                      \
        assert_int_equal(quire_sched_check(kit.sched), QUIRE_E_CORRUPT);                           \
        (field) = right;                                                                           \
        assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);                                  \
    } while (0)

/* Two run, two wait, one is held up. */
static void open_with_five(quire_policy policy)
{
    sched_kit_init(&kit, 32);
    sched_kit_use_grammar(&kit);
    kit.config.policy = policy;
    kit.config.max_num_seqs = 2;
    sched_kit_open(&kit);
    const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    for (uint32_t i = 0; i < 6; i++) {
        quire_request_params p = sched_kit_params(&kit, names[i], "aaaa");
        p.use_grammar = i == 0 || i == 5;
        sched_kit_add_params(&kit, &p);
        if (i == 2)
            sched_kit_step(&kit);
    }
    assert_int_equal(quire_sched_get_counts(kit.sched).num_running, 2);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, 4);
}

static void damaged_requests(void **state)
{
    (void)state;
    open_with_five(QUIRE_POLICY_FCFS);
    quire_sched *s = kit.sched;
    uint32_t first = s->queues.running[0];
    qr_request *r = &s->table.requests[first];
    qr_request *waits = &s->table.requests[quire_req_index(kit.names[3].req)];
    qr_request *none = &s->table.requests[SCHED_KIT_REQS - 1];
    SPOIL(none->kv.seq, 1);
    SPOIL(none->text.num_pages, 1);
    SPOIL(s->table.waiters[SCHED_KIT_REQS - 1].queue, 1);
    SPOIL(r->kv.seq, r->kv.seq + (UINT64_C(1) << 40));
    SPOIL(waits->kv.seq, r->kv.seq);           /* two with the same blocks */
    SPOIL(waits->status, QUIRE_REQ_PREEMPTED); /* one that ran has a promise of pages */
    SPOIL(waits->num_promised_pages, 1);
    SPOIL(waits->load_step, 1);
    waits->status = QUIRE_REQ_PREEMPTED;
    assert_true(qr_texts_promise(&s->texts, waits, qr_sched_last_token_of(s, waits)));
    SPOIL(waits->kv.seq, r->kv.seq); /* blocks that preemption gave back */
    qr_texts_take_back(&s->texts, waits);
    waits->status = QUIRE_REQ_WAITING;
    SPOIL(r->has_promise, false);
    SPOIL(r->kv.num_tokens, r->kv.num_tokens + 1);
    SPOIL(r->num_prompt_tokens, r->kv.num_tokens + 1);
    SPOIL(s->settings.max_model_len, r->kv.num_tokens - 1);
    SPOIL(r->num_drafts, 1);
    SPOIL(r->status, QUIRE_REQ_WAITING);
    SPOIL(r->status, QUIRE_REQ_WAITING_FOR_STREAMING);
    SPOIL(r->status, QUIRE_REQ_FINISHED_STOPPED);
    SPOIL(waits->status, QUIRE_REQ_RUNNING);
    SPOIL(waits->status, QUIRE_REQ_WAITING_FOR_GRAMMAR);
    sched_kit_close(&kit);
}

static void damaged_counts(void **state)
{
    (void)state;
    open_with_five(QUIRE_POLICY_FCFS);
    quire_sched *s = kit.sched;
    SPOIL(s->table.num_live, s->table.num_live + 1);
    SPOIL(s->queues.num_running, 1);
    SPOIL(s->queues.running[1], quire_req_index(kit.names[3].req));
    SPOIL(s->settings.max_num_seqs, 1);
    SPOIL(s->texts.store.num_free, s->texts.store.num_free - 1);
    SPOIL(s->texts.num_promised_pages, s->texts.num_promised_pages + 1);
    SPOIL(s->texts.num_waiting_pages, s->texts.num_waiting_pages + 1);
    SPOIL(s->sessions.inputs[0].text.num_pages, 1);
    SPOIL(s->queues.step_skipped.count, 1);
    SPOIL(s->deadlock.num_holders[QR_HOLDS_BLOCKS], s->deadlock.num_holders[QR_HOLDS_BLOCKS] + 1);
    SPOIL(s->deadlock.num_holders[QR_HOLDS_IDLE], 1);
    SPOIL(s->table.requests[0].holder, QR_HOLDS_IDLE);
    SPOIL(s->table.requests[0].gave_way_in, s->deadlock.round + 1);
    SPOIL(s->deadlock.round, 0);
    SPOIL(s->encoder.epoch, 0);
    SPOIL(s->cache->num_seqs, 0);
    SPOIL(s->cache->pool->magic, 0);
    sched_kit_close(&kit);
}

static void damaged_queue(void **state)
{
    (void)state;
    open_with_five(QUIRE_POLICY_FCFS);
    quire_sched *s = kit.sched;
    uint32_t first = qr_waiting_peek(&s->queues.waiting);
    uint32_t held = qr_waiting_peek(&s->queues.skipped);
    SPOIL(s->queues.waiting.count, s->queues.waiting.count + 1);
    SPOIL(s->queues.waiting.count, s->queues.waiting.count - 1);
    SPOIL(s->queues.waiting.count, 0);
    SPOIL(s->queues.skipped.count, s->queues.skipped.count + 1);
    SPOIL(s->table.waiters[first].queue, s->queues.skipped.number);
    SPOIL(s->table.waiters[held].queue, s->queues.waiting.number);
    SPOIL(s->table.waiters[s->table.waiters[first].link.next].link.prev,
          s->queues.waiting.sentinel);
    sched_kit_close(&kit);
}

static void damaged_heap(void **state)
{
    (void)state;
    open_with_five(QUIRE_POLICY_PRIORITY);
    quire_sched *s = kit.sched;
    uint32_t first = s->queues.waiting.heap[0];
    assert_true(s->queues.waiting.count > 1);
    SPOIL(s->table.waiters[first].queue, s->queues.skipped.number);
    SPOIL(s->table.waiters[first].place, 1);
    SPOIL(s->table.waiters[first].priority, 1); /* it would not be the first */
    SPOIL(s->table.waiters[first].arrival_time, 1.0);
    sched_kit_close(&kit);
}

/* Names decide among equals: as far as the shorter one goes, then the shorter one first. */
static void names_break_ties(void **state)
{
    (void)state;
    sched_kit_init(&kit, 32);
    kit.config.policy = QUIRE_POLICY_PRIORITY;
    kit.config.max_num_seqs = 1;
    sched_kit_open(&kit);
    const char *const names[] = {"bb", "b", "ba", "c", "a", "bab"};
    for (uint32_t i = 0; i < COUNT(names); i++)
        sched_kit_add(&kit, names[i], "aaaa", 8);
    quire_req reqs[COUNT(names)];
    assert_int_equal(quire_sched_get_queue(kit.sched, 1, reqs, COUNT(names)), COUNT(names));
    const char *const right[] = {"a", "b", "ba", "bab", "bb", "c"};
    for (uint32_t i = 0; i < COUNT(names); i++)
        assert_int_equal(reqs[i],
                         quire_sched_find(kit.sched, (quire_bytes){right[i], strlen(right[i])}));
    sched_kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_requests), cmocka_unit_test(damaged_counts),
        cmocka_unit_test(damaged_queue),    cmocka_unit_test(damaged_heap),
        cmocka_unit_test(names_break_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
