/* events/wire/wire.h - what writing and reading of quire/wire.h have in common: the fields, in
 * their order.
 *
 *      array form   ["BlockRemoved", block_hashes, medium, group_idx]
 *      map form     {"type": "BlockRemoved", "block_hashes": .., "medium": .., "group_idx": ..,
 *                    "locality": .., "ownership": ..}
 *
 * The first fields of each must be there; the rest came in later versions of vLLM, or may be nil.
 */
#ifndef QR_EVENTS_WIRE_WIRE_H
#define QR_EVENTS_WIRE_WIRE_H

#include <quire/wire.h>

#include <stdbool.h>
#include <stddef.h>

typedef enum qr_wire_form {
    QR_WIRE_HASHES,
    QR_WIRE_HASH,
    QR_WIRE_TOKENS,
    QR_WIRE_U32,
    QR_WIRE_I64,
    QR_WIRE_TEXT_OR_NIL,
    QR_WIRE_KEYS
} qr_wire_form;

typedef struct qr_wire_field {
    const char *name;
    qr_wire_form form;
    size_t value; /* where it is in quire_wire_event, */
    size_t bytes;
    size_t has;           /* and the number that says whether it is there; 0: it always is */
    bool is_left_out_nil; /* of maps, where it is nil: the default of vLLM's classes */
    bool is_map_only;     /* came with the map form, or after it */
} qr_wire_field;

/* What is known of one kind of event. */
typedef struct qr_wire_shape {
    const char *tag;
    quire_wire_kind kind;
    const qr_wire_field *fields;
    uint32_t num_fields;
    uint32_t num_required;
} qr_wire_shape;

enum { QR_WIRE_NUM_SHAPES = 3 };
extern const qr_wire_shape qr_wire_shapes[QR_WIRE_NUM_SHAPES];

#define QR_TAG_KEY "type" /* of the map form */

#endif
