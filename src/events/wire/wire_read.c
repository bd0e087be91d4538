/* events/wire/wire_read.c - a batch of events out of bytes.
 *
 *      first walk    counts hashes, tokens, keys and events, and finds what is wrong
 *      second walk   the same code over a copy of the bytes, and puts them into arrays
 *
 *      memory   [ events | hashes | tokens | keys | key_start | places | copy of the bytes ]
 *
 * What is wrong is found before anything is allocated or overwritten, and the two walks cannot
 * disagree. Events of no content (cleared, or of unknown kinds) share a record: places[i] says
 * which record event i is, so that two bytes of input never take more than four of memory there.
 */
#include "events/wire/wire.h"

#include "base/memory.h"
#include "events/wire/cursor.h"

#include <string.h>

enum { RECORD_OTHER = 0, RECORD_CLEARED = 1, NUM_SHARED_RECORDS = 2 };
static const size_t MAX_BATCH_BYTES = (size_t)1 << 30;
static const size_t KEPT_BYTES = (size_t)16 << 20;
static const uint64_t NO_TUPLES = UINT64_MAX;

/* Where things go; in the first walk the arrays are NULL, and only counted. */
typedef struct wire_sink {
    quire_wire_event *events;
    quire_wire_hash *hashes;
    int64_t *tokens;
    quire_wire_key *keys;
    uint32_t *key_start;
    uint32_t *places;
    uint32_t num_events;
    uint32_t num_hashes;
    uint32_t num_tokens;
    uint32_t num_keys;
    uint32_t num_starts;
    uint32_t num_places;
    uint64_t num_tuples; /* of extra keys, in the event that is being read */
} wire_sink;

struct quire_wire_reader {
    void *memory;
    size_t capacity;
    const quire_wire_event *events;
    const uint32_t *places;
    uint32_t num_places;
};

/* ---- values ---------------------------------------------------------------- */

static bool read_array(qr_cursor *c, uint64_t *count)
{
    qr_piece piece;
    if (!qr_cursor_next(c, &piece) || piece.kind != QR_PIECE_ARRAY)
        return false;
    *count = piece.number;
    return true;
}

static bool read_integer(const qr_piece *piece, int64_t *value)
{
    if (piece->kind == QR_PIECE_NUMBER && piece->number > INT64_MAX)
        return false;
    *value = (int64_t)piece->number;
    return piece->kind == QR_PIECE_NUMBER || piece->kind == QR_PIECE_NEGATIVE;
}

static bool read_u32(const qr_piece *piece, uint32_t *value)
{
    *value = (uint32_t)piece->number;
    return piece->kind == QR_PIECE_NUMBER && piece->number <= UINT32_MAX;
}

/* Numbers below zero are those of old vLLM, which took Python's hash: the same 64 bits. */
static bool read_hash(const qr_piece *piece, quire_wire_hash *hash)
{
    *hash = (quire_wire_hash){.number = piece->number};
    if (piece->kind == QR_PIECE_BYTES)
        *hash = (quire_wire_hash){.bytes = {piece->data, piece->len}};
    return piece->kind == QR_PIECE_BYTES || piece->kind == QR_PIECE_NUMBER ||
           piece->kind == QR_PIECE_NEGATIVE;
}

/* ---- fields ---------------------------------------------------------------- */

static bool read_block_hashes(wire_sink *s, qr_cursor *c, quire_wire_event *e)
{
    uint64_t count;
    if (!read_array(c, &count))
        return false;
    e->hashes = s->hashes == NULL ? NULL : s->hashes + s->num_hashes;
    e->num_hashes = (uint32_t)count;
    for (uint64_t i = 0; i < count; i++) {
        qr_piece piece;
        quire_wire_hash hash;
        if (!qr_cursor_next(c, &piece) || !read_hash(&piece, &hash))
            return false;
        if (s->hashes != NULL)
            s->hashes[s->num_hashes] = hash;
        s->num_hashes++;
    }
    return true;
}

static bool read_token_ids(wire_sink *s, qr_cursor *c, quire_wire_event *e)
{
    uint64_t count;
    if (!read_array(c, &count))
        return false;
    e->tokens = s->tokens == NULL ? NULL : s->tokens + s->num_tokens;
    e->num_tokens = (uint32_t)count;
    for (uint64_t i = 0; i < count; i++) {
        int64_t token;
        if (!qr_cursor_integer(c, &token))
            return false;
        if (s->tokens != NULL)
            s->tokens[s->num_tokens] = token;
        s->num_tokens++;
    }
    return true;
}

