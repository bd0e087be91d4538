/* test_policies.c - the cases of decisions.txt: each policy chooses the expected workers, all of
 * the equal ones and no other, with the expected score.
 *
 * decisions.txt is written by decisions.py, a second writing of the formulas.
 */
#include "base/unit.h"
#include "policy_kit.h"

#include <math.h>

enum { LINE_BYTES = 1024, DRAWS = 300 };

typedef struct decision {
    char spec[LINE_BYTES];
    char line[LINE_BYTES]; /* of the case, for messages */
    policy_world world;
    uint32_t expected; /* a bit for each worker */
    bool waits;
    bool has_score;
    double score;
} decision;

/* ---- reading --------------------------------------------------------------- */

typedef struct field {
    const char *name;
    double value;
} field;

/* The next "name=value" of a line; false at its end. */
static bool next_field(char **rest, field *f)
{
    char *word = strtok_r(NULL, " \n", rest);
    if (word == NULL)
        return false;
    char *equals = strchr(word, '=');
    assert_non_null(equals);
    *equals = '\0';
    f->name = word;
    f->value = strtod(equals + 1, NULL);
    if (strcmp(word, "session") == 0)
        f->value = 0; /* 64 bits: read_request */
    return true;
}

static void read_request(decision *d, char *rest)
{
    router_request *q = &d->world.request;
    const char *session = strstr(d->line, "session=");
    field f;
    while (next_field(&rest, &f)) {
        if (strcmp(f.name, "prompt") == 0)
            q->num_prompt_tokens = (uint32_t)f.value;
        else if (strcmp(f.name, "history") == 0)
            q->num_history_tokens = (uint32_t)f.value;
        else if (strcmp(f.name, "shared") == 0)
            d->world.shared_hit = (uint32_t)f.value;
        else if (strcmp(f.name, "router") == 0)
            d->world.router = (uint32_t)f.value;
        else if (strcmp(f.name, "routers") == 0)
            d->world.num_routers = (uint32_t)f.value;
        else if (strcmp(f.name, "session") != 0)
            fail_msg("%s: field %s", d->line, f.name);
    }
    q->session = session == NULL ? 0 : strtoull(session + 8, NULL, 10);
    q->num_blocks = q->num_prompt_tokens / q->block_size;
}

static void set_worker(decision *d, router_worker *w, router_hit *hit, const field *f)
{
    uint32_t whole = (uint32_t)f->value;
    const struct {
        const char *name;
        uint32_t *to;
    } numbers[] = {{"inflight", &w->in_flight},
                   {"waiting", &w->load.waiting},
                   {"running", &w->load.running},
                   {"gpu", &hit->gpu},
                   {"host", &hit->host},
                   {"disk", &hit->disk},
                   {"leading", &hit->leading},
                   {"blocks", &w->num_blocks},
                   {"batched", &w->max_num_batched_tokens}};
    const struct {
        const char *name;
        uint64_t *to;
    } large[] = {{"prefill", &w->prefill_tokens},   {"tokens", &w->in_flight_tokens},
                 {"active", &w->active_blocks},     {"known", &w->known_blocks},
                 {"qtok", &w->load.prefill_tokens}, {"ctx", &w->load.context_tokens}};
    for (uint32_t i = 0; i < COUNT(numbers); i++) {
        if (strcmp(numbers[i].name, f->name) == 0) {
            *numbers[i].to = whole;
            return;
        }
    }
    for (uint32_t i = 0; i < COUNT(large); i++) {
        if (strcmp(large[i].name, f->name) == 0) {
            *large[i].to = whole;
            return;
        }
    }
    if (strcmp(f->name, "ready") == 0)
        w->is_ready = whole != 0;
    else if (strcmp(f->name, "kv") == 0)
        w->load.kv_usage = f->value;
    else if (strcmp(f->name, "cap") == 0)
        w->capacity = f->value;
    else if (strcmp(f->name, "ahit") == 0)
        d->world.active_hits[w - d->world.workers] = whole;
    else
        fail_msg("%s: field %s", d->line, f->name);
}

