/* cli/model/steps_file.h - measured steps, from a CSV file.
 *
 *      model,kind,tokens,batch,context,ms
 *      llama3-8b,prefill,512,1,512,13.4384         1 prompt of 512 tokens
 *      llama3-8b,prefill,512,2,1280,               2 prompts, 256 new tokens each on top of 1,024
 *      llama3-8b,decode,64,64,1024,7.3717          64 requests of 1,024 tokens, the last one new
 *
 * Columns are found by their names, in any order. model is a preset or a config.json; where there
 * is no such column, --model is meant. With columns layers, hidden, heads, kv_heads, head_dim, ffn
 * and vocab, a row states the shape itself. ms may be missing: nothing to compare with, then.
 */
#ifndef QUIRE_CLI_MODEL_STEPS_FILE_H
#define QUIRE_CLI_MODEL_STEPS_FILE_H

#include "time_model.h"

typedef struct measured_step {
    uint32_t line;
    uint32_t shape; /* in steps_file.shapes */
    bool is_decode;
    uint32_t num_tokens; /* of all requests */
    uint32_t batch;
    uint32_t context; /* of each request, new tokens included */
    double ms;        /* 0: not measured */
} measured_step;

typedef struct steps_file {
    shape *shapes; /* each model once */
    uint32_t num_shapes;
    measured_step *steps;
    uint32_t num_steps;
} steps_file;

/* 0, or -1 and a sentence with file, line and column. */
int steps_read(const char *path, const shape *fallback, steps_file *out);
void steps_free(steps_file *file);

step_work steps_work(const time_model *model, const measured_step *step);

#endif
