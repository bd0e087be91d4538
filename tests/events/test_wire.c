/* events/test_wire.c - events to bytes and back: what vLLM's own encoder made of the same, and what
 * nobody's encoder makes. */
#include "events/wire_kit.h"

#include <math.h>

static const char recorded_0_20[] = QUIRE_EVENTS_DATA "/wire.txt";
static const char recorded_0_32[] = QUIRE_EVENTS_DATA "/0.32/wire.txt";
enum { MAX_EVENTS = 32 };

typedef struct wire_pair {
    quire_wire_writer *writers[2]; /* arrays, maps */
    quire_wire_reader *reader;
} wire_pair;

static wire_pair open_pair(void)
{
    wire_pair pair;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    assert_int_equal(quire_wire_writer_create(NULL, &pair.writers[0]), QUIRE_OK);
    options.as_maps = 1;
    assert_int_equal(quire_wire_writer_create(&options, &pair.writers[1]), QUIRE_OK);
    assert_int_equal(quire_wire_reader_create(&pair.reader), QUIRE_OK);
    return pair;
}

static void close_pair(wire_pair *pair)
{
    quire_wire_writer_destroy(pair->writers[0]);
    quire_wire_writer_destroy(pair->writers[1]);
    quire_wire_reader_destroy(pair->reader);
}

/* ---- what was recorded ----------------------------------------------------- */

/* The batch as bytes of one form, and read back from a copy whose end is the end of memory. */
static void check_form(wire_pair *pair, uint32_t form, const kit_event *events, uint32_t num_events,
                       double time, int64_t rank, const char *expected)
{
    quire_bytes bytes;
    quire_wire_batch batch;
    quire_wire_writer *writer = pair->writers[form];
    assert_int_equal(quire_wire_begin(writer), QUIRE_OK);
    for (uint32_t i = 0; i < num_events; i++)
        assert_int_equal(quire_wire_add(writer, &events[i].event), QUIRE_OK);
    assert_int_equal(quire_wire_end(writer, time, rank, &bytes), QUIRE_OK);
    kit_expect_bytes(bytes, expected);
    void *copy = malloc(bytes.len);
    assert_non_null(copy);
    memcpy(copy, bytes.data, bytes.len);
    assert_int_equal(quire_wire_read(pair->reader, (quire_bytes){copy, bytes.len}, &batch),
                     QUIRE_OK);
    memset(copy, 0x5a, bytes.len);
    free(copy);
    assert_memory_equal(&batch.time, &time, sizeof time);
    assert_int_equal(batch.num_events, num_events);
    assert_int_equal(batch.has_rank, rank >= 0);
    assert_int_equal(batch.rank, rank >= 0 ? rank : 0);
    for (uint32_t i = 0; i < num_events; i++)
        kit_expect_same(&events[i].event, quire_wire_get(pair->reader, i));
    assert_null(quire_wire_get(pair->reader, num_events));
    kit_expect_bytes(kit_rewrite(writer, pair->reader, &batch), expected);
}

static uint32_t check_line(wire_pair *pair, char *line)
{
    static kit_event events[MAX_EVENTS];
    uint32_t num_events = 0;
    uint64_t bits = strtoull(strsep(&line, " "), NULL, 16);
    double time;
    memcpy(&time, &bits, sizeof time);
    const char *rank_word = strsep(&line, " ");
    int64_t rank = rank_word[0] == '-' ? -1 : strtoll(rank_word, NULL, 10);
    for (char *word = strsep(&line, " "); strcmp(word, "=") != 0; word = strsep(&line, " ")) {
        assert_true(num_events < MAX_EVENTS);
        kit_parse(&events[num_events++], word);
    }
    for (uint32_t form = 0; form < 2; form++) {
        const char *expected = strsep(&line, " \n");
        if (strcmp(expected, "-") != 0) /* a release that does not write this form */
            check_form(pair, form, events, num_events, time, rank, expected);
    }
    for (uint32_t i = 0; i < num_events; i++)
        kit_free(&events[i]);
    return num_events;
}

