/* cli/verify/test_verify.c - a quire_sched is recorded at random and repeated: no difference; each
 * number of the recording that is changed is one. */
#include "base/unit.h"

#include <quire.h>
#include <quire/record.h>

#include "output/failure.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

enum { BLOCK = 4, MAX_LIVE = 64, NUM_STEPS = 400, FAMILIES = 5 };

#define CONFIG                                                                                     \
    "{\"profile\": \"%s\", \"policy\": \"%s\", \"num_blocks\": 60, \"max_model_len\": 120, "       \
    "\"max_num_seqs\": 6, \"max_num_batched_tokens\": 40, \"hash_block_size\": 4, "                \
    "\"enable_caching\": true, \"async_scheduling\": %s, \"max_batches\": 2, \"max_requests\": "   \
    "64, \"groups\": [{\"kind\": 1, \"block_size\": 4, \"num_kv_heads\": 1, \"head_size\": 1, "    \
    "\"dtype\": 2}]}"

typedef struct world {
    quire_hasher *hasher;
    quire_sched *sched;
    quire_recorder *recorder;
    quire_req reqs[MAX_LIVE]; /* 0: none */
    uint32_t numbers[MAX_LIVE];
    uint32_t num_prompts[MAX_LIVE];
    uint32_t stops[MAX_LIVE]; /* output tokens */
    uint64_t seed;
    uint32_t num_added;
    quire_token text[256];
} world;

static uint32_t draw(world *w, uint32_t below)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(w->seed >> 33) % below;
}

static void open_world(world *w, quire_profile profile, quire_policy policy, bool is_async,
                       const char *path)
{
    char text[1024];
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
    quire_recorder_config recorder = QUIRE_RECORDER_CONFIG_INIT;
    quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                         .block_size = BLOCK,
                                         .num_kv_heads = 1,
                                         .head_size = 1,
                                         .dtype = QUIRE_DTYPE_BFLOAT16}};
    memset(w, 0, sizeof *w);
    w->seed = 11 + (uint64_t)profile + 3 * (uint64_t)policy + 7 * is_async;
    hasher.algo = QUIRE_HASH_SHA256;
    hasher.block_size = BLOCK;
    hasher.profile = profile;
    assert_int_equal(quire_hasher_create(&hasher, NULL, &w->hasher), QUIRE_OK);
    cache.groups = &group;
    cache.num_groups = 1;
    cache.num_blocks = 60;
    cache.max_model_len = 120;
    cache.hash_block_size = BLOCK;
    cache.profile = config.profile = profile;
    config.cache = &cache;
    config.hasher = w->hasher;
    config.policy = policy;
    config.max_num_seqs = 6;
    config.max_num_batched_tokens = 40;
    config.async_scheduling = is_async ? QUIRE_ON : QUIRE_OFF;
    config.max_batches = 2;
    config.max_requests = MAX_LIVE;
    assert_int_equal(quire_sched_create(&config, NULL, &w->sched), QUIRE_OK);
    static const char *const profiles[] = {"default", "vllm-0.20", "vllm-0.32"};
    (void)snprintf(text, sizeof text, CONFIG, profiles[profile],
                   policy == QUIRE_POLICY_PRIORITY ? "priority" : "fcfs",
                   is_async ? "true" : "false");
    recorder.path = path;
    recorder.config = text;
    assert_int_equal(quire_recorder_create(&recorder, &w->recorder), QUIRE_OK);
}

static void close_world(world *w)
{
    quire_recorder_destroy(w->recorder);
    quire_sched_destroy(w->sched);
    quire_hasher_destroy(w->hasher);
}

/* Token `place` of a family: prompts and outputs of one family begin with the same tokens. */
static quire_token family_token(uint32_t family, uint32_t place)
{
    return (quire_token)(100 + family * 1000 + place);
}

