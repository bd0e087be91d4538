/* parity/vllm_offload.h - vLLM 0.20.0's SimpleCPUOffloadScheduler as a quire_connector: what
 * Quire's scheduler, cache and pools decide with it is compared with recordings.
 *
 *      eager   blocks of the requests of a step, request by request, as far as they were computed
 *      lazy    a cursor over the engine's free queue, which goes on where it was
 *
 * Stores get CPU blocks when they are chosen and keys when all workers have reported them; blocks
 * on the way have one user more in both pools. quire_offload decides otherwise: see its header.
 */
#ifndef PARITY_VLLM_OFFLOAD_H
#define PARITY_VLLM_OFFLOAD_H

#include <quire/offload.h>

#include <stdbool.h>

typedef struct vllm_offload vllm_offload;

/* sched: the config that the scheduler `bound` was made with. NULL: it cannot be made. */
vllm_offload *vllm_offload_create(const quire_sched_config *sched, quire_sched *bound,
                                  uint32_t num_cpu_blocks, bool is_lazy, uint32_t num_workers);
void vllm_offload_destroy(vllm_offload *o);
const quire_connector *vllm_offload_connector(vllm_offload *o);
quire_cache *vllm_offload_cache(vllm_offload *o);
/* Requests whose loads are there, and reports of stores; false: one is not on the way. */
bool vllm_offload_tell(vllm_offload *o, const quire_offload_report *report);
/* Puts what has ended into the output of an update. */
void vllm_offload_poll(vllm_offload *o, quire_model_output *output);
bool vllm_offload_has_pending(const vllm_offload *o);

#endif