static void check_recording(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    wire_pair pair = open_pair();
    char *line = NULL;
    size_t capacity = 0;
    uint32_t num_lines = 0;
    uint32_t num_events = 0;
    uint32_t promised_lines;
    uint32_t promised_events;
    assert_true(getline(&line, &capacity, file) > 0);
    assert_int_equal(sscanf(line, "quire-wire 1 %u %u", &promised_lines, &promised_events), 2);
    while (getline(&line, &capacity, file) > 0) {
        num_events += check_line(&pair, line);
        num_lines++;
    }
    printf("%s: %u batches, %u events\n", path, num_lines, num_events);
    assert_int_equal(num_lines, promised_lines);
    assert_int_equal(num_events, promised_events);
    free(line);
    fclose(file);
    close_pair(&pair);
}

static void bytes_are_those_of_vllm_0_20(void **state)
{
    (void)state;
    check_recording(recorded_0_20);
}

static void bytes_are_those_of_vllm_0_32(void **state)
{
    (void)state;
    check_recording(recorded_0_32);
}

/* The array form of vLLM 0.20.0 has no place for them. */
static void later_fields_are_not_in_arrays(void **state)
{
    (void)state;
    wire_pair pair = open_pair();
    static const quire_wire_kind KINDS[] = {QUIRE_WIRE_STORED, QUIRE_WIRE_REMOVED};
    for (size_t i = 0; i < COUNT(KINDS); i++) {
        quire_bytes plain;
        quire_bytes more;
        unsigned char copy[64];
        quire_wire_event e = QUIRE_WIRE_EVENT_INIT;
        e.kind = KINDS[i];
        assert_int_equal(quire_wire_begin(pair.writers[0]), QUIRE_OK);
        assert_int_equal(quire_wire_add(pair.writers[0], &e), QUIRE_OK);
        assert_int_equal(quire_wire_end(pair.writers[0], 1, -1, &plain), QUIRE_OK);
        assert_true(plain.len <= sizeof copy);
        memcpy(copy, plain.data, plain.len);
        e.spec_kind = e.locality = e.ownership = e.session_id = (quire_bytes){"text", 4};
        e.has_sliding_window = 1;
        e.sliding_window = 128;
        assert_int_equal(quire_wire_begin(pair.writers[0]), QUIRE_OK);
        assert_int_equal(quire_wire_add(pair.writers[0], &e), QUIRE_OK);
        assert_int_equal(quire_wire_end(pair.writers[0], 1, -1, &more), QUIRE_OK);
        assert_int_equal(more.len, plain.len);
        assert_memory_equal(more.data, copy, more.len);
    }
    close_pair(&pair);
}

/* ---- what others may write ------------------------------------------------- */

