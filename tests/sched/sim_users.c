/* sched/sim_users.c - requests come, go on, are given up; and what an operator may do. */
#include "sched/sim.h"

/* Prompts of a few families begin alike. */
static uint32_t draw_text(sim *s, quire_token *tokens, uint32_t most)
{
    uint32_t n = sim_chance(s, 30) ? sim_between(s, 1, most) : sim_between(s, 1, (most + 1) / 2);
    uint32_t family = sim_below(s, 4);
    uint32_t shared = sim_below(s, n + 1);
    for (uint32_t p = 0; p < n; p++)
        tokens[p] = (quire_token)(p < shared ? (family * 7 + p * p) % 5 + 1 : sim_below(s, 3) + 1);
    return n;
}

static void draw_images(sim *s, sim_request *r, quire_mm_input *inputs)
{
    static char names[SIM_IMAGES][8] = {"image0", "image1", "image2", "image3", "image4", "image5"};
    uint32_t at = 0;
    for (uint32_t i = 0; s->mix.has_images && i < SIM_FEATURES; i++) {
        uint32_t name = sim_below(s, SIM_IMAGES);
        uint32_t length = 1 + name % s->mix.image_size;
        at += sim_below(s, 4);
        if (at + length > r->num_told)
            break;
        r->images[r->num_images] = (sim_image){name, at, length};
        inputs[r->num_images++] = (quire_mm_input){
            .feature = {.identifier = {names[name], 6}, .offset = at, .length = length}};
        for (uint32_t p = at; p < at + length; p++)
            r->tokens[p] = SIM_PLACEHOLDER;
        at += length;
    }
}

static void draw_request(sim *s, sim_request *r)
{
    *r = (sim_request){.number = ++s->num_added};
    r->is_session = s->mix.has_sessions && sim_chance(s, 40);
    r->num_prompt = draw_text(s, r->tokens, r->is_session ? s->mix.len / 4 : s->mix.len - 1);
    r->num_told = r->num_prompt;
    r->num_tokens = r->num_prompt;
    r->is_grammar = s->mix.has_grammar && sim_chance(s, 40);
    r->salt = sim_chance(s, 20) ? sim_between(s, 1, 2) : 0;
    r->lora = s->mix.max_loras > 0 && sim_chance(s, 60) ? sim_between(s, 1, 3) : 0;
    uint32_t room = s->mix.len - r->num_prompt;
    r->max_tokens = sim_chance(s, 20) ? room : sim_between(s, 1, room);
    if (r->is_session)
        r->max_tokens = 1 + r->max_tokens % 6;
    r->min_tokens = sim_chance(s, 20) ? sim_between(s, 0, r->max_tokens) : 0;
    r->has_eos = sim_chance(s, 70);
    r->num_stops = sim_below(s, SIM_STOPS + 1);
    for (uint32_t i = 0; i < r->num_stops; i++)
        r->stops[i] = (quire_token)sim_between(s, 4, 30);
    r->grammar_asks = sim_below(s, 4);
    r->retries = sim_below(s, 3);
}

static quire_request_params params_of(sim *s, const sim_request *r, char *id)
{
    static const char *const names[] = {NULL, "one", "two", "three"};
    int len = snprintf(id, 24, "%llu", (unsigned long long)(r->number * 7919 % 100003));
    return (quire_request_params){
        .id = {id, (size_t)len},
        .prompt = r->tokens,
        .num_prompt_tokens = r->num_told,
        .max_tokens = r->max_tokens,
        .min_tokens = r->min_tokens,
        .has_eos = r->has_eos,
        .eos_token_id = SIM_EOS,
        .stop_token_ids = r->stops,
        .num_stop_token_ids = r->num_stops,
        .priority = (int32_t)sim_below(s, 3),
        .arrival_time = (double)(s->tally.steps / 3),
        .client_index = sim_below(s, 3),
        .lora_name = {names[r->lora], r->lora > 0 ? strlen(names[r->lora]) : 0},
        .lora_id = r->lora,
        .cache_salt = {r->salt > 0 ? "salts" : NULL, r->salt},
        .use_grammar = r->is_grammar,
        .is_resumable = r->is_session,
        .skip_reading_prefix = sim_chance(s, 5)};
}

