/* engine/request.h - requests, and what the reference says to them.
 *
 *      prompt   system text that many share | turns so far | new words
 *      expected                                              | tokens, each with its logits
 *
 * The token at a position follows from the logits before it, the request's seed and the position:
 * nothing else. So the reference can be asked first, and every engine must come to the same.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include "engine/backend.h"

#include <stdbool.h>

typedef enum engine_request_state {
    ENGINE_NEW = 0,
    ENGINE_LIVE,
    ENGINE_ENDED,
    ENGINE_ABORTED
} engine_request_state;

typedef struct engine_request {
    uint32_t id;
    uint32_t num_prompt;
    uint32_t max_tokens;
    float temperature; /* 0: greedy */
    uint64_t seed;
    quire_token eos;
    int32_t priority;
    /* Of the reference */
    quire_token *expected; /* prompt and output */
    uint32_t num_expected;
    uint32_t first_logit; /* position of the first of logits */
    float *logits;        /* of positions [first_logit, num_expected - 1) */
    /* Of the engine */
    engine_request_state state;
    quire_req req;
    quire_token *tokens;   /* prompt, and what its logits gave */
    uint32_t num_known;    /* of tokens */
    uint32_t num_told;     /* of tokens: those that update gave back */
    uint32_t num_rejected; /* drafts of the step that was computed and not yet updated */
    bool is_beam;          /* of forks.c, which chooses its tokens */
    bool is_peers;         /* the peer has it, not the engine under test */
} engine_request;

enum { ENGINE_MORE_TOKENS = 16 }; /* room behind max_positions for what comes too late */

static inline uint64_t engine_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint32_t engine_draw(uint64_t *state, uint32_t below)
{
    return (uint32_t)((engine_random(state) >> 32) * below >> 32);
}

/* From least to most, both included. */
static inline uint32_t engine_between(uint64_t *state, uint32_t least, uint32_t most)
{
    return least + engine_draw(state, most - least + 1);
}

static inline bool engine_chance(uint64_t *state, uint32_t percent)
{
    return engine_draw(state, 100) < percent;
}

/* The token after these logits, which are those of position - 1. */
quire_token engine_sample(const float *logits, uint32_t vocabulary, float temperature,
                          uint64_t seed, uint32_t position);

/* Conversations that share their beginnings. */
typedef struct engine_texts engine_texts;
engine_texts *engine_texts_create(const engine_model *model, uint32_t max_model_len, uint64_t seed);
void engine_texts_destroy(engine_texts *texts);

/* The next request: its reference is run on the backend's cache 0. 0, or 1 when there is no
 * memory or the backend failed. */
int engine_request_create(engine_texts *texts, const engine_backend_ops *ops, void *backend,
                          bool wants_prompt, engine_request *request);
/* A prompt of the texts, without a reference; returns its length, at most max_tokens. */
uint32_t engine_texts_prompt(engine_texts *texts, uint32_t max_tokens, quire_token *tokens);
/* From the prompt on: fills expected and logits. */
int engine_request_expect(const engine_model *model, const engine_backend_ops *ops, void *backend,
                          engine_request *request);
void engine_request_destroy(engine_request *request);

/* The reference's logits of a position; NULL: it has none. */
static inline const float *engine_request_logits(const engine_request *r, uint32_t vocabulary,
                                                 uint32_t position)
{
    if (position < r->first_logit || position + 1 >= r->num_expected)
        return NULL;
    return r->logits + (size_t)(position - r->first_logit) * vocabulary;
}

#endif
