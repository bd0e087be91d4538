/* tier/core/fingerprint.c - one name for everything that decides what the bytes of a block mean.
 *
 *      "quire identity 1" | tag | kind | length | bytes | tag | kind | length | bytes | ...
 *
 * All numbers are little-endian, 8 bytes each. Lengths make two fields that share their border
 * different ("ab" + "c", "a" + "bc"); kinds make absent (0), bytes (1) and numbers (2) different.
 * A field that comes later gets the next tag, and goes in only where it is set: who does not use it
 * keeps the fingerprint he has.
 */
#include <quire/tier.h>

#include "base/bits.h"
#include "base/config.h"
#include "base/refuse.h"

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

_Static_assert(SHA256_DIGEST_LENGTH == QUIRE_FINGERPRINT_BYTES, "a fingerprint is a digest");

static const char IDENTITY_FORMAT[] = "quire identity 1";

enum { KIND_ABSENT = 0, KIND_BYTES = 1, KIND_NUMBER = 2 };

static void add_u64(SHA256_CTX *context, uint64_t number)
{
    SHA256_Update(context, &number, sizeof number);
}

static void add_field(SHA256_CTX *context, uint64_t tag, uint64_t kind, const void *data,
                      size_t bytes)
{
    add_u64(context, tag);
    add_u64(context, kind);
    add_u64(context, bytes);
    if (bytes > 0)
        SHA256_Update(context, data, bytes);
}

QUIRE_API int quire_fingerprint(const quire_identity *identity, unsigned char *fingerprint)
{
    quire_identity own;
    if (fingerprint == NULL)
        return QUIRE_E_ARGUMENT;
    int status = qr_refuse_reading(&own, sizeof own, identity, "quire_identity");
    if (status != QUIRE_OK)
        return status;
    const quire_bytes texts[] = {own.model,     own.weights_digest, own.tokenizer,
                                 own.kv_dtype,  own.kv_scales,      own.layout,
                                 own.attention, own.lora,           own.hash_algorithm,
                                 own.hash_seed, own.tenant};
    const uint64_t numbers[] = {own.num_layers, own.num_kv_heads, own.head_dim, own.block_tokens,
                                own.num_groups, own.tp_size,      own.pp_size,  own.dcp_size,
                                own.pcp_size,   own.block_bytes};
    enum {
        NUM_TEXTS = sizeof texts / sizeof *texts,
        NUM_NUMBERS = sizeof numbers / sizeof *numbers
    };
    for (size_t i = 0; i < NUM_TEXTS; i++)
        if (texts[i].data == NULL && texts[i].len > 0)
            return QUIRE_E_ARGUMENT;

    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, IDENTITY_FORMAT, sizeof IDENTITY_FORMAT);
    for (size_t i = 0; i < NUM_TEXTS; i++)
        add_field(&context, i + 1, texts[i].data == NULL ? KIND_ABSENT : KIND_BYTES, texts[i].data,
                  texts[i].len);
    for (size_t i = 0; i < NUM_NUMBERS; i++)
        add_field(&context, NUM_TEXTS + i + 1, KIND_NUMBER, &numbers[i], sizeof numbers[i]);
    SHA256_Final(fingerprint, &context);
    return QUIRE_OK;
}
