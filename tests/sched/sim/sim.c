#include "sched/sim/sim.h"

/* Steps that the last requests may take: a number of times that each is computed as a whole, by
 * steps of one token. */
enum { MOST_ROUNDS = 80, MOST_WAITS = 400 };

static void print_mix(const sim_mix *m)
{
    printf("    %s, %u in flight, %u drafts, %u groups, block %u, %u blocks, %u host slots, %u "
           "tokens, %u a step, %u run%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s\n",
           m->is_async ? "async" : "sync", m->batches, m->num_spec, m->num_groups, m->block_size,
           m->num_blocks, m->num_swap, m->len, m->budget, m->seqs, m->is_eagle ? ", EAGLE" : "",
           m->is_encoder_decoder ? ", encoder-decoder" : "",
           m->is_aligned  ? ", aligned"
           : m->has_mamba ? ", Mamba"
                          : "",
           m->loads_sync ? ", loads" : "", m->loads_async ? ", async loads" : "",
           m->loads_fail ? " that fail" : "", m->sends ? ", sends" : "",
           m->has_grammar ? ", grammar" : "", m->has_images ? ", images" : "",
           m->has_sessions ? ", sessions" : "", m->has_pooling ? ", pooling" : "",
           m->has_repetition ? ", repetition" : "", m->has_embeds ? ", embeddings" : "",
           m->has_hashes ? ", hashes" : "", m->has_flags ? ", flags" : "",
           m->has_encoder_connector ? ", encoder connector" : "", m->has_forks ? ", forks" : "");
}

/* What is left, when requests do not end. */
static void print_left(const sim *s)
{
    for (uint32_t i = 0; s->is_ending && s->requests != NULL && i < s->mix.max_requests; i++) {
        const sim_request *r = &s->requests[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        if (!r->is_there || quire_sched_get_req_info(s->sched, r->req, &info) != QUIRE_OK)
            continue;
        printf("    request %llu: status %d, %u of %u tokens computed, prompt %u, %u images%s%s\n",
               (unsigned long long)r->number, (int)info.status, info.num_computed_tokens,
               info.num_tokens, info.num_prompt_tokens, r->num_images,
               info.seq != 0 ? ", has blocks" : "", r->has_ended ? ", has ended" : "");
    }
}

void sim_fail(sim *s, const char *what, uint64_t a, uint64_t b)
{
    if (s->has_failed)
        return;
    printf("seed %llu, step %llu: %s (%lld, %lld)\n", (unsigned long long)s->seed,
           (unsigned long long)s->tally.steps, what, (long long)a, (long long)b);
    print_mix(&s->mix);
    print_left(s);
    s->has_failed = true;
}

int sim_called(sim *s, const char *what, int answer)
{
    s->tally.calls++;
    if (s->tally.calls % s->check_every == 0 && !s->has_failed)
        SIM_CHECK(s, quire_sched_check(s->sched) == QUIRE_OK, what, answer, s->tally.calls);
    return answer;
}

static int same_random(void *user, void *out, size_t bytes)
{
    uint64_t *state = user;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)unit_random(state);
    return 0;
}

static uint64_t sim_steps;

static uint64_t step_as_time(void *user)
{
    (void)user;
    return sim_steps;
}

/* A config as it comes. Where the headers say that it is refused, it must be; then another one. */
static void make_scheduler(sim *s)
{
    static uint64_t secret;
    secret = s->seed;
    quire_sched_config config = sim_draw_config(s);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = QUIRE_HASH_QUIRE128;
    hasher.block_size = s->mix.block_size;
    hasher.hooks =
        (quire_hooks){.user = &secret, .now_ns = step_as_time, .random_bytes = same_random};
    quire_hasher_destroy(s->twin);
    quire_hasher_destroy(s->hasher);
    int err = quire_hasher_create(&hasher, NULL, &s->twin);
    SIM_CHECK(s, err == QUIRE_OK, "the users' hasher", err, 0);
    secret = s->seed;
    err = quire_hasher_create(&hasher, NULL, &s->hasher);
    SIM_CHECK(s, err == QUIRE_OK, "the hasher", err, 0);
    config.hasher = s->hasher;
    config.hooks = hasher.hooks;
    config.cache->hooks = hasher.hooks;
    err = quire_sched_create(&config, NULL, &s->sched);
    bool is_refused = sim_is_refused(&config);
    SIM_CHECK(s, err == (is_refused ? QUIRE_E_CONFIG : QUIRE_OK), "the scheduler", err, is_refused);
    s->tally.configs += is_refused;
}

static void open_world(sim *s, uint64_t seed, uint32_t check_every)
{
    *s = (sim){.seed = seed, .random = seed, .check_every = check_every, .junk = UINT64_C(1) << 63};
    sim_fill_others(s);
    while (!s->has_failed && s->sched == NULL)
        make_scheduler(s);
    if (s->has_failed)
        return;
    size_t num_places = (size_t)s->mix.num_blocks * s->mix.page;
    s->requests = calloc(SIM_SLOTS, sizeof *s->requests);
    s->pages = calloc(num_places, sizeof *s->pages);
    s->writers = calloc(num_places, sizeof *s->writers);
    s->host = calloc((size_t)s->mix.num_swap * s->mix.page + 1, sizeof *s->host);
    if (s->requests == NULL || s->pages == NULL || s->writers == NULL || s->host == NULL)
        sim_fail(s, "no memory", num_places, 0);
}
static void close_world(sim *s)
{
    for (uint32_t i = 0; s->requests != NULL && i < SIM_SLOTS; i++)
        free(s->requests[i].sending.tags);
    free(s->requests);
    free(s->pages);
    free(s->writers);
    free(s->host);
    quire_sched_destroy(s->sched);
    quire_hasher_destroy(s->hasher);
    quire_hasher_destroy(s->twin);
}

