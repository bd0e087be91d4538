/* parity/parity_sched.c - Quire's scheduler against vLLM's Scheduler and AsyncScheduler.
 *
 * Each seed is one workload of an engine that draws what a model would say.
 *
 *      sched async 7 40 96 ... F4 W4w12     a case: its mix, its seed, and the config in the order
 *                                           of sched_mixes.py, then options of 0.32 (small
 *                                           letters), then the groups of the cache
 *      a3 ...      request 3 arrives        y3 ...  session 3 goes on        y3 -  and ends
 *                                                   (sched_requests.c has the words)
 *      s           schedule        s t      the same, with throttle_prefills (0.32)
 *      u 10P2 I0011 X3,5 V4 B17    update with the oldest step that waits: for each of its requests
 *                  how many tokens it sampled, or P: it is pooled. I: invalid drafts of each; X, V:
 *                  requests that were sent and received; B: blocks whose loads failed
 *      d 20-1      drafts for the requests of the step that was updated last; -: none for this one
 *      f 3,5 9     requests end with this status; f * 9: all
 *      p 1         pause state     z 1 0    reset_prefix_cache; with running ones, with connector
 *      w           reset_encoder_cache      q        everything is compared
 *      stop REASON vLLM raises, or damages its own state, in what would come next
 *
 * Sampled tokens and drafts are drawn from the seed, the step and the place in it.
 *
 * After each operation its answer, the calls of connector and grammar with their arguments, the
 * events of the cache and all queues are compared, after every eighth all requests with their
 * tokens and blocks, and at the end the queue of free blocks.
 */
#include "parity/sched_model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGE_RECORDING = 500, WALK_EVERY = 4 };

static const char *const committed[] = {
    QUIRE_TEST_DATA "/sched1.txt", QUIRE_TEST_DATA "/sched2.txt", QUIRE_TEST_DATA "/sched3.txt",
    QUIRE_TEST_DATA "/sched4.txt", QUIRE_TEST_DATA "/sched5.txt"};
static const char *given_path; /* instead of those */

/* ---- steps ----------------------------------------------------------------- */

static void schedule(sched_model *m)
{
    const quire_step *step = NULL;
    bool throttles = sched_option(m) != NULL;
    if (m->r.profile == QUIRE_PROFILE_VLLM_0_32)
        sched_expect_ok(m, "status of set_throttle", quire_sched_set_throttle(m->sched, throttles));
    sched_expect_ok(m, "status of schedule", quire_sched_schedule(m->sched, &step));
    m->num_steps++;
    recording_expect(&m->r, step->step == m->num_steps, "steps are numbered from 1 on");
    recording_expect(&m->r, step->num_reqs <= SCHED_MAX_STEP && m->num_flight < SCHED_MAX_FLIGHT,
                     "step fits");
    recording_expect(&m->r,
                     step->connector_meta == (m->config.connector == NULL ? NULL : (void *)m),
                     "step has the connector's data");
    sched_add_step(m, step);
    sched_flight *flight = &m->flight[m->num_flight++];
    flight->step = step->step;
    flight->num_reqs = step->num_reqs;
    if (step->num_reqs > 0)
        memcpy(flight->reqs, step->reqs, step->num_reqs * sizeof step->reqs[0]);
}

/* The arrays of one update. */
typedef struct update_arrays {
    quire_token sampled[SCHED_MAX_STEP * SCHED_STRIDE];
    uint32_t num_sampled[SCHED_MAX_STEP];
    uint8_t has_pooled[SCHED_MAX_STEP];
    uint32_t num_invalid[SCHED_MAX_STEP];
    quire_req sent[SCHED_MAX_REQUESTS];
    quire_req received[SCHED_MAX_REQUESTS];
    quire_req lost[SCHED_MAX_REQUESTS];
    quire_block invalid_blocks[SCHED_MAX_BLOCKS];
} update_arrays;

static void read_sampled(sched_model *m, const char *counts, update_arrays *arrays,
                         quire_model_output *output)
{
    const sched_flight *flight = &m->updated;
    recording_expect(&m->r,
                     (flight->num_reqs == 0 && strcmp(counts, "-") == 0) ||
                         strlen(counts) == flight->num_reqs,
                     "step has as many requests as the recording's");
    for (uint32_t i = 0; i < flight->num_reqs; i++) {
        bool is_pooled = counts[i] == 'P';
        arrays->has_pooled[i] = is_pooled;
        arrays->num_sampled[i] = is_pooled ? 0 : (uint32_t)(counts[i] - '0');
        if (is_pooled)
            output->has_pooled = arrays->has_pooled;
        sched_tally_add(&m->tally, SCHED_pooled, is_pooled);
        for (uint32_t k = 0; k < arrays->num_sampled[i]; k++)
            arrays->sampled[i * SCHED_STRIDE + k] =
                (quire_token)(sched_draw(m, SCHED_SAMPLED, flight->step, i * 16 + k) % m->alphabet);
    }
    output->sampled = arrays->sampled;
    output->stride = SCHED_STRIDE;
    output->num_sampled = arrays->num_sampled;
}

