/* sched/retain/test_sched_swap_state.c - host slots when requests end, after a reset, in what is
 * told,
 * under the walker and in an image. */
#include "sched/retain/swap_kit.h"

/* ---- ends ------------------------------------------------------------------- */

static void slots_come_back_with_the_end(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS - VICTIM_BLOCKS);
    crowd_end(&w, w.c);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
    assert_int_equal(quire_sched_check(w.kit.sched), QUIRE_OK);
    crowd_close(&w);
}

static void a_reset_forgets_what_is_kept(void **state)
{
    (void)state;
    for (uint32_t policy = 0; policy < 2; policy++) {
        crowd w;
        quire_sched_config config = crowd_config(&w);
        config.policy = (quire_policy)policy;
        crowd_open(&w, &config);
        kit_answer(&w.kit, w.kit.step->step, 1);
        assert_int_equal(quire_sched_reset_prefix_cache(w.kit.sched, 0, 0), QUIRE_BUSY);
        assert_int_equal(crowd_saved(&w, w.c), PROMPT);
        assert_int_equal(quire_sched_reset_prefix_cache(w.kit.sched, 1, 0), QUIRE_OK);
        assert_int_equal(crowd_saved(&w, w.c), 0);
        assert_int_equal(w.kit.sched->swap.num_free, SLOTS);
        assert_string_equal(kit_shown_queue(&w.kit, 1), "a b c");
        kit_step(&w.kit);
        assert_int_equal(w.kit.step->num_swap_in, 0);
        assert_int_equal(w.kit.step->num_computed_tokens[0], 0);
        crowd_close(&w);
    }
}

/* ---- seen from outside ------------------------------------------------------ */

typedef struct seen {
    quire_snapshot last;
    quire_tier_usage swap; /* its tier */
    uint32_t num_swapped;
    quire_decision swapped;
    bool was_preempted;
} seen;

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    seen *to = user;
    to->last = *snapshot;
    to->swap = snapshot->tiers[1];
}

static void note_decision(void *user, const quire_decision *decision)
{
    seen *to = user;
    if (decision->kind == QUIRE_DECISION_SWAPPED) {
        assert_false(to->was_preempted);
        to->swapped = *decision;
        to->num_swapped++;
    }
    to->was_preempted = to->was_preempted || decision->kind == QUIRE_DECISION_PREEMPTED;
}

static void snapshots_and_decisions_tell(void **state)
{
    (void)state;
    crowd w;
    seen told = {0};
    quire_sched_config config = crowd_config(&w);
    config.on_snapshot = note_snapshot;
    config.on_decision = note_decision;
    config.observer = &told;
    crowd_open(&w, &config);
    assert_int_equal(told.num_swapped, 1);
    assert_true(told.was_preempted && told.swapped.req == w.c);
    assert_int_equal(told.swapped.num, VICTIM_BLOCKS);
    assert_int_equal(told.last.num_swapped_out_blocks, VICTIM_BLOCKS);
    assert_int_equal(told.last.num_swapped_in_blocks, 0);
    assert_int_equal(told.last.num_swapped, 1);
    assert_int_equal(told.last.num_free_swap_blocks, SLOTS - VICTIM_BLOCKS);
    assert_string_equal(told.swap.name, "swap");
    assert_int_equal(told.swap.hit_tokens, 0);
    kit_answer(&w.kit, w.kit.step->step, 1);
    crowd_end(&w, w.a);
    kit_step(&w.kit);
    assert_int_equal(told.last.num_swapped_out_blocks, 0);
    assert_int_equal(told.last.num_swapped_in_blocks, 1);
    assert_int_equal(told.last.num_swapped, 0);
    assert_int_equal(told.last.num_free_swap_blocks, SLOTS);
    assert_int_equal(told.swap.hit_tokens, 4); /* of c's 20 tokens; 16 were found in the pool */
    kit_step(&w.kit);
    assert_int_equal(told.swap.hit_tokens, 4); /* a sum */
    crowd_close(&w);
}

#define CORRUPT_WITH(sched, field, value)                                                          \
    do {                                                                                           \
        __typeof__(field) was = (field);                                                           \
        (field) = (value);                                                                         \
        assert_int_equal(quire_sched_check(sched), QUIRE_E_CORRUPT);                               \
        (field) = was;                                                                             \
        assert_int_equal(quire_sched_check(sched), QUIRE_OK);                                      \
    } while (0)

static void the_walker_sees_damage(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    quire_sched *s = w.kit.sched;
    uint32_t index = quire_req_index(w.c);
    qr_request *r = &s->table.requests[index];
    qr_swap *swap = &s->swap;
    CORRUPT_WITH(s, s->table.waiters[index].is_swapped, false);
    CORRUPT_WITH(s, s->table.waiters[quire_req_index(w.a)].is_swapped, true);
    CORRUPT_WITH(s, r->num_saved, 0);
    CORRUPT_WITH(s, r->num_saved, PROMPT - KIT_BLOCK); /* a block less */
    CORRUPT_WITH(s, r->num_saved, PROMPT + 1);
    CORRUPT_WITH(s, r->status, QUIRE_REQ_WAITING_FOR_GRAMMAR);
    CORRUPT_WITH(s, r->kv.num_computed_tokens, 1);
    CORRUPT_WITH(s, r->kv.seq, kit_info(&w.kit, w.a).seq);
    CORRUPT_WITH(s, r->first_saved, SLOTS);
    CORRUPT_WITH(s, r->first_saved, 1);
    CORRUPT_WITH(s, swap->slots[2].owner, QR_NIL);
    CORRUPT_WITH(s, swap->slots[4].next, 5);
    CORRUPT_WITH(s, swap->slots[4].next, 0);
    CORRUPT_WITH(s, swap->first_free, 6);
    CORRUPT_WITH(s, swap->num_free, SLOTS);
    CORRUPT_WITH(s, swap->num_requests, 2);
    crowd_close(&w);
}

static void images_have_the_slots(void **state)
{
    (void)state;
    crowd w;
    quire_sched_config config = crowd_config(&w);
    crowd_open(&w, &config);
    kit_answer(&w.kit, w.kit.step->step, 1);
    size_t bytes = quire_sched_image_bytes(w.kit.sched);
    void *image = malloc(bytes);
    assert_non_null(image);
    assert_int_equal(quire_sched_save(w.kit.sched, image, bytes, &bytes), QUIRE_OK);
    quire_sched_destroy(w.kit.sched);
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &w.kit.sched), QUIRE_OK);
    free(image);
    assert_int_equal(crowd_saved(&w, w.c), PROMPT);
    assert_int_equal(w.kit.sched->swap.num_free, SLOTS - VICTIM_BLOCKS);
    crowd_end(&w, w.a);
    kit_step(&w.kit);
    assert_string_equal(kit_shown_step(&w.kit), "b:1 c:1");
    assert_int_equal(w.kit.step->num_swap_in, 1);
    assert_int_equal(w.kit.step->swap_in_slots[0], VICTIM_BLOCKS - 1);
    crowd_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_come_back_with_the_end),
        cmocka_unit_test(a_reset_forgets_what_is_kept),
        cmocka_unit_test(snapshots_and_decisions_tell),
        cmocka_unit_test(the_walker_sees_damage),
        cmocka_unit_test(images_have_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
