/* run.c - runs the cases and prints a table: quire_bench, and `quire bench`.
 *
 *      quire_bench                          all cases, 15 rounds each
 *      quire_bench --filter evict --rounds 5
 *      quire_bench --machine                tab-separated, one line for each case
 *
 * Links the library as any program does: public headers only.
 */
#include "bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define MAX_CASES   192
#define MAX_FILTERS 16

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

typedef struct options {
    uint32_t rounds;
    const char *filters[MAX_FILTERS];
    size_t num_filters;
    bool machine;
} options;

static quire_profile the_profile = QUIRE_PROFILE_VLLM_0_20;

quire_profile bench_profile(void)
{
    return the_profile;
}

/* ---- measuring ---------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which a share of the sorted ones lies, between two of them if need be. */
static double quantile(const double *sorted, uint32_t count, double share)
{
    double place = share * (count - 1);
    uint32_t below = (uint32_t)place;
    uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

static double measure_round(const bench_case *c, void *state, uint64_t *check)
{
    bench_timer timer = {0};
    do {
        *check = c->pass(state, &timer);
    } while (timer.timed_ns < BENCH_ROUND_NS);
    return (double)timer.timed_ns / (double)timer.operations / c->unit_ns;
}

static void measure(const bench_case *c, uint32_t rounds, bench_result *result)
{
    double sorted[BENCH_MAX_ROUNDS];
    void *state = c->setup(c);
    result->of = c;
    result->num_rounds = rounds;
    (void)measure_round(c, state, &result->check); /* warm-up */
    for (uint32_t i = 0; i < rounds; i++)
        result->rounds[i] = measure_round(c, state, &result->check);
    c->teardown(state);

    memcpy(sorted, result->rounds, rounds * sizeof *sorted);
    qsort(sorted, rounds, sizeof *sorted, compare_doubles);
    result->median = quantile(sorted, rounds, 0.5);
    result->p10 = quantile(sorted, rounds, 0.1);
    result->p90 = quantile(sorted, rounds, 0.9);
}

/* ---- printing ----------------------------------------------------------- */

/* Linux tells the model's name on x86; where it does not, the architecture has to do. */
static void print_cpu(void)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            printf("%.*s", (int)strcspn(value + 2, "\n"), value + 2);
            fclose(f);
            return;
        }
    }
    if (f)
        fclose(f);
    struct utsname name;
    printf("%s", uname(&name) == 0 ? name.machine : "unknown CPU");
}

static void print_header(const options *o)
{
    printf("# quire %s, ", quire_version_string());
    print_cpu();
    printf(", %s, %s, assertion level %d, rounds of %d ms: %" PRIu32 "\n", COMPILER,
           BENCH_BUILD_TYPE, QUIRE_ASSERT_LEVEL, (int)(BENCH_ROUND_NS / 1000000), o->rounds);
    if (o->machine)
        printf("# name\tunit\tcheck\tvalue of each round ...\n");
    else
        printf("%-26s %10s %10s %10s  %-10s %-12s %s\n", "case", "median", "p10", "p90", "unit",
               "limit", "check");
}

static void print_result(const bench_result *r, bool machine)
{
    const bench_case *c = r->of;
    if (machine) {
        printf("%s\t%s\t%016" PRIx64, c->name, c->unit, r->check);
        for (uint32_t i = 0; i < r->num_rounds; i++)
            printf("\t%.4f", r->rounds[i]);
        printf("\n");
    } else {
        char limit[32] = "-";
        if (c->limit > 0)
            snprintf(limit, sizeof limit, "%.0f %s", c->limit,
                     r->median <= c->limit ? "ok" : "ABOVE");
        printf("%-26s %10.2f %10.2f %10.2f  %-10s %-12s %016" PRIx64 "\n", c->name, r->median,
               r->p10, r->p90, c->unit, limit, r->check);
    }
    fflush(stdout); /* a run takes a minute: let it be watched */
}

/* ---- command line ------------------------------------------------------- */

