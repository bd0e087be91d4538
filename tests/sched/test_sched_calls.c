/* Calls that end, cut and reset requests from outside: what they end, and that a call which is
 * refused has changed nothing. */
#include "sched/sched_kit.h"

static sched_kit kit;

static void open_default(void)
{
    quire_sched_config c = kit_config(&kit);
    kit_open(&kit, &c);
}

static void ends_from_outside(void **state)
{
    (void)state;
    open_default();
    quire_req reqs[4] = {kit_add(&kit, "a", 3), kit_add(&kit, "b", 3)};
    reqs[2] = reqs[0]; /* listed twice */
    const quire_req_status wrong[] = {QUIRE_REQ_RUNNING, QUIRE_REQ_PREEMPTED, (quire_req_status)0,
                                      (quire_req_status)13};
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(quire_sched_finish(kit.sched, reqs, 2, wrong[i], NULL), QUIRE_E_ARGUMENT);
    kit_run(&kit, 1);
    uint32_t count = 0;
    assert_int_equal(quire_sched_finish(kit.sched, reqs, 4, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(quire_sched_num_running(kit.sched), 0);
    assert_int_equal(quire_sched_usage(kit.sched).active, 0);
    kit_step(&kit);
    assert_int_equal(kit.step->num_finished, 2);
    assert_int_equal(kit.step->finished[0], reqs[0]);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 0);
    kit_close(&kit);
}

/* data() of an empty std::vector is NULL: an empty list ends no request. */
static void finishes_none_of_an_empty_list(void **state)
{
    (void)state;
    open_default();
    kit_add(&kit, "a", 3);
    kit_add(&kit, "b", 3);
    uint32_t count = 7;
    assert_int_equal(quire_sched_finish(kit.sched, NULL, 0, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 0);
    assert_int_equal(quire_sched_finish(kit.sched, NULL, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_finish_all(NULL, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_RUNNING, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_num_unfinished(kit.sched), 2);
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_STOPPED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 2);
    assert_int_equal(quire_sched_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_from_outside),
        cmocka_unit_test(finishes_none_of_an_empty_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
