/* cli/trace/id_set.h - which of a trace's block ids came before, and which were computed: the
 * cache that
 * never forgets, beside which a real one is held.
 *
 *      open addressing, 8 bytes a place: 63 bits of the id, and whether it was computed
 */
#ifndef QUIRE_CLI_TRACE_ID_SET_H
#define QUIRE_CLI_TRACE_ID_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 2^26 places are half a gibibyte; with more ids than fit the set gives up, and says so. */
enum { ID_SET_MAX_BITS = 26 };

typedef struct id_set {
    uint64_t *places;
    size_t mask;
    size_t count;
    bool gave_up; /* too many ids, or no memory: answers mean nothing from then on */
} id_set;

/* Adds an id; true when it was there. */
bool id_set_add(id_set *set, uint64_t id);
bool id_set_has(const id_set *set, uint64_t id);
/* It will be asked for soon: the processor fetches its place. */
void id_set_fetch(const id_set *set, uint64_t id);
void id_set_mark_computed(id_set *set, uint64_t id);
bool id_set_is_computed(const id_set *set, uint64_t id);
void id_set_free(id_set *set);

#endif