static void print_help(FILE *out)
{
    fputs(
        "usage: quire_bench [--rounds N] [--filter WORD]... [--profile NAME] [--machine] [--help]\n"
        "\n"
        "  --rounds N     measured rounds of each case, 1 to 1000; default 15\n"
        "  --filter WORD  only cases whose name contains WORD; several: any of them\n"
        "  --profile NAME of hashes, caches and schedulers: default, vllm-0.20 (the default) or "
        "vllm-0.32\n"
        "  --machine      tab-separated: name, unit, check value, value of each round\n"
        "\n"
        "Cases are named group/operation/variant, and the groups are pool, evict, lookup, hash,\n"
        "table, cache, sched and scale; README.md beside the source says what each one measures.\n",
        out);
}

static bool parse_profile(const char *name)
{
    static const char *const NAMES[] = {[QUIRE_PROFILE_DEFAULT] = "default",
                                        [QUIRE_PROFILE_VLLM_0_20] = "vllm-0.20",
                                        [QUIRE_PROFILE_VLLM_0_32] = "vllm-0.32"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(name, NAMES[i]) != 0)
            continue;
        the_profile = (quire_profile)i;
        return true;
    }
    fprintf(stderr, "quire_bench: --profile takes default, vllm-0.20 or vllm-0.32\n");
    return false;
}

/* True when the program is to go on; else *exit_status says how it ends. */
static bool parse(int argc, const char *const *argv, options *o, int *exit_status)
{
    *o = (options){.rounds = 15};
    *exit_status = 2;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0) {
            print_help(stdout);
            *exit_status = 0;
            return false;
        }
        if (strcmp(argv[i], "--machine") == 0) {
            o->machine = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && value) {
            char *end;
            long rounds = strtol(value, &end, 10);
            if (*end || end == value || rounds < 1 || rounds > BENCH_MAX_ROUNDS) {
                fprintf(stderr, "quire_bench: --rounds takes a number from 1 to 1000\n");
                return false;
            }
            o->rounds = (uint32_t)rounds;
            i++;
        } else if (strcmp(argv[i], "--profile") == 0 && value) {
            if (!parse_profile(value))
                return false;
            i++;
        } else if (strcmp(argv[i], "--filter") == 0 && value && o->num_filters < MAX_FILTERS) {
            o->filters[o->num_filters++] = value;
            i++;
        } else {
            fprintf(stderr, "quire_bench: cannot use %s\n\n", argv[i]);
            print_help(stderr);
            return false;
        }
    }
    return true;
}

static bool wanted(const options *o, const char *name)
{
    for (size_t i = 0; i < o->num_filters; i++)
        if (strstr(name, o->filters[i]))
            return true;
    return o->num_filters == 0;
}

int bench_run(int argc, const char *const *argv)
{
    static bench_result results[MAX_CASES];
    size_t num_results = 0;
    options o;
    int exit_status;
    if (!parse(argc, argv, &o, &exit_status))
        return exit_status;

    const bench_group groups[] = {
        bench_pool_group(),  bench_lookup_group(),      bench_hash_group(),
        bench_table_group(), bench_cache_group(),       bench_cache_scale_group(),
        bench_sched_group(), bench_sched_scale_group(), bench_sched_crowds_group(),
        bench_scale_group(),
#ifdef BENCH_TIER
        bench_slots_group(),
#endif
    };
    print_header(&o);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        for (size_t i = 0; i < groups[g].num_cases && num_results < MAX_CASES; i++) {
            const bench_case *c = &groups[g].cases[i];
            if (!wanted(&o, c->name))
                continue;
            measure(c, o.rounds, &results[num_results]);
            print_result(&results[num_results++], o.machine);
        }
    }
    if (num_results == 0) {
        fprintf(stderr, "quire_bench: no case has such a name\n");
        return 2;
    }
    bench_scale_summary(results, num_results, o.machine);
    bench_cache_scale_summary(results, num_results, o.machine);
    bench_sched_scale_summary(results, num_results, o.machine);
    return 0;
}
