/* parity/parity_offload.c - a connector as vLLM's SimpleCPUOffloadScheduler, see vllm_offload.h.
 *
 * Each seed is one workload as in parity_sched.c, with fewer operations and other reports:
 *
 *      offload 30 1 2 lazy 7 40 ...    a case: CPU blocks, lazy, workers; then as a `sched` line
 *      a3 ...      request 3 arrives        y3 ...  session 3 goes on        y3 -  and ends
 *      s           schedule
 *      u 10 V4,2 E7.1,5.2      update: requests whose loads are there, and store events with the
 *                  number of workers that reported them, in this order
 *      d 20-1      drafts      f 3,5 9     requests end     p 1  pause     z 1 0  reset     q  all
 *      stop REASON vLLM raises, or damages its own state, in what would come next
 *
 * After each operation its answer, the calls of the connector with arguments and answers, loads and
 * stores with their pairs of blocks, and the queues are compared; after every eighth all requests,
 * and of both pools the free queue, all users and the number of keys.
 */
#include "parity/sched_model.h"
#include "parity/vllm_offload.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_CPU_BLOCKS = 512, MAX_EVENTS = 256, STATE_EVERY = 8 };

static const char *const committed[] = {QUIRE_TEST_DATA "/offload.txt"};
static const char *given_path; /* instead of those */
static vllm_offload *offload;

/* What must have been seen in a large recording. */
typedef struct offload_tally {
    uint64_t seeds;
    uint64_t stores;
    uint64_t stored_blocks;
    uint64_t loads;
    uint64_t loaded_blocks;
    uint64_t flushes;
    uint64_t aborted;
    uint64_t stops;
} offload_tally;
static offload_tally tally;

/* ---- the connector, with its calls noted ------------------------------------ */

static int on_matched(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    sched_model *m = user;
    const quire_connector *c = vllm_offload_connector(offload);
    int err = c->get_num_new_matched_tokens(c->user, req, num_local, num_external, is_async);
    recording_expect(&m->r, err == QUIRE_OK && (*is_async != 0) == (*num_external > 0),
                     "hits are loaded later");
    text_add(&m->calls, "%sm%" PRIu32 "(%" PRIu32 ")=%" PRIu32, m->calls.len == 0 ? "" : " ",
             sched_number(m, req), num_local, *num_external);
    return err;
}

static void note_blocks(sched_model *m, char letter, quire_req req, const quire_block_span *blocks)
{
    text_add(&m->calls, "%s%c%" PRIu32 "(", m->calls.len == 0 ? "" : " ", letter,
             sched_number(m, req));
    sched_add_spans(&m->calls, m, blocks);
}

static void on_alloc(void *user, quire_req req, const quire_block_span *blocks,
                     uint32_t num_external)
{
    sched_model *m = user;
    const quire_connector *c = vllm_offload_connector(offload);
    note_blocks(m, 'u', req, blocks);
    text_add(&m->calls, ";%" PRIu32 ")", num_external);
    c->update_state_after_alloc(c->user, req, blocks, num_external);
}

static void *on_build_meta(void *user, const quire_step *step)
{
    (void)user;
    const quire_connector *c = vllm_offload_connector(offload);
    return c->build_meta(c->user, step);
}

static int on_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    sched_model *m = user;
    const quire_connector *c = vllm_offload_connector(offload);
    note_blocks(m, 'f', req, blocks);
    text_add(&m->calls, ")");
    return c->request_finished(c->user, req, blocks);
}

static int on_reset_cache(void *user)
{
    (void)user;
    const quire_connector *c = vllm_offload_connector(offload);
    return c->reset_cache(c->user);
}

static void on_update_output(void *user)
{
    (void)user;
    const quire_connector *c = vllm_offload_connector(offload);
    c->update_output(c->user);
}

/* The scheduler is made first; the offload is there before anything is asked. */
void sched_set_callbacks(sched_model *m, bool has_connector)
{
    static quire_connector connector = QUIRE_CONNECTOR_INIT;
    (void)has_connector;
    connector = (quire_connector){.size = sizeof(quire_connector),
                                  .user = m,
                                  .get_num_new_matched_tokens = on_matched,
                                  .update_state_after_alloc = on_alloc,
                                  .build_meta = on_build_meta,
                                  .request_finished = on_finished,
                                  .reset_cache = on_reset_cache,
                                  .update_output = on_update_output};
    m->config.connector = &connector;
}

void sched_read_answers(sched_model *m)
{
    text_clear(&m->calls);
}

