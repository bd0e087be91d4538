/* router_why.c - router_explain of router.h: a decision in a sentence. */
#include "router.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct sentence {
    char *out;
    size_t capacity;
    size_t length; /* may be more than the capacity: the rest is cut off */
} sentence;

__attribute__((format(printf, 2, 3))) static void say(sentence *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = s->length < s->capacity ? s->capacity - s->length : 0;
    int n = vsnprintf(left == 0 ? NULL : s->out + s->length, left, format, arguments);
    va_end(arguments);
    s->length += n > 0 ? (size_t)n : 0;
}

static void say_number(sentence *s, double value)
{
    if (value == floor(value) && fabs(value) < 1e15)
        say(s, "%.0f", value);
    else
        say(s, "%.4g", value);
}

static void say_choice(sentence *s, const router_policy *policy, const router_choice *c)
{
    const char *what = policy->is_cost ? "cost" : "score";
    say(s, "worker %u", c->worker);
    if (policy->terms[0] != NULL) {
        say(s, ": %s ", what);
        say_number(s, c->score);
        for (uint32_t i = 0; i < ROUTER_MAX_TERMS && policy->terms[i] != NULL; i++) {
            say(s, i == 0 ? " (" : ", ");
            say_number(s, c->terms[i]);
            say(s, " %s", policy->terms[i]);
        }
        say(s, ")");
    }
    if (c->reason != NULL)
        say(s, "%s %s", policy->terms[0] != NULL ? "," : ":", c->reason);
    if (c->num_ties > 0)
        say(s, "; %u other worker%s equal", c->num_ties, c->num_ties == 1 ? " is" : "s are");
    if (c->runner_up != ROUTER_NONE) {
        say(s, "; next is worker %u with ", c->runner_up);
        say_number(s, c->runner_up_score);
    }
}

size_t router_explain(const routers *r, const router_request *request, const router_answer *answer,
                      char *out, size_t capacity)
{
    const router_policy *policy = routers_policy(r);
    sentence s = {out, capacity, 0};
    if (answer->action != ROUTER_ROUTE) {
        const char *reason = answer->choice.reason != NULL           ? answer->choice.reason
                             : answer->prefill_choice.reason != NULL ? answer->prefill_choice.reason
                                                                     : "as the policy says";
        say(&s, "request %s: %s", answer->action == ROUTER_WAIT ? "waits" : "refused", reason);
    } else {
        say_choice(&s, policy, &answer->choice);
    }
    if (answer->prefill_worker != ROUTER_NONE) {
        say(&s, "; prefill on ");
        say_choice(&s, policy, &answer->prefill_choice);
    }
    if (answer->best_hit_worker != ROUTER_NONE)
        say(&s, "; longest hit %u of %u blocks at worker %u", answer->best_hit_blocks,
            request->num_blocks, answer->best_hit_worker);
    return s.length < capacity ? s.length : capacity == 0 ? 0 : capacity - 1;
}
