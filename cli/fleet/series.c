#include "series.h"

#include "output/grown.h"

#include <math.h>

void series_free(series *s)
{
    free(s->seconds);
    *s = (series){0};
}

/* The second of that time; NULL: too late, or no memory. */
static series_second *at(series *s, double time_s)
{
    if (!(time_s >= 0 && time_s < SERIES_MAX_S))
        return NULL;
    uint32_t i = (uint32_t)time_s;
    while (s->num_seconds <= i) {
        if (!grow(&s->seconds, s->num_seconds, &s->capacity, SERIES_MAX_S, sizeof *s->seconds)) {
            s->no_memory = true;
            return NULL;
        }
        s->seconds[s->num_seconds++] = (series_second){0};
    }
    return &s->seconds[i];
}

void series_first_token(series *s, double time_s, double ttft_s)
{
    series_second *second = at(s, time_s);
    if (second == NULL)
        return;
    second->first_tokens++;
    second->ttft_s += ttft_s;
}

void series_end(series *s, double time_s, uint32_t num_tokens)
{
    series_second *second = at(s, time_s);
    if (second == NULL)
        return;
    second->ends++;
    second->output_tokens += num_tokens;
}

void series_back(series *s, double time_s, uint32_t num_requests)
{
    series_second *second = at(s, time_s);
    if (second != NULL)
        second->back += num_requests;
}

void series_workers(series *s, double time_s, uint32_t ready, uint32_t starting, uint32_t draining)
{
    series_second *second = at(s, time_s);
    if (second == NULL)
        return;
    second->ready = ready + 1;
    second->starting = starting;
    second->draining = draining;
}

/* The mean of the seconds [from, to); NAN: no first token. */
static double mean_ttft_s(const series *s, uint32_t from, uint32_t to)
{
    uint64_t n = 0;
    double sum = 0;
    for (uint32_t i = from; i < to && i < s->num_seconds; i++) {
        n += s->seconds[i].first_tokens;
        sum += s->seconds[i].ttft_s;
    }
    return n > 0 ? sum / (double)n : NAN;
}

double series_ttft_before(const series *s, double time_s)
{
    uint32_t to = time_s < SERIES_MAX_S ? (uint32_t)time_s : SERIES_MAX_S;
    return mean_ttft_s(s, to > SERIES_BEFORE_S ? to - SERIES_BEFORE_S : 0, to);
}

double series_ttft_back_s(const series *s, double time_s, double limit_s)
{
    if (!(time_s < SERIES_MAX_S))
        return HUGE_VAL;
    for (uint32_t i = (uint32_t)ceil(time_s); i < s->num_seconds; i++) {
        double mean_s = mean_ttft_s(s, i, i + SERIES_WINDOW_S);
        if (mean_s <= limit_s)
            return (double)i + SERIES_WINDOW_S;
    }
    return HUGE_VAL;
}
