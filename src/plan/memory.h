/* plan/memory.h - what one request needs on a worker, and what the worker's memory holds.
 *
 *      shape       one request of the maximum length              blocks
 *      ONE_SPEC,   layers of the largest part x page              memory / page / layers of the
 *      PAGES           x sum of the groups' most pages                largest part
 *      ONE_TYPE    sum of the layers' most bytes                  memory / sum of pages
 *      TUPLES      tuples x bytes of a tuple                      memory / (tuples x bytes of a
 *                      x sum of the groups' most pages            tuple)
 *
 * Plans by_layout: plan/placement.h, in every shape.
 */
#ifndef QR_PLAN_MEMORY_H
#define QR_PLAN_MEMORY_H

#include "plan/plan.h"

/* Bytes that a worker needs for one request of max_model_len tokens. */
uint64_t qr_plan_needed_bytes(const quire_plan *plan, const qr_plan_share *share,
                              uint32_t max_model_len);

/* The longest request, up to most, that fits in this memory of a worker: by halving, as vLLM does.
 */
uint32_t qr_plan_fitting_len(const quire_plan *plan, const qr_plan_share *share,
                             uint64_t memory_bytes, uint32_t most);

/* Fills the share's tensors; then its num_blocks, where there is no override. */
void qr_plan_make_tensors(const quire_plan *plan, qr_plan_share *share);
uint64_t qr_plan_blocks_in_memory(const quire_plan *plan, const qr_plan_share *share);

/* Requests of the maximum length that num_blocks hold on this worker. */
double qr_plan_concurrency(const quire_plan *plan, const qr_plan_share *share);

/* Bytes of a page of the group, on this worker: of all its layers together where pages differ. */
uint64_t qr_plan_part_page_bytes(const quire_plan *plan, const qr_plan_share *share,
                                 uint32_t group);

#endif
