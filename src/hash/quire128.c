#include "hash/quire128.h"

#include "hash/digest.h"
#include "hash/safe.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { COMMON_BLOCK_SIZE = 16 };

static inline void hash_run(const unsigned char *secret, const unsigned char *parent,
                            const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                            unsigned char *buffer, unsigned char *digests)
{
    size_t token_bytes = (size_t)block_size * sizeof *tokens;
    size_t len = QR_XXH128_BYTES + token_bytes + sizeof(uint64_t);
    uint64_t first = qr_load_u64(parent);
    uint64_t second = qr_load_u64(parent + 8);
    qr_store_u64(buffer + len - 8,
                 qr_le_u64(qr_raw_trailer(QR_XXH128_BYTES, block_size, 0, false)));
    for (size_t i = 0; i < num_blocks; i++) {
        qr_store_u64(buffer, first);
        qr_store_u64(buffer + 8, second);
        memcpy(buffer + QR_XXH128_BYTES, tokens + i * block_size, token_bytes);
        XXH128_hash_t hash = XXH3_128bits_withSecret(buffer, len, secret, QR_XXH_SECRET_BYTES);
        first = qr_be_u64(hash.high64);
        second = qr_be_u64(hash.low64);
        qr_store_u64(digests + i * QR_XXH128_BYTES, first);
        qr_store_u64(digests + i * QR_XXH128_BYTES + 8, second);
    }
}

void qr_quire128_run(const unsigned char *secret, const unsigned char *parent,
                     const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                     unsigned char *buffer, unsigned char *digests)
{
    /* With the size known, the compiler makes the copy and the hash one straight piece of code. */
    if (block_size == COMMON_BLOCK_SIZE)
        hash_run(secret, parent, tokens, COMMON_BLOCK_SIZE, num_blocks, buffer, digests);
    else
        hash_run(secret, parent, tokens, block_size, num_blocks, buffer, digests);
}
