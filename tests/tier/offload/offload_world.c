#include "tier/offload/offload_world.h"

enum {
    BLOCK = 4,
    WINDOW = 10,
    CHUNK = 12,
    MOST_RUNNING = 6,
    MOST_TURNS = 20000,
    DEADLINE = 60,
    STICKS = 300
};

uint64_t world_draw(world *w, uint64_t below)
{
    w->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = w->random;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

bool world_chance(world *w, uint32_t percent)
{
    return world_draw(w, 100) < percent;
}

static uint32_t block_tokens(const world *w)
{
    return w->setup.block_tokens == 0 ? BLOCK : w->setup.block_tokens;
}

/* ---- content ---------------------------------------------------------------- */

/* Of a block whose last token is number end - 1. */
static uint64_t content_of(const world_request *r, uint32_t end, uint32_t group)
{
    uint64_t x = UINT64_C(0xcbf29ce484222325) + group;
    for (uint32_t i = 0; i < end; i++)
        x = (x ^ (uint32_t)r->tokens[i]) * UINT64_C(0x100000001b3);
    return x | 1;
}

static void scribble(world *w, uint64_t *content)
{
    *content = world_draw(w, UINT64_MAX) & ~UINT64_C(1);
}

static void copy_block(world *w, bool is_store, quire_block gpu, quire_block cpu, bool has_failed)
{
    uint64_t *from = is_store ? &w->gpu[gpu] : &w->cpu[cpu];
    uint64_t *to = is_store ? &w->cpu[cpu] : &w->gpu[gpu];
    assert_true(gpu > 0 && gpu < w->setup.num_gpu && cpu > 0 && cpu < w->setup.num_cpu);
    *to = *from;
    if (has_failed)
        scribble(w, to);
}

/* ---- the device ------------------------------------------------------------- */

static int device_mark(void *self, uint64_t *mark)
{
    world *w = self;
    *mark = w->num_scheduled; /* all steps before the one that is being scheduled */
    if (w->setup.has_no_mark)
        return QUIRE_E_SYSTEM;
    return w->setup.fail_percent > 0 && world_chance(w, 2) ? QUIRE_E_SYSTEM : QUIRE_OK;
}

static int device_submit(void *self, quire_device_job *job)
{
    world *w = self;
    if (w->setup.fail_percent > 0 && world_chance(w, 2))
        return QUIRE_E_SYSTEM;
    if (w->num_jobs == WORLD_MAX_JOBS || world_chance(w, 5))
        return QUIRE_FULL;
    bool sticks = world_chance(w, w->setup.stick_percent);
    w->num_late += sticks;
    w->jobs[w->num_jobs++] = (world_job){.job = job,
                                         .is_store = job->op == QUIRE_DEVICE_STORE,
                                         .after = job->after,
                                         .sticks_until = sticks ? w->clock + STICKS : 0};
    return QUIRE_OK;
}

static void drop_job(world *w, uint32_t i)
{
    w->jobs[i] = w->jobs[--w->num_jobs];
}

static void run_device_job(world *w, quire_device_job *job)
{
    job->status = world_chance(w, w->setup.fail_percent) ? QUIRE_E_SYSTEM : QUIRE_OK;
    for (uint32_t i = 0; i < job->num_copies; i++)
        copy_block(w, job->op == QUIRE_DEVICE_STORE, job->copies[i].block, job->copies[i].slot,
                   job->status != QUIRE_OK);
    w->num_failures += job->status != QUIRE_OK;
}

static uint32_t device_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    world *w = self;
    uint32_t n = 0;
    for (uint32_t i = w->num_jobs; i-- > 0 && n < capacity;) {
        quire_device_job *job = w->jobs[i].job;
        if (w->jobs[i].after > w->num_computed || w->jobs[i].sticks_until > w->clock ||
            (w->setup.stores_hang && w->jobs[i].is_store) ||
            !world_chance(w, w->setup.pace_percent))
            continue;
        run_device_job(w, job);
        jobs[n++] = job;
        drop_job(w, i);
    }
    return n;
}

static const quire_device_ops DEVICE = {.abi = 1,
                                        .size = sizeof DEVICE,
                                        .name = "world",
                                        .mark = device_mark,
                                        .submit = device_submit,
                                        .poll = device_poll};

/* ---- workers ---------------------------------------------------------------- */

