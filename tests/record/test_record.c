/* record/test_record.c - each line as docs/recording.md has it; parts; names; what is refused. */
#include "record_kit.h"

#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic uint64_t now_ns = 1000000000;

static uint64_t clock_of_test(void *user)
{
    (void)user;
    return atomic_load(&now_ns);
}

static void later(uint64_t ns)
{
    atomic_fetch_add(&now_ns, ns);
}

static void record_all(quire_recorder *r)
{
    unsigned char hashes[3][32];
    quire_recorded_input input = {
        .offset = 4, .length = 2, .num_embeds = 2, .identifier = {"image", 5}};
    quire_recorded_request request = request_with(hashes, 2, 9);
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    const uint32_t reqs[] = {1, 2};
    const uint32_t first[] = {35, 19};
    const uint32_t ones[] = {1, 1};
    const uint32_t sampled[] = {1, 0};
    const quire_recorded_pair hits[] = {{.req = 1, .number = 0}, {.req = 2, .number = 16}};
    uint32_t req;
    uint64_t number;
    request.has_eos = 1;
    request.priority = -3;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
    assert_int_equal(req, 1);
    request.num_hashes = 0;
    request.has_eos = 0;
    request.priority = 0;
    request.min_tokens = 2;
    request.num_stop_tokens = 1;
    request.client_index = 4;
    request.adapter = (quire_bytes){"lora", 4};
    request.cache_salt = (quire_bytes){"salt", 4};
    request.session = (quire_bytes){"chat", 4};
    request.inputs = &input;
    request.num_inputs = 1;
    request.use_grammar = request.is_pooling = request.is_resumable = 1;
    request.skip_reading_prefix = 1;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
    assert_int_equal(req, 2);
    later(250000);
    step.num_reqs = 2;
    step.reqs = reqs;
    step.num_tokens = first;
    step.new_reqs = hits;
    step.num_new = 2;
    step.encoder = hits;
    step.num_encoder = 1;
    step.num_running = 2;
    step.num_free_blocks = 90;
    step.throttle_prefills = 1;
    assert_int_equal(quire_recorder_schedule(r, &step, &number), QUIRE_OK);
    assert_int_equal(number, 1);
    later(10000000);
    assert_int_equal(quire_recorder_update(r, number, sampled, 2), QUIRE_OK);
    assert_int_equal(quire_recorder_drafts(r, hits + 1, 1), QUIRE_OK);
    step = (quire_recorded_step)QUIRE_RECORDED_STEP_INIT;
    step.num_reqs = 2;
    step.reqs = reqs;
    step.num_tokens = ones;
    step.new_reqs = hits; /* it has run: it is resumed */
    step.num_new = 1;
    step.resumed = hits + 1;
    step.num_resumed = 1;
    step.preempted = reqs + 1;
    step.num_preempted = 1;
    step.drafts = hits + 1;
    step.num_drafts = 1;
    step.num_waiting = 7;
    assert_int_equal(quire_recorder_schedule(r, &step, &number), QUIRE_OK);
    later(10000000);
    assert_int_equal(quire_recorder_update(r, number, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_recorder_end(r, 1, QUIRE_RECORDED_STOP, 2, hashes, 1, 32), QUIRE_OK);
    assert_int_equal(quire_recorder_finish(r, reqs + 1, 1, QUIRE_RECORDED_ABORT), QUIRE_OK);
    assert_int_equal(quire_recorder_end(r, 2, QUIRE_RECORDED_ABORT, 1, NULL, 0, 0), QUIRE_OK);
    assert_int_equal(
        quire_recorder_reset(r, QUIRE_RECORDED_RESET_RUNNING | QUIRE_RECORDED_RESET_DONE),
        QUIRE_OK);
    assert_int_equal(quire_recorder_reset(r, QUIRE_RECORDED_RESET_ENCODER), QUIRE_OK);
    assert_int_equal(quire_recorder_set_pause(r, 2), QUIRE_OK);
}

/* Puts "#" in the place of salted hashes and of the times that the system's clock gives. */
static void mask(char *text)
{
    static const char *const FIELDS[] = {"\"time\": ",        "\"arrival\": ", "\"hashes\": \"",
                                         "\"adapter\": \"",   "\"salt\": \"",  "\"session\": \"",
                                         "\"recording\": \"", "2, 2, \""};
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        for (char *at = strstr(text, FIELDS[i]); at != NULL; at = strstr(at, FIELDS[i])) {
            at += strlen(FIELDS[i]);
            size_t len = strspn(at, "0123456789abcdef.-");
            memmove(at + 1, at + len, strlen(at + len) + 1);
            *at = '#';
        }
}

static void lines_are_as_described(void **state)
{
    static const char EXPECTED[] =
        "{\"type\": \"header\", \"format\": \"quire.recording.v1\", \"part\": 0, \"recording\": "
        "\"#\", \"time\": #, \"t\": 0.000000, \"engine\": \"vllm\", \"engine_version\": "
        "\"0.32.0\", \"quire_version\": \"" QUIRE_VERSION_STRING "\", \"scheduler\": \"a.B\", "
        "\"model\": \"a \\\"model\\\"\", \"inexact\": \"a reason\", \"config\": {\"policy\": "
        "\"fcfs\"}}\n"
        "{\"type\": \"request\", \"t\": 0.000000, \"req\": 1, \"arrival\": #, \"prompt\": 35, "
        "\"max_tokens\": 10, \"eos\": true, \"priority\": -3, \"hashes\": \"#\"}\n"
        "{\"type\": \"request\", \"t\": 0.000000, \"req\": 2, \"arrival\": #, \"prompt\": 35, "
        "\"max_tokens\": 10, \"min_tokens\": 2, \"stops\": 1, \"client\": 4, \"adapter\": \"#\", "
        "\"salt\": \"#\", \"session\": \"#\", \"mm\": [[4, 2, 2, \"#\"]], \"grammar\": true, "
        "\"pooling\": true, \"resumable\": true, \"skip_prefix\": true}\n"
        "{\"type\": \"schedule\", \"t\": 0.000250, \"step\": 1, \"reqs\": [1, 2], \"tokens\": [35, "
        "19], \"new\": [[1, 0], [2, 16]], \"encoder\": [[1, 0]], \"running\": 2, \"waiting\": 0, "
        "\"free\": 90, \"throttle\": true}\n"
        "{\"type\": \"update\", \"t\": 0.010250, \"step\": 1, \"seconds\": 0.010000, \"sampled\": "
        "[1, 0]}\n"
        "{\"type\": \"drafts\", \"t\": 0.010250, \"drafts\": [[2, 16]]}\n"
        "{\"type\": \"schedule\", \"t\": 0.010250, \"step\": 2, \"resumed\": [[1, 0], [2, 16]], "
        "\"preempted\": [2], \"drafts\": [[2, 16]], \"running\": 0, \"waiting\": 7, \"free\": 0}\n"
        "{\"type\": \"update\", \"t\": 0.020250, \"step\": 2, \"seconds\": 0.010000}\n"
        "{\"type\": \"end\", \"t\": 0.020250, \"req\": 1, \"reason\": \"stop\", \"output\": 2, "
        "\"hit\": 0, \"first\": 0.010250, \"last\": 0.020250, \"hashes\": \"#\"}\n"
        "{\"type\": \"finish\", \"t\": 0.020250, \"reqs\": [2], \"reason\": \"abort\"}\n"
        "{\"type\": \"end\", \"t\": 0.020250, \"req\": 2, \"reason\": \"abort\", \"output\": 1, "
        "\"hit\": 16, \"preemptions\": 1, \"first\": 0.020250, \"last\": 0.020250}\n"
        "{\"type\": \"reset\", \"t\": 0.020250, \"what\": \"prefix\", \"running\": true, "
        "\"connector\": false, \"done\": true}\n"
        "{\"type\": \"reset\", \"t\": 0.020250, \"what\": \"encoder\", \"running\": false, "
        "\"connector\": false, \"done\": false}\n"
        "{\"type\": \"set\", \"t\": 0.020250, \"pause\": 2}\n"
        "{\"type\": \"close\", \"t\": 0.020250, \"lines\": 13, \"lost\": 0}\n";
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    quire_recorder_stats stats = QUIRE_RECORDER_STATS_INIT;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "a.jsonl.zst");
    config.engine = "vllm";
    config.engine_version = "0.32.0";
    config.scheduler = "a.B";
    config.model = "a \"model\"";
    config.config = "{\"policy\": \"fcfs\"}";
    config.inexact = "a reason";
    config.hooks.now_ns = clock_of_test;
    quire_recorder *r = recorder_open(&config);
    record_all(r);
    assert_int_equal(quire_recorder_get_stats(r, &stats), QUIRE_OK);
    assert_int_equal(stats.num_lost, 0);
    assert_string_equal(quire_recorder_get_path(r), folder_file(&f, "a.0000.jsonl.zst"));
    quire_recorder_destroy(r);
    struct stat about;
    assert_int_equal(stat(folder_file(&f, "a.0000.jsonl.zst"), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    char *text = part_read(folder_file(&f, "a.0000.jsonl.zst"));
    mask(text);
    assert_string_equal(text, EXPECTED);
    free(text);
    folder_close(&f);
}

static void parts_follow_each_other(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    unsigned char hashes[64][32];
    uint32_t num_parts;
    uint32_t req;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "b");
    config.part_bytes = 4096;
    config.flush_ms = 10;
    quire_recorder *r = recorder_open(&config);
    for (int i = 0; i < 60; i++) {
        quire_recorded_request request = request_with(hashes, 64, i);
        quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
        uint64_t number;
        assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
        uint32_t one = 1;
        uint32_t same = 1;
        step.num_reqs = 1;
        step.reqs = &same;
        step.num_tokens = &one;
        assert_int_equal(quire_recorder_schedule(r, &step, &number), QUIRE_OK);
        (void)usleep(5000);
    }
    quire_recorder_destroy(r);
    char *text = parts_read(&f, "b", &num_parts);
    assert_true(num_parts > 3);
    assert_int_equal(text_count(text, "\"format\": \"quire.recording.v1\""), num_parts);
    assert_int_equal(text_count(text, "\"type\": \"request\""), 60);
    assert_int_equal(text_count(text, "\"type\": \"close\""), 1);
    assert_int_equal(text_last_number(text, "\"part\": "), num_parts - 1);
    assert_int_equal(text_last_number(text, "\"step\": "), 60);
    /* The first schedule line of each part has its requests, the others need not. */
    uint32_t num_lists = text_count(text, "\"reqs\": [1]");
    assert_true(num_lists > 3 && num_lists <= num_parts);
    free(text);
    folder_close(&f);
}

static void no_recording_is_overwritten(void **state)
{
    static const char *const NAMES[] = {"recording.0000.jsonl.zst", "recording-2.0000.jsonl.zst",
                                        "recording-3.0000.jsonl.zst"};
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    quire_recorder *recorders[3];
    folder f;
    (void)state;
    folder_open(&f);
    config.path = f.path;
    for (int i = 0; i < 3; i++) {
        recorders[i] = recorder_open(&config);
        assert_string_equal(quire_recorder_get_path(recorders[i]), folder_file(&f, NAMES[i]));
    }
    for (int i = 0; i < 3; i++)
        quire_recorder_destroy(recorders[i]);
    folder_close(&f);
}

/* Every salted hash of a text: 16 hex digits each. */
static uint32_t values_in(const char *text, char values[][17], uint32_t most)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, "\"hashes\": \""); at != NULL;
         at = strstr(at + 1, "\"hashes\": \"")) {
        const char *digits = at + 11;
        for (size_t len = strspn(digits, "0123456789abcdef"); len >= 16 && count < most;
             len -= 16, digits += 16) {
            memcpy(values[count], digits, 16);
            values[count++][16] = 0;
        }
    }
    return count;
}

