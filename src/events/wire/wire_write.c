/* events/wire/wire_write.c - a batch of events as msgpack, as vLLM's encoder writes it.
 *
 *      [ room for the head ][ 9a ab "BlockStored" .. ][ 94 ac "BlockRemoved" .. ][ rank ]
 *              93 ts 92      <- written last, as it says how many events there are
 *
 * msgpack-c chooses the shortest form of each number, as msgspec does. What it writes goes into one
 * growing buffer; an event that does not fit is cut off again, so that the batch stays whole.
 */
#include "events/wire/wire.h"

#include "base/config.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "events/wire/cursor.h"

#include <msgpack.h>
#include <string.h>

enum {
    FIRST_BYTES = 4096,
    HEAD_BYTES = 15, /* of the longest: 1 + 9 + 5 */
    RANK_BYTES = 9,
    LEAST_MAX_BYTES = 64
};
static const uint64_t DEFAULT_MAX_BYTES = UINT64_C(64) << 20;

struct quire_wire_writer {
    msgpack_packer packer;
    unsigned char *bytes;
    size_t len;
    size_t capacity;
    size_t max_bytes; /* of events, and the room in front of them */
    size_t limit;     /* of len, for what is being written */
    uint32_t num_events;
    bool as_maps;
    bool is_open; /* between begin and end */
    int status;   /* of what is being written: the first that went wrong */
};

/* ---- bytes ----------------------------------------------------------------- */

static void note(quire_wire_writer *w, int status)
{
    if (w->status == QUIRE_OK)
        w->status = status;
}

static bool make_room(quire_wire_writer *w, size_t more)
{
    if (more > w->limit - w->len) {
        note(w, QUIRE_FULL);
        return false;
    }
    if (more <= w->capacity - w->len)
        return true;
    size_t capacity = w->capacity < FIRST_BYTES ? FIRST_BYTES : 2 * w->capacity;
    if (capacity < w->len + more)
        capacity = w->len + more;
    if (capacity > w->limit)
        capacity = w->limit;
    unsigned char *bytes = qr_realloc(w->bytes, capacity);
    if (bytes == NULL) {
        note(w, QUIRE_E_NOMEM);
        return false;
    }
    w->bytes = bytes;
    w->capacity = capacity;
    return true;
}

/* msgpack-c's way out. */
static int write_bytes(void *user, const char *data, size_t len)
{
    quire_wire_writer *w = user;
    if (w->status != QUIRE_OK || !make_room(w, len))
        return -1;
    if (len > 0 && data != NULL)
        memcpy(w->bytes + w->len, data, len);
    w->len += len;
    return 0;
}

/* ---- values ---------------------------------------------------------------- */

static void put_text(quire_wire_writer *w, quire_bytes text)
{
    if (text.len > UINT32_MAX || !qr_utf8_is_text(text.data, text.len)) {
        note(w, QUIRE_E_ARGUMENT);
        return;
    }
    msgpack_pack_str(&w->packer, text.len);
    msgpack_pack_str_body(&w->packer, text.data, text.len);
}

static void put_name(quire_wire_writer *w, const char *name)
{
    put_text(w, (quire_bytes){name, strlen(name)});
}

static void put_bytes(quire_wire_writer *w, quire_bytes bytes)
{
    if (bytes.len > UINT32_MAX || (bytes.len > 0 && bytes.data == NULL)) {
        note(w, QUIRE_E_ARGUMENT);
        return;
    }
    msgpack_pack_bin(&w->packer, bytes.len);
    msgpack_pack_bin_body(&w->packer, bytes.data, bytes.len);
}

static void put_hash(quire_wire_writer *w, const quire_wire_hash *hash)
{
    if (hash->bytes.data == NULL)
        msgpack_pack_uint64(&w->packer, hash->number);
    else
        put_bytes(w, hash->bytes);
}

/* What is already msgpack: one value, and no more. */
static void put_raw(quire_wire_writer *w, quire_bytes value)
{
    const unsigned char *data = value.data;
    qr_cursor cursor = {data, data == NULL ? data : data + value.len};
    if (!qr_cursor_skip(&cursor) || cursor.at != cursor.end)
        note(w, QUIRE_E_ARGUMENT);
    else
        write_bytes(w, value.data, value.len);
}

