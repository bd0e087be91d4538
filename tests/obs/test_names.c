/* obs/test_names.c - the ids of requests that run and wait, with each step that is kept. */
#include "sched/sched_kit.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 3 };

/* "a b +1 | c +0": those that run, how many more; those that wait, how many more. */
static const char *shown(const quire_monitor *m, uint64_t step)
{
    static char text[512];
    quire_step_names names = QUIRE_STEP_NAMES_INIT;
    quire_name list[2 * MOST];
    assert_int_equal(quire_monitor_get_names(m, step, &names, list, 2 * MOST), QUIRE_OK);
    assert_int_equal(names.step, step);
    size_t n = 0;
    for (uint32_t i = 0; i < names.num_running + names.num_waiting; i++) {
        if (i == names.num_running)
            n += (size_t)snprintf(text + n, sizeof text - n, "+%u | ", names.num_more_running);
        n += (size_t)snprintf(text + n, sizeof text - n, "%.*s ", (int)list[i].bytes, list[i].text);
    }
    if (names.num_waiting == 0)
        n += (size_t)snprintf(text + n, sizeof text - n, "+%u | ", names.num_more_running);
    (void)snprintf(text + n, sizeof text - n, "+%u", names.num_more_waiting);
    return text;
}

static void open_named(sched_kit *kit, quire_monitor_config *monitor, quire_policy policy)
{
    quire_sched_config config = kit_config(kit);
    config.monitor = monitor;
    config.policy = policy;
    kit_open(kit, &config);
}

static void steps_have_names(void **state)
{
    (void)state;
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.num_names = MOST;
    monitor.num_steps = 4;
    sched_kit kit;
    open_named(&kit, &monitor, QUIRE_POLICY_FCFS);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    quire_step_names names = QUIRE_STEP_NAMES_INIT;
    quire_name list[2 * MOST];
    assert_int_equal(quire_monitor_get_info(m)->num_names, MOST);
    assert_int_equal(quire_monitor_get_names(m, 0, &names, list, 2 * MOST), QUIRE_MISS);
    kit_add(&kit, "a", 4);
    kit_add(&kit, "b", 4);
    kit_run(&kit, 1);
    uint64_t first = kit.step->step;
    assert_string_equal(shown(m, first), "a b +0 | +0");
    for (uint32_t i = 2; i < COUNT(ids); i++)
        kit_add(&kit, ids[i], 4);
    kit_run(&kit, 1);
    assert_string_equal(shown(m, first + 1), "a b c +1 | e f g +1"); /* four may run */
    assert_string_equal(shown(m, first), "a b +0 | +0");
    assert_int_equal(quire_monitor_get_names(m, first + 2, &names, list, 2 * MOST), QUIRE_MISS);
    assert_int_equal(quire_monitor_get_names(m, first + 1, &names, list, 2 * MOST - 1),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_monitor_get_names(m, first + 1, NULL, list, 2 * MOST), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_monitor_get_names(NULL, first, &names, list, 2 * MOST),
                     QUIRE_E_ARGUMENT);
    for (int i = 0; i < 4; i++)
        kit_run(&kit, 1);
    assert_int_equal(quire_monitor_get_names(m, first, &names, list, 2 * MOST), QUIRE_MISS);
    kit_close(&kit);
}

/* By PRIORITY the next to be served comes first; an id that is long is cut, and says so. */
static void waiting_names_are_in_order(void **state)
{
    (void)state;
    char id[QUIRE_NAME_BYTES + 20];
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.num_names = MOST;
    sched_kit kit;
    open_named(&kit, &monitor, QUIRE_POLICY_PRIORITY);
    quire_monitor *m = quire_sched_get_monitor(kit.sched);
    memset(id, 'A', sizeof id); /* the first by its id */
    id[sizeof id - 1] = 0;
    kit_add(&kit, id, 4);
    for (const char *c = "abc"; *c != 0; c++) {
        const char name[2] = {*c, 0};
        kit_add(&kit, name, 4);
    }
    kit_run(&kit, 1); /* all four run */
    for (int32_t i = 0; i < 4; i++) {
        const char name[2] = {(char)('p' + i), 0};
        kit.params.priority = 4 - i;
        kit_add(&kit, name, 4);
    }
    kit_run(&kit, 1);
    quire_step_names names = QUIRE_STEP_NAMES_INIT;
    quire_name list[2 * MOST];
    assert_int_equal(quire_monitor_get_names(m, kit.step->step, &names, list, 2 * MOST), QUIRE_OK);
    assert_int_equal(names.num_waiting, MOST);
    assert_int_equal(names.num_more_waiting, 1);
    for (uint32_t i = 0; i < MOST; i++) {
        assert_int_equal(list[names.num_running + i].bytes, 1);
        assert_int_equal(list[names.num_running + i].text[0], 's' - (char)i);
    }
    assert_int_equal(list[0].bytes, sizeof id - 1);
    assert_memory_equal(list[0].text, id, QUIRE_NAME_BYTES);
    kit_close(&kit);
}

