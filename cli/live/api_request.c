#include "api_request.h"
#include "words.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a completion without max_tokens, as in OpenAI's API and vLLM. */
enum { DEFAULT_MAX_TOKENS = 16, MAX_TOKEN = INT32_MAX, QUOTED_BYTES = 48 };

typedef struct reading {
    api_request *request;
    const api_limits *limits;
    api_refusal *refusal;
    const char *field;
    bool has_prompt;
    bool has_max_tokens;
} reading;

/* ---- refusals ---------------------------------------------------------------- */

static bool refuse(reading *r, uint32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse(reading *r, uint32_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->refusal->message, sizeof r->refusal->message, format, args);
    va_end(args);
    r->refusal->status = status;
    snprintf(r->refusal->field, sizeof r->refusal->field, "%s", r->field);
    return false;
}

/* A value as it was sent, short enough for a sentence. */
static void quote(const json_t *value, char text[QUOTED_BYTES])
{
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(text, QUOTED_BYTES, "%s", all != NULL ? all : "?");
    if (all != NULL && strlen(all) >= QUOTED_BYTES)
        memcpy(text + QUOTED_BYTES - sizeof "...", "...", sizeof "...");
    free(all);
}

static bool refuse_value(reading *r, const json_t *value, const char *expected)
{
    char text[QUOTED_BYTES];
    quote(value, text);
    return refuse(r, 400, "invalid value %s for %s (expected %s)", text, r->field, expected);
}

static bool no_memory(reading *r)
{
    return refuse(r, 500, "not enough memory for %s", r->field);
}

/* ---- values ------------------------------------------------------------------ */

static bool read_bool(reading *r, const json_t *value, bool *to)
{
    if (!json_is_boolean(value))
        return refuse_value(r, value, "true or false");
    *to = json_is_true(value);
    return true;
}

static bool read_integer(reading *r, const json_t *value, int64_t min, int64_t max, int64_t *to)
{
    char expected[64];
    *to = json_integer_value(value);
    if (json_is_integer(value) && *to >= min && *to <= max)
        return true;
    snprintf(expected, sizeof expected, "%lld..%lld", (long long)min, (long long)max);
    return refuse_value(r, value, expected);
}

/* Token ids of an array, behind those that are there already. */
static bool read_tokens(reading *r, const json_t *list, quire_token *to)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        int64_t token;
        if (!read_integer(r, item, 0, MAX_TOKEN, &token))
            return false;
        to[i] = (quire_token)token;
    }
    return true;
}

/* Room for `more` tokens of the prompt. */
static bool make_room(reading *r, size_t more)
{
    api_request *q = r->request;
    if (more > UINT32_MAX / 2 - q->num_tokens)
        return refuse(r, 413, "%s is too long", r->field);
    quire_token *tokens = realloc(q->tokens, (q->num_tokens + more + 1) * sizeof *tokens);
    if (tokens == NULL)
        return no_memory(r);
    q->tokens = tokens;
    return true;
}

static bool add_text(reading *r, const json_t *value)
{
    api_request *q = r->request;
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);
    if (!make_room(r, bytes))
        return false;
    q->num_tokens += (uint32_t)words_of_text(text, bytes, q->tokens + q->num_tokens);
    return true;
}

static bool add_mark(reading *r, quire_token mark)
{
    if (!make_room(r, 1))
        return false;
    r->request->tokens[r->request->num_tokens++] = mark;
    return true;
}

/* ---- the prompt -------------------------------------------------------------- */

static bool read_prompt(reading *r, const json_t *value)
{
    static const char expected[] = "a text, an array of token ids, or an array with one of these";
    r->has_prompt = true;
    const json_t *first = json_array_get(value, 0);
    if (json_is_array(value) && (json_is_string(first) || json_is_array(first))) {
        if (json_array_size(value) > 1)
            return refuse(r, 400, "invalid value for %s: an array of %zu prompts (expected 1)",
                          r->field, json_array_size(value));
        value = first;
    }
    if (json_is_string(value))
        return add_text(r, value);
    if (!json_is_array(value) || json_array_size(value) == 0)
        return refuse_value(r, value, expected);
    if (!make_room(r, json_array_size(value)) || !read_tokens(r, value, r->request->tokens))
        return false;
    r->request->num_tokens = (uint32_t)json_array_size(value);
    return true;
}

