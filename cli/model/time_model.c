/* time_model.c - the formula, with everything that does not change between steps multiplied out.
 *
 *      t = (compute^p + weights^p)^(1/p) + attention + KV + activations + fixed
 *
 *      compute       2 x parameters x tokens / rate
 *      weights       bytes / bandwidth; of experts, those that some token is sent to
 *      attention     FLOPs of a pair x pairs / rate
 *      KV            bytes of a token x tokens read / bandwidth
 *      activations   elements of a token and layer x 2 bytes x times moved / bandwidth
 *      fixed         layers x cost, exchanges between GPUs, the engine's own
 *
 * and to it, from a recording of the engine (cli/recording/calibration.c): its own work for each
 * request, token, token of context and pair.
 */
#include "time_model.h"

#include <math.h>

/* Elements that a layer makes for one token, and others read: its inputs and outputs, which every
 * GPU has; and queries, keys, values, and the inside of its feed-forward part, which they share. */
static double activation_elements(const shape *s, uint32_t tp)
{
    double heads = s->head_dim * (3.0 * s->num_heads + 2.0 * s->num_kv_heads);
    if (s->kv_lora_rank > 0)
        heads = (double)s->num_heads *
                (2.0 * (s->qk_nope_head_dim + s->qk_rope_head_dim) + 2.0 * s->v_head_dim);
    return 4.0 * s->hidden + (3 * shape_width(s) + heads) / tp;
}

/* FLOPs of one query and one key in one layer. Latent attention decodes on the latent vectors,
 * which takes more of them but reads less. */
static double pair_flops(const shape *s, bool is_decode)
{
    if (s->kv_lora_rank == 0)
        return 4.0 * s->num_heads * s->head_dim;
    if (is_decode)
        return 2.0 * s->num_heads * (2.0 * s->kv_lora_rank + s->qk_rope_head_dim);
    return 2.0 * s->num_heads * (s->qk_nope_head_dim + s->qk_rope_head_dim + s->v_head_dim);
}

/* Bytes that full and window layers keep of one token, and how many of each there are. */
typedef struct kv_sizes {
    double full_bytes;
    double window_bytes;
    uint32_t num_full;
    uint32_t num_window;
} kv_sizes;

static kv_sizes measure_kv(const shape *s, uint32_t tp, quire_cache_dtype cache_dtype)
{
    enum { TOKENS = 16 };
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    uint32_t num_layers = 0;
    kv_sizes sizes = {0};
    shape_layers_params params = {.tp = tp, .block_size = TOKENS, .cache_dtype = cache_dtype};
    if (shape_layers(s, &params, layers, &num_layers) != QUIRE_OK)
        return sizes; /* the caller has had the shape checked */
    for (uint32_t i = 0; i < num_layers; i++) {
        double bytes = (double)quire_layer_page_bytes(&layers[i]) / TOKENS;
        if (layers[i].kind == QUIRE_LAYER_SLIDING_WINDOW ||
            layers[i].kind == QUIRE_LAYER_CHUNKED_LOCAL) {
            sizes.window_bytes += bytes;
            sizes.num_window++;
        } else {
            sizes.full_bytes += bytes;
            sizes.num_full++;
        }
    }
    return sizes;
}

/* The rate of matrix products in the precision that the weights are stored in. 4-bit weights are
 * widened before they are multiplied. */
static double matmul_tflops_of(const shape *s, const gpu *g)
{
    if (s->weights == SHAPE_FP8 && g->fp8_tflops > 0)
        return g->constants.matmul_tflops * g->fp8_tflops / g->bf16_tflops;
    return g->constants.matmul_tflops;
}

/* Two all-reduces in a layer: each GPU sends and receives 2 (tp - 1) / tp of the hidden states. */
static void add_exchanges(time_model *model, const shape *s, const gpu *g, uint32_t tp)
{
    if (tp < 2)
        return;
    double exchanges = 2.0 * s->num_layers;
    double bytes = 2.0 * s->hidden * 2.0 * (tp - 1) / tp;
    model->fixed_ms += g->constants.roofline * exchanges * g->constants.all_reduce_us / 1e3;
    model->token_move_ms += exchanges * bytes / (g->constants.link_gbps * 1e6);
}

