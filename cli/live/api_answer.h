/* cli/live/api_answer.h - answers of an engine as JSON, in the forms of OpenAI's API and vLLM.
 *
 *      whole     {"id":"cmpl-1","object":"text_completion","choices":[..],"usage":{..}}
 *      chunks    data: {"id":"cmpl-1",..}     one for the tokens that are new
 *                data: [DONE]
 *      errors    {"error":{"message":..,"type":..,"param":"max_tokens","code":400}}
 *
 * All functions return text to be freed, or NULL: no memory. No sockets here.
 */
#ifndef QUIRE_CLI_LIVE_API_ANSWER_H
#define QUIRE_CLI_LIVE_API_ANSWER_H

#include "inbox.h"

enum { API_ID_BYTES = 96 };

typedef struct api_subject {
    const ask *ask;
    const char *model;
    char id[API_ID_BYTES];
} api_subject;

char *api_answer_whole(const api_subject *s, const ask_progress *p);
/* Before the chunks of a chat: the role, without tokens. */
char *api_answer_role(const api_subject *s);
/* Tokens [from, p->num_generated), as an event of a stream. */
char *api_answer_chunk(const api_subject *s, const ask_progress *p, uint32_t from);
/* The end of a stream: usage where it is asked for, and [DONE]. */
char *api_answer_last(const api_subject *s, const ask_progress *p);

/* field: NULL or "": none. */
char *api_answer_error(uint32_t status, const char *field, const char *message);
char *api_answer_models(const char *model, double created_unix_s, uint32_t max_model_len);
char *api_answer_tokens(const api_request *request, uint32_t max_model_len);

#endif
