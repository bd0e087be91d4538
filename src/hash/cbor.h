/* hash/cbor.h - canonical CBOR (RFC 8949) of a block key.
 *
 *      83                     array of three
 *      58 20 <parent>         bytes
 *      90 07 19 30 39 ...     array of integers, each in its shortest form
 *      f6                     null, or an array of the extra keys
 *
 * A feature among the extra keys is an array of text and integer. Tagged keys (hash/pickle.h) are
 * arrays that begin with a text.
 */
#ifndef QR_HASH_CBOR_H
#define QR_HASH_CBOR_H

#include "hash/input.h"

/* Fill in a message's len and parent_at. */
void qr_cbor_encode(qr_message *out, const qr_hash_input *input);
/* With tagged keys, at least one. */
void qr_cbor_encode_tagged(qr_message *out, const qr_hash_input *input);
void qr_cbor_encode_text(qr_message *out, quire_bytes text);

#endif