static int read_hex(quire_wire_reader *reader, const char *hex, quire_wire_batch *batch)
{
    size_t len = strlen(hex) / 2;
    unsigned char *bytes = malloc(len + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        const char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    int status = quire_wire_read(reader, (quire_bytes){bytes, len}, batch);
    free(bytes);
    return status;
}

#define CLEARED_TAG "b0416c6c426c6f636b73436c6561726564"
#define REMOVED_TAG "ac426c6f636b52656d6f766564"
#define STORED_TAG  "ab426c6f636b53746f726564"
#define TYPE_KEY    "a474797065"
#define HASHES_KEY  "ac626c6f636b5f686173686573"

static void other_forms_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *hex;
        quire_wire_kind kind; /* of the first event; 0: there is none */
    } cases[] = {
        {"920190", 0},                   /* time as a number, no rank */
        {"94ca3fc0000090c0a3787878", 0}, /* float32, a further field */
        {"9300"
         "91"
         "91" CLEARED_TAG "c0",
         QUIRE_WIRE_CLEARED}, /* array */
        {"9300"
         "91"
         "92" CLEARED_TAG "05c0",
         QUIRE_WIRE_CLEARED}, /* a field more */
        {"9300"
         "91"
         "81" TYPE_KEY CLEARED_TAG "c0",
         QUIRE_WIRE_CLEARED},
        {"9300"
         "91"
         "92a14e05c0",
         QUIRE_WIRE_OTHER}, /* a kind of its own */
        {"9300"
         "91"
         "91a0c0",
         QUIRE_WIRE_OTHER},
        {"9300"
         "91"
         "82" TYPE_KEY "a14e"
         "a178"
         "8101c0"
         "c0",
         QUIRE_WIRE_OTHER},
        {"9300"
         "91"
         "92" REMOVED_TAG "9105c0",
         QUIRE_WIRE_REMOVED}, /* nothing but hashes */
        {"9300"
         "91"
         "95" REMOVED_TAG "9105c0c0d40102c0",
         QUIRE_WIRE_REMOVED}, /* one more */
        {"9300"
         "91"
         "82" HASHES_KEY "9105" TYPE_KEY REMOVED_TAG "c0",
         QUIRE_WIRE_REMOVED},
        {"9300"
         "91"
         "83" TYPE_KEY REMOVED_TAG "05"
         "06" HASHES_KEY "91ffc0",
         QUIRE_WIRE_REMOVED},
        {"9300"
         "91"
         "95" STORED_TAG "91c40101c09010c0",
         QUIRE_WIRE_STORED}, /* four fields */
    };
    wire_pair pair = open_pair();
    for (size_t i = 0; i < COUNT(cases); i++) {
        quire_wire_batch batch;
        assert_int_equal(read_hex(pair.reader, cases[i].hex, &batch), QUIRE_OK);
        assert_int_equal(batch.num_events, cases[i].kind != 0);
        if (cases[i].kind != 0)
            assert_int_equal(quire_wire_get(pair.reader, 0)->kind, cases[i].kind);
    }
    close_pair(&pair);
}

