#include "engine/forks.h"

#include "engine/beams.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TASKS = 8 };

/* A sequence that has blocks. */
typedef struct fork_seq {
    bool is_there;
    uint32_t row;
    quire_cache_request state;
    quire_token *tokens;
    unsigned char *hashes;
    float score;
    uint32_t sample; /* number of its reference */
} fork_seq;

typedef struct fork_task {
    bool is_beam;
    bool is_active;
    bool is_done;
    uint32_t rest; /* steps until it may begin again */
    uint32_t width;
    uint32_t num_prompt;
    quire_token *prompt;
    engine_request samples[ENGINE_FORK_WIDTH];
    engine_beam_reference beams;
    uint32_t step; /* of the beams */
    uint32_t num_seqs;
    fork_seq *seqs[ENGINE_FORK_WIDTH]; /* in order */
} fork_task;

struct engine_forks {
    engine_texts *texts;
    uint32_t num_tasks;
    fork_task tasks[MAX_TASKS];
    fork_task branches[ENGINE_BRANCHES];
    fork_seq seqs[ENGINE_FORK_ROWS];
};

/* ---- making ---------------------------------------------------------------- */

/* One continuation of the task's prompt. */
static int expect_sample(engine *e, fork_task *t, uint32_t which, uint32_t max_tokens)
{
    engine_request *r = &t->samples[which];
    *r = (engine_request){.id = which,
                          .num_prompt = t->num_prompt,
                          .max_tokens = max_tokens,
                          .temperature = 0.8f,
                          .seed = engine_random(&e->random),
                          .eos = -1,
                          .first_logit = t->num_prompt - 1};
    r->expected = calloc(e->model->config.max_positions + ENGINE_MORE_TOKENS, sizeof *r->expected);
    if (r->expected == NULL)
        return 1;
    memcpy(r->expected, t->prompt, t->num_prompt * sizeof *r->expected);
    return engine_request_expect(e->model, e->ops, e->backend, r);
}

static int expect_samples(engine *e, fork_task *t)
{
    uint32_t max_tokens = engine_between(&e->random, 1, 8);
    for (uint32_t i = 0; i < t->width; i++)
        if (expect_sample(e, t, i, max_tokens) != 0)
            return 1;
    return 0;
}

static int create_task(engine *e, fork_task *t)
{
    uint32_t max_len = e->setup->max_model_len;
    t->is_beam = e->setup->has_beams && (!e->setup->has_samples || engine_chance(&e->random, 50));
    t->width = engine_between(&e->random, 2, ENGINE_FORK_WIDTH);
    t->prompt = calloc(max_len, sizeof *t->prompt);
    if (t->prompt == NULL)
        return 1;
    t->num_prompt = engine_texts_prompt(e->forks->texts, max_len / 3, t->prompt);
    if (!t->is_beam)
        return expect_samples(e, t);
    t->beams.width = t->width;
    t->beams.num_steps = engine_between(&e->random, 2, 8);
    return engine_beams_expect(e, t->prompt, t->num_prompt, &t->beams);
}

int engine_forks_create(engine *e)
{
    engine_forks *f = calloc(1, sizeof *f);
    e->forks = f;
    if (f == NULL)
        return 1;
    f->texts = engine_texts_create(e->model, e->setup->max_model_len, e->setup->seed);
    if (f->texts == NULL)
        return 1;
    for (uint32_t i = 0; i < ENGINE_FORK_ROWS; i++) {
        fork_seq *s = &f->seqs[i];
        s->row = ENGINE_MAX_REQUESTS + i;
        s->tokens = calloc(e->setup->max_model_len + ENGINE_MORE_TOKENS, sizeof *s->tokens);
        s->hashes = calloc(e->setup->max_model_len + ENGINE_MORE_TOKENS, QUIRE_MAX_DIGEST_BYTES);
        if (s->tokens == NULL || s->hashes == NULL)
            return 1;
    }
    if (e->setup->has_beams || e->setup->has_samples)
        f->num_tasks = engine_between(&e->random, 3, MAX_TASKS);
    for (uint32_t i = 0; i < f->num_tasks; i++)
        if (create_task(e, &f->tasks[i]) != 0)
            return 1;
    return 0;
}

