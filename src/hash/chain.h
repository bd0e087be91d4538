/* hash/chain.h - the running hash of one request.
 *
 *      hashed blocks                   tail, fewer tokens than a block
 *      | H0 | H1 | H2 | ... | parent | t t t t t . . . |
 *
 *      number of tokens = num_blocks x block_size + tail_len
 */
#ifndef QR_HASH_CHAIN_H
#define QR_HASH_CHAIN_H

#include "hash/extra.h"
#include "hash/hasher.h"

struct quire_chain {
    uint64_t num_blocks;
    uint32_t block_size;
    uint32_t tail_len;
    uint32_t parent_len; /* 0: no block yet */
    bool is_one_call;    /* appends are parts of one: they do not continue a request */
    unsigned char parent[QUIRE_MAX_DIGEST_BYTES];
    quire_token tail[];
};

size_t qr_chain_bytes(const quire_hasher *hasher);
void qr_chain_init(const quire_hasher *hasher, quire_chain *chain);

/* The extra keys of the block that starts at token `start`, and of the blocks behind it, in one
 * call of the hasher. */
qr_extra_cursor qr_chain_begin_extra(const quire_hasher *hasher, const quire_extra_keys *extra,
                                     uint64_t start);

/* digests has room for `capacity` hashes. QUIRE_OK or QUIRE_E_RANGE, see quire/hash.h. */
int qr_chain_append(quire_hasher *hasher, quire_chain *chain, const quire_token *tokens, size_t n,
                    const quire_extra_keys *extra, unsigned char *digests, size_t capacity,
                    size_t *num_new);

#endif
