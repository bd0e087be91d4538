/* parity/sched_model.h - one scheduler of a recording, its requests, and how all is described.
 *
 *      line of the recording ──► operation on quire_sched ──► answer as text ──► fingerprint
 *            answers of callbacks ──┘   └── calls of callbacks, events, queues ──┘
 *
 * Both sides write NAME=VALUE fields with | between them; the first field that differs is shown by
 * name. Requests are called by their number in the recording.
 */
#ifndef PARITY_SCHED_MODEL_H
#define PARITY_SCHED_MODEL_H

#include "parity/recording.h"
#include "parity/sched_tally.h"

#include <quire/sched.h>

#include <string.h>

enum {
    SCHED_MAX_GROUPS = 4,
    SCHED_MAX_BLOCKS = 256,
    SCHED_MAX_REQUESTS = 512,
    SCHED_MAX_TOKENS = 1024, /* of one request */
    SCHED_MAX_FEATURES = 32,
    SCHED_MAX_IMAGE = 32, /* tokens of one image with a mask */
    SCHED_MAX_STEP = 64,  /* requests in a step */
    SCHED_MAX_FLIGHT = 4,
    SCHED_MAX_ANSWERS = 64,
    SCHED_MAX_CLIENTS = 4,
    SCHED_STRIDE = 8 /* tokens that one request may sample in a step */
};

/* What both languages draw: see sched_world.py. */
enum sched_draw { SCHED_PROMPT = 0, SCHED_SAMPLED = 1, SCHED_DRAFT = 2, SCHED_EMBED = 3 };

typedef struct sched_feature {
    char identifier[16];
    uint8_t is_embed[SCHED_MAX_IMAGE];
} sched_feature;

typedef struct sched_request {
    quire_req req; /* stays after the end, to tell whom an answer is about */
    char id[16];
    char lora[16];
    char salt[16];
    quire_token *tokens; /* prompt and output, as far as this side was told */
    uint32_t num_tokens;
    sched_feature *features;
    uint32_t num_features;
} sched_request;

/* A step that waits for its update. */
typedef struct sched_flight {
    uint64_t step;
    uint32_t num_reqs;
    quire_req reqs[SCHED_MAX_STEP];
} sched_flight;

/* The answer that a callback gives at its call of this number. */
typedef struct sched_answer {
    unsigned long call;
    char text[16];
} sched_answer;

typedef struct sched_model {
    recording r;
    sched_tally tally;
    quire_sched *sched;
    quire_hasher *hasher;
    quire_sched_config config;
    quire_cache_config cache_config; /* of config */
    quire_group_config groups[SCHED_MAX_GROUPS];
    char mix[32];
    uint64_t seed;
    uint32_t alphabet;
    bool requires_kv_delivery; /* of the connector */
    bool is_kv_consumer;
    bool diverges; /* the connector takes hits that differ from group to group */
    bool is_pipeline;
    bool is_extended; /* steps tell drafts, outputs created tokens, stats drafts by place */
    uint32_t drafts_by_batch[16];
    bool takes_states; /* the connector is offered states of Mamba layers */
    bool asks_pending_frees;
    bool has_encoder_connector;

    sched_request requests[SCHED_MAX_REQUESTS];
    uint32_t num_requests;
    sched_flight flight[SCHED_MAX_FLIGHT]; /* oldest first */
    uint32_t num_flight;
    sched_flight updated; /* the last one that was updated */
    uint64_t num_steps;
    uint64_t num_operations;

    text calls;
    unsigned long num_calls;
    sched_answer answers[SCHED_MAX_ANSWERS];
    uint32_t num_answers;
    text events;
} sched_model;

/* Whether hits may end inside a block: then steps list copies. */
static inline bool sched_has_parts(const sched_model *m)
{
    return strncmp(m->mix, "parts", strlen("parts")) == 0;
}

/* Makes the scheduler that a `sched` line describes; the one before is destroyed. */
void sched_model_start(sched_model *m);
void sched_model_free(sched_model *m);

uint64_t sched_draw(const sched_model *m, enum sched_draw kind, uint64_t a, uint64_t b);

/* The next word, or NULL when only callback answers and fingerprint are left. */
char *sched_option(sched_model *m);
/* The request of a number that the recording names. */
sched_request *sched_request_at(sched_model *m, unsigned long number);
/* The number of a request, also of one that has ended. */
uint32_t sched_number(sched_model *m, quire_req req);
void sched_expect_ok(sched_model *m, const char *what, int status);

/* sched_requests.c: lines that add and continue requests. */
void sched_add(sched_model *m, const char *word);
void sched_continue(sched_model *m, const char *word);
void sched_forget_requests(sched_model *m);

/* sched_calls.c: connector, grammar and events. */
void sched_set_callbacks(sched_model *m, bool has_connector);
void sched_read_answers(sched_model *m);

/* sched_text.c: descriptions. */
void sched_add_spans(text *t, const sched_model *m, const quire_block_span *spans);
void sched_add_step(sched_model *m, const quire_step *step);
void sched_add_outputs(sched_model *m, const quire_outputs *outputs);
void sched_add_state(sched_model *m, bool is_last);

/* sched_check.c: compares r.answer through the fingerprint in the next word, and clears it. */
void sched_check_answer(sched_model *m);

#endif
