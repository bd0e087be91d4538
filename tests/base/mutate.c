#include "base/mutate.h"

#include "base/unit.h"

enum { MAX_CHANGES = 6, MAX_PART = 40 };

static uint64_t random_state;

size_t mutate_below(size_t n)
{
    return n == 0 ? 0 : (size_t)(unit_random(&random_state) % n);
}

void mutate_insert(mutate_text *t, size_t at, const void *bytes, size_t n)
{
    if (t->n + n > MUTATE_ROOM || n == 0)
        return;
    memmove(t->bytes + at + n, t->bytes + at, t->n - at);
    memcpy(t->bytes + at, bytes, n);
    t->n += n;
}

void mutate_erase(mutate_text *t, size_t at, size_t n)
{
    memmove(t->bytes + at, t->bytes + at + n, t->n - at - n);
    t->n -= n;
}

static void repeat(mutate_text *t, size_t at, size_t n)
{
    static uint8_t copy[MUTATE_ROOM];
    memcpy(copy, t->bytes + at, n);
    for (size_t i = 1 + mutate_below(mutate_below(4) == 0 ? 200 : 3); i > 0; i--)
        mutate_insert(t, mutate_below(4) == 0 ? mutate_below(t->n + 1) : at, copy, n);
}

static void put_word(mutate_text *t, size_t at, size_t length, const mutate_bytes *word)
{
    if (mutate_below(2) == 0)
        mutate_erase(t, at, length < word->n ? length : word->n);
    mutate_insert(t, at, word->bytes, word->n);
}

static void change(mutate_text *t, const mutate_plan *plan)
{
    size_t at = mutate_below(t->n + 1);
    size_t length = mutate_below(t->n - at + 1);
    length = length < MAX_PART ? length : mutate_below(MAX_PART);
    size_t kind = mutate_below(plan->change == NULL ? 7 : 9);
    if (kind < 2 && at < t->n) {
        uint8_t bit = (uint8_t)(1u << mutate_below(8));
        t->bytes[at] = kind == 0 ? t->bytes[at] ^ bit : (uint8_t)unit_random(&random_state);
    } else if (kind == 2) {
        mutate_erase(t, at, length);
    } else if (kind == 3) {
        repeat(t, at, length);
    } else if (kind == 4) {
        t->n = mutate_below(3) == 0 ? at : t->n;
    } else if (kind >= 7) {
        plan->change(t, at);
    } else if (kind > 4 && plan->num_words > 0) {
        put_word(t, at, length, &plan->words[mutate_below(plan->num_words)]);
    }
}

void mutate_run(const void *bytes, size_t n)
{
    uint8_t *exact = malloc(n > 0 ? n : 1);
    MUTATE_EXPECT(exact != NULL);
    if (n > 0)
        memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

int mutate_main(int argc, char **argv, const mutate_plan *plan)
{
    static mutate_text t;
    uint64_t seed = 1;
    uint64_t runs = plan->runs;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            runs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t run = 0; run < runs; run++) {
        random_state = seed * UINT64_C(0x100000000) + run; /* so that one run can be repeated */
        size_t which = mutate_below(plan->num_samples);
        const mutate_bytes *sample = &plan->samples[which];
        MUTATE_EXPECT(sample->n <= MUTATE_ROOM);
        t.n = sample->n;
        memcpy(t.bytes, sample->bytes, t.n);
        for (size_t i = mutate_below(MAX_CHANGES + 1); i > 0; i--)
            change(&t, plan);
        if (plan->seal != NULL)
            plan->seal(&t, which);
        mutate_run(t.bytes, t.n);
    }
    printf("%llu executions, no finding\n", (unsigned long long)runs);
    return 0;
}

static mutate_bytes *bytes_of(const char *const *strings, size_t n)
{
    mutate_bytes *bytes = malloc((n > 0 ? n : 1) * sizeof *bytes);
    MUTATE_EXPECT(bytes != NULL);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (mutate_bytes){strings[i], strlen(strings[i])};
    return bytes;
}

int mutate_strings(int argc, char **argv, uint64_t runs, const char *const *samples,
                   size_t num_samples, const char *const *words, size_t num_words)
{
    mutate_bytes *texts = bytes_of(samples, num_samples);
    mutate_bytes *pieces = bytes_of(words, num_words);
    mutate_plan plan = {.runs = runs,
                        .samples = texts,
                        .num_samples = num_samples,
                        .words = pieces,
                        .num_words = num_words};
    int status = mutate_main(argc, argv, &plan);
    free(texts);
    free(pieces);
    return status;
}
