#include "hash/pickle.h"

enum {
    FRAME_HEADER = 9,
    MAX_INT32_BYTES = 5,
    FRAME_TARGET = 65536, /* a frame ends at the first object that starts past this many bytes */

    OP_PROTO = 0x80,
    OP_FRAME = 0x95,
    OP_STOP = 0x2e,
    OP_MARK = 0x28,
    OP_NONE = 0x4e,
    OP_BININT = 0x4a,
    OP_BININT1 = 0x4b,
    OP_BININT2 = 0x4d,
    OP_LONG1 = 0x8a,
    OP_SHORT_BYTES = 0x43,
    OP_BYTES = 0x42,
    OP_SHORT_TEXT = 0x8c,
    OP_TEXT = 0x58,
    OP_EMPTY_TUPLE = 0x29,
    OP_TUPLE1 = 0x85, /* ..3 follow */
    OP_TUPLE = 0x74,
    OP_MEMOIZE = 0x94,
    OP_GET1 = 0x68,
    OP_GET4 = 0x6a
};

enum { NUM_TAGS = sizeof QR_KEY_TAGS / sizeof QR_KEY_TAGS[0] };

typedef struct pickler {
    unsigned char *p;
    unsigned char *frame; /* header of the open frame */
    uint32_t memo_count;  /* objects remembered so far */
} pickler;

static inline void put_op(pickler *w, int op)
{
    *w->p++ = (unsigned char)op;
}

static inline void put_le(pickler *w, uint64_t value, int bytes)
{
    qr_store_u64(w->p, value); /* 8 are written, `bytes` count */
    w->p += bytes;
}

static void open_frame(pickler *w)
{
    w->frame = w->p;
    w->p += FRAME_HEADER;
}

static void close_frame(pickler *w)
{
    w->frame[0] = OP_FRAME;
    qr_store_u64(w->frame + 1, (uint64_t)(w->p - w->frame - FRAME_HEADER));
}

/* Python looks at the frame's length before every object that it saves. */
static inline void start_object(pickler *w)
{
    if (QR_UNLIKELY(w->p - w->frame >= FRAME_TARGET + FRAME_HEADER)) {
        close_frame(w);
        open_frame(w);
    }
}

static inline uint32_t memoize(pickler *w)
{
    put_op(w, OP_MEMOIZE);
    return w->memo_count++;
}

/* Opcode and number of bytes of an integer by its length in bits. Token ids are as good as random:
 * a branch on their size would be mispredicted at every other token. */
#define PICKLE_EIGHT(x) x, x, x, x, x, x, x, x
#define PICKLE_FORMS(one, two, four)                                                               \
    {                                                                                              \
        one, PICKLE_EIGHT(one), PICKLE_EIGHT(two), PICKLE_EIGHT(four), PICKLE_EIGHT(four)          \
    }
static const uint8_t INT_OP[33] = PICKLE_FORMS(OP_BININT1, OP_BININT2, OP_BININT);
static const uint8_t INT_BYTES[33] = PICKLE_FORMS(2, 3, 5);

/* 8 bytes are written, the number that is returned counts. */
static inline unsigned char *put_int32(unsigned char *p, int32_t value)
{
    uint64_t v = (uint32_t)value;
    uint64_t bits = 63u ^ (uint64_t)__builtin_clzll(2 * v + 1);
    qr_store_u64(p, v << 8 | INT_OP[bits]);
    return p + INT_BYTES[bits];
}

static void put_int64(pickler *w, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        w->p = put_int32(w->p, (int32_t)value);
        return;
    }
    uint64_t magnitude = (uint64_t)(value < 0 ? ~value : value);
    int bits = 64 - __builtin_clzll(magnitude) + 1; /* and the sign */
    int bytes = (bits + 7) / 8;
    put_op(w, OP_LONG1);
    put_op(w, bytes);
    put_le(w, (uint64_t)value, bytes);
}

static void put_raw(pickler *w, const void *data, size_t len)
{
    if (len > 0)
        memcpy(w->p, data, len);
    w->p += len;
}

