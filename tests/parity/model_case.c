#include "parity/model_case.h"

#include "group/spec.h"

#include <quire/model.h>

#include <stdlib.h>
#include <string.h>

#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(quire_model_params, name)                                                  \
    }

/* Numbers of 32 bits; enums are read as such. */
static const struct {
    const char *name;
    size_t offset;
} NUMBERS[] = {
    FIELD(torch_dtype),
    FIELD(num_hidden_layers),
    FIELD(hidden_size),
    FIELD(num_attention_heads),
    FIELD(num_key_value_heads),
    FIELD(head_dim),
    FIELD(max_position_embeddings),
    FIELD(sliding_window),
    FIELD(use_sliding_window),
    FIELD(max_window_layers),
    FIELD(sliding_window_pattern),
    FIELD(attention_chunk_size),
    FIELD(no_rope_layer_interval),
    FIELD(kv_lora_rank),
    FIELD(qk_rope_head_dim),
    FIELD(index_head_dim),
    FIELD(attn_layer_period),
    FIELD(attn_layer_offset),
    FIELD(num_attn_layer_indices),
    FIELD(mamba_expand),
    FIELD(mamba_d_state),
    FIELD(mamba_d_conv),
    FIELD(mamba_n_heads),
    FIELD(mamba_d_head),
    FIELD(mamba_n_groups),
    FIELD(mamba_chunk_size),
    FIELD(full_attention_interval),
    FIELD(linear_num_key_heads),
    FIELD(linear_num_value_heads),
    FIELD(linear_key_head_dim),
    FIELD(linear_value_head_dim),
    FIELD(linear_conv_kernel_dim),
    FIELD(decoder_layers),
    FIELD(decoder_attention_heads),
    FIELD(d_model),
    FIELD(block_size),
    FIELD(cache_dtype),
    FIELD(tensor_parallel_size),
    FIELD(max_model_len),
    FIELD(mamba_mode),
    FIELD(mamba_block_size),
    FIELD(num_speculative_tokens),
};

enum { MAX_INDICES = 64 };

static void read_indices(recording *r, char *list, uint32_t *indices)
{
    uint32_t count = 0;
    for (char *index = strsep(&list, ","); index != NULL; index = strsep(&list, ",")) {
        recording_expect(r, count < MAX_INDICES, "indices fit");
        indices[count++] = (uint32_t)strtoul(index, NULL, 10);
    }
}

static void read_number(recording *r, quire_model_params *p, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        if (strcmp(NUMBERS[i].name, name) == 0) {
            uint32_t number = (uint32_t)strtoul(value, NULL, 10);
            memcpy((char *)p + NUMBERS[i].offset, &number, sizeof number);
            return;
        }
    recording_expect(r, false, "field is known");
}

void model_case_read(recording *r, plan_case *c)
{
    quire_model_params p = QUIRE_MODEL_PARAMS_INIT;
    uint32_t indices[MAX_INDICES];
    for (char *value = strsep(&r->cursor, " "); value != NULL; value = strsep(&r->cursor, " ")) {
        const char *name = strsep(&value, "=");
        recording_expect(r, value != NULL, "field has a value");
        if (strcmp(name, "model_type") == 0) {
            p.model_type = value;
        } else if (strcmp(name, "hybrid_override_pattern") == 0) {
            p.hybrid_override_pattern = value;
        } else if (strcmp(name, "attn_layer_indices") == 0) {
            read_indices(r, value, indices);
            p.attn_layer_indices = indices;
        } else {
            read_number(r, &p, name, value);
        }
    }
    c->model_status = quire_model_layers(&p, c->layers, MAX_PLAN_LAYERS, &c->params.num_layers);
}

void model_case_add_layers(text *t, const plan_case *c)
{
    if (c->model_status != QUIRE_OK)
        text_add(t, "%s", c->model_status == QUIRE_E_CONFIG ? "config" : "another error");
    for (uint32_t i = 0; i < c->params.num_layers; i++) {
        quire_layer_spec spec = qr_spec_resolve(&c->layers[i]);
        text_add(t, "%s", i == 0 ? "" : "|");
        plan_case_add_spec(t, &spec);
    }
}
