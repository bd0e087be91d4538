/* tier/core/block_key.h - the key of a block, from the hashes of its request.
 *
 *      hashes    | h0 | h1 | h2 | h3 |           two hashes in a block: blocks 0 and 1
 *      joined      h0 h1     h2 h3               all of them, one behind the other
 *      by_last          h1        h3             the last one, which stands for all before it
 */
#ifndef QR_TIER_CORE_BLOCK_KEY_H
#define QR_TIER_CORE_BLOCK_KEY_H

#include <quire/hash.h>

#include <stdbool.h>

typedef struct qr_key_form {
    uint32_t joined; /* hashes of a block */
    uint32_t digest_bytes;
    bool by_last;
} qr_key_form;

static inline uint32_t qr_block_key_len(qr_key_form form)
{
    return form.by_last ? form.digest_bytes : form.joined * form.digest_bytes;
}

static inline quire_bytes qr_block_key(qr_key_form form, const unsigned char *hashes,
                                       uint32_t block)
{
    size_t skipped = (size_t)block * form.joined + (form.by_last ? form.joined - 1 : 0);
    return (quire_bytes){hashes + skipped * form.digest_bytes, qr_block_key_len(form)};
}

#endif
