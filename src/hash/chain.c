#include "hash/chain.h"

#include "base/assert.h"
#include "hash/extra.h"

size_t qr_chain_bytes(const quire_hasher *hasher)
{
    return sizeof(quire_chain) + (size_t)hasher->block_size * sizeof(quire_token);
}

void qr_chain_init(const quire_hasher *hasher, quire_chain *chain)
{
    *chain = (quire_chain){.block_size = hasher->block_size};
}

/* One block on its way through: where it stands, and what came before. */
typedef struct chain_step {
    qr_extra_cursor extra;
    quire_bytes parent;
    uint64_t start; /* position of the block's first token */
} chain_step;

static int hash_next(quire_hasher *hasher, chain_step *step, const quire_token *tokens,
                     unsigned char *digest)
{
    qr_hash_input input = {.parent = step->parent,
                           .tokens = tokens,
                           .num_tokens = hasher->block_size,
                           .keys = hasher->keys};
    uint64_t end = step->start + hasher->block_size;
    if (step->extra.extra != NULL &&
        !qr_extra_of_block(&step->extra, step->start, end, hasher->keys, hasher->max_keys,
                           &input.num_keys))
        return QUIRE_E_RANGE;
    int err = qr_hasher_hash(hasher, &input, digest);
    step->parent = (quire_bytes){digest, hasher->digest_bytes};
    step->start = end;
    return err;
}

static chain_step first_step(const quire_hasher *hasher, const quire_chain *chain,
                             const quire_extra_keys *extra)
{
    bool continues = chain->num_blocks > 0;
    bool only_last = continues && (hasher->quirks & QUIRE_QUIRK(MM_LAST_FEATURE)) != 0;
    return (chain_step){.extra = qr_extra_begin(extra, only_last),
                        .parent = {chain->parent, chain->parent_len},
                        .start = chain->num_blocks * hasher->block_size};
}

/* What changes in the chain, once everything has gone well. */
static void commit(quire_chain *chain, const chain_step *last, size_t num_new,
                   const quire_token *rest, uint32_t rest_len)
{
    if (num_new > 0) {
        chain->num_blocks += num_new;
        chain->parent_len = (uint32_t)last->parent.len;
        memcpy(chain->parent, last->parent.data, last->parent.len);
        chain->tail_len = 0;
    }
    if (rest_len > 0)
        memcpy(chain->tail + chain->tail_len, rest, rest_len * sizeof *rest);
    chain->tail_len += rest_len;
}

int qr_chain_append(quire_hasher *hasher, quire_chain *chain, const quire_token *tokens, size_t n,
                    const quire_extra_keys *extra, unsigned char *digests, size_t capacity,
                    size_t *num_new)
{
    qr_assert(chain->tail_len < chain->block_size);
    uint32_t block_size = chain->block_size;
    size_t new_blocks = (chain->tail_len + n) / block_size;
    *num_new = new_blocks;
    if (new_blocks > capacity)
        return QUIRE_E_RANGE;
    chain_step step = first_step(hasher, chain, extra);
    const quire_token *rest = tokens;
    for (size_t i = 0; i < new_blocks; i++) {
        const quire_token *block = rest;
        size_t used = block_size;
        if (i == 0 && chain->tail_len > 0) { /* behind tail_len, so not a change of the chain yet */
            used = block_size - chain->tail_len;
            memcpy(chain->tail + chain->tail_len, rest, used * sizeof *rest);
            block = chain->tail;
        }
        int err = hash_next(hasher, &step, block, digests + i * hasher->digest_bytes);
        if (err != QUIRE_OK)
            return err;
        rest += used;
    }
    commit(chain, &step, new_blocks, rest, (uint32_t)(n - (size_t)(rest - tokens)));
    return QUIRE_OK;
}
