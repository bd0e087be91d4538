/* sched/sim/sim_forks.c - requests are forked, in any state. A child's text goes another way than
 * its
 * parent's as soon as it generates, so a block that one of them writes and the other reads shows.
 */
#include "sched/sim/sim.h"

#include "sched/sched.h"

/* How many entries of steps in flight are the request's; *num_void of them count no more. */
static uint32_t count_in_flight(const sim *s, const sim_request *r, uint32_t *num_void)
{
    uint32_t n = 0;
    *num_void = 0;
    for (uint32_t b = 0; b < s->num_batches; b++) {
        const sim_batch *batch = &s->batches[(s->first_batch + b) % SIM_BATCHES];
        for (uint32_t i = 0; i < batch->num_entries; i++) {
            bool is_own = batch->entries[i].req == r->req;
            n += is_own;
            *num_void += is_own && batch->entries[i].is_void;
        }
    }
    return n;
}

static void draw_child(sim *s, const sim_request *parent, sim_request *r)
{
    uint32_t outputs = parent->num_told - parent->num_prompt;
    uint32_t room = s->mix.len - parent->num_prompt;
    *r = *parent;
    r->is_there = false;
    r->is_tainted = false;
    r->ends_session = false;
    r->req = 0;
    r->number = ++s->num_added;
    r->branch = r->number;
    r->num_tokens = r->num_told;
    r->num_inputs = 0;
    r->num_preemptions = 0;
    r->encoder_step = 0;
    r->load = (sim_transfer){0};
    r->sending = (sim_transfer){0};
    memset(r->rows, 0, sizeof r->rows);
    r->is_session = s->mix.has_sessions && sim_chance(s, 30);
    r->is_grammar = s->mix.has_grammar && sim_chance(s, 30);
    r->is_pooling = sim_chance(s, 1);
    r->max_tokens = sim_chance(s, 90) && outputs < room ? sim_between(s, outputs + 1, room)
                                                        : sim_between(s, 1, room);
    r->min_tokens = sim_chance(s, 20) ? sim_below(s, r->max_tokens + 1) : 0;
    r->has_eos = sim_chance(s, 70);
    r->num_stops = sim_below(s, SIM_STOPS + 1);
    for (uint32_t i = 0; i < r->num_stops; i++)
        r->stops[i] = (quire_token)sim_between(s, 4, 30);
    r->max_pattern = s->mix.has_repetition ? sim_below(s, 5) : 0;
    r->num_replaced = sim_chance(s, 40) ? sim_below(s, outputs + 1) : 0;
    if (sim_chance(s, 70) && r->num_replaced > 1)
        r->num_replaced = 1;
    for (uint32_t p = r->num_told - r->num_replaced; p < r->num_told; p++)
        r->tokens[p] = (quire_token)sim_between(s, 1, 5);
    sim_tag(r, r->num_told - r->num_replaced);
    r->grammar_asks = sim_below(s, 4);
    r->retries = sim_below(s, 3);
}

/* What is the parent's own is not looked at: it is nonsense here. */
static quire_request_params params_of(sim *s, sim_request *r, char *id)
{
    int len = snprintf(id, 24, "%llu", (unsigned long long)(r->number * 7919 % 100003));
    return (quire_request_params){.size = sizeof(quire_request_params),
                                  .id = {id, (size_t)len},
                                  /* the last tokens */ .prompt =
                                      r->tokens + r->num_told - r->num_replaced,
                                  .num_prompt_tokens = r->num_replaced + sim_chance(s, 2) * SIM_LEN,
                                  .num_hashes = UINT32_MAX,
                                  .num_mm_inputs = UINT32_MAX,
                                  .lora_id = 99,
                                  .lora_name = {NULL, SIZE_MAX},
                                  .lora_path = {NULL, SIZE_MAX},
                                  .cache_salt = {NULL, SIZE_MAX},
                                  .max_tokens = r->max_tokens,
                                  .min_tokens = r->min_tokens,
                                  .has_eos = r->has_eos,
                                  .eos_token_id = SIM_EOS,
                                  .stop_token_ids = r->stops,
                                  .num_stop_token_ids = r->num_stops,
                                  .repetition_max_pattern = r->max_pattern,
                                  .repetition_min_pattern = r->min_pattern,
                                  .repetition_min_count = r->min_count,
                                  .priority = (int32_t)sim_below(s, 3),
                                  .arrival_time = (double)(s->tally.steps / 3),
                                  .client_index = sim_below(s, 3),
                                  .use_grammar = r->is_grammar,
                                  .is_pooling = r->is_pooling,
                                  .is_resumable = r->is_session,
                                  .skip_reading_prefix = sim_chance(s, 5),
                                  .user = r};
}

/* What the header says must come: QUIRE_OK where it may, or be full. */
static int expected_of(const sim *s, const sim_request *parent, const sim_request *r,
                       const quire_request_params *p, const quire_req_info *info)
{
    uint32_t outputs = r->num_told - r->num_prompt;
    bool has_second = r->is_session || r->max_tokens > outputs + 1;
    if (!s->mix.has_forks)
        return QUIRE_E_DISABLED;
    if (parent->has_ended || info->status == QUIRE_REQ_WAITING_FOR_STREAMING ||
        parent->is_pooling || r->is_pooling || (r->is_embeds && s->mix.is_caching && r->is_session))
        return QUIRE_E_ARGUMENT;
    if (r->max_tokens <= outputs || p->num_prompt_tokens > outputs)
        return QUIRE_E_RANGE;
    uint32_t blocks = sim_blocks_alone(s, r->num_told + has_second, sim_num_encoder_tokens(s, r));
    return blocks > s->mix.most_blocks ? QUIRE_E_TOO_LONG : QUIRE_OK;
}

