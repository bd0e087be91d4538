#include "engine/forks.h"

#include "engine/beams.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TASKS = 8, NUM_BEAMS = 2 * ENGINE_FORK_WIDTH, FIRST_ID = 1 << 30 };

typedef struct fork_beam {
    engine_request r; /* first: a request of a beam is this */
    float score;
    float *logits;
    bool has_logits; /* of the step that was computed last */
} fork_beam;

typedef struct fork_task {
    bool is_beam;
    bool is_active;
    bool is_done;
    uint32_t rest; /* steps until it may begin again */
    uint32_t width;
    uint32_t num_prompt;
    quire_token *prompt;
    engine_request samples[ENGINE_FORK_WIDTH];
    /* Of a search */
    engine_beam_reference reference;
    uint32_t step;
    fork_beam beams[NUM_BEAMS];
    fork_beam *live[ENGINE_FORK_WIDTH]; /* in order */
    uint32_t num_live;
    engine_candidate best[ENGINE_FORK_WIDTH]; /* chosen, and not yet made */
    uint32_t num_best;
} fork_task;

struct engine_forks {
    engine_texts *texts;
    uint32_t num_tasks;
    uint32_t next_id;
    fork_task tasks[MAX_TASKS];
    engine_request branches[ENGINE_BRANCHES];
};

/* ---- making ---------------------------------------------------------------- */

/* A request with this prompt, and the reference's answer to it. */
static int make_request(engine *e, const quire_token *prompt, uint32_t num_prompt,
                        uint32_t max_tokens, engine_request *r)
{
    size_t room = e->model->config.max_positions + ENGINE_MORE_TOKENS;
    *r = (engine_request){.id = FIRST_ID + e->forks->next_id++,
                          .num_prompt = num_prompt,
                          .max_tokens = max_tokens,
                          .temperature = 0.8f,
                          .seed = engine_random(&e->random),
                          .eos = -1,
                          .priority = (int32_t)engine_draw(&e->random, 4),
                          .first_logit = num_prompt - 1};
    r->expected = calloc(room, sizeof *r->expected);
    r->tokens = calloc(room, sizeof *r->tokens);
    if (r->expected == NULL || r->tokens == NULL)
        return 1;
    memcpy(r->expected, prompt, num_prompt * sizeof *prompt);
    memcpy(r->tokens, prompt, num_prompt * sizeof *prompt);
    return engine_request_expect(e->model, e->ops, e->backend, r);
}

static int make_beams(engine *e, fork_task *t)
{
    size_t room = e->model->config.max_positions + ENGINE_MORE_TOKENS;
    for (uint32_t i = 0; i < NUM_BEAMS; i++) {
        fork_beam *b = &t->beams[i];
        b->r.tokens = calloc(room, sizeof *b->r.tokens);
        b->logits = calloc(e->model->config.vocabulary, sizeof *b->logits);
        if (b->r.tokens == NULL || b->logits == NULL)
            return 1;
    }
    t->reference.width = t->width;
    t->reference.num_steps = engine_between(&e->random, 2, 8);
    return engine_beams_expect(e, t->prompt, t->num_prompt, &t->reference);
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
    if (t->is_beam)
        return make_beams(e, t);
    uint32_t max_tokens = engine_between(&e->random, 1, 8);
    for (uint32_t i = 0; i < t->width; i++)
        if (make_request(e, t->prompt, t->num_prompt, max_tokens, &t->samples[i]) != 0)
            return 1;
    return 0;
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
    for (uint32_t i = 0; i < NUM_BEAMS; i++) {
        engine_request_destroy(&t->beams[i].r);
        free(t->beams[i].logits);
    }
    free(t->reference.logits);
    free(t->prompt);
}

void engine_forks_destroy(engine *e)
{
    engine_forks *f = e->forks;
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < MAX_TASKS; i++)
        clear_task(&f->tasks[i]);
    for (uint32_t i = 0; i < ENGINE_BRANCHES; i++)
        engine_request_destroy(&f->branches[i]);
    engine_texts_destroy(f->texts);
    free(f);
    e->forks = NULL;
}

bool engine_forks_are_done(const engine *e)
{
    bool is_done = true;
    for (uint32_t i = 0; e->forks != NULL && i < e->forks->num_tasks; i++)
        is_done = is_done && e->forks->tasks[i].is_done;
    return is_done;
}