static void clear_task(fork_task *t)
{
    for (uint32_t i = 0; i < ENGINE_FORK_WIDTH; i++)
        engine_request_destroy(&t->samples[i]);
    free(t->beams.logits);
    free(t->prompt);
    *t = (fork_task){0};
}

void engine_forks_destroy(engine *e)
{
    engine_forks *f = e->forks;
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < ENGINE_FORK_ROWS; i++) {
        free(f->seqs[i].tokens);
        free(f->seqs[i].hashes);
    }
    for (uint32_t i = 0; i < MAX_TASKS; i++)
        clear_task(&f->tasks[i]);
    for (uint32_t i = 0; i < ENGINE_BRANCHES; i++)
        clear_task(&f->branches[i]);
    engine_texts_destroy(f->texts);
    free(f);
    e->forks = NULL;
}

bool engine_forks_are_done(const engine *e)
{
    bool is_done = true;
    for (uint32_t i = 0; e->forks != NULL && i < e->forks->num_tasks; i++)
        is_done = is_done && e->forks->tasks[i].is_done;
    for (uint32_t i = 0; e->forks != NULL && i < ENGINE_BRANCHES; i++)
        is_done = is_done && (e->forks->branches[i].width == 0 || e->forks->branches[i].is_done);
    return is_done;
}

/* ---- sequences ------------------------------------------------------------- */

static fork_seq *find_free(engine_forks *f)
{
    for (uint32_t i = 0; i < ENGINE_FORK_ROWS; i++)
        if (!f->seqs[i].is_there)
            return &f->seqs[i];
    return NULL;
}

static void append(engine *e, fork_seq *s, quire_token token)
{
    uint32_t size = quire_cache_hash_block_size(quire_sched_cache(e->sched));
    uint32_t digest = e->config.cache.digest_bytes;
    s->tokens[s->state.num_tokens++] = token;
    if (s->state.num_tokens % size != 0)
        return;
    uint32_t n = s->state.num_tokens / size - 1;
    quire_bytes parent = {0};
    if (n > 0)
        parent = (quire_bytes){s->hashes + (size_t)(n - 1) * digest, digest};
    (void)quire_hasher_hash_block(e->fork_hasher, parent, s->tokens + (size_t)n * size, size, NULL,
                                  0, s->hashes + (size_t)n * digest);
    s->state.hashes = s->hashes;
    s->state.num_hashes = n + 1;
}

static void give_up_seq(engine *e, fork_seq *s)
{
    (void)quire_cache_free(quire_sched_cache(e->sched), &s->state);
    s->is_there = false;
}

/* Everything is given back: it begins again when others have made room. */
static void throw_out(engine *e, fork_task *t)
{
    for (uint32_t i = 0; i < t->num_seqs; i++)
        give_up_seq(e, t->seqs[i]);
    t->num_seqs = 0;
    t->is_active = false;
    t->rest = engine_between(&e->random, 2, 12);
    e->counts->fork_preemptions++;
}

static void begin_task(engine *e, fork_task *t)
{
    fork_seq *s = find_free(e->forks);
    if (s == NULL)
        return;
    s->is_there = true;
    s->score = 0.0f;
    s->sample = 0;
    s->state = (quire_cache_request){0};
    for (uint32_t i = 0; i < t->num_prompt; i++)
        append(e, s, t->prompt[i]);
    t->seqs[0] = s;
    t->num_seqs = 1;
    t->step = 0;
    t->is_active = true;
}

/* A child with all that the parent has; NULL: there is no place. */
static fork_seq *fork_from(engine *e, const fork_seq *parent)
{
    fork_seq *child = find_free(e->forks);
    if (child == NULL)
        return NULL;
    quire_cache_request state = parent->state;
    state.seq = 0;
    if (quire_cache_fork(quire_sched_cache(e->sched), &parent->state, &state) != QUIRE_OK)
        return NULL;
    size_t digests = (size_t)state.num_hashes * e->config.cache.digest_bytes;
    child->is_there = true;
    child->state = state;
    child->state.hashes = child->hashes;
    child->score = parent->score;
    memcpy(child->tokens, parent->tokens, state.num_tokens * sizeof *child->tokens);
    memcpy(child->hashes, parent->hashes, digests);
    e->counts->forks++;
    return child;
}

