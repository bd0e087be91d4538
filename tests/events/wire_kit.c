#include "events/wire_kit.h"

#include <inttypes.h>

/* ---- words ----------------------------------------------------------------- */

/* Bytes of a hexadecimal word, in the event's own memory; never NULL. */
static quire_bytes parse_hex(kit_event *made, const char *word, size_t num_digits)
{
    unsigned char *to = made->pool + made->pool_len;
    assert_true(num_digits % 2 == 0 && made->pool_len + num_digits / 2 < KIT_POOL);
    for (size_t i = 0; i < num_digits; i += 2) {
        const char pair[3] = {word[i], word[i + 1], 0};
        char *end;
        to[i / 2] = (unsigned char)strtoul(pair, &end, 16);
        assert_true(*end == 0);
    }
    made->pool_len += num_digits / 2 + 1;
    return (quire_bytes){to, num_digits / 2};
}

static quire_bytes parse_text(kit_event *made, const char *word)
{
    if (word[0] == '-')
        return (quire_bytes){NULL, 0};
    assert_int_equal(word[0], 't');
    return parse_hex(made, word + 1, strlen(word + 1));
}

static quire_wire_hash parse_hash(kit_event *made, const char *word)
{
    if (word[0] == 'n')
        return (quire_wire_hash){.number = strtoull(word + 1, NULL, 10)};
    assert_int_equal(word[0], 'x');
    return (quire_wire_hash){.bytes = parse_hex(made, word + 1, strlen(word + 1))};
}

static void parse_hashes(kit_event *made, char *list)
{
    made->event.hashes = made->hashes;
    if (list[0] == 0)
        return;
    for (char *word = strsep(&list, ","); word != NULL; word = strsep(&list, ",")) {
        assert_true(made->event.num_hashes < KIT_MAX_HASHES);
        made->hashes[made->event.num_hashes++] = parse_hash(made, word);
    }
}

static void parse_tokens(kit_event *made, char *list)
{
    quire_wire_event *e = &made->event;
    e->tokens = made->tokens;
    if (list[0] == 0)
        return;
    for (char *word = strsep(&list, ","); word != NULL; word = strsep(&list, ",")) {
        char *end;
        int64_t token = strtoll(word, &end, 10);
        uint64_t count = *end == '*' ? strtoull(end + 1, NULL, 10) : 1;
        assert_true(e->num_tokens + count <= KIT_MAX_TOKENS);
        for (uint64_t i = 0; i < count; i++)
            made->tokens[e->num_tokens++] = token;
    }
}

static void parse_key(kit_event *made, const char *word, quire_wire_key *key)
{
    const char *rest = word + 1;
    *key = (quire_wire_key){.kind = QUIRE_WIRE_NUMBER};
    if (word[0] == 'i') {
        key->number = strtoll(rest, NULL, 10);
        return;
    }
    size_t num_digits = strcspn(rest, ":");
    key->value = parse_hex(made, rest, num_digits);
    key->kind = word[0] == 't' ? QUIRE_WIRE_TEXT : QUIRE_WIRE_BYTES;
    if (word[0] == 'f') {
        key->kind = QUIRE_WIRE_FEATURE;
        key->number = strtoll(rest + num_digits + 1, NULL, 10);
    }
}

static void parse_keys(kit_event *made, char *list)
{
    uint32_t num_tuples = 0;
    uint32_t num_keys = 0;
    if (strcmp(list, "-") == 0)
        return;
    for (char *tuple = strsep(&list, "/"); tuple != NULL; tuple = strsep(&list, "/")) {
        made->key_start[num_tuples++] = num_keys;
        char *words = tuple[0] == 0 ? NULL : tuple;
        for (char *word = strsep(&words, "+"); word != NULL; word = strsep(&words, "+")) {
            assert_true(num_keys < KIT_MAX_KEYS);
            parse_key(made, word, &made->keys[num_keys++]);
        }
    }
    assert_int_equal(num_tuples, made->event.num_hashes);
    made->key_start[num_tuples] = num_keys;
    made->event.key_start = made->key_start;
    made->event.keys = made->keys;
}

/* The fields of the map form alone. */
static void parse_stored_more(kit_event *made, char *fields[5])
{
    quire_wire_event *e = &made->event;
    e->spec_kind = parse_text(made, fields[0]);
    e->has_sliding_window = fields[1][0] != '-';
    e->sliding_window = (uint32_t)strtoul(fields[1], NULL, 10);
    e->locality = parse_text(made, fields[2]);
    e->ownership = parse_text(made, fields[3]);
    e->session_id = parse_text(made, fields[4]);
}

static void parse_removed(kit_event *made, char *fields[3])
{
    made->event.kind = QUIRE_WIRE_REMOVED;
    parse_hashes(made, fields[0]);
    made->event.medium = parse_text(made, fields[1]);
    made->event.has_group = fields[2][0] != '-';
    made->event.group = (uint32_t)strtoul(fields[2], NULL, 10);
}

static void parse_stored(kit_event *made, char *fields[9])
{
    quire_wire_event *e = &made->event;
    e->kind = QUIRE_WIRE_STORED;
    parse_hashes(made, fields[0]);
    e->has_parent = fields[1][0] != '-';
    if (e->has_parent != 0)
        e->parent = parse_hash(made, fields[1]);
    parse_tokens(made, fields[2]);
    e->block_size = (uint32_t)strtoul(fields[3], NULL, 10);
    e->has_lora_id = strcmp(fields[4], "-") != 0;
    e->lora_id = strtoll(fields[4], NULL, 10);
    e->medium = parse_text(made, fields[5]);
    e->lora_name = parse_text(made, fields[6]);
    parse_keys(made, fields[7]);
    e->has_group = fields[8][0] != '-';
    e->group = (uint32_t)strtoul(fields[8], NULL, 10);
}