/* Whether it must run, must wait, or may do both. */
typedef enum sim_begin { MUST_RUN, MUST_WAIT, MAY_BOTH } sim_begin;

static sim_begin begin_of(const sim *s, const sim_request *parent, const quire_request_params *p,
                          const quire_req_info *info)
{
    const quire_sched *sched = s->sched;
    bool is_forkable = !s->mix.has_mamba || (s->mix.num_spec == 0 && !s->mix.is_aligned);
    uint32_t num_void;
    uint32_t in_flight = count_in_flight(s, parent, &num_void);
    bool may_run =
        info->status == QUIRE_REQ_RUNNING && info->num_output_placeholders == 0 &&
        info->num_computed_tokens <= info->num_tokens - p->num_prompt_tokens &&
        in_flight == num_void &&
        quire_sched_get_counts(sched).num_running + sched->ended.num_asked < s->mix.seqs &&
        quire_sched_get_counts(sched).pause == QUIRE_UNPAUSED && !p->use_grammar &&
        !p->skip_reading_prefix && is_forkable;
    bool has_text = sched->texts.store.num_free >=
                    sched->texts.num_promised_pages + sched->texts.store.max_pages;
    bool has_row = sched->cache->num_seqs < sched->cache->max_requests;
    if (!may_run || !has_row)
        return MUST_WAIT;
    return in_flight == 0 && has_text ? MUST_RUN : MAY_BOTH;
}

static void check_child(sim *s, const sim_request *parent, const sim_request *r, sim_begin begin)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_req_info of_parent = QUIRE_REQ_INFO_INIT;
    quire_sched_get_req_info(s->sched, r->req, &info);
    quire_sched_get_req_info(s->sched, parent->req, &of_parent);
    bool runs = info.status == QUIRE_REQ_RUNNING;
    SIM_CHECK(s, !runs || begin != MUST_WAIT, "a child that must wait runs", r->number, 0);
    SIM_CHECK(s, runs || begin != MUST_RUN, "a child that must run waits", r->number, info.status);
    quire_req_status waits = r->is_grammar ? QUIRE_REQ_WAITING_FOR_GRAMMAR : QUIRE_REQ_WAITING;
    SIM_CHECK(s, runs || info.status == waits, "a child in another state", info.status, waits);
    SIM_CHECK(s, info.num_computed_tokens == (runs ? of_parent.num_computed_tokens : 0),
              "another number of computed tokens", info.num_computed_tokens, runs);
    SIM_CHECK(s, info.lora_id == of_parent.lora_id, "another adapter", info.lora_id, 0);
    if (!runs)
        return;
    quire_req running[SIM_SEQS];
    uint32_t n = quire_sched_get_queue(s->sched, 0, running, SIM_SEQS);
    uint32_t at = 0;
    while (at < n && running[at] != parent->req)
        at++;
    SIM_CHECK(s, at + 1 < n && running[at + 1] == r->req, "a child that is not behind its parent",
              at, n);
    s->tally.shared++;
}

static sim_request *find_slot(sim *s)
{
    for (uint32_t i = 0; i < s->mix.max_requests; i++)
        if (!s->requests[i].is_there)
            return &s->requests[i];
    return NULL;
}

/* Any request that is there; mostly one that runs. */
static sim_request *draw_parent(sim *s)
{
    quire_req running[SIM_SEQS];
    uint32_t n = quire_sched_get_queue(s->sched, 0, running, SIM_SEQS);
    if (n > 0 && sim_chance(s, 80))
        return sim_find(s, running[sim_below(s, n)]);
    return &s->requests[sim_below(s, s->mix.max_requests)];
}

void sim_fork(sim *s)
{
    sim_request *parent = draw_parent(s);
    sim_request *r = find_slot(s);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    char id[24];
    if (r == NULL || parent == NULL || !parent->is_there ||
        quire_sched_get_req_info(s->sched, parent->req, &info) != QUIRE_OK)
        return;
    draw_child(s, parent, r);
    quire_request_params p = params_of(s, r, id);
    int expected = expected_of(s, parent, r, &p, &info);
    sim_begin begin = begin_of(s, parent, &p, &info);
    quire_req child = 0;
    s->forking = r;
    int err = SIM_CALL(s, quire_sched_fork(s->sched, parent->req, &p, &child));
    s->forking = NULL;
    bool is_full = err == QUIRE_FULL && expected != QUIRE_E_ARGUMENT &&
                   expected != QUIRE_E_DISABLED && expected != QUIRE_E_RANGE;
    bool is_unsure = err == QUIRE_E_TOO_LONG && r->num_images > 0;
    SIM_CHECK(s, err == expected || is_full || is_unsure, "fork", err, expected);
    s->tally.full += err == QUIRE_FULL;
    if (err != QUIRE_OK || s->has_failed)
        return;
    r->req = child;
    r->is_there = true;
    s->by_index[quire_req_index(child)] = r;
    s->tally.forks++;
    check_child(s, parent, r, begin);
}
