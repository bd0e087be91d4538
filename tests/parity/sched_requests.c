/* parity/sched_requests.c - requests from their lines.
 *
 *      a12 3:20+7:5 T9 o8 i2 e5 s1.4 R3.1.2 P-1 C1 L2 S1 G1 Z1 K1 Q1 M2.4.6.0
 *
 *      3:20+7:5  prompt: 20 tokens of family 3, 5 of family 7; @4:9 is 9 tokens of request 4
 *      T arrival time in quarters     o, i  most and least tokens     e end token   s stop tokens
 *      R repetition (largest and smallest pattern, count)             P priority    C client
 *      L adapter   S salt   G has a grammar   Z is a session   K does not read the cache
 *      Q is for pooling       M images: name, offset, length, seed of its mask (0: none)
 */
#include "parity/sched_model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPT_TOKENS = 1000, MAX_STOPS = 4 };

/* All that a line says, in memory that lives as long as the call. */
typedef struct request_line {
    quire_request_params params;
    quire_token prompt[SCHED_MAX_TOKENS];
    quire_token stops[MAX_STOPS];
    quire_mm_input features[SCHED_MAX_FEATURES];
    uint32_t lora;
    uint32_t salt;
} request_line;

void sched_forget_requests(sched_model *m)
{
    for (uint32_t i = 0; i < m->num_requests; i++) {
        free(m->requests[i].tokens);
        free(m->requests[i].features);
        m->requests[i] = (sched_request){0};
    }
    m->num_requests = 0;
}

/* ---- the parts of a line --------------------------------------------------- */

static void read_prompt(sched_model *m, char *word, request_line *line)
{
    uint32_t count = 0;
    for (char *part = strsep(&word, "+"); part != NULL; part = strsep(&word, "+")) {
        char *end;
        bool is_copy = part[0] == '@';
        unsigned long which = strtoul(part + is_copy, &end, 10);
        uint32_t len = (uint32_t)strtoul(end + 1, NULL, 10);
        recording_expect(&m->r, count + len <= SCHED_MAX_TOKENS, "prompt fits");
        const sched_request *from = is_copy ? sched_request_at(m, which) : NULL;
        recording_expect(&m->r, from == NULL || len <= from->num_tokens, "tokens are known");
        for (uint32_t i = 0; i < len; i++) {
            line->prompt[count++] =
                from != NULL ? from->tokens[i]
                             : (quire_token)(sched_draw(m, SCHED_PROMPT, which, i) % PROMPT_TOKENS);
        }
    }
    line->params.prompt = line->prompt;
    line->params.num_prompt_tokens = count;
}

/* The numbers of "3.1.2"; returns how many. */
static uint32_t read_dotted(sched_model *m, const char *word, uint32_t *numbers, uint32_t capacity)
{
    uint32_t count = 0;
    char *end = NULL;
    for (const char *at = word; count == 0 || *end == '.'; at = end + 1) {
        recording_expect(&m->r, count < capacity, "numbers fit");
        numbers[count++] = (uint32_t)strtoul(at, &end, 10);
    }
    return count;
}

static void read_features(sched_model *m, char *word, sched_request *request, request_line *line)
{
    for (char *one = strsep(&word, ","); one != NULL; one = strsep(&word, ",")) {
        uint32_t numbers[4]; /* name, offset, length, seed of the mask */
        recording_expect(&m->r, read_dotted(m, one, numbers, 4) == 4, "image has four numbers");
        recording_expect(
            &m->r, request->num_features < SCHED_MAX_FEATURES && numbers[2] <= SCHED_MAX_IMAGE,
            "images fit");
        sched_feature *kept = &request->features[request->num_features++];
        quire_mm_input *input = &line->features[line->params.num_mm_inputs++];
        snprintf(kept->identifier, sizeof kept->identifier, "image%" PRIu32, numbers[0]);
        *input = (quire_mm_input){
            .feature = {{kept->identifier, strlen(kept->identifier)}, numbers[1], numbers[2]}};
        if (numbers[3] == 0)
            continue;
        for (uint32_t i = 0; i < numbers[2]; i++) {
            kept->is_embed[i] = i == 0 || sched_draw(m, SCHED_EMBED, 2 + numbers[3], i) % 2 == 1;
            input->num_embeds += kept->is_embed[i];
        }
        input->is_embed = kept->is_embed;
    }
    line->params.mm_inputs = line->features;
}

static void read_repetition(sched_model *m, const char *word, quire_request_params *params)
{
    uint32_t numbers[3];
    recording_expect(&m->r, read_dotted(m, word, numbers, 3) == 3, "repetition has three numbers");
    params->repetition_max_pattern = numbers[0];
    params->repetition_min_pattern = numbers[1];
    params->repetition_min_count = numbers[2];
}

