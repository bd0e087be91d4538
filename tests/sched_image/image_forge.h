/* sched_image/image_forge.h - images that are changed on purpose, with a checksum that is right.
 *
 *      fields   where each field of the image lies, as the writer told
 *      forge    1 to 3 changes: a byte, a number that becomes an edge value or that of another
 *               field, two fields or two parts of an array that change places
 *      use      what an engine does with a scheduler: 50 steps, aborts, all getters, the walker
 */
#ifndef SCHED_IMAGE_IMAGE_FORGE_H
#define SCHED_IMAGE_IMAGE_FORGE_H

#include "image_world.h"

enum { FORGE_STEPS = 50 };

typedef struct forge_field {
    uint32_t at;
    uint32_t n; /* bytes: 1, 4, 8, or those of an array */
} forge_field;

typedef struct forge_image {
    unsigned char *bytes;
    size_t size;
    forge_field *fields;
    uint32_t num_fields;
    uint32_t edges[16]; /* limits of the config: values next to them are tried */
    uint32_t num_edges;
} forge_image;

/* The image of a world's side 0, with its fields. */
void forge_open(forge_image *image, world *w);
void forge_close(forge_image *image);

/* Changes `to`, a copy of the image; the length stays. Says what was changed. */
void forge_change(const forge_image *image, unsigned char *to, uint64_t *random, char *what,
                  size_t room);

/* Uses a scheduler that restore has made of an image of this world. NULL, or what it refused. */
const char *forge_use(world *w, quire_sched *sched, uint64_t *random);

#endif
