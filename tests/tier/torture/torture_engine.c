#include "torture.h"

#include <time.h>

enum { VOCABULARY = 30000, NUM_TEXTS = 300, MOST_WAIT_S = 120 };

uint64_t torture_draw(torture *t, uint64_t below)
{
    return unit_random(&t->random) % below;
}

bool torture_chance(torture *t, uint32_t one_in)
{
    return torture_draw(t, one_in) == 0;
}

uint64_t torture_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void torture_sleep_us(long us)
{
    struct timespec time = {.tv_nsec = us * 1000};
    nanosleep(&time, NULL);
}

/* ---- what KV is ---------------------------------------------------------------- */

static uint64_t mix(uint64_t state, uint64_t with)
{
    uint64_t seed = state ^ (with + 1) * UINT64_C(0xd6e8feb86659fd93);
    return unit_random(&seed);
}

/* The KV of the token whose tokens up to it give this state. */
static uint64_t first_word(uint64_t state, uint32_t group)
{
    return mix(state, group);
}

static uint64_t *kv_of(torture *t, quire_block block, uint32_t position)
{
    return (uint64_t *)(void *)(t->gpu + (size_t)block * TORTURE_BYTES) +
           (size_t)(position % TORTURE_TOKENS) * TORTURE_WORDS;
}

static bool is_kv(const uint64_t *kv, uint64_t word)
{
    uint64_t differs = 0;
    for (uint32_t i = 0; i < TORTURE_WORDS; i++)
        differs |= kv[i] ^ (word + i * UINT64_C(0x9e3779b97f4a7c15));
    return differs == 0;
}

static void write_kv(uint64_t *kv, uint64_t word)
{
    for (uint32_t i = 0; i < TORTURE_WORDS; i++)
        kv[i] = word + i * UINT64_C(0x9e3779b97f4a7c15);
}

static void compute_group(torture *t, const torture_part *part, uint32_t group)
{
    const quire_block *row = part->rows[group];
    uint32_t first = 0;
    if (group == 1 && part->num_computed >= TORTURE_WINDOW)
        first = part->num_computed - TORTURE_WINDOW + 1;
    for (uint32_t p = first; p < part->num_computed; p++) {
        quire_block block = row[p / TORTURE_TOKENS];
        uint64_t word = first_word(part->states[p + 1], group);
        if (block == QUIRE_NULL_BLOCK || !is_kv(kv_of(t, block, p), word))
            t->wrong_tokens++;
    }
    for (uint32_t p = part->num_computed; p < part->num_total; p++)
        write_kv(kv_of(t, row[p / TORTURE_TOKENS], p), first_word(part->states[p + 1], group));
    t->checked_blocks += (part->num_computed - first) / TORTURE_TOKENS;
}

/* On the device's thread. */
static void compute(void *user)
{
    torture_work *work = user;
    for (uint32_t i = 0; i < work->num_zeroed; i++)
        memset(kv_of(work->t, work->zeroed[i], 0), 0, TORTURE_BYTES);
    for (uint32_t i = 0; i < work->num_parts; i++)
        for (uint32_t g = 0; g < work->t->num_groups; g++)
            compute_group(work->t, &work->parts[i], g);
    work->is_computed = true;
}

/* ---- requests ------------------------------------------------------------------ */

/* Its tokens follow from a text that others share, up to a branch; its output follows from them. */
static void write_tokens(torture *t, torture_request *r)
{
    uint64_t text = torture_draw(t, torture_draw(t, NUM_TEXTS) + 1);
    uint64_t text_length = 32 + mix(text, 1) % (TORTURE_LEN - 80);
    uint64_t shared = torture_chance(t, 3) ? torture_draw(t, text_length) : text_length;
    r->num_prompt = (uint32_t)(shared + 1 + torture_draw(t, 40));
    r->length = r->num_prompt + 1 + (uint32_t)torture_draw(t, 6);
    r->states[0] = 1;
    for (uint32_t p = 0; p <= r->length && p <= TORTURE_LEN; p++) {
        uint64_t token = p < shared          ? mix(text, p)
                         : p < r->num_prompt ? torture_draw(t, VOCABULARY)
                                             : r->states[p];
        r->tokens[p] = (quire_token)(token % VOCABULARY);
        r->states[p + 1] = mix(r->states[p], (uint64_t)r->tokens[p]);
    }
}

