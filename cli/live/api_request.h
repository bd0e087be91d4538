/* cli/live/api_request.h - the body of an OpenAI-style request: what is asked of an engine.
 *
 *      {"model": "m", "prompt": "Hello", ...} ──► api_request   tokens and limits
 *                                             └─► api_refusal   status, field, sentence
 *
 * Three kinds of fields: those that the engine follows, those that would change the words of a
 * real model and mean nothing to fake words (temperature, seed, ...), and those that are refused
 * unless they have the value that asks for nothing ("n": 1). Any other field is refused by name.
 * docs/live.md lists them all. No sockets here.
 */
#ifndef QUIRE_CLI_LIVE_API_REQUEST_H
#define QUIRE_CLI_LIVE_API_REQUEST_H

#include <quire/config.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { API_MAX_STOPS = 64, API_SALT_BYTES = 128, API_FIELD_BYTES = 64, API_MESSAGE_BYTES = 512 };

typedef enum api_kind {
    API_COMPLETION = 1, /* /v1/completions */
    API_CHAT = 2,       /* /v1/chat/completions */
    API_TOKENIZE = 4    /* /tokenize: only tokens */
} api_kind;

typedef struct api_request {
    api_kind kind;
    quire_token *tokens; /* the prompt; freed by api_request_free */
    uint32_t num_tokens;
    uint32_t max_tokens; /* of the answer; never 0 */
    uint32_t min_tokens;
    uint32_t num_stops;
    quire_token stops[API_MAX_STOPS]; /* stop_token_ids */
    int32_t priority;
    bool ignore_eos;
    bool stream;
    bool include_usage;    /* stream_options: a last chunk with usage, */
    bool continuous_usage; /* and usage in each chunk */
    bool return_token_ids;
    char salt[API_SALT_BYTES]; /* cache_salt; "": none */
} api_request;

/* What the engine allows. */
typedef struct api_limits {
    const char *model;
    uint32_t max_model_len;
    bool has_priorities;
} api_limits;

typedef struct api_refusal {
    uint32_t status; /* of HTTP */
    char field[API_FIELD_BYTES];
    char message[API_MESSAGE_BYTES];
} api_refusal;

/* True, or false and why not. The request is to be freed in either case. */
bool api_request_read(api_request *request, api_kind kind, const char *body, size_t bytes,
                      const api_limits *limits, api_refusal *refusal);
void api_request_free(api_request *request);

#endif
