#include "engine/dropin/steps.h"

#include "engine/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_ROW = UINT32_MAX };

/* Randomly enough that requests with the same words go different ways. */
static const float TEMPERATURE = 0.8f;

typedef struct told {
    bool is_known;
    bool is_finished;
    uint32_t row; /* NO_ROW: it does not run */
    uint32_t num_prompt;
    uint32_t num_blocks;
    uint32_t num_known; /* of tokens: prompt, and what was sampled */
    quire_token *tokens;
    uint32_t num_referred; /* positions whose logits the reference has */
    quire_token *expected; /* the reference's tokens */
    float *logits;         /* the reference's, of all positions */
} told;

/* A request's part of the step that is being told. */
typedef struct going {
    told *request;
    uint32_t id;
    uint32_t first;
    uint32_t count;
} going;

struct steps {
    steps_config config;
    engine_model *model;
    const engine_backend_ops *ops;
    void *backend;
    uint32_t max_row_blocks;
    told *requests;
    bool *is_row_taken;
    quire_block *tables; /* [row][entry] */
    uint32_t num_going;
    uint32_t num_tokens;
    going *going;
    engine_span *spans;
    engine_table_diff *diffs;
    quire_token *tokens;
    int64_t *slots;
    uint32_t *logit_tokens;
    uint32_t num_sampled;
    uint32_t *sampled;
    steps_counts counts;
    uint64_t break_at; /* 0: not */
    bool was_broken;
};

/* ---- memory ---------------------------------------------------------------- */

static engine_model *create_model(const steps_config *c)
{
    engine_model_config model = {.vocabulary = c->vocabulary,
                                 .width = 32,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .head_size = 8,
                                 .hidden = 48,
                                 .max_positions = c->max_len,
                                 .num_groups = 1,
                                 .seed = c->seed};
    return engine_model_create(&model);
}

static bool take_memory(steps *s)
{
    const steps_config *c = &s->config;
    s->requests = calloc(c->max_requests, sizeof *s->requests);
    s->is_row_taken = calloc(c->max_rows, sizeof *s->is_row_taken);
    s->tables = calloc((size_t)c->max_rows * s->max_row_blocks, sizeof *s->tables);
    s->going = calloc(c->max_rows, sizeof *s->going);
    s->spans = calloc(c->max_rows, sizeof *s->spans);
    s->diffs = calloc(c->max_rows, sizeof *s->diffs);
    s->tokens = calloc(c->max_tokens, sizeof *s->tokens);
    s->slots = calloc(c->max_tokens, sizeof *s->slots);
    s->logit_tokens = calloc(c->max_tokens, sizeof *s->logit_tokens);
    s->sampled = calloc(c->max_rows, 2 * sizeof *s->sampled);
    s->model = create_model(c);
    return s->requests != NULL && s->is_row_taken != NULL && s->tables != NULL &&
           s->going != NULL && s->spans != NULL && s->diffs != NULL && s->tokens != NULL &&
           s->slots != NULL && s->logit_tokens != NULL && s->sampled != NULL && s->model != NULL;
}

static bool is_in(uint32_t value, uint32_t least, uint32_t most)
{
    return value >= least && value <= most;
}

static bool is_sensible(const steps_config *c)
{
    return is_in(c->vocabulary, 2, 4096) && is_in(c->max_len, 1, 4096) &&
           is_in(c->block_size, 1, 256) && is_in(c->num_blocks, 2, 1 << 16) &&
           is_in(c->max_tokens, 1, 1 << 16) && is_in(c->max_rows, 1, 1024) &&
           is_in(c->max_requests, 1, 4096);
}