/* [text, number] and no other array. */
static bool is_feature(qr_cursor c, quire_wire_key *key)
{
    uint64_t count;
    qr_piece text;
    qr_piece number;
    if (!read_array(&c, &count) || count != 2 || !qr_cursor_next(&c, &text) ||
        text.kind != QR_PIECE_TEXT || !qr_cursor_next(&c, &number) ||
        !read_integer(&number, &key->number))
        return false;
    key->value = (quire_bytes){text.data, text.len};
    return true;
}

static bool read_key(qr_cursor *c, quire_wire_key *key)
{
    qr_cursor start = *c;
    qr_piece piece;
    *key = (quire_wire_key){.kind = QUIRE_WIRE_FEATURE};
    if (!qr_cursor_skip(c))
        return false;
    if (is_feature(start, key))
        return true;
    *key =
        (quire_wire_key){.kind = QUIRE_WIRE_RAW, .value = {start.at, (size_t)(c->at - start.at)}};
    qr_cursor again = start;
    if (!qr_cursor_next(&again, &piece))
        return false;
    if (piece.kind == QR_PIECE_TEXT || piece.kind == QR_PIECE_BYTES) {
        key->kind = piece.kind == QR_PIECE_TEXT ? QUIRE_WIRE_TEXT : QUIRE_WIRE_BYTES;
        key->value = (quire_bytes){piece.data, piece.len};
    } else if (read_integer(&piece, &key->number)) {
        key->kind = QUIRE_WIRE_NUMBER;
        key->value = (quire_bytes){NULL, 0};
    }
    return true;
}

/* One tuple of keys, or nil. */
static bool read_tuple(wire_sink *s, qr_cursor *c)
{
    qr_piece piece;
    if (!qr_cursor_next(c, &piece))
        return false;
    if (piece.kind == QR_PIECE_NIL)
        return true;
    if (piece.kind != QR_PIECE_ARRAY)
        return false;
    for (uint64_t i = 0; i < piece.number; i++) {
        quire_wire_key key;
        if (!read_key(c, &key))
            return false;
        if (s->keys != NULL)
            s->keys[s->num_keys] = key;
        s->num_keys++;
    }
    return true;
}

static void add_start(wire_sink *s, uint32_t start)
{
    if (s->key_start != NULL)
        s->key_start[s->num_starts] = start;
    s->num_starts++;
}

static bool read_extra_keys(wire_sink *s, qr_cursor *c, quire_wire_event *e)
{
    qr_piece piece;
    uint32_t first_key = s->num_keys;
    e->key_start = NULL;
    e->keys = NULL;
    s->num_tuples = NO_TUPLES;
    if (!qr_cursor_next(c, &piece))
        return false;
    if (piece.kind == QR_PIECE_NIL)
        return true;
    if (piece.kind != QR_PIECE_ARRAY)
        return false;
    s->num_tuples = piece.number;
    e->key_start = s->key_start == NULL ? NULL : s->key_start + s->num_starts;
    e->keys = s->keys == NULL ? NULL : s->keys + first_key;
    for (uint64_t i = 0; i < piece.number; i++) {
        add_start(s, s->num_keys - first_key);
        if (!read_tuple(s, c))
            return false;
    }
    add_start(s, s->num_keys - first_key);
    return true;
}

/* A value that is one piece. */
static bool read_value(const qr_piece *piece, const qr_wire_field *field, quire_wire_event *e)
{
    void *value = (char *)e + field->value;
    bool is_nil = piece->kind == QR_PIECE_NIL;
    memset(value, 0, field->bytes);
    if (field->form == QR_WIRE_TEXT_OR_NIL) {
        bool is_text = piece->kind == QR_PIECE_TEXT;
        *(quire_bytes *)value = (quire_bytes){is_text ? piece->data : NULL, piece->len};
        return is_text || is_nil;
    }
    if (field->has != 0)
        *(uint32_t *)(void *)((char *)e + field->has) = !is_nil;
    if (field->has != 0 && is_nil)
        return true;
    if (field->form == QR_WIRE_HASH)
        return read_hash(piece, value);
    return field->form == QR_WIRE_U32 ? read_u32(piece, value) : read_integer(piece, value);
}

static bool read_field(wire_sink *s, qr_cursor *c, const qr_wire_field *field, quire_wire_event *e)
{
    qr_piece piece;
    if (field->form == QR_WIRE_HASHES)
        return read_block_hashes(s, c, e);
    if (field->form == QR_WIRE_TOKENS)
        return read_token_ids(s, c, e);
    if (field->form == QR_WIRE_KEYS)
        return read_extra_keys(s, c, e);
    return qr_cursor_next(c, &piece) && read_value(&piece, field, e);
}

/* ---- events ---------------------------------------------------------------- */

static bool is_name(const qr_piece *piece, const char *name)
{
    size_t len = strlen(name);
    return piece->kind == QR_PIECE_TEXT && piece->len == len && memcmp(piece->data, name, len) == 0;
}

