#include "api_answer.h"
#include "words.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Takes over the object. */
static char *print(json_t *object)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* The object as a server-sent event, and perhaps the mark of the end. Takes over the object. */
static char *print_event(json_t *object, const char *mark)
{
    static const char before[] = "data: ";
    char *text = object != NULL ? print(object) : strdup("");
    if (text == NULL)
        return NULL;
    size_t bytes = sizeof before + strlen(text) + 2 + strlen(mark) + 1;
    char *event = malloc(bytes);
    if (event != NULL && text[0] != '\0')
        snprintf(event, bytes, "%s%s\n\n%s", before, text, mark);
    else if (event != NULL)
        snprintf(event, bytes, "%s", mark);
    free(text);
    return event;
}

static quire_token token_at(const ask *a, uint32_t place)
{
    return a->engine.token_at(&a->engine, place);
}

/* The words of the tokens from there on that were generated; a stop token is not among them. */
static json_t *text_of(const ask *a, const ask_progress *p, uint32_t from)
{
    size_t used = 0;
    uint32_t to = p->num_generated - (p->end == ASK_STOP && p->num_generated > 0);
    to = to > from ? to : from;
    char *text = malloc((size_t)(to - from) * WORDS_BYTES + 1);
    if (text == NULL)
        return NULL;
    for (uint32_t i = from; i < to; i++)
        used += words_text(token_at(a, i), text + used);
    json_t *value = json_stringn(text, used);
    free(text);
    return value;
}

static json_t *ids_of(const ask *a, uint32_t from, uint32_t to)
{
    json_t *list = json_array();
    for (uint32_t i = from; i < to; i++)
        json_array_append_new(list, json_integer(token_at(a, i)));
    return list;
}

static json_t *prompt_ids_of(const api_request *q)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < q->num_tokens; i++)
        json_array_append_new(list, json_integer(q->tokens[i]));
    return list;
}

static json_t *usage_of(const ask *a, const ask_progress *p)
{
    json_int_t prompt = a->request.num_tokens;
    json_int_t generated = p->num_generated;
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     generated, "total_tokens", prompt + generated, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)p->cached_tokens);
}

/* null while it goes on. */
static json_t *reason_of(const ask_progress *p)
{
    static const char *const names[] = {
        [ASK_STOP] = "stop", [ASK_LENGTH] = "length", [ASK_ABORT] = "abort"};
    return p->end == ASK_OPEN || p->end == ASK_REFUSED ? json_null() : json_string(names[p->end]);
}

/* The stop token, where one of the request's own ended the answer. */
static json_t *stop_reason_of(const ask *a, const ask_progress *p)
{
    if (p->end != ASK_STOP || p->num_generated == 0)
        return json_null();
    quire_token last = token_at(a, p->num_generated - 1);
    return last != WORDS_END ? json_integer(last) : json_null();
}

static json_t *choice_of(const ask *a, const ask_progress *p)
{
    json_t *choice = json_pack("{s:i,s:n,s:o,s:o}", "index", 0, "logprobs", "finish_reason",
                               reason_of(p), "stop_reason", stop_reason_of(a, p));
    return choice;
}

static json_t *head_of(const api_subject *s, const char *object, json_t *choice)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:[o]}", "id", s->id, "object", object, "created",
                     (json_int_t)s->ask->created_unix_s, "model", s->model, "choices", choice);
}

char *api_answer_whole(const api_subject *s, const ask_progress *p)
{
    const ask *a = s->ask;
    bool is_chat = a->request.kind == API_CHAT;
    json_t *choice = choice_of(a, p);
    json_t *text = text_of(a, p, 0);
    if (is_chat)
        json_object_set_new(choice, "message",
                            json_pack("{s:s,s:o}", "role", "assistant", "content", text));
    else
        json_object_set_new(choice, "text", text);
    if (a->request.return_token_ids) {
        json_object_set_new(choice, "token_ids", ids_of(a, 0, p->num_generated));
        json_object_set_new(choice, "prompt_token_ids", prompt_ids_of(&a->request));
    }
    json_t *all = head_of(s, is_chat ? "chat.completion" : "text_completion", choice);
    json_object_set_new(all, "usage", usage_of(a, p));
    return print(all);
}

char *api_answer_role(const api_subject *s)
{
    json_t *choice = choice_of(s->ask, &(ask_progress){0});
    json_object_set_new(choice, "delta",
                        json_pack("{s:s,s:s}", "role", "assistant", "content", ""));
    return print_event(head_of(s, "chat.completion.chunk", choice), "");
}

char *api_answer_chunk(const api_subject *s, const ask_progress *p, uint32_t from)
{
    const ask *a = s->ask;
    bool is_chat = a->request.kind == API_CHAT;
    json_t *choice = choice_of(a, p);
    json_t *text = text_of(a, p, from);
    if (is_chat) {
        json_object_set_new(choice, "delta", json_pack("{s:o}", "content", text));
    } else {
        json_object_set_new(choice, "text", text);
    }
    if (a->request.return_token_ids) {
        json_object_set_new(choice, "token_ids", ids_of(a, from, p->num_generated));
        if (from == 0)
            json_object_set_new(choice, "prompt_token_ids", prompt_ids_of(&a->request));
    }
    json_t *all = head_of(s, is_chat ? "chat.completion.chunk" : "text_completion", choice);
    if (a->request.continuous_usage)
        json_object_set_new(all, "usage", usage_of(a, p));
    return print_event(all, "");
}

char *api_answer_last(const api_subject *s, const ask_progress *p)
{
    static const char mark[] = "data: [DONE]\n\n";
    const ask *a = s->ask;
    if (!a->request.include_usage)
        return print_event(NULL, mark);
    bool is_chat = a->request.kind == API_CHAT;
    json_t *all = json_pack("{s:s,s:s,s:I,s:s,s:[],s:o}", "id", s->id, "object",
                            is_chat ? "chat.completion.chunk" : "text_completion", "created",
                            (json_int_t)a->created_unix_s, "model", s->model, "choices", "usage",
                            usage_of(a, p));
    return print_event(all, mark);
}

char *api_answer_error(uint32_t status, const char *field, const char *message)
{
    const char *type = status == 404   ? "NotFoundError"
                       : status == 401 ? "AuthenticationError"
                       : status >= 500 ? "InternalServerError"
                                       : "BadRequestError";
    bool has_field = field != NULL && field[0] != '\0';
    json_t *param = has_field ? json_string(field) : json_null();
    if (param == NULL) /* a name that is not UTF-8 */
        param = json_null();
    json_t *text = json_string(message);
    if (text == NULL)
        text = json_string("the request is invalid");
    return print(json_pack("{s:{s:o,s:s,s:o,s:i}}", "error", "message", text, "type", type, "param",
                           param, "code", (int)status));
}

char *api_answer_models(const char *model, double created_unix_s, uint32_t max_model_len)
{
    return print(json_pack("{s:s,s:[{s:s,s:s,s:I,s:s,s:s,s:n,s:I}]}", "object", "list", "data",
                           "id", model, "object", "model", "created", (json_int_t)created_unix_s,
                           "owned_by", "quire", "root", model, "parent", "max_model_len",
                           (json_int_t)max_model_len));
}

char *api_answer_tokens(const api_request *request, uint32_t max_model_len)
{
    return print(json_pack("{s:I,s:I,s:o}", "count", (json_int_t)request->num_tokens,
                           "max_model_len", (json_int_t)max_model_len, "tokens",
                           prompt_ids_of(request)));
}