/* ---- before the forward pass ----------------------------------------------- */

static uint32_t num_wanted(const fork_seq *s)
{
    uint32_t n = s->state.num_tokens - s->state.num_computed_tokens;
    return n < ENGINE_FORK_CHUNK ? n : ENGINE_FORK_CHUNK;
}

static int make_room(engine *e, fork_seq *s)
{
    quire_cache *cache = quire_sched_cache(e->sched);
    quire_block_span hit[ENGINE_MAX_GROUPS];
    quire_allocate_params params = {0};
    if (s->state.seq == 0) {
        int status =
            quire_cache_get_computed_blocks(cache, &s->state, hit, &params.num_new_computed_tokens);
        if (status != QUIRE_OK)
            return status;
        params.new_computed_blocks = hit;
    }
    uint32_t num_computed = s->state.num_computed_tokens + params.num_new_computed_tokens;
    uint32_t n = s->state.num_tokens - num_computed;
    params.num_new_tokens = n < ENGINE_FORK_CHUNK ? n : ENGINE_FORK_CHUNK;
    int status = quire_cache_allocate_slots(cache, &s->state, &params, NULL);
    if (status == QUIRE_OK)
        s->state.num_computed_tokens = num_computed;
    return status;
}

static int add_part(engine *e, fork_task *t, fork_seq *s, engine_flight *flight)
{
    quire_block_span blocks[ENGINE_MAX_GROUPS];
    int status = quire_cache_get_blocks(quire_sched_cache(e->sched), s->state.seq, blocks);
    if (status != QUIRE_OK)
        return engine_fail(e, "blocks of a fork", status);
    for (uint32_t g = 0; g < e->setup->model.num_groups; g++)
        if (engine_batch_set_row(e, s->row, g, blocks[g]) != 0)
            return 1;
    engine_part *part = &flight->parts[flight->num_parts++];
    *part = (engine_part){.fork = t, .row = s->row, .history = s->tokens};
    part->num_history = s->state.num_tokens;
    part->first_position = s->state.num_computed_tokens;
    part->num_tokens = num_wanted(s);
    part->is_sampling = part->first_position + part->num_tokens == part->num_history;
    part->num_logits = part->is_sampling;
    return 0;
}

static int schedule_task(engine *e, fork_task *t, engine_flight *flight)
{
    for (uint32_t i = 0; i < t->num_seqs; i++) {
        int status = make_room(e, t->seqs[i]);
        if (status < 0)
            return engine_fail(e, "room for a fork", status);
        if (status != QUIRE_OK) {
            throw_out(e, t);
            return 0;
        }
    }
    for (uint32_t i = 0; i < t->num_seqs; i++)
        if (add_part(e, t, t->seqs[i], flight) != 0)
            return 1;
    return 0;
}

static int turn_task(engine *e, fork_task *t, engine_flight *flight)
{
    if (!t->is_active && t->rest > 0) {
        t->rest--;
        return 0;
    }
    if (!t->is_active)
        begin_task(e, t);
    return t->is_active ? schedule_task(e, t, flight) : 0;
}

int engine_forks_schedule(engine *e, engine_flight *flight)
{
    engine_forks *f = e->forks;
    uint32_t num_active = 0;
    for (uint32_t i = 0; i < ENGINE_BRANCHES; i++)
        if (f->branches[i].width > 0 && !f->branches[i].is_done &&
            turn_task(e, &f->branches[i], flight) != 0)
            return 1;
    for (uint32_t i = 0; i < f->num_tasks && num_active < ENGINE_FORK_TASKS; i++) {
        if (f->tasks[i].is_done)
            continue;
        num_active++;
        if (turn_task(e, &f->tasks[i], flight) != 0)
            return 1;
    }
    return 0;
}

/* ---- branches -------------------------------------------------------------- */