static void add_one(world *w)
{
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    quire_recorded_request recorded = QUIRE_RECORDED_REQUEST_INIT;
    const void *hashes;
    uint32_t num_hashes;
    char id[16];
    uint32_t slot = 0;
    while (slot < MAX_LIVE && w->reqs[slot] != 0)
        slot++;
    if (slot == MAX_LIVE)
        return;
    uint32_t family = draw(w, FAMILIES);
    uint32_t num_prompt = 3 + draw(w, 50);
    for (uint32_t i = 0; i < num_prompt; i++)
        w->text[i] = family_token(family, i);
    (void)snprintf(id, sizeof id, "%08u", ++w->num_added);
    p.id = (quire_bytes){id, strlen(id)};
    p.prompt = w->text;
    p.num_prompt_tokens = num_prompt;
    p.max_tokens = 1 + draw(w, 40);
    p.has_eos = draw(w, 2);
    p.eos_token_id = 7;
    p.priority = (int32_t)draw(w, 3);
    p.arrival_time = w->num_added;
    p.user = (void *)(uintptr_t)slot;
    assert_int_equal(quire_sched_add(w->sched, &p, &w->reqs[slot]), QUIRE_OK);
    assert_int_equal(
        quire_sched_get_hashes(w->sched, w->reqs[slot], UINT32_MAX, &hashes, &num_hashes),
        QUIRE_OK);
    recorded.arrival_time = p.arrival_time;
    recorded.num_prompt_tokens = num_prompt;
    recorded.max_tokens = p.max_tokens;
    recorded.has_eos = p.has_eos;
    recorded.priority = p.priority;
    recorded.hashes = hashes;
    recorded.num_hashes = num_hashes;
    recorded.hash_bytes = 32;
    assert_int_equal(quire_recorder_add(w->recorder, &recorded, &w->numbers[slot]), QUIRE_OK);
    w->num_prompts[slot] = num_prompt;
    w->stops[slot] = p.has_eos != 0 ? 1 + draw(w, 40) : UINT32_MAX;
}

static uint32_t slot_of(const world *w, quire_req req)
{
    return (uint32_t)(uintptr_t)quire_sched_get_user(w->sched, req);
}

typedef struct flight {
    uint64_t step;
    uint64_t recorded;
    uint32_t slots[8];
    quire_req reqs[8];
    uint32_t samples[8]; /* whether the request samples a token */
    uint32_t num_reqs;
} flight;

static void schedule(world *w, flight *f)
{
    const quire_step *step;
    quire_recorded_step recorded = QUIRE_RECORDED_STEP_INIT;
    quire_recorded_pair news[8];
    quire_recorded_pair resumed[8];
    uint32_t numbers[8];
    uint32_t preempted[8];
    assert_int_equal(quire_sched_schedule(w->sched, &step), QUIRE_OK);
    f->step = step->step;
    f->num_reqs = step->num_reqs;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t slot = f->slots[i] = slot_of(w, step->reqs[i]);
        const quire_recorded_pair hit = {w->numbers[slot], step->num_computed_tokens[i]};
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        f->reqs[i] = step->reqs[i];
        assert_int_equal(quire_sched_get_req_info(w->sched, step->reqs[i], &info), QUIRE_OK);
        f->samples[i] = step->num_computed_tokens[i] + step->num_tokens[i] >= info.num_tokens;
        numbers[i] = w->numbers[slot];
        if (step->kinds[i] == QUIRE_STEP_NEW)
            news[recorded.num_new++] = hit;
        else if (step->kinds[i] == QUIRE_STEP_RESUMED)
            resumed[recorded.num_resumed++] = hit;
    }
    for (uint32_t i = 0; i < step->num_preempted; i++)
        preempted[i] = w->numbers[slot_of(w, step->preempted[i])];
    quire_sched_counts counts = quire_sched_get_counts(w->sched);
    quire_usage usage = quire_sched_get_usage(w->sched);
    recorded.reqs = numbers;
    recorded.num_reqs = step->num_reqs;
    recorded.num_tokens = step->num_tokens;
    recorded.new_reqs = news;
    recorded.resumed = resumed;
    recorded.preempted = preempted;
    recorded.num_preempted = step->num_preempted;
    recorded.num_running = counts.num_running;
    recorded.num_waiting = counts.num_waiting;
    recorded.num_free_blocks = (uint32_t)(usage.empty + usage.cached);
    assert_int_equal(quire_recorder_schedule(w->recorder, &recorded, &f->recorded), QUIRE_OK);
}

static quire_recorded_reason reason_of(quire_finish_reason reason)
{
    return reason == QUIRE_FINISH_STOP     ? QUIRE_RECORDED_STOP
           : reason == QUIRE_FINISH_LENGTH ? QUIRE_RECORDED_LENGTH
                                           : QUIRE_RECORDED_ABORT;
}

