/* api/hash_api.c - quire/hash.h: argument checks, then one call inward. */
#include "api/fields.h"
#include "hash/chain.h"
#include "hash/hasher.h"

/* ---- hasher ---------------------------------------------------------------- */

static bool hasher_ok(const quire_hasher *hasher)
{
    return hasher != NULL && hasher->magic == QR_HASHER_MAGIC;
}

int quire_hasher_create(const quire_hasher_config *config, const quire_allocator *allocator,
                        quire_hasher **hasher)
{
    quire_hasher_config c;
    if (hasher == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_check_hasher_config(&c, config);
    if (err == QUIRE_OK)
        err = qr_hasher_config_read(&c, config);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_hasher_carve(&size, &c);
    err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_hasher *made = qr_hasher_carve(&arena, &c);
    qr_arena_seal(&arena);
    err = qr_hasher_init(made, &c);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *hasher = made;
    return QUIRE_OK;
}

void quire_hasher_destroy(quire_hasher *hasher)
{
    if (!hasher_ok(hasher))
        return;
    qr_owner owner = hasher->owner;
    for (int i = 0; i < 2; i++)
        qr_memory_wipe(hasher->messages[i].bytes, hasher->message_bytes); /* the last tokens */
    qr_memory_wipe(hasher, sizeof *hasher);
    qr_owner_release(&owner);
}

quire_hasher_info quire_hasher_get_info(const quire_hasher *hasher)
{
    if (!hasher_ok(hasher))
        return (quire_hasher_info){.none_hash = {NULL, 0}};
    return (quire_hasher_info){.none_hash = {hasher->none_hash, hasher->none_hash_len},
                               .algo = hasher->algo,
                               .block_size = hasher->block_size,
                               .digest_bytes = (uint32_t)hasher->digest_bytes};
}

static bool bytes_ok(quire_bytes bytes)
{
    return bytes.data != NULL || bytes.len == 0;
}

static bool path_ok(const quire_hasher *hasher, const quire_extra_key *keys, size_t i)
{
    return keys[i].kind != QUIRE_KEY_LORA_PATH ||
           (hasher->tags_extra_keys && i > 0 && keys[i - 1].kind == QUIRE_KEY_LORA_NAME);
}

static int check_keys(const quire_hasher *hasher, const quire_extra_key *keys, size_t num_keys)
{
    if (keys == NULL && num_keys > 0)
        return QUIRE_E_ARGUMENT;
    for (size_t i = 0; i < num_keys; i++)
        if (!qr_is_extra_key(&keys[i]) || !bytes_ok(keys[i].value) || !path_ok(hasher, keys, i))
            return QUIRE_E_ARGUMENT;
    return QUIRE_OK;
}

static int hash_block(quire_hasher *hasher, quire_bytes parent, qr_hash_input *input, void *digest)
{
    bool tokens_ok = input->tokens != NULL || input->tokens64 != NULL || input->num_tokens == 0;
    if (!hasher_ok(hasher) || !bytes_ok(parent) || !tokens_ok || digest == NULL)
        return QUIRE_E_ARGUMENT;
    int err = check_keys(hasher, input->keys, input->num_keys);
    if (err != QUIRE_OK)
        return err;
    if (input->num_tokens > hasher->block_size || parent.len > QR_HASH_MAX_PARENT ||
        input->num_keys > hasher->max_keys)
        return QUIRE_E_RANGE;
    if (parent.len == 0)
        parent = quire_hasher_get_info(hasher).none_hash;
    input->parent_len = parent.len;
    err = qr_hasher_encode(hasher, input, &hasher->messages[0]);
    if (err == QUIRE_OK)
        qr_hasher_digest(hasher, &hasher->messages[0], parent, digest);
    return err;
}

int quire_hasher_hash_block(quire_hasher *hasher, quire_bytes parent, const quire_token *tokens,
                            size_t num_tokens, const quire_extra_key *keys, size_t num_keys,
                            void *digest)
{
    qr_hash_input input = {
        .tokens = tokens, .num_tokens = num_tokens, .keys = keys, .num_keys = num_keys};
    return hash_block(hasher, parent, &input, digest);
}

int quire_hasher_hash_block64(quire_hasher *hasher, quire_bytes parent, const int64_t *tokens,
                              size_t num_tokens, const quire_extra_key *keys, size_t num_keys,
                              void *digest)
{
    qr_hash_input input = {
        .tokens64 = tokens, .num_tokens = num_tokens, .keys = keys, .num_keys = num_keys};
    return hash_block(hasher, parent, &input, digest);
}

/* ---- chain ----------------------------------------------------------------- */

size_t quire_chain_bytes(const quire_hasher *hasher)
{
    return hasher_ok(hasher) ? qr_chain_bytes(hasher) : 0;
}

int quire_chain_init(const quire_hasher *hasher, void *memory, size_t bytes, quire_chain **chain)
{
    if (!hasher_ok(hasher) || memory == NULL || chain == NULL)
        return QUIRE_E_ARGUMENT;
    if ((uintptr_t)memory % _Alignof(quire_chain) != 0)
        return QUIRE_E_ALIGNMENT;
    if (bytes < qr_chain_bytes(hasher))
        return QUIRE_E_TOO_SMALL;
    qr_chain_init(hasher, memory);
    *chain = memory;
    return QUIRE_OK;
}

static bool extra_ok(const quire_extra_keys *extra)
{
    if (extra->mm_features == NULL && extra->num_mm_features > 0)
        return false;
    for (size_t i = 0; i < extra->num_mm_features; i++)
        if (!bytes_ok(extra->mm_features[i].identifier))
            return false;
    return bytes_ok(extra->lora_name) && bytes_ok(extra->lora_path) && bytes_ok(extra->cache_salt);
}

/* NOLINTBEGIN(misc-no-recursion): once more, with a copy of a struct of another size */
static QR_NOINLINE int append_by_other_keys(quire_hasher *hasher, quire_chain *chain,
                                            const quire_token *tokens, size_t num_tokens,
                                            const quire_extra_keys *extra, void *digests,
                                            size_t capacity, size_t *num_new)
{
    quire_extra_keys own;
    bool is_read = qr_config_read(&own, sizeof own, extra) == QUIRE_OK;
    return is_read ? quire_chain_append(hasher, chain, tokens, num_tokens, &own, digests, capacity,
                                        num_new)
                   : QUIRE_E_ARGUMENT;
}

int quire_chain_append(quire_hasher *hasher, quire_chain *chain, const quire_token *tokens,
                       size_t num_tokens, const quire_extra_keys *extra, void *digests,
                       size_t capacity, size_t *num_new)
{
    bool arrays_ok = (tokens != NULL || num_tokens == 0) && (digests != NULL || capacity == 0);
    if (extra != NULL && !qr_struct_is_ours(extra, sizeof *extra))
        return append_by_other_keys(hasher, chain, tokens, num_tokens, extra, digests, capacity,
                                    num_new);
    if (!hasher_ok(hasher) || chain == NULL || !arrays_ok || num_new == NULL ||
        (extra != NULL && !extra_ok(extra)) || chain->block_size != hasher->block_size)
        return QUIRE_E_ARGUMENT;
    return qr_chain_append(hasher, chain, tokens, num_tokens, extra, digests, capacity, num_new);
}
/* NOLINTEND(misc-no-recursion) */

uint64_t quire_chain_get_num_tokens(const quire_chain *chain)
{
    return chain == NULL ? 0 : chain->num_blocks * chain->block_size + chain->tail_len;
}
