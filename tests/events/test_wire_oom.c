/* events/test_wire_oom.c - memory that runs out: for every n, the n-th allocation fails. Writer and
 * reader say so and are as before, the index counts what it dropped, nothing is lost. (Linked so
 * that malloc and its kin come here.) */
#include "base/memory.h"
#include "base/unit.h"
#include "events/publish/feed_wire.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static uint64_t calls;
static uint64_t failing; /* this one; 0: none */
static size_t largest;   /* bytes that were asked for at once */

static bool may_go_on(void)
{
    return ++calls != failing;
}

void *__wrap_malloc(size_t size)
{
    largest = size > largest ? size : largest;
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

enum { NUM_EVENTS = 4, BLOCKS = 1500, LONG_EVENT = 40, LONG_BYTES = 48, SHORT_BYTES = 16 };
enum { ALL_BLOCKS = BLOCKS + LONG_EVENT + 1 }; /* of three workers */

static quire_block blocks[BLOCKS];
static unsigned char hashes[BLOCKS * LONG_BYTES];
static quire_token tokens[BLOCKS];

/* Long hashes have memory of their own in the index. */
static quire_feed_event make_stored(uint32_t num_blocks)
{
    uint32_t hash_bytes = num_blocks == LONG_EVENT ? LONG_BYTES : SHORT_BYTES;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        blocks[i] = i + 1;
        memcpy(hashes + (size_t)i * hash_bytes, &i, sizeof i);
    }
    return (quire_feed_event){.size = sizeof(quire_feed_event),
                              .kind = QUIRE_FEED_STORED,
                              .blocks = blocks,
                              .num_blocks = num_blocks,
                              .hashes = hashes,
                              .hash_bytes = hash_bytes,
                              .block_size = 1,
                              .medium = "GPU",
                              .tokens = tokens,
                              .num_tokens = num_blocks};
}

/* Adds an event; true when it went in. */
static bool add_event(qr_feed_wire *feed, quire_wire_writer *writer, uint32_t num_blocks)
{
    quire_feed_event event = make_stored(num_blocks);
    quire_wire_event wire = QUIRE_WIRE_EVENT_INIT;
    int status = qr_feed_wire_make(feed, &event, 0, event.num_blocks, &wire);
    if (status == QUIRE_OK)
        status = quire_wire_add(writer, &wire);
    assert_true(status == QUIRE_OK || status == QUIRE_E_NOMEM);
    return status == QUIRE_OK;
}

static uint64_t apply_all(quire_index *index, const quire_wire_reader *reader)
{
    uint64_t num_told = 0;
    const quire_wire_event *event;
    for (uint32_t i = 0; (event = quire_wire_get(reader, i)) != NULL; i++) {
        assert_int_equal(quire_index_apply(index, i % 3, event), QUIRE_OK);
        num_told += event->num_hashes;
    }
    return num_told;
}

/* What was dropped is counted, and comes in when it is told again: no record was lost. */
static void fill_index(quire_index *index, const quire_wire_reader *reader, uint32_t num_events)
{
    uint64_t before = calls;
    uint64_t num_told = apply_all(index, reader);
    const quire_index_stats *stats = quire_index_get_stats(index);
    assert_int_equal(stats->num_stored + stats->num_dropped, num_told);
    assert_int_equal(stats->num_dropped, failing > before && failing <= calls);
    apply_all(index, reader);
    if (num_events == NUM_EVENTS)
        assert_int_equal(quire_index_get_stats(index)->num_blocks, ALL_BLOCKS);
    assert_int_equal(quire_index_clear(index, 0), QUIRE_OK);
}

static void read_and_index(quire_bytes bytes, uint32_t num_events)
{
    quire_wire_reader *reader = NULL;
    quire_index *index = NULL;
    quire_wire_batch batch;
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    config.max_blocks = ALL_BLOCKS;
    int status = quire_wire_reader_create(&reader);
    if (status == QUIRE_OK)
        status = quire_wire_read(reader, bytes, &batch);
    if (status == QUIRE_OK)
        status = quire_index_create(&config, &index);
    assert_true(status == QUIRE_OK || status == QUIRE_E_NOMEM);
    if (status == QUIRE_OK) {
        assert_int_equal(batch.num_events, num_events);
        fill_index(index, reader, num_events);
    }
    quire_index_destroy(index);
    quire_wire_reader_destroy(reader);
}

