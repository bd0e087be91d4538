/* parity/parity_plan.c - Quire's plans against vLLM's get_kv_cache_configs and what follows it.
 *
 * Compared: groups with their layers, specs and pages; block sizes; parts, tensors, bytes needed
 * and concurrency of each worker; blocks, tokens and the maximum length; errors by class, and when
 * memory is short what would be needed and which length would fit. Of known models the layers too,
 * made from the fields of their config.json. plan_case.h and model_case.h have the format.
 */
#include "parity/model_case.h"
#include "parity/plan_case.h"

#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

static const char *path;

static void read_line(recording *r, plan_case *c)
{
    const char *word = recording_word(r);
    if (strcmp(word, "plan") == 0) {
        plan_case_read_params(r, c);
        recording_start_case(r);
    } else if (strcmp(word, "s") == 0) {
        recording_expect(r, c->num_specs < MAX_PLAN_SPECS, "specs fit");
        plan_case_read_spec(r, &c->specs[c->num_specs++]);
    } else if (strcmp(word, "l") == 0) {
        plan_case_read_layers(r, c);
    } else if (strcmp(word, "m") == 0) {
        model_case_read(r, c);
    } else if (strcmp(word, "x") == 0) {
        model_case_add_layers(&r->answer, c);
        recording_check_answer(r);
    } else if (strcmp(word, "w") == 0) {
        plan_case_read_worker(r, c);
    } else if (strcmp(word, "r") == 0) {
        plan_case_add_answer(&r->answer, c);
        recording_check_answer(r);
    } else {
        recording_expect(r, strcmp(word, "end") == 0, "line is known");
        recording_check_case(r);
    }
}

static void plans_are_as_vllm_makes_them(void **state)
{
    (void)state;
    static recording r;
    static plan_case c;
    recording_open(&r, path, "plan");
    while (recording_next(&r))
        read_line(&r, &c);
    recording_close(&r);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/plan.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_as_vllm_makes_them)};
    return cmocka_run_group_tests_name("parity_plan", tests, NULL, NULL);
}
