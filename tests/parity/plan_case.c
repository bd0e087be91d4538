#include "parity/plan_case.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- specs ------------------------------------------------------------------ */

/* In the order in which they are written. */
static const struct {
    char letter;
    size_t offset;
} FIELDS[] = {
    {'b', offsetof(quire_layer_spec, block_size)},
    {'h', offsetof(quire_layer_spec, num_kv_heads)},
    {'d', offsetof(quire_layer_spec, head_size)},
    {'v', offsetof(quire_layer_spec, head_size_v)},
    {'t', offsetof(quire_layer_spec, dtype)},
    {'q', offsetof(quire_layer_spec, kv_quant)},
    {'p', offsetof(quire_layer_spec, page_size_padded)},
    {'w', offsetof(quire_layer_spec, sliding_window)},
    {'c', offsetof(quire_layer_spec, attention_chunk_size)},
    {'n', offsetof(quire_layer_spec, sink_len)},
    {'u', offsetof(quire_layer_spec, tq_slot_size)},
    {'m', offsetof(quire_layer_spec, mla_cache)},
    {'e', offsetof(quire_layer_spec, mla_version)},
    {'a', offsetof(quire_layer_spec, alignment)},
    {'r', offsetof(quire_layer_spec, compress_ratio)},
    {'y', offsetof(quire_layer_spec, mamba_type)},
    {'o', offsetof(quire_layer_spec, mamba_mode)},
    {'x', offsetof(quire_layer_spec, num_speculative_blocks)},
    {'k', offsetof(quire_layer_spec, kind)}, /* written first */
};
enum { NUM_FIELDS = sizeof FIELDS / sizeof FIELDS[0] };

_Static_assert(sizeof(quire_layer_kind) == sizeof(uint32_t), "enums are read as 32 bits");

static uint64_t get_field(const quire_layer_spec *spec, uint32_t i)
{
    uint32_t value = 0;
    if (FIELDS[i].letter == 'p')
        return spec->page_size_padded;
    memcpy(&value, (const char *)spec + FIELDS[i].offset, sizeof value);
    return value;
}

static void set_field(quire_layer_spec *spec, uint32_t i, uint64_t value)
{
    uint32_t narrow = (uint32_t)value;
    if (FIELDS[i].letter == 'p')
        spec->page_size_padded = value;
    else
        memcpy((char *)spec + FIELDS[i].offset, &narrow, sizeof narrow);
}

/* "2:3,128": dtype and dimensions. */
static void read_state(recording *r, char *word, quire_state *state)
{
    char *dims = word;
    state->dtype = (quire_dtype)strtoul(strsep(&dims, ":"), NULL, 10);
    for (char *dim = strsep(&dims, ","); dim != NULL; dim = strsep(&dims, ",")) {
        recording_expect(r, state->num_dims < QUIRE_MAX_STATE_DIMS, "dimensions fit");
        state->dims[state->num_dims++] = (uint32_t)strtoul(dim, NULL, 10);
    }
}

void plan_case_read_spec(recording *r, quire_layer_spec *spec)
{
    uint32_t num_states = 0;
    memset(spec, 0, sizeof *spec);
    for (char *word = strsep(&r->cursor, " "); word != NULL; word = strsep(&r->cursor, " ")) {
        if (word[0] == 'z') {
            recording_expect(r, num_states < QUIRE_MAX_STATES, "states fit");
            read_state(r, word + 1, &spec->states[num_states++]);
            continue;
        }
        uint32_t i = 0;
        while (i < NUM_FIELDS && FIELDS[i].letter != word[0])
            i++;
        recording_expect(r, i < NUM_FIELDS, "field is known");
        set_field(spec, i, strtoull(word + 1, NULL, 10));
    }
}

void plan_case_add_spec(text *t, const quire_layer_spec *spec)
{
    text_add(t, "k%u", (unsigned)spec->kind);
    for (uint32_t i = 0; i + 1 < NUM_FIELDS; i++)
        if (get_field(spec, i) != 0)
            text_add(t, " %c%" PRIu64, FIELDS[i].letter, get_field(spec, i));
    for (uint32_t s = 0; s < QUIRE_MAX_STATES && spec->states[s].num_dims > 0; s++) {
        text_add(t, " z%u:", (unsigned)spec->states[s].dtype);
        text_add_ids(t, spec->states[s].dims, spec->states[s].num_dims);
    }
}

/* ---- the case --------------------------------------------------------------- */

static quire_switch switch_of(uint32_t on)
{
    return on == 1 ? QUIRE_ON : QUIRE_OFF;
}

void plan_case_read_params(recording *r, plan_case *c)
{
    memset(c, 0, sizeof *c);
    quire_plan_params *p = &c->params;
    p->size = sizeof *p;
    p->max_model_len = recording_u32(r);
    p->max_num_batched_tokens = recording_u32(r);
    p->max_encoder_tokens = recording_u32(r);
    p->auto_fit = switch_of(recording_u32(r));
    p->hybrid = switch_of(recording_u32(r));
    p->use_eagle = switch_of(recording_u32(r));
    p->num_blocks_override = recording_u32(r);
    p->dcp_world_size = recording_u32(r);
    p->pcp_world_size = recording_u32(r);
    p->block_size = recording_u32(r);
    p->hash_block_size = recording_u32(r);
    p->enable_caching = switch_of(recording_u32(r));
    p->use_connector = switch_of(recording_u32(r));
    p->layers = c->layers;
    p->workers = c->workers;
    c->shortage.size = sizeof c->shortage;
    p->shortage = &c->shortage;
}

