/* engine/cuda/card.h - the GPU of this process: driver, context, the engine's kernels.
 *
 *      backends ──► one card: the context stays, and kernels are compiled once
 *               ──► seats: a stream and the quire_cuda on it, one for each backend that lives
 *
 * A proof makes hundreds of backends, and starting a context takes longer than all that one of them
 * computes. So this is the one thing that they share. Seats are used again, since the driver
 * compiles the kernels of each quire_cuda.
 *
 * Threads: any.
 */
#ifndef ENGINE_CUDA_CARD_H
#define ENGINE_CUDA_CARD_H

#include "engine/cuda/kernels.h"
#include "tier/device/cuda/driver.h"

#include <quire/device_cuda.h>

/* The kernels, for the driver; "" where no compiler for them was there. */
extern const char engine_ptx[];
extern const size_t engine_ptx_bytes;

typedef struct engine_card {
    qr_cuda_driver driver;
    qr_cu_context context;
    qr_cu_module module;
#define ENGINE_FUNCTION(kernel, type) qr_cu_function kernel;
    ENGINE_KERNELS(ENGINE_FUNCTION)
#undef ENGINE_FUNCTION
} engine_card;

/* The same each time, and never given back. NULL: there is none, and quire_refusal() says why. */
const engine_card *engine_card_get(void);

typedef struct engine_seat {
    qr_cu_stream stream;
    quire_cuda *cuda; /* NULL: none */
} engine_seat;

/* QUIRE_OK, or what quire_cuda_open says. */
int engine_seat_take(const engine_card *card, engine_seat *seat);
/* Nothing is left on it. One that is broken is thrown away; none is fine. */
void engine_seat_give(const engine_card *card, engine_seat *seat);

/* Makes the card's context the calling thread's, until leave. 0, or 1: the driver does not. */
int engine_card_enter(const engine_card *card);
void engine_card_leave(const engine_card *card);

#endif
