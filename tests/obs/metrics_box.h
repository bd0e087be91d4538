/* obs/metrics_box.h - metrics in memory of their own, for tests without a scheduler. */
#ifndef OBS_METRICS_BOX_H
#define OBS_METRICS_BOX_H

#include "base/unit.h"
#include "obs/exposition.h"
#include "obs/residency.h"

typedef struct metrics_box {
    qr_metrics metrics;
    qr_residency residency; /* where shape.has_residency */
    void *memory;
} metrics_box;

static inline void box_carve(metrics_box *box, qr_arena *arena, const qr_metrics_shape *shape,
                             double rate)
{
    qr_metrics_carve(&box->metrics, arena, shape);
    if (shape->has_residency)
        qr_residency_carve(&box->residency, arena, shape->num_blocks, rate);
}

static inline void box_open(metrics_box *box, const qr_metrics_shape *shape, double rate,
                            uint64_t seed)
{
    qr_arena plan = qr_arena_plan();
    box_carve(box, &plan, shape, rate);
    box->memory = aligned_alloc(64, (plan.used + 63) / 64 * 64);
    qr_arena arena = qr_arena_carve(box->memory, plan.used);
    box_carve(box, &arena, shape, rate);
    qr_metrics_init(&box->metrics);
    if (shape->has_residency)
        qr_residency_init(&box->residency, &box->metrics, rate, (uint64_t[]){seed, 7, 9});
}

static inline void box_close(metrics_box *box)
{
    free(box->memory);
}

/* All metrics as text; to be freed. */
static inline char *box_text(const metrics_box *box, const quire_metrics_format *format)
{
    size_t bytes = qr_exposition_write(&box->metrics, format, NULL, 0) + 1;
    char *text = malloc(bytes);
    assert_int_equal(qr_exposition_write(&box->metrics, format, text, bytes), bytes - 1);
    return text;
}

#endif
