/* sched/encoder/encoder_kit.h - an encoder cache in a box, for its tests.
 *
 * A feature is written as its identifier, where it lies and how long it is; an identifier of the
 * tests is a short string.
 */
#ifndef SCHED_ENCODER_KIT_H
#define SCHED_ENCODER_KIT_H

#include "base/unit.h"
#include "sched/encoder/encoder.h"

#include <quire/error.h>

enum { KIT_ID_BYTES = 8, KIT_MAX_FEATURES = 300, KIT_ROOM = 1 << 16 };

typedef struct encoder_kit {
    qr_encoder encoder;
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[KIT_ROOM];
} encoder_kit;

/* Identifiers up to KIT_ID_BYTES long; the rest of the config as given. */
void kit_init(encoder_kit *kit, qr_encoder_config config);

/* One embedding for each of its tokens. */
qr_feature kit_feature(const char *identifier, uint32_t offset, uint32_t length);

/* Gives a feature its flags, in the chain of kit_flags: of one feature at a time. */
void kit_set_flags(qr_feature *feature, const uint8_t *flags, uint32_t n);
const qr_flag_store *kit_flags(void);
const qr_flag_chain *kit_chain(void);

/* The identifiers that take_freed tells are these, with blanks between. */
void kit_expect_freed(encoder_kit *kit, const char *identifiers);
/* The unused items, the longest unused first, are these. */
void kit_expect_unused(const encoder_kit *kit, const char *identifiers);
/* Room that is free, and that eviction could make free; and the walker finds nothing. */
void kit_expect_room(const encoder_kit *kit, uint64_t num_free, uint64_t num_freeable);

/* Asks and allocates features[i], which works. */
void kit_allocate(encoder_kit *kit, qr_feature *features, uint32_t i);

/* Uses of all items: as many as all requests' features hold. */
uint64_t kit_num_uses(const qr_encoder *encoder);

#endif
