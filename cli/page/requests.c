/* cli/page/requests.c - the part of page.h that keeps requests: an even choice of them, and the
 * distribution of the latencies of all.
 */
#include "store.h"

#include "output/grown.h"
#include <stdlib.h>
#include <string.h>

void page_sample_free(page_sample *sample)
{
    for (uint32_t i = 0; i < sample->num; i++)
        free((page_interval *)(uintptr_t)sample->requests[i].preempted);
    free(sample->requests);
    *sample = (page_sample){0};
}

static void halve_sample(page_sample *sample)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sample->num; i++) {
        if (i % 2 == 0)
            sample->requests[kept++] = sample->requests[i];
        else
            free((page_interval *)(uintptr_t)sample->requests[i].preempted);
    }
    sample->num = kept;
    sample->stride *= 2;
}

/* False: no memory. */
static bool put_sample(page_sample *sample, const page_request *request)
{
    if (sample->num == PAGE_MAX_REQUESTS)
        halve_sample(sample);
    if (sample->seen++ % sample->stride != 0)
        return true;
    page_request copy = *request;
    copy.preempted = NULL;
    uint32_t kept = request->num_preempted;
    kept = kept < PAGE_MAX_INTERVALS ? kept : PAGE_MAX_INTERVALS;
    if (kept > 0) {
        page_interval *intervals = malloc(kept * sizeof *intervals);
        if (intervals == NULL)
            return false;
        memcpy(intervals, request->preempted, kept * sizeof *intervals);
        copy.preempted = intervals;
    }
    if (!grow(&sample->requests, sample->num, &sample->capacity, UINT32_MAX, sizeof copy)) {
        free((page_interval *)(uintptr_t)copy.preempted);
        return false;
    }
    sample->requests[sample->num++] = copy;
    return true;
}

/* ---- latencies ------------------------------------------------------------- */

/* Which eighth of its octave, by comparison: logarithms may differ from machine to machine. */
static uint32_t bin_of(double us)
{
    static const double EIGHTHS[] = {1.0905077326652577, 1.189207115002721,  1.2968395546510096,
                                     1.4142135623730951, 1.5422108254079407, 1.681792830507429,
                                     1.8340080864093424};
    uint32_t bin = 0;
    while (us >= 2 && bin + PAGE_BINS_PER_OCTAVE < PAGE_NUM_BINS) {
        us /= 2;
        bin += PAGE_BINS_PER_OCTAVE;
    }
    for (uint32_t i = 0; i < PAGE_BINS_PER_OCTAVE - 1 && us >= EIGHTHS[i]; i++)
        bin++;
    return bin;
}

static void add_latency(page *p, page_latency which, double from_s, double to_s)
{
    if (from_s < 0 || to_s < from_s)
        return;
    page_histogram *histogram = &p->latencies[which];
    histogram->bins[bin_of((to_s - from_s) * 1e6)]++;
    histogram->count++;
}

void page_request_end(page *p, const page_request *r)
{
    add_latency(p, LATENCY_QUEUE, r->arrival_s, r->scheduled_s);
    add_latency(p, LATENCY_TTFT, r->arrival_s, r->first_token_s);
    if (r->end != PAGE_END_OPEN)
        add_latency(p, LATENCY_E2E, r->arrival_s, r->end_s);
    if (r->end != PAGE_END_OPEN && r->output_tokens > 1 && r->first_token_s >= 0)
        add_latency(p, LATENCY_TPOT, 0, (r->end_s - r->first_token_s) / (r->output_tokens - 1));
    page_sample *sample = r->num_preempted > 0 ? &p->preempted : &p->others;
    if (!put_sample(sample, r))
        p->is_failed = true;
}
