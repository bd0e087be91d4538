/* parity/sched_calls.c - the callbacks of connector and grammar, and the events of the cache.
 *
 *      s ~2:8a,5:n 3fa      in this operation, call 2 answers "8a" and call 5 "n", others as usual
 *
 * Each call is noted with its arguments: sched_world.py has the letters.
 */
#include "parity/sched_model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHOWN_BYTES = 3 };

void sched_read_answers(sched_model *m)
{
    const char *at = strstr(m->r.line, " ~");
    text_clear(&m->calls);
    m->num_calls = 0;
    m->num_answers = 0;
    if (at == NULL)
        return;
    for (at += 2; *at != '\0' && *at != ' '; at += *at == ',') {
        recording_expect(&m->r, m->num_answers < SCHED_MAX_ANSWERS, "answers fit");
        sched_answer *answer = &m->answers[m->num_answers++];
        char *end;
        answer->call = strtoul(at, &end, 10);
        size_t len = strcspn(end + 1, ", ");
        recording_expect(&m->r, *end == ':' && len < sizeof answer->text, "answer is one");
        memcpy(answer->text, end + 1, len);
        answer->text[len] = '\0';
        at = end + 1 + len;
    }
}

/* The answer to the call that was just noted; NULL: the usual one. */
static const char *take_answer(sched_model *m)
{
    unsigned long call = m->num_calls++;
    for (uint32_t i = 0; i < m->num_answers; i++) {
        if (m->answers[i].call == call)
            return m->answers[i].text;
    }
    return NULL;
}

static int flag_answer(sched_model *m, int usual)
{
    const char *answer = take_answer(m);
    return answer == NULL ? usual : answer[0] == '1';
}

static void start_note(sched_model *m, const char *letter, quire_req req)
{
    text_add(&m->calls, "%s%s", m->calls.len == 0 ? "" : " ", letter);
    if (req != 0)
        text_add(&m->calls, "%" PRIu32, sched_number(m, req));
}

static void note_tokens(sched_model *m, const quire_token *tokens, uint32_t count)
{
    text_add(&m->calls, "(");
    for (uint32_t i = 0; i < count; i++)
        text_add(&m->calls, i == 0 ? "%" PRId32 : ".%" PRId32, tokens[i]);
    text_add(&m->calls, ")");
}

/* ---- connector ------------------------------------------------------------- */

static int on_matched(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    sched_model *m = user;
    start_note(m, "m", req);
    text_add(&m->calls, "(%" PRIu32 ")", num_local);
    const char *answer = take_answer(m);
    *num_external = 0;
    *is_async = 0;
    if (answer == NULL)
        return QUIRE_OK;
    if (answer[0] == 'n') {
        sched_tally_add(&m->tally, SCHED_again, 1);
        return QUIRE_RETRY;
    }
    char *end;
    *num_external = (uint32_t)strtoul(answer, &end, 10);
    *is_async = *end == 'a';
    sched_tally_add(&m->tally, *is_async != 0 ? SCHED_later : SCHED_at_once, 1);
    return QUIRE_OK;
}

static void on_alloc(void *user, quire_req req, const quire_block_span *blocks,
                     uint32_t num_external)
{
    sched_model *m = user;
    start_note(m, "u", req);
    text_add(&m->calls, "(");
    sched_add_spans(&m->calls, m, blocks);
    text_add(&m->calls, ";%" PRIu32 ")", num_external);
    m->num_calls++;
}

/* The states that a step offers, request by request: vLLM has a table of them by request. */
static void note_states(sched_model *m, const quire_step *step)
{
    uint32_t num_noted = 0;
    for (uint32_t number = 0; number < m->num_requests && step->num_states > 0; number++) {
        for (uint32_t i = 0; i < step->num_states; i++) {
            const quire_state_offer *state = &step->states[i];
            if (state->req != m->requests[number].req)
                continue;
            text_add(&m->calls, "%s%" PRIu32 ".%" PRIu32 ".%" PRIu32 ".%" PRIu32,
                     num_noted == 0 ? "" : ",", number, state->group, state->block,
                     state->num_tokens);
            num_noted++;
        }
    }
    recording_expect(&m->r, num_noted == step->num_states, "states are of known requests");
}

