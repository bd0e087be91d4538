#include "hash/cbor.h"

enum {
    MAJOR_UINT = 0x00,
    MAJOR_NEGATIVE = 0x20,
    MAJOR_BYTES = 0x40,
    MAJOR_TEXT = 0x60,
    MAJOR_ARRAY = 0x80,
    CBOR_NULL = 0xf6,
    HEAD_1_BYTE = 24, /* then 2, 4, 8 bytes: 25, 26, 27 */
    UNCLEAR = 1
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

/* What to write for a number by its length in bits: the head, the factor that shifts the number to
 * its place in or behind it, and how many bytes count. Two lengths do not tell, and are marked in a
 * bit that is not among the bytes that count: 16 to 23 are their own heads, 24 to 31 are not; and
 * 32 bits are those of a negative number. */
#define CBOR_EIGHT(x) x, x, x, x, x, x, x, x
#define CBOR_FORMS(own, unclear, one, two, four, negative)                                         \
    {                                                                                              \
        own, own, own, own, own, unclear, one, one, one, CBOR_EIGHT(two), CBOR_EIGHT(four), four,  \
            four, four, four, four, four, four, negative                                           \
    }
#define CBOR_HEAD(n) ((uint64_t)(HEAD_1_BYTE + (n)) << 56)
static const uint64_t TOKEN_HEAD[33] =
    CBOR_FORMS(0, UNCLEAR, CBOR_HEAD(0), CBOR_HEAD(1), CBOR_HEAD(2), UNCLEAR);
static const uint64_t TOKEN_FACTOR[33] =
    CBOR_FORMS(UINT64_C(1) << 56, 0, UINT64_C(1) << 48, UINT64_C(1) << 40, UINT64_C(1) << 24, 0);
static const uint8_t TOKEN_BYTES[33] = CBOR_FORMS(1, 1, 2, 3, 5, 1);

/* A token id. Ids are as good as random: a branch on their size would be mispredicted at every
 * other token, so the form comes from tables. *seen collects the mark. */
static inline unsigned char *put_token(unsigned char *p, uint32_t token, uint64_t *seen)
{
    uint64_t v = token;
    uint64_t bits = 63u ^ (uint64_t)__builtin_clzll(2 * v + 1);
    uint64_t word = TOKEN_HEAD[bits] | v * TOKEN_FACTOR[bits];
    *seen |= word;
    qr_store_u64(p, qr_be_u64(word));
    return p + TOKEN_BYTES[bits];
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
    case QUIRE_KEY_LORA_PATH:
    default:
        return put_string(p, MAJOR_TEXT, key->value);
    }
}

static unsigned char *cbor_tagged_key(unsigned char *p, const qr_hash_input *in, size_t i)
{
    const quire_extra_key *key = &in->keys[i];
    bool is_lora = key->kind == QUIRE_KEY_LORA_NAME;
    bool is_feature = key->kind == QUIRE_KEY_MM_FEATURE;
    bool is_digest = key->kind == QUIRE_KEY_PROMPT_EMBEDS;
    if (key->kind == QUIRE_KEY_LORA_PATH)
        return p; /* written with the name */
    p = put_head(p, MAJOR_ARRAY, is_lora || is_feature ? 3 : 2);
    p = put_string(p, MAJOR_TEXT, QR_KEY_TAGS[key->kind]);
    p = put_string(p, is_digest ? MAJOR_BYTES : MAJOR_TEXT, key->value);
    if (is_feature)
        p = put_int(p, key->offset);
    if (is_lora)
        p = put_string(p, MAJOR_TEXT,
                       qr_hash_has_path(in, i) ? in->keys[i + 1].value : (quire_bytes){"", 0});
    return p;
}

static inline unsigned char *put_four_tokens(unsigned char *p, const int32_t *tokens,
                                             uint64_t *seen)
{
    p = put_token(p, (uint32_t)tokens[0], seen);
    p = put_token(p, (uint32_t)tokens[1], seen);
    p = put_token(p, (uint32_t)tokens[2], seen);
    return put_token(p, (uint32_t)tokens[3], seen);
}

/* All tokens by their tables, eight at a time; NULL when one was unclear. */
static inline unsigned char *put_clear_tokens(unsigned char *p, const int32_t *tokens, size_t n)
{
    uint64_t seen = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        p = put_four_tokens(p, tokens + i, &seen);
        p = put_four_tokens(p, tokens + i + 4, &seen);
    }
    for (; i < n; i++)
        p = put_token(p, (uint32_t)tokens[i], &seen);
    return (seen & UNCLEAR) == 0 ? p : NULL;
}

static unsigned char *cbor_tokens(unsigned char *p, const qr_hash_input *in)
{
    const int32_t *tokens = in->tokens;
    unsigned char *end = tokens != NULL ? put_clear_tokens(p, tokens, in->num_tokens) : NULL;
    if (QR_LIKELY(end != NULL))
        return end;
    for (size_t i = 0; i < in->num_tokens; i++)
        p = put_int(p, tokens != NULL ? tokens[i] : in->tokens64[i]);
    return p;
}

/* Parent and tokens; gives the end. */
static unsigned char *cbor_begin(qr_message *out, const qr_hash_input *input)
{
    unsigned char *p = put_head(out->bytes, MAJOR_ARRAY, 3);
    p = put_head(p, MAJOR_BYTES, input->parent_len);
    out->parent_at = (size_t)(p - out->bytes);
    p += input->parent_len;
    p = put_head(p, MAJOR_ARRAY, input->num_tokens);
    return cbor_tokens(p, input);
}

void qr_cbor_encode(qr_message *out, const qr_hash_input *input)
{
    unsigned char *p = cbor_begin(out, input);
    if (input->num_keys == 0)
        *p++ = CBOR_NULL;
    else
        p = put_head(p, MAJOR_ARRAY, input->num_keys);
    for (size_t i = 0; i < input->num_keys; i++)
        p = cbor_key(p, &input->keys[i]);
    out->len = (size_t)(p - out->bytes);
}

void qr_cbor_encode_tagged(qr_message *out, const qr_hash_input *input)
{
    unsigned char *p = cbor_begin(out, input);
    p = put_head(p, MAJOR_ARRAY, qr_hash_num_tagged(input));
    for (size_t i = 0; i < input->num_keys; i++)
        p = cbor_tagged_key(p, input, i);
    out->len = (size_t)(p - out->bytes);
}

void qr_cbor_encode_text(qr_message *out, quire_bytes text)
{
    out->len = (size_t)(put_string(out->bytes, MAJOR_TEXT, text) - out->bytes);
}