/* Everything once; true when an allocation failed. */
static bool run(uint64_t n)
{
    static const uint32_t sizes[NUM_EVENTS] = {1, LONG_EVENT, 1, BLOCKS};
    quire_wire_writer *writer;
    qr_feed_wire feed;
    quire_bytes bytes;
    uint32_t num_events = 0;
    calls = 0;
    failing = n;
    int status = quire_wire_writer_create(NULL, &writer);
    if (status != QUIRE_OK)
        return true;
    feed = (qr_feed_wire){.hashes_as_bytes = true};
    status = quire_wire_begin(writer);
    for (size_t i = 0; status == QUIRE_OK && i < COUNT(sizes); i++)
        num_events += add_event(&feed, writer, sizes[i]);
    if (status == QUIRE_OK && quire_wire_end(writer, 1.5, 0, &bytes) == QUIRE_OK)
        read_and_index(bytes, num_events);
    qr_free(feed.memory);
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
    assert_true(n > LONG_EVENT);
    failing = 0;
}

#define BYTES_OF(text) ((quire_bytes){(text), sizeof(text) - 1})

/* What takes the most memory for its bytes: `one`, as often as fits behind `head`, then `tail`. */
static void read_many(quire_bytes head, size_t count_at, quire_bytes one, quire_bytes tail)
{
    enum { BYTES = 1 << 20 };
    static unsigned char bytes[BYTES];
    quire_wire_reader *reader;
    quire_wire_batch batch;
    uint32_t count = (uint32_t)((BYTES - head.len - tail.len) / one.len);
    size_t len = head.len;
    memcpy(bytes, head.data, head.len);
    for (size_t i = 0; i < 4; i++)
        bytes[count_at + i] = (unsigned char)(count >> (24 - 8 * i));
    for (uint32_t i = 0; i < count; i++, len += one.len)
        memcpy(bytes + len, one.data, one.len);
    memcpy(bytes + len, tail.data, tail.len);
    len += tail.len;
    assert_int_equal(quire_wire_reader_create(&reader), QUIRE_OK);
    largest = 0;
    assert_int_equal(quire_wire_read(reader, (quire_bytes){bytes, len}, &batch), QUIRE_OK);
    assert_true(largest > len && largest <= 48 * len);
    size_t most = largest;
    largest = 0;
    quire_bytes small = BYTES_OF("\x93\x00\x90\xc0");
    assert_int_equal(quire_wire_read(reader, small, &batch), QUIRE_OK);
    bool is_given_back = largest > 0; /* for memory of the size that is needed now */
    assert_int_equal(is_given_back, most > (size_t)16 << 20);
    quire_wire_reader_destroy(reader);
}

#define REMOVED                                                                                    \
    "\xac"                                                                                         \
    "BlockRemoved"
#define STORED                                                                                     \
    "\xab"                                                                                         \
    "BlockStored"

static void memory_is_in_proportion(void **state)
{
    (void)state;
    failing = 0;
    /* events of an unknown kind, and small ones of a known kind */
    read_many(BYTES_OF("\x93\x00\xdd...."), 3, BYTES_OF("\x91\xa0"), BYTES_OF("\xc0"));
    read_many(BYTES_OF("\x93\x00\xdd...."), 3, BYTES_OF("\x92" REMOVED "\x90"), BYTES_OF("\xc0"));
    /* hashes and tokens of one byte */
    read_many(BYTES_OF("\x93\x00\x91\x92" REMOVED "\xdd...."), 18, BYTES_OF("\x05"),
              BYTES_OF("\xc0"));
    read_many(BYTES_OF("\x93\x00\x91\x95" STORED "\x90\xc0\xdd...."), 19, BYTES_OF("\x05"),
              BYTES_OF("\x10\xc0"));
    /* extra keys of one byte, all of one hash */
    read_many(BYTES_OF("\x93\x00\x91\x99" STORED "\x91\x05\xc0\x90\x10\xc0\xc0\xc0\x91\xdd...."),
              26, BYTES_OF("\x05"), BYTES_OF("\xc0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail),
                                       cmocka_unit_test(memory_is_in_proportion)};
    return cmocka_run_group_tests_name("wire_oom", tests, NULL, NULL);
}
