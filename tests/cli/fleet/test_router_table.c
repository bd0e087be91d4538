/* test_router_table.c - texts that name a policy and its options, policies from shared objects, and
 * settings out of range. */
#include "base/unit.h"
#include "policy_kit.h"

#include "fleet/routers/router.h"

/* ---- texts ----------------------------------------------------------------- */

static void refuse(const char *text, const char *expected)
{
    router_spec spec;
    char why[ROUTER_WHY_BYTES] = "";
    assert_false(router_spec_read(text, &spec, why));
    if (strstr(why, expected) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", text, why, expected);
    assert_null(spec.library);
}

static void texts_name_policies_and_options(void **state)
{
    router_spec spec;
    char why[ROUTER_WHY_BYTES];
    (void)state;
    assert_true(router_spec_read("llm-d:prefix=1.5,picker=random", &spec, why));
    assert_string_equal(spec.policy->name, "llm-d");
    assert_true(spec.values[0] == 1.5);
    assert_true(spec.values[1] == 2);
    assert_true(router_spec_read("llm-d:", &spec, why));
    refuse("llmd", "router \"llmd\" not found; did you mean \"llm-d\"?");
    refuse("", "router \"\" not found");
    refuse("none", "round-robin, random, least-loaded, power-of-two, session, dynamo-kv, llm-d, ");
    refuse("none", ", oracle)");
    refuse("llm-d:prefx=1", "router llm-d has no option \"prefx\"; did you mean \"prefix\"?");
    refuse("llm-d:prefix", "invalid option \"prefix\" of router llm-d (expected name=value)");
    refuse("llm-d:prefix=-1", "invalid value \"-1\" for prefix of router llm-d (expected 0 to");
    refuse("llm-d:prefix=x", "invalid value \"x\" for prefix");
    refuse("llm-d:prefix=nan", "invalid value \"nan\" for prefix");
    refuse("llm-d:prefix=", "invalid value \"\" for prefix");
    refuse("llm-d:prefix=1,,queue=1", "invalid option \"\"");
    refuse("llm-d:queue-threshold=1.5", "(expected a whole number from 1 to 1000000000)");
    refuse("llm-d:queue-threshold=0", "(expected a whole number from 1 to 1000000000)");
    refuse("llm-d:picker=best", "(expected max-score, weighted-random, random)");
    refuse("round-robin:x=1", "router round-robin has no option \"x\"");
    refuse("./none.so", "cannot load router ./none.so");
}

static void every_policy_says_what_it_is(void **state)
{
    char text[8192];
    (void)state;
    for (uint32_t i = 0; router_table(i) != NULL; i++) {
        const router_policy *p = router_table(i);
        assert_ptr_equal(router_find(p->name), p);
        assert_int_equal(p->version, ROUTER_POLICY_VERSION);
        assert_true(router_describe(p, text, sizeof text) < sizeof text);
        for (uint32_t o = 0; p->options != NULL && p->options[o].name != NULL; o++) {
            assert_true(o < ROUTER_MAX_OPTIONS);
            assert_non_null(strstr(text, p->options[o].name));
            assert_true(p->options[o].def >= p->options[o].min &&
                        p->options[o].def <= p->options[o].max);
        }
    }
    assert_null(router_find("none"));
}

/* ---- a shared object ------------------------------------------------------- */

static void a_policy_is_loaded_from_a_file(void **state)
{
    router_spec spec;
    char why[ROUTER_WHY_BYTES];
    (void)state;
    assert_true(router_spec_read(FLEET_MY_ROUTER ":weight=0.5", &spec, why));
    assert_non_null(spec.library);
    assert_string_equal(spec.policy->name, "my-router");
    router_spec_free(&spec);
    policy_world w = policy_world_of(3);
    policy_open(&w, FLEET_MY_ROUTER ":weight=0.5");
    policy_hit(&w, 2, 5);
    assert_int_equal(policy_choose(&w).worker, 2); /* 0.5 against 1 */
    w.workers[2].in_flight = 1;
    assert_int_equal(policy_choose(&w).worker, 0); /* 0.5 + 0.5 against 1 */
    w.workers[0].in_flight = w.workers[1].in_flight = 1;
    assert_int_equal(policy_choose(&w).worker, 2);
    policy_close(&w);
    refuse(FLEET_MY_ROUTER ":weight=101", "invalid value \"101\" for weight of router my-router");
    refuse(FLEET_MY_ROUTER ":weight=100.5", "(expected 0 to 100)");
    refuse(FLEET_MY_ROUTER ":size=1", "router my-router has no option \"size\"");
    refuse(FLEET_OLD_ROUTER, "invalid version 99 of router");
    refuse(FLEET_NO_ROUTER, "quire_router_policy not found in router");
}

/* ---- settings -------------------------------------------------------------- */

/* docs/routers.md has a row for each policy, and for each option its default and its range. */
static char *read_page(void)
{
    FILE *file = fopen(FLEET_PAGE, "r");
    assert_non_null(file);
    char *page = calloc(1, 1 << 17);
    assert_non_null(page);
    size_t n = fread(page, 1, (1 << 17) - 1, file);
    assert_true(n > 0 && n < (1 << 17) - 1);
    fclose(file);
    return page;
}

static const char *row_of(const router_option *o, char *row, size_t capacity)
{
    int n = snprintf(row, capacity, "| `%s` | ", o->name);
    if (o->choices == NULL) {
        snprintf(row + n, capacity - (size_t)n, "%.12g | %.12g to %.12g | %s |\n", o->def, o->min,
                 o->max, o->help);
        return row;
    }
    n += snprintf(row + n, capacity - (size_t)n, "%s | ", o->choices[(int)o->def]);
    for (uint32_t c = 0; o->choices[c] != NULL; c++)
        n += snprintf(row + n, capacity - (size_t)n, "%s%s", c == 0 ? "" : ", ", o->choices[c]);
    snprintf(row + n, capacity - (size_t)n, " | %s |\n", o->help);
    return row;
}

static void the_page_has_every_option(void **state)
{
    char row[1024];
    (void)state;
    char *page = read_page();
    for (uint32_t i = 0; router_table(i) != NULL; i++) {
        const router_policy *p = router_table(i);
        snprintf(row, sizeof row, "\n| `%s` | ", p->name);
        if (strstr(page, row) == NULL)
            fail_msg("%s not found in docs/routers.md", p->name);
        if (p->options == NULL)
            continue;
        snprintf(row, sizeof row, "\n### %s\n\n| option |", p->name);
        const char *section = strstr(page, row);
        if (section == NULL)
            fail_msg("options of %s not found in docs/routers.md", p->name);
        const char *end = strstr(section + 1, "\n#");
        for (const router_option *o = p->options; o->name != NULL; o++) {
            const char *found = strstr(section, row_of(o, row, sizeof row));
            if (found == NULL || (end != NULL && found > end))
                fail_msg("docs/routers.md has not, for %s: %s", p->name, row);
        }
    }
    free(page);
}

static void refuse_settings(void (*change)(routers_settings *), const char *expected)
{
    routers *r;
    char why[ROUTER_WHY_BYTES] = "";
    routers_settings settings;
    routers_defaults(router_find("vllm-dp"), &settings);
    change(&settings);
    assert_false(routers_open(&settings, &r, why));
    assert_null(r);
    assert_string_equal(why, expected);
}

static void bad_loss(routers_settings *s)
{
    s->view.kv_loss = 1.5;
}

static void bad_lag(routers_settings *s)
{
    s->view.metrics_lag_s = 0.125;
}

static void bad_workers(routers_settings *s)
{
    s->max_workers = 65536;
}

static void bad_value(routers_settings *s)
{
    static const double values[] = {-4};
    s->values = values;
}

static void settings_out_of_range_are_refused(void **state)
{
    (void)state;
    refuse_settings(bad_loss, "invalid kv_loss 1.5 (expected 0 to 1)");
    refuse_settings(bad_lag, "invalid metrics_lag_s 0.125 (expected 0 to metrics_every_s)");
    refuse_settings(bad_workers, "invalid max_workers 65536 (expected 1 to 65535)");
    refuse_settings(bad_value,
                    "invalid waiting-weight -4 for router vllm-dp (expected 0 to 1e+06)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_name_policies_and_options),
        cmocka_unit_test(every_policy_says_what_it_is),
        cmocka_unit_test(settings_out_of_range_are_refused),
        cmocka_unit_test(the_page_has_every_option),
        cmocka_unit_test(a_policy_is_loaded_from_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
