/* plan/model.h - what the layers of a known model are.
 *
 *      family      layers                                              models
 *      PLAIN       attention, all with the window or without           Llama, Mistral, Phi
 *      QWEN        as PLAIN; the window must be switched on            Qwen2, Qwen3
 *      ALTERNATE   every second layer has a window, from the first     Gemma 2, gpt-oss
 *      PATTERN     every n-th layer is full, the others have a window  Gemma 3
 *      CHUNKED     every n-th layer is full, the others are chunked    Llama 4
 *      LATENT      MLA, with or without an index                       DeepSeek
 *      JAMBA, BAMBA, NEMOTRON, QWEN_NEXT   attention and Mamba         their own patterns
 *      WHISPER     self-attention and cross-attention, in turn         Whisper
 */
#ifndef QR_PLAN_MODEL_H
#define QR_PLAN_MODEL_H

#include "base/bits.h"

#include <quire/model.h>

/* Reads the caller's params and fills what is common to all models. */
int qr_model_params_read(quire_model_params *out, const quire_model_params *params);
/* As quire_model_layers, with params that were read. */
int qr_model_layers(const quire_model_params *params, quire_layer_spec *layers, uint32_t capacity,
                    uint32_t *num_layers);

#endif