static void read_worker(decision *d, char *rest)
{
    uint32_t id = d->world.num_workers++;
    router_worker *w = &d->world.workers[id];
    router_hit *hit = &d->world.hits[id];
    field f;
    assert_true(id < KIT_WORKERS);
    *w = policy_world_of(1).workers[0];
    hit->leading = UINT32_MAX;
    while (next_field(&rest, &f))
        set_worker(d, w, hit, &f);
    if (hit->leading == UINT32_MAX)
        hit->leading = hit->gpu;
}

static void read_expected(decision *d, char *rest)
{
    char *word;
    while ((word = strtok_r(NULL, " \n", &rest)) != NULL) {
        if (strcmp(word, "score") == 0) {
            d->has_score = true;
            d->score = strtod(strtok_r(NULL, " \n", &rest), NULL);
            return;
        }
        d->expected |= UINT32_C(1) << strtoul(word, NULL, 10);
    }
}

static router_role role_of(const char *name)
{
    return strcmp(name, "serve") == 0     ? ROUTER_SERVE
           : strcmp(name, "prefill") == 0 ? ROUTER_PREFILL
                                          : ROUTER_DECODE;
}

/* ---- one case -------------------------------------------------------------- */

static void check(decision *d)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        policy_world w = d->world;
        w.random = i;
        policy_open(&w, d->spec);
        router_choice c = policy_choose(&w);
        policy_close(&w);
        if (d->waits != (c.action == ROUTER_WAIT))
            fail_msg("%s: action %d", d->line, c.action);
        if (d->waits)
            continue;
        if (!(d->expected >> c.worker & 1))
            fail_msg("%s: worker %u, expected %x", d->line, c.worker, d->expected);
        if (d->has_score && fabs(c.score - d->score) > 1e-9 * fmax(1, fabs(d->score)))
            fail_msg("%s: score %.12g, expected %.12g", d->line, c.score, d->score);
        seen |= UINT32_C(1) << c.worker;
    }
    if (seen != d->expected)
        fail_msg("%s: workers %x were chosen, expected %x", d->line, seen, d->expected);
}

static uint32_t check_file(FILE *file, uint32_t counts[], uint32_t *num_policies)
{
    char line[LINE_BYTES];
    uint32_t num_cases = 0;
    decision d = {0};
    while (fgets(line, sizeof line, file) != NULL) {
        char whole[LINE_BYTES];
        char *rest;
        memcpy(whole, line, sizeof whole);
        char *word = strtok_r(line, " \n", &rest);
        if (word == NULL || word[0] == '#')
            continue;
        if (strcmp(word, "case") == 0) {
            memset(&d, 0, sizeof d);
            d.world = policy_world_of(0);
            snprintf(d.line, sizeof d.line, "%.*s", (int)strcspn(whole, "\n"), whole);
            snprintf(d.spec, sizeof d.spec, "%s", strtok_r(NULL, " \n", &rest));
            d.world.role = role_of(strtok_r(NULL, " \n", &rest));
            read_request(&d, rest);
        } else if (strcmp(word, "worker") == 0) {
            read_worker(&d, rest);
        } else {
            d.waits = strcmp(word, "waits") == 0;
            if (!d.waits)
                read_expected(&d, rest);
            check(&d);
            num_cases++;
            d.spec[strcspn(d.spec, ":")] = '\0';
            for (uint32_t i = 0; router_table(i) != NULL; i++)
                counts[i] += strcmp(router_name(i), d.spec) == 0;
        }
    }
    for (uint32_t i = 0; router_table(i) != NULL; i++)
        *num_policies += counts[i] >= 20;
    return num_cases;
}

static void every_policy_decides_as_expected(void **state)
{
    uint32_t counts[64] = {0};
    uint32_t num_policies = 0;
    uint32_t num_all = 0;
    (void)state;
    FILE *file = fopen(FLEET_DECISIONS, "r");
    assert_non_null(file);
    uint32_t num_cases = check_file(file, counts, &num_policies);
    fclose(file);
    while (router_table(num_all) != NULL)
        num_all++;
    printf("%u cases, %u policies of %u\n", num_cases, num_policies, num_all);
    assert_int_equal(num_policies, num_all - 1); /* round-robin: test_policy_states.c */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_policy_decides_as_expected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
