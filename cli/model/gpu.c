/* gpu.c - the table of GPUs.
 *
 * Published figures are the vendors': dense rates, memory as the driver reports it in MiB. The
 * constants of the H200 were fitted to measured steps; those of a GPU without measurements are
 *
 *      rates        H200's x (its peak rate / H200's)
 *      bandwidths   H200's x (its bandwidth / H200's)
 *      the others   H200's: they are the software's more than the GPU's
 *
 * which takes for granted that kernels reach the same share of the peak everywhere. They do not
 * quite; `quire time --calibrate` puts measured ones in their place.
 */
#include "gpu.h"
#include "options/nearest.h"
#include "output/failure.h"
#include "output/output.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

typedef struct gpu_row {
    const char *name;
    uint64_t memory_mib;
    double bf16_tflops;
    double fp8_tflops;
    double bandwidth_tbps;
    double link_gbps;
} gpu_row;

static const gpu_row rows[] = {
    {"H200", 143771, 989.4, 1978.9, 4.8, 900},    {"H100", 81559, 989.4, 1978.9, 3.35, 900},
    {"H100-PCIE", 81559, 756, 1513, 2.0, 128},    {"H20", 97871, 148, 296, 4.0, 900},
    {"GH200", 97871, 989.4, 1978.9, 4.0, 900},    {"A100-80G", 81920, 312, 0, 2.039, 600},
    {"A100-40G", 40960, 312, 0, 1.555, 600},      {"B200", 183359, 2250, 4500, 8.0, 1800},
    {"L40S", 46068, 362.05, 733, 0.864, 64},      {"L4", 23034, 121, 242, 0.3, 64},
    {"MI300X", 196592, 1307.4, 2614.9, 5.3, 896}, {"RTX-4090", 24564, 165.2, 330.3, 1.008, 64},
    {"RTX-5090", 32607, 209.5, 419, 1.792, 128},  {"RTX-A6000", 49140, 154.8, 0, 0.768, 112.5},
};

enum { NUM_ROWS = sizeof rows / sizeof *rows };

/* What `quire time --calibrate` makes of the 70 measured steps; the last three are estimates, since
 * those steps were taken on one GPU and without an engine around it. */
static const gpu_constants h200 = {
    .matmul_tflops = 649.4,
    .attention_tflops = 515.2,
    .weight_tbps = 3.959,
    .kv_tbps = 4.631,
    .layer_us = 40.1,
    .activations = 1.63,
    .softness = 2.433,
    .step_ms = 0,
    .all_reduce_us = 8,
    .link_gbps = 0.8 * 900 / 2,
    .roofline = 1,
};

/* ---- presets ------------------------------------------------------------- */

static void fill_in(const gpu_row *row, gpu *out)
{
    const gpu_row *measured = &rows[0];
    double rate = row->bf16_tflops / measured->bf16_tflops;
    double bandwidth = row->bandwidth_tbps / measured->bandwidth_tbps;
    *out = (gpu){.name = row->name,
                 .memory_bytes = row->memory_mib * MIB,
                 .bf16_tflops = row->bf16_tflops,
                 .fp8_tflops = row->fp8_tflops,
                 .bandwidth_tbps = row->bandwidth_tbps,
                 .link_gbps = row->link_gbps,
                 .constants = h200,
                 .is_fitted = row == measured};
    out->constants.matmul_tflops *= rate;
    out->constants.attention_tflops *= rate;
    out->constants.weight_tbps *= bandwidth;
    out->constants.kv_tbps *= bandwidth;
    out->constants.link_gbps *= row->link_gbps / measured->link_gbps;
}

bool gpu_find(const char *name, gpu *out)
{
    char wanted[64];
    char known[64];
    squeeze_name(name, wanted, sizeof wanted);
    if (strcmp(wanted, "a100") == 0)
        squeeze_name("A100-80G", wanted, sizeof wanted);
    for (int i = 0; i < NUM_ROWS; i++) {
        squeeze_name(rows[i].name, known, sizeof known);
        if (strcmp(wanted, known) == 0) {
            fill_in(&rows[i], out);
            return true;
        }
    }
    fail_with("unknown GPU \"%s\"; known are", name);
    for (int i = 0; i < NUM_ROWS; i++)
        fail_with("%s%s %s", failure(), i == 0 ? "" : ",", rows[i].name);
    return false;
}

const char *gpu_preset_name(uint32_t i)
{
    return i < NUM_ROWS ? rows[i].name : NULL;
}

void gpu_set_flops(gpu *g, double bf16_tflops)
{
    double ratio = bf16_tflops / g->bf16_tflops;
    g->bf16_tflops = bf16_tflops;
    g->fp8_tflops *= ratio;
    g->constants.matmul_tflops *= ratio;
    g->constants.attention_tflops *= ratio;
}

