/* cli/trace/fuzz_trace.c - the trace readers against bytes that nobody meant as a trace.
 *
 *      [ format and options, one byte ][ the file ]
 *
 * Whatever the bytes, a reader ends with requests that hold together or with a sentence. Two ways
 * to run it: with libFuzzer (target fuzz_trace_libfuzzer of a build with clang), or as a program
 * of its own that changes samples of all formats at random, the same way for the same seed:
 *
 *      cli_fuzz_trace [--runs N] [--seed N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "fuzz_samples.h"
#include "output/failure.h"
#include "trace/reader.h"

enum { MAX_REQUESTS = 200, NUM_FORMATS = TRACE_MIXED };

static void check_request(const trace_request *request, uint64_t number)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < request->num_segments; i++) {
        MUTATE_EXPECT(request->prompt[i].num_tokens > 0);
        sum += request->prompt[i].num_tokens;
    }
    MUTATE_EXPECT(sum == request->num_prompt_tokens && sum > 0 && sum <= TRACE_MAX_TOKENS);
    MUTATE_EXPECT(request->num_output_tokens > 0 && request->num_output_tokens <= TRACE_MAX_TOKENS);
    MUTATE_EXPECT(request->number == number);
    MUTATE_EXPECT(isfinite(request->time_s) && request->time_s >= 0);
    MUTATE_EXPECT(isfinite(request->think_s) && request->think_s >= 0);
    for (uint32_t i = 0; i < request->num_after; i++)
        MUTATE_EXPECT(request->after[i] < number);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    trace_options options = {.format = (trace_format)((bytes[0] & 0x3f) % NUM_FORMATS),
                             .skip_bad = (bytes[0] & 0x40) != 0,
                             .id_block_size = (bytes[0] & 0x80) != 0 ? 4 : 0};
    fail_with("%s", "");
    input *in = input_of_bytes(bytes + 1, num_bytes - 1);
    MUTATE_EXPECT(in != NULL);
    trace_reader *reader = trace_open_input(in, &options);
    if (reader == NULL) {
        MUTATE_EXPECT(failure()[0] != 0);
        return 0;
    }
    trace_request request;
    uint64_t number = 0;
    double last_s = 0;
    int more = 1;
    while (number < MAX_REQUESTS && (more = trace_next(reader, &request)) == 1) {
        check_request(&request, number++);
        bool is_placed = !request.is_closed_loop || (request.turn == 0 && request.num_after == 0);
        MUTATE_EXPECT(!is_placed || request.time_s >= last_s);
        last_s = is_placed ? request.time_s : last_s;
    }
    MUTATE_EXPECT(more >= 0 || trace_error(reader)[0] != 0);
    MUTATE_EXPECT(options.skip_bad || trace_num_bad(reader) == 0);
    trace_close(reader);
    return 0;
}

#ifndef QUIRE_LIBFUZZER

/* ---- without libFuzzer ----------------------------------------------------- */

/* A number somewhere behind `at` becomes another one. */
static void change_number(mutate_text *t, size_t at)
{
    while (at < t->n && (t->bytes[at] < '0' || t->bytes[at] > '9'))
        at++;
    size_t end = at;
    while (end < t->n && t->bytes[end] >= '0' && t->bytes[end] <= '9')
        end++;
    mutate_erase(t, at, end - at);
    const char *number = fuzz_numbers[mutate_below(FUZZ_NUM_NUMBERS)];
    mutate_insert(t, at, number, strlen(number));
}

static fuzz_sample samples[FUZZ_NUM_SAMPLES];

/* Mostly read as what it is. */
static void choose_format(mutate_text *t, size_t sample)
{
    size_t format =
        mutate_below(4) == 0 ? mutate_below(NUM_FORMATS) : (size_t)samples[sample].format;
    uint8_t first = (uint8_t)(mutate_below(4) << 6 | format);
    mutate_insert(t, 0, &first, 1);
}

int main(int argc, char **argv)
{
    mutate_bytes texts[FUZZ_NUM_SAMPLES];
    mutate_bytes words[FUZZ_NUM_WORDS];
    fuzz_make_samples(samples);
    for (size_t i = 0; i < FUZZ_NUM_SAMPLES; i++)
        texts[i] = (mutate_bytes){samples[i].bytes, samples[i].num_bytes};
    for (size_t i = 0; i < FUZZ_NUM_WORDS; i++)
        words[i] = (mutate_bytes){fuzz_words[i], strlen(fuzz_words[i])};
    mutate_plan plan = {.runs = 20000,
                        .samples = texts,
                        .num_samples = FUZZ_NUM_SAMPLES,
                        .words = words,
                        .num_words = FUZZ_NUM_WORDS,
                        .change = change_number,
                        .seal = choose_format};
    int status = mutate_main(argc, argv, &plan);
    fuzz_free_samples(samples);
    return status;
}

#endif
