/* cli/trace/fuzz_samples.c - see fuzz_samples.h. */
#include "fuzz_samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static const struct {
    trace_format format;
    const char *text;
} texts[] = {
    {TRACE_MOONCAKE,
     "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 60, \"hash_ids\": [0, 1, 7]}\n"
     "{\"timestamp\": 3, \"input_length\": 512, \"output_length\": 6, \"hash_ids\": [0]}\n"},
    {TRACE_MOONCAKE,
     "{\"session_id\":\"a\",\"timestamp\":9,\"input_length\":8,\"output_length\":2,\"hash_ids\":"
     "[1]}\n{\"session_id\":\"a\",\"delay\":5,\"input_length\":9,\"output_length\":1}\n"
     "{\"session_id\":\"b\",\"timestamp\":10,\"input_length\":8,\"output_length\":2}\n"
     "{\"session_id\":\"a\",\"timestamp\":19,\"input_length\":9,\"output_length\":1}\n"},
    {TRACE_MOONCAKE,
     "{\"request_id\":\"r\",\"timestamp\":1,\"input_length\":6,\"output_length\":8}\n"
     "{\"request_id\":\"s\",\"wait_for\":[\"r\"],\"hash_ids\":[4],\"input_length\":6,"
     "\"output_length\":8,\"tool_wait_ms\":2.5,\"priority\":-1}\n"},
    {TRACE_MOONCAKE,
     "{\"schema\":\"dynamo.agentic_mooncake\",\"version\":2,\"block_size\":4}\n"
     "{\"request_id\":\"a\",\"play_id\":\"p\",\"input_length\":8,\"output_length\":4,"
     "\"hash_ids\":[1,2],\"not_before_ms\":5}\n{\"request_id\":\"b\",\"play_id\":\"p\","
     "\"dependencies\":[{\"request_id\":\"a\",\"delay_ms\":2}],\"input_length\":8,"
     "\"output_length\":4,\"hash_ids\":[1,2]}\n"},
    {TRACE_MOONCAKE_DELTA,
     "{\"session_id\":1,\"timestamp\":0,\"input_length\":4,\"output_length\":2,\"hash_ids\":[1]}\n"
     "{\"session_id\":1,\"delay\":5,\"input_length\":2,\"output_length\":1,\"hash_ids\":[2]}\n"
     "{\"session_id\":1,\"delay\":5,\"input_length\":3,\"output_length\":1,\"hash_ids\":[2]}\n"},
    {TRACE_BAILIAN,
     "{\"chat_id\": 9, \"parent_chat_id\": -1, \"timestamp\": 6.1, \"input_length\": 40, "
     "\"output_length\": 3, \"type\": \"text\", \"turn\": 1, \"hash_ids\": [1, 2, 3]}\n"
     "{\"chat_id\": 10, \"parent_chat_id\": 9, \"timestamp\": 7, \"input_length\": 16, "
     "\"output_length\": 3, \"hash_ids\": [1]}\n"},
    {TRACE_AZURE,
     "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
     "2024-05-10T00:00:00.009930+00:00,396,109\r\n"},
    {TRACE_BURSTGPT, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                     "5,ChatGPT,472,18,490,Conversation log\n45,\"GPT-4\",1087,230,1317,API log\n"},
    {TRACE_SHAREGPT,
     "[{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"Hello\\u00e9\"}, "
     "{\"from\": \"gpt\", \"value\": \"Hi \\ud83d\\ude00\"}, {\"from\": \"human\", \"value\": "
     "\"Bye\"}, {\"from\": \"gpt\", \"value\": \"\"}]}, {\"conversations\": []}]"},
    {TRACE_DYNAMO,
     "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"agent_context\":{"
     "\"session_id\":\"s\"},\"request\":{\"request_id\":\"a\",\"request_received_ms\":10,"
     "\"total_time_ms\":5,\"output_tokens\":4,\"replay\":{\"trace_block_size\":2,"
     "\"input_length\":3,\"input_sequence_hashes\":[11,22]}}}\n"
     "{\"event\":{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\","
     "\"event_time_unix_ms\":25,\"agent_context\":{\"session_id\":\"c\",\"parent_session_id\":"
     "\"s\"},\"request\":{\"request_id\":\"b\",\"request_received_ms\":20,\"output_tokens\":1,"
     "\"replay\":{\"trace_block_size\":2,\"input_length\":2,\"input_sequence_hashes\":[11]}}}}\n"
     "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"tool_end\",\"tool\":{\"claude\":{"
     "\"child_session_id\":\"c\",\"source_request_id\":\"a\"}}}\n"},
    {TRACE_RECORDING,
     "{\"type\":\"header\",\"format\":\"quire.recording.v1\",\"part\":0,\"recording\":"
     "\"00112233445566778899aabbccddeeff\",\"time\":100.5,\"config\":{\"hash_block_size\":2}}\n"
     "{\"type\":\"request\",\"t\":0.1,\"req\":1,\"arrival\":0.1,\"prompt\":3,\"max_tokens\":4,"
     "\"hashes\":\"0123456789abcdef\"}\n"
     "{\"type\":\"schedule\",\"t\":0.2,\"step\":1,\"reqs\":[1],\"tokens\":[3],\"new\":[[1,0]]}\n"
     "{\"type\":\"update\",\"t\":0.3,\"step\":1,\"sampled\":[1]}\n"
     "{\"type\":\"end\",\"t\":0.3,\"req\":1,\"reason\":\"stop\",\"output\":2,\"hashes\":"
     "\"fedcba9876543210\"}\n"
     "{\"type\":\"request\",\"t\":0.4,\"req\":2,\"arrival\":0.4,\"prompt\":5,\"max_tokens\":4,"
     "\"session\":\"00000000000000ff\",\"hashes\":\"0123456789abcdeffedcba9876543210\"}\n"},
    {TRACE_LMCACHE, "{\"timestamp\": 1760995776640783, \"input\": \"user: Below I will present you "
                    "a request. Which "
                    "tour\\u00e9 is it?\", \"output\": \"- Use it\", \"session_id\": \"a\"}\n"
                    "{\"timestamp\": 1760995773940169, \"input\": \"user: Below I will present you "
                    "a request. Which "
                    "tour\\u00e9 is it?\", \"output\": \"\", \"session_id\": \"a\"}\n"},
    {TRACE_LMCACHE,
     "{\"session_id\": \"s\", \"input\": [{\"role\": \"user\", \"content\": \"hello\"}], "
     "\"output_length\": 7, \"pre_gap\": 0.0}\n{\"session_id\": \"s\", \"input\": [{\"role\": "
     "\"user\", \"content\": [{\"text\": \"hello\"}]}, \"x\"], \"output_length\": 9, \"pre_gap\": "
     "1.25}\n{\"session_id\": \"s\", \"input\": [\"x\"], \"output_length\": 1, "
     "\"session_timestamp\": 4.5}\n"},
    {TRACE_OTEL,
     "{\"resourceSpans\":[{\"resource\":{},\"scopeSpans\":[{\"scope\":{},\"spans\":[{\"traceId\":"
     "\"t"
     "\",\"spanId\":\"a\",\"startTimeUnixNano\":\"1777312800000000000\",\"endTimeUnixNano\":"
     "\"1777312803000000000\",\"attributes\":[{\"key\":\"gen_ai.usage.input_tokens\",\"value\":{"
     "\"intValue\":\"374\"}},{\"key\":\"gen_ai.usage.output_tokens\",\"value\":{\"intValue\":44}},{"
     "\"key\":\"gen_ai.conversation.id\",\"value\":{\"stringValue\":\"c\"}}]},\n{\"traceId\":\"t\","
     "\"spanId\":\"b\",\"parentSpanId\":\"a\",\"startTimeUnixNano\":1777312801000000000,"
     "\"attributes\":[{\"key\":\"gen_ai.usage.prompt_tokens\",\"value\":{\"doubleValue\":375}},{"
     "\"key\":\"gen_ai.usage.completion_tokens\",\"value\":{\"intValue\":44}},{\"key\":"
     "\"gen_ai.operation.name\",\"value\":{\"stringValue\":\"chat\"}}]},{\"spanId\":\"c\"}]}]}]}"
     "\n"},
    {TRACE_VLLM_LOG,
     "(APIServer pid=1) DEBUG 11-19 20:14:11 [request_logger.py:52] Request chatcmpl-1 details: "
     "prompt: 'Hi', prompt_token_ids: [13347, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
     "14], "
     "prompt_embeds shape: None.\n"
     "INFO 12-31 23:59:12 [logger.py:43] Received request chatcmpl-2: prompt: 'x', params: S(), "
     "prompt_token_ids: [13347, 0, 5], lora_request: None.\n"
     "INFO 01-01 00:00:13 [request_logger.py:104] Generated response chatcmpl-2 (streaming delta): "
     "output: 'H', output_token_ids: [9906, 2], finish_reason: streaming_delta\n"
     "INFO 01-01 00:00:15 [request_logger.py:104] Generated response chatcmpl-1: output: 'Hello', "
     "output_token_ids: (9906,), finish_reason: stop\n"},
    {TRACE_AGENT,
     "{\"id\":\"p\",\"block_size\":4,\"hash_id_scope\":\"local\",\"requests\":[{\"t\":0,\"in\":4,"
     "\"out\":2,\"hash_ids\":[1],\"api_time\":1},{\"t\":1,\"type\":\"subagent\",\"requests\":[{"
     "\"t\":1.5,\"in\":4,\"out\":1,\"hash_ids\":[1]}]},{\"t\":20,\"in\":9,\"out\":2,\"hash_ids\":"
     "[1,7],\"think_time\":0.5}]}"},
    {TRACE_QUIRE,
     "{\"quire_workload\": 1, \"kind\": \"chat\"}\n"
     "{\"time\": 0.2, \"session\": 1, \"id\": 3, \"prompt\": [[1, 20], [2, 8]], \"output\": [3, "
     "9]}\n{\"session\": 1, \"think\": 8.5, \"more\": [[6, 4]], \"output\": 2, \"last\": true}\n"
     "{\"after\": [3], \"prompt\": [[1, 20]], \"output\": [7, 2], \"priority\": 1}\n"},
};

