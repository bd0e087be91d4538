/* Pages of tokens and hashes: rows that cross pages, pages that run out, blocks larger than a page.
 */
#include "base/unit.h"

#include "sched/requests/text.h"

typedef struct pages {
    qr_text_store store;
    void *memory;
    uint32_t tables[2][64];
    qr_text texts[2];
} pages;

static void open_pages(pages *p, const qr_text_limits *limits)
{
    memset(p, 0, sizeof *p);
    qr_arena plan = qr_arena_plan();
    qr_text_carve(&p->store, &plan, limits);
    p->memory = aligned_alloc(64, (plan.used + 63) / 64 * 64);
    assert_non_null(p->memory);
    qr_arena arena = qr_arena_carve(p->memory, plan.used);
    qr_text_carve(&p->store, &arena, limits);
    qr_text_init(&p->store);
    assert_true(qr_text_places(&p->store) <= COUNT(p->tables[0]));
    for (uint32_t i = 0; i < 2; i++)
        p->texts[i].pages = p->tables[i];
}

static const qr_text_limits small = {.max_model_len = 4096,
                                     .hash_block_size = 256,
                                     .digest_bytes = 16,
                                     .max_tokens = 1024,
                                     .max_requests = 1,
                                     .max_full = 1};

#ifndef QUIRE_HOSTILE
static void rows_cross_pages(void **state)
{
    (void)state;
    pages p;
    open_pages(&p, &small);
    qr_text *text = &p.texts[0];
    assert_int_equal(p.store.page_hashes, 4);
    assert_true(qr_text_reserve(&p.store, text, 3000));
    assert_int_equal(text->num_pages, 3);
    unsigned char hashes[11][16];
    for (uint32_t i = 0; i < 11; i++)
        memset(hashes[i], (int)i + 1, sizeof hashes[i]);
    qr_text_put_hashes(&p.store, text, 0, 11, hashes[0]);
    const uint32_t ranges[][2] = {{0, 4}, {0, 11}, {3, 5}, {3, 9}, {5, 7}, {8, 11}, {10, 11}};
    for (uint32_t i = 0; i < COUNT(ranges); i++) {
        uint32_t n = ranges[i][1] - ranges[i][0];
        const unsigned char *row = qr_text_hash_row(&p.store, text, ranges[i][0], ranges[i][1]);
        assert_memory_equal(row, hashes[ranges[i][0]], (size_t)n * 16);
    }
    assert_non_null(qr_text_hash_row(&p.store, text, 7, 7));
    free(p.memory);
}
#endif

static void tokens_cross_pages(void **state)
{
    (void)state;
    pages p;
    open_pages(&p, &small);
    qr_text *text = &p.texts[0];
    quire_token tokens[3000];
    quire_token copied[3000];
    for (uint32_t i = 0; i < 3000; i++)
        tokens[i] = (quire_token)(i * 7);
    assert_true(qr_text_reserve(&p.store, text, 3000));
    qr_text_append(&p.store, text, tokens, 2000);
    for (uint32_t i = 2000; i < 3000; i++) /* over the end of the second page */
        qr_text_append_one(&p.store, text, tokens[i]);
    qr_text_copy(&p.store, text, 0, 3000, copied);
    assert_memory_equal(copied, tokens, sizeof tokens);
    qr_text_copy(&p.store, text, 1000, 100, copied);
    assert_memory_equal(copied, tokens + 1000, 100 * sizeof *tokens);
    assert_int_equal(qr_text_token(&p.store, text, 2048), tokens[2048]);
    qr_text_cut(&p.store, text, 1024); /* and on from there */
    qr_text_append_one(&p.store, text, -5);
    assert_int_equal(qr_text_token(&p.store, text, 1024), -5);
    assert_int_equal(text->num_tokens, 1025);
    free(p.memory);
}

#ifndef QUIRE_HOSTILE
static void pages_run_out(void **state)
{
    (void)state;
    pages p;
    open_pages(&p, &small); /* six pages, four for one request */
    assert_int_equal(p.store.num_pages, 6);
    assert_false(qr_text_reserve(&p.store, &p.texts[0], 4097));
    assert_int_equal(p.texts[0].num_pages, 0);
    assert_true(qr_text_reserve(&p.store, &p.texts[0], 4096));
    assert_true(qr_text_reserve(&p.store, &p.texts[0], 5)); /* it has them */
    assert_int_equal(p.texts[0].num_pages, 4);
    assert_false(qr_text_reserve(&p.store, &p.texts[1], 2049));
    assert_int_equal(p.texts[1].num_pages, 0);
    assert_true(qr_text_reserve(&p.store, &p.texts[1], 2048));
    assert_int_equal(p.store.num_free, 0);
    quire_token token = 1;
    for (uint32_t i = 0; i < 2048; i++)
        qr_text_append(&p.store, &p.texts[1], &token, 1);
    assert_null(p.texts[1].tail); /* full to the last token */
    qr_text_release(&p.store, &p.texts[0]);
    qr_text_release(&p.store, &p.texts[1]);
    assert_int_equal(p.store.num_free, 6);
    free(p.memory);
}
#endif

static void block_larger_than_a_page(void **state)
{
    (void)state;
    qr_text_limits limits = small;
    limits.hash_block_size = 2048;
    pages p;
    open_pages(&p, &limits);
    assert_int_equal(p.store.page_tokens, 2048);
    assert_int_equal(p.store.page_hashes, 1);
    free(p.memory);
}

/* More pages than 32 bits can name are not asked for. */
static void pages_have_a_limit(void **state)
{
    (void)state;
    qr_text_limits limits = small;
    limits.max_tokens = UINT64_C(1) << 50;
    qr_text_store store;
    qr_arena plan = qr_arena_plan();
    qr_text_carve(&store, &plan, &limits);
    assert_int_equal(store.num_pages, UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifndef QUIRE_HOSTILE /* the numbers are for pages of 1,024 tokens */
        cmocka_unit_test(rows_cross_pages),   cmocka_unit_test(pages_run_out),
#endif
        cmocka_unit_test(tokens_cross_pages), cmocka_unit_test(block_larger_than_a_page),
        cmocka_unit_test(pages_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
