#include "plan/placement.h"

#include "base/assert.h"
#include "base/refuse.h"

enum { LAYER, BLOCK, HEAD, TOKEN, CONTENT, NUM_DIMS };

/* From the outermost dimension to the innermost. */
static const struct {
    const char *name;
    uint8_t dims[NUM_DIMS];
} LAYOUTS[] = {
    [QUIRE_KV_LAYOUT_LBNHC] = {"LBNHC", {LAYER, BLOCK, TOKEN, HEAD, CONTENT}},
    [QUIRE_KV_LAYOUT_LBHNC] = {"LBHNC", {LAYER, BLOCK, HEAD, TOKEN, CONTENT}},
    [QUIRE_KV_LAYOUT_LHBNC] = {"LHBNC", {LAYER, HEAD, BLOCK, TOKEN, CONTENT}},
    [QUIRE_KV_LAYOUT_BLHNC] = {"BLHNC", {BLOCK, LAYER, HEAD, TOKEN, CONTENT}},
    [QUIRE_KV_LAYOUT_BLNHC] = {"BLNHC", {BLOCK, LAYER, TOKEN, HEAD, CONTENT}},
    [QUIRE_KV_LAYOUT_BHLNC] = {"BHLNC", {BLOCK, HEAD, LAYER, TOKEN, CONTENT}},
};

bool qr_layout_has_blocks_outermost(quire_kv_layout layout)
{
    return LAYOUTS[layout].dims[0] == BLOCK;
}

/* Whether each page is one run of bytes. */
static bool has_whole_pages(quire_kv_layout layout)
{
    return LAYOUTS[layout].dims[0] != HEAD && LAYOUTS[layout].dims[1] != HEAD;
}

/* ---- bytes ------------------------------------------------------------------ */

/* The spec that counts for a layer of a group. */
static const quire_layer_spec *spec_in(const quire_plan *plan, uint32_t group, uint32_t layer)
{
    return qr_plan_pages_differ(plan, group) ? &plan->specs[layer] : &plan->groups[group].spec;
}

uint64_t qr_placement_block_bytes(const quire_plan *plan, const qr_plan_share *share)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        uint64_t bytes = 0;
        qr_layers layers = share->parts[g].layers;
        for (uint32_t i = 0; i < layers.count; i++)
            bytes = qr_add_u64(bytes, qr_page_bytes(spec_in(plan, g, layers.ids[i])));
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The most blocks of one request, in all groups. */
static uint64_t most_blocks(const quire_plan *plan, const qr_plan_share *share,
                            uint32_t max_model_len)
{
    uint64_t blocks = 0;
    qr_page_limits limits = plan->page_limits;
    limits.max_model_len = max_model_len;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        uint64_t most = 0;
        qr_layers layers = share->parts[g].counted;
        for (uint32_t i = 0; i < layers.count; i++) {
            uint64_t pages = qr_page_most(spec_in(plan, g, layers.ids[i]), &limits);
            most = pages > most ? pages : most;
        }
        blocks = qr_add_u64(blocks, most);
    }
    return blocks;
}

uint64_t qr_placement_needed_bytes(const quire_plan *plan, const qr_plan_share *share,
                                   uint32_t max_model_len)
{
    return qr_mul_u64(share->block_bytes, most_blocks(plan, share, max_model_len));
}

double qr_placement_concurrency(const quire_plan *plan, const qr_plan_share *share)
{
    uint64_t blocks = most_blocks(plan, share, plan->limits.max_model_len);
    return blocks == 0 ? 0.0 : (double)plan->num_blocks / (double)blocks;
}

/* ---- places ----------------------------------------------------------------- */

/* Mixed pages lie side by side: each must be one run of bytes, and with several groups it must lie
 * in its block. */
static int check_layout(const quire_plan *plan, const qr_plan_share *share)
{
    uint64_t page = 0;
    bool differ = false;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        for (uint32_t i = 0; i < share->parts[g].layers.count; i++) {
            uint64_t own = qr_page_bytes(spec_in(plan, g, share->parts[g].layers.ids[i]));
            differ = differ || (page != 0 && own != page);
            page = own;
        }
    bool holds = has_whole_pages(plan->layout) &&
                 (plan->num_groups == 1 || LAYOUTS[plan->layout].dims[0] != LAYER);
    if (!differ || holds)
        return QUIRE_OK;
    return qr_fail(QUIRE_E_MIXED,
                   "kv_layout %s cannot hold pages of several sizes (expected BLHNC "
                   "or BLNHC)",
                   LAYOUTS[plan->layout].name);
}