/* Extra keys of shapes that this library does not know go through as they are. */
static void raw_keys_survive(void **state)
{
    (void)state;
    static const char hex[] = "93cb0000000000000000"
                              "91"
                              "9a" STORED_TAG "9105"
                              "c0"
                              "90"
                              "10"
                              "c0"
                              "c0"
                              "c0"
                              "91"
                              "96"
                              "cb3ff8000000000000"
                              "c2"
                              "8101c0"
                              "90"
                              "92a16192a16205"
                              "cfffffffffffffffff"
                              "00"
                              "c0";
    wire_pair pair = open_pair();
    quire_wire_batch batch;
    assert_int_equal(read_hex(pair.reader, hex, &batch), QUIRE_OK);
    const quire_wire_event *e = quire_wire_get(pair.reader, 0);
    assert_int_equal(e->key_start[1], 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(e->keys[i].kind, QUIRE_WIRE_RAW);
    kit_expect_bytes(kit_rewrite(pair.writers[0], pair.reader, &batch), hex);
    close_pair(&pair);
}

static const char *const nonsense[] = {
    "",
    "90",
    "9100",
    "c0",
    "00",
    "93",
    "9300",
    "930090",     /* too short */
    "930090c000", /* something behind it */
    "93a16190c0", /* time is text */
    "930000c0",
    "9300c0c0", /* events are no list */
    "930090a161",
    "9300900b9000", /* rank is text */
    "dd0000000300",
    "ddffffffff00",
    "9300ddffffffffc0", /* more than there are bytes */
    "9300"
    "91"
    "90c0",
    "9300"
    "91"
    "80c0",
    "9300"
    "91"
    "c0c0", /* no tag */
    "9300"
    "91"
    "9105c0",
    "9300"
    "91"
    "8105"
    "06c0",
    "9300"
    "91"
    "91a1ffc0", /* no UTF-8 */
    "9300"
    "91"
    "91a3eda080c0",
    "9300"
    "91"
    "91a2c080c0",
    "9300"
    "91"
    "81" TYPE_KEY "05c0", /* the tag is a number */
    "9300"
    "91"
    "91" REMOVED_TAG "c0", /* without hashes */
    "9300"
    "91"
    "92" REMOVED_TAG "91a161c0", /* hashes of a wrong kind */
    "9300"
    "91"
    "92" REMOVED_TAG "05c0",
    "9300"
    "91"
    "92" REMOVED_TAG "ddffffffff05c0",
    "9300"
    "91"
    "93" REMOVED_TAG "90"
    "05c0", /* medium is a number */
    "9300"
    "91"
    "94" REMOVED_TAG "90"
    "c0"
    "ffc0", /* group below zero */
    "9300"
    "91"
    "94" REMOVED_TAG "90"
    "c0"
    "cf0000000100000000c0",
    "9300"
    "91"
    "81" TYPE_KEY REMOVED_TAG "c0",
    "9300"
    "91"
    "94" STORED_TAG "90c090c0", /* without a block size */
    "9300"
    "91"
    "95" STORED_TAG "90c090ffc0",
    "9300"
    "91"
    "95" STORED_TAG "90c091cfffffffffffffffff10c0", /* a token beyond int64 */
    "9300"
    "91"
    "95" STORED_TAG "90c091c010c0",
    "9300"
    "91"
    "99" STORED_TAG "9105c09010c0c0c090c0", /* keys for other hashes */
    "9300"
    "91"
    "99" STORED_TAG "9105c09010c0c0c09105c0",
    "9300"
    "91"
    "99" STORED_TAG "9105c09010c0c0c005c0",
    "9300"
    "91"
    "91c1c0",
    "9300"
    "91"
    "c1c0",
    "c1", /* a byte that nothing is */
    "9300"
    "91"
    "92a14ec6ffffffffc0",
    "9300"
    "91"
    "92a14edfffffffffc0",
};

static void nonsense_is_corrupt(void **state)
{
    (void)state;
    wire_pair pair = open_pair();
    quire_wire_batch batch;
    assert_int_equal(read_hex(pair.reader,
                              "9300"
                              "91"
                              "91" CLEARED_TAG "c0",
                              &batch),
                     QUIRE_OK);
    for (size_t i = 0; i < COUNT(nonsense); i++) {
        int status = read_hex(pair.reader, nonsense[i], &batch);
        if (status != QUIRE_E_CORRUPT)
            print_error("case %zu: %s\n", i, nonsense[i]);
        assert_int_equal(status, QUIRE_E_CORRUPT);
    }
    assert_int_equal(quire_wire_get(pair.reader, 0)->kind, QUIRE_WIRE_CLEARED); /* still there */
    close_pair(&pair);
}

/* Many levels deep, in a place that is passed over: nothing recurses. */
static void depth_is_no_danger(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    static unsigned char bytes[8 + DEPTH];
    static const unsigned char head[] = {0x93, 0x00, 0x91, 0x92, 0xa1, 'N'};
    wire_pair pair = open_pair();
    quire_wire_batch batch;
    memcpy(bytes, head, sizeof head);
    memset(bytes + sizeof head, 0x91, DEPTH);
    bytes[sizeof head + DEPTH] = 0xc0;
    bytes[sizeof head + DEPTH + 1] = 0x00;
    assert_int_equal(quire_wire_read(pair.reader, (quire_bytes){bytes, sizeof bytes}, &batch),
                     QUIRE_OK);
    assert_int_equal(quire_wire_get(pair.reader, 0)->kind, QUIRE_WIRE_OTHER);
    assert_int_equal(batch.has_rank, 1);
    close_pair(&pair);
}

/* ---- refusals -------------------------------------------------------------- */

static void writer_refuses(void **state)
{
    (void)state;
    quire_wire_writer *w = NULL;
    quire_bytes bytes;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    quire_wire_event e = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    assert_int_equal(quire_wire_writer_create(NULL, NULL), QUIRE_E_ARGUMENT);
    options.max_bytes = 63;
    assert_int_equal(quire_wire_writer_create(&options, &w), QUIRE_E_CONFIG);
    options.size = 3;
    assert_int_equal(quire_wire_writer_create(&options, &w), QUIRE_E_CONFIG);
    assert_int_equal(quire_wire_writer_create(NULL, &w), QUIRE_OK);
    assert_int_equal(quire_wire_add(w, &e), QUIRE_E_ARGUMENT); /* not begun */
    assert_int_equal(quire_wire_end(w, 0, 0, &bytes), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_wire_begin(w), QUIRE_OK);
    e.kind = QUIRE_WIRE_OTHER;
    assert_int_equal(quire_wire_add(w, &e), QUIRE_E_ARGUMENT);
    e = (quire_wire_event){
        .size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_REMOVED, .medium = {"\xff", 1}};
    assert_int_equal(quire_wire_add(w, &e), QUIRE_E_ARGUMENT);
    e = (quire_wire_event){
        .size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_REMOVED, .num_hashes = 1};
    assert_int_equal(quire_wire_add(w, &e), QUIRE_E_ARGUMENT);
    static const quire_wire_hash hash = {.number = 5};
    static const uint32_t starts[2] = {0, 1};
    static const quire_wire_key bad[] = {{.kind = QUIRE_WIRE_RAW, .value = {"\x91", 1}},
                                         {.kind = QUIRE_WIRE_RAW, .value = {"\x01\x02", 2}},
                                         {.kind = QUIRE_WIRE_RAW},
                                         {.kind = QUIRE_WIRE_TEXT, .value = {"\xc0", 1}},
                                         {.kind = (quire_wire_key_kind)9}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        e = (quire_wire_event){.size = sizeof(quire_wire_event),
                               .kind = QUIRE_WIRE_STORED,
                               .hashes = &hash,
                               .num_hashes = 1,
                               .key_start = starts,
                               .keys = &bad[i]};
        assert_int_equal(quire_wire_add(w, &e), QUIRE_E_ARGUMENT);
    }
    assert_int_equal(quire_wire_end(w, 0, -1, &bytes), QUIRE_OK); /* and nothing of it was left */
    kit_expect_bytes(bytes, "93cb000000000000000090c0");
    quire_wire_writer_destroy(w);
    quire_wire_writer_destroy(NULL);
    quire_wire_reader_destroy(NULL);
}

static void batches_are_bounded(void **state)
{
    (void)state;
    enum { LIMIT = 200 };
    quire_wire_writer *w;
    quire_bytes bytes;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    quire_wire_event e = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    uint32_t num_events = 0;
    options.max_bytes = LIMIT;
    assert_int_equal(quire_wire_writer_create(&options, &w), QUIRE_OK);
    assert_int_equal(quire_wire_begin(w), QUIRE_OK);
    while (quire_wire_add(w, &e) == QUIRE_OK)
        num_events++;
    assert_int_equal(quire_wire_add(w, &e), QUIRE_FULL);
    assert_in_range(num_events, LIMIT / 18 - 2, LIMIT / 18);
    assert_int_equal(quire_wire_end(w, 0, -1, &bytes), QUIRE_OK);
    assert_in_range(bytes.len, num_events * 18, LIMIT);
    assert_int_equal(((const unsigned char *)bytes.data)[10], 0x90 + num_events);
    quire_wire_writer_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_are_those_of_vllm_0_20),
                                       cmocka_unit_test(bytes_are_those_of_vllm_0_32),
                                       cmocka_unit_test(later_fields_are_not_in_arrays),
                                       cmocka_unit_test(other_forms_are_understood),
                                       cmocka_unit_test(raw_keys_survive),
                                       cmocka_unit_test(nonsense_is_corrupt),
                                       cmocka_unit_test(depth_is_no_danger),
                                       cmocka_unit_test(writer_refuses),
                                       cmocka_unit_test(batches_are_bounded)};
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
