#include "hash/chain.h"

#include "base/assert.h"
#include "hash/safe.h"

size_t qr_chain_bytes(const quire_hasher *hasher)
{
    return sizeof(quire_chain) + (size_t)hasher->block_size * sizeof(quire_token);
}

void qr_chain_init(const quire_hasher *hasher, quire_chain *chain)
{
    *chain = (quire_chain){.block_size = hasher->block_size};
}

/* The blocks of one append, on their way through. Each is encoded one step before it is hashed,
 * while the processor is still busy with the hash of the block before. */
typedef struct chain_walk {
    quire_hasher *hasher;
    const quire_token *tokens; /* not encoded yet */
    qr_hash_input input;
    qr_extra_cursor extra;
    quire_bytes parent; /* of the block to be hashed next */
    uint64_t start;     /* position of the block to be encoded next */
    uint32_t turn;      /* whose message is free */
} chain_walk;

qr_extra_cursor qr_chain_begin_extra(const quire_hasher *hasher, const quire_extra_keys *extra,
                                     uint64_t start)
{
    bool only_last = start > 0 && (hasher->quirks & QR_QUIRK(MM_LAST_FEATURE)) != 0;
    bool bisects = start > 0 && !only_last && hasher->bisects_features;
    qr_extra_cursor cursor =
        bisects ? qr_extra_begin_at(extra, start) : qr_extra_begin(extra, only_last);
    cursor.has_path = hasher->tags_extra_keys;
    return cursor;
}

static chain_walk begin_walk(quire_hasher *hasher, const quire_chain *chain,
                             const quire_token *tokens, const quire_extra_keys *extra)
{
    bool continues = chain->num_blocks > 0;
    uint64_t start = chain->num_blocks * hasher->block_size;
    quire_bytes parent = {chain->parent, chain->parent_len};
    if (!continues)
        parent = (quire_bytes){hasher->none_hash, hasher->none_hash_len};
    return (chain_walk){
        .hasher = hasher,
        .tokens = tokens,
        .input = {.parent_len = parent.len, .num_tokens = hasher->block_size, .keys = hasher->keys},
        .extra = qr_chain_begin_extra(hasher, extra, chain->is_one_call ? 0 : start),
        .parent = parent,
        .start = start};
}

/* The next block's tokens: from the caller's array or, for the first, the tail completed from it.
 * The tail grows past tail_len, which is no change of the chain yet. */
static const quire_token *next_tokens(chain_walk *walk, quire_chain *chain)
{
    const quire_token *block = walk->tokens;
    size_t used = chain->block_size;
    if (chain->tail_len > 0 && walk->start == chain->num_blocks * chain->block_size) {
        used -= chain->tail_len;
        memcpy(chain->tail + chain->tail_len, walk->tokens, used * sizeof *walk->tokens);
        block = chain->tail;
    }
    walk->tokens += used;
    return block;
}

static int encode_next(chain_walk *walk, quire_chain *chain)
{
    quire_hasher *hasher = walk->hasher;
    walk->input.tokens = next_tokens(walk, chain);
    uint64_t end = walk->start + hasher->block_size;
    if (walk->extra.extra != NULL &&
        !qr_extra_of_block(&walk->extra, walk->start, end, hasher->keys, hasher->max_keys,
                           &walk->input.num_keys))
        return QUIRE_E_RANGE;
    int err = qr_hasher_encode(hasher, &walk->input, &hasher->messages[walk->turn & 1]);
    walk->input.parent_len = hasher->digest_bytes;
    walk->start = end;
    walk->turn++;
    return err;
}

/* Hashes the block that was encoded at a turn. */
static void digest_next(chain_walk *walk, uint32_t turn, unsigned char *digest)
{
    quire_hasher *hasher = walk->hasher;
    qr_hasher_digest(hasher, &hasher->messages[turn & 1], walk->parent, digest);
    walk->parent = (quire_bytes){digest, hasher->digest_bytes};
}

static int walk_blocks(chain_walk *walk, quire_chain *chain, size_t n, unsigned char *digests)
{
    for (size_t i = 0; i <= n && n > 0; i++) {
        int err = i < n ? encode_next(walk, chain) : QUIRE_OK;
        if (err != QUIRE_OK)
            return err;
        if (i > 0)
            digest_next(walk, (uint32_t)i - 1, digests + (i - 1) * walk->hasher->digest_bytes);
    }
    return QUIRE_OK;
}

/* Blocks of quire128 without extra keys, at least one, all in the caller's array. */
static void run_blocks(chain_walk *walk, size_t n, unsigned char *digests)
{
    quire_hasher *hasher = walk->hasher;
    qr_quire128_run(hasher->secret, walk->parent.data, walk->tokens, hasher->block_size, n,
                    hasher->messages[0].bytes, digests);
    walk->parent = (quire_bytes){digests + (n - 1) * hasher->digest_bytes, hasher->digest_bytes};
    walk->tokens += n * hasher->block_size;
}

/* What changes in the chain, once everything has gone well. */
static void commit(quire_chain *chain, const chain_walk *walk, size_t num_new, uint32_t rest_len)
{
    if (num_new > 0) {
        chain->num_blocks += num_new;
        chain->parent_len = (uint32_t)walk->parent.len;
        memcpy(chain->parent, walk->parent.data, walk->parent.len);
        chain->tail_len = 0;
    }
    if (rest_len > 0)
        memcpy(chain->tail + chain->tail_len, walk->tokens, rest_len * sizeof *walk->tokens);
    chain->tail_len += rest_len;
}

int qr_chain_append(quire_hasher *hasher, quire_chain *chain, const quire_token *tokens, size_t n,
                    const quire_extra_keys *extra, unsigned char *digests, size_t capacity,
                    size_t *num_new)
{
    qr_assert(chain->tail_len < chain->block_size);
    size_t new_blocks = qr_add_size(chain->tail_len, n) / chain->block_size;
    *num_new = new_blocks;
    if (new_blocks > capacity)
        return QUIRE_E_RANGE;
    chain_walk walk = begin_walk(hasher, chain, tokens, extra);
    size_t walked = new_blocks;
    if (hasher->algo == QUIRE_HASH_QUIRE128 && extra == NULL)
        walked = chain->tail_len > 0 && new_blocks > 0 ? 1 : 0; /* the rest goes the short way */
    int err = walk_blocks(&walk, chain, walked, digests);
    if (err != QUIRE_OK)
        return err;
    if (walked < new_blocks)
        run_blocks(&walk, new_blocks - walked, digests + walked * hasher->digest_bytes);
    commit(chain, &walk, new_blocks, (uint32_t)(n - (size_t)(walk.tokens - tokens)));
    return QUIRE_OK;
}
