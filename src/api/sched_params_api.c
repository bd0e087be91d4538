/* api/sched_params_api.c - quire/sched.h: what a request was added with, given back. */
#include "sched/sched.h"

/* The request, or NULL and why. */
static const qr_request *find_request(const quire_sched *sched, quire_req req, uint32_t *index,
                                      int *err)
{
    bool is_sched = sched != NULL && sched->magic == QR_SCHED_MAGIC;
    *index = is_sched ? qr_sched_index_of(sched, req) : QR_NIL;
    *err = !is_sched ? QUIRE_E_ARGUMENT : *index == QR_NIL ? QUIRE_E_UNKNOWN_REQ : QUIRE_OK;
    return *err == QUIRE_OK ? &sched->table.requests[*index] : NULL;
}

int quire_sched_get_params(const quire_sched *sched, quire_req req, quire_request_params *params)
{
    uint32_t index;
    int err;
    const qr_request *r = find_request(sched, req, &index, &err);
    if (r == NULL || params == NULL)
        return r == NULL ? err : QUIRE_E_ARGUMENT;
    const qr_waiter *w = &sched->table.waiters[index];
    quire_request_params own = {.size = sizeof(quire_request_params),
                                .id = w->id,
                                .num_prompt_tokens = r->num_prompt_tokens,
                                .max_tokens = r->max_tokens,
                                .min_tokens = r->stops.min_tokens,
                                .has_eos = r->stops.has_eos,
                                .eos_token_id = r->stops.eos_token_id,
                                .stop_token_ids = r->stops.tokens,
                                .num_stop_token_ids = r->stops.num_tokens,
                                .repetition_max_pattern = r->stops.repetition_max_pattern,
                                .repetition_min_pattern = r->stops.repetition_min_pattern,
                                .repetition_min_count = r->stops.repetition_min_count,
                                .priority = w->priority,
                                .arrival_time = w->arrival_time,
                                .client_index = r->client_index,
                                .lora_name = r->extra.lora_name,
                                .lora_id = r->lora_id,
                                .cache_salt = r->extra.cache_salt,
                                .num_mm_inputs = r->num_features,
                                .use_grammar = r->use_grammar,
                                .is_pooling = r->is_pooling,
                                .is_resumable = r->is_resumable,
                                .skip_reading_prefix = r->kv.skip_reading_prefix,
                                .user = r->kv.user};
    return qr_struct_out(params, &own, sizeof own);
}

int quire_sched_get_mm_input(const quire_sched *sched, quire_req req, uint32_t i,
                             quire_mm_input *input, uint8_t *is_embed)
{
    uint32_t index;
    int err;
    const qr_request *r = find_request(sched, req, &index, &err);
    if (r == NULL || input == NULL)
        return r == NULL ? err : QUIRE_E_ARGUMENT;
    if (i >= r->num_features)
        return QUIRE_E_RANGE;
    const qr_feature *f = &r->features[i];
    *input = (quire_mm_input){
        .feature = r->extra.mm_features[i], .num_embeds = f->num_embeds, .is_embed = is_embed};
    for (uint32_t t = 0; is_embed != NULL && t < f->length; t++)
        is_embed[t] = !f->has_flags ||
                      qr_flags_count(&sched->flags, &r->flags, (uint64_t)f->first_flag + t, 1) > 0;
    return QUIRE_OK;
}
