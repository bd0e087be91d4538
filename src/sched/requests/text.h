/* sched/requests/text.h - the tokens and hashes of requests, in pages of one arena.
 *
 *      request   pages of hashes   [ 4 ][ 9 ][ 2 ]      of the blocks that page_tokens tokens fill
 *                pages of tokens   [ - ][ 1 ][ 0 ]      page_tokens tokens
 *
 *      page 9 of hashes  | H64 H65 H66 ... |
 *      page 1 of tokens  | t t t t . . ... |
 *                                ^ next token goes here
 *
 * The first tokens of a text may be hidden (num_hidden): they are zeros for all that read them, and
 * where a page would have no other tokens there is none.
 *
 * Requests grow by taking pages, so nothing is ever moved, and a request that waits costs what its
 * prompt needs and no more. Hashes are asked for as one row: where they lie in several pages they
 * are copied to `row`, which the next such question overwrites; all hashes of a request to
 * `all_row`, where they stay, since one that waits is looked up again in every step.
 *
 *      pages of hashes in use + num_free = num_pages;  num_free <= num_free_tokens
 *      a request's tokens [num_hidden, num_tokens) are in its pages
 */
#ifndef QR_SCHED_REQUESTS_TEXT_H
#define QR_SCHED_REQUESTS_TEXT_H

#include "base/arena.h"
#include "base/assert.h"

#include <quire/config.h>

typedef struct qr_text_store {
    quire_token *tokens;   /* page_tokens of each page */
    unsigned char *hashes; /* page_hashes of each page */
    uint32_t *free_pages;  /* of hashes, and of tokens: stacks, see text.c */
    uint32_t *free_token_pages;
    bool is_fresh; /* when it was made, the stacks were all zero */
    unsigned char *row;
    uint32_t num_free;        /* free_pages, */
    uint32_t num_free_tokens; /* free_token_pages */
    uint32_t num_pages;
    uint32_t page_tokens;
    uint32_t page_hashes;
    uint32_t digest_bytes; /* 0: no hashes */
    uint32_t max_pages;    /* of one request */
    unsigned char *all_row;
    const uint32_t
        *all_row_of;      /* the pages of the request whose hashes are there; NULL: nobody's */
    uint32_t all_row_end; /* how many */
} qr_text_store;

typedef struct qr_text {
    uint32_t *pages;   /* max_pages places for pages of hashes, and then as many for tokens */
    quire_token *tail; /* where the next token goes; NULL: no page for it */
    uint32_t num_pages;
    uint32_t num_tokens;
    uint32_t room; /* tokens that fit in the tail's page */
    uint32_t num_hidden;
} qr_text;

typedef struct qr_text_limits {
    uint32_t max_model_len;
    uint32_t hash_block_size; /* 0: no hashes */
    uint32_t digest_bytes;
    uint64_t max_tokens;   /* of all requests, beside */
    uint32_t max_requests; /* a page for each, and */
    uint32_t max_full;     /* all pages for so many */
} qr_text_limits;

void qr_text_carve(qr_text_store *store, qr_arena *arena, const qr_text_limits *limits);
void qr_text_init(qr_text_store *store);

static inline uint32_t qr_text_pages_for(const qr_text_store *store, uint32_t num_tokens)
{
    return num_tokens / store->page_tokens + (num_tokens % store->page_tokens != 0);
}

/* Places for pages that a text needs. */
static inline size_t qr_text_places(const qr_text_store *store)
{
    return 2 * (size_t)store->max_pages;
}

/* Takes pages for num_tokens tokens in all; false, and no change, when there are not enough. */
bool qr_text_reserve(qr_text_store *store, qr_text *text, uint32_t num_tokens);
/* Appends; the room was reserved. */
void qr_text_append(const qr_text_store *store, qr_text *text, const quire_token *tokens,
                    uint32_t n);
/* Gives back the pages that its tokens do not need. */
void qr_text_trim(qr_text_store *store, qr_text *text);
/* Forgets the tokens from num_tokens on; pages stay. */
void qr_text_cut(const qr_text_store *store, qr_text *text, uint32_t num_tokens);
void qr_text_release(qr_text_store *store, qr_text *text);
/* The first n tokens of a text that has no pages yet will be hidden. */
static inline void qr_text_hide(qr_text *text, uint32_t n)
{
    qr_assert(text->num_pages == 0);
    text->num_hidden = n;
}
/* No token is hidden any more, and zeros are in the pages: to be read in place. */
void qr_text_show(qr_text_store *store, qr_text *text);

static inline void qr_text_append_one(const qr_text_store *store, qr_text *text, quire_token token)
{
    qr_assert(text->tail != NULL);
    *text->tail++ = token;
    text->num_tokens++;
    if (QR_UNLIKELY(--text->room == 0))
        qr_text_cut(store, text, text->num_tokens); /* on to the next page */
}

static inline quire_token *qr_text_page_tokens(const qr_text_store *store, const qr_text *text,
                                               uint32_t page)
{
    return store->tokens + (size_t)text->pages[store->max_pages + page] * store->page_tokens;
}

static inline quire_token qr_text_token(const qr_text_store *store, const qr_text *text, uint32_t i)
{
    return i < text->num_hidden
               ? 0
               : qr_text_page_tokens(store, text, i / store->page_tokens)[i % store->page_tokens];
}

void qr_text_copy(const qr_text_store *store, const qr_text *text, uint32_t first, uint32_t n,
                  quire_token *out);
/* All tokens and hashes of `from`, into pages of `to` that are empty; both hide the same. */
void qr_text_copy_all(qr_text_store *store, const qr_text *from, qr_text *to);

/* Where hash i lies. */
static inline unsigned char *qr_text_hash(const qr_text_store *store, const qr_text *text,
                                          uint32_t i)
{
    size_t page = text->pages[i / store->page_hashes];
    return store->hashes +
           (page * store->page_hashes + i % store->page_hashes) * store->digest_bytes;
}

/* Hashes [first, end) one after the other, valid until the next call. */
const unsigned char *qr_text_hash_row(const qr_text_store *store, const qr_text *text,
                                      uint32_t first, uint32_t end);
/* Hashes [0, end), valid until the next call. */
const unsigned char *qr_text_all_hashes(qr_text_store *store, const qr_text *text, uint32_t end);
/* A hash of the request is written, or all are gone. */
static inline void qr_text_hashes_change(qr_text_store *store, const qr_text *text)
{
    if (store->all_row_of == text->pages)
        store->all_row_of = NULL;
}

/* Puts n hashes at places from first on. */
void qr_text_put_hashes(qr_text_store *store, const qr_text *text, uint32_t first, uint32_t n,
                        const unsigned char *hashes);

#endif
