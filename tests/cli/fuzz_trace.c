/* cli/fuzz_trace.c - the trace readers against bytes that nobody meant as a trace.
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

#include "fuzz_samples.h"
#include "trace_reader.h"

enum { MAX_REQUESTS = 200, NUM_FORMATS = TRACE_MOONCAKE_DELTA + 1 };

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes);

static void check_request(const trace_request *request, uint64_t number)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < request->num_segments; i++) {
        EXPECT(request->prompt[i].num_tokens > 0);
        sum += request->prompt[i].num_tokens;
    }
    EXPECT(sum == request->num_prompt_tokens && sum > 0 && sum <= TRACE_MAX_TOKENS);
    EXPECT(request->num_output_tokens > 0 && request->num_output_tokens <= TRACE_MAX_TOKENS);
    EXPECT(request->number == number);
    EXPECT(isfinite(request->time_s) && request->time_s >= 0);
    EXPECT(isfinite(request->think_s) && request->think_s >= 0);
    for (uint32_t i = 0; i < request->num_after; i++)
        EXPECT(request->after[i] < number);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    trace_options options = {.format = (trace_format)((bytes[0] & 0x3f) % NUM_FORMATS),
                             .skip_bad = (bytes[0] & 0x40) != 0,
                             .id_block_size = (bytes[0] & 0x80) != 0 ? 4 : 0};
    char message[TRACE_MESSAGE_BYTES] = "";
    input *in = input_of_bytes(bytes + 1, num_bytes - 1);
    EXPECT(in != NULL);
    trace_reader *reader = trace_open_input(in, &options, message);
    if (reader == NULL) {
        EXPECT(message[0] != 0);
        return 0;
    }
    trace_request request;
    uint64_t number = 0;
    double last_s = 0;
    int more = 1;
    while (number < MAX_REQUESTS && (more = trace_next(reader, &request)) == 1) {
        check_request(&request, number++);
        bool is_placed = !request.is_closed_loop || (request.turn == 0 && request.num_after == 0);
        EXPECT(!is_placed || request.time_s >= last_s);
        last_s = is_placed ? request.time_s : last_s;
    }
    EXPECT(more >= 0 || trace_error(reader)[0] != 0);
    EXPECT(options.skip_bad || trace_num_bad(reader) == 0);
    trace_close(reader);
    return 0;
}

#ifndef QUIRE_LIBFUZZER

/* ---- a mutator for when there is no libFuzzer ------------------------------ */

enum { ROOM = 4096, MAX_CHANGES = 6 };

static uint64_t random_state;

static uint64_t draw(void)
{
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(size_t n)
{
    return n == 0 ? 0 : (size_t)(draw() % n);
}

typedef struct text {
    uint8_t bytes[ROOM];
    size_t n;
} text;

static void insert(text *t, size_t at, const void *bytes, size_t n)
{
    if (t->n + n > ROOM)
        return;
    memmove(t->bytes + at + n, t->bytes + at, t->n - at);
    memcpy(t->bytes + at, bytes, n);
    t->n += n;
}

static void erase(text *t, size_t at, size_t n)
{
    memmove(t->bytes + at, t->bytes + at + n, t->n - at - n);
    t->n -= n;
}

static void insert_word(text *t, size_t at)
{
    const char *word = fuzz_words[below(FUZZ_NUM_WORDS)];
    insert(t, at, word, strlen(word));
}

/* A number somewhere behind `at` becomes another one. */
static void change_number(text *t, size_t at)
{
    while (at < t->n && (t->bytes[at] < '0' || t->bytes[at] > '9'))
        at++;
    size_t end = at;
    while (end < t->n && t->bytes[end] >= '0' && t->bytes[end] <= '9')
        end++;
    erase(t, at, end - at);
    const char *number = fuzz_numbers[below(FUZZ_NUM_NUMBERS)];
    insert(t, at, number, strlen(number));
}

static void change(text *t)
{
    size_t at = below(t->n + 1);
    size_t length = below(t->n - at + 1);
    uint8_t copy[ROOM];
    switch (below(8)) {
    case 0:
        if (at < t->n)
            t->bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (at < t->n)
            t->bytes[at] = (uint8_t)draw();
        break;
    case 2:
        erase(t, at, length < 20 ? length : below(20));
        break;
    case 3:
        memcpy(copy, t->bytes + at, length);
        insert(t, below(t->n + 1), copy, length);
        break;
    case 4:
        t->n = at;
        break;
    case 5:
    case 6:
        change_number(t, at);
        break;
    default:
        insert_word(t, at);
    }
}

/* A sample, mostly read as what it is, with some changes. */
static void make_text(text *t, const fuzz_sample *samples, size_t num_samples)
{
    const fuzz_sample *sample = &samples[below(num_samples)];
    size_t format = below(4) == 0 ? below(NUM_FORMATS) : (size_t)sample->format;
    t->bytes[0] = (uint8_t)((draw() & 0xc0) | format);
    memcpy(t->bytes + 1, sample->bytes, sample->num_bytes);
    t->n = 1 + sample->num_bytes;
    for (size_t i = 1 + below(MAX_CHANGES); i > 0; i--)
        change(t);
}

int main(int argc, char **argv)
{
    uint64_t runs = 20000;
    uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            runs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    fuzz_sample samples[FUZZ_NUM_SAMPLES];
    fuzz_make_samples(samples);
    text t;
    for (uint64_t run = 0; run < runs; run++) {
        random_state = seed * UINT64_C(0x100000000) + run; /* so that one run can be repeated */
        make_text(&t, samples, FUZZ_NUM_SAMPLES);
        uint8_t *exact = malloc(t.n > 0 ? t.n : 1); /* its end is the end of memory */
        EXPECT(exact != NULL);
        memcpy(exact, t.bytes, t.n);
        LLVMFuzzerTestOneInput(exact, t.n);
        free(exact);
    }
    printf("%llu executions, no finding\n", (unsigned long long)runs);
    fuzz_free_samples(samples);
    return 0;
}

#endif