/* ---- forking --------------------------------------------------------------- */

/* A child of `parent` that is `r`: its first num_prompt tokens are the text that it begins with.
 * 0, 1: failed; *is_there says whether there was a place for it. */
static int fork_request(engine *e, quire_req parent, engine_request *r,
                        const quire_request_params *own, bool *is_there)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_request_params params = *own;
    params.id = (quire_bytes){&r->id, sizeof r->id};
    params.priority = r->priority;
    params.arrival_time = r->id;
    params.user = r;
    int status = quire_sched_fork(e->sched, parent, &params, &r->req);
    *is_there = status == QUIRE_OK;
    if (status == QUIRE_FULL || status == QUIRE_E_TOO_LONG || status == QUIRE_E_DISABLED)
        return 0;
    if (status == QUIRE_OK)
        status = quire_sched_get_req_info(e->sched, r->req, &info);
    if (status != QUIRE_OK)
        return engine_fail(e, "fork", status);
    r->state = ENGINE_LIVE;
    r->num_known = info.num_tokens;
    r->num_told = info.num_tokens;
    r->num_rejected = 0;
    e->counts->forks++;
    e->counts->shared_forks += info.status == QUIRE_REQ_RUNNING;
    return 0;
}

/* ---- branches and samples -------------------------------------------------- */

/* Whether a step computes it still, although it has ended: then its place is not free. */
static bool is_in_flight(const engine *e, const engine_request *r)
{
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; e->flights[k].is_there && i < e->flights[k].num_reqs; i++)
            if (e->flights[k].parts[i].request == r)
                return true;
    return false;
}

static int branch_off(engine *e)
{
    quire_req reqs[ENGINE_MAX_REQUESTS];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    engine_request *r = &e->forks->branches[engine_draw(&e->random, ENGINE_BRANCHES)];
    uint32_t which = engine_chance(&e->random, 70) ? 0 : engine_draw(&e->random, 3);
    uint32_t n = quire_sched_get_queue(e->sched, which, reqs, ENGINE_MAX_REQUESTS);
    if (n == 0 || r->state == ENGINE_LIVE || is_in_flight(e, r))
        return 0;
    quire_req req = reqs[engine_draw(&e->random, n)];
    if (quire_sched_get_req_info(e->sched, req, &info) != QUIRE_OK)
        return engine_fail(e, "branch", QUIRE_E_UNKNOWN_REQ);
    if (info.num_tokens + 8 > e->setup->max_model_len / 2)
        return 0;
    quire_token *text = calloc(e->setup->max_model_len, sizeof *text);
    int failed =
        text == NULL || quire_sched_get_tokens(e->sched, req, 0, info.num_tokens, text) != QUIRE_OK;
    engine_request_destroy(r);
    failed = failed || make_request(e, text, info.num_tokens, engine_between(&e->random, 2, 8), r);
    free(text);
    if (failed)
        return engine_fail(e, "branch", QUIRE_E_NOMEM);
    uint32_t num_outputs = info.num_tokens - info.num_prompt_tokens;
    const quire_request_params params = {.size = sizeof(quire_request_params),
                                         .max_tokens = num_outputs + r->max_tokens};
    bool is_there;
    failed = fork_request(e, req, r, &params, &is_there);
    e->counts->branches += is_there;
    return failed;
}

/* The first is added; the others are its forks as long as it has no token of output, else they are
 * added too. */
static int turn_samples(engine *e, fork_task *t)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    uint32_t num_ended = 0;
    engine_request *first = &t->samples[0];
    if (first->state == ENGINE_NEW)
        (void)engine_add(e, first);
    bool can_fork = first->state == ENGINE_LIVE &&
                    quire_sched_get_req_info(e->sched, first->req, &info) == QUIRE_OK &&
                    info.num_tokens == t->num_prompt;
    for (uint32_t i = 1; i < t->width; i++) {
        engine_request *r = &t->samples[i];
        const quire_request_params params = {.size = sizeof(quire_request_params),
                                             .max_tokens = r->max_tokens};
        bool is_there = false;
        if (r->state != ENGINE_NEW || first->state == ENGINE_NEW || engine_chance(&e->random, 50))
            continue;
        if (!can_fork)
            (void)engine_add(e, r);
        else if (fork_request(e, first->req, r, &params, &is_there) != 0)
            return 1;
        e->counts->samples += is_there;
    }
    for (uint32_t i = 0; i < t->width; i++)
        num_ended += t->samples[i].state >= ENGINE_ENDED;
    t->is_done = num_ended == t->width;
    return 0;
}