static uint32_t read_requests(sched_model *m, char *word, quire_req *reqs)
{
    uint32_t count = 0;
    for (char *number = strsep(&word, ","); number != NULL; number = strsep(&word, ",")) {
        recording_expect(&m->r, count < SCHED_MAX_REQUESTS, "requests fit");
        reqs[count++] = sched_request_at(m, strtoul(number, NULL, 10))->req;
    }
    return count;
}

static void read_transfer(sched_model *m, char *word, update_arrays *arrays,
                          quire_model_output *output)
{
    if (word[0] == 'I') {
        for (uint32_t i = 0; i < m->updated.num_reqs; i++)
            arrays->num_invalid[i] = (uint32_t)(word[1 + i] - '0');
        output->num_invalid_drafts = arrays->num_invalid;
    } else if (word[0] == 'X') {
        output->num_finished_sending = read_requests(m, word + 1, arrays->sent);
        output->finished_sending = arrays->sent;
        sched_tally_add(&m->tally, SCHED_sent, output->num_finished_sending);
    } else if (word[0] == 'V') {
        output->num_finished_recving = read_requests(m, word + 1, arrays->received);
        output->finished_recving = arrays->received;
        sched_tally_add(&m->tally, SCHED_received, output->num_finished_recving);
    } else if (word[0] == 'E') {
        output->num_failed_recving = read_requests(m, word + 1, arrays->lost);
        output->failed_recving = arrays->lost;
    } else {
        recording_expect(&m->r, word[0] == 'B', "option of an update is known");
        char *list = word + 1;
        for (char *id = strsep(&list, ","); id != NULL; id = strsep(&list, ","))
            arrays->invalid_blocks[output->num_invalid_blocks++] =
                (quire_block)strtoul(id, NULL, 10);
        output->invalid_blocks = arrays->invalid_blocks;
        sched_tally_add(&m->tally, SCHED_failed, 1);
    }
}

static void update(sched_model *m)
{
    static update_arrays arrays;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    const quire_outputs *outputs = NULL;
    recording_expect(&m->r, m->num_flight > 0, "a step is in flight");
    m->updated = m->flight[0];
    m->num_flight--;
    memmove(&m->flight[0], &m->flight[1], m->num_flight * sizeof m->flight[0]);
    read_sampled(m, recording_word(&m->r), &arrays, &output);
    for (char *word = sched_option(m); word != NULL; word = sched_option(m))
        read_transfer(m, word, &arrays, &output);
    sched_expect_ok(m, "status of update",
                    quire_sched_update(m->sched, m->updated.step, &output, &outputs));
    sched_add_outputs(m, outputs);
}

static void update_drafts(sched_model *m)
{
    quire_req reqs[SCHED_MAX_STEP];
    quire_token drafts[SCHED_MAX_STEP * SCHED_STRIDE] = {0};
    uint32_t num_drafts[SCHED_MAX_STEP];
    uint32_t count = 0;
    const sched_flight *flight = &m->updated;
    const char *counts = recording_word(&m->r);
    recording_expect(&m->r, strlen(counts) == flight->num_reqs, "drafts are for this step");
    for (uint32_t i = 0; i < flight->num_reqs; i++) {
        if (counts[i] == '-')
            continue;
        reqs[count] = flight->reqs[i];
        num_drafts[count] = (uint32_t)(counts[i] - '0');
        for (uint32_t k = 0; k < num_drafts[count]; k++)
            drafts[count * SCHED_STRIDE + k] =
                (quire_token)(sched_draw(m, SCHED_DRAFT, flight->step, i * 16 + k) % m->alphabet);
        count++;
    }
    sched_expect_ok(
        m, "status of update_drafts",
        quire_sched_update_drafts(m->sched, reqs, count, drafts, SCHED_STRIDE, num_drafts));
}

/* ---- the rest -------------------------------------------------------------- */