static void take_meta(world *w, const quire_offload_meta *meta, uint64_t step)
{
    w->num_loads += meta->num_loads;
    w->num_stores += meta->num_stores;
    if (w->setup.has_device)
        return;
    for (uint32_t which = 0; which < 2; which++) {
        uint32_t n = which == 0 ? meta->num_loads : meta->num_stores;
        if (n == 0)
            continue;
        assert_true(w->num_jobs < WORLD_MAX_JOBS && n <= WORLD_MAX_BLOCKS);
        world_job *job = &w->jobs[w->num_jobs++];
        *job = (world_job){.is_store = which == 1,
                           .after = step - 1,
                           .event = which == 0 ? meta->load_event : meta->store_event,
                           .num_left = which == 0 ? 1 : w->setup.num_workers,
                           .count = n};
        memcpy(job->gpu, which == 0 ? meta->load_gpu : meta->store_gpu, n * sizeof *job->gpu);
        memcpy(job->cpu, which == 0 ? meta->load_cpu : meta->store_cpu, n * sizeof *job->cpu);
        if (which == 1)
            continue;
        job->num_reqs = meta->num_load_reqs;
        memcpy(job->reqs, meta->load_reqs, job->num_reqs * sizeof *job->reqs);
    }
}

static void report_job(world *w, world_job *job)
{
    bool has_failed = world_chance(w, w->setup.fail_percent);
    quire_offload_report report = QUIRE_OFFLOAD_REPORT_INIT;
    w->num_failures += has_failed;
    job->has_failed |= has_failed;
    for (uint32_t i = 0; job->num_left == 1 && i < job->count; i++)
        copy_block(w, job->is_store, job->gpu[i], job->cpu[i], job->has_failed);
    job->num_left--;
    if (job->is_store && has_failed) {
        report.failed_events = &job->event;
        report.num_failed_events = 1;
    } else if (job->is_store) {
        report.stored_events = &job->event;
        report.num_stored = 1;
    } else if (has_failed) {
        report.failed = job->reqs;
        report.num_failed = job->num_reqs;
    } else {
        report.loaded = job->reqs;
        report.num_loaded = job->num_reqs;
    }
    assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_OK);
}

static void run_workers(world *w)
{
    for (uint32_t i = w->num_jobs; !w->setup.has_device && i-- > 0;) {
        if (w->jobs[i].after > w->num_computed || !world_chance(w, w->setup.pace_percent))
            continue;
        report_job(w, &w->jobs[i]);
        if (w->jobs[i].num_left == 0)
            drop_job(w, i);
    }
}

/* ---- steps ------------------------------------------------------------------ */

static void learn_tokens(world *w, world_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(w->sched, r->req, &info), QUIRE_OK);
    r->num_tokens = info.num_tokens;
    assert_int_equal(quire_sched_get_tokens(w->sched, r->req, 0, r->num_tokens, r->tokens),
                     QUIRE_OK);
    r->epoch++;
}

static void take_part(world *w, const quire_step *step, uint32_t i, world_part *part)
{
    quire_block_span spans[WORLD_MAX_GROUPS];
    world_request *r = quire_sched_get_user(w->sched, step->reqs[i]);
    if (step->kinds[i] != QUIRE_STEP_RUNNING)
        learn_tokens(w, r);
    *part = (world_part){.request = r,
                         .epoch = r->epoch,
                         .num_computed = step->num_computed_tokens[i],
                         .num_new = step->num_tokens[i]};
    assert_int_equal(quire_sched_get_blocks(w->sched, step->reqs[i], spans), QUIRE_OK);
    for (uint32_t g = 0; g < 1U + w->setup.is_hybrid; g++) {
        part->counts[g] = spans[g].count;
        assert_true(spans[g].count <= WORLD_MAX_ROW);
        memcpy(part->rows[g], spans[g].ids, spans[g].count * sizeof *part->rows[g]);
    }
}

static void schedule(world *w)
{
    const quire_step *step = NULL;
    assert_int_equal(quire_sched_schedule(w->sched, &step), QUIRE_OK);
    w->num_tokens += step->total_tokens;
    w->num_preempted += step->num_preempted;
    world_step *flight = &w->flight[w->num_flight++];
    *flight = (world_step){.step = step->step, .num_parts = step->num_reqs};
    take_meta(w, step->connector_meta, step->step);
    w->num_scheduled++;
    for (uint32_t i = 0; i < step->num_reqs; i++)
        take_part(w, step, i, &flight->parts[i]);
}