static void read_stops(sched_model *m, const char *word, request_line *line)
{
    uint32_t numbers[MAX_STOPS];
    line->params.num_stop_token_ids = read_dotted(m, word, numbers, MAX_STOPS);
    for (uint32_t i = 0; i < line->params.num_stop_token_ids; i++)
        line->stops[i] = (quire_token)numbers[i];
    line->params.stop_token_ids = line->stops;
}

static void read_option(sched_model *m, char *word, sched_request *request, request_line *line)
{
    quire_request_params *params = &line->params;
    uint32_t value = (uint32_t)strtoul(word + 1, NULL, 10);
    switch (word[0]) {
    case 'T':
        params->arrival_time = (double)value / 4;
        break;
    case 'o':
        params->max_tokens = value;
        break;
    case 'i':
        params->min_tokens = value;
        break;
    case 'e':
        params->has_eos = 1;
        params->eos_token_id = (quire_token)value;
        break;
    case 's':
        read_stops(m, word + 1, line);
        break;
    case 'R':
        read_repetition(m, word + 1, params);
        break;
    case 'P':
        params->priority = (int32_t)strtol(word + 1, NULL, 10);
        break;
    case 'C':
        params->client_index = value;
        break;
    case 'L':
        line->lora = value;
        break;
    case 'S':
        line->salt = value;
        break;
    case 'G':
        params->use_grammar = value;
        break;
    case 'Z':
        params->is_resumable = value;
        break;
    case 'K':
        params->skip_reading_prefix = value;
        break;
    case 'Q':
        params->is_pooling = value;
        break;
    default:
        recording_expect(&m->r, word[0] == 'M', "option of a request is known");
        read_features(m, word + 1, request, line);
    }
}

static void read_line(sched_model *m, char *prompt, sched_request *request, request_line *line)
{
    line->params = (quire_request_params)QUIRE_REQUEST_PARAMS_INIT;
    line->lora = line->salt = 0;
    read_prompt(m, prompt, line);
    for (char *word = sched_option(m); word != NULL; word = sched_option(m))
        read_option(m, word, request, line);
    line->params.id = (quire_bytes){request->id, strlen(request->id)};
    line->params.user = request;
}

/* ---- lines ----------------------------------------------------------------- */

void sched_add(sched_model *m, const char *word)
{
    static request_line line;
    unsigned long number = strtoul(word + 1, NULL, 10);
    recording_expect(&m->r, number == m->num_requests && number < SCHED_MAX_REQUESTS,
                     "request is the next");
    sched_request *request = &m->requests[m->num_requests++];
    snprintf(request->id, sizeof request->id, "%c%lu", (char)('a' + number * 7 % 26), number);
    request->tokens = calloc(SCHED_MAX_TOKENS, sizeof request->tokens[0]);
    request->features = calloc(SCHED_MAX_FEATURES, sizeof request->features[0]);
    assert_true(request->tokens != NULL && request->features != NULL);
    read_line(m, recording_word(&m->r), request, &line);
    if (line.lora != 0) {
        snprintf(request->lora, sizeof request->lora, "lora%" PRIu32, line.lora);
        line.params.lora_name = (quire_bytes){request->lora, strlen(request->lora)};
        line.params.lora_path = (quire_bytes){"path", 4};
        line.params.lora_id = line.lora;
    }
    if (line.salt != 0) {
        snprintf(request->salt, sizeof request->salt, "salt%" PRIu32, line.salt);
        line.params.cache_salt = (quire_bytes){request->salt, strlen(request->salt)};
    }
    sched_expect_ok(m, "status of add", quire_sched_add(m->sched, &line.params, &request->req));
    request->num_tokens = line.params.num_prompt_tokens;
    memcpy(request->tokens, line.prompt, request->num_tokens * sizeof line.prompt[0]);
}

void sched_continue(sched_model *m, const char *word)
{
    static request_line line;
    sched_request *request = sched_request_at(m, strtoul(word + 1, NULL, 10));
    char *prompt = recording_word(&m->r);
    if (strcmp(prompt, "-") == 0) {
        sched_expect_ok(m, "status of continue",
                        quire_sched_continue(m->sched, request->req, NULL));
        sched_tally_add(&m->tally, SCHED_ended, 1);
        return;
    }
    read_line(m, prompt, request, &line);
    line.params.is_resumable = 1;
    sched_expect_ok(m, "status of continue",
                    quire_sched_continue(m->sched, request->req, &line.params));
    sched_tally_add(&m->tally, SCHED_continued, 1);
}
