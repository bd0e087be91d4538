/* quire/hash.h - block hashes: from tokens to the names of KV blocks.
 *
 * A block's hash covers its own tokens, everything before them, and what else decides its content:
 *
 *      NONE_HASH ---> H0 ------> H1 ------> H2              Hi = hash(Hi-1, tokens, extra keys)
 *                     ^          ^          ^
 *                  tokens     tokens     tokens   | tail    only full blocks have a hash
 *                  0..15      16..31     32..47   | 48..50
 *
 * hasher   how to hash: algorithm, block size, NONE_HASH. One for an engine.
 * chain    the running hash of one request: the last block's hash, and the tail of tokens that do
 *          not fill a block yet. Append tokens, get the hashes of the blocks that became full;
 *          nothing is ever hashed twice.
 * extra keys   what else must match for a block to be shared: LoRA adapter, images, cache salt.
 *
 * Threads: a hasher and the chains used with it belong to one thread at a time. Functions that take
 * neither may be called from any thread.
 */
#ifndef QUIRE_HASH_H
#define QUIRE_HASH_H

#include "config.h"
#include "error.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The algorithms: X(value, name, text name, digest bytes).
 *
 * These four give the bytes of vLLM 0.20.0:
 *   sha256        SHA-256 over Python's pickle (protocol 5) of (parent, tokens, extra keys);
 *                 vLLM's default
 *   sha256_cbor   SHA-256 over canonical CBOR of the same
 *   xxhash        XXH3-128 over the pickle. Not collision resistant: who knows NONE_HASH can make
 *                 two prompts share blocks. For trusted prompts.
 *   xxhash_cbor   XXH3-128 over the CBOR; same warning
 *
 * These two are Quire's own:
 *   sha256_safe   SHA-256 over an encoding in which no two different inputs look alike: every part
 *                 has a tag and a length, so a salt can never pass for a LoRA name. (In vLLM's
 *                 encodings a salt "x" and a LoRA adapter named "x" give the same first block.)
 *   quire128      XXH3-128 with a secret of 192 bytes over the parent and the raw little-endian
 *                 tokens: the fastest. The secret is random unless a seed is given, so hashes
 *                 differ from process to process. XXH3 is not a MAC: who can see hashes may be able
 *                 to forge them, and nothing proves that collisions cannot be found. For one
 *                 tenant, not for prompts of people who may not read each other's. */
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

/* Bytes of one hash, 0 for a value that is no algorithm. */
QUIRE_API size_t quire_hash_digest_bytes(quire_hash_algo algo);
/* "sha256_cbor"; NULL for a value that is no algorithm. */
QUIRE_API const char *quire_hash_algo_name(quire_hash_algo algo);
/* The reverse, by vLLM's names. QUIRE_E_UNKNOWN_NAME when there is none. */
QUIRE_API int quire_hash_algo_by_name(const char *name, quire_hash_algo *algo);

/* ---- extra keys --------------------------------------------------------- */

/* Bytes that the caller owns; only read during the call. data NULL means "absent", which is not the
 * same as present and empty. */
typedef struct quire_bytes {
    const void *data;
    size_t len;
} quire_bytes;

/* An image, sound or video in the prompt: where its placeholder tokens lie, and what names its
 * content. */
typedef struct quire_mm_feature {
    quire_bytes identifier; /* UTF-8 */
    uint64_t offset;        /* position of the first placeholder token in the request */
    uint64_t length;        /* number of placeholder tokens */
} quire_mm_feature;

/* What a whole request brings. Each block takes from it what concerns that block, in vLLM's order:
 * LoRA name; (identifier, offset - start of block) of every feature that overlaps the block; the
 * salt, in the first block only; SHA-256 of the block's rows of prompt embeddings.
 *
 * One trap of Python's pickle: a string that occurs twice in one block as the same object is
 * written once and then referred to. So for `sha256` and `xxhash`, and for no other algorithm,
 * strings of one call that have the same data pointer and length count as one object. (Python has
 * just one empty string, and one of each single Latin-1 character: give each of these strings one
 * pointer.) */
typedef struct quire_extra_keys {
    quire_bytes lora_name;
    quire_bytes cache_salt;              /* empty counts as absent, as in vLLM */
    const quire_mm_feature *mm_features; /* ordered by offset */
    size_t num_mm_features;
    const void *prompt_embeds;  /* rows of the prompt's embeddings, or NULL */
    size_t prompt_embed_bytes;  /* bytes of one token's row */
    uint64_t num_prompt_embeds; /* rows; blocks past the end use what is left, at last nothing */
} quire_extra_keys;

/* One extra key of one block, for callers that work them out themselves. */
typedef enum quire_extra_key_kind {
    QUIRE_KEY_LORA_NAME = 1,    /* text */
    QUIRE_KEY_MM_FEATURE = 2,   /* text and offset */
    QUIRE_KEY_CACHE_SALT = 3,   /* text */
    QUIRE_KEY_PROMPT_EMBEDS = 4 /* bytes: a SHA-256 digest */
} quire_extra_key_kind;

