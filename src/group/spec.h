/* group/spec.h - what a layer keeps, in numbers: pages, the most that one request needs, and which
 * layers can stand in one group.
 *
 *      real page      what is stored of one block
 *      page           real page + scales, filled up to page_size_padded or to the alignment
 *
 *      real page <= page, and page > 0 for every spec that qr_spec_check accepts
 *
 * A resolved spec has its defaults filled in (head_size_v, compress_ratio, the padding that follows
 * from the alignment) and zeros where its kind has no field: equal layers have equal fields.
 *
 * Sizes saturate at UINT64_MAX, which no memory has: a product that passes 64 bits is never taken
 * for a small one.
 */
#ifndef QR_GROUP_SPEC_H
#define QR_GROUP_SPEC_H

#include "base/bits.h"

#include <quire/layer.h>

static inline uint64_t qr_add_u64(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline uint64_t qr_mul_u64(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* a / b, rounded up; b is not 0. */
static inline uint64_t qr_cdiv_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* QUIRE_OK or QUIRE_E_CONFIG. The functions below take specs for which this is QUIRE_OK; the two
 * page sizes take any, and give 0 for one that is not valid. */
int qr_spec_check(const quire_layer_spec *spec);
uint64_t qr_spec_real_page_bytes(const quire_layer_spec *spec);
uint64_t qr_spec_page_bytes(const quire_layer_spec *spec);

quire_layer_spec qr_spec_resolve(const quire_layer_spec *spec);
bool qr_spec_equal(const quire_layer_spec *a, const quire_layer_spec *b);

/* The same layer with another block size. Its alignment is applied anew; a padding that was given
 * stays, and may then be too small (qr_spec_check). */
quire_layer_spec qr_spec_with_block_size(const quire_layer_spec *spec, uint32_t block_size);

bool qr_spec_is_full(const quire_layer_spec *spec);   /* FULL, TQ_FULL, MLA, SINK_FULL */
bool qr_spec_is_window(const quire_layer_spec *spec); /* SLIDING_WINDOW, SLIDING_WINDOW_MLA */
bool qr_spec_is_mla(const quire_layer_spec *spec);    /* MLA, SLIDING_WINDOW_MLA */

typedef enum qr_merge {
    QR_MERGED,
    QR_MERGE_DIFFER,  /* not layers of one group; they may stand in several */
    QR_MERGE_REFUSED, /* layers that no grouping takes: full ones with different windows or chunks,
                         TQ_FULL and then another full kind */
} qr_merge;

/* One spec for all layers of a group; the kind is that of the first. */
qr_merge qr_spec_try_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                           quire_layer_spec *merged);

/* What bounds one request. */
typedef struct qr_limits {
    uint32_t max_model_len;
    uint32_t max_num_batched_tokens;
    uint32_t max_encoder_tokens;
    uint32_t cp_world_size; /* ranks that share the tokens of a request; 1 or more */
} qr_limits;

/* Blocks of one request at a time, in a group that gives back what is behind: window kinds and
 * CHUNKED_LOCAL. UINT32_MAX for other kinds: no cap. */
uint32_t qr_spec_max_admission_blocks(const quire_layer_spec *spec, uint32_t max_num_batched_tokens,
                                      uint32_t max_model_len);
/* The most pages, and their bytes, that one request needs in one layer. */
uint64_t qr_spec_max_pages(const quire_layer_spec *spec, const qr_limits *limits);
uint64_t qr_spec_max_bytes(const quire_layer_spec *spec, const qr_limits *limits);

#endif