/* What the request relies on is there. */
static void check_part(const world *w, const world_part *part, uint32_t g)
{
    uint32_t size = block_tokens(w);
    for (uint32_t b = 0; b * size < part->num_computed; b++) {
        uint32_t end = (b + 1) * size < part->num_computed ? (b + 1) * size : part->num_computed;
        quire_block block = part->rows[g][b];
        uint32_t before = part->num_computed < WINDOW ? 0 : part->num_computed - (WINDOW - 1);
        if (w->setup.is_chunked)
            before = part->num_computed / CHUNK * CHUNK;
        bool is_needed = g == 0 || (b + 1) * size > before;
        if (block == QUIRE_NULL_BLOCK) {
            assert_false(is_needed);
            continue;
        }
        if (w->gpu[block] != content_of(part->request, end, g))
            print_error("seed %llu, step %llu: group %u, block %u of %u tokens\n",
                        (unsigned long long)w->setup.seed, (unsigned long long)w->num_computed, g,
                        b, part->num_computed);
        assert_true(w->gpu[block] == content_of(part->request, end, g));
    }
}

/* Tokens of a step that is void by now may be none that the request has. */
static void write_part(world *w, const world_part *part, uint32_t g)
{
    uint32_t last = part->num_computed + part->num_new;
    uint32_t size = block_tokens(w);
    for (uint32_t b = part->num_computed / size; b * size < last; b++) {
        uint32_t end = (b + 1) * size < last ? (b + 1) * size : last;
        quire_block block = part->rows[g][b];
        assert_true(block != QUIRE_NULL_BLOCK);
        if (end <= part->request->num_tokens)
            w->gpu[block] = content_of(part->request, end, g);
        else
            scribble(w, &w->gpu[block]);
    }
}

static void compute(world *w, world_step *step)
{
    for (uint32_t i = 0; i < step->num_parts; i++) {
        world_part *part = &step->parts[i];
        world_request *r = part->request;
        bool is_void = r->has_ended || part->epoch != r->epoch;
        for (uint32_t g = 0; g < 1U + w->setup.is_hybrid; g++) {
            if (!is_void)
                check_part(w, part, g);
            write_part(w, part, g);
        }
        if (part->num_computed + part->num_new < r->num_tokens)
            continue;
        part->num_sampled = 1;
        part->token = (quire_token)world_draw(w, 3);
        if (!is_void && r->num_tokens < WORLD_LEN)
            r->tokens[r->num_tokens++] = part->token;
    }
    step->is_computed = true;
    w->num_computed++;
}

static void note_outputs(world *w, const quire_outputs *outputs)
{
    for (uint32_t i = 0; i < outputs->num_outputs; i++) {
        world_request *r = outputs->outputs[i].user;
        w->num_outputs++;
        if (outputs->outputs[i].finish_reason == QUIRE_FINISH_NONE)
            continue;
        r->has_ended = true;
        w->num_finished++;
    }
}

static void update(world *w)
{
    quire_token sampled[WORLD_MAX_REQUESTS] = {0};
    uint32_t num_sampled[WORLD_MAX_REQUESTS] = {0};
    quire_model_output output = {
        .size = sizeof(quire_model_output), .sampled = sampled, .num_sampled = num_sampled};
    const quire_outputs *outputs = NULL;
    world_step *step = &w->flight[0];
    if (!step->is_computed)
        compute(w, step);
    for (uint32_t i = 0; i < step->num_parts; i++) {
        sampled[i] = step->parts[i].token;
        num_sampled[i] = step->parts[i].num_sampled;
    }
    run_workers(w);
    assert_int_equal(quire_offload_poll(w->offload, step->step, &output), QUIRE_OK);
    assert_int_equal(quire_sched_update(w->sched, step->step, &output, &outputs), QUIRE_OK);
    note_outputs(w, outputs);
    w->num_flight--;
    memmove(&w->flight[0], &w->flight[1], w->num_flight * sizeof w->flight[0]);
}

void world_turn(world *w)
{
    w->clock++;
    uint32_t depth = w->setup.is_async || w->setup.is_piped ? 2 : 1;
    if (w->num_flight < depth && (w->num_flight == 0 || world_chance(w, 80))) {
        schedule(w);
    } else {
        if (w->num_flight > 0 && !w->flight[0].is_computed && world_chance(w, 30))
            compute(w, &w->flight[0]);
        else
            update(w);
    }
    assert_int_equal(quire_sched_check(w->sched), QUIRE_OK);
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
}

/* ---- what comes from outside ------------------------------------------------ */

