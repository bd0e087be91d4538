/* sched/step/stop.c - when the last token ends a request: vLLM's rules, in vLLM's order.
 *
 *      fewer than min_tokens      no rule but the length (MIN_TOKENS_HIDES_LENGTH: none at all;
 *                                 stops_below_min: all but repetition)
 *      EOS, a stop token          STOPPED
 *      max_model_len, max_tokens  LENGTH
 *      repetition                 REPETITION
 */
#include "sched/sched.h"

static bool is_stop_token(const qr_stop_rules *rules, quire_token token)
{
    for (uint32_t i = 0; i < rules->num_tokens; i++)
        if (rules->tokens[i] == token)
            return true;
    return false;
}

/* Whether the last `pattern` tokens stand there `count` times in a row. */
static bool repeats(const quire_sched *s, const qr_request *r, uint32_t pattern, uint32_t count)
{
    uint32_t end = r->kv.num_tokens;
    for (uint32_t n = 1; n <= pattern; n++) {
        quire_token token = qr_text_token(&s->texts.store, &r->text, end - n);
        for (uint32_t m = 1; m < count; m++)
            if (qr_text_token(&s->texts.store, &r->text, end - pattern * m - n) != token)
                return false;
    }
    return true;
}

static bool has_repetition(const quire_sched *s, const qr_request *r)
{
    const qr_stop_rules *rules = &r->stops;
    uint32_t first = rules->repetition_min_pattern > 0 ? rules->repetition_min_pattern : 1;
    if (rules->repetition_min_count < 2)
        return false;
    for (uint32_t pattern = first; pattern <= rules->repetition_max_pattern; pattern++) {
        if ((uint64_t)pattern * rules->repetition_min_count > qr_request_num_outputs(r))
            return false;
        if (repeats(s, r, pattern, rules->repetition_min_count))
            return true;
    }
    return false;
}

/* The rules that few requests have; `is_at_end` is the length rule. */
static QR_NOINLINE uint8_t check_more_rules(const quire_sched *s, qr_request *r, quire_token last,
                                            bool is_at_end)
{
    const qr_stop_rules *rules = &r->stops;
    bool is_below_min = qr_request_num_outputs(r) < rules->min_tokens;
    if (is_below_min && !s->settings.rules.stops_below_min) {
        bool hides = (s->settings.quirks & QR_QUIRK(MIN_TOKENS_HIDES_LENGTH)) != 0;
        return is_at_end && !hides ? QUIRE_REQ_FINISHED_LENGTH : 0;
    }
    if (r->has_eos && last == r->eos_token_id)
        return QUIRE_REQ_FINISHED_STOPPED;
    if (is_stop_token(rules, last)) {
        r->stopped_by = QR_STOPPED_BY_TOKEN;
        r->stop_reason = last;
        return QUIRE_REQ_FINISHED_STOPPED;
    }
    if (is_at_end)
        return QUIRE_REQ_FINISHED_LENGTH;
    if (is_below_min || rules->repetition_max_pattern == 0 || !has_repetition(s, r))
        return 0;
    r->stopped_by = QR_STOPPED_BY_REPETITION;
    return QUIRE_REQ_FINISHED_REPETITION;
}

bool qr_sched_check_stop(const quire_sched *s, qr_request *r, quire_token last)
{
    bool is_at_end =
        r->kv.num_tokens >= s->settings.max_model_len || qr_request_num_outputs(r) >= r->max_tokens;
    uint8_t status = 0;
    if (QR_UNLIKELY(r->has_more_stops))
        status = check_more_rules(s, r, last, is_at_end);
    else if (r->has_eos && last == r->eos_token_id)
        status = QUIRE_REQ_FINISHED_STOPPED;
    else if (is_at_end)
        status = QUIRE_REQ_FINISHED_LENGTH;
    if (QR_LIKELY(status == 0))
        return false;
    r->status = status;
    return true;
}
