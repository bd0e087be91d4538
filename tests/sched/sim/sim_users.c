/* sched/sim/sim_users.c - requests come, go on, are given up; and what an operator may do. */
#include "sched/sim/sim.h"

#include "sched/sched.h"

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

/* Of one image all placeholders have an embedding, of another every second, of another the last. */
bool sim_has_embed(const sim *s, uint32_t name, uint32_t placeholder)
{
    uint32_t length = 1 + name * 7 % s->mix.image_size;
    if (!s->mix.has_flags || name % 3 == 0)
        return true;
    return name % 3 == 1 ? placeholder % 2 == 0 : placeholder + 1 == length;
}

static const uint8_t *flags_of(const sim *s, uint32_t name)
{
    static uint8_t flags[SIM_IMAGES][SIM_LEN];
    for (uint32_t k = 0; k < SIM_LEN; k++)
        flags[name][k] = sim_has_embed(s, name, k);
    return flags[name];
}

uint32_t sim_num_embeds(const sim *s, const sim_image *image)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < image->length; k++)
        n += sim_has_embed(s, image->name, k);
    return n;
}

/* Images among n tokens, or beside them as the input of an encoder; returns how many. */
static uint32_t draw_images(sim *s, quire_token *tokens, uint32_t n, sim_image *images,
                            quire_mm_input *inputs)
{
    static char names[SIM_IMAGES][8] = {"image0", "image1", "image2", "image3", "image4", "image5"};
    bool is_apart = s->mix.is_encoder_decoder;
    uint32_t at = 0;
    uint32_t count = 0;
    while (s->mix.has_images && count < SIM_FEATURES) {
        uint32_t name = sim_below(s, SIM_IMAGES);
        uint32_t length = 1 + name * 7 % s->mix.image_size;
        at += is_apart ? 0 : sim_below(s, 4);
        if ((!is_apart && at + length > n) || sim_chance(s, 20))
            break;
        images[count] = (sim_image){name, at, length};
        inputs[count++] = (quire_mm_input){
            .feature = {.identifier = {names[name], 6}, .offset = at, .length = length},
            .is_embed = s->mix.has_flags ? flags_of(s, name) : NULL};
        for (uint32_t p = at; p < at + length && !is_apart; p++)
            tokens[p] = SIM_PLACEHOLDER;
        at += is_apart ? 0 : length;
    }
    return count;
}

uint32_t sim_num_encoder_tokens(const sim *s, const sim_request *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; s->mix.is_encoder_decoder && i < r->num_images; i++)
        n += sim_num_embeds(s, &r->images[i]);
    return n;
}

/* What add must say of a request: whether it could run alone in an empty engine. UNSURE where
 * images that stand close to each other are needed together. */
typedef enum sim_verdict { MUST_RUN, MUST_BE_REFUSED, UNSURE } sim_verdict;

static sim_verdict could_run(const sim *s, const sim_request *r)
{
    const sim_mix *m = &s->mix;
    uint32_t num_encoder = sim_num_encoder_tokens(s, r);
    uint32_t most = m->encoder_budget < m->encoder_cache ? m->encoder_budget : m->encoder_cache;
    uint32_t num_tokens = r->num_told + (r->max_tokens > 1 || r->is_session);
    bool is_refused = sim_blocks_alone(s, num_tokens, num_encoder) > m->most_blocks ||
                      num_encoder > m->max_encoder_tokens || num_encoder > most;
    for (uint32_t i = 0; i < r->num_images; i++)
        is_refused = is_refused || sim_num_embeds(s, &r->images[i]) > most;
    if (is_refused)
        return MUST_BE_REFUSED;
    return r->num_images > 0 && (m->is_eagle || m->is_aligned || m->is_encoder_decoder) ? UNSURE
                                                                                        : MUST_RUN;
}

static void draw_request(sim *s, sim_request *r)
{
    *r = (sim_request){.number = ++s->num_added};
    r->is_session = s->mix.has_sessions && sim_chance(s, 40);
    uint32_t most = r->is_session && sim_chance(s, 70) ? (s->mix.len + 3) / 4 : s->mix.len - 1;
    r->num_prompt = draw_text(s, r->tokens, most);
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
    if (s->mix.has_pooling && sim_chance(s, 40)) {
        r->is_pooling = true;
        r->max_tokens = 1;
        r->min_tokens = 0;
    }
    if (s->mix.has_repetition && sim_chance(s, 50)) {
        r->max_pattern = sim_below(s, 5);
        r->min_pattern = sim_below(s, 4);
        r->min_count = sim_below(s, 4);
    }
    r->grammar_asks = sim_below(s, 4);
    r->retries = sim_below(s, 3);
}

