/* hash/hasher.h - one way of hashing blocks: algorithm, NONE_HASH, and the room to encode a block
 * in.
 *
 *      algorithm      encoding    digest
 *      sha256         pickle      SHA-256
 *      sha256_cbor    CBOR        SHA-256
 *      xxhash         pickle      XXH3-128
 *      xxhash_cbor    CBOR        XXH3-128
 *      sha256_safe    safe        SHA-256
 *      quire128       raw         XXH3-128 with a secret
 */
#ifndef QR_HASH_HASHER_H
#define QR_HASH_HASHER_H

#include "base/arena.h"
#include "base/memory.h"
#include "base/quirks.h"
#include "hash/digest.h"
#include "hash/input.h"

struct quire_hasher {
    uint32_t magic;
    quire_hash_algo algo;
    uint32_t block_size;
    uint32_t digest_bytes;
    uint64_t quirks;
    bool tags_extra_keys; /* of base/rules.h */
    bool bisects_features;
    uint32_t none_hash_len;
    uint32_t max_extra_bytes;
    unsigned char none_hash[QR_HASH_MAX_PARENT];
    unsigned char secret[QR_XXH_SECRET_BYTES]; /* of quire128 */
    qr_message messages[2];                    /* the block being hashed, and the next one */
    size_t message_bytes;                      /* room of each */
    quire_extra_key *keys;                     /* of the block being hashed */
    uint32_t *memo;                            /* of the pickle being written, one for a key */
    size_t max_keys;
    qr_owner owner;
};

#define QR_HASHER_MAGIC UINT32_C(0x51485348) /* "QHSH" */

int qr_hasher_config_read(quire_hasher_config *config, const quire_hasher_config *callers);
quire_hasher *qr_hasher_carve(qr_arena *arena, const quire_hasher_config *config);
/* QUIRE_OK or QUIRE_E_RANDOM. */
int qr_hasher_init(quire_hasher *hasher, const quire_hasher_config *config);

/* Encodes a block of at most block_size tokens, to be hashed with a parent of parent_len bytes, at
 * most QR_HASH_MAX_PARENT. QUIRE_E_RANGE when the extra keys are too long. */
int qr_hasher_encode(quire_hasher *hasher, const qr_hash_input *input, qr_message *message);
/* Puts the parent in, and hashes. digest may be the parent's memory. */
void qr_hasher_digest(quire_hasher *hasher, qr_message *message, quire_bytes parent,
                      unsigned char *digest);

#endif