bool sim_add(sim *s)
{
    uint32_t slot = 0;
    while (slot < SIM_SLOTS && s->requests[slot].is_there)
        slot++;
    if (slot == SIM_SLOTS)
        return false;
    sim_request *r = &s->requests[slot];
    quire_mm_input images[SIM_FEATURES];
    char id[24];
    draw_request(s, r);
    draw_images(s, r, images);
    sim_tag(r, 0);
    quire_request_params p = params_of(s, r, id);
    p.mm_inputs = images;
    p.num_mm_inputs = r->num_images;
    p.user = r;
    int err = quire_sched_add(s->sched, &p, &r->req);
    SIM_CHECK(s, err == QUIRE_OK || err == QUIRE_FULL || err == QUIRE_E_TOO_LONG, "add", err, 0);
    s->tally.full += err == QUIRE_FULL;
    if (err != QUIRE_OK)
        return false;
    SIM_CHECK(s, quire_sched_find(s->sched, p.id) == r->req, "find", r->number, 0);
    r->is_there = true;
    s->by_index[quire_req_index(r->req)] = r;
    s->tally.requests++;
    if (s->mix.has_pins && sim_chance(s, 40)) {
        err = quire_sched_pin(s->sched, r->req, sim_chance(s, 50) ? UINT64_MAX : sim_below(s, 40));
        SIM_CHECK(s, err == QUIRE_OK, "pin", err, 0);
        s->tally.pins++;
    }
    return true;
}

/* ---- sessions -------------------------------------------------------------- */

void sim_take_in_input(sim *s, sim_request *r)
{
    quire_req_info info;
    sim_void_in_flight(s, r);
    int err = quire_sched_req_info(s->sched, r->req, &info);
    SIM_CHECK(s, err == QUIRE_OK, "a session that is gone", r->number, err);
    uint32_t n = r->input_lens[0];
    uint32_t kept = info.num_prompt_tokens - n;
    bool ok = info.num_prompt_tokens >= n && kept <= r->num_told && kept + 1 >= r->num_told;
    SIM_CHECK(s, ok, "a session that lost what it had", kept, r->num_told);
    if (s->has_failed)
        return;
    memcpy(r->tokens + kept, r->inputs[0], n * sizeof *r->tokens);
    r->num_prompt = r->num_told = r->num_tokens = kept + n;
    sim_tag(r, 0);
    r->num_inputs--;
    memmove(r->inputs[0], r->inputs[1], r->num_inputs * sizeof r->inputs[0]);
    memmove(r->input_lens, r->input_lens + 1, r->num_inputs * sizeof r->input_lens[0]);
    s->tally.turns++;
}

static bool waits_for_input(const sim *s, const sim_request *r)
{
    quire_req_info info;
    return quire_sched_req_info(s->sched, r->req, &info) == QUIRE_OK &&
           info.status == QUIRE_REQ_WAITING_FOR_STREAMING;
}

static void end_session(sim *s, sim_request *r)
{
    bool waits = waits_for_input(s, r);
    int err = quire_sched_continue(s->sched, r->req, NULL);
    SIM_CHECK(s, err == QUIRE_OK, "the end of a session", err, r->number);
    r->ends_session = true;
    if (waits) {
        sim_note_end(s, r);
        sim_forget(s, r);
    }
}

static void continue_session(sim *s, sim_request *r)
{
    uint32_t most = r->num_told + (r->num_inputs + 2) * (r->max_tokens + s->mix.len / 8);
    if (r->num_inputs == SIM_INPUTS || r->ends_session)
        return;
    if (most >= s->mix.len || sim_chance(s, 20)) {
        end_session(s, r);
        return;
    }
    char id[24];
    quire_token *input = r->inputs[r->num_inputs];
    quire_request_params p = params_of(s, r, id);
    bool waits = waits_for_input(s, r);
    p.prompt = input;
    p.num_prompt_tokens = draw_text(s, input, s->mix.len / 8);
    int err = quire_sched_continue(s->sched, r->req, &p);
    SIM_CHECK(s, err == QUIRE_OK || err == QUIRE_E_RANGE || err == QUIRE_FULL, "continue", err, 0);
    if (err != QUIRE_OK)
        return;
    r->input_lens[r->num_inputs++] = p.num_prompt_tokens;
    if (waits)
        sim_take_in_input(s, r);
}