static quire_request_params params_of(sim *s, const sim_request *r, char *id)
{
    static const char *const names[] = {NULL, "one", "two", "three"};
    int len = snprintf(id, 24, "%llu", (unsigned long long)(r->number * 7919 % 100003));
    return (quire_request_params){
        .size = sizeof(quire_request_params),
        .id = {id, (size_t)len},
        .prompt = r->tokens,
        .num_prompt_tokens = r->num_told,
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
        .lora_name = {names[r->lora], r->lora > 0 ? strlen(names[r->lora]) : 0},
        .lora_id = r->lora,
        .cache_salt = {r->salt > 0 ? "salts" : NULL, r->salt},
        .use_grammar = r->is_grammar,
        .is_pooling = r->is_pooling,
        .is_resumable = r->is_session,
        .skip_reading_prefix = sim_chance(s, 5)};
}

/* ---- what the caller may bring: embeddings in place of tokens, and hashes ------------------- */

/* Embeddings of the same families as the tokens; the tokens themselves may be left out. */
static void draw_embeds(sim *s, sim_request *r, quire_request_params *p)
{
    r->is_embeds = s->mix.has_embeds && sim_chance(s, 50);
    if (!r->is_embeds)
        return;
    for (r->num_rows = 0; r->num_rows < r->num_told; r->num_rows++)
        r->embeds[r->num_rows] = (uint32_t)r->tokens[r->num_rows];
    p->prompt_embeds = r->embeds;
    p->prompt_embed_bytes = sizeof r->embeds[0];
    if (sim_chance(s, 50)) {
        memset(r->tokens, 0, r->num_told * sizeof *r->tokens);
        p->prompt = NULL;
    }
}

/* All hashes of the prompt, as the scheduler must have them; returns how many. */
static uint32_t make_hashes(sim *s, const sim_request *r, const quire_request_params *p,
                            unsigned char *hashes)
{
    _Alignas(8) unsigned char memory[1024];
    quire_mm_feature features[SIM_FEATURES];
    quire_chain *chain;
    size_t num_hashes = 0;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++)
        features[i] = p->mm_inputs[i].feature;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = p->lora_name,
                              .cache_salt = p->cache_salt,
                              .mm_features = features,
                              .num_mm_features = p->num_mm_inputs,
                              .prompt_embeds = p->prompt_embeds,
                              .prompt_embed_bytes = p->prompt_embed_bytes,
                              .num_prompt_embeds = p->prompt_embeds != NULL ? r->num_told : 0};
    int err = quire_chain_init(s->twin, memory, sizeof memory, &chain);
    SIM_CHECK(s, err == QUIRE_OK, "chain_init", err, 0);
    err = quire_chain_append(s->twin, chain, r->tokens, r->num_told, &extra, hashes,
                             (size_t)SIM_LEN * SIM_DIGEST, &num_hashes);
    SIM_CHECK(s, err == QUIRE_OK, "chain_append", err, 0);
    return (uint32_t)num_hashes;
}

static void check_hashes(sim *s, const sim_request *r, const unsigned char *hashes, uint32_t n)
{
    const void *have = NULL;
    uint32_t num_have = 0;
    int err = quire_sched_get_hashes(s->sched, r->req, UINT32_MAX, &have, &num_have);
    SIM_CHECK(s, err == QUIRE_OK && num_have == n, "another number of hashes", num_have, n);
    bool is_same = n == 0 || (num_have == n && memcmp(have, hashes, (size_t)n * SIM_DIGEST) == 0);
    SIM_CHECK(s, is_same, "other hashes", r->number, n);
}