/* All of its tokens but the last are computed: the child computes that one, too, for itself. */
static int branch_off(engine *e, fork_task *t, const quire_req_info *info)
{
    fork_seq *child = find_free(e->forks);
    quire_cache_request parent = {.seq = info->seq,
                                  .num_tokens = info->num_tokens,
                                  .num_computed_tokens = info->num_computed_tokens};
    if (child == NULL)
        return 0;
    child->state = (quire_cache_request){0};
    int status = quire_cache_fork(quire_sched_cache(e->sched), &parent, &child->state);
    if (status != QUIRE_OK)
        return status < 0 ? engine_fail(e, "branch", status) : 0;
    child->is_there = true;
    child->sample = 0;
    child->score = 0.0f;
    child->state.num_tokens = 0;
    for (uint32_t i = 0; i < t->num_prompt; i++)
        append(e, child, t->prompt[i]);
    child->state.num_computed_tokens = info->num_computed_tokens;
    t->seqs[0] = child;
    t->num_seqs = 1;
    t->is_active = true;
    e->counts->forks++;
    e->counts->branches++;
    return 0;
}

int engine_forks_branch(engine *e)
{
    quire_req reqs[ENGINE_MAX_REQUESTS];
    quire_req_info info;
    fork_task *t = &e->forks->branches[engine_draw(&e->random, ENGINE_BRANCHES)];
    uint32_t n = quire_sched_get_queue(e->sched, 0, reqs, ENGINE_MAX_REQUESTS);
    if (n == 0 || (t->width > 0 && !t->is_done))
        return 0;
    quire_req req = reqs[engine_draw(&e->random, n)];
    if (quire_sched_req_info(e->sched, req, &info) != QUIRE_OK)
        return engine_fail(e, "branch", QUIRE_E_UNKNOWN_REQ);
    if (info.seq == 0 || info.num_computed_tokens + 1 != info.num_tokens ||
        info.num_tokens + 8 > e->setup->max_model_len / 2)
        return 0;
    clear_task(t);
    t->width = 1;
    t->num_prompt = info.num_tokens;
    t->prompt = calloc(e->setup->max_model_len, sizeof *t->prompt);
    if (t->prompt == NULL ||
        quire_sched_get_tokens(e->sched, req, 0, info.num_tokens, t->prompt) != QUIRE_OK ||
        expect_sample(e, t, 0, engine_between(&e->random, 2, 8)) != 0)
        return engine_fail(e, "branch", QUIRE_E_NOMEM);
    return branch_off(e, t, &info);
}

/* ---- after it -------------------------------------------------------------- */

static void end_task(engine *e, fork_task *t)
{
    t->is_active = false;
    t->is_done = true;
    e->counts->requests++;
    if (t->is_beam)
        e->counts->beams++;
    else
        e->counts->samples += t->width;
}

/* The next token of a sample, and its end. */
static void take_sample(engine *e, fork_task *t, fork_seq *s, const float *logits)
{
    const engine_request *r = &t->samples[s->sample];
    uint32_t vocabulary = e->model->config.vocabulary;
    uint32_t position = s->state.num_tokens - 1;
    engine_compare(e, engine_request_logits(r, vocabulary, position), logits, "sample", s->sample,
                   position);
    quire_token token = engine_sample(logits, vocabulary, r->temperature, r->seed, position + 1);
    append(e, s, token);
    if (s->state.num_tokens < r->num_expected)
        return;
    if (memcmp(s->tokens, r->expected, r->num_expected * sizeof *s->tokens) != 0)
        e->counts->outputs_differ++;
    give_up_seq(e, s);
}

static void drop_ended(fork_task *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->num_seqs; i++)
        if (t->seqs[i]->is_there)
            t->seqs[n++] = t->seqs[i];
    t->num_seqs = n;
}

static void take_samples(engine *e, fork_task *t, const float *const *logits)
{
    if (t->step++ == 0) { /* the prompt is there: all samples go their ways */
        const float *of_prompt = logits[0];
        for (uint32_t i = 1; i < t->width; i++) {
            fork_seq *child = fork_from(e, t->seqs[0]);
            if (child == NULL) {
                throw_out(e, t);
                return;
            }
            child->sample = i;
            t->seqs[t->num_seqs++] = child;
        }
        for (uint32_t i = 0; i < t->num_seqs; i++)
            take_sample(e, t, t->seqs[i], of_prompt);
    } else {
        for (uint32_t i = 0; i < t->num_seqs; i++)
            take_sample(e, t, t->seqs[i], logits[i]);
    }
    drop_ended(t);
    if (t->num_seqs == 0)
        end_task(e, t);
}

