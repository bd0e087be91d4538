/* quire/hash.h - block hashes: from tokens to the names of KV blocks.
 *
 * The hash of a block covers the block's own tokens, all tokens before them, and everything else
 * that decides the block's content:
 *
 *      NONE_HASH ---> H0 ------> H1 ------> H2              Hi = hash(Hi-1, tokens, extra keys)
 *                     ^          ^          ^
 *                  tokens     tokens     tokens   | tail    only full blocks have a hash
 *                  0..15      16..31     32..47   | 48..50
 *
 * hasher   how to hash: algorithm, block size, NONE_HASH. An engine has one hasher.
 * chain    the running hash of one request: the hash of the last full block, and the tail of
 *          tokens that do not fill a block yet. The caller appends tokens and gets the hashes of
 *          the blocks that became full. No token is hashed twice.
 * extra keys   what else must match before a block is shared: LoRA adapter, images, cache salt.
 *
 * Threads: one thread at a time may use a hasher and its chains. Functions without a hasher and
 * without a chain may be called from any thread.
 */
#ifndef QUIRE_HASH_H
#define QUIRE_HASH_H

#include "config.h"
#include "error.h"
#include "memory.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The algorithms: X(value, name, text name, digest bytes).
 *
 * These four algorithms give the bytes of vLLM, of the release that the hasher's profile names:
 *   sha256        SHA-256 over Python's pickle (protocol 5) of (parent, tokens, extra keys);
 *                 vLLM's default
 *   sha256_cbor   SHA-256 over canonical CBOR of the same tuple
 *   xxhash        XXH3-128 over the pickle. Not collision resistant: a user who knows NONE_HASH can
 *                 make two prompts share blocks. Use it for trusted prompts only.
 *   xxhash_cbor   XXH3-128 over the CBOR; the same warning
 *
 * These two algorithms are Quire's own:
 *   sha256_safe   SHA-256 over an encoding that differs for different inputs: every part has a tag
 *                 and a length, so that a salt never encodes like a LoRA name. (In vLLM's encodings
 *                 a salt "x" and a LoRA adapter named "x" give the same first block.)
 *   quire128      XXH3-128 with a secret of 192 bytes over the parent and the raw little-endian
 *                 tokens: the fastest algorithm. The secret is random unless a seed is given, so
 *                 that hashes differ from process to process. XXH3 is not a MAC: a user who sees
 *                 hashes may be able to forge them, and collisions are not proven hard to find. Use
 *                 it for one tenant, not for tenants that must not read each other's prompts. */
#define QUIRE_HASH_ALGO_MAP(X)                                                                     \
    X(0, SHA256, "sha256", 32)                                                                     \
    X(1, SHA256_CBOR, "sha256_cbor", 32)                                                           \
    X(2, XXHASH, "xxhash", 16)                                                                     \
    X(3, XXHASH_CBOR, "xxhash_cbor", 16)                                                           \
    X(4, SHA256_SAFE, "sha256_safe", 32)                                                           \
    X(5, QUIRE128, "quire128", 16)

typedef enum quire_hash_algo {
#define QUIRE_X(value, name, text, bytes) QUIRE_HASH_##name = (value),
    QUIRE_HASH_ALGO_MAP(QUIRE_X)
#undef QUIRE_X
} quire_hash_algo;

#define QUIRE_MAX_DIGEST_BYTES 32