bool sim_add(sim *s)
{
    uint32_t slot = 0;
    while (slot < s->mix.max_requests && s->requests[slot].is_there)
        slot++;
    if (slot == s->mix.max_requests)
        return false;
    sim_request *r = &s->requests[slot];
    quire_mm_input images[SIM_FEATURES];
    unsigned char hashes[SIM_LEN * SIM_DIGEST];
    char id[24];
    draw_request(s, r);
    r->num_images = draw_images(s, r->tokens, r->num_told, r->images, images);
    quire_request_params p = params_of(s, r, id);
    p.mm_inputs = images;
    p.num_mm_inputs = r->num_images;
    p.user = r;
    draw_embeds(s, r, &p);
    sim_tag(r, 0);
    uint32_t num_hashes = s->mix.is_caching ? make_hashes(s, r, &p, hashes) : 0;
    if (s->mix.is_caching && s->mix.has_hashes && sim_chance(s, 60)) {
        p.hashes = hashes;
        p.num_hashes = sim_below(s, num_hashes + (sim_chance(s, 5) ? 2 : 1));
    }
    int err = SIM_CALL(s, quire_sched_add(s->sched, &p, &r->req));
    if (r->is_embeds && r->is_session) {
        bool ok = err == QUIRE_E_ARGUMENT || (err == QUIRE_E_RANGE && p.num_hashes > num_hashes);
        SIM_CHECK(s, ok, "embeddings of a session", err, 0);
        return false;
    }
    if (s->mix.is_encoder_decoder && s->mix.has_flags && p.num_mm_inputs > 0) {
        SIM_CHECK(s, err == QUIRE_E_RANGE, "flags of an encoder-decoder model", err, 0);
        return false;
    }
    if (p.num_hashes > num_hashes) {
        SIM_CHECK(s, err == QUIRE_E_RANGE, "more hashes than full blocks", err, p.num_hashes);
        return false;
    }
    SIM_CHECK(s, err == QUIRE_OK || err == QUIRE_FULL || err == QUIRE_E_TOO_LONG, "add", err, 0);
    sim_verdict verdict = could_run(s, r);
    SIM_CHECK(s, err != QUIRE_OK || verdict != MUST_BE_REFUSED, "add took what cannot run",
              r->num_told, r->num_images);
    SIM_CHECK(s, err != QUIRE_E_TOO_LONG || verdict != MUST_RUN, "add refused what could run",
              r->num_told, r->num_images);
    s->tally.full += err == QUIRE_FULL;
    s->tally.refused += err == QUIRE_E_TOO_LONG;
    if (err != QUIRE_OK)
        return false;
    SIM_CHECK(s, quire_sched_find(s->sched, p.id) == r->req, "find", r->number, 0);
    r->is_there = true;
    s->by_index[quire_req_index(r->req)] = r;
    check_hashes(s, r, hashes, num_hashes);
    s->tally.requests++;
    s->tally.embedded += r->is_embeds;
    s->tally.hashed += p.num_hashes > 0;
    if (s->mix.has_pins && sim_chance(s, 40)) {
        uint64_t ttl = sim_chance(s, 50) ? UINT64_MAX : sim_below(s, 40);
        err = SIM_CALL(s, quire_sched_pin(s->sched, r->req, ttl));
        SIM_CHECK(s, err == QUIRE_OK, "pin", err, 0);
        s->tally.pins++;
    }
    return true;
}

/* ---- sessions -------------------------------------------------------------- */

void sim_take_in_input(sim *s, sim_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    sim_void_in_flight(s, r);
    int err = quire_sched_get_req_info(s->sched, r->req, &info);
    SIM_CHECK(s, err == QUIRE_OK, "a session that is gone", r->number, err);
    uint32_t n = r->input_lens[0];
    uint32_t kept = info.num_prompt_tokens - n;
    bool ok = info.num_prompt_tokens >= n && kept <= r->num_told && kept + 1 >= r->num_told;
    SIM_CHECK(s, ok, "a session that lost what it had", kept, r->num_told);
    if (s->has_failed)
        return;
    memcpy(r->tokens + kept, r->inputs[0], n * sizeof *r->tokens);
    for (uint32_t i = 0; i < r->num_input_images[0] && r->num_images < SIM_MOST_IMAGES; i++) {
        r->images[r->num_images] = r->input_images[0][i];
        r->images[r->num_images++].offset += s->mix.is_encoder_decoder ? 0 : kept;
    }
    r->num_prompt = r->num_told = r->num_tokens = kept + n;
    sim_tag(r, 0);
    r->min_tokens = r->input_mins[0];
    r->num_inputs--;
    memmove(r->inputs[0], r->inputs[1], r->num_inputs * sizeof r->inputs[0]);
    memmove(r->input_lens, r->input_lens + 1, r->num_inputs * sizeof r->input_lens[0]);
    memmove(r->input_mins, r->input_mins + 1, r->num_inputs * sizeof r->input_mins[0]);
    memmove(r->input_images[0], r->input_images[1], r->num_inputs * sizeof r->input_images[0]);
    memmove(r->num_input_images, r->num_input_images + 1,
            r->num_inputs * sizeof r->num_input_images[0]);
    s->tally.turns++;
}