steps *steps_create(const steps_config *config, const engine_backend_ops *ops, bool *is_disabled)
{
    *is_disabled = false;
    (void)quire_refuse(QUIRE_OK, "no memory, or sizes that make no sense");
    steps *s = is_sensible(config) ? calloc(1, sizeof *s) : NULL;
    if (s == NULL)
        return NULL;
    s->config = *config;
    s->ops = ops;
    s->max_row_blocks = (config->max_len + config->block_size - 1) / config->block_size + 1;
    if (!take_memory(s)) {
        steps_destroy(s);
        return NULL;
    }
    engine_backend_config backend = {.model = s->model,
                                     .layout = ENGINE_LAYER_OUTER,
                                     .num_blocks = config->num_blocks,
                                     .block_sizes = {config->block_size},
                                     .max_rows = config->max_rows,
                                     .max_row_blocks = s->max_row_blocks,
                                     .max_tokens = config->max_tokens,
                                     .max_logits = config->max_tokens,
                                     .max_works = 2,
                                     .num_references = config->max_requests};
    int status = ops->create(&backend, &s->backend);
    *is_disabled = status == QUIRE_E_DISABLED;
    if (status == QUIRE_OK)
        return s;
    s->backend = NULL;
    steps_destroy(s);
    return NULL;
}

static void forget(told *r)
{
    free(r->tokens);
    free(r->expected);
    free(r->logits);
    r->tokens = NULL;
    r->expected = NULL;
    r->logits = NULL;
}

void steps_destroy(steps *s)
{
    if (s == NULL)
        return;
    if (s->backend != NULL)
        s->ops->destroy(s->backend);
    for (uint32_t i = 0; s->requests != NULL && i < s->config.max_requests; i++)
        forget(&s->requests[i]);
    engine_model_destroy(s->model);
    free(s->requests);
    free(s->is_row_taken);
    free(s->tables);
    free(s->going);
    free(s->spans);
    free(s->diffs);
    free(s->tokens);
    free(s->slots);
    free(s->logit_tokens);
    free(s->sampled);
    free(s);
}

/* ---- who runs, and in which blocks ------------------------------------------ */

/* NULL: there is none, or it has ended. */
static told *find(steps *s, uint64_t id)
{
    told *r = id < s->config.max_requests ? &s->requests[id] : NULL;
    return r != NULL && r->is_known && !r->is_finished ? r : NULL;
}

static void leave_row(steps *s, told *r)
{
    if (r->row != NO_ROW)
        s->is_row_taken[r->row] = false;
    r->row = NO_ROW;
    r->num_blocks = 0;
}

static bool take_row(steps *s, told *r)
{
    for (uint32_t row = 0; row < s->config.max_rows; row++)
        if (!s->is_row_taken[row]) {
            s->is_row_taken[row] = true;
            r->row = row;
            return true;
        }
    return false;
}

const char *steps_preempt(steps *s, uint64_t id)
{
    told *r = find(s, id);
    if (s->num_going > 0)
        return "those that leave come first in a step";
    if (r == NULL || r->row == NO_ROW)
        return "a request is preempted that does not run";
    leave_row(s, r);
    s->counts.preempted++;
    return NULL;
}

const char *steps_finish(steps *s, uint64_t id)
{
    told *r = find(s, id);
    if (s->num_going > 0)
        return "those that leave come first in a step";
    if (r == NULL)
        return "a request ends that is not there";
    leave_row(s, r);
    forget(r);
    r->is_finished = true;
    return NULL;
}

static const quire_block *row_at(const steps *s, const told *r)
{
    return s->tables + (size_t)r->row * s->max_row_blocks;
}

static bool has_block(const steps *s, const told *r, quire_block block)
{
    for (uint32_t i = 0; i < r->num_blocks; i++)
        if (row_at(s, r)[i] == block)
            return true;
    return false;
}

/* A block with another one's first tokens, which that one will read; 0: there is none. */
static quire_block find_foreign(const steps *s, const told *r)
{
    for (uint32_t i = 0; i < s->config.max_requests; i++) {
        const told *other = &s->requests[i];
        bool is_running = other->is_known && !other->is_finished && other->row != NO_ROW;
        if (is_running && other != r && other->num_blocks > 0 &&
            !has_block(s, r, row_at(s, other)[0]))
            return row_at(s, other)[0];
    }
    return 0;
}