typedef struct quire_extra_key {
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
    uint64_t quirks_on;  /* QUIRE_QUIRK(...) bits to add to the profile's */
    uint64_t quirks_off; /* and to take away */
    quire_bytes seed; /* NONE_HASH = hash of this text, as vLLM's PYTHONHASHSEED; <= 4,096 bytes */
    quire_bytes none_hash; /* or NONE_HASH itself, 1 to 64 bytes; not for quire128 */
    /* seed and none_hash both absent: random */
    uint32_t max_extra_bytes; /* of one block's extra keys, plus 24 each; 0 = 16,384; <= 65,535 */
    quire_hooks hooks;
} quire_hasher_config;

#define QUIRE_HASHER_CONFIG_INIT QUIRE_SIZED_INIT(quire_hasher_config)

/* Plan, carve, seal: see quire/memory.h. _bytes gives 0 when the config is not valid.
 * QUIRE_E_CONFIG for a field out of range, QUIRE_E_RANDOM when the random hook fails. */
QUIRE_API size_t quire_hasher_bytes(const quire_hasher_config *config);
QUIRE_API int quire_hasher_create_in(void *memory, size_t bytes, const quire_hasher_config *config,
                                     quire_hasher **hasher);
QUIRE_API int quire_hasher_create(const quire_hasher_config *config,
                                  const quire_allocator *allocator, quire_hasher **hasher);
/* Forgets the secret and gives back what _create took; NULL is fine. */
QUIRE_API void quire_hasher_destroy(quire_hasher *hasher);

/* What stands for the parent of a first block. Valid as long as the hasher. For quire128 it is 16
 * bytes. */
QUIRE_API quire_bytes quire_hasher_none_hash(const quire_hasher *hasher);

/* Hashes one block: vLLM's hash_block_tokens. parent is the hash of the block before, absent or
 * empty for a first block. digest takes quire_hash_digest_bytes() bytes and may be the parent's own
 * buffer. num_tokens may be any number up to the hasher's block size. The 64 form takes token ids
 * beyond 32 bits. QUIRE_E_RANGE when tokens, parent (over 64 bytes) or extra keys exceed the
 * hasher's limits. */
QUIRE_API int quire_hasher_hash_block(quire_hasher *hasher, quire_bytes parent,
                                      const quire_token *tokens, size_t num_tokens,
                                      const quire_extra_key *keys, size_t num_keys, void *digest);
QUIRE_API int quire_hasher_hash_block64(quire_hasher *hasher, quire_bytes parent,
                                        const int64_t *tokens, size_t num_tokens,
                                        const quire_extra_key *keys, size_t num_keys, void *digest);

/* ---- chain -------------------------------------------------------------- */

typedef struct quire_chain quire_chain;

/* Bytes of one chain (block size x 4 and a little more), and its making, in memory of the caller's
 * that is aligned to 8 bytes. A chain holds no resources: to end it, forget it; to start again,
 * init it again. */
QUIRE_API size_t quire_chain_bytes(const quire_hasher *hasher);
QUIRE_API int quire_chain_init(const quire_hasher *hasher, void *memory, size_t bytes,
                               quire_chain **chain);

/* Appends tokens and writes the hashes of the blocks that became full, one after the other, to
 * digests; *num_new says how many. extra may be NULL; it must be the same each time, except that
 * features may be added at positions that are not hashed yet. Tokens are copied (the tail of fewer
 * than a block) or used up at once; no pointer is kept. QUIRE_E_RANGE, with *num_new = how many
 * hashes there would be, when capacity is too small for them, or when a block's extra keys exceed
 * max_extra_bytes; the chain is then as before. */
QUIRE_API int quire_chain_append(quire_hasher *hasher, quire_chain *chain,
                                 const quire_token *tokens, size_t num_tokens,
                                 const quire_extra_keys *extra, void *digests, size_t capacity,
                                 size_t *num_new);

QUIRE_API uint64_t quire_chain_num_tokens(const quire_chain *chain);
QUIRE_API uint64_t quire_chain_num_blocks(const quire_chain *chain);

/* ---- keys --------------------------------------------------------------- */

/* vLLM's map key: the hash, then the group id in 4 bytes, big-endian. key takes hash.len + 4 bytes.
 */
QUIRE_API int quire_hash_make_key(quire_bytes hash, uint32_t group_id, void *key);
/* And apart again. QUIRE_E_RANGE for a key of fewer than 4 bytes. */
QUIRE_API int quire_hash_split_key(quire_bytes key, quire_bytes *hash, uint32_t *group_id);
/* The 64-bit form that vLLM's events carry: the last 8 bytes, big-endian. Shorter input counts as
 * zero-extended in front. */
QUIRE_API uint64_t quire_hash_external(quire_bytes hash);

#ifdef __cplusplus
}
#endif
#endif