static bool waits_for_input(const sim *s, const sim_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    return quire_sched_get_req_info(s->sched, r->req, &info) == QUIRE_OK &&
           info.status == QUIRE_REQ_WAITING_FOR_STREAMING;
}

static void end_session(sim *s, sim_request *r)
{
    bool waits = waits_for_input(s, r);
    int err = SIM_CALL(s, quire_sched_continue(s->sched, r->req, NULL));
    SIM_CHECK(s, err == QUIRE_OK, "the end of a session", err, r->number);
    r->ends_session = true;
    if (waits) {
        sim_note_end(s, r);
        sim_forget(s, r);
    }
}

/* An input that the session could never run with must be refused. */
static void check_continue(sim *s, const sim_request *r, const quire_request_params *p, int err)
{
    uint32_t num_tokens = r->num_told - 1 + p->num_prompt_tokens;
    uint32_t most =
        s->mix.encoder_budget < s->mix.encoder_cache ? s->mix.encoder_budget : s->mix.encoder_cache;
    for (uint32_t i = 0; i < r->num_inputs; i++)
        num_tokens += r->input_lens[i];
    bool is_long = num_tokens + 1 >= s->mix.len;
    bool is_large = sim_blocks_alone(s, num_tokens + 1, 0) > s->mix.most_blocks;
    for (uint32_t i = 0; i < p->num_mm_inputs; i++)
        is_large = is_large || sim_num_embeds(s, &r->input_images[r->num_inputs][i]) > most;
    SIM_CHECK(s, err != QUIRE_OK || (!is_long && !is_large), "continue took what cannot run",
              num_tokens, is_long);
    bool is_small = num_tokens + 1 < s->mix.len && r->num_images + p->num_mm_inputs == 0 &&
                    sim_blocks_alone(s, num_tokens + 2, 0) <= s->mix.most_blocks;
    SIM_CHECK(s, err != QUIRE_E_TOO_LONG || !is_small, "continue refused what could run",
              num_tokens, r->number);
}

static void continue_session(sim *s, sim_request *r)
{
    if (r->num_inputs == SIM_INPUTS || r->ends_session)
        return;
    if (sim_chance(s, 20)) {
        end_session(s, r);
        return;
    }
    char id[24];
    quire_mm_input images[SIM_FEATURES];
    uint32_t k = r->num_inputs;
    quire_request_params p = params_of(s, r, id);
    bool waits = waits_for_input(s, r);
    uint32_t most = sim_chance(s, 70) ? (s->mix.len + 7) / 8 : s->mix.len;
    p.prompt = r->inputs[k];
    p.num_prompt_tokens = draw_text(s, r->inputs[k], most);
    p.num_mm_inputs = draw_images(s, r->inputs[k], p.num_prompt_tokens, r->input_images[k], images);
    p.mm_inputs = images;
    int err = SIM_CALL(s, quire_sched_continue(s->sched, r->req, &p));
    if (s->mix.is_encoder_decoder && p.num_mm_inputs > 0) {
        int expected = p.num_prompt_tokens < s->mix.len ? QUIRE_E_ARGUMENT : QUIRE_E_RANGE;
        SIM_CHECK(s, err == expected, "encoder input of a session", err, expected);
        return;
    }
    SIM_CHECK(
        s, err == QUIRE_OK || err == QUIRE_E_RANGE || err == QUIRE_FULL || err == QUIRE_E_TOO_LONG,
        "continue", err, 0);
    check_continue(s, r, &p, err);
    s->tally.refused += err == QUIRE_E_TOO_LONG;
    if (err != QUIRE_OK)
        return;
    r->num_input_images[k] = p.num_mm_inputs;
    r->input_mins[k] = p.min_tokens;
    r->input_lens[r->num_inputs++] = p.num_prompt_tokens;
    if (waits)
        sim_take_in_input(s, r);
}