/* A text, or parts {"type": "text", "text": ...}. */
static bool add_content(reading *r, const json_t *content)
{
    size_t i;
    json_t *part;
    if (json_is_null(content) || content == NULL)
        return true;
    if (json_is_string(content))
        return add_text(r, content);
    if (!json_is_array(content))
        return refuse_value(r, content, "a text or an array of parts");
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0 || !json_is_string(text))
            return refuse_value(r, part, "a part {\"type\": \"text\", \"text\": TEXT}");
        if (!add_text(r, text))
            return false;
    }
    return true;
}

static bool read_messages(reading *r, const json_t *value)
{
    size_t i;
    json_t *message;
    r->has_prompt = true;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return refuse_value(r, value, "an array of messages");
    json_array_foreach(value, i, message)
    {
        const json_t *role = json_object_get(message, "role");
        quire_token mark = json_is_string(role) ? words_role(json_string_value(role)) : 0;
        r->field = "messages.role";
        if (mark == 0)
            return refuse_value(r, role != NULL ? role : message,
                                "system, user, assistant, tool or developer");
        r->field = "messages.content";
        if (!add_mark(r, mark) || !add_content(r, json_object_get(message, "content")) ||
            !add_mark(r, WORDS_END))
            return false;
    }
    return add_mark(r, WORDS_ASSISTANT);
}

/* ---- the other fields --------------------------------------------------------- */

static bool read_model(reading *r, const json_t *value)
{
    char text[QUOTED_BYTES];
    if (json_is_string(value) && strcmp(json_string_value(value), r->limits->model) == 0)
        return true;
    quote(value, text);
    return refuse(r, json_is_string(value) ? 404 : 400,
                  "invalid value %s for model (expected \"%s\")", text, r->limits->model);
}

static bool read_max_tokens(reading *r, const json_t *value)
{
    int64_t n;
    if (!read_integer(r, value, 1, r->limits->max_model_len - 1, &n))
        return false;
    r->request->max_tokens = (uint32_t)n;
    r->has_max_tokens = true;
    return true;
}

static bool read_min_tokens(reading *r, const json_t *value)
{
    int64_t n;
    bool ok = read_integer(r, value, 0, r->limits->max_model_len - 1, &n);
    r->request->min_tokens = ok ? (uint32_t)n : 0;
    return ok;
}

static bool read_stops(reading *r, const json_t *value)
{
    if (!json_is_array(value) || json_array_size(value) > API_MAX_STOPS)
        return refuse_value(r, value, "an array of at most 64 token ids");
    r->request->num_stops = (uint32_t)json_array_size(value);
    return read_tokens(r, value, r->request->stops);
}

static bool read_priority(reading *r, const json_t *value)
{
    int64_t n;
    if (!read_integer(r, value, INT32_MIN, INT32_MAX, &n))
        return false;
    if (n != 0 && !r->limits->has_priorities)
        return refuse(r, 400,
                      "invalid value %lld for priority (expected 0: the engine runs without "
                      "--scheduling-policy priority)",
                      (long long)n);
    r->request->priority = (int32_t)n;
    return true;
}

static bool read_ignore_eos(reading *r, const json_t *value)
{
    return read_bool(r, value, &r->request->ignore_eos);
}

static bool read_stream(reading *r, const json_t *value)
{
    return read_bool(r, value, &r->request->stream);
}

static bool read_return_token_ids(reading *r, const json_t *value)
{
    return read_bool(r, value, &r->request->return_token_ids);
}

