/* sched/requests/hashes.c - the hashes of a request's blocks.
 *
 *      prompt    | H0 | H1 | H2 | p p p          when it comes: those that the caller has made, and
 *      output                   | p p p o |      the others; then, whenever a token fills a block
 *
 * A prompt of embeddings has zeros for tokens, and the SHA-256 of a block's rows among the block's
 * extra keys. Rows are not kept, but the digest of the last ones is, for the block that the output
 * fills up; blocks behind it have no rows, and the digest of nothing.
 */
#include "cache/retain.h"
#include "sched/sched.h"

/* Makes the scratch chain end where the request's hashes end. */
static void load_chain(quire_sched *s, const qr_request *r)
{
    quire_chain *chain = s->chain;
    uint32_t n = r->kv.num_hashes;
    qr_chain_init(s->hasher, chain);
    chain->num_blocks = n;
    if (n > 0) {
        chain->parent_len = s->hasher->digest_bytes;
        memcpy(chain->parent, qr_text_hash(&s->texts.store, &r->text, n - 1), chain->parent_len);
    }
}

static const quire_extra_keys *extra_of(const qr_request *r)
{
    return r->has_extra ? &r->extra : NULL;
}

/* ---- a prompt -------------------------------------------------------------- */

/* Whether the extra keys of blocks from `first` on can be hashed, the last one as if it were full:
 * it will be, later, and then it is too late to say no. */
static int check_extra_keys(quire_sched *s, const quire_extra_keys *extra, uint64_t first,
                            uint32_t num_tokens)
{
    quire_hasher *hasher = s->hasher;
    quire_extra_keys sizes = *extra;
    sizes.num_prompt_embeds = 0; /* the digest of nothing is as long as any */
    qr_extra_cursor cursor = qr_chain_begin_extra(hasher, &sizes, 0);
    qr_hash_input input = {.parent_len = hasher->digest_bytes,
                           .tokens = s->chain->tail,
                           .num_tokens = hasher->block_size,
                           .keys = hasher->keys};
    memset(s->chain->tail, 0, hasher->block_size * sizeof *s->chain->tail);
    for (uint64_t start = first; start < num_tokens; start += hasher->block_size) {
        if (!qr_extra_of_block(&cursor, start, start + hasher->block_size, hasher->keys,
                               hasher->max_keys, &input.num_keys))
            return QUIRE_E_RANGE;
        int err = qr_hasher_encode(hasher, &input, &hasher->messages[0]);
        if (err != QUIRE_OK)
            return err;
    }
    return QUIRE_OK;
}

/* Page by page, into the pages: a page's hashes lie together. tokens: those of the n that are not
 * hidden. */
static int hash_rest(quire_sched *s, qr_request *r, const quire_token *tokens, uint32_t num_hidden,
                     uint32_t n, const quire_extra_keys *extra)
{
    int err = QUIRE_OK;
    uint32_t first = r->kv.num_hashes * s->settings.hash_block_size;
    load_chain(s, r);
    s->chain->is_one_call = true;
    while (first < n && err == QUIRE_OK) {
        uint32_t part = s->texts.store.page_tokens - first % s->texts.store.page_tokens;
        part = part < n - first ? part : n - first;
        size_t num_new;
        err = qr_chain_append(s->hasher, s->chain, tokens + (first - num_hidden), part, extra,
                              qr_text_hash(&s->texts.store, &r->text, r->kv.num_hashes),
                              s->texts.store.page_hashes, &num_new);
        r->kv.num_hashes += (uint32_t)num_new;
        first += part;
    }
    return err;
}

int qr_sched_hash_prompt(quire_sched *s, qr_request *r, const quire_request_params *p,
                         const quire_token *tokens)
{
    if (s->hasher == NULL)
        return QUIRE_OK;
    uint32_t n = p->num_prompt_tokens;
    quire_extra_keys extra = r->extra;
    extra.prompt_embeds = p->prompt_embeds;
    extra.prompt_embed_bytes = p->prompt_embed_bytes;
    extra.num_prompt_embeds = n;
    bool has_extra = r->has_extra || p->prompt_embeds != NULL;
    uint32_t last = (n - 1) / s->settings.hash_block_size;
    uint64_t first = p->num_hashes < last ? p->num_hashes : last;
    int err =
        has_extra ? check_extra_keys(s, &extra, first * s->settings.hash_block_size, n) : QUIRE_OK;
    if (err != QUIRE_OK)
        return err;
    qr_text_put_hashes(&s->texts.store, &r->text, 0, p->num_hashes, p->hashes);
    r->kv.num_hashes = p->num_hashes;
    return hash_rest(s, r, tokens, p->num_hidden_tokens, n, has_extra ? &extra : NULL);
}

/* ---- output ---------------------------------------------------------------- */

static inline bool has_unhashed_block(const quire_sched *s, const qr_request *r)
{
    return s->hasher != NULL &&
           ((uint64_t)r->kv.num_hashes + 1) * s->settings.hash_block_size <= r->kv.num_tokens;
}

