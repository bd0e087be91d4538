#include "run.h"

#include <math.h>

/* The work of a replay, in prompt tokens: a token that is generated costs as much as so many that
 * are hashed and looked up. */
enum { OUTPUT_WEIGHT = 30 };

static double work_of(uint64_t prompt_tokens, uint64_t output_tokens)
{
    return (double)prompt_tokens + OUTPUT_WEIGHT * (double)output_tokens;
}

/* How much of the trace was read, 0 to 1; 0: not known. */
static double share_read(const replay *r, const arrivals_read *read)
{
    uint64_t size = trace_size(r->reader);
    uint64_t limit = r->settings->trace.max_requests;
    double share = size > 0 ? (double)trace_position(r->reader) / (double)size : 0;
    double of_limit = limit > 0 ? (double)read->requests / (double)limit : 0;
    if (read->is_all)
        return 1;
    return fmin(fmax(share, of_limit), 1);
}

replay_progress replay_measure_progress(const replay *r)
{
    const replay_result *result = r->result;
    arrivals_read read = arrivals_get_read(r->arrivals);
    double part = share_read(r, &read);
    replay_progress p = {.simulated_s = r->now_s, .num_requests = result->requests, .share = -1};
    double total = work_of(read.prompt_tokens, read.output_tokens);
    if (part > 0 && total > 0) {
        p.total_requests = (uint64_t)((double)read.requests / part + 0.5);
        p.share = part * work_of(result->prompt_tokens, result->output_tokens) / total;
    }
    if (r->settings->max_steps > 0)
        p.share = fmax(p.share, (double)result->steps / (double)r->settings->max_steps);
    return p;
}
