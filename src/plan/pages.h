/* plan/pages.h - a layer as vLLM 0.32 counts it: the bytes of a page, which layers merge, which are
 * of one type, and the most pages of a request. (group/spec.h is the same for vLLM 0.20.)
 *
 *      real page   heads x states x bytes of a state
 *      page        the real page, padded to page_size_padded or to the alignment
 *
 *      kind        heads        states                        bytes of a state
 *      attention   KV heads     tokens of a block             key and value, and two scales
 *        NVFP4     2 KV heads   tokens of a block             a key or a value with its scales
 *      latent,     KV heads     tokens / compress_ratio       one vector, or 656 or 584 bytes
 *      hidden
 *      Mamba       1            1                             all states of the layer
 *
 * Specs are resolved (qr_page_resolve): defaults filled in, zeros where a kind has no such field.
 */
#ifndef QR_PLAN_PAGES_H
#define QR_PLAN_PAGES_H

#include "group/spec.h"

typedef struct qr_page_shape {
    uint64_t heads;
    uint64_t states;
    uint64_t state_bytes;
} qr_page_shape;

/* QUIRE_OK, or QUIRE_E_CONFIG and a sentence: the spec is invalid, or vLLM 0.32 has no such layer.
 */
int qr_page_check(const quire_layer_spec *spec);
quire_layer_spec qr_page_resolve(const quire_layer_spec *spec);

qr_page_shape qr_page_shape_of(const quire_layer_spec *spec);
/* 0 if a padding is smaller than the real page. */
uint64_t qr_page_bytes(const quire_layer_spec *spec);
uint64_t qr_page_real_bytes(const quire_layer_spec *spec);

bool qr_page_equal(const quire_layer_spec *a, const quire_layer_spec *b);
/* The same layer with another block size or padding; an alignment is applied anew. */
quire_layer_spec qr_page_with_block_size(const quire_layer_spec *spec, uint32_t block_size);
quire_layer_spec qr_page_with_padding(const quire_layer_spec *spec, uint64_t page_size_padded);

/* One spec for all layers of a group. QR_MERGE_REFUSED: full layers with different windows or
 * chunks, which vLLM takes for an error where all layers of the model are merged. */
qr_merge qr_page_try_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                           quire_layer_spec *merged);
/* Whether a layer is of the type that the first layer of a group has: they then need the same
 * number of blocks for the same tokens. The order of the two matters. */
bool qr_page_joins_type(const quire_layer_spec *first, const quire_layer_spec *spec);

/* What bounds one request. */
typedef struct qr_page_limits {
    uint32_t max_model_len;
    uint32_t max_in_flight_tokens;
    uint32_t max_encoder_tokens;
    uint32_t dcp_world_size;
    uint32_t extra_retained_tokens; /* that window layers keep behind the window */
} qr_page_limits;

/* The most pages that one request needs in one layer. */
uint64_t qr_page_most(const quire_layer_spec *spec, const qr_page_limits *limits);

#endif