void plan_case_read_layers(recording *r, plan_case *c)
{
    char *list = recording_word(r);
    if (strcmp(list, "-") == 0)
        return;
    for (char *run = strsep(&list, ","); run != NULL; run = strsep(&list, ",")) {
        char *end;
        unsigned long spec = strtoul(run, &end, 10);
        unsigned long count = *end == '*' ? strtoul(end + 1, NULL, 10) : 1;
        recording_expect(r, spec < c->num_specs, "spec is there");
        recording_expect(r, count <= MAX_PLAN_LAYERS - c->params.num_layers, "layers fit");
        for (; count > 0; count--)
            c->layers[c->params.num_layers++] = c->specs[spec];
    }
}

void plan_case_read_worker(recording *r, plan_case *c)
{
    uint32_t number = c->params.num_workers++;
    recording_expect(r, number < MAX_PLAN_WORKERS, "workers fit");
    quire_plan_worker *worker = &c->workers[number];
    worker->memory_bytes = recording_number(r);
    worker->layers = c->worker_layers[number];
    char *list = recording_word(r);
    if (strcmp(list, "-") == 0)
        return;
    for (char *range = strsep(&list, ","); range != NULL; range = strsep(&list, ",")) {
        char *end;
        unsigned long first = strtoul(range, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, NULL, 10) : first;
        recording_expect(r, last < MAX_PLAN_LAYERS, "layers of a worker fit");
        for (; first <= last; first++)
            c->worker_layers[number][worker->num_layers++] = (uint32_t)first;
    }
}

/* ---- the answer ------------------------------------------------------------- */

static void add_groups(text *t, const quire_plan *plan, const quire_cache_config *cache)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
        if (quire_plan_get_group(plan, g, &group) != QUIRE_OK)
            return;
        text_add(t, "|g ");
        text_add_ids(t, group.layers, group.num_layers);
        text_add(t, " %" PRIu64 " %u%u ", group.page_bytes, group.is_eagle,
                 cache->groups[g].is_eagle);
        plan_case_add_spec(t, &cache->groups[g].spec);
        for (uint32_t i = 0; group.layers_differ && i < group.num_layers; i++) {
            quire_layer_spec spec = {0};
            quire_plan_get_layer(plan, group.layers[i], &spec);
            text_add(t, "|y ");
            plan_case_add_spec(t, &spec);
        }
    }
}

static void add_worker(text *t, const quire_plan *plan, uint32_t worker, uint32_t num_groups)
{
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    uint64_t bits;
    quire_plan_get_worker(plan, worker, &share);
    memcpy(&bits, &share.max_concurrency, sizeof bits);
    text_add(t, "|w %" PRIu64 " %016" PRIx64, share.needed_bytes, bits);
    for (uint32_t g = 0; g < num_groups; g++) {
        const uint32_t *layers = NULL;
        uint32_t num_layers = 0;
        layers = plan->shares[worker].parts[g].layers.ids;
        num_layers = plan->shares[worker].parts[g].layers.count;
        text_add(t, "|p ");
        text_add_ids(t, layers, num_layers);
    }
    for (uint32_t i = 0; i < share.num_tensors; i++) {
        quire_plan_tensor tensor = {0};
        quire_plan_get_tensor(plan, worker, i, &tensor);
        text_add(t, "|t %" PRIu64 " ", tensor.bytes);
        text_add_ids(t, tensor.layers, tensor.num_layers);
    }
}

static void add_plan(text *t, const quire_plan *plan)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_plan_get_info(plan, &info);
    quire_plan_cache_config(plan, &cache);
    text_add(t, "%u %u %" PRIu64 " %u %u", info.num_blocks, info.max_model_len, info.num_tokens,
             info.block_size, info.hash_block_size);
    add_groups(t, plan, &cache);
    for (uint32_t w = 0; w < info.num_workers; w++)
        add_worker(t, plan, w, info.num_groups);
}

void plan_case_add_answer(text *t, const plan_case *c)
{
    quire_plan *plan = NULL;
    int status = quire_plan_create(&c->params, NULL, &plan);
    const quire_plan_shortage *s = &c->shortage;
    if (status == QUIRE_OK)
        add_plan(t, plan);
    else if (status == QUIRE_E_MIXED)
        text_add(t, "mixed");
    else if (status == QUIRE_E_CONFIG)
        text_add(t, "config");
    else if (status == QUIRE_E_MEMORY_LIMIT && c->params.auto_fit == QUIRE_ON)
        text_add(t, "memory");
    else if (status == QUIRE_E_MEMORY_LIMIT)
        text_add(t, "memory %u %" PRIu64 " %u %u", s->worker, s->needed_bytes, s->max_model_len,
                 s->fitting_max_len);
    else
        text_add(t, "%s", quire_status_name(status));
    quire_plan_destroy(plan);
}
