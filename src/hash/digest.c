#include "hash/digest.h"

#include "base/bits.h"

/* The one-shot calls of OpenSSL 3 fetch the algorithm, allocate and free for every message. The
 * plain functions below are deprecated in its headers, and do none of it. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define DIGEST_IS_WRITTEN(p, n) __msan_unpoison(p, n) /* libcrypto is not instrumented */
#endif
#endif
#ifndef DIGEST_IS_WRITTEN
#define DIGEST_IS_WRITTEN(p, n) ((void)0)
#endif

enum { SHA_BLOCK = 64 };

void qr_sha256_padded(unsigned char *message, size_t len, unsigned char *digest)
{
    size_t total = (len + 9 + SHA_BLOCK - 1) / SHA_BLOCK * SHA_BLOCK;
    message[len] = 0x80;
    memset(message + len + 1, 0, total - 8 - (len + 1));
    qr_store_u64(message + total - 8, qr_be_u64((uint64_t)len * 8));
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, message, total);
    DIGEST_IS_WRITTEN(&context, sizeof context);
    for (size_t i = 0; i < 8; i += 2)
        qr_store_u64(digest + 4 * i, qr_be_u64((uint64_t)context.h[i] << 32 | context.h[i + 1]));
}

void qr_sha256(const void *data, size_t len, unsigned char *digest)
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, data, len);
    SHA256_Final(digest, &context);
    DIGEST_IS_WRITTEN(digest, QR_SHA256_BYTES);
}

static void store_canonical(XXH128_hash_t hash, unsigned char *digest)
{
    qr_store_u64(digest, qr_be_u64(hash.high64));
    qr_store_u64(digest + 8, qr_be_u64(hash.low64));
}

void qr_xxh3_128(const void *data, size_t len, unsigned char *digest)
{
    store_canonical(XXH3_128bits(data, len), digest);
}

void qr_xxh3_128_keyed(const void *data, size_t len, const unsigned char *secret,
                       unsigned char *digest)
{
    store_canonical(XXH3_128bits_withSecret(data, len, secret, QR_XXH_SECRET_BYTES), digest);
}