static void two_recordings_share_no_value(void **state)
{
    static char values[2][300][17];
    uint32_t counts[2];
    unsigned char hashes[100][32];
    folder f;
    (void)state;
    folder_open(&f);
    for (int i = 0; i < 2; i++) {
        quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
        quire_recorded_request request = request_with(hashes, 100, 1);
        uint32_t req;
        uint32_t num_parts;
        config.path = folder_file(&f, i == 0 ? "one" : "two");
        quire_recorder *r = recorder_open(&config);
        assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
        assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_OK);
        quire_recorder_destroy(r);
        char *text = parts_read(&f, i == 0 ? "one" : "two", &num_parts);
        assert_null(strstr(text, "0101010101010101")); /* of the hashes themselves */
        counts[i] = values_in(text, values[i], 300);
        free(text);
    }
    assert_int_equal(counts[0], 200);
    assert_int_equal(counts[1], 200);
    assert_memory_equal(values[0][0], values[0][100], 100 * 17); /* equal within a recording */
    for (int i = 0; i < 100; i++)
        for (int k = 0; k < 100; k++) {
            assert_string_not_equal(values[0][i], values[1][k]);
            if (i != k)
                assert_string_not_equal(values[0][i], values[0][k]);
        }
    folder_close(&f);
}