static void *on_build_meta(void *user, const quire_step *step)
{
    sched_model *m = user;
    recording_expect(&m->r, step != NULL, "meta data are built for a step");
    start_note(m, "b(", 0);
    note_states(m, step);
    text_add(&m->calls, ")");
    m->num_calls++;
    return m;
}

static int on_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    sched_model *m = user;
    start_note(m, "f", req);
    text_add(&m->calls, "(");
    sched_add_spans(&m->calls, m, blocks);
    text_add(&m->calls, ")");
    return flag_answer(m, 0);
}

static int on_states_finished(void *user, quire_req req, const quire_block_span *blocks,
                              const quire_state_offer *states, uint32_t num_states)
{
    sched_model *m = user;
    start_note(m, "p", req);
    text_add(&m->calls, "(");
    sched_add_spans(&m->calls, m, blocks);
    text_add(&m->calls, ";");
    for (uint32_t i = 0; i < num_states; i++)
        text_add(&m->calls, "%s%" PRIu32 ".%" PRIu32 ".%" PRIu32, i == 0 ? "" : ",",
                 states[i].group, states[i].block, states[i].num_tokens);
    text_add(&m->calls, ")");
    return flag_answer(m, 0);
}

static int on_pending_frees(void *user)
{
    start_note(user, "h()", 0);
    return flag_answer(user, 0);
}

/* ---- encoder connector ------------------------------------------------------- */

static int on_ensure(void *user, quire_req req, uint32_t num_computed)
{
    sched_model *m = user;
    start_note(m, "e", req);
    text_add(&m->calls, "(%" PRIu32 ")", num_computed);
    return flag_answer(m, 1);
}

static int on_has_item(void *user, quire_req req, uint32_t input)
{
    sched_model *m = user;
    start_note(m, "i(", 0);
    text_add(&m->calls, "%s)", m->requests[sched_number(m, req)].features[input].identifier);
    return flag_answer(m, 0);
}

static void note_input(sched_model *m, const char *letter, quire_req req, uint32_t input)
{
    start_note(m, letter, req);
    text_add(&m->calls, "(%" PRIu32 ")", input);
    m->num_calls++;
}

static void on_input_alloc(void *user, quire_req req, uint32_t input)
{
    note_input(user, "A", req, input);
}

static void on_input_free(void *user, quire_req req, uint32_t input)
{
    note_input(user, "F", req, input);
}

static void *on_encoder_meta(void *user, const quire_step *step)
{
    sched_model *m = user;
    recording_expect(&m->r, step != NULL, "meta data are built for a step");
    start_note(m, "B()", 0);
    m->num_calls++;
    return m;
}

static int on_encoder_finished(void *user, quire_req req)
{
    sched_model *m = user;
    start_note(m, "g", req);
    text_add(&m->calls, "()");
    return flag_answer(m, 0);
}

static uint32_t on_unavailable(void *user, quire_req *reqs, uint32_t capacity)
{
    sched_model *m = user;
    uint32_t n = 0;
    start_note(m, "k()", 0);
    const char *answer = take_answer(m);
    while (answer != NULL && *answer != '\0') {
        char *end;
        recording_expect(&m->r, n < capacity, "requests without encoder outputs fit");
        reqs[n++] = sched_request_at(m, strtoul(answer, &end, 10))->req;
        answer = *end == '.' ? end + 1 : end;
    }
    return n;
}

static int on_reset_cache(void *user)
{
    start_note(user, "c()", 0);
    return flag_answer(user, 0);
}

/* ---- grammar --------------------------------------------------------------- */

static int on_is_ready(void *user, quire_req req)
{
    sched_model *m = user;
    start_note(m, "r", req);
    int is_ready = flag_answer(m, 1);
    sched_tally_add(&m->tally, SCHED_not_ready, is_ready == 0);
    return is_ready;
}

static int on_should_advance(void *user, quire_req req)
{
    start_note(user, "d", req);
    return flag_answer(user, 1);
}

static int on_accept(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    sched_model *m = user;
    start_note(m, "t", req);
    note_tokens(m, tokens, n);
    int accepts = flag_answer(m, 1);
    sched_tally_add(&m->tally, SCHED_rejected, accepts == 0);
    return accepts;
}

static uint32_t on_validate(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    sched_model *m = user;
    start_note(m, "v", req);
    note_tokens(m, tokens, n);
    const char *answer = take_answer(m);
    return answer == NULL ? n : (uint32_t)strtoul(answer, NULL, 10);
}

