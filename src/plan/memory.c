#include "plan/memory.h"

#include "base/assert.h"
#include "plan/tuples.h"

static bool pages_differ(const quire_plan *plan)
{
    return plan->shape == QR_PLAN_ONE_TYPE || plan->shape == QR_PLAN_TUPLES;
}

static uint64_t sum_of_pages(const quire_plan *plan, qr_layers layers)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        bytes = qr_add_u64(bytes, qr_plan_page_bytes(plan, layers.ids[i]));
    return bytes;
}

uint64_t qr_plan_part_page_bytes(const quire_plan *plan, const qr_plan_share *share, uint32_t group)
{
    if (pages_differ(plan))
        return sum_of_pages(plan, share->parts[group].counted);
    return qr_spec_page_bytes(&plan->groups[group].spec);
}

static uint32_t largest_part(const quire_plan *plan, const qr_plan_share *share)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (share->parts[g].layers.count > most)
            most = share->parts[g].layers.count;
    return most;
}

/* The most blocks that one request has of a group. */
static uint64_t most_pages(const quire_plan *plan, const qr_plan_share *share, uint32_t group,
                           const qr_limits *limits)
{
    if (!pages_differ(plan))
        return qr_spec_max_pages(&plan->groups[group].spec, limits);
    uint64_t most = 0;
    qr_layers layers = share->parts[group].counted;
    for (uint32_t i = 0; i < layers.count; i++) {
        uint64_t pages = qr_spec_max_pages(&plan->specs[layers.ids[i]], limits);
        most = pages > most ? pages : most;
    }
    return most;
}

/* Of the group that has most: of the layers that the worker has, or whose pages count. */
static uint32_t most_tuples(const quire_plan *plan, const qr_plan_share *share, bool is_counted)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        const qr_plan_part *part = &share->parts[g];
        uint32_t tuples = qr_plan_num_tuples(plan, is_counted ? part->counted : part->layers);
        most = tuples > most ? tuples : most;
    }
    return most;
}

/* ---- one request ----------------------------------------------------------- */

static uint64_t sum_of_most_bytes(const quire_plan *plan, qr_layers layers, const qr_limits *limits)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        bytes = qr_add_u64(bytes, qr_spec_max_bytes(&plan->specs[layers.ids[i]], limits));
    return bytes;
}

uint64_t qr_plan_needed_bytes(const quire_plan *plan, const qr_plan_share *share,
                              uint32_t max_model_len)
{
    qr_limits limits = plan->limits;
    limits.max_model_len = max_model_len;
    if (plan->shape == QR_PLAN_EMPTY)
        return 0;
    if (plan->shape == QR_PLAN_ONE_TYPE)
        return sum_of_most_bytes(plan, share->parts[0].counted, &limits);
    uint64_t pages = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        pages = qr_add_u64(pages, most_pages(plan, share, g, &limits));
    if (plan->shape == QR_PLAN_TUPLES)
        return qr_mul_u64(qr_mul_u64(most_tuples(plan, share, true), pages),
                          qr_plan_tuple_bytes(plan, share->parts[0].counted));
    return qr_mul_u64(qr_mul_u64(largest_part(plan, share), pages),
                      qr_plan_part_page_bytes(plan, share, 0));
}

uint32_t qr_plan_fitting_len(const quire_plan *plan, const qr_plan_share *share, uint32_t most)
{
    uint64_t left = 1;
    uint64_t right = most;
    uint32_t fitting = 0;
    if (qr_plan_needed_bytes(plan, share, 1) > share->memory_bytes)
        return 0;
    while (left <= right) {
        uint32_t middle = (uint32_t)((left + right) / 2);
        if (qr_plan_needed_bytes(plan, share, middle) <= share->memory_bytes) {
            fitting = middle;
            left = (uint64_t)middle + 1;
        } else {
            right = middle - 1;
        }
    }
    return fitting == 0 ? 1 : fitting;
}

double qr_plan_concurrency(const quire_plan *plan, const qr_plan_share *share)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        bytes = qr_add_u64(bytes, qr_mul_u64(most_pages(plan, share, g, &plan->limits),
                                             qr_plan_part_page_bytes(plan, share, g)));
    uint64_t blocks = qr_cdiv_u64(bytes, qr_plan_part_page_bytes(plan, share, 0));
    return blocks == 0 ? 0.0 : (double)plan->num_blocks / (double)blocks;
}

/* ---- tensors --------------------------------------------------------------- */

static qr_plan_tensor *add_tensor(qr_plan_share *share, uint64_t page_bytes)
{
    qr_plan_tensor *tensor = &share->tensors[share->num_tensors];
    *tensor = (qr_plan_tensor){page_bytes, {share->tensor_layers, 0}};
    if (share->num_tensors > 0) {
        const qr_layers *before = &share->tensors[share->num_tensors - 1].layers;
        tensor->layers.ids = before->ids + before->count;
    }
    share->num_tensors++;
    return tensor;
}

static void share_one_tensor(qr_plan_tensor *tensor, uint32_t layer)
{
    tensor->layers.ids[tensor->layers.count++] = layer;
}

static void make_tuple_tensors(const quire_plan *plan, qr_plan_share *share)
{
    qr_layers sizes = share->parts[0].counted;
    uint32_t tuples = most_tuples(plan, share, false);
    for (uint32_t t = 0; t < tuples; t++)
        for (uint64_t page = qr_plan_next_page(plan, sizes, 0); page > 0;
             page = qr_plan_next_page(plan, sizes, page)) {
            qr_plan_tensor *tensor = add_tensor(share, page);
            for (uint32_t g = 0; g < plan->num_groups; g++) {
                uint32_t layer = qr_plan_layer_of_size(plan, share->parts[g].layers, page, t);
                if (layer != QR_NIL)
                    share_one_tensor(tensor, layer);
            }
        }
}

void qr_plan_make_tensors(const quire_plan *plan, qr_plan_share *share)
{
    share->num_tensors = 0;
    if (plan->shape == QR_PLAN_TUPLES) {
        make_tuple_tensors(plan, share);
        return;
    }
    uint32_t count = largest_part(plan, share);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t page = plan->shape == QR_PLAN_ONE_TYPE
                            ? qr_plan_page_bytes(plan, share->parts[0].layers.ids[i])
                            : qr_plan_part_page_bytes(plan, share, 0);
        qr_plan_tensor *tensor = add_tensor(share, page);
        for (uint32_t g = 0; g < plan->num_groups; g++)
            if (i < share->parts[g].layers.count)
                share_one_tensor(tensor, share->parts[g].layers.ids[i]);
    }
}

uint64_t qr_plan_blocks_in_memory(const quire_plan *plan, const qr_plan_share *share)
{
    uint64_t bytes = 0; /* of one block in all tensors */
    if (plan->shape == QR_PLAN_EMPTY)
        return 1; /* the null block */
    if (plan->shape == QR_PLAN_ONE_TYPE)
        bytes = qr_plan_part_page_bytes(plan, share, 0);
    else if (plan->shape == QR_PLAN_TUPLES)
        bytes = qr_mul_u64(most_tuples(plan, share, false),
                           qr_plan_tuple_bytes(plan, share->parts[0].counted));
    else
        bytes = qr_mul_u64(largest_part(plan, share), qr_plan_part_page_bytes(plan, share, 0));
    qr_assert(bytes > 0);
    return share->memory_bytes / bytes;
}
