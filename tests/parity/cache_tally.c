#include "parity/cache_tally.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const outcome_names[] = {
#define CACHE_X(name, in_0_20, in_0_32) #name,
    CACHE_OUTCOMES(CACHE_X)
#undef CACHE_X
};

static const bool is_needed[][2] = {
#define CACHE_X(name, in_0_20, in_0_32) {in_0_20, in_0_32},
    CACHE_OUTCOMES(CACHE_X)
#undef CACHE_X
};

void cache_tally_start(cache_tally *tally, const char *mix)
{
    uint32_t i = 0;
    while (i < tally->num_mixes && strcmp(tally->mixes[i], mix) != 0)
        i++;
    if (i == tally->num_mixes) {
        assert_true(i < CACHE_MAX_MIXES);
        snprintf(tally->mixes[i], sizeof tally->mixes[i], "%s", mix);
        tally->num_mixes++;
    }
    tally->current = i;
    tally->workloads[i]++;
}

void cache_tally_add(cache_tally *tally, enum cache_outcome outcome, uint64_t count)
{
    tally->counts[tally->current][outcome] += count;
}

static uint64_t total(const cache_tally *tally, uint32_t outcome)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tally->num_mixes; i++)
        sum += tally->counts[i][outcome];
    return sum;
}

void cache_tally_print(const cache_tally *tally)
{
    uint64_t workloads = 0;
    print_message("%-18s %5s", "mix", "loads");
    for (uint32_t o = 0; o < CACHE_NUM_OUTCOMES; o++)
        print_message(" %8s", outcome_names[o]);
    for (uint32_t i = 0; i < tally->num_mixes; i++) {
        workloads += tally->workloads[i];
        print_message("\n%-18s %5" PRIu64, tally->mixes[i], tally->workloads[i]);
        for (uint32_t o = 0; o < CACHE_NUM_OUTCOMES; o++)
            print_message(" %8" PRIu64, tally->counts[i][o]);
    }
    print_message("\n%-18s %5" PRIu64, "all", workloads);
    for (uint32_t o = 0; o < CACHE_NUM_OUTCOMES; o++)
        print_message(" %8" PRIu64, total(tally, o));
    print_message("\n%" PRIu64 " workloads, %" PRIu64 " operations, 0 differences\n", workloads,
                  total(tally, CACHE_calls));
}

bool cache_tally_is_complete(const cache_tally *tally, bool is_0_32)
{
    bool complete = true;
    for (uint32_t o = 0; o < CACHE_NUM_OUTCOMES; o++) {
        if (is_needed[o][is_0_32] && total(tally, o) == 0) {
            print_error("the recording never has the outcome: %s\n", outcome_names[o]);
            complete = false;
        }
    }
    return complete;
}
