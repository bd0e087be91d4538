/* api/fields_kit.h - the table of public fields (src/api/fields.h) as data, and values at the edges
 * of each range.
 *
 *      least - 1, least, most - 1, most, most + 1, 0, 1, 2, 2^30, 2^31 - 1, 2^31, 2^32 - 1, 2^32
 *      NaN, the infinities, -0.0, least and most and what lies just outside
 */
#ifndef API_FIELDS_KIT_H
#define API_FIELDS_KIT_H

#include "api/fields.h"
#include "base/unit.h"

typedef struct field {
    const char *name;
    size_t offset;
    size_t size;
    enum { FIELD_NUMBER, FIELD_REAL, FIELD_ANY } kind;
    uint64_t least;
    uint64_t most;
    double real_least;
    double real_most;
} field;

enum { MAX_EDGES = 14 };

/* Rows for FIELD_ROWS(type); `limits` must be in scope. */
#define ROW_NUMBER(type, name, least, most)                                                        \
    {#name, offsetof(type, name), sizeof(((type *)0)->name), FIELD_NUMBER, (least), (most), 0, 0},
#define ROW_REAL(type, name, least, most)                                                          \
    {#name, offsetof(type, name), sizeof(((type *)0)->name), FIELD_REAL, 0, 0, (least), (most)},
#define ROW_FLAG(type, name)                                                                       \
    {#name, offsetof(type, name), sizeof(((type *)0)->name), FIELD_NUMBER, 0, UINT32_MAX, 0, 0},
#define ROW_ANY(type, name)                                                                        \
    {#name, offsetof(type, name), sizeof(((type *)0)->name), FIELD_ANY, 0, 0, 0, 0},

/* How many edge values a field has; 0 for FIELD_ANY. */
uint32_t field_num_edges(const field *f);
/* Writes the i-th edge value into the object. */
void field_set_edge(const field *f, void *object, uint32_t i);
/* Whether the object's value is in the field's range. */
bool field_in_range(const field *f, const void *object);

typedef void (*edge_call)(void *world);

/* Sets each edge of each field in the object, then pairs of them; `call` is called after each. */
void for_each_edge(const field *fields, size_t num_fields, void *object, size_t bytes,
                   edge_call call, void *world);

#endif
