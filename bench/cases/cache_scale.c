/* cache_scale.c - one decode token in caches of all sizes: does its cost stay flat?
 *
 *      cache/decode_blocks/N      8 requests in a cache of N blocks, 1 thousand to 1 million
 *      cache/decode_requests/N    N requests, 1 to 16,384, in a cache of 1 million blocks
 *
 * Every 16th token takes a block, from the head of the queue: at a random place in memory, where a
 * cached block has to be evicted. With more requests, each has left the processor's caches before
 * its turn comes again. What grows is the price of these misses; scale/chase says what one costs.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define MILLION 1000000u

/* size: blocks, batch: requests */
static void *scale_setup(const bench_case *self)
{
    const bench_fleet_config config = {
        .num_blocks = self->size, .num_requests = self->batch, .shortest = 250, .longest = 750};
    return bench_fleet_decoding(&config);
}

/* ---- the cases ---------------------------------------------------------- */

#define DECODE(name, blocks, requests)                                                             \
    {                                                                                              \
        "cache/decode_" name, "ns/call", 1, 0, blocks, requests, true, scale_setup,                \
            bench_fleet_decode_pass, bench_fleet_teardown                                          \
    }

static const bench_case cases[] = {
    DECODE("blocks/1k", 1000, 8),           DECODE("blocks/10k", 10000, 8),
    DECODE("blocks/100k", 100000, 8),       DECODE("blocks/1M", MILLION, 8),
    DECODE("requests/1", MILLION, 1),       DECODE("requests/16", MILLION, 16),
    DECODE("requests/256", MILLION, 256),   DECODE("requests/4k", MILLION, 4096),
    DECODE("requests/16k", MILLION, 16384),
};

bench_group bench_cache_scale_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}

/* ---- summary ------------------------------------------------------------ */

/* One line: the medians of the cases whose names start so, and how they grow. */
static void print_growth(const bench_result *results, size_t num_results, const char *prefix)
{
    double first = 0, last = 0;
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < num_results; i++) {
        const bench_result *r = &results[i];
        if (strncmp(r->of->name, prefix, length) != 0)
            continue;
        if (first == 0) {
            first = r->median;
            printf("  %s", prefix + strlen("cache/"));
        }
        last = r->median;
        printf("  %s %.2f", r->of->name + length, r->median);
    }
    if (first > 0)
        printf("   from first to last %.1fx\n", last / first);
}

void bench_cache_scale_summary(const bench_result *results, size_t num_results, bool machine)
{
    bool any = false;
    for (size_t i = 0; i < num_results; i++)
        any |= strncmp(results[i].of->name, "cache/decode_", 13) == 0;
    if (!any || machine)
        return;
    printf("\ncache, ns for one decode token\n");
    print_growth(results, num_results, "cache/decode_blocks/");
    print_growth(results, num_results, "cache/decode_requests/");
}
