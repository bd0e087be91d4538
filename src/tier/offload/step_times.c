#include "tier/offload/step_times.h"

/* Of a step that is not mostly prefill the time is not that of its tokens. */
void qr_step_times_begin(qr_step_times *times, uint64_t step, uint32_t num_tokens,
                         uint32_t num_reqs, const quire_hooks *hooks)
{
    enum { LEAST_TOKENS = 64 };
    uint64_t decode = (uint64_t)num_reqs * times->most_decode;
    bool is_prefill = num_tokens >= LEAST_TOKENS && num_tokens >= 2 * decode;
    uint32_t place = (uint32_t)(step % QR_STEPS_TIMED);
    times->last_step = step;
    times->timed[place].step = step;
    times->timed[place].start_ns = is_prefill ? qr_now_ns(hooks) : 0;
    times->timed[place].num_tokens = is_prefill ? num_tokens : 0;
}

/* A step that was given out before the one before it ended was computed after that. */
uint64_t qr_step_times_end(qr_step_times *times, uint64_t step, const quire_hooks *hooks,
                           uint32_t *num_tokens)
{
    uint32_t place = (uint32_t)(step % QR_STEPS_TIMED);
    *num_tokens = times->timed[place].step == step ? times->timed[place].num_tokens : 0;
    if (*num_tokens == 0 && times->last_step == step)
        return 0;
    uint64_t now_ns = qr_now_ns(hooks);
    uint64_t start_ns = times->timed[place].start_ns;
    start_ns = start_ns > times->last_end_ns ? start_ns : times->last_end_ns;
    times->last_end_ns = now_ns;
    if (*num_tokens == 0)
        return 0;
    times->timed[place].num_tokens = 0;
    return now_ns > start_ns ? now_ns - start_ns : 0;
}