void kit_parse(kit_event *made, char *word)
{
    char *fields[15] = {NULL};
    size_t count = 0;
    if (made->pool == NULL) {
        made->pool = malloc(KIT_POOL);
        made->tokens = malloc(KIT_MAX_TOKENS * sizeof made->tokens[0]);
        assert_true(made->pool != NULL && made->tokens != NULL);
    }
    made->event = (quire_wire_event){.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    made->pool_len = 0;
    for (char *field = strsep(&word, ";"); field != NULL; field = strsep(&word, ";")) {
        assert_true(count < COUNT(fields));
        fields[count++] = field;
    }
    if (fields[0][0] == 'S' && (count == 10 || count == 15)) {
        parse_stored(made, fields + 1);
        if (count == 15)
            parse_stored_more(made, fields + 10);
    } else if (fields[0][0] == 'R' && (count == 4 || count == 6)) {
        parse_removed(made, fields + 1);
        if (count == 6) {
            made->event.locality = parse_text(made, fields[4]);
            made->event.ownership = parse_text(made, fields[5]);
        }
    } else {
        assert_true(fields[0][0] == 'C' && count == 1);
    }
}

void kit_free(kit_event *made)
{
    free(made->pool);
    free(made->tokens);
    made->pool = NULL;
    made->tokens = NULL;
}

/* ---- comparing ------------------------------------------------------------- */

static void expect_same_bytes(quire_bytes a, quire_bytes b)
{
    assert_int_equal(a.data == NULL, b.data == NULL);
    assert_int_equal(a.len, b.len);
    if (a.len > 0)
        assert_memory_equal(a.data, b.data, a.len);
}

static void expect_same_hash(const quire_wire_hash *a, const quire_wire_hash *b)
{
    assert_int_equal(a->number, b->number);
    expect_same_bytes(a->bytes, b->bytes);
}

static void expect_same_keys(const quire_wire_event *a, const quire_wire_event *b)
{
    assert_int_equal(a->key_start == NULL, b->key_start == NULL);
    if (a->key_start == NULL)
        return;
    for (uint32_t i = 0; i <= a->num_hashes; i++)
        assert_int_equal(a->key_start[i], b->key_start[i]);
    for (uint32_t i = a->key_start[0]; i < a->key_start[a->num_hashes]; i++) {
        assert_int_equal(a->keys[i].kind, b->keys[i].kind);
        assert_int_equal(a->keys[i].number, b->keys[i].number);
        expect_same_bytes(a->keys[i].value, b->keys[i].value);
    }
}

void kit_expect_same(const quire_wire_event *a, const quire_wire_event *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->num_hashes, b->num_hashes);
    for (uint32_t i = 0; i < a->num_hashes; i++)
        expect_same_hash(&a->hashes[i], &b->hashes[i]);
    assert_int_equal(a->has_parent, b->has_parent);
    expect_same_hash(&a->parent, &b->parent);
    assert_int_equal(a->num_tokens, b->num_tokens);
    for (uint32_t i = 0; i < a->num_tokens; i++)
        assert_int_equal(a->tokens[i], b->tokens[i]);
    assert_int_equal(a->block_size, b->block_size);
    assert_int_equal(a->has_lora_id, b->has_lora_id);
    assert_int_equal(a->lora_id, b->lora_id);
    expect_same_bytes(a->medium, b->medium);
    expect_same_bytes(a->lora_name, b->lora_name);
    assert_int_equal(a->has_group, b->has_group);
    assert_int_equal(a->group, b->group);
    expect_same_bytes(a->spec_kind, b->spec_kind);
    assert_int_equal(a->has_sliding_window, b->has_sliding_window);
    assert_int_equal(a->sliding_window, b->sliding_window);
    expect_same_bytes(a->locality, b->locality);
    expect_same_bytes(a->ownership, b->ownership);
    expect_same_bytes(a->session_id, b->session_id);
    expect_same_keys(a, b);
}

void kit_expect_bytes(quire_bytes got, const char *expected_hex)
{
    if (expected_hex[0] == '#') { /* length and FNV-1a */
        uint64_t value = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < got.len; i++)
            value = (value ^ ((const unsigned char *)got.data)[i]) * UINT64_C(0x100000001b3);
        char shown[64];
        snprintf(shown, sizeof shown, "#%zu:%016" PRIx64, got.len, value);
        assert_string_equal(shown, expected_hex);
        return;
    }
    char *shown = malloc(2 * got.len + 1);
    assert_non_null(shown);
    for (size_t i = 0; i < got.len; i++)
        snprintf(shown + 2 * i, 3, "%02x", ((const unsigned char *)got.data)[i]);
    shown[2 * got.len] = 0;
    assert_string_equal(shown, expected_hex);
    free(shown);
}

quire_bytes kit_rewrite(quire_wire_writer *writer, const quire_wire_reader *reader,
                        const quire_wire_batch *batch)
{
    quire_bytes bytes;
    assert_int_equal(quire_wire_begin(writer), QUIRE_OK);
    for (uint32_t i = 0; i < batch->num_events; i++)
        assert_int_equal(quire_wire_add(writer, quire_wire_get(reader, i)), QUIRE_OK);
    assert_int_equal(
        quire_wire_end(writer, batch->time, batch->has_rank != 0 ? batch->rank : -1, &bytes),
        QUIRE_OK);
    return bytes;
}
