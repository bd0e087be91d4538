/* cuda/kit.h - a GPU for tests: the stand-in, or a real one with --driver PATH.
 *
 * A program that wants a real one and finds none ends with 77: skipped.
 */
#ifndef QUIRE_TESTS_CUDA_KIT_H
#define QUIRE_TESTS_CUDA_KIT_H

#include "base/unit.h"
#include "fake_cuda.h"
#include "tier/device/cuda/gpu.h"

/* Under a sanitizer a look must do: everything is slow there, and the stand-in most of all. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define KIT_IS_SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define KIT_IS_SLOW 1
#endif
#endif
#ifndef KIT_IS_SLOW
#define KIT_IS_SLOW 0
#endif

typedef struct cuda_kit {
    const char *library;            /* NULL: the machine's own driver */
    const fake_cuda_controls *fake; /* NULL: it is real */
    uint32_t num_rounds;            /* --rounds N; 0: the test's own choice */
    bool is_few;                    /* --few: one of each, for tools that make a GPU slow */
    /* between kit_open and kit_close */
    quire_cuda *cuda;
    qr_cu_stream stream; /* the engine's */
    qr_cu_module module;
    qr_cu_function step;
    qr_cu_address surprises;
    void *pinned; /* what small reads go through */
} cuda_kit;

/* Reads --driver stand-in|gpu|PATH, --rounds N and --few. */
void kit_init(cuda_kit *kit, int argc, char **argv);
/* A stream of its own, and the tests' kernel, on a GPU that it opens. */
void kit_open(cuda_kit *kit);
/* Nothing may be left with the stand-in. */
void kit_close(cuda_kit *kit);

/* Waits until the engine's stream has come here. */
void kit_write(cuda_kit *kit, uint64_t address, const void *from, size_t bytes);
void kit_read(cuda_kit *kit, void *to, uint64_t address, size_t bytes);

/* A step of the engine in its stream: spins, checks and writes words; see work.h. */
typedef struct kit_step {
    uint64_t address;
    uint64_t bytes;
    uint32_t spin_us;
    bool has_check;
    uint32_t expected;
    bool has_write;
    uint32_t written;
} kit_step;
void kit_compute(cuda_kit *kit, const kit_step *step);
/* Words that steps found and did not expect, since the last call. */
uint32_t kit_surprises(cuda_kit *kit);

quire_device_job *kit_wait_for_job(quire_device *device);
void kit_submit(quire_device *device, quire_device_job *job, quire_device_op op,
                quire_device_copy *copies, uint32_t num_copies);

#endif
