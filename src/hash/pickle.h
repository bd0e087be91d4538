/* hash/pickle.h - Python's pickle, protocol 5, of the few types that a block key is made of.
 *
 *      80 05                      protocol 5
 *      95 <u64 length>            a frame
 *      43 20 <parent> 94          bytes, remembered as number 0
 *      28 4b 07 4d 39 30 ... 74   ( 7 12345 ... )
 *      94                         remembered as number 1
 *      4e                         None, or the tuple of extra keys
 *      87 94 2e                   a tuple of the three, remembered; end
 *
 * The extra keys, without tags (vLLM 0.20.0) and with tags (0.32.0):
 *
 *      (name, (identifier, offset), salt, digest)
 *      (("lora", name, path), ("mm", identifier, offset), ("cache_salt", salt),
 *       ("prompt_embeds", digest))
 *
 * Python writes a text that is the same object as an earlier one as a reference. Each tag is one
 * object, so that the second "mm" of a block is a reference.
 *
 * Byte for byte what CPython's pickle.dumps(..., protocol=5) writes, so that SHA-256 gives vLLM's
 * hashes.
 */
#ifndef QR_HASH_PICKLE_H
#define QR_HASH_PICKLE_H

#include "hash/input.h"

/* Fills in a message's len and parent_at. memo has a place for every extra key. */
void qr_pickle_encode(qr_message *out, const qr_hash_input *input, uint32_t *memo);
/* The same with tagged keys, at least one. */
void qr_pickle_encode_tagged(qr_message *out, const qr_hash_input *input, uint32_t *memo);
/* A text alone, shorter than 64 KiB. */
void qr_pickle_encode_text(qr_message *out, quire_bytes text);

#endif