/* The bytes of one hash. 0 if the value is not an algorithm. */
static inline size_t quire_hash_digest_bytes(quire_hash_algo algo)
{
    switch (algo) {
#define QUIRE_X(value, name, text, bytes)                                                          \
    case QUIRE_HASH_##name:                                                                        \
        return bytes;
        QUIRE_HASH_ALGO_MAP(QUIRE_X)
#undef QUIRE_X
    default:
        return 0;
    }
}
/* The text name, as "sha256_cbor"; a static string. NULL if the value is not an algorithm. */
static inline const char *quire_hash_algo_name(quire_hash_algo algo)
{
    switch (algo) {
#define QUIRE_X(value, name, text, bytes)                                                          \
    case QUIRE_HASH_##name:                                                                        \
        return text;
        QUIRE_HASH_ALGO_MAP(QUIRE_X)
#undef QUIRE_X
    default:
        return NULL;
    }
}
/* The algorithm of a text name. Returns QUIRE_E_UNKNOWN_NAME if no algorithm has this name,
 * QUIRE_E_ARGUMENT if a pointer is NULL. */
static inline int quire_hash_algo_by_name(const char *name, quire_hash_algo *algo)
{
    if (name == NULL || algo == NULL)
        return QUIRE_E_ARGUMENT;
#define QUIRE_X(value, id, text, bytes)                                                            \
    if (strcmp(name, text) == 0) {                                                                 \
        *algo = QUIRE_HASH_##id;                                                                   \
        return QUIRE_OK;                                                                           \
    }
    QUIRE_HASH_ALGO_MAP(QUIRE_X)
#undef QUIRE_X
    return QUIRE_E_UNKNOWN_NAME;
}

/* ---- extra keys --------------------------------------------------------- */

/* Bytes that the caller owns. The library reads them during the call only. data NULL means
 * "absent"; absent is not the same as present and empty. */
typedef struct quire_bytes { /* final */
    const void *data;
    size_t len;
} quire_bytes;

/* An image, sound or video in the prompt: the position of its placeholder tokens, and the name of
 * its content. */
typedef struct quire_mm_feature { /* final */
    quire_bytes identifier;       /* UTF-8 */
    uint64_t offset;              /* position of the first placeholder token in the request */
    uint64_t length;              /* number of placeholder tokens */
} quire_mm_feature;

/* The extra keys of a whole request. Each block uses the keys that concern the block, in vLLM's
 * order: the LoRA name; (identifier, offset - start of block) of every feature that overlaps the
 * block; the salt, in the first block only; the SHA-256 of the block's rows of prompt embeddings.
 * In QUIRE_PROFILE_VLLM_0_32 each key also has a tag, so that a salt never hashes like a LoRA name,
 * and the LoRA key has the adapter's path.
 *
 * Python's pickle writes a string once and then refers to it if the same object occurs twice in one
 * block. So for `sha256` and `xxhash` (not for the other algorithms) strings of one call with the
 * same data pointer and the same length count as one object. (Python has only one empty string and
 * only one string for each single Latin-1 character: give each of these strings one pointer.) */
typedef struct quire_extra_keys {
    size_t size;
    quire_bytes lora_name;
    quire_bytes cache_salt;              /* an empty salt counts as absent, as in vLLM */
    const quire_mm_feature *mm_features; /* ordered by offset */
    size_t num_mm_features;
    const void *prompt_embeds; /* rows of the prompt's embeddings, or NULL */
    size_t prompt_embed_bytes; /* bytes of one token's row */
    /* Number of rows. A block past the last row uses the rows that remain, or none. */
    uint64_t num_prompt_embeds;
    quire_bytes lora_path; /* read in QUIRE_PROFILE_VLLM_0_32 alone, with a lora_name; UTF-8 */
} quire_extra_keys;

#define QUIRE_EXTRA_KEYS_INIT QUIRE_SIZED_INIT(quire_extra_keys)

/* One extra key of one block, for callers that compute the extra keys themselves. */
typedef enum quire_extra_key_kind {
    QUIRE_KEY_LORA_NAME = 1,     /* text */
    QUIRE_KEY_MM_FEATURE = 2,    /* text and offset */
    QUIRE_KEY_CACHE_SALT = 3,    /* text */
    QUIRE_KEY_PROMPT_EMBEDS = 4, /* bytes: a SHA-256 digest */
    /* text; directly behind its QUIRE_KEY_LORA_NAME, and in QUIRE_PROFILE_VLLM_0_32 alone */
    QUIRE_KEY_LORA_PATH = 5
} quire_extra_key_kind;

