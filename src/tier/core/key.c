#include "tier/core/key.h"

/* The plain functions do not allocate, as a step of the scheduler must not either. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

_Static_assert(SHA256_DIGEST_LENGTH == QUIRE_TIER_HASH_BYTES, "a digest is a key's hash");

QUIRE_API void quire_tier_key_of(quire_bytes hash, uint32_t group, uint32_t rank,
                                 quire_tier_key *key)
{
    if (key == NULL)
        return;
    memset(key->hash, 0, sizeof key->hash);
    if (hash.data != NULL && hash.len > QUIRE_TIER_HASH_BYTES) {
        SHA256_CTX context;
        SHA256_Init(&context);
        SHA256_Update(&context, hash.data, hash.len);
        SHA256_Final(key->hash, &context);
    } else if (hash.data != NULL) {
        memcpy(key->hash, hash.data, hash.len);
    }
    key->group = group;
    key->rank = rank;
}
