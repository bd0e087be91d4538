/* cli/model/gpu.h - GPUs: published figures, and the constants of the time model.
 *
 *      published   memory, peak rates, bandwidth, links        as the vendor states them
 *      constants   what of it a step reaches                   H200: fitted to measured steps;
 *                                                              others: scaled by published figures
 */
#ifndef QUIRE_CLI_MODEL_GPU_H
#define QUIRE_CLI_MODEL_GPU_H

#include <stdbool.h>
#include <stdint.h>

enum { GPU_MODEL_BYTES = 256 };

/* docs/time-model.md says what each is. */
typedef struct gpu_constants {
    double matmul_tflops;    /* matrices, bfloat16 */
    double attention_tflops; /* queries times keys, weights times values */
    double weight_tbps;      /* reading weights, TB/s */
    double kv_tbps;          /* reading keys and values, and moving activations */
    double layer_us;         /* fixed cost of a layer */
    double activations;      /* times that activations are read or written */
    double softness;         /* exponent of the soft maximum of compute and weights */
    double step_ms;          /* fixed cost of a step: the engine's own work */
    double all_reduce_us;    /* fixed cost of one exchange between GPUs */
    double link_gbps;        /* GB/s in one direction, of one GPU */
    double roofline;         /* times that all of the above but step_ms is counted; 0: not at all */
    double request_us;       /* each request of a step */
    double token_us;         /* each new token */
    double context_ns;       /* each token whose keys and values are read */
    double pair_ns;          /* each pair of a prompt's token and one that it attends to */
    double gap_ms;           /* from the end of a step to the next one, where they do not overlap */
    double gap_request_us;   /* the same, for each request of the step that ended */
    double gap_add_us;       /* the same, for each request that was added */
    double arrival_ms;       /* from a request's arrival until the scheduler can have it */
    double arrival_token_us; /* the same, for each token of its prompt */
    /* The last ten were fitted to recorded steps of this model; "": of any. */
    char model[GPU_MODEL_BYTES];
} gpu_constants;

typedef struct gpu {
    const char *name;
    uint64_t memory_bytes; /* as its driver reports it */
    double bf16_tflops;    /* dense */
    double fp8_tflops;     /* 0: it has none */
    double bandwidth_tbps;
    double link_gbps; /* NVLink, Infinity Fabric or PCIe: both directions together */
    gpu_constants constants;
    bool is_fitted; /* constants come from measured steps, not from scaling */
} gpu;

/* "H200", "a100-80g": case does not matter. False, and a sentence, where there is none. */
bool gpu_find(const char *name, gpu *out);
/* The name of preset i; NULL after the last. */
const char *gpu_preset_name(uint32_t i);
/* Scales the constants when a published figure is replaced by a user's. */
void gpu_set_flops(gpu *g, double bf16_tflops);
void gpu_set_bandwidth(gpu *g, double tbps);

/* ---- constants by name --------------------------------------------------- */

/* The constants in order, for files and options: "matmul_tflops" ... NULL after the last. */
const char *gpu_constant_name(uint32_t i);
double *gpu_constant(gpu_constants *c, uint32_t i);

/* Lines "name value", # begins a comment; names that are missing keep what they have. "model NAME"
 * says which model they hold for. False, and a sentence with file and line. */
bool gpu_constants_read(const char *path, gpu_constants *c);
bool gpu_constants_write(const char *path, const gpu_constants *c, const char *comment);

#endif