static void break_last_block(steps *s, const told *r, quire_block *last)
{
    quire_block foreign = find_foreign(s, r);
    if (s->was_broken || s->break_at == 0 || s->counts.steps + 1 < s->break_at || foreign == 0)
        return;
    *last = foreign;
    s->was_broken = true;
}

/* Blocks of the part come behind those that the row has, and go to the backend as a diff. */
static const char *add_blocks(steps *s, told *r, const steps_part *part)
{
    quire_block *row = s->tables + (size_t)r->row * s->max_row_blocks;
    if (part->num_blocks > s->max_row_blocks - r->num_blocks)
        return "more blocks than a request of full length has";
    uint32_t first = r->num_blocks;
    for (uint32_t i = 0; i < part->num_blocks; i++) {
        if (part->blocks[i] == 0 || part->blocks[i] >= s->config.num_blocks)
            return "no such block";
        row[r->num_blocks++] = (quire_block)part->blocks[i];
    }
    if (part->num_blocks > 0)
        break_last_block(s, r, &row[r->num_blocks - 1]);
    s->diffs[s->num_going] = (engine_table_diff){0, r->row, first, part->num_blocks, row + first};
    return NULL;
}

static const char *add_tokens(steps *s, told *r, const steps_part *part)
{
    uint32_t num_left = s->config.max_tokens - s->num_tokens;
    if (part->num_scheduled == 0 || part->num_scheduled > num_left)
        return "no tokens, or more than a step may have";
    if (part->num_computed > r->num_known ||
        part->num_scheduled > r->num_known - part->num_computed)
        return "a token is scheduled that is not known";
    uint32_t end = part->num_computed + part->num_scheduled;
    if (end > s->config.max_len || end > (uint64_t)r->num_blocks * s->config.block_size)
        return "a token is scheduled that has no block";
    uint32_t at = s->num_tokens;
    s->spans[s->num_going] = (engine_span){r->row, at, part->num_scheduled, part->num_computed};
    for (uint32_t p = part->num_computed; p < end; p++, at++) {
        quire_block block = row_at(s, r)[p / s->config.block_size];
        s->slots[at] = (int64_t)block * s->config.block_size + p % s->config.block_size;
        s->tokens[at] = r->tokens[p];
        s->logit_tokens[at] = at;
    }
    s->num_tokens = at;
    s->going[s->num_going++] = (going){r, part->id, part->num_computed, part->num_scheduled};
    return NULL;
}

static const char *add_part(steps *s, told *r, const steps_part *part)
{
    for (uint32_t i = 0; i < s->num_going; i++)
        if (s->going[i].request == r)
            return "a request is in a step twice";
    const char *wrong = add_blocks(s, r, part);
    return wrong != NULL ? wrong : add_tokens(s, r, part);
}

const char *steps_add(steps *s, const steps_part *part, uint32_t num_prompt, const uint64_t *prompt)
{
    const steps_config *c = &s->config;
    if (part->id >= c->max_requests || s->requests[part->id].is_known)
        return "a new request has a number that it cannot have";
    if (num_prompt == 0 || num_prompt > c->max_len)
        return "a prompt has no length that it can have";
    told *r = &s->requests[part->id];
    *r = (told){.is_known = true, .row = NO_ROW, .num_prompt = num_prompt};
    r->tokens = calloc(c->max_len + 1, sizeof *r->tokens);
    r->expected = calloc(c->max_len + 1, sizeof *r->expected);
    r->logits = calloc(c->max_len, c->vocabulary * sizeof *r->logits);
    if (r->tokens == NULL || r->expected == NULL || r->logits == NULL)
        return "no memory";
    for (; r->num_known < num_prompt; r->num_known++) {
        if (prompt[r->num_known] >= c->vocabulary)
            return "no such token";
        r->tokens[r->num_known] = (quire_token)prompt[r->num_known];
        r->expected[r->num_known] = r->tokens[r->num_known];
    }
    s->counts.requests++;
    s->counts.hit_tokens += part->num_computed;
    return take_row(s, r) ? add_part(s, r, part) : "more requests run than may";
}

