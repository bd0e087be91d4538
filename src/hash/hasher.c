#include "hash/hasher.h"

#include "base/assert.h"
#include "base/hex.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "base/rules.h"
#include "hash/cbor.h"
#include "hash/pickle.h"
#include "hash/safe.h"

enum { HASHER_DEFAULT_BLOCK_SIZE = 16, DEFAULT_EXTRA_BYTES = 16384, RANDOM_NONE_HASH_BYTES = 32 };

static const char DEFAULT_SEED[] = "vllm-none-hash";

/* ---- making ---------------------------------------------------------------- */

static int check_none_hash(const quire_hasher_config *config)
{
    if (config->none_hash.data == NULL)
        return QUIRE_OK;
    if (config->seed.data != NULL)
        return qr_refuse("seed and none_hash are both given: give one of them");
    if (config->algo == QUIRE_HASH_QUIRE128)
        return qr_refuse("none_hash is given, but algo quire128 takes a seed only");
    return config->none_hash.len > 0 ? QUIRE_OK
                                     : qr_refuse("none_hash is given, but none_hash.len is 0");
}

int qr_hasher_config_read(quire_hasher_config *config, const quire_hasher_config *callers)
{
    int err = qr_refuse_reading(config, sizeof *config, callers, "quire_hasher_config");
    if (err != QUIRE_OK)
        return err;
    if (config->block_size == 0)
        config->block_size = HASHER_DEFAULT_BLOCK_SIZE;
    if (config->max_extra_bytes == 0)
        config->max_extra_bytes = DEFAULT_EXTRA_BYTES;
    return check_none_hash(config);
}

quire_hasher *qr_hasher_carve(qr_arena *arena, const quire_hasher_config *config)
{
    size_t message = QR_HASH_MAX_FIXED + (size_t)config->block_size * QR_HASH_MAX_PER_TOKEN +
                     config->max_extra_bytes + QR_HASH_MAX_SEED;
    size_t frames = (message / 65536 + 1) * 16;
    size_t bytes = message + frames + QR_HASH_SLACK;
    size_t max_keys = config->max_extra_bytes / QR_HASH_MAX_PER_KEY + 1;
    quire_hasher *hasher = qr_arena_take(arena, 1, sizeof *hasher);
    unsigned char *first = qr_arena_take(arena, 1, bytes);
    unsigned char *second = qr_arena_take(arena, 1, bytes);
    quire_extra_key *keys = qr_arena_take(arena, max_keys, sizeof *keys);
    uint32_t *memo = qr_arena_take(arena, max_keys, sizeof *memo);
    if (hasher != NULL)
        *hasher = (quire_hasher){.messages = {{.bytes = first}, {.bytes = second}},
                                 .message_bytes = bytes,
                                 .keys = keys,
                                 .memo = memo,
                                 .max_keys = max_keys};
    return hasher;
}

static void digest_message(const quire_hasher *hasher, const qr_message *message,
                           unsigned char *digest)
{
    qr_assert_internal(message->len + QR_HASH_SLACK <= hasher->message_bytes);
    switch (hasher->algo) {
    case QUIRE_HASH_XXHASH:
    case QUIRE_HASH_XXHASH_CBOR:
        qr_xxh3_128(message->bytes, message->len, digest);
        return;
    case QUIRE_HASH_QUIRE128:
        qr_xxh3_128_keyed(message->bytes, message->len, hasher->secret, digest);
        return;
    case QUIRE_HASH_SHA256:
    case QUIRE_HASH_SHA256_CBOR:
    case QUIRE_HASH_SHA256_SAFE:
    default:
        qr_sha256_padded(message->bytes, message->len, digest);
    }
}

static qr_message *encode_text(quire_hasher *hasher, quire_bytes text)
{
    qr_message *message = &hasher->messages[0];
    switch (hasher->algo) {
    case QUIRE_HASH_SHA256:
    case QUIRE_HASH_XXHASH:
        qr_pickle_encode_text(message, text);
        return message;
    case QUIRE_HASH_SHA256_CBOR:
    case QUIRE_HASH_XXHASH_CBOR:
        qr_cbor_encode_text(message, text);
        return message;
    case QUIRE_HASH_SHA256_SAFE:
    case QUIRE_HASH_QUIRE128:
    default:
        qr_safe_encode_text(message, text);
        return message;
    }
}

/* 192 bytes from a seed: SHA-256 of the encoded seed and a counter, six times. */
static void expand_secret(quire_hasher *hasher, quire_bytes seed)
{
    for (size_t i = 0; i < QR_XXH_SECRET_BYTES / QR_SHA256_BYTES; i++) {
        qr_message *message = encode_text(hasher, seed);
        message->bytes[message->len] = (unsigned char)i;
        qr_sha256_padded(message->bytes, message->len + 1, hasher->secret + i * QR_SHA256_BYTES);
    }
}

static int init_quire128(quire_hasher *hasher, const quire_hasher_config *config)
{
    if (config->seed.data != NULL) {
        expand_secret(hasher, config->seed);
    } else {
        int err = qr_random_bytes(&config->hooks, hasher->secret, sizeof hasher->secret);
        if (err != QUIRE_OK)
            return err;
    }
    digest_message(hasher, encode_text(hasher, (quire_bytes){"none", 4}), hasher->none_hash);
    hasher->none_hash_len = hasher->digest_bytes;
    return QUIRE_OK;
}

