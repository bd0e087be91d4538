/* shim.h - what the files of _quire_shim share. */
#ifndef QUIRE_SHIM_H
#define QUIRE_SHIM_H

#include "dropin/vllm.h"

/* module.c: whether an object is a core of quire._vllm; 0 with an exception. */
extern int shim_is_core(PyObject *object);

/* ring.c, heap.c: vLLM's queues of requests */
extern PyObject *vllm_ring_make_type(PyObject *module);
extern PyObject *vllm_heap_make_type(PyObject *module);

/* encoder.c */
extern PyObject *vllm_encoder_make_type(PyObject *module);

/* edit.c: changing a core from outside */
extern PyObject *vllm_core_edit(PyObject *self, PyObject *args);
extern PyObject *vllm_core_flags(PyObject *self, PyObject *number);
extern PyObject *vllm_core_cache_blocks(PyObject *self, PyObject *args);
extern PyObject *vllm_core_leave(PyObject *self, PyObject *args);
extern PyObject *vllm_core_enqueue(PyObject *self, PyObject *args);

/* look.c: what tests of 0.32 look at */
extern PyObject *shim_fences(vllm_core *core);
extern PyObject *shim_peek_stats(vllm_core *core);
extern PyObject *shim_peek_step(vllm_core *core);
extern PyObject *shim_align(vllm_core *core, uint32_t num_tokens);
extern PyObject *shim_drop_skipped(vllm_core *core, quire_req req);
extern PyObject *shim_preempt(vllm_core *core, quire_req req, int drops);

/* images.c: a core's encoder cache */
extern PyObject *vllm_core_images(PyObject *self);
extern PyObject *vllm_core_take_image(PyObject *self, PyObject *args);
extern PyObject *vllm_core_image_inputs(PyObject *self, PyObject *args);
extern PyObject *vllm_core_free_images(PyObject *self, PyObject *args);
extern PyObject *vllm_core_find_image(PyObject *self, PyObject *args);
extern PyObject *vllm_core_image_fits(PyObject *self, PyObject *args);
extern PyObject *vllm_core_set_image_room(PyObject *self, PyObject *args);

/* seed.c: a core's cache, filled from outside */
extern PyObject *vllm_core_seed(PyObject *self, PyObject *args);
extern PyObject *vllm_core_unseed(PyObject *self, PyObject *args);
extern PyObject *vllm_core_evict(PyObject *self, PyObject *args);
extern PyObject *vllm_core_hits_alone(PyObject *self, PyObject *args);

#endif