void sim_end_sessions(sim *s)
{
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        sim_request *r = &s->requests[i];
        if (r->is_there && !r->has_ended && r->is_session && !r->ends_session)
            end_session(s, r);
    }
}

/* ---- the end of requests, from outside ------------------------------------- */

void sim_note_end(sim *s, sim_request *r)
{
    r->has_ended = true;
    r->num_tokens = r->num_told;
    SIM_CHECK(s, s->num_ends < COUNT(s->ends), "too many ends", s->num_ends, 0);
    if (!s->has_failed)
        s->ends[s->num_ends++] = r->req;
}

static void abort_some(sim *s)
{
    quire_req reqs[2 * SIM_SLOTS];
    uint32_t n = 0;
    uint32_t expected = 0;
    uint32_t percent = sim_chance(s, 10) ? 100 : sim_between(s, 5, 40);
    bool all = sim_chance(s, 5);
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        sim_request *r = &s->requests[i];
        if (!r->is_there || !(all || sim_chance(s, percent)))
            continue;
        reqs[n++] = r->req;
        if (sim_chance(s, 20))
            reqs[n++] = r->req; /* listed twice */
        if (r->has_ended)
            continue;
        expected++;
        sim_note_end(s, r);
    }
    uint32_t count = 0;
    int err = all ? quire_sched_finish_all(s->sched, QUIRE_REQ_FINISHED_ABORTED, &count)
                  : quire_sched_finish(s->sched, reqs, n, QUIRE_REQ_FINISHED_ABORTED, &count);
    SIM_CHECK(s, err == QUIRE_OK && count == expected, "finish", count, expected);
    s->tally.aborts += count;
    for (uint32_t i = 0; i < SIM_SLOTS && !s->has_failed; i++)
        if (s->requests[i].is_there && s->requests[i].has_ended)
            sim_forget(s, &s->requests[i]);
}

/* ---- the operator ---------------------------------------------------------- */

static void reset(sim *s)
{
    quire_req running[SIM_SEQS];
    uint32_t n = quire_sched_get_queue(s->sched, 0, running, SIM_SEQS);
    bool resets_running = s->mix.resets_running && sim_chance(s, 50);
    bool resets_connector = sim_chance(s, 50);
    int err = quire_sched_reset_prefix_cache(s->sched, resets_running, resets_connector);
    if (resets_connector && !s->mix.has_connector)
        SIM_CHECK(s, err == QUIRE_E_ARGUMENT, "reset of no connector", err, 0);
    else
        SIM_CHECK(s, err == QUIRE_OK || err == QUIRE_BUSY, "reset", err, 0);
    bool are_preempted = resets_running && err == QUIRE_OK;
    for (uint32_t i = 0; are_preempted && i < n && !s->has_failed; i++) {
        sim_request *r = sim_find(s, running[i]);
        if (r != NULL)
            sim_void_in_flight(s, r);
    }
    s->tally.resets++;
}

void sim_disturb(sim *s)
{
    uint32_t dice = sim_below(s, 10);
    if (dice < 4) {
        abort_some(s);
    } else if (dice < 6) {
        reset(s);
    } else if (dice < 7) {
        int err = quire_sched_reset_encoder_cache(s->sched);
        SIM_CHECK(s, err == QUIRE_OK, "reset of the encoder", err, 0);
        memset(s->is_encoded, 0, sizeof s->is_encoded);
    } else if (dice < 8) {
        quire_sched_set_pause(s->sched, (quire_pause)sim_below(s, 3));
    } else {
        quire_sched_set_pause(s->sched, QUIRE_UNPAUSED);
    }
    for (uint32_t i = 0; i < SIM_SLOTS && !s->has_failed; i++) {
        sim_request *r = &s->requests[i];
        if (r->is_there && !r->has_ended && r->is_session && sim_chance(s, 30))
            continue_session(s, r);
    }
}
