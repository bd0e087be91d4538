#include "hash/safe.h"

#include "hash/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TAG_END = 0x00, TAG_PARENT = 0x01, TAG_TOKENS = 0x02, TAG_TOKENS64 = 0x03, TAG_KEY = 0x10 };
enum { COMMON_BLOCK_SIZE = 16 };

static const char BLOCK_DOMAIN[] = "quire/block/1";
static const char SEED_DOMAIN[] = "quire/seed/1";

static unsigned char *put_u64(unsigned char *p, uint64_t v)
{
    qr_store_u64(p, v);
    return p + 8;
}

static unsigned char *put_data(unsigned char *p, const void *data, size_t len)
{
    if (len > 0)
        memcpy(p, data, len);
    return p + len;
}

static unsigned char *put_tagged(unsigned char *p, int tag, quire_bytes bytes)
{
    *p++ = (unsigned char)tag;
    p = put_u64(p, bytes.len);
    return put_data(p, bytes.data, bytes.len);
}

static unsigned char *put_ids32(unsigned char *p, const int32_t *tokens, size_t n)
{
    return put_data(p, tokens, n * sizeof *tokens);
}

static bool need_64_bits(const qr_hash_input *in)
{
    if (in->tokens != NULL)
        return false;
    for (size_t i = 0; i < in->num_tokens; i++)
        if (in->tokens64[i] < INT32_MIN || in->tokens64[i] > INT32_MAX)
            return true;
    return false;
}

/* The same ids give the same bytes, whichever way they were passed in. */
static unsigned char *put_ids(unsigned char *p, const qr_hash_input *in, bool wide)
{
    if (in->tokens != NULL)
        return put_ids32(p, in->tokens, in->num_tokens);
    for (size_t i = 0; i < in->num_tokens; i++) {
        int32_t narrow = (int32_t)in->tokens64[i];
        p = wide ? put_u64(p, (uint64_t)in->tokens64[i]) : put_ids32(p, &narrow, 1);
    }
    return p;
}

static unsigned char *put_safe_keys(unsigned char *p, const qr_hash_input *in)
{
    for (size_t i = 0; i < in->num_keys; i++) {
        p = put_tagged(p, TAG_KEY + (int)in->keys[i].kind, in->keys[i].value);
        if (in->keys[i].kind == QUIRE_KEY_MM_FEATURE)
            p = put_u64(p, (uint64_t)in->keys[i].offset);
    }
    return p;
}

void qr_safe_encode(qr_message *out, const qr_hash_input *input)
{
    bool wide = need_64_bits(input);
    unsigned char *p = put_data(out->bytes, BLOCK_DOMAIN, sizeof BLOCK_DOMAIN - 1);
    *p++ = TAG_PARENT;
    p = put_u64(p, input->parent_len);
    out->parent_at = (size_t)(p - out->bytes);
    p += input->parent_len;
    *p++ = wide ? TAG_TOKENS64 : TAG_TOKENS;
    p = put_u64(p, input->num_tokens);
    p = put_ids(p, input, wide);
    p = put_safe_keys(p, input);
    *p++ = TAG_END;
    out->len = (size_t)(p - out->bytes);
}

void qr_safe_encode_text(qr_message *out, quire_bytes text)
{
    unsigned char *p = put_data(out->bytes, SEED_DOMAIN, sizeof SEED_DOMAIN - 1);
    out->len = (size_t)(put_tagged(p, TAG_PARENT, text) - out->bytes);
}

/* The last word of a raw message. */
static uint64_t raw_trailer(size_t parent_len, size_t num_tokens, size_t num_keys, bool wide)
{
    return (uint64_t)wide << 63 | (uint64_t)parent_len << 48 | (uint64_t)num_keys << 24 |
           num_tokens;
}

void qr_raw_encode(qr_message *out, const qr_hash_input *input)
{
    bool wide = need_64_bits(input);
    out->parent_at = 0;
    unsigned char *p = put_ids(out->bytes + input->parent_len, input, wide);
    p = put_safe_keys(p, input);
    p = put_u64(p, raw_trailer(input->parent_len, input->num_tokens, input->num_keys, wide));
    out->len = (size_t)(p - out->bytes);
}

static inline void hash_run(const unsigned char *secret, const unsigned char *parent,
                            const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                            unsigned char *buffer, unsigned char *digests)
{
    size_t token_bytes = (size_t)block_size * sizeof *tokens;
    size_t len = QR_XXH128_BYTES + token_bytes + sizeof(uint64_t);
    uint64_t first = qr_load_u64(parent);
    uint64_t second = qr_load_u64(parent + 8);
    qr_store_u64(buffer + len - 8, raw_trailer(QR_XXH128_BYTES, block_size, 0, false));
    for (size_t i = 0; i < num_blocks; i++) {
        qr_store_u64(buffer, first);
        qr_store_u64(buffer + 8, second);
        memcpy(buffer + QR_XXH128_BYTES, tokens + i * block_size, token_bytes);
        XXH128_hash_t hash = XXH3_128bits_withSecret(buffer, len, secret, QR_XXH_SECRET_BYTES);
        first = qr_be_u64(hash.high64);
        second = qr_be_u64(hash.low64);
        qr_store_u64(digests + i * QR_XXH128_BYTES, first);
        qr_store_u64(digests + i * QR_XXH128_BYTES + 8, second);
    }
}

void qr_quire128_run(const unsigned char *secret, const unsigned char *parent,
                     const quire_token *tokens, uint32_t block_size, size_t num_blocks,
                     unsigned char *buffer, unsigned char *digests)
{
    /* With the size known, the compiler makes the copy and the hash one straight piece of code. */
    if (block_size == COMMON_BLOCK_SIZE)
        hash_run(secret, parent, tokens, COMMON_BLOCK_SIZE, num_blocks, buffer, digests);
    else
        hash_run(secret, parent, tokens, block_size, num_blocks, buffer, digests);
}
