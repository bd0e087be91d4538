/* plan/tuples.h - groups of a model whose latent layers have several page sizes and windows
 * (DeepSeek V4).
 *
 *      group 0   all MLA layers; their page sizes are the sizes that there are
 *                    a a a        3 layers of page size A         3 tuples (a b)
 *                    b b          2 of page size B
 *      group 1.. window layers of one block size and window, each padded to the next of the sizes,
 *                cut into groups of about as many tuples as group 0 has
 */
#ifndef QR_PLAN_TUPLES_H
#define QR_PLAN_TUPLES_H

#include "plan/plan.h"

/* As qr_plan_make_groups, for layers some of which are SLIDING_WINDOW_MLA. */
int qr_plan_group_by_tuples(quire_plan *plan);

/* The sum of the page sizes that layers have, each once. */
uint64_t qr_plan_tuple_bytes(const quire_plan *plan, qr_layers layers);
/* How many layers have the page size that most have. */
uint32_t qr_plan_num_tuples(const quire_plan *plan, qr_layers layers);

/* The index-th of the layers that have this page size, or QR_NIL. */
uint32_t qr_plan_layer_of_size(const quire_plan *plan, qr_layers layers, uint64_t page_bytes,
                               uint32_t index);

/* Pages that layers have, from the smallest up: the next one above page_bytes, or 0. */
uint64_t qr_plan_next_page(const quire_plan *plan, qr_layers layers, uint64_t page_bytes);

#endif