/* The hashes of its text, made anew: the request is gone. */
static void record_end(world *w, uint32_t slot, quire_recorded_reason reason, uint32_t num_output,
                       const quire_token *text)
{
    unsigned char hashes[64 * 32];
    size_t count = 0;
    quire_chain *chain = malloc(quire_chain_bytes(w->hasher));
    uint32_t num_tokens = w->num_prompts[slot] + num_output;
    uint32_t first = w->num_prompts[slot] / BLOCK;
    assert_int_equal(quire_chain_init(w->hasher, chain, quire_chain_bytes(w->hasher), &chain),
                     QUIRE_OK);
    assert_int_equal(
        quire_chain_append(w->hasher, chain, text, num_tokens, NULL, hashes, 64, &count), QUIRE_OK);
    assert_int_equal(quire_recorder_end(w->recorder, w->numbers[slot], reason, num_output,
                                        hashes + first * 32, (uint32_t)count - first, 32),
                     QUIRE_OK);
    free(chain);
    w->reqs[slot] = 0;
}

static void update(world *w, const flight *f)
{
    static quire_token texts[MAX_LIVE][256];
    static uint32_t lengths[MAX_LIVE];
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    const quire_outputs *outputs;
    quire_token tokens[8];
    for (uint32_t i = 0; i < f->num_reqs; i++) {
        uint32_t slot = f->slots[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        tokens[i] = 9;
        if (w->reqs[slot] != f->reqs[i] ||
            quire_sched_get_req_info(w->sched, f->reqs[i], &info) != QUIRE_OK)
            continue;
        uint32_t place = info.num_tokens - w->num_prompts[slot];
        assert_int_equal(
            quire_sched_get_tokens(w->sched, f->reqs[i], 0, info.num_tokens, texts[slot]),
            QUIRE_OK);
        tokens[i] = place + 1 == w->stops[slot]
                        ? 7
                        : family_token((uint32_t)(texts[slot][0] - 100) / 1000, info.num_tokens);
        texts[slot][info.num_tokens] = tokens[i];
        lengths[slot] = place + f->samples[i];
    }
    assert_int_equal(quire_recorder_update(w->recorder, f->recorded, f->samples, f->num_reqs),
                     QUIRE_OK);
    output.sampled = tokens;
    output.num_sampled = f->samples;
    assert_int_equal(quire_sched_update(w->sched, f->step, &output, &outputs), QUIRE_OK);
    for (uint32_t i = 0; i < outputs->num_outputs; i++) {
        const quire_output *out = &outputs->outputs[i];
        uint32_t slot = (uint32_t)(uintptr_t)out->user;
        if (out->finish_reason != QUIRE_FINISH_NONE)
            record_end(w, slot, reason_of(out->finish_reason), lengths[slot], texts[slot]);
    }
}

static void abort_at(world *w, uint32_t slot)
{
    static quire_token text[256];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (w->reqs[slot] == 0)
        return;
    assert_int_equal(quire_sched_get_req_info(w->sched, w->reqs[slot], &info), QUIRE_OK);
    assert_int_equal(quire_sched_get_tokens(w->sched, w->reqs[slot], 0, info.num_tokens, text),
                     QUIRE_OK);
    assert_int_equal(
        quire_sched_finish(w->sched, &w->reqs[slot], 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
        QUIRE_OK);
    assert_int_equal(quire_recorder_finish(w->recorder, &w->numbers[slot], 1, QUIRE_RECORDED_ABORT),
                     QUIRE_OK);
    record_end(w, slot, QUIRE_RECORDED_ABORT, info.num_tokens - w->num_prompts[slot], text);
}

static void abort_all(world *w)
{
    for (uint32_t slot = 0; slot < MAX_LIVE; slot++)
        abort_at(w, slot);
}

static void reset_one(world *w)
{
    bool done = quire_sched_reset_prefix_cache(w->sched, 0, 0) == QUIRE_OK;
    assert_int_equal(quire_recorder_reset(w->recorder, done ? QUIRE_RECORDED_RESET_DONE : 0),
                     QUIRE_OK);
}

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void record_run(quire_profile profile, quire_policy policy, bool is_async)
{
    world w;
    flight flights[2];
    uint32_t num_flights = 0;
    open_world(&w, profile, policy, is_async, path_of("v"));
    for (int i = 0; i < NUM_STEPS; i++) {
        if (draw(&w, 3) == 0)
            add_one(&w);
        if (draw(&w, 40) == 0)
            abort_at(&w, draw(&w, MAX_LIVE));
        if (draw(&w, 50) == 0)
            reset_one(&w);
        if (i == 200)
            assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_PAUSED_NEW) |
                                 quire_recorder_set_pause(w.recorder, 1),
                             QUIRE_OK);
        if (i == 210)
            assert_int_equal(quire_sched_set_pause(w.sched, QUIRE_UNPAUSED) |
                                 quire_recorder_set_pause(w.recorder, 0),
                             QUIRE_OK);
        schedule(&w, &flights[num_flights++]);
        if (num_flights == (is_async ? 2 : 1)) {
            update(&w, &flights[0]);
            flights[0] = flights[1];
            num_flights--;
        }
    }
    abort_all(&w); /* what a request generated is known when it has ended */
    close_world(&w);
}