void world_add(world *w)
{
    if (w->num_people == WORLD_MAX_PEOPLE || quire_sched_get_counts(w->sched).num_waiting > 12)
        return;
    world_request *r = &w->people[w->num_people];
    char name[16];
    uint32_t n = 1 + (uint32_t)world_draw(w, WORLD_LEN - 24);
    *r = (world_request){0};
    if (w->num_people > 0 && world_chance(w, 75)) { /* as an earlier one began */
        uint32_t back = (uint32_t)world_draw(w, w->num_people < 24 ? w->num_people : 24) + 1;
        const world_request *from = &w->people[w->num_people - back];
        uint32_t same = (uint32_t)world_draw(w, from->num_tokens) + 1;
        r->num_tokens = same < n ? same : n;
        memcpy(r->tokens, from->tokens, r->num_tokens * sizeof *r->tokens);
    }
    while (r->num_tokens < n)
        r->tokens[r->num_tokens++] = (quire_token)world_draw(w, 3);
    snprintf(name, sizeof name, "r%u", w->num_people % 40); /* names come again */
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {name, strlen(name)},
                                   .prompt = r->tokens,
                                   .num_prompt_tokens = n,
                                   .max_tokens = 1 + (uint32_t)world_draw(w, 20),
                                   .priority = (int32_t)world_draw(w, 3),
                                   .user = r};
    int err = quire_sched_add(w->sched, &params, &r->req);
    if (err == QUIRE_OK)
        w->num_people++;
    else
        assert_true(err == QUIRE_E_DUPLICATE || err == QUIRE_FULL || err == QUIRE_E_TOO_LONG);
}

world_request *world_ask(world *w, uint32_t first, uint32_t n, uint32_t max_tokens)
{
    world_request *r = &w->people[w->num_people++];
    char name[16];
    *r = (world_request){.num_tokens = n};
    for (uint32_t i = 0; i < n; i++)
        r->tokens[i] = (quire_token)(first + i);
    snprintf(name, sizeof name, "q%u", w->num_people);
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {name, strlen(name)},
                                   .prompt = r->tokens,
                                   .num_prompt_tokens = n,
                                   .max_tokens = max_tokens,
                                   .user = r};
    assert_int_equal(quire_sched_add(w->sched, &params, &r->req), QUIRE_OK);
    return r;
}

void world_abort(world *w)
{
    uint32_t back = w->num_people < 40 ? w->num_people : 40;
    uint32_t num_finished = 0;
    if (back == 0)
        return;
    world_request *r = &w->people[w->num_people - 1 - (uint32_t)world_draw(w, back)];
    assert_int_equal(
        quire_sched_finish(w->sched, &r->req, 1, QUIRE_REQ_FINISHED_ABORTED, &num_finished),
        QUIRE_OK);
    r->has_ended |= num_finished > 0;
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
}

void world_move(world *w)
{
    uint32_t back = w->num_people < 40 ? w->num_people : 40;
    if (back == 0)
        return;
    const world_request *r = &w->people[w->num_people - 1 - (uint32_t)world_draw(w, back)];
    uint32_t which = (uint32_t)world_draw(w, 6);
    int err = QUIRE_OK;
    if (which < 3)
        err = quire_sched_preempt(w->sched, r->req, (quire_preempt_mode)which);
    else if (which == 3)
        err = quire_sched_offload(w->sched, r->req);
    else
        err = quire_sched_resume(w->sched, r->req);
    bool is_refused = err == QUIRE_MISS || err == QUIRE_BUSY || err == QUIRE_FULL;
    assert_true(err == QUIRE_OK || is_refused || (r->has_ended && err == QUIRE_E_UNKNOWN_REQ));
    w->num_moves += err == QUIRE_OK && which < 4;
    assert_int_equal(quire_sched_check(w->sched), QUIRE_OK);
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
}

void world_resume(world *w)
{
    for (uint32_t i = 0; i < w->num_people; i++)
        (void)quire_sched_resume(w->sched, w->people[i].req);
}

void world_reset(world *w, bool reset_running)
{
    int err = quire_sched_reset_prefix_cache(w->sched, reset_running, 1);
    assert_true(err == QUIRE_OK || err == QUIRE_BUSY);
    const quire_connector *c = quire_offload_connector(w->offload);
    if (err == QUIRE_BUSY) /* copies on the way hold blocks: then the offload's cache alone */
        assert_int_equal(c->reset_cache(c->user), 0);
    assert_int_equal(
        quire_pool_get_counts(quire_cache_get_pool(quire_offload_cache(w->offload))).num_keys, 0);
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
}

/* ---- beginning and end ------------------------------------------------------ */

