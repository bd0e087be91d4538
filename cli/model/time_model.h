/* cli/model/time_model.h - how long a GPU takes for a step.
 *
 *      compute ──┐
 *                ├─ soft max ─┐
 *      weights ──┘            │
 *      attention ─────────────┤
 *      KV cache read ─────────┼─ + ─► ms
 *      activations ───────────┤
 *      layers x fixed cost ───┤
 *      the engine's own work ─┘      each request, token, token of context, pair; 0 unless fitted
 *
 * The constants belong to the GPU (gpu.h), the model enters by its shape (shape.h): so models that
 * nobody measured come out right too. docs/time-model.md has the formula, its limits, and predicted
 * against measured.
 *
 *      step_work work = {0};
 *      for each request of the step
 *          step_work_add(&time, &work, num_new_tokens, num_computed_tokens);
 *      double ms = time_model_step_ms(&time, &work);
 */
#ifndef QUIRE_CLI_MODEL_TIME_MODEL_H
#define QUIRE_CLI_MODEL_TIME_MODEL_H

#include "gpu.h"
#include "shape.h"

/* What a step has to do, summed over its requests. A pair is a new token and one that it attends
 * to, itself included. */
typedef struct step_work {
    uint64_t num_tokens;   /* new ones */
    uint64_t num_requests; /* each has one token that the output head is computed for */
    uint64_t prefill_pairs;
    uint64_t decode_pairs; /* of requests with one new token */
    uint64_t kv_tokens;    /* whose keys and values are read */
    uint64_t window_pairs; /* the same two in layers with a window */
    uint64_t window_kv_tokens;
} step_work;

/* One model on one GPU, or on tp of them: factors that work is multiplied with. */
typedef struct time_model {
    double fixed_ms;          /* layers, exchanges, step */
    double token_matmul_ms;   /* compute: layers, for one token */
    double row_matmul_ms;     /* compute: output head, for one request */
    double dense_weights_ms;  /* reading what every step reads */
    double expert_weights_ms; /* reading all experts */
    double expert_miss_log;   /* log of the chance that one token leaves an expert alone */
    double softness;
    double prefill_pair_ms;
    double decode_pair_ms;
    double window_pair_ms;
    double kv_token_ms;
    double window_kv_token_ms;
    double token_move_ms; /* activations, exchanges: for one token */
    uint32_t window;
    double roofline; /* times all of the above but fixed_ms, of which it is the layers' part */
    /* What the engine adds to it. */
    double request_ms; /* for each request */
    double token_ms;   /* for each new token */
    double context_ms; /* for each token that is read */
    double pair_ms;    /* for each pair of prefill */
    /* Between two steps, where they do not overlap: always, for each request of the first of them,
     * and for each that was added. */
    double gap_ms;
    double gap_request_ms;
    double gap_add_ms;
    /* Before a request can be scheduled: always, and for each token of its prompt. */
    double arrival_ms;
    double arrival_token_ms;
} time_model;

void time_model_init(time_model *model, const shape *s, const gpu *g, uint32_t tp,
                     quire_cache_dtype cache_dtype);

/* Where the time of a step goes, in ms. compute and weights overlap: matrices is their soft
 * maximum, and the total is the sum of matrices and all that follow it. */
typedef struct step_parts {
    double compute;
    double weights;
    double matrices;
    double attention;
    double kv;
    double activations; /* with several GPUs: exchanges too */
    double fixed;
    double engine; /* its own work for requests and tokens */
} step_parts;

/* All 0 for a step without tokens. */
step_parts time_model_parts(const time_model *model, const step_work *work);
double time_model_step_ms(const time_model *model, const step_work *work);

/* What a token of a long prompt takes. */
double time_model_prompt_token_us(const time_model *model);

/* Of tokens [first, first + n), the pairs in a window of w tokens. */
uint64_t time_model_window_pairs(uint64_t first, uint64_t n, uint64_t w);

static inline void step_work_add(const time_model *model, step_work *work, uint32_t num_new,
                                 uint32_t num_computed)
{
    uint64_t n = num_new;
    uint64_t context = n + num_computed;
    work->num_tokens += n;
    work->num_requests++;
    work->kv_tokens += context;
    if (n == 1)
        work->decode_pairs += context;
    else
        work->prefill_pairs += n * num_computed + n * (n + 1) / 2;
    if (model->window > 0) {
        uint64_t seen = n + model->window - 1;
        work->window_pairs += time_model_window_pairs(num_computed, n, model->window);
        work->window_kv_tokens += context < seen ? context : seen;
    }
}

#endif
