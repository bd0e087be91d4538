/* cli/workload/cipher.h - numbers that nobody without the key can lead back.
 *
 *      number ─► [ left | right ] ─► 8 rounds of SHA-256(key, round, half) ─► another number
 *
 * A permutation of the 64-bit numbers: two numbers that differ stay different, equal ones stay
 * equal, so what is shared stays shared, without a table. The key is 32 random bytes that are
 * never written, or comes from a seed: whoever guesses the seed can then test a guess of a number.
 */
#ifndef QUIRE_CLI_WORKLOAD_CIPHER_H
#define QUIRE_CLI_WORKLOAD_CIPHER_H

#include <stdbool.h>
#include <stdint.h>

enum { CIPHER_KEY_BYTES = 32 };

typedef struct cipher {
    unsigned char key[CIPHER_KEY_BYTES];
} cipher;

/* A fresh key. False: the system gives no random bytes. */
bool cipher_begin(cipher *c);
void cipher_begin_from_seed(cipher *c, uint64_t seed);
/* kind: numbers of one kind are permuted apart from those of another. */
uint64_t cipher_of(const cipher *c, uint32_t kind, uint64_t number);

#endif
