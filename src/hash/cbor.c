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

/* What to write for a number of 24 or more, by the place of its highest bit: the head, the factor
 * that shifts the number to its place behind it, and how many bytes count. */
#define CBOR_EIGHT(x) x, x, x, x, x, x, x, x
#define HEAD(n)       ((uint64_t)(HEAD_1_BYTE + (n)) << 56)
static const uint64_t TOKEN_HEAD[32] = {CBOR_EIGHT(HEAD(0)), CBOR_EIGHT(HEAD(1)),
                                        CBOR_EIGHT(HEAD(2)), CBOR_EIGHT(HEAD(2))};
static const uint64_t TOKEN_FACTOR[32] = {
    CBOR_EIGHT(UINT64_C(1) << 48), CBOR_EIGHT(UINT64_C(1) << 40), CBOR_EIGHT(UINT64_C(1) << 24),
    CBOR_EIGHT(UINT64_C(1) << 24)};
static const uint8_t TOKEN_BYTES[32] = {CBOR_EIGHT(2), CBOR_EIGHT(3), CBOR_EIGHT(5), CBOR_EIGHT(5)};

/* A token id of 24 or more. Ids are as good as random: a branch on their size would be mispredicted
 * at every other token, so its form comes from tables. */
static inline unsigned char *put_token(unsigned char *p, uint32_t v)
{
    uint32_t top = 31u ^ (uint32_t)__builtin_clz(v);
    qr_store_u64(p, qr_be_u64(TOKEN_HEAD[top] | v * TOKEN_FACTOR[top]));
    return p + TOKEN_BYTES[top];
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

static unsigned char *cbor_key(unsigned char *p, const quire_extra_key *key)
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

/* Whether all ids are 24 or more: the sign of id - 24, and of the id itself lest that wraps around.
 */
static inline bool all_common(const int32_t *tokens, size_t n)
{
    uint32_t signs = 0;
    for (size_t i = 0; i < n; i++)
        signs |= (uint32_t)tokens[i] | ((uint32_t)tokens[i] - HEAD_1_BYTE);
    return signs >> 31 == 0;
}

static unsigned char *cbor_tokens(unsigned char *p, const qr_hash_input *in)
{
    if (in->tokens != NULL && all_common(in->tokens, in->num_tokens))
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
    p = cbor_tokens(p, input);
    if (input->num_keys == 0)
        *p++ = CBOR_NULL;
    else
        p = put_head(p, MAJOR_ARRAY, input->num_keys);
    for (size_t i = 0; i < input->num_keys; i++)
        p = cbor_key(p, &input->keys[i]);
    out->len = (size_t)(p - out->bytes);
}

void qr_cbor_encode_text(qr_message *out, quire_bytes text)
{
    out->len = (size_t)(put_string(out->bytes, MAJOR_TEXT, text) - out->bytes);
}