void gpu_set_bandwidth(gpu *g, double tbps)
{
    double ratio = tbps / g->bandwidth_tbps;
    g->bandwidth_tbps = tbps;
    g->constants.weight_tbps *= ratio;
    g->constants.kv_tbps *= ratio;
}

/* ---- constants by name --------------------------------------------------- */

typedef struct constant_row {
    const char *name;
    size_t offset;
    double least; /* 0 where a cost may be nothing; rates and the exponent may not */
} constant_row;

static const constant_row constant_rows[] = {
    {"matmul_tflops", offsetof(gpu_constants, matmul_tflops), 1e-6},
    {"attention_tflops", offsetof(gpu_constants, attention_tflops), 1e-6},
    {"weight_tbps", offsetof(gpu_constants, weight_tbps), 1e-6},
    {"kv_tbps", offsetof(gpu_constants, kv_tbps), 1e-6},
    {"layer_us", offsetof(gpu_constants, layer_us), 0},
    {"activations", offsetof(gpu_constants, activations), 0},
    {"softness", offsetof(gpu_constants, softness), 1},
    {"step_ms", offsetof(gpu_constants, step_ms), 0},
    {"all_reduce_us", offsetof(gpu_constants, all_reduce_us), 0},
    {"link_gbps", offsetof(gpu_constants, link_gbps), 1e-6},
    {"roofline", offsetof(gpu_constants, roofline), 0},
    {"request_us", offsetof(gpu_constants, request_us), 0},
    {"token_us", offsetof(gpu_constants, token_us), 0},
    {"context_ns", offsetof(gpu_constants, context_ns), 0},
    {"pair_ns", offsetof(gpu_constants, pair_ns), 0},
    {"gap_ms", offsetof(gpu_constants, gap_ms), 0},
    {"gap_request_us", offsetof(gpu_constants, gap_request_us), 0},
    {"gap_add_us", offsetof(gpu_constants, gap_add_us), 0},
    {"arrival_ms", offsetof(gpu_constants, arrival_ms), 0},
    {"arrival_token_us", offsetof(gpu_constants, arrival_token_us), 0},
};

enum { NUM_CONSTANTS = sizeof constant_rows / sizeof *constant_rows };

const char *gpu_constant_name(uint32_t i)
{
    return i < NUM_CONSTANTS ? constant_rows[i].name : NULL;
}

double *gpu_constant(gpu_constants *c, uint32_t i)
{
    return (double *)((char *)c + constant_rows[i].offset);
}

/* The rest of the line, without blanks at its end. */
static bool read_model(const char *value, gpu_constants *c)
{
    size_t length = strlen(value);
    while (length > 0 && (value[length - 1] == ' ' || value[length - 1] == '\t'))
        length--;
    if (length == 0 || length >= sizeof c->model)
        return false;
    memcpy(c->model, value, length);
    c->model[length] = '\0';
    return true;
}

/* One line of a file of constants. */
static bool read_constant(char *line, gpu_constants *c)
{
    line[strcspn(line, "#\r\n")] = '\0';
    char *name = line + strspn(line, " \t");
    if (*name == '\0')
        return true;
    char *value = name + strcspn(name, " \t=");
    if (*value == '\0')
        return false;
    *value++ = '\0';
    value += strspn(value, " \t=");
    if (strcmp(name, "model") == 0)
        return read_model(value, c);
    char *end;
    double number = strtod(value, &end);
    if (end == value || end[strspn(end, " \t")] != '\0' || !isfinite(number))
        return false;
    for (uint32_t i = 0; i < NUM_CONSTANTS; i++) {
        if (strcmp(name, constant_rows[i].name) == 0) {
            *gpu_constant(c, i) = number;
            return number >= constant_rows[i].least;
        }
    }
    return false;
}

bool gpu_constants_read(const char *path, gpu_constants *c)
{
    char line[2 * GPU_MODEL_BYTES];
    FILE *file = fopen(path, "r");
    if (!file)
        return fail_with("%s: %s", path, strerror(errno)) == 0;
    bool is_good = true;
    for (int number = 1; is_good && fgets(line, sizeof line, file); number++) {
        is_good = read_constant(line, c);
        if (!is_good)
            fail_with("%s:%d: invalid line (expected a constant and its value: layer_us 40.1)",
                      path, number);
    }
    fclose(file);
    return is_good;
}

bool gpu_constants_write(const char *path, const gpu_constants *c, const char *comment)
{
    gpu_constants copy = *c;
    FILE *file = output_open(path);
    if (file == NULL)
        return false;
    fprintf(file, "# %s\n", comment);
    if (copy.model[0] != '\0')
        fprintf(file, "model %s\n", copy.model);
    for (uint32_t i = 0; i < NUM_CONSTANTS; i++)
        fprintf(file, "%s %.6g\n", constant_rows[i].name, *gpu_constant(&copy, i));
    return outputs_commit() == 0;
}
