#include "sched/requests/text.h"

enum { PAGE_TOKENS = QR_AT_A_TIME(1024, 2) };

void qr_text_carve(qr_text_store *store, qr_arena *arena, const qr_text_limits *limits)
{
    uint32_t unit = limits->hash_block_size == 0 ? 1 : limits->hash_block_size;
    uint32_t blocks = unit < PAGE_TOKENS ? PAGE_TOKENS / unit : 1;
    *store = (qr_text_store){.page_tokens = blocks * unit};
    if (limits->hash_block_size > 0) {
        store->page_hashes = blocks;
        store->digest_bytes = limits->digest_bytes;
    }
    store->max_pages = qr_text_pages_for(store, limits->max_model_len);
    uint64_t num_pages = limits->max_tokens / store->page_tokens + limits->max_requests +
                         (uint64_t)limits->max_full * store->max_pages;
    store->num_pages = num_pages < UINT32_MAX ? (uint32_t)num_pages : UINT32_MAX;
    size_t token_bytes = (size_t)store->page_tokens * sizeof *store->tokens;
    size_t hash_bytes = (size_t)store->page_hashes * store->digest_bytes;
    store->tokens = qr_arena_take(arena, store->num_pages, token_bytes);
    store->hashes = qr_arena_take(arena, store->num_pages, hash_bytes);
    store->is_fresh = arena->is_zero;
    store->free_pages = qr_arena_take(arena, store->num_pages, sizeof *store->free_pages);
    store->free_token_pages = qr_arena_take(arena, store->num_pages, sizeof *store->free_pages);
    uint32_t max_hashes = store->max_pages * store->page_hashes;
    store->row = qr_arena_take(arena, max_hashes, store->digest_bytes);
    store->all_row = qr_arena_take(arena, max_hashes, store->digest_bytes);
}

/* A place of the stack of free pages has the difference (XOR) to the page that is there at first:
 * so a new stack is all zero, and places of pages that are never used are never touched. */
static uint32_t first_page_at(const qr_text_store *store, uint32_t place)
{
    return store->num_pages - 1 - place;
}

static uint32_t take_page(const qr_text_store *store, const uint32_t *stack, uint32_t *num_free)
{
    uint32_t place = --*num_free;
    return stack[place] ^ first_page_at(store, place);
}

static void return_page(const qr_text_store *store, uint32_t *stack, uint32_t *num_free,
                        uint32_t page)
{
    uint32_t place = (*num_free)++;
    stack[place] = page ^ first_page_at(store, place);
}

/* Where a text has its page of tokens; QR_NIL stands there while all of them are hidden. */
static uint32_t *token_page(const qr_text_store *store, const qr_text *text, uint32_t page)
{
    return &text->pages[store->max_pages + page];
}

void qr_text_init(qr_text_store *store)
{
    size_t bytes = (size_t)store->num_pages * sizeof *store->free_pages;
    store->num_free = store->num_pages;
    store->num_free_tokens = store->num_pages;
    store->all_row_of = NULL;
    if (store->is_fresh)
        return;
    memset(store->free_pages, 0, bytes);
    memset(store->free_token_pages, 0, bytes);
}

bool qr_text_reserve(qr_text_store *store, qr_text *text, uint32_t num_tokens)
{
    uint32_t needed = qr_text_pages_for(store, num_tokens);
    if (needed <= text->num_pages)
        return true;
    if (needed > store->max_pages || needed - text->num_pages > store->num_free)
        return false;
    for (uint32_t page = text->num_pages; page < needed; page++) {
        bool is_hidden = page < text->num_hidden / store->page_tokens;
        text->pages[page] = take_page(store, store->free_pages, &store->num_free);
        *token_page(store, text, page) =
            is_hidden ? QR_NIL : take_page(store, store->free_token_pages, &store->num_free_tokens);
    }
    text->num_pages = needed;
    qr_text_cut(store, text, text->num_tokens);
    return true;
}

void qr_text_cut(const qr_text_store *store, qr_text *text, uint32_t num_tokens)
{
    uint32_t page = num_tokens / store->page_tokens;
    uint32_t at = num_tokens % store->page_tokens;
    text->num_tokens = num_tokens;
    text->tail = NULL;
    text->room = store->page_tokens - at;
    if (page < text->num_pages && *token_page(store, text, page) != QR_NIL)
        text->tail = qr_text_page_tokens(store, text, page) + at;
}

void qr_text_append(const qr_text_store *store, qr_text *text, const quire_token *tokens,
                    uint32_t n)
{
    while (n > 0) {
        uint32_t part = n < text->room ? n : text->room;
        qr_assert(text->tail != NULL);
        memcpy(text->tail, tokens, (size_t)part * sizeof *tokens);
        tokens += part;
        n -= part;
        qr_text_cut(store, text, text->num_tokens + part);
    }
}

