/* engine/cuda/flaky.h - a device whose jobs fail now and then.
 *
 *      submit ──► some of the copies ──► the real device ──► poll: QUIRE_E_SYSTEM
 *
 * A job that fails has made a part of its copies, so whoever uses what it left is found out.
 */
#ifndef ENGINE_CUDA_FLAKY_H
#define ENGINE_CUDA_FLAKY_H

#include <quire/device.h>

enum { ENGINE_FLAKY_MOST = 64 };

typedef struct engine_flaky_job {
    quire_device_job *job; /* NULL: free */
    uint32_t num_copies;   /* as the caller has it */
    uint32_t is_ended;     /* no copy at all: the real device has never seen it */
} engine_flaky_job;

typedef struct engine_flaky {
    quire_device outer;
    quire_device *inner;
    uint32_t fail_per_mille; /* may change at any time */
    uint64_t random;
    engine_flaky_job jobs[ENGINE_FLAKY_MOST];
} engine_flaky;

/* The outer device; inner stays the caller's. Both must stay where they are. */
const quire_device *engine_flaky_open(engine_flaky *flaky, quire_device *inner);

#endif
