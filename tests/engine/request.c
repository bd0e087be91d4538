#include "engine/request.h"

#include "engine/arith.h"

#include <stdlib.h>
#include <string.h>

enum { NUM_SYSTEMS = 4, NUM_SESSIONS = 6 };

typedef struct session {
    quire_token *tokens;
    uint32_t num_tokens;
} session;

struct engine_texts {
    const engine_model *model;
    uint32_t max_len;
    uint64_t random;
    uint32_t next_id;
    quire_token *systems[NUM_SYSTEMS];
    uint32_t system_lengths[NUM_SYSTEMS];
    session sessions[NUM_SESSIONS];
};

/* ---- sampling -------------------------------------------------------------- */

static uint32_t find_largest(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

quire_token engine_sample(const float *logits, uint32_t vocabulary, float temperature,
                          uint64_t seed, uint32_t position)
{
    uint32_t best = find_largest(logits, vocabulary);
    if (temperature == 0.0f)
        return (quire_token)best;
    float sum = 0.0f;
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += engine_exp((logits[i] - logits[best]) / temperature);
    uint64_t state = seed ^ position * UINT64_C(0xd6e8feb86659fd93);
    float left = (float)(engine_random(&state) >> 40) * (1.0f / 16777216.0f) * sum;
    for (uint32_t i = 0; i < vocabulary; i++) {
        left -= engine_exp((logits[i] - logits[best]) / temperature);
        if (left < 0.0f)
            return (quire_token)i;
    }
    return (quire_token)best;
}

/* ---- texts ----------------------------------------------------------------- */

static quire_token draw_token(engine_texts *t)
{
    return (quire_token)engine_draw(&t->random, t->model->config.vocabulary);
}

engine_texts *engine_texts_create(const engine_model *model, uint32_t max_model_len, uint64_t seed)
{
    engine_texts *t = calloc(1, sizeof *t);
    bool is_good = t != NULL;
    if (!is_good)
        return NULL;
    *t = (engine_texts){.model = model, .max_len = max_model_len, .random = seed};
    for (uint32_t i = 0; i < NUM_SYSTEMS; i++) {
        t->system_lengths[i] = engine_between(&t->random, 4, max_model_len / 3);
        t->systems[i] = calloc(max_model_len, sizeof(quire_token));
        is_good = is_good && t->systems[i] != NULL;
        for (uint32_t k = 0; is_good && k < t->system_lengths[i]; k++)
            t->systems[i][k] = draw_token(t);
    }
    for (uint32_t i = 0; i < NUM_SESSIONS; i++) {
        t->sessions[i].tokens = calloc(max_model_len, sizeof(quire_token));
        is_good = is_good && t->sessions[i].tokens != NULL;
    }
    if (is_good)
        return t;
    engine_texts_destroy(t);
    return NULL;
}

void engine_texts_destroy(engine_texts *texts)
{
    if (texts == NULL)
        return;
    for (uint32_t i = 0; i < NUM_SYSTEMS; i++)
        free(texts->systems[i]);
    for (uint32_t i = 0; i < NUM_SESSIONS; i++)
        free(texts->sessions[i].tokens);
    free(texts);
}

static uint32_t begin_with_system(engine_texts *t, quire_token *tokens)
{
    uint32_t which = engine_draw(&t->random, NUM_SYSTEMS);
    memcpy(tokens, t->systems[which], t->system_lengths[which] * sizeof *tokens);
    return t->system_lengths[which];
}

uint32_t engine_texts_prompt(engine_texts *texts, uint32_t max_tokens, quire_token *tokens)
{
    quire_token *all = tokens;
    uint32_t n = begin_with_system(texts, all);
    for (uint32_t more = engine_between(&texts->random, 1, 12); more > 0; more--)
        if (n < texts->max_len - 1)
            all[n++] = draw_token(texts);
    return n < max_tokens ? n : max_tokens;
}

/* The next turn of a session; a new one where there is no room for another turn. */
static uint32_t next_turn(engine_texts *t, session *s, quire_token *tokens)
{
    uint32_t words = engine_between(&t->random, 1, 14);
    if (s->num_tokens == 0 || s->num_tokens + words + 2 > t->max_len ||
        engine_chance(&t->random, 8))
        s->num_tokens = engine_chance(&t->random, 85) ? begin_with_system(t, s->tokens) : 0;
    memcpy(tokens, s->tokens, s->num_tokens * sizeof *tokens);
    uint32_t n = s->num_tokens;
    for (uint32_t i = 0; i < words && n + 1 < t->max_len; i++)
        tokens[n++] = draw_token(t);
    return n;
}

/* ---- requests -------------------------------------------------------------- */

int engine_request_expect(const engine_model *model, const engine_backend_ops *ops, void *backend,
                          engine_request *r)
{
    uint32_t vocabulary = model->config.vocabulary;
    uint32_t most = r->num_prompt - r->first_logit + r->max_tokens;
    r->logits = calloc(most, vocabulary * sizeof *r->logits);
    if (r->logits == NULL)
        return 1;
    r->num_expected = r->num_prompt;
    uint32_t num_new = r->num_prompt;
    uint32_t num_logits = r->num_prompt - r->first_logit;
    float *next = r->logits;
    for (;;) {
        uint32_t first = r->num_expected - num_new;
        if (ops->reference(backend, 0, first, r->expected + first, num_new, num_logits, next) !=
            QUIRE_OK)
            return 1;
        next += (size_t)num_logits * vocabulary;
        quire_token token =
            engine_sample(next - vocabulary, vocabulary, r->temperature, r->seed, r->num_expected);
        r->expected[r->num_expected++] = token;
        if (token == r->eos || r->num_expected == r->num_prompt + r->max_tokens)
            return 0;
        num_new = 1;
        num_logits = 1;
    }
}

int engine_request_create(engine_texts *texts, const engine_backend_ops *ops, void *backend,
                          bool wants_prompt, engine_request *r)
{
    uint64_t *random = &texts->random;
    session *s = &texts->sessions[engine_draw(random, NUM_SESSIONS)];
    size_t room = texts->model->config.max_positions + ENGINE_MORE_TOKENS;
    *r = (engine_request){.id = texts->next_id++, .seed = engine_random(random)};
    r->expected = calloc(room, sizeof *r->expected);
    r->tokens = calloc(room, sizeof *r->tokens);
    if (r->expected == NULL || r->tokens == NULL)
        return 1;
    r->num_prompt = next_turn(texts, s, r->expected);
    uint32_t most = texts->max_len - r->num_prompt;
    r->max_tokens = engine_between(random, 1, most < 28 ? most : 28);
    r->temperature = engine_chance(random, 40) ? 0.0f : 0.5f + 0.1f * (float)engine_draw(random, 8);
    r->eos = engine_chance(random, 30) ? draw_token(texts) : -1;
    r->priority = (int32_t)engine_draw(random, 4);
    r->first_logit = wants_prompt ? 0 : r->num_prompt - 1;
    if (engine_request_expect(texts->model, ops, backend, r) != 0)
        return 1;
    memcpy(r->tokens, r->expected, r->num_prompt * sizeof *r->tokens);
    memcpy(s->tokens, r->expected, r->num_expected * sizeof *s->tokens);
    s->num_tokens = r->num_expected;
    return 0;
}

void engine_request_destroy(engine_request *request)
{
    free(request->expected);
    free(request->tokens);
    free(request->logits);
    *request = (engine_request){0};
}