/* ---- beams ----------------------------------------------------------------- */

static fork_beam *free_beam(fork_task *t)
{
    for (uint32_t i = 0; i < NUM_BEAMS; i++)
        if (t->beams[i].r.state != ENGINE_LIVE)
            return &t->beams[i];
    return NULL;
}

static fork_beam *name_beam(engine *e, fork_task *t)
{
    fork_beam *b = free_beam(t);
    engine_request was = b->r;
    b->r = (engine_request){.id = FIRST_ID + e->forks->next_id++,
                            .num_prompt = t->num_prompt,
                            .max_tokens = t->reference.num_steps + 1,
                            .eos = -1,
                            .first_logit = t->num_prompt - 1,
                            .is_beam = true,
                            .tokens = was.tokens};
    b->has_logits = false;
    return b;
}

static int end_beam(engine *e, fork_beam *b)
{
    if (b->r.state != ENGINE_LIVE)
        return 0;
    b->r.state = ENGINE_ABORTED;
    int status = quire_sched_finish(e->sched, &b->r.req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    return status == QUIRE_OK ? 0 : engine_fail(e, "the end of a beam", status);
}

/* It begins again when others have made room. */
static int give_up(engine *e, fork_task *t)
{
    for (uint32_t i = 0; i < NUM_BEAMS; i++)
        if (end_beam(e, &t->beams[i]) != 0)
            return 1;
    t->num_live = 0;
    t->num_best = 0;
    t->is_active = false;
    t->rest = engine_between(&e->random, 2, 12);
    e->counts->fork_preemptions++;
    return 0;
}

static int turn_search(engine *e, fork_task *t)
{
    for (uint32_t i = 0; i < t->num_live; i++)
        if (t->live[i]->r.state != ENGINE_LIVE) /* aborted by a user */
            return give_up(e, t);
    if (t->is_active)
        return 0;
    if (t->rest > 0) {
        t->rest--;
        return 0;
    }
    fork_beam *b = name_beam(e, t);
    memcpy(b->r.tokens, t->prompt, t->num_prompt * sizeof *t->prompt);
    b->r.expected = t->prompt;
    int failed = engine_add(e, &b->r);
    b->r.expected = NULL;
    if (failed)
        return 0;
    b->score = 0.0f;
    t->live[0] = b;
    t->num_live = 1;
    t->step = 0;
    t->is_active = true;
    return 0;
}

int engine_forks_turn(engine *e)
{
    engine_forks *f = e->forks;
    uint32_t num_active = 0;
    for (uint32_t i = 0; i < f->num_tasks && num_active < ENGINE_FORK_TASKS; i++) {
        fork_task *t = &f->tasks[i];
        if (t->is_done)
            continue;
        num_active++;
        if ((t->is_beam ? turn_search(e, t) : turn_samples(e, t)) != 0)
            return 1;
    }
    if (e->setup->has_branches && engine_draw(&e->random, 8) == 0)
        return branch_off(e);
    return 0;
}

void engine_forks_note_logits(engine *e, engine_request *r, const float *logits)
{
    fork_beam *b = (fork_beam *)(void *)r;
    memcpy(b->logits, logits, e->model->config.vocabulary * sizeof *logits);
    b->has_logits = true;
}

static engine_part *part_of(engine_flight *flight, const engine_request *r)
{
    for (uint32_t i = 0; i < flight->num_reqs; i++)
        if (flight->parts[i].request == r)
            return &flight->parts[i];
    return NULL;
}

/* All beams were computed: the first child of each goes on as its beam. */
static void choose(engine *e, fork_task *t, engine_flight *flight)
{
    uint32_t vocabulary = e->model->config.vocabulary;
    const float *logits[ENGINE_FORK_WIDTH];
    float scores[ENGINE_FORK_WIDTH];
    bool has_heir[ENGINE_FORK_WIDTH] = {0};
    for (uint32_t i = 0; i < t->num_live; i++) {
        logits[i] = t->live[i]->logits;
        scores[i] = t->live[i]->score;
        const float *expected =
            t->reference.logits + ((size_t)t->step * ENGINE_FORK_WIDTH + i) * vocabulary;
        engine_compare(e, expected, logits[i], "beam", i, t->num_prompt - 1 + t->step);
    }
    t->num_best = engine_beams_choose(logits, scores, t->num_live, t->width, vocabulary, t->best);
    for (uint32_t i = 0; i < t->num_best; i++) {
        engine_part *part = part_of(flight, &t->live[t->best[i].parent]->r);
        if (has_heir[t->best[i].parent] || part == NULL)
            continue;
        has_heir[t->best[i].parent] = true;
        part->sampled[0] = t->best[i].token;
    }
}

void engine_forks_choose(engine *e, engine_flight *flight)
{
    for (uint32_t k = 0; k < e->forks->num_tasks; k++) {
        fork_task *t = &e->forks->tasks[k];
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->num_live; i++)
            n += t->live[i]->has_logits;
        if (n == 0 || !t->is_active)
            continue;
        if (n == t->num_live)
            choose(e, t, flight);
        else
            t->num_best = UINT32_MAX; /* some were left out */
    }
}

