/* engine/reference.h - what the model says without any of Quire: one request, one contiguous cache.
 *
 *      cache   [layer][position][2][num_kv_heads][head_size]       positions one after the other
 *
 * No blocks, no tables, no batch. What the engine computes is compared with this, bit for bit.
 */
#ifndef ENGINE_REFERENCE_H
#define ENGINE_REFERENCE_H

#include "engine/token.h"

typedef struct engine_reference engine_reference;

engine_reference *engine_reference_create(const engine_model *model, uint32_t num_caches);
void engine_reference_destroy(engine_reference *reference);
/* See engine_backend_ops. */
int engine_reference_run(engine_reference *reference, uint32_t at, uint32_t first_position,
                         const quire_token *tokens, uint32_t num_tokens, uint32_t num_logits,
                         float *logits);
int engine_reference_copy(engine_reference *reference, uint32_t from, uint32_t to,
                          uint32_t num_tokens);

#endif