static void add_request(torture *t)
{
    torture_request *r = NULL;
    for (uint32_t i = 0; i < TORTURE_REQUESTS && r == NULL; i++)
        if (t->requests[i].req == 0)
            r = &t->requests[i];
    if (r == NULL)
        return;
    char id[32];
    int bytes = snprintf(id, sizeof id, "r%llu", (unsigned long long)t->next_id++);
    write_tokens(t, r);
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {id, (size_t)bytes},
                                   .prompt = r->tokens,
                                   .num_prompt_tokens = r->num_prompt,
                                   .max_tokens = r->length - r->num_prompt,
                                   .user = r};
    assert_int_equal(quire_sched_add(t->sched, &params, &r->req), QUIRE_OK);
    if (t->is_pinning && torture_chance(t, 4))
        assert_int_equal(quire_sched_pin(t->sched, r->req, 1 + torture_draw(t, 20000000)),
                         QUIRE_OK);
    r->since_ns = torture_now_ns();
    t->added++;
}

static void abort_some(torture *t)
{
    torture_request *r = &t->requests[torture_draw(t, TORTURE_REQUESTS)];
    if (r->req == 0)
        return;
    assert_int_equal(quire_sched_finish(t->sched, &r->req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    r->req = 0;
    r->num_saved = 0;
    t->aborted++;
    t->ended++;
}

/* The caller takes a request's blocks, or lets one come back. */
static void move_some(torture *t)
{
    torture_request *r = &t->requests[torture_draw(t, TORTURE_REQUESTS)];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (r->req == 0)
        return;
    uint32_t which = (uint32_t)torture_draw(t, 4);
    int status = which < 2    ? quire_sched_offload(t->sched, r->req)
                 : which == 2 ? quire_sched_preempt(t->sched, r->req, QUIRE_PREEMPT_CHEAPER)
                              : quire_sched_resume(t->sched, r->req);
    assert_true(status == QUIRE_OK || status == QUIRE_MISS || status == QUIRE_BUSY ||
                status == QUIRE_FULL);
    if (which == 3 || status != QUIRE_OK)
        return;
    assert_int_equal(quire_sched_get_req_info(t->sched, r->req, &info), QUIRE_OK);
    assert_int_equal(info.location,
                     info.num_swapped_tokens > 0 ? QUIRE_LOCATION_HOST : QUIRE_LOCATION_NONE);
    r->num_saved = info.num_swapped_tokens;
    t->moved += r->num_saved > 0;
}

/* Offloaded requests come back after a while, so that their blocks may have left host memory. */
static void resume_some(torture *t, bool all)
{
    for (uint32_t i = 0; i < TORTURE_REQUESTS; i++)
        if (t->requests[i].req != 0 && (all || torture_chance(t, 200)))
            (void)quire_sched_resume(t->sched, t->requests[i].req);
}

/* A request that was moved is there again. */
static void note_return(torture *t, torture_request *r, uint32_t num_computed)
{
    if (r->num_saved == 0)
        return;
    t->saved_tokens += r->num_saved;
    t->found_tokens += num_computed < r->num_saved ? num_computed : r->num_saved;
    r->num_saved = 0;
}

static void look_at_the_clock(const torture *t)
{
    uint64_t now_ns = torture_now_ns();
    for (uint32_t i = 0; i < TORTURE_REQUESTS; i++)
        if (t->requests[i].req != 0 &&
            now_ns - t->requests[i].since_ns > MOST_WAIT_S * UINT64_C(1000000000))
            fail_msg("a request does not end");
}

/* ---- a step -------------------------------------------------------------------- */

static void fill_part(torture *t, const quire_step *step, uint32_t i, torture_work *work)
{
    quire_block_span spans[TORTURE_GROUPS];
    torture_request *r = quire_sched_get_user(t->sched, step->reqs[i]);
    torture_part *part = &work->parts[i];
    part->num_computed = step->num_computed_tokens[i];
    note_return(t, r, part->num_computed);
    part->num_total = part->num_computed + step->num_tokens[i];
    assert_true(part->num_total <= r->length);
    memcpy(part->states, r->states, sizeof part->states);
    assert_int_equal(quire_sched_get_blocks(t->sched, step->reqs[i], spans), QUIRE_OK);
    for (uint32_t g = 0; g < t->num_groups; g++) {
        assert_true(spans[g].count <= TORTURE_ROW + 1);
        assert_true(spans[g].count * TORTURE_TOKENS >= part->num_total);
        memcpy(part->rows[g], spans[g].ids, spans[g].count * sizeof *spans[g].ids);
    }
    work->reqs[i] = step->reqs[i];
    work->sampled[i] = r->tokens[part->num_total];
}

static void wait_until_computed(const torture_work *work)
{
    uint64_t since_ns = torture_now_ns();
    while (!work->is_computed) {
        torture_sleep_us(20);
        assert_true(torture_now_ns() - since_ns < MOST_WAIT_S * UINT64_C(1000000000));
    }
}

static bool schedule(torture *t)
{
    const quire_step *step;
    torture_work *work = &t->works[(t->first_work + t->num_works) % TORTURE_WORKS];
    wait_until_computed(work); /* four steps ago */
    assert_int_equal(quire_sched_schedule(t->sched, &step), QUIRE_OK);
    assert_true(step->num_reqs <= TORTURE_SEQS);
    work->t = t;
    work->step = step->step;
    work->num_parts = step->num_reqs;
    work->num_zeroed = step->blocks_to_zero.count;
    assert_true(work->num_zeroed <= COUNT(work->zeroed));
    if (work->num_zeroed > 0)
        memcpy(work->zeroed, step->blocks_to_zero.ids, work->num_zeroed * sizeof *work->zeroed);
    t->preempted += step->num_preempted;
    for (uint32_t i = 0; i < step->num_reqs; i++)
        fill_part(t, step, i, work);
    work->is_computed = false;
    int status = QUIRE_FULL;
    while ((status = quire_device_host_compute(&t->device, compute, work)) == QUIRE_FULL)
        torture_sleep_us(20);
    assert_int_equal(status, QUIRE_OK);
    t->num_works++;
    t->steps++;
    return step->num_reqs > 0;
}

static void take_output(torture *t, const quire_output *out)
{
    torture_request *r = out->user;
    if (out->finish_reason == QUIRE_FINISH_NONE || r->req != out->req)
        return;
    assert_int_equal(out->finish_reason, QUIRE_FINISH_LENGTH);
    r->req = 0;
    t->ended++;
}

static void update(torture *t)
{
    torture_work *work = &t->works[t->first_work];
    const quire_outputs *outputs;
    quire_model_output output = {.size = sizeof(quire_model_output), .sampled = work->sampled};
    assert_int_equal(quire_offload_poll(t->offload, work->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(t->sched, work->step, &output, &outputs), QUIRE_OK);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        take_output(t, &outputs->outputs[i]);
    t->first_work = (t->first_work + 1) % TORTURE_WORKS;
    t->num_works--;
}

/* New weights: no request comes until the tiers have no jobs, and then all have a new identity. */
static void change_identity(torture *t)
{
    enum { PATIENCE = 5000 };
    unsigned char next[QUIRE_FINGERPRINT_BYTES] = {0};
    uint64_t number = torture_draw(t, UINT32_MAX);
    memcpy(next, &number, sizeof number);
    int status = quire_offload_set_identity(t->offload, next);
    assert_true(status == QUIRE_OK || status == QUIRE_BUSY || status == QUIRE_E_SYSTEM);
    if (status == QUIRE_BUSY && ++t->identity_tries < PATIENCE) /* a job may hang */
        return;
    t->identities += status == QUIRE_OK;
    t->wants_identity = false;
    status = quire_sched_reset_prefix_cache(t->sched, 1, 0);
    assert_true(status == QUIRE_OK || status == QUIRE_BUSY);
}

/* Where a tier is shared the connector is not reset. */
static void reset_all(torture *t)
{
    int status = quire_sched_reset_prefix_cache(t->sched, (uint32_t)torture_draw(t, 2), 1);
    assert_true(status == QUIRE_OK || status == QUIRE_BUSY);
    t->resets++;
    t->wants_identity = true;
    t->identity_tries = 0;
}

static void come_and_go(torture *t)
{
    if (t->wants_identity) {
        change_identity(t);
        return;
    }
    for (uint32_t n = (uint32_t)torture_draw(t, 4); n > 0; n--)
        add_request(t);
    if (torture_chance(t, 20))
        abort_some(t);
    if (torture_chance(t, 6))
        move_some(t);
    resume_some(t, false);
    if (!t->options.is_calm && torture_chance(t, 4000)) {
        reset_all(t);
    }
}

void torture_step(torture *t, bool is_ending)
{
    if (is_ending)
        resume_some(t, true);
    else
        come_and_go(t);
    bool has_work = schedule(t);
    if (t->num_works > (t->is_async ? 1U : 0U))
        update(t);
    while (is_ending && t->num_works > 0)
        update(t);
    if (!has_work)
        torture_sleep_us(50);
    torture_follow(t);
    if (t->steps % 256 == 0) {
        look_at_the_clock(t);
        assert_int_equal(t->wrong_tokens, 0);
    }
    if (t->steps % 512 == 0)
        torture_compare_events(t);
    if (t->steps % 512 == 0 && t->num_works == 0) {
        assert_int_equal(quire_offload_check(t->offload), QUIRE_OK);
        assert_int_equal(quire_sched_check(t->sched), QUIRE_OK);
    }
}

bool torture_is_quiet(const torture *t)
{
    if (t->is_pinning)
        quire_sched_drop_pins(t->sched);
    return quire_sched_get_num_unfinished(t->sched) == 0 && t->num_works == 0 &&
           !quire_offload_has_pending(t->offload);
}

/* ---- its life ------------------------------------------------------------------ */

static void choose_groups(torture *t)
{
    quire_layer_spec full = {.kind = QUIRE_LAYER_FULL,
                             .block_size = TORTURE_TOKENS,
                             .num_kv_heads = 1,
                             .head_size = 64,
                             .dtype = QUIRE_DTYPE_FLOAT16};
    t->groups[0] = (quire_group_config){.spec = full};
    t->groups[1] = (quire_group_config){.spec = full};
    t->groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    t->groups[1].spec.sliding_window = TORTURE_WINDOW;
    t->num_groups = t->is_hybrid ? 2 : 1;
}

static quire_sched_config sched_config(torture *t)
{
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    t->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    config.cache = &t->cache_config;
    config.cache->groups = t->groups;
    config.cache->num_groups = t->num_groups;
    config.cache->num_blocks = TORTURE_GPU;
    config.cache->max_model_len = TORTURE_LEN;
    config.hasher = t->hasher;
    config.max_num_seqs = TORTURE_SEQS;
    config.max_num_batched_tokens = 512;
    config.async_scheduling = t->is_async ? QUIRE_ON : QUIRE_OFF;
    config.max_requests = TORTURE_REQUESTS + TORTURE_SEQS;
    config.cache->track_new_blocks = t->is_zeroing ? QUIRE_ON : QUIRE_OFF;
    config.max_pins = t->is_pinning ? 6 : 0;
    config.lookahead = t->is_pinning ? 16 : 0;
    t->monitor = (quire_monitor_config)QUIRE_MONITOR_CONFIG_INIT;
    t->monitor.num_steps = 16;
    config.monitor = &t->monitor;
    return config;
}

static void open_device(torture *t)
{
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = t->gpu;
    config.num_blocks = TORTURE_GPU;
    config.slots = t->cpu;
    config.num_slots = TORTURE_CPU;
    config.block_bytes = TORTURE_BYTES;
    assert_int_equal(quire_device_host_open(&config, NULL, &t->device), QUIRE_OK);
}

void torture_open_engine(torture *t)
{
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.seed = (quire_bytes){"torture", 7}; /* what earlier eras stored is found again */
    assert_int_equal(quire_hasher_create(&hasher, NULL, &t->hasher), QUIRE_OK);
    choose_groups(t);
    open_device(t);
    quire_offload_tier tiers[TORTURE_TIERS];
    memset(tiers, 0, sizeof tiers);
    for (uint32_t i = 0; i < t->num_tiers; i++)
        tiers[i] = (quire_offload_tier){.tier = t->tiers[i],
                                        .deadline_ns = t->is_faulty[i] ? 10000000 : 100000000};
    quire_sched_config sched = sched_config(t);
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.learns = QUIRE_OFF; /* its steps take no time */
    config.sched = &sched;
    config.num_cpu_blocks = TORTURE_CPU;
    config.mode = t->mode;
    config.device = &t->device;
    config.memory = t->cpu;
    config.block_bytes = TORTURE_BYTES;
    config.tiers = tiers;
    config.num_tiers = t->num_tiers;
    config.backlog = 16;
    config.events = QUIRE_ON;
    assert_int_equal(quire_offload_create(&config, NULL, &t->offload), QUIRE_OK);
    sched.connector = quire_offload_connector(t->offload);
    assert_int_equal(quire_sched_create(&sched, NULL, &t->sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(t->offload, t->sched), QUIRE_OK);
    for (uint32_t i = 0; i < TORTURE_WORKS; i++)
        t->works[i].is_computed = true;
    t->is_view_whole = false;
    torture_open_events(t);
}

void torture_close_engine(torture *t)
{
    for (uint32_t i = 0; i < TORTURE_WORKS; i++)
        wait_until_computed(&t->works[i]);
    for (uint32_t i = 0; i < TORTURE_REQUESTS; i++)
        assert_int_equal(t->requests[i].req, 0);
    torture_close_events(t);
    quire_sched_destroy(t->sched);
    assert_int_equal(quire_offload_destroy(t->offload), QUIRE_OK);
    quire_hasher_destroy(t->hasher);
    quire_device_close(&t->device);
}
