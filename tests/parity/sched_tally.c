#include "parity/sched_tally.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const outcome_names[] = {
#define SCHED_X(name, needed) #name,
    SCHED_OUTCOMES(SCHED_X)
#undef SCHED_X
};

static const bool is_needed[] = {
#define SCHED_X(name, needed) needed,
    SCHED_OUTCOMES(SCHED_X)
#undef SCHED_X
};

void sched_tally_start(sched_tally *tally, const char *mix)
{
    uint32_t i = 0;
    while (i < tally->num_mixes && strcmp(tally->mixes[i], mix) != 0)
        i++;
    if (i == tally->num_mixes) {
        assert_true(i < SCHED_MAX_MIXES);
        snprintf(tally->mixes[i], sizeof tally->mixes[i], "%s", mix);
        tally->num_mixes++;
    }
    tally->current = i;
    tally->workloads[i]++;
    tally->has_preempted = false;
}

void sched_tally_add(sched_tally *tally, enum sched_outcome outcome, uint64_t count)
{
    tally->counts[tally->current][outcome] += count;
    if (outcome == SCHED_preempt && count > 0 && !tally->has_preempted) {
        tally->has_preempted = true;
        tally->preempting[tally->current]++;
    }
}

static uint64_t total(const sched_tally *tally, uint32_t outcome)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tally->num_mixes; i++)
        sum += tally->counts[i][outcome];
    return sum;
}

static uint64_t sum_of(const uint64_t *counts, uint32_t num)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < num; i++)
        sum += counts[i];
    return sum;
}

void sched_tally_print(const sched_tally *tally)
{
    uint64_t workloads = sum_of(tally->workloads, tally->num_mixes);
    print_message("%-20s %5s", "mix", "loads");
    for (uint32_t o = 0; o < SCHED_NUM_OUTCOMES; o++)
        print_message(" %9s", outcome_names[o]);
    for (uint32_t i = 0; i < tally->num_mixes; i++) {
        print_message("\n%-20s %5" PRIu64, tally->mixes[i], tally->workloads[i]);
        for (uint32_t o = 0; o < SCHED_NUM_OUTCOMES; o++)
            print_message(" %9" PRIu64, tally->counts[i][o]);
    }
    print_message("\n%-20s %5" PRIu64, "all", workloads);
    for (uint32_t o = 0; o < SCHED_NUM_OUTCOMES; o++)
        print_message(" %9" PRIu64, total(tally, o));
    print_message(
        "\n%" PRIu64 " workloads (%" PRIu64 " preempt), %" PRIu64 " steps, 0 differences\n",
        workloads, sum_of(tally->preempting, tally->num_mixes), total(tally, SCHED_steps));
}

bool sched_tally_is_complete(const sched_tally *tally)
{
    bool complete = true;
    for (uint32_t o = 0; o < SCHED_NUM_OUTCOMES; o++) {
        bool may_lack = o == SCHED_common && !tally->counts_common;
        if (is_needed[o] && !may_lack && total(tally, o) == 0) {
            print_error("the recording never has the outcome: %s\n", outcome_names[o]);
            complete = false;
        }
    }
    if (3 * sum_of(tally->preempting, tally->num_mixes) <
        sum_of(tally->workloads, tally->num_mixes)) {
        print_error("fewer than a third of the workloads preempt\n");
        complete = false;
    }
    return complete;
}