typedef struct quire_extra_key { /* final */
    quire_extra_key_kind kind;
    quire_bytes value;
    int64_t offset; /* of a feature, relative to the start of the block; may be negative */
} quire_extra_key;

/* ---- hasher ------------------------------------------------------------- */

typedef struct quire_hasher quire_hasher;

typedef struct quire_hasher_config {
    size_t size;
    quire_hash_algo algo;
    uint32_t block_size; /* tokens in a block; 0 = 16; at most 65,536 */
    quire_profile profile;
    /* NONE_HASH is the hash of this text, like vLLM's PYTHONHASHSEED; at most 4,096 bytes. If both
     * seed and none_hash are absent, NONE_HASH is random, except for sha256 and sha256_cbor in
     * QUIRE_PROFILE_VLLM_0_32: there the seed is "vllm-none-hash", as in vLLM 0.32.0. */
    quire_bytes seed;
    quire_bytes none_hash; /* NONE_HASH itself, 1 to 64 bytes; not for quire128 */
    /* Bytes of the extra keys of one block, plus 24 for each key; 0 = 16,384; at most 65,535. */
    uint32_t max_extra_bytes;
    quire_hooks hooks;
} quire_hasher_config;

#define QUIRE_HASHER_CONFIG_INIT QUIRE_SIZED_INIT(quire_hasher_config)

/* Create a hasher: see quire/memory.h. The config is read during the call only. Beside the statuses
 * of quire/memory.h, returns QUIRE_E_RANDOM if the random hook fails. */
QUIRE_API int quire_hasher_create(const quire_hasher_config *config,
                                  const quire_allocator *allocator, quire_hasher **hasher);
static inline size_t quire_hasher_bytes(const quire_hasher_config *config)
{
    size_t bytes = 0;
    quire_hasher *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_hasher_create(config, &measure, &none);
    return bytes;
}
/* Erases the secret and the last tokens, and frees the memory that _create took. NULL: does
 * nothing. */
QUIRE_API void quire_hasher_destroy(quire_hasher *hasher);

typedef struct quire_hasher_info { /* final */
    /* NONE_HASH: the parent of every first block; 16 bytes for quire128. Valid as long as the
     * hasher. */
    quire_bytes none_hash;
    quire_hash_algo algo;
    uint32_t block_size;   /* tokens in a block */
    uint32_t digest_bytes; /* of one hash */
} quire_hasher_info;

/* All 0 if hasher is NULL. */
QUIRE_API quire_hasher_info quire_hasher_get_info(const quire_hasher *hasher);

/* Hashes one block: vLLM's hash_block_tokens. parent is the hash of the block before; for a first
 * block parent is absent or empty. num_tokens is at most the hasher's block size. Writes
 * quire_hash_digest_bytes() bytes to digest; digest may be the parent's own buffer. The 64 form
 * accepts token ids of 64 bits.
 *
 * Returns QUIRE_E_RANGE if num_tokens exceeds the block size, the parent exceeds 64 bytes, or the
 * extra keys exceed max_extra_bytes; QUIRE_E_ARGUMENT if a required pointer is NULL, an extra key
 * has an unknown kind, or a QUIRE_KEY_LORA_PATH is out of place. */
QUIRE_API int quire_hasher_hash_block(quire_hasher *hasher, quire_bytes parent,
                                      const quire_token *tokens, size_t num_tokens,
                                      const quire_extra_key *keys, size_t num_keys, void *digest);
QUIRE_API int quire_hasher_hash_block64(quire_hasher *hasher, quire_bytes parent,
                                        const int64_t *tokens, size_t num_tokens,
                                        const quire_extra_key *keys, size_t num_keys, void *digest);

/* ---- chain -------------------------------------------------------------- */