enum { NUM_TEXTS = sizeof texts / sizeof texts[0] };

const char *const fuzz_words[FUZZ_NUM_WORDS] = {"\"timestamp\":",
                                                "\"input_length\":",
                                                "\"output_length\":",
                                                "\"hash_ids\":[",
                                                "\"session_id\":",
                                                "\"delay\":",
                                                "\"request_id\":",
                                                "\"wait_for\":[",
                                                "\"play_id\":",
                                                "\"dependencies\":[",
                                                "\"schema\":",
                                                "\"block_size\":",
                                                "\"chat_id\":",
                                                "\"requests\":[",
                                                "\"t\":",
                                                "\"in\":",
                                                "\"out\":",
                                                "\"think_time\":",
                                                "\"conversations\":[",
                                                "\"from\":\"gpt\",",
                                                "\"value\":\"",
                                                "\"prompt\":[[",
                                                "\"more\":[[",
                                                "\"output\":",
                                                "\"think\":",
                                                "\"after\":[",
                                                "\"last\":true,",
                                                "\"session\":",
                                                "\"input\":",
                                                "\"pre_gap\":",
                                                "\"spans\":[",
                                                "\"attributes\":[",
                                                "\"spanId\":\"a\",",
                                                "prompt_token_ids: [",
                                                "Generated response ",
                                                "INFO 11-19 20:14:11 [l.py:1] ",
                                                "null",
                                                "true",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                "\n",
                                                "\"",
                                                "\\ud800",
                                                "\r\n",
                                                "\xef\xbb\xbf"};