static void refused(const quire_recorder_config *config, int status, const char *sentence)
{
    quire_recorder *recorder = NULL;
    assert_int_equal(quire_recorder_create(config, &recorder), status);
    assert_null(recorder);
    if (strstr(quire_refusal(), sentence) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", quire_refusal(), sentence);
}

static int no_bytes(void *user, void *out, size_t bytes)
{
    (void)user, (void)out, (void)bytes;
    return -1;
}

static void invalid_configs_are_refused(void **state)
{
    folder f;
    (void)state;
    folder_open(&f);
    quire_recorder_config good = QUIRE_RECORDER_CONFIG_INIT;
    good.path = folder_file(&f, "c");
    quire_recorder_config config = good;
    assert_int_equal(quire_recorder_create(&config, NULL), QUIRE_E_ARGUMENT);
    refused(NULL, QUIRE_E_ARGUMENT, "");
    config.size = 3;
    refused(&config, QUIRE_E_CONFIG, "size");
    config = good;
    config.path = NULL;
    refused(&config, QUIRE_E_ARGUMENT, "path is NULL");
    config.path = "";
    refused(&config, QUIRE_E_ARGUMENT, "path is empty");
    config.path = "/nonexistent/folder/name";
    refused(&config, QUIRE_E_SYSTEM, "/nonexistent/folder/name.0000.jsonl.zst");
    config = good;
    config.buffer_bytes = 1000;
    refused(&config, QUIRE_E_CONFIG, "invalid buffer_bytes 1000 (expected 65536..1073741824)");
    config = good;
    config.part_bytes = 1;
    refused(&config, QUIRE_E_CONFIG, "invalid part_bytes 1");
    config = good;
    config.flush_ms = 9;
    refused(&config, QUIRE_E_CONFIG, "invalid flush_ms 9 (expected 10..60000)");
    config = good;
    config.level = 20;
    refused(&config, QUIRE_E_CONFIG, "invalid level 20 (expected 1..19)");
    config = good;
    config.config = "[]";
    refused(&config, QUIRE_E_CONFIG, "config is not a JSON object");
    config = good;
    config.hooks.random_bytes = no_bytes;
    refused(&config, QUIRE_E_RANDOM, "");
    folder_close(&f); /* nothing was created */
}

static void invalid_lines_are_refused(void **state)
{
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    quire_recorded_request request = QUIRE_RECORDED_REQUEST_INIT;
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    quire_recorder_stats stats = QUIRE_RECORDER_STATS_INIT;
    uint32_t req;
    uint64_t number;
    folder f;
    (void)state;
    folder_open(&f);
    config.path = folder_file(&f, "d");
    quire_recorder *r = recorder_open(&config);
    assert_int_equal(quire_recorder_add(NULL, &request, &req), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_add(r, NULL, &req), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_add(r, &request, NULL), QUIRE_E_ARGUMENT);
    request.arrival_time = 1.0 / 0.0;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_E_ARGUMENT);
    request.arrival_time = 0;
    request.num_hashes = 1;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_E_ARGUMENT);
    request.hashes = "";
    request.hash_bytes = 65;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_E_ARGUMENT);
    request.num_hashes = 0;
    request.num_inputs = 1;
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_E_ARGUMENT);
    request.num_inputs = 0;
    request.session = (quire_bytes){NULL, 2};
    assert_int_equal(quire_recorder_add(r, &request, &req), QUIRE_E_ARGUMENT);
    step.num_reqs = 1;
    assert_int_equal(quire_recorder_schedule(r, &step, &number), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_schedule(r, NULL, &number), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_update(NULL, 1, NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_drafts(r, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_end(r, 1, (quire_recorded_reason)0, 0, NULL, 0, 0),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_end(r, 1, QUIRE_RECORDED_STOP, 0, NULL, 1, 32),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_finish(r, &req, 1, (quire_recorded_reason)7), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_finish(r, NULL, 1, QUIRE_RECORDED_ABORT), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_reset(r, 16), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_set_pause(r, 3), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_get_stats(r, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_recorder_get_stats(NULL, &stats), QUIRE_E_ARGUMENT);
    assert_string_equal(quire_recorder_get_path(NULL), "");
    quire_recorder_destroy(NULL);
    quire_recorder_destroy(r);
    uint32_t num_parts;
    char *text = parts_read(&f, "d", &num_parts);
    assert_non_null(strstr(text, "\"lines\": 0, \"lost\": 0}")); /* nothing was recorded */
    free(text);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_as_described),
                                       cmocka_unit_test(parts_follow_each_other),
                                       cmocka_unit_test(no_recording_is_overwritten),
                                       cmocka_unit_test(two_recordings_share_no_value),
                                       cmocka_unit_test(invalid_configs_are_refused),
                                       cmocka_unit_test(invalid_lines_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
