#include "torture.h"

#include <unistd.h>

enum { MOVES_IN_ERA = 250000, FEWEST_ERAS = 4, MOST_GROWTH_PAGES = 8192 };

/* What the ordinary test does; a sanitizer that is slow does less. */
#ifdef __SANITIZE_THREAD__
#define FEW_MOVES 40000
#else
#define FEW_MOVES 200000
#endif

static torture g_torture;

static uint64_t moves_of(const torture *t, bool is_printed)
{
    quire_offload_stats s = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_offload_get_stats(t->offload, &s), QUIRE_OK);
    uint64_t moves = s.stored_blocks + s.loaded_blocks;
    for (uint32_t i = 0; i < t->num_tiers; i++)
        moves += s.tiers[i].stored_blocks + s.tiers[i].promoted_blocks;
    if (!is_printed)
        return moves;
    printf("  CPU: %llu stored, %llu loaded (%llu, %llu failed)\n",
           (unsigned long long)s.stored_blocks, (unsigned long long)s.loaded_blocks,
           (unsigned long long)s.failed_stores, (unsigned long long)s.failed_loads);
    for (uint32_t i = 0; i < t->num_tiers; i++) {
        quire_tier_stats tier = QUIRE_TIER_STATS_INIT;
        assert_int_equal(quire_tier_get_stats(t->tiers[i], &tier), QUIRE_OK);
        printf(
            "  %s: %llu stored, %llu promoted, %llu failed (%llu wrong), %llu late, %llu dropped, "
            "opened %llu times\n",
            t->labels[i], (unsigned long long)s.tiers[i].stored_blocks,
            (unsigned long long)s.tiers[i].promoted_blocks,
            (unsigned long long)s.tiers[i].failed_blocks,
            (unsigned long long)tier.keys[QUIRE_TIER_LOAD][QUIRE_TIER_WRONG],
            (unsigned long long)s.tiers[i].late_blocks,
            (unsigned long long)s.tiers[i].dropped_blocks, (unsigned long long)tier.breaker_opened);
    }
    return moves;
}

static uint64_t resident_pages(void)
{
    unsigned long long total = 0;
    unsigned long long resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident;
}

/* All requests end, and nothing of theirs is left. */
static void drain(torture *t)
{
    torture_calm(t);
    uint64_t since_ns = torture_now_ns();
    while (!torture_is_quiet(t)) {
        torture_step(t, true);
        assert_true(torture_now_ns() - since_ns < UINT64_C(180000000000));
    }
    /* Late jobs come back too. */
    while (quire_cache_get_usage(quire_offload_cache(t->offload)).active > 0 ||
           quire_sched_get_usage(t->sched).active > 0) {
        torture_step(t, true);
        torture_sleep_us(1000);
        assert_true(torture_now_ns() - since_ns < UINT64_C(180000000000));
    }
    assert_int_equal(quire_offload_check(t->offload), QUIRE_OK);
    assert_int_equal(quire_sched_check(t->sched), QUIRE_OK);
    assert_int_equal(t->wrong_tokens, 0);
}

static void live_an_era(torture *t, uint32_t era, uint64_t moves)
{
    t->mode = era % 2 == 0 ? QUIRE_OFFLOAD_EAGER : QUIRE_OFFLOAD_LAZY;
    t->is_hybrid = era / 2 % 2 != 0;
    t->is_async = (era / 2 + era) % 2 != 0;
    t->is_zeroing = era % 5 == 1;
    t->is_pinning = era % 3 == 2;
    torture_open_tiers(t, era);
    torture_open_engine(t);
    do {
        torture_step(t, false);
        torture_trouble(t);
    } while (t->steps % 64 != 0 || moves_of(t, false) < moves);
    drain(t);
    torture_end_events(t);
    if (t->options.is_talking)
        printf("era %u: %s, %s%s%s%s; %llu pages\n", era,
               t->mode == QUIRE_OFFLOAD_EAGER ? "eager" : "lazy",
               t->is_hybrid ? "full and window" : "full", t->is_async ? ", async" : "",
               t->is_zeroing ? ", zeroed" : "", t->is_pinning ? ", pinned" : "",
               (unsigned long long)resident_pages());
    t->moves += moves_of(t, t->options.is_talking);
    torture_close_engine(t);
    torture_close_tiers(t);
}

