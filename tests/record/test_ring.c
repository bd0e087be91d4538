/* record/test_ring.c - what one thread writes, the other reads, in order and whole. */
#include "record/ring.h"

#include "record_kit.h"

#include <pthread.h>
#include <quire/error.h>

enum { SIZE = 4096, LINES = 50000 };

typedef struct numbered {
    qr_line line;
    uint64_t number;
    uint64_t words[];
} numbered;

static void a_full_ring_says_so(void **state)
{
    qr_line_ring ring;
    (void)state;
    assert_int_equal(qr_line_ring_init(&ring, SIZE), QUIRE_OK);
    assert_null(qr_line_ring_peek(&ring));
    assert_null(qr_line_ring_reserve(&ring, SIZE / 2 + 8));
    uint32_t count = 0;
    for (qr_line *line; (line = qr_line_ring_reserve(&ring, 1000)) != NULL; count++) {
        line->kind = 1;
        qr_line_ring_commit(&ring);
    }
    assert_int_equal(count, 4);
    const qr_line *line = qr_line_ring_peek(&ring);
    assert_int_equal(line->bytes, 1000);
    qr_line_ring_pop(&ring, line);
    assert_null(qr_line_ring_reserve(&ring, 1008)); /* with a pad of 96 bytes: 8 bytes too many */
    assert_non_null(qr_line_ring_reserve(&ring, 1000));
    qr_line_ring_free(&ring);
}

static void *write_lines(void *user)
{
    qr_line_ring *ring = user;
    for (uint64_t i = 1; i <= LINES; i++) {
        uint64_t num_words = i * 7919 % 97;
        numbered *made = NULL;
        while (made == NULL)
            made = (numbered *)qr_line_ring_reserve(ring, sizeof *made + 8 * num_words);
        made->line.kind = 1;
        made->number = i;
        for (uint64_t k = 0; k < num_words; k++)
            made->words[k] = i ^ k;
        qr_line_ring_commit(ring);
    }
    return NULL;
}

static void two_threads_lose_nothing(void **state)
{
    qr_line_ring ring;
    pthread_t writer;
    (void)state;
    assert_int_equal(qr_line_ring_init(&ring, SIZE), QUIRE_OK);
    assert_int_equal(pthread_create(&writer, NULL, write_lines, &ring), 0);
    for (uint64_t i = 1; i <= LINES; i++) {
        const qr_line *line = NULL;
        while (line == NULL)
            line = qr_line_ring_peek(&ring);
        const numbered *read = (const numbered *)line;
        assert_int_equal(read->number, i);
        assert_int_equal(line->bytes, sizeof *read + 8 * (i * 7919 % 97));
        for (uint64_t k = 0; k < i * 7919 % 97; k++)
            assert_int_equal(read->words[k], i ^ k);
        qr_line_ring_pop(&ring, line);
    }
    assert_null(qr_line_ring_peek(&ring));
    assert_int_equal(pthread_join(writer, NULL), 0);
    qr_line_ring_free(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_full_ring_says_so),
                                       cmocka_unit_test(two_threads_lose_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