quire_sched_config world_sched_config(world *w)
{
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    w->cache_config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    config.cache = &w->cache_config;
    w->groups[0] = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                                 .block_size = block_tokens(w),
                                                 .num_kv_heads = 1,
                                                 .head_size = 2,
                                                 .dtype = QUIRE_DTYPE_FLOAT32}};
    w->groups[1] = w->groups[0];
    w->groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    w->groups[1].spec.sliding_window = WINDOW;
    if (w->setup.is_chunked) {
        w->groups[1] = w->groups[0];
        w->groups[1].spec.kind = QUIRE_LAYER_CHUNKED_LOCAL;
        w->groups[1].spec.attention_chunk_size = CHUNK;
    }
    if (w->setup.is_parallel && !w->setup.is_hybrid) { /* blocks of BLOCK positions as before */
        config.cache->dcp_world_size = 2;
        config.cache->pcp_world_size = w->setup.seed % 2 == 0 ? 2 : 1;
        w->groups[0].spec.block_size = BLOCK / 2 / config.cache->pcp_world_size;
    }
    config.cache->groups = w->groups;
    config.cache->num_groups = 1U + w->setup.is_hybrid;
    config.cache->num_blocks = w->setup.num_gpu;
    config.cache->max_model_len = WORLD_LEN;
    config.hasher = w->hasher;
    config.policy = w->setup.has_priority ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
    config.max_num_seqs = MOST_RUNNING;
    config.max_num_batched_tokens = 48;
    config.async_scheduling = w->setup.is_async ? QUIRE_ON : QUIRE_OFF;
    config.max_requests = WORLD_MAX_REQUESTS;
    config.max_pins = w->setup.max_pins;
    return config;
}

static uint64_t world_now(void *user)
{
    const world *w = user;
    return w->clock;
}

/* More than the offload has. */
static int promise_more(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                        uint32_t *is_async)
{
    const quire_connector *c = quire_offload_connector(user);
    int err = c->get_num_new_matched_tokens(user, req, num_local, num_external, is_async);
    *num_external += 2 * BLOCK;
    *is_async = 1;
    return err;
}

void world_open(world *w, const world_setup *setup)
{
    memset(w, 0, sizeof *w);
    w->setup = *setup;
    w->random = setup->seed;
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    hasher.block_size = block_tokens(w);
    assert_int_equal(quire_hasher_create(&hasher, NULL, &w->hasher), QUIRE_OK);
    quire_sched_config sched = world_sched_config(w);
    w->device = (quire_device){&DEVICE, w};
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.sched = &sched;
    config.num_cpu_blocks = setup->num_cpu;
    config.mode = setup->mode;
    config.num_workers = setup->num_workers;
    config.max_events = setup->max_events;
    config.device = setup->has_device ? &w->device : NULL;
    config.backlog = 8;
    config.load_deadline_ns = DEADLINE;
    config.hooks.user = w;
    config.hooks.now_ns = world_now;
    assert_int_equal(quire_offload_create(&config, NULL, &w->offload), QUIRE_OK);
    quire_connector connector = *quire_offload_connector(w->offload);
    if (setup->saves_nothing)
        connector.request_preempted = NULL;
    if (setup->promises_more)
        connector.get_num_new_matched_tokens = promise_more;
    sched.connector = &connector;
    assert_int_equal(quire_sched_create(&sched, NULL, &w->sched), QUIRE_OK);
    assert_int_equal(quire_offload_bind(w->offload, w->sched), QUIRE_OK);
}

void world_drain(world *w)
{
    uint32_t turns = 0;
    while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0 || w->num_jobs > 0 ||
           quire_offload_has_pending(w->offload)) {
        world_turn(w);
        assert_true(++turns < MOST_TURNS);
    }
    assert_int_equal(quire_sched_get_usage(w->sched).active, 0);
    assert_int_equal(quire_cache_get_usage(quire_offload_cache(w->offload)).active, 0);
}

void world_close(world *w)
{
    quire_sched_destroy(w->sched);
    assert_int_equal(quire_offload_destroy(w->offload), QUIRE_OK);
    quire_hasher_destroy(w->hasher);
}

/* ---- for tests of one thing at a time ------------------------------------------ */

world_setup world_quiet(quire_offload_mode mode, bool has_device)
{
    return (world_setup){.seed = 3,
                         .num_gpu = 64,
                         .num_cpu = 64,
                         .mode = mode,
                         .has_device = has_device,
                         .num_workers = 1,
                         .pace_percent = 100,
                         .max_events = 8};
}

uint32_t world_num_cpu_keys(const world *w)
{
    return quire_pool_get_counts(quire_cache_get_pool(quire_offload_cache(w->offload))).num_keys;
}

quire_offload_stats world_stats(const world *w)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_offload_get_stats(w->offload, &stats), QUIRE_OK);
    return stats;
}