static void put_key(quire_wire_writer *w, const quire_wire_key *key)
{
    switch (key->kind) {
    case QUIRE_WIRE_TEXT:
        put_text(w, key->value);
        break;
    case QUIRE_WIRE_FEATURE:
        msgpack_pack_array(&w->packer, 2);
        put_text(w, key->value);
        msgpack_pack_int64(&w->packer, key->number);
        break;
    case QUIRE_WIRE_BYTES:
        put_bytes(w, key->value);
        break;
    case QUIRE_WIRE_NUMBER:
        msgpack_pack_int64(&w->packer, key->number);
        break;
    case QUIRE_WIRE_RAW:
        put_raw(w, key->value);
        break;
    default:
        note(w, QUIRE_E_ARGUMENT);
    }
}

/* ---- fields ---------------------------------------------------------------- */

static void put_block_hashes(quire_wire_writer *w, const quire_wire_event *e)
{
    msgpack_pack_array(&w->packer, e->num_hashes);
    for (uint32_t i = 0; i < e->num_hashes; i++)
        put_hash(w, &e->hashes[i]);
}

static void put_token_ids(quire_wire_writer *w, const quire_wire_event *e)
{
    msgpack_pack_array(&w->packer, e->num_tokens);
    for (uint32_t i = 0; i < e->num_tokens; i++)
        msgpack_pack_int64(&w->packer, e->tokens[i]);
}

static void put_extra_keys(quire_wire_writer *w, const quire_wire_event *e)
{
    msgpack_pack_array(&w->packer, e->num_hashes);
    for (uint32_t i = 0; i < e->num_hashes; i++) {
        uint32_t first = e->key_start[i];
        uint32_t end = e->key_start[i + 1];
        if (end < first)
            note(w, QUIRE_E_ARGUMENT);
        if (end <= first) {
            msgpack_pack_nil(&w->packer);
            continue;
        }
        msgpack_pack_array(&w->packer, end - first);
        for (uint32_t k = first; k < end; k++)
            put_key(w, &e->keys[k]);
    }
}

static bool is_nil(const quire_wire_event *e, const qr_wire_field *field)
{
    if (field->form == QR_WIRE_KEYS)
        return e->key_start == NULL;
    const void *value = (const char *)e + field->value;
    if (field->form == QR_WIRE_TEXT_OR_NIL)
        return ((const quire_bytes *)value)->data == NULL;
    const void *has = (const char *)e + field->has;
    return field->has != 0 && *(const uint32_t *)has == 0;
}

static void put_field(quire_wire_writer *w, const quire_wire_event *e, const qr_wire_field *field)
{
    const void *value = (const char *)e + field->value;
    if (is_nil(e, field)) {
        msgpack_pack_nil(&w->packer);
        return;
    }
    switch (field->form) {
    case QR_WIRE_HASHES:
        put_block_hashes(w, e);
        break;
    case QR_WIRE_HASH:
        put_hash(w, value);
        break;
    case QR_WIRE_TOKENS:
        put_token_ids(w, e);
        break;
    case QR_WIRE_U32:
        msgpack_pack_uint32(&w->packer, *(const uint32_t *)value);
        break;
    case QR_WIRE_I64:
        msgpack_pack_int64(&w->packer, *(const int64_t *)value);
        break;
    case QR_WIRE_TEXT_OR_NIL:
        put_text(w, *(const quire_bytes *)value);
        break;
    case QR_WIRE_KEYS:
        put_extra_keys(w, e);
        break;
    }
}

/* ---- events ---------------------------------------------------------------- */

static bool is_put(const quire_wire_writer *w, const quire_wire_event *e,
                   const qr_wire_field *field)
{
    return w->as_maps ? !field->is_left_out_nil || !is_nil(e, field) : !field->is_map_only;
}

static void put_event(quire_wire_writer *w, const quire_wire_event *e, const qr_wire_shape *shape)
{
    uint32_t num_put = 1;
    for (uint32_t i = 0; i < shape->num_fields; i++)
        num_put += is_put(w, e, &shape->fields[i]);
    if (w->as_maps) {
        msgpack_pack_map(&w->packer, num_put);
        put_name(w, QR_TAG_KEY);
    } else {
        msgpack_pack_array(&w->packer, num_put);
    }
    put_name(w, shape->tag);
    for (uint32_t i = 0; i < shape->num_fields; i++) {
        const qr_wire_field *field = &shape->fields[i];
        if (!is_put(w, e, field))
            continue;
        if (w->as_maps)
            put_name(w, field->name);
        put_field(w, e, field);
    }
}