/* Bytes from one layer, and from one block, to the next. False if the layout cannot pad pages. */
static bool set_strides(const quire_plan *plan, const qr_plan_share *share,
                        const quire_layer_spec *spec, qr_plan_tensor *tensor)
{
    const uint8_t *dims = LAYOUTS[plan->layout].dims;
    qr_page_shape shape = qr_page_shape_of(spec);
    const uint64_t sizes[NUM_DIMS] = {tensor->layers.count, plan->num_blocks, shape.heads,
                                      shape.states, shape.state_bytes};
    uint64_t strides[NUM_DIMS];
    uint64_t stride = 1;
    /* Behind layers, blocks and what lies between them begins the page. */
    uint32_t page_at = NUM_DIMS - 1;
    while (dims[page_at] != LAYER && dims[page_at] != BLOCK)
        page_at--;
    if (spec->page_size_padded > 0 && page_at > 1 && shape.heads > 1)
        return false;
    for (uint32_t i = NUM_DIMS; i-- > 0;) {
        if (i == page_at && stride < spec->page_size_padded)
            stride = spec->page_size_padded;
        strides[dims[i]] = stride;
        if (dims[i] == BLOCK && qr_layout_has_blocks_outermost(plan->layout))
            strides[BLOCK] = share->block_bytes;
        stride = qr_mul_u64(strides[dims[i]], sizes[dims[i]]);
    }
    tensor->layer_stride = strides[LAYER];
    tensor->block_stride = strides[BLOCK];
    return true;
}

static qr_plan_tensor *add_placed_tensor(qr_plan_share *share, uint64_t offset)
{
    qr_plan_tensor *tensor = &share->tensors[share->num_tensors];
    *tensor = (qr_plan_tensor){
        .page_bytes = share->block_bytes, .layers = {share->tensor_layers, 0}, .offset = offset};
    if (share->num_tensors > 0) {
        const qr_layers *before = &share->tensors[share->num_tensors - 1].layers;
        tensor->layers.ids = before->ids + before->count;
    }
    share->num_tensors++;
    return tensor;
}

/* Whether no layer before this one is equal to it. */
static bool is_first_equal(const quire_plan *plan, qr_layers layers, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (qr_page_equal(&plan->specs[layers.ids[i]], &plan->specs[layers.ids[at]]))
            return false;
    return true;
}

/* One tensor for each set of equal layers. If the worker has no layer of a group whose pages
 * differ, vLLM places all layers of the group. */
static bool place_group(const quire_plan *plan, qr_plan_share *share, uint32_t group)
{
    bool differ = qr_plan_pages_differ(plan, group);
    qr_layers layers = differ ? share->parts[group].counted : share->parts[group].layers;
    uint64_t offset = 0;
    for (uint32_t i = 0; i < layers.count; i++) {
        if (differ ? !is_first_equal(plan, layers, i) : i > 0)
            continue;
        const quire_layer_spec *spec = spec_in(plan, group, layers.ids[i]);
        qr_plan_tensor *tensor = add_placed_tensor(share, offset);
        for (uint32_t j = i; j < layers.count; j++)
            if (!differ || qr_page_equal(spec, &plan->specs[layers.ids[j]]))
                tensor->layers.ids[tensor->layers.count++] = layers.ids[j];
        if (!set_strides(plan, share, spec, tensor))
            return false;
        uint64_t step = qr_layout_has_blocks_outermost(plan->layout) ? qr_page_bytes(spec)
                                                                     : tensor->layer_stride;
        offset = qr_add_u64(offset, qr_mul_u64(tensor->layers.count, step));
    }
    return true;
}

int qr_placement_make_tensors(const quire_plan *plan, qr_plan_share *share)
{
    share->num_tensors = 0;
    int err = check_layout(plan, share);
    for (uint32_t g = 0; g < plan->num_groups && err == QUIRE_OK; g++)
        if (!place_group(plan, share, g))
            err = qr_fail(QUIRE_E_MIXED, "kv_layout %s cannot hold padded pages of several heads",
                          LAYOUTS[plan->layout].name);
    return err;
}