void time_model_init(time_model *model, const shape *s, const gpu *g, uint32_t tp,
                     quire_cache_dtype cache_dtype)
{
    const gpu_constants *c = &g->constants;
    shape_size size = shape_measure(s);
    kv_sizes kv = measure_kv(s, tp, cache_dtype);
    double share = s->num_experts == 0 ? 0 : (double)s->num_active_experts / s->num_experts;
    double active = (double)size.dense_params + share * (double)size.expert_params;
    double flop_ms = 1 / (matmul_tflops_of(s, g) * 1e9) / tp;
    double pair_ms = 1 / (c->attention_tflops * 1e9) / tp;
    double weight_ms = 1 / (c->weight_tbps * 1e9) / tp;
    double kv_ms = 1 / (c->kv_tbps * 1e9);

    *model = (time_model){0};
    model->roofline = c->roofline;
    model->fixed_ms = c->roofline * s->num_layers * c->layer_us / 1e3 + c->step_ms;
    model->token_matmul_ms = 2 * active * flop_ms;
    model->row_matmul_ms = 2 * (double)size.head_params * flop_ms;
    model->dense_weights_ms = (size.dense_bytes + size.head_bytes) * weight_ms;
    model->expert_weights_ms = size.expert_bytes * weight_ms;
    model->expert_miss_log = share < 1 ? log1p(-share) : -HUGE_VAL;
    model->softness = c->softness;
    model->prefill_pair_ms = kv.num_full * pair_flops(s, false) * pair_ms;
    model->decode_pair_ms = kv.num_full * pair_flops(s, true) * pair_ms;
    model->window_pair_ms = kv.num_window * pair_flops(s, false) * pair_ms;
    model->kv_token_ms = kv.full_bytes * kv_ms;
    model->window_kv_token_ms = kv.window_bytes * kv_ms;
    model->token_move_ms = s->num_layers * activation_elements(s, tp) * 2 * c->activations * kv_ms;
    model->window = kv.num_window == 0 ? 0 : s->chunk > 0 ? s->chunk : s->window;
    add_exchanges(model, s, g, tp);
    model->request_ms = c->request_us / 1e3;
    model->token_ms = c->token_us / 1e3;
    model->context_ms = c->context_ns / 1e6;
    model->pair_ms = c->pair_ns / 1e6;
    model->gap_ms = c->gap_ms;
    model->gap_request_ms = c->gap_request_us / 1e3;
    model->gap_add_ms = c->gap_add_us / 1e3;
    model->arrival_ms = c->arrival_ms;
    model->arrival_token_ms = c->arrival_token_us / 1e3;
}

/* The ratio of the two is all that counts, and a sum of powers of large numbers would not hold. */
static double soft_max(double a, double b, double p)
{
    double larger = a > b ? a : b;
    double ratio = a > b ? b / a : a / b;
    if (ratio < 1e-9)
        return larger;
    return larger * exp(log1p(exp(p * log(ratio))) / p);
}

step_parts time_model_parts(const time_model *model, const step_work *work)
{
    step_parts parts = {0};
    double tokens = (double)work->num_tokens;
    if (work->num_tokens == 0)
        return parts;
    parts.compute =
        tokens * model->token_matmul_ms + (double)work->num_requests * model->row_matmul_ms;
    parts.weights = model->dense_weights_ms;
    if (model->expert_weights_ms > 0)
        parts.weights += model->expert_weights_ms * -expm1(tokens * model->expert_miss_log);
    double r = model->roofline;
    parts.matrices = r * soft_max(parts.compute, parts.weights, model->softness);
    parts.attention = r * ((double)work->prefill_pairs * model->prefill_pair_ms +
                           (double)work->decode_pairs * model->decode_pair_ms +
                           (double)work->window_pairs * model->window_pair_ms);
    parts.kv = r * ((double)work->kv_tokens * model->kv_token_ms +
                    (double)work->window_kv_tokens * model->window_kv_token_ms);
    parts.activations = r * tokens * model->token_move_ms;
    parts.fixed = model->fixed_ms;
    parts.engine = (double)work->num_requests * model->request_ms + tokens * model->token_ms +
                   (double)work->kv_tokens * model->context_ms +
                   (double)work->prefill_pairs * model->pair_ms;
    return parts;
}

double time_model_step_ms(const time_model *model, const step_work *work)
{
    step_parts parts = time_model_parts(model, work);
    return parts.matrices + parts.attention + parts.kv + parts.activations + parts.fixed +
           parts.engine;
}

double time_model_prompt_token_us(const time_model *model)
{
    enum { PROMPT = 4096 };
    step_work work = {0};
    step_work_add(model, &work, PROMPT, 0);
    return time_model_step_ms(model, &work) * 1e3 / PROMPT;
}

uint64_t time_model_window_pairs(uint64_t first, uint64_t n, uint64_t w)
{
    /* Tokens before the w-th see all that came before them, the others w. */
    uint64_t growing = first >= w ? 0 : w - first < n ? w - first : n;
    return growing * first + growing * (growing + 1) / 2 + (n - growing) * w;
}