static void put_bytes_head(pickler *w, size_t len)
{
    start_object(w);
    bool is_short = len <= 255;
    put_op(w, is_short ? OP_SHORT_BYTES : OP_BYTES);
    put_le(w, len, is_short ? 1 : 4);
}

static uint32_t put_bytes(pickler *w, quire_bytes bytes)
{
    put_bytes_head(w, bytes.len);
    put_raw(w, bytes.data, bytes.len);
    return memoize(w);
}

/* Where the parent's bytes will be written. */
static unsigned char *put_parent(pickler *w, size_t len)
{
    put_bytes_head(w, len);
    unsigned char *hole = w->p;
    w->p += len;
    memoize(w);
    return hole;
}

static uint32_t put_text(pickler *w, quire_bytes text)
{
    bool is_short = text.len <= 255;
    put_op(w, is_short ? OP_SHORT_TEXT : OP_TEXT);
    put_le(w, text.len, is_short ? 1 : 4);
    put_raw(w, text.data, text.len);
    return memoize(w);
}

static void tuple_begin(pickler *w, size_t n)
{
    if (n > 3)
        put_op(w, OP_MARK);
}

static void tuple_end(pickler *w, size_t n)
{
    if (n == 0) {
        put_op(w, OP_EMPTY_TUPLE); /* Python has one empty tuple and does not remember it */
        return;
    }
    put_op(w, n > 3 ? OP_TUPLE : OP_TUPLE1 + (int)n - 1);
    memoize(w);
}

/* As many tokens as surely stay in the open frame go without looking at it. */
static void pickle_tokens32(pickler *w, const int32_t *tokens, size_t n)
{
    size_t room = (size_t)(w->frame + FRAME_HEADER + FRAME_TARGET - w->p) / MAX_INT32_BYTES;
    size_t fast = n < room ? n : room;
    unsigned char *p = w->p;
    size_t i = 0;
    for (; i + 4 <= fast; i += 4) {
        p = put_int32(p, tokens[i]);
        p = put_int32(p, tokens[i + 1]);
        p = put_int32(p, tokens[i + 2]);
        p = put_int32(p, tokens[i + 3]);
    }
    w->p = p;
    for (; i < n; i++) {
        start_object(w);
        w->p = put_int32(w->p, tokens[i]);
    }
}

static void pickle_tokens(pickler *w, const qr_hash_input *in)
{
    start_object(w);
    tuple_begin(w, in->num_tokens);
    if (in->tokens != NULL) {
        pickle_tokens32(w, in->tokens, in->num_tokens);
    } else {
        for (size_t i = 0; i < in->num_tokens; i++) {
            start_object(w);
            put_int64(w, in->tokens64[i]);
        }
    }
    tuple_end(w, in->num_tokens);
}

static void put_reference(pickler *w, uint32_t number)
{
    bool is_short = number <= 255;
    put_op(w, is_short ? OP_GET1 : OP_GET4);
    put_le(w, number, is_short ? 1 : 4);
}

/* A text of a key, or, if an earlier key of this block has the very same text, a reference to it.
 */
static void put_key_text(pickler *w, const qr_hash_input *in, size_t i, uint32_t *memo)
{
    quire_bytes text = in->keys[i].value;
    start_object(w);
    for (size_t j = 0; j < i; j++) {
        if (in->keys[j].kind == QUIRE_KEY_PROMPT_EMBEDS || in->keys[j].value.data != text.data ||
            in->keys[j].value.len != text.len)
            continue;
        put_reference(w, memo[j]);
        return;
    }
    memo[i] = put_text(w, text);
}

static void pickle_key(pickler *w, const qr_hash_input *in, size_t i, uint32_t *memo)
{
    switch (in->keys[i].kind) {
    case QUIRE_KEY_PROMPT_EMBEDS:
        memo[i] = put_bytes(w, in->keys[i].value);
        return;
    case QUIRE_KEY_MM_FEATURE:
        start_object(w); /* the tuple (identifier, offset) */
        put_key_text(w, in, i, memo);
        start_object(w);
        put_int64(w, in->keys[i].offset);
        tuple_end(w, 2);
        return;
    case QUIRE_KEY_LORA_NAME:
    case QUIRE_KEY_CACHE_SALT:
    case QUIRE_KEY_LORA_PATH:
    default:
        put_key_text(w, in, i, memo);
    }
}