/* A block behind the full ones of a prompt of embeddings. */
static int hash_embeds_block(quire_sched *s, const qr_request *r, const quire_token *tokens,
                             unsigned char *digest)
{
    quire_hasher *hasher = s->hasher;
    uint64_t start = s->chain->num_blocks * s->settings.hash_block_size;
    bool has_rows = start < r->num_prompt_tokens;
    qr_extra_cursor cursor = qr_chain_begin_extra(hasher, &r->extra, start);
    unsigned char of_nothing[QR_SHA256_BYTES];
    qr_hash_input input = {
        .tokens = tokens, .num_tokens = s->settings.hash_block_size, .keys = hasher->keys};
    if (!qr_extra_of_block(&cursor, start, start + s->settings.hash_block_size, hasher->keys,
                           hasher->max_keys - 1, &input.num_keys))
        return QUIRE_E_RANGE;
    qr_sha256(NULL, 0, of_nothing);
    hasher->keys[input.num_keys++] = (quire_extra_key){
        .kind = QUIRE_KEY_PROMPT_EMBEDS,
        .value = has_rows ? r->embeds_tail : (quire_bytes){of_nothing, sizeof of_nothing}};
    quire_bytes parent = {s->chain->parent, s->chain->parent_len};
    if (start == 0)
        parent = (quire_bytes){hasher->none_hash, hasher->none_hash_len};
    input.parent_len = parent.len;
    int err = qr_hasher_encode(hasher, &input, &hasher->messages[0]);
    if (err == QUIRE_OK)
        qr_hasher_digest(hasher, &hasher->messages[0], parent, digest);
    return err;
}

static QR_NOINLINE void hash_full_block(quire_sched *s, qr_request *r)
{
    uint32_t block = r->kv.num_hashes;
    uint32_t first = block * s->settings.hash_block_size;
    const quire_token *tokens =
        qr_text_page_tokens(&s->texts.store, &r->text, first / s->texts.store.page_tokens) +
        first % s->texts.store.page_tokens;
    unsigned char *digest = qr_text_hash(&s->texts.store, &r->text, block);
    qr_text_hashes_change(&s->texts.store,
                          &r->text); /* a session may have had another hash there */
    load_chain(s, r);
    size_t num_new;
    int err = r->embeds_tail.data != NULL
                  ? hash_embeds_block(s, r, tokens, digest)
                  : qr_chain_append(s->hasher, s->chain, tokens, s->settings.hash_block_size,
                                    extra_of(r), digest, 1, &num_new);
    qr_assert(err == QUIRE_OK); /* its extra keys are among those that fitted before */
    r->kv.num_hashes++;
}

void qr_sched_hash_new_blocks(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (!has_unhashed_block(s, r))
        return;
    uint32_t first = r->kv.num_hashes * s->settings.hash_block_size;
    uint32_t n = r->kv.num_tokens - first;
    qr_text_copy(&s->texts.store, &r->text, first, n, s->room.token_scratch);
    load_chain(s, r);
    size_t capacity = (size_t)s->texts.store.max_pages * s->texts.store.page_hashes;
    size_t num_new;
    int err = qr_chain_append(s->hasher, s->chain, s->room.token_scratch, n, extra_of(r),
                              s->texts.store.row, capacity, &num_new);
    qr_assert(err == QUIRE_OK); /* the input's features were checked when it came */
    qr_text_put_hashes(&s->texts.store, &r->text, r->kv.num_hashes, (uint32_t)num_new,
                       s->texts.store.row);
    r->kv.num_hashes += (uint32_t)num_new;
}

void qr_sched_append(quire_sched *s, uint32_t index, quire_token token)
{
    qr_request *r = &s->table.requests[index];
    if (QR_UNLIKELY(r->text.tail == NULL)) /* more came than a step in flight was to give */
        qr_sched_take_promised(s, r, r->kv.num_tokens + 1);
    qr_text_append_one(&s->texts.store, &r->text, token);
    r->kv.num_tokens++;
    if (has_unhashed_block(s, r))
        hash_full_block(s, r);
}

/* ---- for the cache --------------------------------------------------------- */

void qr_sched_show_all_hashes(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (s->hasher == NULL)
        return;
    r->kv.first_hash = 0;
    r->kv.hashes = qr_text_all_hashes(&s->texts.store, &r->text, r->kv.num_hashes);
}

void qr_sched_show_hashes(quire_sched *s, uint32_t index, uint32_t num_tokens)
{
    qr_request *r = &s->table.requests[index];
    if (s->hasher == NULL)
        return;
    uint32_t first = qr_cache_first_needed_hash(s->cache, r->kv.seq);
    uint32_t end =
        qr_cache_end_of_keys(s->cache, r->kv.seq, num_tokens) / s->settings.hash_block_size;
    first = first < r->kv.num_hashes ? first : 0;
    end = end < r->kv.num_hashes ? end : r->kv.num_hashes;
    r->kv.first_hash = first;
    r->kv.hashes = qr_text_hash_row(&s->texts.store, &r->text, first, end > first ? end : first);
}

void qr_sched_cache_blocks(quire_sched *s, uint32_t index, uint32_t num_tokens)
{
    s->observer.taker = qr_sched_req_of(s, index);
    qr_sched_show_hashes(s, index, num_tokens);
    const quire_cache_request *kv = &s->table.requests[index].kv;
    qr_cache_cache_blocks(s->cache, kv, qr_cache_row_of(s->cache, kv->seq), num_tokens);
    s->observer.taker = 0;
}

/* Blocks that a load has still to fill have no keys, and those behind them get none. */
void qr_sched_cache_end(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (QR_LIKELY(!s->cache->retains_ends) || r->load_step != 0)
        return;
    uint32_t row = qr_cache_row_of(s->cache, r->kv.seq);
    bool has_more = r->kv.num_tokens > r->kv.num_computed_tokens;
    uint32_t num_tokens = has_more ? r->kv.num_computed_tokens + 1 : r->kv.num_tokens;
    uint32_t first = row == QR_NIL ? QR_NIL : qr_retain_first_hash(s->cache, row, num_tokens);
    if (first == QR_NIL)
        return;
    s->observer.taker = qr_sched_req_of(s, index);
    r->kv.first_hash = first;
    r->kv.hashes = qr_text_hash_row(&s->texts.store, &r->text, first, r->kv.num_hashes);
    qr_retain_end(s->cache, &r->kv, row, num_tokens);
    s->observer.taker = 0;
}