void sim_end_sessions(sim *s)
{
    for (uint32_t i = 0; i < s->mix.max_requests; i++) {
        sim_request *r = &s->requests[i];
        if (r->is_there && !r->has_ended && r->is_session && !r->ends_session)
            end_session(s, r);
    }
}

/* ---- prompts that are cut --------------------------------------------------- */

void sim_cut_prompt(sim *s, sim_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    uint32_t n = sim_below(s, r->num_prompt + 2);
    uint32_t max_tokens = sim_chance(s, 50) ? sim_between(s, 1, 4) : 0;
    int known = quire_sched_get_req_info(s->sched, r->req, &info);
    bool is_fresh = known == QUIRE_OK && info.status < QUIRE_REQ_FINISHED_STOPPED &&
                    info.seq == 0 && info.num_computed_tokens == 0 &&
                    info.num_tokens == info.num_prompt_tokens && info.num_swapped_tokens == 0 &&
                    info.status != QUIRE_REQ_WAITING_FOR_STREAMING;
    int err = quire_sched_cut_prompt(s->sched, r->req, n, max_tokens);
    if (s->sched->partners.is_inside == 0)
        SIM_CALL(s, err);
    bool is_in_range = n > 0 && n <= r->num_prompt;
    uint32_t num_images = 0;
    for (uint32_t i = 0; i < r->num_images; i++) {
        const sim_image *image = &r->images[i];
        bool is_apart = s->mix.is_encoder_decoder;
        num_images += image->offset < n || is_apart;
        bool is_through = !is_apart && image->offset < n && image->offset + image->length > n;
        is_in_range = is_in_range && !is_through;
    }
    bool has_rows = r->is_embeds && s->mix.is_caching;
    int expected = !is_fresh || has_rows ? QUIRE_E_ARGUMENT
                   : is_in_range         ? QUIRE_OK
                                         : QUIRE_E_RANGE;
    SIM_CHECK(s, err == expected, "cut_prompt", err, expected);
    if (err != QUIRE_OK || s->has_failed)
        return;
    r->num_images = num_images;
    r->num_prompt = r->num_told = r->num_tokens = n;
    r->num_rows = r->num_rows < n ? r->num_rows : n;
    if (max_tokens > 0 && max_tokens < r->max_tokens) {
        r->max_tokens = max_tokens;
        r->min_tokens = r->min_tokens < max_tokens ? r->min_tokens : max_tokens;
    }
    s->tally.cuts++;
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
    for (uint32_t i = 0; i < s->mix.max_requests; i++) {
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
    quire_req_status status = QUIRE_REQ_FINISHED_ABORTED;
    int err = all ? SIM_CALL(s, quire_sched_finish_all(s->sched, status, &count))
                  : SIM_CALL(s, quire_sched_finish(s->sched, reqs, n, status, &count));
    SIM_CHECK(s, err == QUIRE_OK && count == expected, "finish", count, expected);
    s->tally.aborts += count;
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++)
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
    int err =
        SIM_CALL(s, quire_sched_reset_prefix_cache(s->sched, resets_running, resets_connector));
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
        int err = SIM_CALL(s, quire_sched_reset_encoder_cache(s->sched));
        SIM_CHECK(s, err == QUIRE_OK, "reset of the encoder", err, 0);
        memset(s->is_encoded, 0, sizeof s->is_encoded);
    } else if (dice < 8) {
        quire_pause pause = (quire_pause)sim_below(s, 3);
        SIM_CALL(s, quire_sched_set_pause(s->sched, pause));
    } else {
        SIM_CALL(s, quire_sched_set_pause(s->sched, QUIRE_UNPAUSED));
    }
    sim_request *one = &s->requests[sim_below(s, s->mix.max_requests)];
    if (one->is_there)
        sim_cut_prompt(s, one);
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++) {
        sim_request *r = &s->requests[i];
        if (r->is_there && !r->has_ended && r->is_session && sim_chance(s, 30))
            continue_session(s, r);
    }
}
