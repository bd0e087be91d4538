/* obs/names.h - the ids of requests that run and wait, in each step that is kept.
 *
 *      place of a step  | step | counts | counts | id .. id (running) | id .. id (waiting) |
 *
 * Written between the claim of a step and its being seen (obs/monitor.h), and read as steps are: a
 * reader copies, then looks whether the step was claimed again meanwhile. */
#ifndef QR_OBS_NAMES_H
#define QR_OBS_NAMES_H

#include "base/arena.h"

#include <quire/monitor.h>

#include <stdatomic.h>

enum {
    QR_NAME_WORDS = sizeof(quire_name) / 8,
    QR_NAMES_HEAD = sizeof(quire_step_names) / 8 /* words */
};
_Static_assert(sizeof(quire_name) % 8 == 0 && sizeof(quire_step_names) % 8 == 0, "words");

typedef struct qr_names {
    _Atomic uint64_t *words;
    uint32_t most;       /* of those that run, and of those that wait; 0: none are kept */
    uint32_t step_words; /* of one step */
    uint32_t *reqs;      /* scratch of the scheduler: most, */
    uint32_t *nearest;   /* and one more */
} qr_names;

void qr_names_carve(qr_names *names, qr_arena *arena, uint32_t num_steps, uint32_t most);
void qr_names_init(qr_names *names, uint64_t num_steps);

/* The id at a place of a step: those that run first, then those that wait. */
void qr_names_set(qr_names *names, uint64_t place, uint32_t i, quire_bytes id);
void qr_names_set_head(qr_names *names, uint64_t place, const quire_step_names *head);

/* list has room for 2 x most. */
void qr_names_get(const qr_names *names, uint64_t place, quire_step_names *head, quire_name *list);

#endif