/* The lines of the recording as one text; freed by the caller. */
static char *read_lines(void)
{
    FILE *file = fopen(path_of("v.0000.jsonl.zst"), "rb");
    static char packed[4 << 20];
    char *text = malloc(16 << 20);
    assert_non_null(file);
    size_t len = fread(packed, 1, sizeof packed, file);
    (void)fclose(file);
    len = ZSTD_decompress(text, (16 << 20) - 1, packed, len);
    assert_false(ZSTD_isError(len));
    text[len] = 0;
    return text;
}

static int verify_text(const char *text, verify_result *result)
{
    FILE *file = fopen(path_of("changed.jsonl"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    (void)fclose(file);
    int status = verify_recording(path_of("changed.jsonl"), result);
    assert_int_equal(unlink(path_of("changed.jsonl")), 0);
    return status;
}

/* The text with `to` in the place of the n-th `from`; freed by the caller. */
static char *change(const char *text, const char *from, const char *to, int n)
{
    const char *at = strstr(text, from);
    for (; n > 1 && at != NULL; n--)
        at = strstr(at + 1, from);
    if (at == NULL)
        fail_msg("no %s", from);
    char *made = malloc(strlen(text) + strlen(to) + 1);
    size_t head = (size_t)(at - text);
    memcpy(made, text, head);
    memcpy(made + head, to, strlen(to));
    memcpy(made + head + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    return made;
}

static void expect_difference(const char *text, const char *from, const char *to, int n,
                              const char *sentence)
{
    verify_result result;
    char *changed = change(text, from, to, n);
    if (verify_text(changed, &result) != 0)
        fail_msg("%s -> %s: %s", from, to, failure());
    if (!result.differs || strstr(result.sentence, sentence) == NULL)
        fail_msg("%s -> %s: \"%s\" does not contain \"%s\"", from, to, result.sentence, sentence);
    free(changed);
}

static void expect_refusal(const char *text, const char *from, const char *to, const char *sentence)
{
    verify_result result;
    char *changed = change(text, from, to, 1);
    assert_int_equal(verify_text(changed, &result), -1);
    if (strstr(failure(), sentence) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", failure(), sentence);
    free(changed);
}

static void all_decisions_are_repeated(void **state)
{
    uint64_t num_preempted = 0;
    (void)state;
    for (int profile = 0; profile < 3; profile++)
        for (int policy = 0; policy < 2; policy++)
            for (int is_async = 0; is_async < 2; is_async++) {
                verify_result r;
                record_run((quire_profile)profile, (quire_policy)policy, is_async != 0);
                if (verify_recording(path_of("v.0000.jsonl.zst"), &r) != 0)
                    fail_msg("%s", failure());
                if (r.differs)
                    fail_msg("profile %d, policy %d, async %d: %s", profile, policy, is_async,
                             r.sentence);
                assert_int_equal(r.num_steps, NUM_STEPS);
                assert_true(r.num_requests > 90 && r.num_ended > 50);
                assert_true(r.num_hit_tokens > 300);
                num_preempted += r.num_preempted;
                assert_int_equal(unlink(path_of("v.0000.jsonl.zst")), 0);
            }
    assert_true(num_preempted > 50);
}

static void a_changed_number_is_a_difference(void **state)
{
    (void)state;
    record_run(QUIRE_PROFILE_VLLM_0_32, QUIRE_POLICY_FCFS, false);
    char *text = read_lines();
    verify_result r;
    if (verify_text(text, &r) != 0)
        fail_msg("%s", failure());
    if (r.differs)
        fail_msg("%s", r.sentence);
    expect_difference(text, "\"num_blocks\": 60", "\"num_blocks\": 50", 1, "free blocks in the");
    expect_difference(text, "\"max_num_seqs\": 6", "\"max_num_seqs\": 3", 1, "in the recording");
    expect_difference(text, "\"waiting\": 0", "\"waiting\": 9", 3, "9 waiting requests in the");
    expect_difference(text, "\"running\": 1", "\"running\": 3", 1, "running requests in the");
    expect_difference(text, "\"reqs\": [1]", "\"reqs\": [2]", 1, "in place 1 in the recording");
    expect_difference(text, "\"hashes\": \"", "\"hashes\": \"0000000000000000", 3, "");
    expect_difference(text, "\"type\": \"end\"", "\"type\": \"lend\"", 2,
                      "ends in the repetition; in the recording it continues");
    expect_difference(text, "\"preempted\": [", "\"preempted\": [99, ", 1, "preempted requests");
    expect_difference(text, "\"sampled\": [1", "\"sampled\": [0", 2, "");
    free(text);
    assert_int_equal(unlink(path_of("v.0000.jsonl.zst")), 0);
}

static void what_cannot_be_repeated_is_refused(void **state)
{
    (void)state;
    record_run(QUIRE_PROFILE_VLLM_0_20, QUIRE_POLICY_FCFS, false);
    char *text = read_lines();
    verify_result r;
    assert_int_equal(verify_recording(path_of("nothing"), &r), -1);
    assert_int_equal(verify_text("{\"type\": \"request\"}\n", &r), -1);
    assert_non_null(strstr(failure(), "is not a recording"));
    expect_refusal(text, "\"part\": 0", "\"part\": 1", "is part 1 of a recording; give part 0");
    expect_refusal(text, "\"config\": {", "\"inexact\": \"a reason\", \"config\": {",
                   "the decisions cannot be repeated: a reason");
    expect_refusal(text, "\"config\": {", "\"other\": {", "field \"config\" is missing");
    expect_refusal(text, "vllm-0.20", "vllm-9", "field \"profile\": unknown value \"vllm-9\"");
    expect_refusal(text, "\"num_blocks\": 60", "\"num_blocks\": \"x\"",
                   "field \"num_blocks\" is not a number of 32 bits");
    expect_refusal(text, "\"num_blocks\": 60", "\"num_blocks\": 0", "invalid num_blocks 0");
    expect_refusal(text, "\"groups\": [", "\"sets\": [", "field \"groups\" is not a list");
    expect_refusal(text, "\"max_tokens\"", "\"grammar\": true, \"max_tokens\"",
                   "a request has structured output: the decisions cannot be repeated");
    expect_refusal(text, "\"max_tokens\"", "\"pooling\": true, \"max_tokens\"", "pooling");
    expect_refusal(text, "\"max_tokens\"", "\"resumable\": true, \"max_tokens\"", "session");
    expect_refusal(text, "\"max_tokens\"", "\"mm\": [[0, 1, 1, \"\"]], \"max_tokens\"", "images");
    expect_refusal(text, "{\"type\": \"update\"",
                   "{\"type\": \"lost\", \"lines\": 3}\n{\"type\": \"update\"", "lines were lost");
    expect_refusal(text, "\"tokens\": [", "\"tokens\": [1, 1, 1, 1, 1, 1, 1, ", "field \"tokens\"");
    expect_refusal(text, "\"sampled\": [", "\"sampled\": [1, 1, 1, 1, 1, 1, 1, ",
                   "field \"sampled\"");
    free(text);
    assert_int_equal(unlink(path_of("v.0000.jsonl.zst")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_decisions_are_repeated),
                                       cmocka_unit_test(a_changed_number_is_a_difference),
                                       cmocka_unit_test(what_cannot_be_repeated_is_refused)};
    (void)snprintf(folder, sizeof folder, "/tmp/quire-verify-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
