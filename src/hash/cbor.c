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

/* A head with its number in the shortest form; without a branch for numbers of 32 bits. */
static inline unsigned char *put_head32(unsigned char *p, uint32_t major, uint32_t v)
{
    uint32_t form = (uint32_t)(v > 23) + (uint32_t)(v > 0xff) + (uint32_t)(v > 0xffff);
    uint32_t bytes = 0x04020100u >> (8 * form) & 0xff;
    uint32_t head = form == 0 ? v : HEAD_1_BYTE - 1 + form;
    uint64_t number = (uint64_t)__builtin_bswap32(v) >> (32 - 8 * bytes);
    qr_store_u64(p, qr_le_u64(number << 8 | (major | head)));
    return p + 1 + bytes;
}

static unsigned char *put_head(unsigned char *p, uint32_t major, uint64_t v)
{
    if (v <= UINT32_MAX)
        return put_head32(p, major, (uint32_t)v);
    *p++ = (unsigned char)(major | (HEAD_1_BYTE + 3));
    qr_store_u64(p, qr_be_u64(v));
    return p + 8;
}

static inline unsigned char *put_token(unsigned char *p, int32_t value)
{
    uint32_t sign = (uint32_t)(value >> 31); /* all ones when negative: -1 - n is stored as n */
    return put_head32(p, MAJOR_NEGATIVE & sign, (uint32_t)value ^ sign);
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

size_t qr_cbor_encode(unsigned char *out, const qr_hash_input *input)
{
    unsigned char *p = put_head(out, MAJOR_ARRAY, 3);
    p = put_string(p, MAJOR_BYTES, input->parent);
    p = put_head(p, MAJOR_ARRAY, input->num_tokens);
    if (input->tokens != NULL)
        for (size_t i = 0; i < input->num_tokens; i++)
            p = put_token(p, input->tokens[i]);
    else
        for (size_t i = 0; i < input->num_tokens; i++)
            p = put_int(p, input->tokens64[i]);
    if (input->num_keys == 0)
        *p++ = CBOR_NULL;
    else
        p = put_head(p, MAJOR_ARRAY, input->num_keys);
    for (size_t i = 0; i < input->num_keys; i++)
        p = put_key(p, &input->keys[i]);
    return (size_t)(p - out);
}

size_t qr_cbor_encode_text(unsigned char *out, quire_bytes text)
{
    return (size_t)(put_string(out, MAJOR_TEXT, text) - out);
}