static void test_torture(void **state)
{
    torture *t = *state;
    quire_host_memory_config host = QUIRE_HOST_MEMORY_CONFIG_INIT;
    host.bytes = (uint64_t)TORTURE_CPU * TORTURE_BYTES;
    t->gpu = aligned_alloc(4096, (size_t)TORTURE_GPU * TORTURE_BYTES);
    assert_non_null(t->gpu);
    assert_int_equal(quire_host_memory_open(&host, &t->host), QUIRE_OK);
    t->cpu = quire_host_memory_get_info(t->host)->data;
    torture_begin_tiers(t);
    uint64_t eras = t->options.moves / MOVES_IN_ERA;
    eras = eras < FEWEST_ERAS ? FEWEST_ERAS : eras;
    uint64_t pages = 0;
    for (uint32_t era = 0; era < eras; era++) {
        live_an_era(t, era, t->options.moves / eras + 1);
        if (era < FEWEST_ERAS || era < eras / 2) /* all modes were there, some more often */
            pages = resident_pages();
    }
    uint64_t grown = resident_pages() > pages ? resident_pages() - pages : 0;
    torture_end_tiers(t);
    printf("%llu moves, %llu steps, %llu blocks looked at: %llu wrong tokens\n"
           "%llu requests, %llu ended, %llu of them aborted; %llu preempted, %llu resets, %llu new "
           "identities, "
           "%llu troubles; %llu pages more than halfway\n"
           "%llu moved by the caller, of whose %llu saved tokens %llu came back\n"
           "views of events: %llu times as all tiers were, %llu of their blocks loaded\n",
           (unsigned long long)t->moves, (unsigned long long)t->steps,
           (unsigned long long)t->checked_blocks, (unsigned long long)t->wrong_tokens,
           (unsigned long long)t->added, (unsigned long long)t->ended,
           (unsigned long long)t->aborted, (unsigned long long)t->preempted,
           (unsigned long long)t->resets, (unsigned long long)t->identities,
           (unsigned long long)t->troubles, (unsigned long long)grown, (unsigned long long)t->moved,
           (unsigned long long)t->saved_tokens, (unsigned long long)t->found_tokens,
           (unsigned long long)t->compared, (unsigned long long)t->loaded_blocks);
    assert_true(t->compared >= eras && t->loaded_blocks > 0);
    assert_int_equal(t->added, t->ended);
    assert_true(t->moved > 0 && t->found_tokens > 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    assert_true(grown < MOST_GROWTH_PAGES);
#endif
    free(t->gpu);
    quire_host_memory_close(t->host);
}

static int usage(const char *name)
{
    printf("usage: %s [--moves N] [--seed S] [--no file|directory|redis|faulty|faults] [--talk]\n",
           name);
    return 2;
}

static bool leave_out(torture_options *options, const char *what)
{
    if (strcmp(what, "file") == 0)
        options->has_file = false;
    else if (strcmp(what, "directory") == 0)
        options->has_directory = false;
    else if (strcmp(what, "redis") == 0)
        options->has_redis = false;
    else if (strcmp(what, "faulty") == 0)
        options->has_faulty = false;
    else if (strcmp(what, "faults") == 0)
        options->is_calm = true;
    else
        return false;
    return true;
}

static bool has_redis_server(void)
{
    char file[512];
    for (const char *at = getenv("PATH"); at != NULL && *at != 0;) {
        int n = (int)strcspn(at, ":");
        (void)snprintf(file, sizeof file, "%.*s/redis-server", n, at);
        if (access(file, X_OK) == 0)
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_torture, &g_torture)};
    torture_options *options = &g_torture.options;
    *options = (torture_options){.moves = FEW_MOVES,
                                 .seed = 20261115,
                                 .has_file = true,
                                 .has_directory = true,
                                 .has_redis = true,
                                 .has_faulty = true};
    for (int i = 1; i < argc; i++) {
        bool has_more = i + 1 < argc;
        if (strcmp(argv[i], "--talk") == 0)
            options->is_talking = true;
        else if (strcmp(argv[i], "--moves") == 0 && has_more)
            options->moves = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && has_more)
            options->seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--no") != 0 || !has_more || !leave_out(options, argv[++i]))
            return usage(argv[0]);
    }
    if (options->has_redis && !has_redis_server()) {
        printf("redis-server is missing: without Redis\n");
        options->has_redis = false;
    }
    printf("seed %llu\n", (unsigned long long)options->seed);
    g_torture.random = options->seed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