static void pickle_keys(pickler *w, const qr_hash_input *in, uint32_t *memo)
{
    start_object(w);
    if (in->num_keys == 0) {
        put_op(w, OP_NONE);
        return;
    }
    tuple_begin(w, in->num_keys);
    for (size_t i = 0; i < in->num_keys; i++)
        pickle_key(w, in, i, memo);
    tuple_end(w, in->num_keys);
}

/* tags: the numbers by which tags are remembered, 0 for a tag that was not written yet: number 0 is
 * the parent. */
static void put_tag(pickler *w, quire_extra_key_kind kind, uint32_t *tags)
{
    start_object(w);
    if (tags[kind] != 0)
        put_reference(w, tags[kind]);
    else
        tags[kind] = put_text(w, QR_KEY_TAGS[kind]);
}

static void put_path(pickler *w, const qr_hash_input *in, size_t name, uint32_t *memo)
{
    if (qr_hash_has_path(in, name)) {
        put_key_text(w, in, name + 1, memo);
    } else {
        start_object(w);
        put_text(w, (quire_bytes){"", 0});
    }
}

static void pickle_tagged_key(pickler *w, const qr_hash_input *in, size_t i, uint32_t *memo,
                              uint32_t *tags)
{
    const quire_extra_key *key = &in->keys[i];
    if (key->kind == QUIRE_KEY_LORA_PATH)
        return; /* written with the name */
    start_object(w);
    put_tag(w, key->kind, tags);
    switch (key->kind) {
    case QUIRE_KEY_PROMPT_EMBEDS:
        memo[i] = put_bytes(w, key->value);
        tuple_end(w, 2);
        return;
    case QUIRE_KEY_MM_FEATURE:
        put_key_text(w, in, i, memo);
        start_object(w);
        put_int64(w, key->offset);
        tuple_end(w, 3);
        return;
    case QUIRE_KEY_LORA_NAME:
        put_key_text(w, in, i, memo);
        put_path(w, in, i, memo);
        tuple_end(w, 3);
        return;
    case QUIRE_KEY_CACHE_SALT:
    case QUIRE_KEY_LORA_PATH:
    default:
        put_key_text(w, in, i, memo);
        tuple_end(w, 2);
    }
}

static void pickle_tagged_keys(pickler *w, const qr_hash_input *in, uint32_t *memo)
{
    uint32_t tags[NUM_TAGS] = {0};
    size_t n = qr_hash_num_tagged(in);
    start_object(w);
    tuple_begin(w, n);
    for (size_t i = 0; i < in->num_keys; i++)
        pickle_tagged_key(w, in, i, memo, tags);
    tuple_end(w, n);
}

static pickler pickle_begin(unsigned char *out)
{
    pickler w = {.p = out, .frame = NULL, .memo_count = 0};
    put_op(&w, OP_PROTO);
    put_op(&w, 5);
    open_frame(&w);
    return w;
}

static void pickle_end(pickler *w, qr_message *out)
{
    put_op(w, OP_STOP);
    close_frame(w);
    out->len = (size_t)(w->p - out->bytes);
}

void qr_pickle_encode(qr_message *out, const qr_hash_input *input, uint32_t *memo)
{
    pickler w = pickle_begin(out->bytes);
    out->parent_at = (size_t)(put_parent(&w, input->parent_len) - out->bytes);
    pickle_tokens(&w, input);
    pickle_keys(&w, input, memo);
    tuple_end(&w, 3);
    pickle_end(&w, out);
}

void qr_pickle_encode_tagged(qr_message *out, const qr_hash_input *input, uint32_t *memo)
{
    pickler w = pickle_begin(out->bytes);
    out->parent_at = (size_t)(put_parent(&w, input->parent_len) - out->bytes);
    pickle_tokens(&w, input);
    pickle_tagged_keys(&w, input, memo);
    tuple_end(&w, 3);
    pickle_end(&w, out);
}

void qr_pickle_encode_text(qr_message *out, quire_bytes text)
{
    pickler w = pickle_begin(out->bytes);
    put_text(&w, text);
    pickle_end(&w, out);
}
