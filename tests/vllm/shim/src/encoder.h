/* encoder.h - a qr_encoder (sched/encoder/encoder.h) that grows. */
#ifndef QUIRE_PYTHON_VLLM_ENCODER_H
#define QUIRE_PYTHON_VLLM_ENCODER_H

#include "shim.h"

#include "sched/encoder/encoder.h"

/* -1 and an exception without memory. */
extern int vllm_encoder_make(const qr_encoder_config *config, qr_encoder *encoder, void **memory);
extern void vllm_encoder_free(void *memory);

/* Room for one item more, with a name of this length. */
extern int vllm_encoder_reserve(qr_encoder *encoder, void **memory, size_t name_bytes);

/* An item's name and size; the name lies in the encoder. */
extern qr_feature vllm_encoder_feature(const qr_encoder *encoder, uint32_t slot);

#endif