static void start_case(sched_model *m)
{
    uint32_t num_cpu_blocks = recording_u32(&m->r);
    bool is_lazy = recording_u32(&m->r) != 0;
    uint32_t num_workers = recording_u32(&m->r);
    recording_expect(&m->r, num_cpu_blocks <= MAX_CPU_BLOCKS, "CPU blocks fit");
    sched_model_start(m);
    vllm_offload_destroy(offload);
    offload = vllm_offload_create(&m->config, m->sched, num_cpu_blocks, is_lazy, num_workers);
    recording_expect(&m->r, offload != NULL, "the offload is made");
    tally.seeds++;
}

/* ---- steps ------------------------------------------------------------------ */

static void add_pairs(sched_model *m, const quire_block *from, const quire_block *to, uint32_t n)
{
    text_add(&m->r.answer, ":");
    for (uint32_t i = 0; i < n; i++)
        text_add(&m->r.answer, "%s%" PRIu32 ">%" PRIu32, i == 0 ? "" : ",", from[i], to[i]);
}

static void add_event(sched_model *m, const char *name, uint64_t event)
{
    if (event == QUIRE_OFFLOAD_NO_EVENT)
        text_add(&m->r.answer, "|%s=-1", name);
    else
        text_add(&m->r.answer, "|%s=%" PRIu64, name, event);
}

static void add_meta(sched_model *m, const quire_offload_meta *meta)
{
    uint32_t numbers[SCHED_MAX_REQUESTS];
    for (uint32_t i = 0; i < meta->num_load_reqs; i++)
        numbers[i] = sched_number(m, meta->load_reqs[i]);
    add_event(m, "loads", meta->load_event);
    text_add(&m->r.answer, ":");
    text_add_ids(&m->r.answer, numbers, meta->num_load_reqs);
    add_pairs(m, meta->load_cpu, meta->load_gpu, meta->num_loads);
    add_event(m, "stores", meta->store_event);
    add_pairs(m, meta->store_gpu, meta->store_cpu, meta->num_stores);
    text_add(&m->r.answer, "|flush=%d", meta->need_flush != 0);
    tally.stores += meta->num_stores > 0;
    tally.stored_blocks += meta->num_stores;
    tally.loads += meta->num_load_reqs;
    tally.loaded_blocks += meta->num_loads;
    tally.flushes += meta->need_flush != 0;
}

static void schedule(sched_model *m)
{
    const quire_step *step = NULL;
    sched_expect_ok(m, "status of schedule", quire_sched_schedule(m->sched, &step));
    m->num_steps++;
    recording_expect(&m->r, step->num_reqs <= SCHED_MAX_STEP && m->num_flight < SCHED_MAX_FLIGHT,
                     "step fits");
    sched_add_step(m, step);
    add_meta(m, step->connector_meta);
    sched_flight *flight = &m->flight[m->num_flight++];
    flight->step = step->step;
    flight->num_reqs = step->num_reqs;
    if (step->num_reqs > 0)
        memcpy(flight->reqs, step->reqs, step->num_reqs * sizeof step->reqs[0]);
}

typedef struct update_arrays {
    quire_token sampled[SCHED_MAX_STEP * SCHED_STRIDE];
    uint32_t num_sampled[SCHED_MAX_STEP];
    uint8_t has_pooled[SCHED_MAX_STEP];
    quire_req loaded[SCHED_MAX_REQUESTS];
    uint64_t events[MAX_EVENTS];
    uint32_t counts[MAX_EVENTS];
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

static void read_report(sched_model *m, char *word, update_arrays *arrays,
                        quire_offload_report *report)
{
    if (word[0] == 'V') {
        report->num_loaded = read_requests(m, word + 1, arrays->loaded);
        report->loaded = arrays->loaded;
        return;
    }
    recording_expect(&m->r, word[0] == 'E', "option of an update is known");
    char *list = word + 1;
    for (char *one = strsep(&list, ","); one != NULL; one = strsep(&list, ",")) {
        char *end;
        recording_expect(&m->r, report->num_stored < MAX_EVENTS, "events fit");
        arrays->events[report->num_stored] = strtoull(one, &end, 10);
        arrays->counts[report->num_stored++] = (uint32_t)strtoul(end + 1, NULL, 10);
    }
    report->stored_events = arrays->events;
    report->stored_counts = arrays->counts;
}

static void update(sched_model *m)
{
    static update_arrays arrays;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    quire_offload_report report = QUIRE_OFFLOAD_REPORT_INIT;
    const quire_outputs *outputs = NULL;
    recording_expect(&m->r, m->num_flight > 0, "a step is in flight");
    m->updated = m->flight[0];
    m->num_flight--;
    memmove(&m->flight[0], &m->flight[1], m->num_flight * sizeof m->flight[0]);
    read_sampled(m, recording_word(&m->r), &arrays, &output);
    for (char *word = sched_option(m); word != NULL; word = sched_option(m))
        read_report(m, word, &arrays, &report);
    recording_expect(&m->r, vllm_offload_tell(offload, &report), "what is told was on the way");
    vllm_offload_poll(offload, &output);
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

/* ---- the rest --------------------------------------------------------------- */

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
    tally.aborted += num_finished;
}

static void reset(sched_model *m)
{
    uint32_t running = recording_u32(&m->r);
    uint32_t connector = recording_u32(&m->r);
    int status = quire_sched_reset_prefix_cache(m->sched, running, connector);
    recording_expect(&m->r, status >= 0, "reset is no error");
    text_add(&m->r.answer, "|done=%d", status == QUIRE_OK);
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
        sched_expect_ok(m, "status of set_pause",
                        quire_sched_set_pause(m->sched, (quire_pause)recording_u32(&m->r)));
        break;
    case 'z':
        reset(m);
        break;
    default:
        recording_expect(&m->r, word[0] == 'q', "operation is known");
    }
}

