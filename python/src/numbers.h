/* numbers.h - numbers out of dicts, for the drop-in and the connector: those that a dict has are
 * set, the others keep their values. -1 and an exception where one is no number of 32 bits. */
#ifndef QUIRE_PYTHON_NUMBERS_H
#define QUIRE_PYTHON_NUMBERS_H

#include "lists.h"

#include <stddef.h>

extern int vllm_read_u32(PyObject *dict, const char *name, uint32_t *value);
/* Numbers of 32 bits in a struct, by name: those that a dict has are set. */
typedef struct vllm_field {
    const char *name; /* NULL ends a table */
    size_t offset;
} vllm_field;
#define VLLM_FIELD(type, field)                                                                    \
    {                                                                                              \
#field, offsetof(type, field)                                                              \
    }
extern int vllm_read_fields(PyObject *dict, const vllm_field *fields, void *target);
/* What describes a cache, and its groups (a list of dicts). */
extern int vllm_read_cache(PyObject *given, quire_cache_config *cache, quire_group_config *groups,
                           uint32_t max_groups);

#endif