/* ---- events ---------------------------------------------------------------- */

/* The first bytes of each digest of a hash that may join several. */
static void add_hash(sched_model *m, const void *hash, size_t len)
{
    const unsigned char *bytes = hash;
    size_t size = m->config.cache->digest_bytes;
    recording_expect(&m->r, len > 0 && len % size == 0, "hash is made of whole digests");
    for (size_t at = 0; at < len; at += size) {
        text_add(&m->events, "%s", at == 0 ? "" : "+");
        for (size_t i = 0; i < SHOWN_BYTES; i++)
            text_add(&m->events, "%02x", bytes[at + i]);
    }
}

static void add_hashes(sched_model *m, const quire_event *event)
{
    bool is_first = true;
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        if (event->blocks[i] == QUIRE_NULL_BLOCK && event->kind != QUIRE_EVENT_REPORTED)
            continue;
        text_add(&m->events, "%s", is_first ? "" : ",");
        add_hash(m, (const unsigned char *)event->hashes + (size_t)i * event->hash_bytes,
                 event->hash_bytes);
        is_first = false;
    }
}

static void on_event(void *user, const quire_event *event)
{
    sched_model *m = user;
    text_add(&m->events, "%s", m->events.len == 0 ? "" : " ");
    if (event->kind == QUIRE_EVENT_CLEARED) {
        text_add(&m->events, "C");
        sched_tally_add(&m->tally, SCHED_cleared, 1);
        return;
    }
    if (event->kind == QUIRE_EVENT_REMOVED) {
        text_add(&m->events, "R%" PRIu32 ":", event->group_id);
        add_hashes(m, event);
        sched_tally_add(&m->tally, SCHED_removed, 1);
        return;
    }
    const sched_request *request = event->request;
    recording_expect(&m->r, request >= m->requests && request < m->requests + m->num_requests,
                     "event names its request");
    text_add(&m->events, "S%" PRIu32 ":%td:%" PRIu32 "+%" PRIu32 ":", event->group_id,
             request - m->requests, event->first_block, event->num_blocks);
    add_hashes(m, event);
    text_add(&m->events, "^");
    if (event->parent.data == NULL)
        text_add(&m->events, "-");
    else
        add_hash(m, event->parent.data, event->parent.len);
    text_add(&m->events, "/%" PRIu32, event->block_size);
    sched_tally_add(&m->tally, SCHED_stored, 1);
}

void sched_set_callbacks(sched_model *m, bool has_connector)
{
    static quire_connector connector = QUIRE_CONNECTOR_INIT;
    static quire_grammar grammar = QUIRE_GRAMMAR_INIT;
    connector = (quire_connector){.size = sizeof(quire_connector),
                                  .user = m,
                                  .get_num_new_matched_tokens = on_matched,
                                  .update_state_after_alloc = on_alloc,
                                  .build_meta = on_build_meta,
                                  .request_finished = on_finished,
                                  .reset_cache = on_reset_cache};
    grammar = (quire_grammar){
        .size = sizeof(quire_grammar), m, on_is_ready, on_should_advance, on_accept, on_validate};
    connector.requires_kv_delivery = m->requires_kv_delivery;
    connector.is_kv_consumer = m->is_kv_consumer;
    connector.supports_divergent_local_hybrid_hits = m->diverges;
    connector.has_pending_block_frees = m->asks_pending_frees ? on_pending_frees : NULL;
    connector.takes_states = m->takes_states;
    connector.states_finished = m->takes_states ? on_states_finished : NULL;
    static quire_encoder_connector encoder = QUIRE_ENCODER_CONNECTOR_INIT;
    encoder = (quire_encoder_connector){.size = sizeof(quire_encoder_connector),
                                        .user = m,
                                        .has_item = on_has_item,
                                        .update_state_after_alloc = on_input_alloc,
                                        .build_meta = on_encoder_meta,
                                        .request_finished = on_encoder_finished,
                                        .ensure_cache_available = on_ensure,
                                        .update_state_after_free = on_input_free,
                                        .take_unavailable = on_unavailable};
    m->config.encoder_connector = m->has_encoder_connector ? &encoder : NULL;
    m->config.connector = has_connector ? &connector : NULL;
    m->config.grammar = &grammar;
    m->config.cache->on_event = on_event;
    m->config.cache->event_user = m;
}
