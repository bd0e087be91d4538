/* engine/main.c - the program: engine_proof --requests N --seed S [--backend cpu|cuda] ... */
#include "base/quirks_kit.h"
#include "engine/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_usage(void)
{
    printf("engine_proof [--requests N] [--seed S] [--backend cpu|cuda] [--jobs N] [--verbose]\n"
           "             [--per-engine N] [--without NAME,NAME] [--with NAME,NAME: no others]\n"
           "             [--quirks NAME,NAME: of vLLM 0.20.0, as docs/quirks.md names them]\n"
           "             [--worker: plans and reports between offload and device, tiers]\n"
           "             [--part: what was never at work is told, and no failure]\n"
           "             [--one SEED] [--break N: 1 marks 2 slot 3 table 4 copy 5 swap 6 zero 7 "
           "position 8 peer]\n"
           "An engine of Quire and a tiny model, compared bit for bit with the same model and a\n"
           "contiguous cache. Mechanisms:\n");
#define ENGINE_X(name, count, text) printf("  %-10s %s\n", #name, text);
    ENGINE_SWITCH_MAP(ENGINE_X)
#undef ENGINE_X
}

/* Sets the named switches. 0, or 1: there is none of that name. */
static int set_switches(engine_switches *switches, char *names, bool is_on)
{
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        bool is_known = false;
#define ENGINE_X(field, count, text)                                                               \
    if (strcmp(name, #field) == 0) {                                                               \
        switches->field = is_on;                                                                   \
        is_known = true;                                                                           \
    }
        ENGINE_SWITCH_MAP(ENGINE_X)
#undef ENGINE_X
        if (!is_known) {
            fprintf(stderr, "engine_proof: no mechanism '%s'\n", name);
            return 1;
        }
    }
    return 0;
}

/* The bits of the named quirks; UINT64_MAX: there is none of that name. */
static uint64_t read_quirks(char *names)
{
    uint64_t quirks = 0;
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        uint64_t bit = 0;
#define ENGINE_X(number, field, text)                                                              \
    if (strcmp(name, #field) == 0)                                                                 \
        bit = QR_QUIRK(field);
        QR_QUIRK_MAP(ENGINE_X)
#undef ENGINE_X
        if (bit == 0) {
            fprintf(stderr, "engine_proof: no quirk '%s'\n", name);
            return UINT64_MAX;
        }
        quirks |= bit;
    }
    return quirks;
}

static void set_all(engine_switches *switches, bool is_on)
{
#define ENGINE_X(field, count, text) switches->field = is_on;
    ENGINE_SWITCH_MAP(ENGINE_X)
#undef ENGINE_X
}

typedef struct options {
    engine_proof proof;
    bool is_one;
    uint64_t one;
} options;

/* An option with a value. 0, or 1: wrong. */
static int read_value(options *o, const char *name, char *value)
{
    engine_proof *p = &o->proof;
    if (strcmp(name, "--requests") == 0)
        p->num_requests = strtoull(value, NULL, 10);
    else if (strcmp(name, "--seed") == 0)
        p->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--per-engine") == 0)
        p->per_engine = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(name, "--jobs") == 0)
        p->num_jobs = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(name, "--break") == 0)
        p->broken = (engine_break)strtoul(value, NULL, 10);
    else if (strcmp(name, "--quirks") == 0)
        return (p->quirks = read_quirks(value)) == UINT64_MAX;
    else if (strcmp(name, "--backend") == 0)
        p->ops = engine_backend_find(value);
    else if (strcmp(name, "--without") == 0)
        return set_switches(&p->switches, value, false);
    else if (strcmp(name, "--with") == 0) {
        set_all(&p->switches, false);
        return set_switches(&p->switches, value, true);
    } else if (strcmp(name, "--one") == 0) {
        o->is_one = true;
        o->one = strtoull(value, NULL, 10);
    } else
        return 1;
    return 0;
}

static int read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            o->proof.is_verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--worker") == 0) {
            o->proof.has_worker = true;
            continue;
        }
        if (strcmp(argv[i], "--part") == 0) {
            o->proof.is_part = true;
            continue;
        }
        if (i + 1 == argc || read_value(o, argv[i], argv[i + 1]) != 0)
            return 1;
        i++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o = {.proof = {.ops = &ENGINE_CPU_OPS, .num_requests = 5000, .seed = 1}};
    o.proof.enough = UINT64_MAX;
    set_all(&o.proof.switches, true);
    if (read_options(&o, argc, argv) != 0) {
        print_usage();
        return 2;
    }
    if (o.proof.ops == NULL) {
        printf("engine_proof: this program has no such backend\n");
        return 77;
    }
    engine_counts counts = {0};
    printf("engine_proof: %llu requests, seed %llu, backend %s\n",
           (unsigned long long)o.proof.num_requests, (unsigned long long)o.proof.seed,
           o.proof.ops->name);
    int failed =
        o.is_one ? engine_prove_one(&o.proof, o.one, &counts) : engine_prove(&o.proof, &counts);
    if (o.proof.is_disabled) {
        printf("skipped: %s\n", o.proof.message);
        return 77;
    }
    engine_proof_print(&counts);
    if (failed)
        printf("failed: %s\n", o.proof.message);
    int is_bad =
        (o.is_one ? counts.tokens_differ > 0 : engine_proof_judge(&o.proof, &counts)) || failed;
    printf("%s\n", is_bad ? "FAILED" : "every bit is the same");
    return is_bad ? 1 : 0;
}