static void names_are_off_unless_asked_for(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    quire_step_names names = QUIRE_STEP_NAMES_INIT;
    quire_name list[2];
    sched_kit kit;
    open_named(&kit, &monitor, QUIRE_POLICY_FCFS);
    kit_run(&kit, 1);
    assert_int_equal(quire_monitor_get_names(quire_sched_get_monitor(kit.sched), kit.step->step,
                                             &names, list, 2),
                     QUIRE_E_DISABLED);
    kit_close(&kit);
    quire_sched_config config = kit_config(&kit);
    quire_sched *sched;
    config.monitor = &monitor;
    monitor.num_names = 257;
    assert_int_equal(quire_sched_create(&config, NULL, &sched), QUIRE_E_CONFIG);
    quire_hasher_destroy(kit.hasher);
}

/* ---- from another thread ------------------------------------------------------- */

typedef struct watcher {
    const quire_monitor *monitor;
    _Atomic bool is_over;
    _Atomic uint64_t num_seen;
} watcher;

/* Each record is whole: a step's ids are those of that step. */
static void *watch(void *user)
{
    watcher *w = user;
    while (!w->is_over) {
        quire_monitor_step last = QUIRE_MONITOR_STEP_INIT;
        quire_step_names names = QUIRE_STEP_NAMES_INIT;
        quire_name list[2 * MOST];
        if (quire_monitor_get_last_step(w->monitor, &last) != QUIRE_OK ||
            quire_monitor_get_names(w->monitor, last.step, &names, list, 2 * MOST) != QUIRE_OK)
            continue;
        w->num_seen++;
        if (names.num_running + names.num_more_running != last.num_running ||
            names.num_waiting + names.num_more_waiting != last.num_waiting + last.num_skipped)
            fail_msg("counts of step %llu", (unsigned long long)last.step);
        for (uint32_t i = 0; i < names.num_running + names.num_waiting; i++)
            if (list[i].bytes != 6 || memcmp(list[i].text, list[0].text, 4) != 0)
                fail_msg("an id of another step");
    }
    return NULL;
}

static void other_threads_see_whole_records(void **state)
{
    (void)state;
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.num_names = MOST;
    monitor.num_steps = 2;
    sched_kit kit;
    open_named(&kit, &monitor, QUIRE_POLICY_FCFS);
    watcher w = {.monitor = quire_sched_get_monitor(kit.sched)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, watch, &w), 0);
    for (uint32_t round = 0; round < 3000 || (w.num_seen < 100 && round < 1000000); round++) {
        quire_req reqs[6];
        for (uint32_t i = 0; i < COUNT(reqs); i++) {
            char id[8];
            (void)snprintf(id, sizeof id, "%04u-%u", round % 10000, i);
            reqs[i] = kit_add(&kit, id, 4);
        }
        kit_run(&kit, 1);
        assert_int_equal(
            quire_sched_finish(kit.sched, reqs, COUNT(reqs), QUIRE_REQ_FINISHED_ABORTED, NULL),
            QUIRE_OK);
        kit_run(&kit, 1);
    }
    w.is_over = true;
    pthread_join(thread, NULL);
    assert_true(w.num_seen > 0);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_names),
        cmocka_unit_test(waiting_names_are_in_order),
        cmocka_unit_test(names_are_off_unless_asked_for),
        cmocka_unit_test(other_threads_see_whole_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