/* Beams without a child end first: then there are places for the others' children. */
static int make_children(engine *e, fork_task *t)
{
    fork_beam *next[ENGINE_FORK_WIDTH];
    bool has_heir[ENGINE_FORK_WIDTH] = {0};
    bool has_child[ENGINE_FORK_WIDTH] = {0};
    bool is_there = true;
    uint32_t end = t->num_prompt + t->step;
    for (uint32_t i = 0; i < t->num_best; i++)
        has_child[t->best[i].parent] = true;
    for (uint32_t i = 0; i < t->num_live; i++)
        if (!has_child[i] && end_beam(e, t->live[i]) != 0)
            return 1;
    for (uint32_t i = 0; i < t->num_best && is_there; i++) {
        fork_beam *parent = t->live[t->best[i].parent];
        next[i] = parent;
        if (has_heir[t->best[i].parent])
            next[i] = name_beam(e, t);
        const quire_request_params params = {.size = sizeof(quire_request_params),
                                             .max_tokens = next[i]->r.max_tokens,
                                             .prompt = &t->best[i].token,
                                             .num_prompt_tokens = 1};
        if (next[i] != parent) {
            memcpy(next[i]->r.tokens, parent->r.tokens, (end - 1) * sizeof *parent->r.tokens);
            next[i]->r.tokens[end - 1] = t->best[i].token;
            if (fork_request(e, parent->r.req, &next[i]->r, &params, &is_there) != 0)
                return 1;
        }
        has_heir[t->best[i].parent] = true;
    }
    if (!is_there)
        return give_up(e, t);
    for (uint32_t i = 0; i < t->num_best; i++) {
        t->live[i] = next[i];
        t->live[i]->score = t->best[i].score;
    }
    t->num_live = t->num_best;
    return 0;
}

/* Whether the beam has got the token: not where it outgrew the pool, or its load failed. */
static bool has_token(const engine *e, const fork_task *t, const fork_beam *b)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    return b->r.state == ENGINE_LIVE &&
           quire_sched_get_req_info(e->sched, b->r.req, &info) == QUIRE_OK &&
           info.num_tokens == t->num_prompt + t->step + 1;
}

static int advance_search(engine *e, fork_task *t)
{
    uint32_t num_best = t->num_best;
    for (uint32_t i = 0; i < NUM_BEAMS; i++)
        t->beams[i].has_logits = false;
    for (uint32_t i = 0; i < t->num_live && num_best > 0; i++)
        if (!has_token(e, t, t->live[i]))
            num_best = UINT32_MAX;
    if (num_best == 0 || !t->is_active)
        return 0;
    if (num_best == UINT32_MAX)
        return give_up(e, t);
    if (++t->step == t->reference.num_steps) {
        for (uint32_t i = 0; i < t->num_live; i++)
            if (end_beam(e, t->live[i]) != 0)
                return 1;
        t->num_live = 0;
        t->is_active = false;
        t->is_done = true;
        e->counts->beams++;
        e->counts->requests++;
        return 0;
    }
    int failed = make_children(e, t);
    t->num_best = 0;
    return failed;
}

int engine_forks_advance(engine *e)
{
    for (uint32_t i = 0; i < e->forks->num_tasks; i++)
        if (e->forks->tasks[i].is_beam && advance_search(e, &e->forks->tasks[i]) != 0)
            return 1;
    return 0;
}