/* ---- the calls ------------------------------------------------------------- */

int quire_wire_writer_create(const quire_wire_options *options, quire_wire_writer **writer)
{
    quire_wire_options chosen = QUIRE_WIRE_OPTIONS_INIT;
    if (writer == NULL)
        return QUIRE_E_ARGUMENT;
    int status = options == NULL ? QUIRE_OK : qr_config_read(&chosen, sizeof chosen, options);
    if (status != QUIRE_OK)
        return status;
    uint64_t max_bytes = chosen.max_bytes == 0 ? DEFAULT_MAX_BYTES : chosen.max_bytes;
    if (max_bytes < LEAST_MAX_BYTES || max_bytes > SIZE_MAX / 4)
        return QUIRE_E_CONFIG;
    quire_wire_writer *w = qr_alloc(1, sizeof *w);
    if (w == NULL)
        return QUIRE_E_NOMEM;
    w->max_bytes = (size_t)max_bytes - RANK_BYTES;
    w->as_maps = chosen.as_maps != 0;
    msgpack_packer_init(&w->packer, w, write_bytes);
    *writer = w;
    return QUIRE_OK;
}

void quire_wire_writer_destroy(quire_wire_writer *writer)
{
    if (writer == NULL)
        return;
    qr_free(writer->bytes);
    qr_free(writer);
}

int quire_wire_begin(quire_wire_writer *writer)
{
    if (writer == NULL)
        return QUIRE_E_ARGUMENT;
    writer->len = 0;
    writer->limit = writer->max_bytes;
    writer->num_events = 0;
    writer->status = QUIRE_OK;
    writer->is_open = make_room(writer, HEAD_BYTES);
    writer->len = HEAD_BYTES;
    return writer->status;
}

int quire_wire_add(quire_wire_writer *writer, const quire_wire_event *event)
{
    quire_wire_event room;
    event = qr_struct_in(&room, sizeof room, event);
    if (writer == NULL || event == NULL || !writer->is_open)
        return QUIRE_E_ARGUMENT;
    if ((event->num_hashes > 0 && event->hashes == NULL) ||
        (event->num_tokens > 0 && event->tokens == NULL))
        return QUIRE_E_ARGUMENT;
    size_t before = writer->len;
    writer->status = QUIRE_OK;
    const qr_wire_shape *shape = NULL;
    for (int i = 0; i < QR_WIRE_NUM_SHAPES; i++)
        if (qr_wire_shapes[i].kind == event->kind)
            shape = &qr_wire_shapes[i];
    if (shape != NULL)
        put_event(writer, event, shape);
    else
        writer->status = QUIRE_E_ARGUMENT;
    if (writer->status != QUIRE_OK)
        writer->len = before;
    else
        writer->num_events++;
    return writer->status;
}

/* Behind the events, from where it goes in front of them. */
static size_t put_head(quire_wire_writer *w, double time)
{
    size_t before = w->len;
    msgpack_pack_array(&w->packer, 3);
    msgpack_pack_double(&w->packer, time);
    msgpack_pack_array(&w->packer, w->num_events);
    size_t head_bytes = w->len - before;
    w->len = before;
    return head_bytes;
}

int quire_wire_end(quire_wire_writer *writer, double time, int64_t rank, quire_bytes *bytes)
{
    if (writer == NULL || bytes == NULL || !writer->is_open)
        return QUIRE_E_ARGUMENT;
    size_t before = writer->len;
    writer->status = QUIRE_OK;
    writer->limit = before + RANK_BYTES + HEAD_BYTES;
    if (rank < 0)
        msgpack_pack_nil(&writer->packer);
    else
        msgpack_pack_int64(&writer->packer, rank);
    size_t end = writer->len;
    size_t head_bytes = put_head(writer, time);
    if (writer->status != QUIRE_OK) {
        writer->len = before;
        writer->limit = writer->max_bytes;
        return writer->status;
    }
    unsigned char *first = writer->bytes + HEAD_BYTES - head_bytes;
    memcpy(first, writer->bytes + end, head_bytes);
    writer->is_open = false;
    *bytes = (quire_bytes){first, end - HEAD_BYTES + head_bytes};
    return QUIRE_OK;
}