const char *const fuzz_numbers[FUZZ_NUM_NUMBERS] = {"0",
                                                    "1",
                                                    "-1",
                                                    "4",
                                                    "16",
                                                    "511",
                                                    "513",
                                                    "2147483647",
                                                    "2147483648",
                                                    "4294967296",
                                                    "9007199254740993",
                                                    "18446744073709551615",
                                                    "18446744073709551616",
                                                    "1e308",
                                                    "1e-9",
                                                    "3.5"};

static fuzz_sample sample_of(trace_format format, const void *bytes, size_t num_bytes)
{
    fuzz_sample sample = {.format = format, .num_bytes = num_bytes, .bytes = malloc(num_bytes)};
    if (sample.bytes == NULL || num_bytes > FUZZ_SAMPLE_BYTES)
        abort();
    memcpy(sample.bytes, bytes, num_bytes);
    return sample;
}

/* One file and the end. */
static size_t make_tar(const char *text, char tar[FUZZ_SAMPLE_BYTES])
{
    size_t length = strlen(text);
    memset(tar, 0, FUZZ_SAMPLE_BYTES);
    snprintf(tar, 100, "one.json");
    snprintf(tar + 124, 12, "%011o", (unsigned)length);
    memcpy(tar + 148, "        0", 9);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)tar[i];
    snprintf(tar + 148, 8, "%06o", sum);
    memcpy(tar + 512, text, length);
    return 512 + (length + 511) / 512 * 512 + 512;
}

void fuzz_make_samples(fuzz_sample samples[FUZZ_NUM_SAMPLES])
{
    char room[FUZZ_SAMPLE_BYTES];
    int n = 0;
    for (int i = 0; i < NUM_TEXTS; i++)
        samples[n++] = sample_of(texts[i].format, texts[i].text, strlen(texts[i].text));
    const char *first = texts[0].text;
    size_t packed = ZSTD_compress(room, sizeof room, first, strlen(first), 1);
    if (ZSTD_isError(packed))
        abort();
    samples[n++] = sample_of(TRACE_DETECT, room, packed);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)first,
                       .avail_in = (uInt)strlen(first),
                       .next_out = (Bytef *)room,
                       .avail_out = sizeof room};
    if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflate(&stream, Z_FINISH) != Z_STREAM_END)
        abort();
    samples[n++] = sample_of(TRACE_DETECT, room, stream.total_out);
    deflateEnd(&stream);
    const char *agent = texts[NUM_TEXTS - 2].text;
    samples[n++] = sample_of(TRACE_DETECT, room, make_tar(agent, room));
    if (n != FUZZ_NUM_SAMPLES)
        abort();
}

void fuzz_free_samples(fuzz_sample samples[FUZZ_NUM_SAMPLES])
{
    for (int i = 0; i < FUZZ_NUM_SAMPLES; i++)
        free(samples[i].bytes);
}
