#include "sched/sim.h"

enum { MOST_LAST_STEPS = 20000 };

static void print_mix(const sim_mix *m)
{
    printf("    %s, %u in flight, %u drafts, %u groups, block %u, %u blocks, %u host slots, %u "
           "tokens%s%s%s%s%s%s%s\n",
           m->is_async ? "async" : "sync", m->batches, m->num_spec, m->num_groups, m->block_size,
           m->num_blocks, m->num_swap, m->len, m->loads_sync ? ", loads" : "",
           m->loads_async ? ", async loads" : "", m->loads_fail ? " that fail" : "",
           m->sends ? ", sends" : "", m->has_grammar ? ", grammar" : "",
           m->has_images ? ", images" : "", m->has_sessions ? ", sessions" : "");
}

void sim_fail(sim *s, const char *what, uint64_t a, uint64_t b)
{
    if (s->has_failed)
        return;
    printf("seed %llu, step %llu: %s (%lld, %lld)\n", (unsigned long long)s->seed,
           (unsigned long long)s->tally.steps, what, (long long)a, (long long)b);
    print_mix(&s->mix);
    s->has_failed = true;
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

static void open_world(sim *s, uint64_t seed, uint32_t check_every)
{
    *s = (sim){.seed = seed, .random = seed, .check_every = check_every, .junk = UINT64_C(1) << 63};
    static uint64_t secret;
    secret = seed;
    sim_fill_others(s);
    quire_sched_config config = sim_draw_config(s);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.algo = QUIRE_HASH_QUIRE128;
    hasher.block_size = s->mix.block_size;
    hasher.hooks =
        (quire_hooks){.user = &secret, .now_ns = step_as_time, .random_bytes = same_random};
    int err = quire_hasher_create(&hasher, NULL, &s->hasher);
    SIM_CHECK(s, err == QUIRE_OK, "the hasher", err, 0);
    config.hasher = s->hasher;
    config.hooks = hasher.hooks;
    config.cache.hooks = hasher.hooks;
    err = quire_sched_create(&config, NULL, &s->sched);
    SIM_CHECK(s, err == QUIRE_OK, "the scheduler", err, 0);
    size_t num_places = (size_t)s->mix.num_blocks * s->mix.block_size;
    s->requests = calloc(SIM_SLOTS, sizeof *s->requests);
    s->pages = calloc(num_places, sizeof *s->pages);
    s->writers = calloc(num_places, sizeof *s->writers);
    s->host = calloc((size_t)s->mix.num_swap * s->mix.block_size + 1, sizeof *s->host);
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
}

static void schedule(sim *s)
{
    const quire_step *step;
    sim_steps = ++s->tally.steps;
    int err = quire_sched_schedule(s->sched, &step);
    SIM_CHECK(s, err == QUIRE_OK, "schedule", err, s->num_batches);
    if (s->has_failed)
        return;
    for (uint32_t i = 0; i < step->num_preempted && !s->has_failed; i++) {
        sim_request *r = sim_find(s, step->preempted[i]);
        if (r != NULL)
            sim_void_in_flight(s, r);
    }
    sim_run_step(s, step);
    if (!s->has_failed)
        sim_check_step(s, step);
}

static void turn(sim *s)
{
    if (!s->is_ending && sim_chance(s, s->mix.arrivals))
        sim_add(s);
    if (!s->is_ending && sim_below(s, 1000) < s->mix.faults)
        sim_disturb(s);
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

/* No more arrivals and faults: everything must end by itself, soon. */
static void end_all(sim *s)
{
    s->is_ending = true;
    quire_sched_set_pause(s->sched, QUIRE_UNPAUSED);
    sim_end_sessions(s);
    uint64_t last = s->tally.steps + MOST_LAST_STEPS;
    while (!s->has_failed && (s->sched != NULL && s->num_batches > 0)) {
        sim_update(s);
    }
    uint32_t left = 1;
    while (left > 0 && !s->has_failed) {
        turn(s);
        left = s->num_batches + s->num_ends;
        for (uint32_t i = 0; i < SIM_SLOTS; i++)
            left += s->requests[i].is_there;
        SIM_CHECK(s, s->tally.steps < last, "requests that do not end", left,
                  quire_sched_num_running(s->sched));
    }
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