static void none_hash_from(quire_hasher *hasher, quire_bytes seed)
{
    digest_message(hasher, encode_text(hasher, seed), hasher->none_hash);
    hasher->none_hash_len = hasher->digest_bytes;
}

/* The seed that vLLM 0.32.0 takes if it has none: a fixed text where collisions cannot be found,
 * random digits where they can. */
static int init_default_seed(quire_hasher *hasher, const quire_hasher_config *config)
{
    unsigned char drawn[RANDOM_NONE_HASH_BYTES];
    char digits[2 * sizeof drawn];
    if (hasher->digest_bytes == QR_SHA256_BYTES) {
        none_hash_from(hasher, (quire_bytes){DEFAULT_SEED, sizeof DEFAULT_SEED - 1});
        return QUIRE_OK;
    }
    int err = qr_random_bytes(&config->hooks, drawn, sizeof drawn);
    if (err != QUIRE_OK)
        return err;
    qr_hex_write(digits, drawn, sizeof drawn);
    none_hash_from(hasher, (quire_bytes){digits, sizeof digits});
    qr_memory_wipe(drawn, sizeof drawn);
    qr_memory_wipe(digits, sizeof digits);
    return QUIRE_OK;
}

static int init_none_hash(quire_hasher *hasher, const quire_hasher_config *config)
{
    if (hasher->algo == QUIRE_HASH_QUIRE128)
        return init_quire128(hasher, config);
    if (config->none_hash.data != NULL) {
        memcpy(hasher->none_hash, config->none_hash.data, config->none_hash.len);
        hasher->none_hash_len = (uint32_t)config->none_hash.len;
        return QUIRE_OK;
    }
    if (config->seed.data != NULL) {
        none_hash_from(hasher, config->seed);
        return QUIRE_OK;
    }
    if (qr_rules_of(config->profile)->hashes_default_seed && hasher->algo != QUIRE_HASH_SHA256_SAFE)
        return init_default_seed(hasher, config);
    hasher->none_hash_len = RANDOM_NONE_HASH_BYTES; /* vLLM's length, for 16-byte digests too */
    return qr_random_bytes(&config->hooks, hasher->none_hash, RANDOM_NONE_HASH_BYTES);
}

int qr_hasher_init(quire_hasher *hasher, const quire_hasher_config *config)
{
    hasher->algo = config->algo;
    hasher->block_size = config->block_size;
    hasher->digest_bytes = (uint32_t)quire_hash_digest_bytes(config->algo);
    hasher->quirks = qr_quirks(config->profile);
    hasher->tags_extra_keys = qr_rules_of(config->profile)->tags_extra_keys;
    hasher->bisects_features = qr_rules_of(config->profile)->bisects_features;
    hasher->max_extra_bytes = config->max_extra_bytes;
    int err = init_none_hash(hasher, config);
    if (err != QUIRE_OK)
        qr_memory_wipe(hasher, sizeof *hasher);
    else
        hasher->magic = QR_HASHER_MAGIC;
    return err;
}

/* ---- hashing --------------------------------------------------------------- */

static bool keys_fit(const quire_hasher *hasher, const qr_hash_input *input)
{
    size_t bytes = 0;
    for (size_t i = 0; i < input->num_keys; i++) {
        bytes = qr_add_size(bytes, QR_HASH_MAX_PER_KEY);
        bytes = qr_add_size(bytes, input->keys[i].value.len);
        if (bytes > hasher->max_extra_bytes)
            return false;
    }
    return true;
}

int qr_hasher_encode(quire_hasher *hasher, const qr_hash_input *input, qr_message *message)
{
    qr_assert_internal(input->parent_len <= QR_HASH_MAX_PARENT);
    qr_assert_internal(input->num_tokens <= hasher->block_size);
    if (input->num_keys > 0 && !keys_fit(hasher, input))
        return QUIRE_E_RANGE;
    bool has_tags = input->num_keys > 0 && hasher->tags_extra_keys;
    switch (hasher->algo) {
    case QUIRE_HASH_SHA256:
    case QUIRE_HASH_XXHASH:
        if (has_tags)
            qr_pickle_encode_tagged(message, input, hasher->memo);
        else
            qr_pickle_encode(message, input, hasher->memo);
        return QUIRE_OK;
    case QUIRE_HASH_SHA256_CBOR:
    case QUIRE_HASH_XXHASH_CBOR:
        if (has_tags)
            qr_cbor_encode_tagged(message, input);
        else
            qr_cbor_encode(message, input);
        return QUIRE_OK;
    case QUIRE_HASH_SHA256_SAFE:
        qr_safe_encode(message, input);
        return QUIRE_OK;
    case QUIRE_HASH_QUIRE128:
    default:
        qr_raw_encode(message, input);
        return QUIRE_OK;
    }
}

void qr_hasher_digest(quire_hasher *hasher, qr_message *message, quire_bytes parent,
                      unsigned char *digest)
{
    unsigned char *hole = message->bytes + message->parent_at;
    if (QR_LIKELY(parent.len == QR_SHA256_BYTES)) /* sizes that the compiler knows need no call */
        memcpy(hole, parent.data, QR_SHA256_BYTES);
    else if (parent.len == QR_XXH128_BYTES)
        memcpy(hole, parent.data, QR_XXH128_BYTES);
    else
        memcpy(hole, parent.data, parent.len);
    digest_message(hasher, message, digest);
}
