/* events/test_wire_oom.c - memory that runs out: for every n, the n-th allocation fails. Writer and
 * reader say so and are as before, the index counts what it dropped, nothing is lost. (Linked so
 * that malloc and its kin come here.) */
#include "base/unit.h"
#include "events/feed_wire.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static uint64_t calls;
static uint64_t failing; /* this one; 0: none */

static bool may_go_on(void)
{
    return ++calls != failing;
}

void *__wrap_malloc(size_t size)
{
    return may_go_on() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_go_on() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_go_on() ? __real_realloc(memory, size) : NULL;
}

enum { BLOCKS = 1500, HASH_BYTES = 48 };

static quire_block blocks[BLOCKS];
static unsigned char hashes[BLOCKS * HASH_BYTES];
static quire_token tokens[BLOCKS];

static quire_feed_event make_stored(uint32_t num_blocks)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        blocks[i] = i + 1;
        memcpy(hashes + (size_t)i * HASH_BYTES, &i, sizeof i);
    }
    return (quire_feed_event){.kind = QUIRE_FEED_STORED,
                              .blocks = blocks,
                              .num_blocks = num_blocks,
                              .hashes = hashes,
                              .hash_bytes = HASH_BYTES,
                              .block_size = 1,
                              .tokens = tokens,
                              .num_tokens = num_blocks};
}

/* Adds an event; true when it went in. */
static bool add_event(qr_feed_wire *feed, quire_wire_writer *writer, uint32_t num_blocks)
{
    quire_feed_event event = make_stored(num_blocks);
    quire_wire_event wire;
    int status = qr_feed_wire_make(feed, &event, &wire);
    if (status == QUIRE_OK)
        status = quire_wire_add(writer, &wire);
    assert_true(status == QUIRE_OK || status == QUIRE_E_NOMEM);
    return status == QUIRE_OK;
}

static void read_and_index(quire_bytes bytes, uint32_t num_events)
{
    quire_wire_reader *reader = NULL;
    quire_index *index = NULL;
    quire_wire_batch batch;
    int status = quire_wire_reader_create(&reader);
    if (status == QUIRE_OK)
        status = quire_wire_read(reader, bytes, &batch);
    if (status == QUIRE_OK)
        status = quire_index_create(NULL, &index);
    assert_true(status == QUIRE_OK || status == QUIRE_E_NOMEM);
    if (status == QUIRE_OK) {
        uint64_t num_told = 0;
        uint64_t before = calls;
        assert_int_equal(batch.num_events, num_events);
        for (uint32_t i = 0; i < num_events; i++) {
            const quire_wire_event *event = quire_wire_get(reader, i);
            assert_int_equal(quire_index_apply(index, i % 3, event), QUIRE_OK);
            num_told += event->num_hashes;
        }
        quire_index_stats stats = quire_index_get_stats(index);
        assert_int_equal(stats.num_stored + stats.num_dropped, num_told);
        assert_int_equal(stats.num_dropped, failing > before && failing <= calls);
        assert_int_equal(quire_index_clear(index, 0), QUIRE_OK);
    }
    quire_index_destroy(index);
    quire_wire_reader_destroy(reader);
}

/* Everything once; true when an allocation failed. */
static bool run(uint64_t n)
{
    static const uint32_t sizes[] = {1, 40, 1, BLOCKS};
    quire_wire_writer *writer;
    qr_feed_wire feed;
    quire_bytes bytes;
    uint32_t num_events = 0;
    calls = 0;
    failing = n;
    int status = quire_wire_writer_create(NULL, &writer);
    if (status != QUIRE_OK)
        return true;
    qr_feed_wire_init(&feed, true);
    status = quire_wire_begin(writer);
    for (size_t i = 0; status == QUIRE_OK && i < COUNT(sizes); i++)
        num_events += add_event(&feed, writer, sizes[i]);
    if (status == QUIRE_OK && quire_wire_end(writer, 1.5, 0, &bytes) == QUIRE_OK)
        read_and_index(bytes, num_events);
    qr_feed_wire_free(&feed);
    quire_wire_writer_destroy(writer);
    return n > 0 && calls >= n;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_false(run(0));
    do {
        n++;
    } while (run(n));
    printf("%llu allocations, each failed once\n", (unsigned long long)n - 1);
    assert_true(n > BLOCKS / 2); /* long hashes have memory of their own */
    failing = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("wire_oom", tests, NULL, NULL);
}
