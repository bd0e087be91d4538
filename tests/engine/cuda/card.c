#include "engine/cuda/card.h"

#include "base/refuse.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { MOST_SEATS = 64 };

/* The lock is for all of it. */
static pthread_mutex_t card_lock = PTHREAD_MUTEX_INITIALIZER;
static engine_card the_card;
static bool has_card;
static engine_seat free_seats[MOST_SEATS];
static uint32_t num_free_seats;

static bool is_done(const engine_card *card, qr_cu_result result, const char *what)
{
    char text[120];
    if (result == QR_CU_SUCCESS)
        return true;
    qr_cuda_describe(&card->driver, result, text, sizeof text);
    qr_say("%s: %s", what, text);
    return false;
}

static bool load_kernels(engine_card *card)
{
    const qr_cuda_calls *cu = &card->driver.calls;
    if (!is_done(card, cu->cuModuleLoadDataEx(&card->module, engine_ptx, 0, NULL, NULL),
                 "the kernels"))
        return false;
#define FIND_FUNCTION(kernel, type)                                                                \
    if (!is_done(card, cu->cuModuleGetFunction(&card->kernel, card->module, #kernel), #kernel))    \
        return false;
    ENGINE_KERNELS(FIND_FUNCTION)
#undef FIND_FUNCTION
    return true;
}

static bool open_card(engine_card *card)
{
    const qr_cuda_calls *cu = &card->driver.calls;
    qr_cu_device device;
    if (engine_ptx_bytes <= 1) {
        (void)quire_refuse(QUIRE_OK, "built without a compiler for GPUs: nvcc, or clang");
        return false;
    }
    if (qr_cuda_driver_open(&card->driver, NULL) != 0)
        return false;
    if (is_done(card, cu->cuDeviceGet(&device, 0), "GPU 0") &&
        is_done(card, cu->cuDevicePrimaryCtxRetain(&card->context, device), "its context")) {
        bool has_entered = engine_card_enter(card) == 0;
        bool is_loaded = has_entered && load_kernels(card);
        if (has_entered)
            engine_card_leave(card);
        if (is_loaded)
            return true;
        (void)cu->cuDevicePrimaryCtxRelease(device);
    }
    qr_cuda_driver_close(&card->driver);
    return false;
}

const engine_card *engine_card_get(void)
{
    (void)quire_refuse(QUIRE_OK, "the GPU's context cannot be used");
    (void)pthread_mutex_lock(&card_lock);
    if (!has_card)
        has_card = open_card(&the_card);
    const engine_card *card = has_card ? &the_card : NULL;
    (void)pthread_mutex_unlock(&card_lock);
    return card;
}

int engine_card_enter(const engine_card *card)
{
    return card->driver.calls.cuCtxPushCurrent(card->context) == QR_CU_SUCCESS ? 0 : 1;
}

void engine_card_leave(const engine_card *card)
{
    qr_cu_context context;
    (void)card->driver.calls.cuCtxPopCurrent(&context);
}

/* ---- seats ----------------------------------------------------------------- */

static int open_seat(const engine_card *card, engine_seat *seat)
{
    const qr_cuda_calls *cu = &card->driver.calls;
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    if (engine_card_enter(card) != 0)
        return QUIRE_E_SYSTEM;
    bool has_stream =
        is_done(card, cu->cuStreamCreateWithPriority(&seat->stream, QR_CU_STREAM_NON_BLOCKING, 0),
                "a stream");
    config.stream = seat->stream;
    config.kernels = QUIRE_ON; /* tables need them */
    int status = QUIRE_E_SYSTEM;
    if (has_stream)
        status = quire_cuda_open(&config, NULL, &seat->cuda);
    if (has_stream && status != QUIRE_OK)
        (void)cu->cuStreamDestroy(seat->stream);
    engine_card_leave(card);
    return status;
}

int engine_seat_take(const engine_card *card, engine_seat *seat)
{
    *seat = (engine_seat){0};
    (void)pthread_mutex_lock(&card_lock);
    if (num_free_seats > 0)
        *seat = free_seats[--num_free_seats];
    (void)pthread_mutex_unlock(&card_lock);
    return seat->cuda != NULL ? QUIRE_OK : open_seat(card, seat);
}

void engine_seat_give(const engine_card *card, engine_seat *seat)
{
    if (seat->cuda == NULL)
        return;
    bool is_kept = quire_cuda_get_info(seat->cuda)->is_broken == 0;
    (void)pthread_mutex_lock(&card_lock);
    is_kept = is_kept && num_free_seats < MOST_SEATS;
    if (is_kept)
        free_seats[num_free_seats++] = *seat;
    (void)pthread_mutex_unlock(&card_lock);
    if (!is_kept) {
        quire_cuda_close(seat->cuda);
        if (engine_card_enter(card) == 0) {
            (void)card->driver.calls.cuStreamDestroy(seat->stream);
            engine_card_leave(card);
        }
    }
    *seat = (engine_seat){0};
}
