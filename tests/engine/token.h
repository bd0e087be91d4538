/* engine/token.h - what the model computes of one token outside attention, on the processor.
 *
 *      begin ─► [ project ─► (the caller keeps kv, attends) ─► finish_layer ] x layers ─► logits
 *
 * The paged forward pass and the reference share this: here is no cache, so nothing that could be
 * confused. How a past is stored and walked through is each one's own.
 */
#ifndef ENGINE_TOKEN_H
#define ENGINE_TOKEN_H

#include "engine/model.h"

#include <quire.h>

/* Buffers of one token on its way through the model. */
typedef struct engine_token {
    const engine_model *model;
    float *memory;   /* all of it */
    float *x;        /* [width] */
    float *norm;     /* [width] */
    float *query;    /* [num_heads * head_size] */
    float *attended; /* [num_heads * head_size]: the caller writes it */
    float *gate;     /* [hidden] */
    float *up;       /* [hidden] */
    float *scores;   /* [num_heads][max_positions], for the caller's attention */
} engine_token;

/* 0, or 1 when there is no memory. */
int engine_token_create(engine_token *token, const engine_model *model);
void engine_token_destroy(engine_token *token);

void engine_token_begin(engine_token *token, quire_token id);
/* Queries into token->query; keys, then values, to kv: what one layer keeps of a token. Keys and
 * queries are rotated to the position. */
void engine_token_project(engine_token *token, uint32_t layer, uint32_t position, float *kv);
/* From attended to the next layer's x. */
void engine_token_finish_layer(engine_token *token, uint32_t layer);
void engine_token_logits(engine_token *token, float *logits); /* [vocabulary] */

/* Scores of n positions, from their dot products on: softmax without the division. Returns the
 * sum. */
float engine_token_weigh(float *scores, uint32_t n);

#endif