/* NULL: a kind that is not known. */
static const qr_wire_shape *find_shape(const qr_piece *tag)
{
    for (int i = 0; i < QR_WIRE_NUM_SHAPES; i++)
        if (is_name(tag, qr_wire_shapes[i].tag))
            return &qr_wire_shapes[i];
    return NULL;
}

/* The fields of the array form behind its tag. */
static bool read_list(wire_sink *s, qr_cursor *c, const qr_wire_shape *shape, uint64_t count,
                      quire_wire_event *e)
{
    for (uint64_t i = 0; i < count; i++) {
        bool is_known = shape != NULL && i < shape->num_fields && !shape->fields[i].is_map_only;
        if (is_known ? !read_field(s, c, &shape->fields[i], e) : !qr_cursor_skip(c))
            return false;
    }
    return shape == NULL || count >= shape->num_required;
}

/* The tag of the map form may stand anywhere in it; the last one counts. */
static bool find_tag(qr_cursor c, uint64_t count, qr_piece *tag)
{
    bool is_found = false;
    for (uint64_t i = 0; i < count; i++) {
        qr_piece name;
        qr_cursor at = c;
        if (!qr_cursor_skip(&c) || !qr_cursor_next(&at, &name))
            return false;
        at = c;
        if (!qr_cursor_skip(&c))
            return false;
        if (is_name(&name, QR_TAG_KEY))
            is_found = qr_cursor_next(&at, tag);
    }
    return is_found && tag->kind == QR_PIECE_TEXT;
}

static bool read_pairs(wire_sink *s, qr_cursor *c, const qr_wire_shape *shape, uint64_t count,
                       quire_wire_event *e)
{
    uint32_t seen = 0;
    for (uint64_t i = 0; i < count; i++) {
        qr_piece name;
        qr_cursor at = *c;
        if (!qr_cursor_skip(c) || !qr_cursor_next(&at, &name))
            return false;
        uint32_t f = 0;
        while (shape != NULL && f < shape->num_fields && !is_name(&name, shape->fields[f].name))
            f++;
        bool is_known = shape != NULL && f < shape->num_fields;
        if (is_known ? !read_field(s, c, &shape->fields[f], e) : !qr_cursor_skip(c))
            return false;
        if (is_known)
            seen |= UINT32_C(1) << f;
    }
    uint32_t required = shape == NULL ? 0 : (UINT32_C(1) << shape->num_required) - 1;
    return (seen & required) == required;
}

static void add_place(wire_sink *s, const qr_wire_shape *shape, const quire_wire_event *e)
{
    uint32_t record = shape == NULL ? RECORD_OTHER : RECORD_CLEARED;
    if (shape != NULL && shape->num_fields > 0) {
        record = s->num_events++;
        if (s->events != NULL)
            s->events[record] = *e;
    }
    if (s->places != NULL)
        s->places[s->num_places] = record;
    s->num_places++;
}

static bool read_event(wire_sink *s, qr_cursor *c)
{
    qr_piece head;
    qr_piece tag;
    quire_wire_event e = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_OTHER};
    s->num_tuples = NO_TUPLES;
    if (!qr_cursor_next(c, &head) || head.number == 0)
        return false;
    bool is_map = head.kind == QR_PIECE_MAP;
    bool has_tag = is_map ? find_tag(*c, head.number, &tag)
                          : head.kind == QR_PIECE_ARRAY && qr_cursor_next(c, &tag) &&
                                tag.kind == QR_PIECE_TEXT;
    if (!has_tag)
        return false;
    const qr_wire_shape *shape = find_shape(&tag);
    if (shape != NULL)
        e.kind = shape->kind;
    if (is_map ? !read_pairs(s, c, shape, head.number, &e)
               : !read_list(s, c, shape, head.number - 1, &e))
        return false;
    add_place(s, shape, &e);
    return s->num_tuples == NO_TUPLES || s->num_tuples == e.num_hashes;
}

/* ---- the batch ------------------------------------------------------------- */

static bool read_head(qr_cursor *c, uint64_t *num_fields, double *time)
{
    qr_piece piece;
    if (!read_array(c, num_fields) || *num_fields < 2 || !qr_cursor_next(c, &piece))
        return false;
    int64_t whole = 0;
    bool is_whole = read_integer(&piece, &whole);
    *time = is_whole ? (double)whole : piece.real;
    return is_whole || piece.kind == QR_PIECE_REAL;
}

static bool read_rank(qr_cursor *c, quire_wire_batch *batch)
{
    qr_piece piece;
    if (!qr_cursor_next(c, &piece))
        return false;
    batch->has_rank = piece.kind != QR_PIECE_NIL;
    return batch->has_rank == 0 || read_integer(&piece, &batch->rank);
}