/* The first child of a beam takes its blocks over, the others are forks; beams without a child
 * end. */
static bool advance_beams(engine *e, fork_task *t, const engine_candidate *best, uint32_t n)
{
    fork_seq *next[ENGINE_FORK_WIDTH] = {0};
    bool has_heir[ENGINE_FORK_WIDTH] = {0};
    bool is_good = true;
    for (uint32_t i = 0; i < n && is_good; i++) { /* forks first: parents are still as they were */
        bool is_heir = !has_heir[best[i].parent];
        has_heir[best[i].parent] = true;
        next[i] = is_heir ? t->seqs[best[i].parent] : fork_from(e, t->seqs[best[i].parent]);
        is_good = next[i] != NULL;
    }
    if (!is_good) {
        for (uint32_t i = 0; i < n; i++) {
            bool is_old = false;
            for (uint32_t k = 0; k < t->num_seqs; k++)
                is_old = is_old || next[i] == t->seqs[k];
            if (next[i] != NULL && !is_old)
                give_up_seq(e, next[i]);
        }
        throw_out(e, t);
        return false;
    }
    for (uint32_t i = 0; i < t->num_seqs; i++)
        if (!has_heir[i])
            give_up_seq(e, t->seqs[i]);
    for (uint32_t i = 0; i < n; i++) {
        t->seqs[i] = next[i];
        t->seqs[i]->score = best[i].score;
        append(e, t->seqs[i], best[i].token);
    }
    t->num_seqs = n;
    return true;
}

static void take_beams(engine *e, fork_task *t, const float *const *logits)
{
    uint32_t vocabulary = e->model->config.vocabulary;
    float scores[ENGINE_FORK_WIDTH];
    engine_candidate best[ENGINE_FORK_WIDTH];
    for (uint32_t i = 0; i < t->num_seqs; i++) {
        const float *expected =
            t->beams.logits + ((size_t)t->step * ENGINE_FORK_WIDTH + i) * vocabulary;
        engine_compare(e, expected, logits[i], "beam", i, t->seqs[i]->state.num_tokens - 1);
        scores[i] = t->seqs[i]->score;
    }
    if (++t->step == t->beams.num_steps) {
        for (uint32_t i = 0; i < t->num_seqs; i++)
            give_up_seq(e, t->seqs[i]);
        t->num_seqs = 0;
        end_task(e, t);
        return;
    }
    uint32_t n = engine_beams_choose(logits, scores, t->num_seqs, t->width, vocabulary, best);
    (void)advance_beams(e, t, best, n);
}

static void take_task(engine *e, fork_task *t, const engine_flight *flight, const float *logits)
{
    const float *of_seq[ENGINE_FORK_WIDTH];
    uint32_t n = 0;
    bool is_sampling = true;
    for (uint32_t i = flight->num_reqs; i < flight->num_parts; i++) {
        const engine_part *part = &flight->parts[i];
        if (part->fork != t)
            continue;
        of_seq[n] = logits + (size_t)part->first_logit * e->model->config.vocabulary;
        t->seqs[n++]->state.num_computed_tokens = part->first_position + part->num_tokens;
        is_sampling = is_sampling && part->is_sampling;
    }
    if (n == 0 || !is_sampling)
        return;
    if (t->is_beam)
        take_beams(e, t, of_seq);
    else
        take_samples(e, t, of_seq);
}

int engine_forks_take(engine *e, const engine_flight *flight, const float *logits)
{
    for (uint32_t i = 0; i < e->forks->num_tasks; i++)
        take_task(e, &e->forks->tasks[i], flight, logits);
    for (uint32_t i = 0; i < ENGINE_BRANCHES; i++)
        take_task(e, &e->forks->branches[i], flight, logits);
    return 0;
}
