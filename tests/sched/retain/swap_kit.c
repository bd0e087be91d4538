#include "sched/retain/swap_kit.h"

quire_sched_config crowd_config(crowd *w)
{
    quire_sched_config config = kit_config(&w->kit);
    config.num_swap_blocks = SLOTS;
    return config;
}

void crowd_add(crowd *w)
{
    w->a = kit_add(&w->kit, "a", PROMPT);
    w->kit.params.arrival_time = 1;
    w->b = kit_add(&w->kit, "b", PROMPT);
    w->kit.params.arrival_time = 2;
    w->c = kit_add(&w->kit, "c", PROMPT);
}

void crowd_open(crowd *w, const quire_sched_config *config)
{
    kit_open(&w->kit, config);
    crowd_add(w);
    kit_run(&w->kit, 1);
    assert_string_equal(kit_shown_step(&w->kit), "a:20 b:20 c:20");
    kit_step(&w->kit);
    assert_int_equal(w->kit.step->num_preempted, 1);
    assert_true(w->kit.step->preempted[0] == w->c);
}

void crowd_end(crowd *w, quire_req req)
{
    assert_int_equal(quire_sched_finish(w->kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
}

void crowd_close(crowd *w)
{
    quire_sched_finish_all(w->kit.sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(w->kit.sched->swap.num_free, w->kit.sched->swap.num_slots);
    kit_close(&w->kit);
}

uint32_t crowd_saved(const crowd *w, quire_req req)
{
    return kit_info(&w->kit, req).num_swapped_tokens;
}