static void finish(sched_model *m)
{
    quire_req reqs[SCHED_MAX_REQUESTS];
    uint32_t num_finished = 0;
    char *list = recording_word(&m->r);
    bool is_all = strcmp(list, "*") == 0;
    uint32_t count = is_all ? 0 : read_requests(m, list, reqs);
    quire_req_status status = (quire_req_status)recording_u32(&m->r);
    sched_expect_ok(m, "status of finish",
                    is_all ? quire_sched_finish_all(m->sched, status, &num_finished)
                           : quire_sched_finish(m->sched, reqs, count, status, &num_finished));
    text_add(&m->r.answer, "|ended=%" PRIu32, num_finished);
    sched_tally_add(&m->tally, SCHED_aborted, num_finished);
    sched_tally_add(&m->tally, SCHED_abort_all, is_all && num_finished > 0);
}

static void reset(sched_model *m)
{
    uint32_t running = recording_u32(&m->r);
    uint32_t connector = recording_u32(&m->r);
    int status = quire_sched_reset_prefix_cache(m->sched, running, connector);
    recording_expect(&m->r, status >= 0, "reset is no error");
    text_add(&m->r.answer, "|done=%d", status == QUIRE_OK);
    sched_tally_add(&m->tally, status == QUIRE_OK ? SCHED_reset : SCHED_busy, 1);
    sched_tally_add(&m->tally, SCHED_forced, running);
}

static void set_pause(sched_model *m)
{
    quire_pause state = (quire_pause)recording_u32(&m->r);
    sched_expect_ok(m, "status of set_pause", quire_sched_set_pause(m->sched, state));
    recording_expect(&m->r, quire_sched_get_counts(m->sched).pause == state, "pause state is kept");
    sched_tally_add(&m->tally, SCHED_pause, 1);
}

static void operate(sched_model *m, const char *word)
{
    switch (word[0]) {
    case 'a':
        sched_add(m, word);
        break;
    case 'y':
        sched_continue(m, word);
        break;
    case 's':
        schedule(m);
        break;
    case 'u':
        update(m);
        break;
    case 'd':
        update_drafts(m);
        break;
    case 'f':
        finish(m);
        break;
    case 'p':
        set_pause(m);
        break;
    case 'z':
        reset(m);
        break;
    case 'w':
        sched_expect_ok(m, "status of reset_encoder_cache",
                        quire_sched_reset_encoder_cache(m->sched));
        sched_tally_add(&m->tally, SCHED_encreset, 1);
        break;
    default:
        recording_expect(&m->r, word[0] == 'q', "operation is known");
    }
}

static void run_operation(sched_model *m, const char *word)
{
    char op = word[0];
    sched_read_answers(m);
    text_clear(&m->events);
    text_add(&m->r.answer, "%c", op);
    operate(m, word);
    sched_add_state(m, op == 'q');
    sched_check_answer(m);
    if (m->num_operations % WALK_EVERY == 0)
        sched_expect_ok(m, "status of check", quire_sched_check(m->sched));
}

static void end_case(sched_model *m)
{
    recording_check_case(&m->r);
    sched_expect_ok(m, "status of check", quire_sched_check(m->sched));
}

static void run_line(sched_model *m)
{
    const char *word = recording_word(&m->r);
    if (strcmp(word, "sched") == 0)
        sched_model_start(m);
    else if (strcmp(word, "end") == 0)
        end_case(m);
    else if (strcmp(word, "stop") == 0)
        sched_tally_add(&m->tally, SCHED_stop, 1);
    else
        run_operation(m, word);
}

/* Replays one recording; returns how many seeds it has. */
static uint64_t replay(sched_model *m, const char *path)
{
    recording_open(&m->r, path, "sched");
    m->tally.counts_common |= m->r.profile != QUIRE_PROFILE_VLLM_0_32;
    while (recording_next(&m->r))
        run_line(m);
    uint64_t runs = m->r.runs;
    recording_close(&m->r);
    return runs;
}

static void scheduler_answers_as_vllm(void **state)
{
    (void)state;
    static sched_model m;
    uint64_t runs = 0;
    memset(&m, 0, sizeof m);
    if (given_path != NULL)
        runs = replay(&m, given_path);
    for (size_t i = 0; given_path == NULL && i < sizeof committed / sizeof committed[0]; i++)
        runs += replay(&m, committed[i]);
    sched_tally_print(&m.tally);
    sched_model_free(&m);
    assert_true(sched_tally_is_complete(&m.tally) || runs < LARGE_RECORDING);
}

int main(int argc, char **argv)
{
    given_path = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(scheduler_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_sched", tests, NULL, NULL);
}
