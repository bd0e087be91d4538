#include "hash/cbor.h"

enum {
    MAJOR_UINT = 0x00,
    MAJOR_NEGATIVE = 0x20,
    MAJOR_BYTES = 0x40,
    MAJOR_TEXT = 0x60,
    MAJOR_ARRAY = 0x80,
    CBOR_NULL = 0xf6,
    HEAD_1_BYTE = 24 /* then 2, 4, 8 bytes: 25, 26, 27 */
};

/* A head with its number in the shortest form. */
static unsigned char *put_head(unsigned char *p, uint32_t major, uint64_t v)
{
    if (v < HEAD_1_BYTE) {
        *p = (unsigned char)(major | v);
        return p + 1;
    }
    uint32_t form = (uint32_t)(v > 0xff) + (uint32_t)(v > 0xffff) + (uint32_t)(v > 0xffffffff);
    uint32_t bytes = 1u << form;
    *p = (unsigned char)(major | (HEAD_1_BYTE + form));
    qr_store_u64(p + 1, qr_be_u64(v << (64 - 8 * bytes)));
    return p + 1 + bytes;
}

/* What to write for a number whose highest bit is at a place: the head in the top byte, how far the
 * number is shifted below it in the lowest, and how many bytes count in the next. */
#define TOKEN_FORM(head, bytes) ((uint64_t)(head) << 56 | (bytes) << 8 | (64 - 8 * (bytes)))
#define EIGHT(x)                x, x, x, x, x, x, x, x
#define SMALL                   TOKEN_FORM(MAJOR_UINT, 1)
#define BYTE                    TOKEN_FORM(HEAD_1_BYTE, 2)
static const uint64_t TOKEN_FORMS[64] = {
    /* below 24, the number is its own head */
    SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, SMALL, EIGHT(SMALL), EIGHT(SMALL),
    EIGHT(SMALL),
    /* from 24 on */
    EIGHT(BYTE), EIGHT(TOKEN_FORM(HEAD_1_BYTE + 1, 3)), EIGHT(TOKEN_FORM(HEAD_1_BYTE + 2, 5)),
    EIGHT(TOKEN_FORM(HEAD_1_BYTE + 2, 5))};

/* A token id that is not negative. Ids are as good as random: a branch on their size would be
 * mispredicted at every other token, so the form comes from a table. */
static inline unsigned char *put_token(unsigned char *p, uint32_t v)
{
    uint32_t top = 31u ^ (uint32_t)__builtin_clz(v | 1);
    uint64_t form = TOKEN_FORMS[top | (uint32_t)(v > 23) << 5];
    uint64_t word = form | (uint64_t)v << (form & 63); /* the low bytes do not count */
    qr_store_u64(p, qr_be_u64(word));
    return p + (form >> 8 & 0xff);
}

static unsigned char *put_int(unsigned char *p, int64_t value)
{
    uint64_t sign = (uint64_t)(value >> 63);
    return put_head(p, MAJOR_NEGATIVE & (uint32_t)sign, (uint64_t)value ^ sign);
}

static unsigned char *put_string(unsigned char *p, uint32_t major, quire_bytes bytes)
{
    p = put_head(p, major, bytes.len);
    if (bytes.len > 0)
        memcpy(p, bytes.data, bytes.len);
    return p + bytes.len;
}

static unsigned char *put_key(unsigned char *p, const quire_extra_key *key)
{
    switch (key->kind) {
    case QUIRE_KEY_PROMPT_EMBEDS:
        return put_string(p, MAJOR_BYTES, key->value);
    case QUIRE_KEY_MM_FEATURE:
        p = put_head(p, MAJOR_ARRAY, 2);
        p = put_string(p, MAJOR_TEXT, key->value);
        return put_int(p, key->offset);
    case QUIRE_KEY_LORA_NAME:
    case QUIRE_KEY_CACHE_SALT:
    default:
        return put_string(p, MAJOR_TEXT, key->value);
    }
}

static unsigned char *put_tokens(unsigned char *p, const qr_hash_input *in)
{
    int32_t signs = -1;
    if (in->tokens != NULL)
        signs = 0;
    for (size_t i = 0; in->tokens != NULL && i < in->num_tokens; i++)
        signs |= in->tokens[i];
    if (signs >= 0)
        for (size_t i = 0; i < in->num_tokens; i++)
            p = put_token(p, (uint32_t)in->tokens[i]);
    else
        for (size_t i = 0; i < in->num_tokens; i++)
            p = put_int(p, in->tokens != NULL ? in->tokens[i] : in->tokens64[i]);
    return p;
}

void qr_cbor_encode(qr_message *out, const qr_hash_input *input)
{
    unsigned char *p = put_head(out->bytes, MAJOR_ARRAY, 3);
    p = put_head(p, MAJOR_BYTES, input->parent_len);
    out->parent_at = (size_t)(p - out->bytes);
    p += input->parent_len;
    p = put_head(p, MAJOR_ARRAY, input->num_tokens);
    p = put_tokens(p, input);
    if (input->num_keys == 0)
        *p++ = CBOR_NULL;
    else
        p = put_head(p, MAJOR_ARRAY, input->num_keys);
    for (size_t i = 0; i < input->num_keys; i++)
        p = put_key(p, &input->keys[i]);
    out->len = (size_t)(p - out->bytes);
}

void qr_cbor_encode_text(qr_message *out, quire_bytes text)
{
    out->len = (size_t)(put_string(out->bytes, MAJOR_TEXT, text) - out->bytes);
}
