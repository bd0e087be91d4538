#include "front.h"
#include "options/nearest.h"

#include <stdlib.h>

bool sweep_has_fleets(const sweep *s)
{
    static const char *const names[] = {"workers",   "router",           "routers",
                                        "seed",      "kv-lag",           "kv-loss",
                                        "kv-resync", "metrics-interval", NULL};
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (is_one_of(s->axes[i].option->name, names))
            return true;
    return false;
}

typedef struct front_point {
    double gpus;
    double number;
    uint32_t point;
} front_point;

static int compare(const void *a, const void *b)
{
    const front_point *x = a;
    const front_point *y = b;
    if (x->gpus != y->gpus)
        return x->gpus < y->gpus ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->point < y->point ? -1 : 1;
}

bool sweep_front(const sweep *s, const char *path, uint32_t *points, uint32_t *num)
{
    front_point *all = calloc(s->num_points, sizeof *all);
    uint32_t num_all = 0;
    front_point last = {0};
    *num = 0;
    if (all == NULL)
        return false;
    for (uint32_t i = 0; i < s->num_points; i++) {
        front_point *p = &all[num_all];
        p->point = i;
        num_all += sweep_number(s, i, "gpus", &p->gpus) && sweep_number(s, i, path, &p->number);
    }
    qsort(all, num_all, sizeof *all, compare);
    for (uint32_t i = 0; i < num_all; i++) {
        bool is_equal = all[i].gpus == last.gpus && all[i].number == last.number;
        if (*num > 0 && all[i].number >= last.number && !is_equal)
            continue;
        last = all[i];
        points[(*num)++] = all[i].point;
    }
    free(all);
    return true;
}