static bool read_stream_options(reading *r, const json_t *value)
{
    const char *name;
    json_t *item;
    if (!json_is_object(value))
        return refuse_value(r, value, "an object");
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        bool is_last = strcmp(name, "include_usage") == 0;
        bool is_each = strcmp(name, "continuous_usage_stats") == 0;
        if (!is_last && !is_each)
            return refuse_value(r, value, "include_usage and continuous_usage_stats");
        if (!json_is_null(item) &&
            !read_bool(r, item,
                       is_last ? &r->request->include_usage : &r->request->continuous_usage))
            return false;
    }
    return true;
}

static bool read_salt(reading *r, const json_t *value)
{
    size_t bytes = json_string_length(value);
    if (!json_is_string(value) || bytes == 0 || bytes >= API_SALT_BYTES)
        return refuse_value(r, value, "a text of 1..127 bytes");
    memcpy(r->request->salt, json_string_value(value), bytes + 1);
    return true;
}

/* What the words would be: they are fake, so anything is right. */
static bool ignore(reading *r, const json_t *value)
{
    (void)r;
    (void)value;
    return true;
}

/* Asks for nothing: false, 0, "" and empty lists. */
static bool refuse_all(reading *r, const json_t *value)
{
    bool is_nothing = json_is_false(value) || (json_is_array(value) && !json_array_size(value)) ||
                      (json_is_integer(value) && json_integer_value(value) == 0) ||
                      (json_is_string(value) && json_string_length(value) == 0);
    return is_nothing || refuse_value(r, value, "none: it is not supported");
}

static bool one_only(reading *r, const json_t *value)
{
    int64_t n;
    return read_integer(r, value, 1, 1, &n);
}

static bool no_tools(reading *r, const json_t *value)
{
    const char *text = json_string_value(value);
    return (text != NULL && strcmp(text, "none") == 0) || refuse_value(r, value, "\"none\"");
}

static bool only_text(reading *r, const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return (type != NULL && strcmp(type, "text") == 0) ||
           refuse_value(r, value, "{\"type\": \"text\"}");
}

enum { ANSWERS = API_COMPLETION | API_CHAT, ALL = ANSWERS | API_TOKENIZE };

static const struct {
    const char *name;
    unsigned kinds;
    bool (*read)(reading *r, const json_t *value);
} fields[] = {
    {"model", ALL, read_model},
    {"prompt", API_COMPLETION | API_TOKENIZE, read_prompt},
    {"messages", API_CHAT | API_TOKENIZE, read_messages},
    {"max_tokens", ANSWERS, read_max_tokens},
    {"max_completion_tokens", API_CHAT, read_max_tokens},
    {"min_tokens", ANSWERS, read_min_tokens},
    {"stop_token_ids", ANSWERS, read_stops},
    {"ignore_eos", ANSWERS, read_ignore_eos},
    {"priority", ANSWERS, read_priority},
    {"cache_salt", ANSWERS, read_salt},
    {"stream", ANSWERS, read_stream},
    {"stream_options", ANSWERS, read_stream_options},
    {"return_token_ids", ANSWERS, read_return_token_ids},

    {"n", ANSWERS, one_only},
    {"best_of", API_COMPLETION, one_only},
    {"stop", ANSWERS, refuse_all},
    {"echo", ANSWERS, refuse_all},
    {"suffix", API_COMPLETION, refuse_all},
    {"logprobs", ANSWERS, refuse_all},
    {"top_logprobs", API_CHAT, refuse_all},
    {"prompt_logprobs", ANSWERS, refuse_all},
    {"use_beam_search", ANSWERS, refuse_all},
    {"tools", API_CHAT, refuse_all},
    {"tool_choice", API_CHAT, no_tools},
    {"response_format", ANSWERS, only_text},
    {"truncate_prompt_tokens", ANSWERS, refuse_all},

    {"temperature", ANSWERS, ignore},
    {"top_p", ANSWERS, ignore},
    {"top_k", ANSWERS, ignore},
    {"min_p", ANSWERS, ignore},
    {"seed", ANSWERS, ignore},
    {"presence_penalty", ANSWERS, ignore},
    {"frequency_penalty", ANSWERS, ignore},
    {"repetition_penalty", ANSWERS, ignore},
    {"length_penalty", ANSWERS, ignore},
    {"logit_bias", ANSWERS, ignore},
    {"bad_words", ANSWERS, ignore},
    {"skip_special_tokens", ANSWERS, ignore},
    {"spaces_between_special_tokens", ANSWERS, ignore},
    {"include_stop_str_in_output", ANSWERS, ignore},
    {"add_special_tokens", ALL, ignore},
    {"add_generation_prompt", API_CHAT | API_TOKENIZE, ignore},
    {"chat_template_kwargs", API_CHAT, ignore},
    {"parallel_tool_calls", API_CHAT, ignore},
    {"reasoning_effort", API_CHAT, ignore},
    {"user", ANSWERS, ignore},
    {"metadata", ANSWERS, ignore},
    {"store", ANSWERS, ignore},
    {"service_tier", ANSWERS, ignore},
    {"request_id", ANSWERS, ignore},
    {"prompt_cache_key", ANSWERS, ignore},
    {"safety_identifier", ANSWERS, ignore},
};