const char *steps_run(steps *s, const steps_part *part, bool is_resumed)
{
    told *r = find(s, part->id);
    if (r == NULL)
        return "a request runs that is not there";
    if (is_resumed != (r->row == NO_ROW))
        return "a running request is resumed, or one runs that was preempted";
    if (is_resumed) {
        s->counts.resumed++;
        s->counts.hit_tokens += part->num_computed;
        if (!take_row(s, r))
            return "more requests run than may";
    }
    return add_part(s, r, part);
}

/* ---- the forward pass, and the reference ------------------------------------- */

static quire_token sample(const steps *s, uint32_t id, const float *logits, uint32_t position)
{
    uint64_t seed = s->config.seed ^ (id + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return engine_sample(logits, s->config.vocabulary, TEMPERATURE, seed, position);
}

/* The reference of positions up to this one: the prompt at once, then token by token. */
static const char *refer(steps *s, told *r, uint32_t id, uint32_t position)
{
    uint32_t vocabulary = s->config.vocabulary;
    while (r->num_referred <= position) {
        uint32_t first = r->num_referred;
        uint32_t end = first < r->num_prompt ? r->num_prompt : first + 1;
        float *logits = r->logits + (size_t)first * vocabulary;
        if (s->ops->reference(s->backend, id, first, r->expected + first, end - first, end - first,
                              logits) != QUIRE_OK)
            return "the reference failed";
        r->num_referred = end;
        r->expected[end] = sample(s, id, r->logits + (size_t)(end - 1) * vocabulary, end);
    }
    return NULL;
}

static const char *take_logits(steps *s, const going *g, const float *logits)
{
    told *r = g->request;
    uint32_t vocabulary = s->config.vocabulary;
    for (uint32_t p = g->first; p < g->first + g->count; p++, logits += vocabulary) {
        const char *wrong = refer(s, r, g->id, p);
        if (wrong != NULL)
            return wrong;
        const float *expected = r->logits + (size_t)p * vocabulary;
        s->counts.compared++;
        s->counts.differing += memcmp(expected, logits, vocabulary * sizeof *logits) != 0;
    }
    uint32_t end = g->first + g->count;
    if (end < r->num_known)
        return NULL;
    quire_token token = sample(s, g->id, logits - vocabulary, end);
    r->tokens[r->num_known++] = token;
    s->sampled[2 * s->num_sampled] = g->id;
    s->sampled[2 * s->num_sampled + 1] = (uint32_t)token;
    s->num_sampled++;
    s->counts.sampled++;
    return NULL;
}

const char *steps_go(steps *s)
{
    engine_work work = {.num_diffs = s->num_going,
                        .diffs = s->diffs,
                        .num_tokens = s->num_tokens,
                        .num_spans = s->num_going,
                        .spans = s->spans,
                        .tokens = s->tokens,
                        .slot_mappings = {s->slots},
                        .num_logits = s->num_tokens,
                        .logit_tokens = s->logit_tokens};
    uint64_t ticket = 0;
    const float *logits = NULL;
    s->counts.steps++;
    s->num_sampled = 0;
    if (s->num_tokens > 0 && (s->ops->submit(s->backend, &work, &ticket) != QUIRE_OK ||
                              s->ops->wait(s->backend, ticket, &logits) != QUIRE_OK))
        return "the backend failed";
    const char *wrong = NULL;
    for (uint32_t i = 0; i < s->num_going && wrong == NULL; i++)
        wrong = take_logits(s, &s->going[i],
                            logits + (size_t)s->spans[i].first_token * s->config.vocabulary);
    s->num_going = 0;
    s->num_tokens = 0;
    return wrong;
}

uint32_t steps_sampled(const steps *s, const uint32_t **pairs)
{
    *pairs = s->sampled;
    return s->num_sampled;
}

const steps_counts *steps_count(const steps *s)
{
    return &s->counts;
}

void steps_break(steps *s, uint64_t step)
{
    s->break_at = step;
}

bool steps_was_broken(const steps *s)
{
    return s->was_broken;
}