void qr_text_trim(qr_text_store *store, qr_text *text)
{
    uint32_t needed = qr_text_pages_for(store, text->num_tokens);
    qr_text_hashes_change(store, text);
    while (text->num_pages > needed) {
        uint32_t page = --text->num_pages;
        uint32_t of_tokens = *token_page(store, text, page);
        return_page(store, store->free_pages, &store->num_free, text->pages[page]);
        if (of_tokens != QR_NIL)
            return_page(store, store->free_token_pages, &store->num_free_tokens, of_tokens);
    }
    qr_text_cut(store, text, text->num_tokens);
}

void qr_text_release(qr_text_store *store, qr_text *text)
{
    text->num_tokens = 0;
    text->num_hidden = 0;
    qr_text_trim(store, text);
}

void qr_text_show(qr_text_store *store, qr_text *text)
{
    for (uint32_t at = 0; at < text->num_hidden; at += store->page_tokens) {
        uint32_t rest = text->num_hidden - at;
        uint32_t part = rest < store->page_tokens ? rest : store->page_tokens;
        uint32_t *page = token_page(store, text, at / store->page_tokens);
        if (*page == QR_NIL)
            *page = take_page(store, store->free_token_pages, &store->num_free_tokens);
        memset(qr_text_page_tokens(store, text, at / store->page_tokens), 0,
               (size_t)part * sizeof *store->tokens);
    }
    text->num_hidden = 0;
}

void qr_text_copy(const qr_text_store *store, const qr_text *text, uint32_t first, uint32_t n,
                  quire_token *out)
{
    qr_assert(first + n <= text->num_tokens);
    uint32_t num_hidden = text->num_hidden > first ? text->num_hidden - first : 0;
    num_hidden = num_hidden < n ? num_hidden : n;
    if (n == 0)
        return; /* out may be NULL */
    memset(out, 0, (size_t)num_hidden * sizeof *out);
    out += num_hidden;
    first += num_hidden;
    n -= num_hidden;
    while (n > 0) {
        uint32_t at = first % store->page_tokens;
        uint32_t part = store->page_tokens - at < n ? store->page_tokens - at : n;
        const quire_token *page = qr_text_page_tokens(store, text, first / store->page_tokens);
        memcpy(out, page + at, (size_t)part * sizeof *out);
        out += part;
        first += part;
        n -= part;
    }
}

void qr_text_copy_all(qr_text_store *store, const qr_text *from, qr_text *to)
{
    uint32_t num_pages = qr_text_pages_for(store, from->num_tokens);
    qr_assert(to->num_tokens == 0 && num_pages <= to->num_pages &&
              to->num_hidden == from->num_hidden);
    qr_text_hashes_change(store, to);
    for (uint32_t page = 0; page < num_pages; page++) {
        if (*token_page(store, from, page) != QR_NIL)
            memcpy(qr_text_page_tokens(store, to, page), qr_text_page_tokens(store, from, page),
                   (size_t)store->page_tokens * sizeof *store->tokens);
        if (store->page_hashes > 0)
            memcpy(qr_text_hash(store, to, page * store->page_hashes),
                   qr_text_hash(store, from, page * store->page_hashes),
                   (size_t)store->page_hashes * store->digest_bytes);
    }
    qr_text_cut(store, to, from->num_tokens);
}

static void copy_hashes(const qr_text_store *store, const qr_text *text, uint32_t first,
                        uint32_t end, unsigned char *to)
{
    while (first < end) {
        uint32_t part = store->page_hashes - first % store->page_hashes;
        part = part < end - first ? part : end - first;
        memcpy(to, qr_text_hash(store, text, first), (size_t)part * store->digest_bytes);
        to += (size_t)part * store->digest_bytes;
        first += part;
    }
}

static bool are_in_one_page(const qr_text_store *store, uint32_t first, uint32_t end)
{
    return first < end && first / store->page_hashes == (end - 1) / store->page_hashes;
}

const unsigned char *qr_text_hash_row(const qr_text_store *store, const qr_text *text,
                                      uint32_t first, uint32_t end)
{
    if (are_in_one_page(store, first, end))
        return qr_text_hash(store, text, first);
    copy_hashes(store, text, first, end, store->row);
    return store->row;
}

const unsigned char *qr_text_all_hashes(qr_text_store *store, const qr_text *text, uint32_t end)
{
    if (are_in_one_page(store, 0, end))
        return qr_text_hash(store, text, 0);
    if (store->all_row_of != text->pages || store->all_row_end != end) {
        copy_hashes(store, text, 0, end, store->all_row);
        store->all_row_of = text->pages;
        store->all_row_end = end;
    }
    return store->all_row;
}

void qr_text_put_hashes(qr_text_store *store, const qr_text *text, uint32_t first, uint32_t n,
                        const unsigned char *hashes)
{
    qr_text_hashes_change(store, text);
    while (n > 0) {
        uint32_t part = store->page_hashes - first % store->page_hashes;
        part = part < n ? part : n;
        memcpy(qr_text_hash(store, text, first), hashes, (size_t)part * store->digest_bytes);
        hashes += (size_t)part * store->digest_bytes;
        first += part;
        n -= part;
    }
}
