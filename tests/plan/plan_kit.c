#include "plan/plan_kit.h"

static quire_layer_spec layer_of(char letter)
{
    quire_layer_spec spec = {.kind = QUIRE_LAYER_FULL,
                             .block_size = 16,
                             .num_kv_heads = 8,
                             .head_size = 128,
                             .dtype = QUIRE_DTYPE_BFLOAT16};
    switch (letter) {
    case 'w':
    case 'v':
        spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
        spec.sliding_window = letter == 'w' ? 128 : 512;
        break;
    case 'c':
        spec.kind = QUIRE_LAYER_CHUNKED_LOCAL;
        spec.attention_chunk_size = 1024;
        break;
    case 'm':
        spec = (quire_layer_spec){.kind = QUIRE_LAYER_MAMBA,
                                  .block_size = 4096,
                                  .page_size_padded = KIT_PAGE,
                                  .states = {{1, {1000}, QUIRE_DTYPE_FLOAT32}}};
        break;
    case 'x':
        spec.kind = QUIRE_LAYER_CROSS;
        break;
    case 'e':
        spec.kind = QUIRE_LAYER_ENCODER_ONLY;
        break;
    case 'l':
    case 'i':
    case 's':
    case 't':
        spec.sliding_window = letter == 's' || letter == 't' ? 128 : 0;
        spec.kind = spec.sliding_window > 0 ? QUIRE_LAYER_SLIDING_WINDOW_MLA : QUIRE_LAYER_MLA;
        spec.num_kv_heads = 1;
        spec.head_size = letter == 'i' || letter == 't' ? 128 : 576;
        spec.mla_cache = letter == 'i' ? QUIRE_MLA_CACHE_NONE : QUIRE_MLA_CACHE_AUTO;
        break;
    default:
        assert_int_equal(letter, 'f');
    }
    return spec;
}

void kit_init(plan_kit *kit, const char *letters)
{
    memset(kit, 0, sizeof *kit);
    kit->params = (quire_plan_params)QUIRE_PLAN_PARAMS_INIT;
    kit->params.layers = kit->layers;
    kit->params.num_layers = (uint32_t)strlen(letters);
    kit->params.workers = kit->workers;
    kit->params.num_workers = 1;
    kit->params.max_model_len = 4096;
    kit->params.max_encoder_tokens = 1500;
    kit->shortage.size = sizeof kit->shortage;
    kit->params.shortage = &kit->shortage;
    kit->workers[0].memory_bytes = UINT64_C(1) << 36;
    assert_true(kit->params.num_layers <= KIT_MAX_LAYERS);
    for (uint32_t i = 0; i < kit->params.num_layers; i++)
        kit->layers[i] = layer_of(letters[i]);
}

void kit_add_stage(plan_kit *kit, uint32_t first, uint32_t end, uint64_t memory_bytes)
{
    if (kit->workers[0].layers == NULL)
        kit->params.num_workers = 0;
    uint32_t number = kit->params.num_workers++;
    quire_plan_worker *worker = &kit->workers[number];
    *worker = (quire_plan_worker){kit->worker_layers[number], 0, memory_bytes};
    for (uint32_t i = first; i < end; i++)
        kit->worker_layers[number][worker->num_layers++] = i;
}

quire_plan *kit_plan(const plan_kit *kit)
{
    quire_plan *plan = NULL;
    assert_int_equal(quire_plan_create(&kit->params, NULL, &plan), QUIRE_OK);
    assert_non_null(plan);
    return plan;
}

void kit_refused(const plan_kit *kit, int status)
{
    quire_plan *plan = NULL;
    assert_int_equal(quire_plan_create(&kit->params, NULL, &plan), status);
    assert_null(plan);
}

/* Writes "0,1" behind what text has, after a blank unless it is the first list. */
static void add_list(char *text, size_t size, const uint32_t *ids, uint32_t count)
{
    size_t len = strlen(text);
    len += (size_t)snprintf(text + len, size - len, "%s", len == 0 ? "" : " ");
    for (uint32_t i = 0; i < count; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%u", i == 0 ? "" : ",", ids[i]);
    if (count == 0)
        snprintf(text + len, size - len, "-");
}

void kit_check_groups(const quire_plan *plan, const char *expected)
{
    char text[1024] = "";
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    assert_int_equal(quire_plan_get_info(plan, &info), QUIRE_OK);
    for (uint32_t g = 0; g < info.num_groups; g++) {
        assert_int_equal(quire_plan_get_group(plan, g, &group), QUIRE_OK);
        add_list(text, sizeof text, group.layers, group.num_layers);
    }
    assert_string_equal(text, expected);
    assert_int_equal(quire_plan_get_group(plan, info.num_groups, &group), QUIRE_E_RANGE);
}

void kit_check_tensors(const quire_plan *plan, uint32_t worker, const char *expected)
{
    char text[1024] = "";
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    quire_plan_tensor tensor;
    uint64_t bytes = 0;
    assert_int_equal(quire_plan_get_worker(plan, worker, &share), QUIRE_OK);
    for (uint32_t i = 0; i < share.num_tensors; i++) {
        assert_int_equal(quire_plan_get_tensor(plan, worker, i, &tensor), QUIRE_OK);
        add_list(text, sizeof text, tensor.layers, tensor.num_layers);
        bytes += tensor.bytes;
    }
    assert_string_equal(text, expected);
    assert_int_equal(bytes, share.used_bytes);
    assert_int_equal(quire_plan_get_tensor(plan, worker, share.num_tensors, &tensor),
                     QUIRE_E_RANGE);
}
