/* obs/metrics_text.h - reads what quire_monitor_write_metrics wrote, and holds it to the rules.
 *
 *      # HELP, # TYPE      once for each family, before its samples, which stand together
 *      counter             _total; a whole number
 *      histogram           _bucket with rising le and counts, +Inf is _count; _sum
 *      OpenMetrics         # EOF at the end, the family's name is without _total, UNIT ends it
 *
 * Anything else fails the test.
 */
#ifndef OBS_METRICS_TEXT_H
#define OBS_METRICS_TEXT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct text_sample {
    char name[96];    /* without the labels */
    char labels[512]; /* a="1",b="2": sorted by name, values as they are written */
    double value;
} text_sample;

typedef struct metrics_text {
    text_sample *samples;
    uint32_t num_samples;
    uint32_t num_families;
} metrics_text;

void text_parse(metrics_text *parsed, const char *text, bool is_openmetrics);
void text_free(metrics_text *parsed);
/* The sample with this name and these labels, or NULL. */
const text_sample *text_find(const metrics_text *parsed, const char *name, const char *labels);
/* The value of the only sample of this name whose labels contain these; it must be there. */
double text_value(const metrics_text *parsed, const char *name, const char *part);

/* Sorts a="1",b="2" by name, in place. */
void text_sort_labels(char *labels);

#endif