static bool read_batch(wire_sink *s, qr_cursor c, quire_wire_batch *batch)
{
    uint64_t num_fields;
    uint64_t num_events;
    *batch = (quire_wire_batch){0};
    s->num_events = NUM_SHARED_RECORDS;
    if (!read_head(&c, &num_fields, &batch->time) || !read_array(&c, &num_events))
        return false;
    batch->num_events = (uint32_t)num_events;
    for (uint64_t i = 0; i < num_events; i++) {
        if (!read_event(s, &c))
            return false;
    }
    if (num_fields > 2 && !read_rank(&c, batch))
        return false;
    for (uint64_t i = 3; i < num_fields; i++) {
        if (!qr_cursor_skip(&c))
            return false;
    }
    return c.at == c.end;
}

/* One batch of a size that does not come again must not keep its memory for ever. */
static bool take_memory(quire_wire_reader *reader, size_t bytes)
{
    bool is_enough = bytes <= reader->capacity;
    if (is_enough && (reader->capacity <= KEPT_BYTES || bytes > reader->capacity / 8))
        return true;
    void *memory = qr_alloc_raw(bytes);
    if (memory == NULL)
        return is_enough;
    qr_free(reader->memory);
    reader->memory = memory;
    reader->capacity = bytes;
    return true;
}

/* Room for what was counted, and for a copy of the bytes; the arrays begin to count anew. The
 * counts are below 2^30, as each stands for a byte that was there. */
static int carve(quire_wire_reader *reader, wire_sink *s, size_t num_bytes, unsigned char **copy)
{
    size_t event_bytes = s->num_events * sizeof s->events[0];
    size_t hash_bytes = s->num_hashes * sizeof s->hashes[0];
    size_t token_bytes = s->num_tokens * sizeof s->tokens[0];
    size_t key_bytes = s->num_keys * sizeof s->keys[0];
    size_t start_bytes = s->num_starts * sizeof s->key_start[0];
    size_t place_bytes = s->num_places * sizeof s->places[0];
    size_t all =
        event_bytes + hash_bytes + token_bytes + key_bytes + start_bytes + place_bytes + num_bytes;
    if (!take_memory(reader, all))
        return QUIRE_E_NOMEM;
    unsigned char *at = reader->memory;
    *s = (wire_sink){.events = (quire_wire_event *)(void *)at};
    s->hashes = (quire_wire_hash *)(void *)(at += event_bytes);
    s->tokens = (int64_t *)(void *)(at += hash_bytes);
    s->keys = (quire_wire_key *)(void *)(at += token_bytes);
    s->key_start = (uint32_t *)(void *)(at += key_bytes);
    s->places = (uint32_t *)(void *)(at += start_bytes);
    *copy = at + place_bytes;
    return QUIRE_OK;
}

int quire_wire_reader_create(quire_wire_reader **reader)
{
    if (reader == NULL)
        return QUIRE_E_ARGUMENT;
    quire_wire_reader *made = qr_alloc(1, sizeof *made);
    if (made == NULL)
        return QUIRE_E_NOMEM;
    *reader = made;
    return QUIRE_OK;
}

void quire_wire_reader_destroy(quire_wire_reader *reader)
{
    if (reader == NULL)
        return;
    qr_free(reader->memory);
    qr_free(reader);
}

int quire_wire_read(quire_wire_reader *reader, quire_bytes bytes, quire_wire_batch *batch)
{
    wire_sink sink = {0};
    quire_wire_batch read;
    unsigned char *copy;
    if (reader == NULL || batch == NULL || (bytes.data == NULL && bytes.len > 0))
        return QUIRE_E_ARGUMENT;
    if (bytes.len > MAX_BATCH_BYTES)
        return QUIRE_E_RANGE;
    const unsigned char *data = bytes.data;
    if (bytes.len == 0 || !read_batch(&sink, (qr_cursor){data, data + bytes.len}, &read))
        return QUIRE_E_CORRUPT;
    int status = carve(reader, &sink, bytes.len, &copy);
    if (status != QUIRE_OK)
        return status;
    memcpy(copy, data, bytes.len);
    sink.events[RECORD_OTHER] =
        (quire_wire_event){.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_OTHER};
    sink.events[RECORD_CLEARED] =
        (quire_wire_event){.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    read_batch(&sink, (qr_cursor){copy, copy + bytes.len}, batch);
    reader->events = sink.events;
    reader->places = sink.places;
    reader->num_places = sink.num_places;
    return QUIRE_OK;
}

const quire_wire_event *quire_wire_get(const quire_wire_reader *reader, uint32_t i)
{
    if (reader == NULL || i >= reader->num_places)
        return NULL;
    return &reader->events[reader->places[i]];
}
