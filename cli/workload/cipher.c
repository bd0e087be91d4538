#include "cipher.h"

#include <openssl/rand.h>
#include <openssl/sha.h>
#include <string.h>

enum { ROUNDS = 8, HALF_BYTES = 4 };

bool cipher_begin(cipher *c)
{
    return RAND_bytes(c->key, sizeof c->key) == 1;
}

static void put(unsigned char *at, uint64_t value, int num_bytes)
{
    for (int i = 0; i < num_bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

void cipher_begin_from_seed(cipher *c, uint64_t seed)
{
    static const char name[] = "quire trace anonymise";
    unsigned char text[sizeof name + 8];
    memcpy(text, name, sizeof name);
    put(text + sizeof name, seed, 8);
    SHA256(text, sizeof text, c->key);
}

static uint32_t mix(const cipher *c, uint32_t kind, uint32_t round, uint32_t half)
{
    unsigned char text[CIPHER_KEY_BYTES + 3 * HALF_BYTES];
    unsigned char digest[SHA256_DIGEST_LENGTH];
    memcpy(text, c->key, CIPHER_KEY_BYTES);
    put(text + CIPHER_KEY_BYTES, kind, HALF_BYTES);
    put(text + CIPHER_KEY_BYTES + HALF_BYTES, round, HALF_BYTES);
    put(text + CIPHER_KEY_BYTES + HALF_BYTES + HALF_BYTES, half, HALF_BYTES);
    SHA256(text, sizeof text, digest);
    uint32_t word = 0;
    for (int i = 0; i < HALF_BYTES; i++)
        word |= (uint32_t)digest[i] << 8 * i;
    return word;
}

uint64_t cipher_of(const cipher *c, uint32_t kind, uint64_t number)
{
    uint32_t left = (uint32_t)(number >> 32);
    uint32_t right = (uint32_t)number;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t next = left ^ mix(c, kind, round, right);
        left = right;
        right = next;
    }
    return (uint64_t)left << 32 | right;
}