typedef struct quire_chain quire_chain;

/* The bytes of one chain (block size x 4, plus some more), and the creation of a chain in the
 * caller's memory, which must be aligned to 8 bytes. A chain holds no resources: to end a chain,
 * free its memory; to start again, initialise it again. _bytes returns 0 if hasher is NULL. _init
 * returns QUIRE_E_ALIGNMENT, QUIRE_E_TOO_SMALL, or QUIRE_E_ARGUMENT if a pointer is NULL. */
QUIRE_API size_t quire_chain_bytes(const quire_hasher *hasher);
QUIRE_API int quire_chain_init(const quire_hasher *hasher, void *memory, size_t bytes,
                               quire_chain **chain);

/* Appends tokens, and writes the hashes of the blocks that became full to digests, one after the
 * other; *num_new is their number. capacity is the number of hashes that digests has room for. The
 * chain copies the tail of tokens and keeps no pointer.
 *
 * extra may be NULL. It must be the same in each call, except that features may be added at
 * positions that are not hashed yet.
 *
 * If capacity is too small, returns QUIRE_E_RANGE and sets *num_new to the number of hashes. If the
 * extra keys of a block exceed max_extra_bytes, returns QUIRE_E_RANGE too. If a required pointer is
 * NULL, or the chain has another block size than the hasher, returns QUIRE_E_ARGUMENT. In all these
 * cases the chain is unchanged. */
QUIRE_API int quire_chain_append(quire_hasher *hasher, quire_chain *chain,
                                 const quire_token *tokens, size_t num_tokens,
                                 const quire_extra_keys *extra, void *digests, size_t capacity,
                                 size_t *num_new);

/* The number of tokens in the chain; 0 if chain is NULL. */
QUIRE_API uint64_t quire_chain_get_num_tokens(const quire_chain *chain);

/* ---- keys --------------------------------------------------------------- */

/* vLLM's map key: the hash, then the group id in 4 bytes, big-endian. Writes hash.len + 4 bytes to
 * key. Returns QUIRE_E_ARGUMENT if key is NULL. */
static inline int quire_hash_make_key(quire_bytes hash, uint32_t group_id, void *key)
{
    if ((hash.data == NULL && hash.len > 0) || key == NULL)
        return QUIRE_E_ARGUMENT;
    if (hash.len > 0)
        memmove(key, hash.data, hash.len);
    unsigned char *id = (unsigned char *)key + hash.len;
    for (int i = 0; i < 4; i++)
        id[i] = (unsigned char)(group_id >> (24 - 8 * i));
    return QUIRE_OK;
}
/* Splits a map key into its hash and its group id. *hash points into key. Returns QUIRE_E_RANGE if
 * the key has fewer than 4 bytes, QUIRE_E_ARGUMENT if a pointer is NULL. */
static inline int quire_hash_split_key(quire_bytes key, quire_bytes *hash, uint32_t *group_id)
{
    if ((key.data == NULL && key.len > 0) || hash == NULL || group_id == NULL)
        return QUIRE_E_ARGUMENT;
    if (key.len < 4)
        return QUIRE_E_RANGE;
    hash->data = key.data;
    hash->len = key.len - 4;
    const unsigned char *id = (const unsigned char *)key.data + hash->len;
    *group_id = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
    return QUIRE_OK;
}
/* The 64-bit form that vLLM's events carry: the last 8 bytes of the hash, big-endian. A shorter
 * hash is extended with zeros in front. 0 if the hash is absent. */
static inline uint64_t quire_hash_external(quire_bytes hash)
{
    const unsigned char *bytes = (const unsigned char *)hash.data;
    uint64_t value = 0;
    if (bytes == NULL)
        return 0;
    for (size_t i = hash.len > 8 ? hash.len - 8 : 0; i < hash.len; i++)
        value = value << 8 | bytes[i];
    return value;
}

#ifdef __cplusplus
}
#endif
#endif
