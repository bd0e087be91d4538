#include "api/fields_kit.h"

#include <math.h>

static const uint64_t NUMBERS[] = {0,          1,        2,          INT32_MAX,        1u << 31,
                                   UINT32_MAX, 1u << 30, UINT64_MAX, UINT64_C(1) << 32};

uint32_t field_num_edges(const field *f)
{
    return f->kind == FIELD_ANY ? 0 : MAX_EDGES;
}

static uint64_t number_edge(const field *f, uint32_t i)
{
    const uint64_t around[] = {f->least - 1, f->least, f->most - 1, f->most, f->most + 1};
    return i < COUNT(around) ? around[i] : NUMBERS[i - COUNT(around)];
}

static double real_edge(const field *f, uint32_t i)
{
    const double values[MAX_EDGES] = {f->real_least,
                                      f->real_most,
                                      nextafter(f->real_least, -INFINITY),
                                      nextafter(f->real_most, INFINITY),
                                      (double)NAN,
                                      (double)INFINITY,
                                      -(double)INFINITY,
                                      -0.0,
                                      0.5,
                                      1,
                                      -1,
                                      1e308,
                                      -1e308,
                                      5e-324};
    return values[i];
}

void field_set_edge(const field *f, void *object, uint32_t i)
{
    unsigned char *at = (unsigned char *)object + f->offset;
    if (f->kind == FIELD_REAL) {
        double value = real_edge(f, i);
        memcpy(at, &value, sizeof value);
        return;
    }
    uint64_t value = number_edge(f, i);
    uint32_t low = (uint32_t)value;
    if (f->size == sizeof low)
        memcpy(at, &low, sizeof low);
    else
        memcpy(at, &value, sizeof value);
}

bool field_in_range(const field *f, const void *object)
{
    const unsigned char *at = (const unsigned char *)object + f->offset;
    uint64_t number = 0;
    uint32_t low;
    double real;
    if (f->kind == FIELD_ANY)
        return true;
    if (f->kind == FIELD_REAL) {
        memcpy(&real, at, sizeof real);
        return real >= f->real_least && real <= f->real_most;
    }
    memcpy(&low, at, sizeof low);
    number = low;
    if (f->size > sizeof low)
        memcpy(&number, at, sizeof number);
    return number >= f->least && number <= f->most;
}

void for_each_edge(const field *fields, size_t num_fields, void *object, size_t bytes,
                   edge_call call, void *world)
{
    void *good = malloc(bytes);
    assert_non_null(good);
    memcpy(good, object, bytes);
    for (size_t a = 0; a < num_fields; a++)
        for (uint32_t i = 0; i < field_num_edges(&fields[a]); i++) {
            memcpy(object, good, bytes);
            field_set_edge(&fields[a], object, i);
            call(world);
            for (size_t b = 0; b < a; b++)
                for (uint32_t k = i % 4; k < field_num_edges(&fields[b]); k += 4) {
                    memcpy(object, good, bytes);
                    field_set_edge(&fields[a], object, i);
                    field_set_edge(&fields[b], object, k);
                    call(world);
                }
        }
    memcpy(object, good, bytes);
    free(good);
}