static bool read_field(reading *r, const char *name, const json_t *value)
{
    r->field = name;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if ((fields[i].kinds & r->request->kind) != 0 && strcmp(fields[i].name, name) == 0)
            return json_is_null(value) || fields[i].read(r, value);
    return refuse(r, 400, "unknown field %.48s", name);
}

/* ---- the whole ---------------------------------------------------------------- */

/* What fits behind the prompt. */
static bool check_lengths(reading *r)
{
    api_request *q = r->request;
    uint32_t longest = r->limits->max_model_len;
    r->field = q->kind == API_CHAT ? "messages" : "prompt";
    if (!r->has_prompt || q->num_tokens == 0)
        return refuse(r, 400, "%s is required, and may not be empty", r->field);
    if (q->kind == API_TOKENIZE)
        return true;
    if (q->num_tokens >= longest)
        return refuse(r, 400,
                      "invalid value for %s: %u tokens (expected 1..%u: max_model_len, less one "
                      "token of the answer)",
                      r->field, q->num_tokens, longest - 1);
    uint32_t room = longest - q->num_tokens;
    r->field = "max_tokens";
    if (!r->has_max_tokens)
        q->max_tokens =
            q->kind == API_CHAT || room < DEFAULT_MAX_TOKENS ? room : DEFAULT_MAX_TOKENS;
    if (q->max_tokens > room)
        return refuse(r, 400,
                      "invalid value %u for max_tokens (expected 1..%u: max_model_len %u less the "
                      "prompt's %u tokens)",
                      q->max_tokens, room, longest, q->num_tokens);
    r->field = "min_tokens";
    if (q->min_tokens > q->max_tokens)
        return refuse(r, 400, "invalid value %u for min_tokens (expected 0..%u: max_tokens)",
                      q->min_tokens, q->max_tokens);
    r->field = "stream_options";
    if (!q->stream && (q->include_usage || q->continuous_usage))
        return refuse(r, 400, "stream_options needs \"stream\": true");
    return true;
}

bool api_request_read(api_request *request, api_kind kind, const char *body, size_t bytes,
                      const api_limits *limits, api_refusal *refusal)
{
    json_error_t error;
    const char *name;
    json_t *value;
    *request = (api_request){.kind = kind};
    *refusal = (api_refusal){0};
    reading r = {.request = request, .limits = limits, .refusal = refusal, .field = ""};
    json_t *all = json_loadb(body, bytes, JSON_REJECT_DUPLICATES, &error);
    if (all == NULL)
        return refuse(&r, 400, "the body is not JSON: %.160s (line %d, column %d)", error.text,
                      error.line, error.column);
    bool ok = json_is_object(all) || refuse(&r, 400, "the body is not a JSON object");
    if (ok)
        json_object_foreach(all, name, value)
        {
            ok = read_field(&r, name, value);
            if (!ok)
                break;
        }
    ok = ok && check_lengths(&r);
    json_decref(all);
    return ok;
}

void api_request_free(api_request *request)
{
    free(request->tokens);
    request->tokens = NULL;
}