static void add_pool(sched_model *m, const char *name, const quire_pool *pool)
{
    static quire_block blocks[MAX_CPU_BLOCKS];
    uint32_t num_blocks = (uint32_t)quire_pool_get_usage(pool).total;
    uint32_t count = quire_pool_get_all_free_blocks(pool, blocks, MAX_CPU_BLOCKS);
    bool is_first = true;
    text_add(&m->r.answer, "|%s=", name);
    text_add_ids(&m->r.answer, blocks, count);
    text_add(&m->r.answer, "/");
    for (quire_block block = 1; block < num_blocks; block++) {
        quire_block_info info;
        sched_expect_ok(m, "status of block_info", quire_pool_get_block(pool, block, &info));
        if (info.ref_cnt == 0)
            continue;
        text_add(&m->r.answer, "%s%" PRIu32 ".%" PRIu32, is_first ? "" : ",", block, info.ref_cnt);
        is_first = false;
    }
    text_add(&m->r.answer, "/%" PRIu32, quire_pool_get_counts(pool).num_keys);
}

static void add_state(sched_model *m, bool is_last)
{
    const quire_pool *cpu = quire_cache_get_pool(vllm_offload_cache(offload));
    sched_add_state(m, is_last);
    text_add(&m->r.answer, "|pending=%d.%" PRIu32, vllm_offload_has_pending(offload),
             quire_pool_get_num_free_blocks(cpu));
    if (!is_last && m->num_operations % STATE_EVERY != 0)
        return;
    add_pool(m, "gpu", quire_cache_get_pool(quire_sched_get_cache(m->sched)));
    add_pool(m, "cpu", cpu);
    sched_expect_ok(m, "status of check", quire_cache_check(vllm_offload_cache(offload)));
}

static void run_operation(sched_model *m, const char *word)
{
    char op = word[0];
    sched_read_answers(m);
    text_add(&m->r.answer, "%c", op);
    operate(m, word);
    add_state(m, op == 'q');
    sched_check_answer(m);
}

static void run_line(sched_model *m)
{
    const char *word = recording_word(&m->r);
    if (strcmp(word, "offload") == 0)
        start_case(m);
    else if (strcmp(word, "end") == 0)
        recording_check_case(&m->r);
    else if (strcmp(word, "stop") == 0)
        tally.stops++;
    else
        run_operation(m, word);
}

static void replay(sched_model *m, const char *path)
{
    recording_open(&m->r, path, "offload");
    while (recording_next(&m->r))
        run_line(m);
    recording_close(&m->r);
}

/* Workloads are random: a large recording in which nothing is loaded compares little. */
static bool is_complete(void)
{
    print_message("parity_offload: %" PRIu64 " seeds, %" PRIu64 " store events of %" PRIu64
                  " blocks, %" PRIu64 " loads of %" PRIu64 " blocks, %" PRIu64 " flushes, %" PRIu64
                  " aborted, %" PRIu64 " ended before vLLM raised\n",
                  tally.seeds, tally.stores, tally.stored_blocks, tally.loads, tally.loaded_blocks,
                  tally.flushes, tally.aborted, tally.stops);
    return tally.seeds < 100 ||
           (tally.stores > 10 * tally.seeds && tally.loads > tally.seeds &&
            tally.flushes > tally.seeds / 4 && tally.aborted > 0 && tally.stops < tally.seeds / 4);
}

static void offload_answers_as_vllm(void **state)
{
    (void)state;
    static sched_model m;
    if (given_path != NULL)
        replay(&m, given_path);
    for (size_t i = 0; given_path == NULL && i < sizeof committed / sizeof committed[0]; i++)
        replay(&m, committed[i]);
    vllm_offload_destroy(offload);
    sched_model_free(&m);
    assert_true(is_complete());
}

int main(int argc, char **argv)
{
    given_path = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(offload_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_offload", tests, NULL, NULL);
}