/* Requests that became too long for the pool end in schedule; the next update tells. */
static void note_outgrown(sim *s)
{
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++) {
        sim_request *r = &s->requests[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        if (!r->is_there || r->has_ended)
            continue;
        int err = quire_sched_get_req_info(s->sched, r->req, &info);
        if (err == QUIRE_OK && info.status < QUIRE_REQ_FINISHED_STOPPED)
            continue;
        uint32_t ahead = (s->mix.batches + 2) * (s->mix.num_spec + 1);
        uint32_t needed = sim_blocks_alone(s, r->num_told + ahead, sim_num_encoder_tokens(s, r));
        if (s->mix.is_aligned) /* states of drafts that may be rejected */
            needed += ahead;
        needed += s->mix.num_groups * s->mix.num_spec; /* lookahead, beyond a window */
        SIM_CHECK(s, needed > s->mix.most_blocks, "ended, though the pool has room for it", needed,
                  s->mix.most_blocks);
        SIM_CHECK(s, s->num_outgrown < s->mix.batches, "too many ends in schedule", r->number, 0);
        if (s->has_failed)
            return;
        s->outgrown[s->num_outgrown++] = r->req;
        s->tally.outgrown++;
        sim_note_end(s, r);
        sim_forget(s, r);
    }
}

static void schedule(sim *s)
{
    const quire_step *step;
    sim_steps = ++s->tally.steps;
    memset(s->is_found, 0, sizeof s->is_found);
    int err = SIM_CALL(s, quire_sched_schedule(s->sched, &step));
    SIM_CHECK(s, err == QUIRE_OK, "schedule", err, s->num_batches);
    if (s->has_failed)
        return;
    for (uint32_t i = 0; i < step->num_preempted && !s->has_failed; i++) {
        sim_request *r = sim_find(s, step->preempted[i]);
        if (r != NULL)
            sim_void_in_flight(s, r);
    }
    note_outgrown(s);
    if (s->has_failed)
        return;
    sim_run_step(s, step);
    if (!s->has_failed)
        sim_check_step(s, step);
}

static void turn(sim *s)
{
    if (!s->is_ending && sim_chance(s, s->mix.arrivals))
        sim_add(s);
    if (!s->is_ending && sim_chance(s, s->mix.has_forks ? 25 : 1) && !s->has_failed)
        sim_fork(s);
    if (!s->is_ending && sim_below(s, 1000) < s->mix.faults)
        sim_disturb(s);
    sim_let_go(s, s->is_ending);
    if (s->mix.has_moves && (s->is_ending || sim_chance(s, 5)))
        sim_move(s);
    bool updates = s->num_batches == s->mix.batches || (s->num_batches > 0 && sim_chance(s, 30));
    if (s->has_failed)
        return;
    if (updates && !s->is_ending && s->mix.faults > 0 && sim_chance(s, 2))
        sim_lose_step(s);
    else if (updates)
        sim_update(s);
    else
        schedule(s);
    if (!s->has_failed)
        sim_check_state(s);
}

/* Requests that are there. A session that waits for its user is left out until sessions end. */
static uint32_t count_left(const sim *s, bool with_idle)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < s->mix.max_requests; i++) {
        const sim_request *r = &s->requests[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        bool is_idle = r->is_there && !r->has_ended && r->is_session &&
                       quire_sched_get_req_info(s->sched, r->req, &info) == QUIRE_OK &&
                       info.status == QUIRE_REQ_WAITING_FOR_STREAMING;
        left += r->is_there && (with_idle || !is_idle);
    }
    return left;
}

/* Runs until all requests have ended, or all but sessions that wait for their users. */
static void run_out(sim *s, bool with_idle)
{
    uint64_t first = s->tally.steps;
    uint64_t most = MOST_WAITS + (uint64_t)MOST_ROUNDS * s->mix.len * (count_left(s, true) + 1);
    uint32_t left = 1;
    while (left > 0 && !s->has_failed) {
        turn(s);
        left = s->num_batches + s->num_ends + s->num_outgrown + count_left(s, with_idle);
        SIM_CHECK(s, s->tally.steps - first < most, "requests that do not end", left,
                  quire_sched_get_counts(s->sched).num_running);
    }
    uint64_t taken = s->tally.steps - first;
    s->tally.slowest = taken > s->tally.slowest ? taken : s->tally.slowest;
}

/* No more arrivals and faults: everything must end by itself, soon. Sessions that wait for their
 * users must not keep others from it; then they end too. */
static void end_all(sim *s)
{
    s->is_ending = true;
    SIM_CALL(s, quire_sched_set_pause(s->sched, QUIRE_UNPAUSED));
    while (!s->has_failed && s->num_batches > 0)
        sim_update(s);
    run_out(s, false);
    if (!s->has_failed)
        sim_end_sessions(s);
    run_out(s, true);
}

bool sim_run(uint64_t seed, uint32_t num_steps, uint32_t check_every, sim_tally *tally)
{
    static sim s;
    open_world(&s, seed, check_every);
    while (!s.has_failed && s.tally.steps < num_steps)
        turn(&s);
    if (!s.has_failed)
        end_all(&s);
    if (!s.has_failed)
        sim_check_end(&s);
    *tally = s.tally;
    close_world(&s);
    return !s.has_failed;
}
