/* hash/digest.h - the two digests: SHA-256 of libcrypto, XXH3-128 of xxHash. */
#ifndef QR_HASH_DIGEST_H
#define QR_HASH_DIGEST_H

#include <stddef.h>

enum { QR_SHA256_BYTES = 32, QR_XXH128_BYTES = 16, QR_XXH_SECRET_BYTES = 192 };

/* SHA-256 of a message in a buffer that has 72 bytes of room behind it: the padding is written
 * there, and libcrypto is called once, for whole blocks. */
void qr_sha256_padded(unsigned char *message, size_t len, unsigned char *digest);
/* SHA-256 of any memory. */
void qr_sha256(const void *data, size_t len, unsigned char *digest);
/* XXH3-128, big-endian, as Python's xxhash prints it. digest may lie inside the message. */
void qr_xxh3_128(const void *data, size_t len, unsigned char *digest);
/* The same keyed with a secret of QR_XXH_SECRET_BYTES. */
void qr_xxh3_128_keyed(const void *data, size_t len, const unsigned char *secret,
                       unsigned char *digest);

#endif
