#include "http/mutate.h"

#include "base/unit.h"

enum { MAX_CHANGES = 6 };

static uint64_t random_state;

typedef struct text {
    uint8_t bytes[MUTATE_ROOM];
    size_t n;
} text;

static size_t below(size_t n)
{
    return n == 0 ? 0 : (size_t)(unit_random(&random_state) % n);
}

static void insert(text *t, size_t at, const void *bytes, size_t n)
{
    if (t->n + n > MUTATE_ROOM)
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

static void repeat(text *t, size_t at, size_t n)
{
    static uint8_t copy[MUTATE_ROOM];
    memcpy(copy, t->bytes + at, n);
    for (size_t i = 1 + below(below(4) == 0 ? 200 : 3); i > 0; i--)
        insert(t, at, copy, n);
}

static void change(text *t, const char *const *words, size_t num_words)
{
    size_t at = below(t->n + 1);
    size_t length = below(t->n - at + 1);
    length = length < 40 ? length : below(40);
    const char *word = words[below(num_words)];
    switch (below(7)) {
    case 0:
        if (at < t->n)
            t->bytes[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (at < t->n)
            t->bytes[at] = (uint8_t)unit_random(&random_state);
        break;
    case 2:
        erase(t, at, length);
        break;
    case 3:
        repeat(t, at, length);
        break;
    case 4:
        t->n = below(3) == 0 ? at : t->n;
        break;
    default:
        if (below(2) == 0)
            erase(t, at, length < strlen(word) ? length : strlen(word));
        insert(t, at, word, strlen(word));
    }
}

int mutate_main(int argc, char **argv, uint64_t runs, const char *const *samples,
                size_t num_samples, const char *const *words, size_t num_words)
{
    static text t;
    uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            runs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t run = 0; run < runs; run++) {
        random_state = seed * UINT64_C(0x100000000) + run; /* so that one run can be repeated */
        const char *sample = samples[below(num_samples)];
        t.n = strlen(sample);
        memcpy(t.bytes, sample, t.n);
        for (size_t i = below(MAX_CHANGES + 1); i > 0; i--)
            change(&t, words, num_words);
        uint8_t *exact = malloc(t.n > 0 ? t.n : 1); /* its end is the end of memory */
        MUTATE_EXPECT(exact != NULL);
        memcpy(exact, t.bytes, t.n);
        LLVMFuzzerTestOneInput(exact, t.n);
        free(exact);
    }
    printf("%llu executions, no finding\n", (unsigned long long)runs);
    return 0;
}
