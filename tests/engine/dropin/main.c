/* engine/dropin/main.c - the program: engine_steps [--backend cpu|cuda] [--record F] [--replay F]
 *
 *      told, a line each, words and numbers               answered
 *      model SEED VOCABULARY MAX_LEN BLOCK_SIZE
 *            BLOCKS MAX_TOKENS MAX_ROWS MAX_REQUESTS
 *      preempted ID ...
 *      finished ID ...
 *      new ID COMPUTED SCHEDULED PROMPT_LENGTH PROMPT ... BLOCK ...
 *      run ID COMPUTED SCHEDULED BLOCK ...                   blocks come behind those it has
 *      resumed ID COMPUTED SCHEDULED BLOCK ...               blocks are all that it has
 *      go                                                 tokens ID TOKEN ID TOKEN ...
 *      end                                                counts
 *
 * A recording is what was told, and after each go the answer: told again, the answer is expected.
 */
#include "engine/dropin/steps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_SAME = 0, EXIT_DIFFERENT = 1, EXIT_WRONG = 2, EXIT_SKIPPED = 77 };

typedef struct options {
    const engine_backend_ops *ops;
    const char *record;
    const char *replay;
    uint64_t break_at;
} options;

typedef struct session {
    const options *options;
    FILE *in;
    FILE *record; /* NULL: none */
    steps *steps;
    char *line;
    size_t line_bytes;
    uint64_t *numbers; /* of the line */
    size_t num_numbers;
    size_t capacity;
    uint64_t num_lines;
    uint64_t num_unexpected; /* answers that are not those of the recording */
    bool is_disabled;
    const char *wrong;
} session;

/* ---- lines ----------------------------------------------------------------- */

static bool add_number(session *s, uint64_t number)
{
    if (s->num_numbers == s->capacity) {
        size_t capacity = s->capacity == 0 ? 256 : 2 * s->capacity;
        uint64_t *more = realloc(s->numbers, capacity * sizeof *more);
        if (more == NULL)
            return false;
        s->numbers = more;
        s->capacity = capacity;
    }
    s->numbers[s->num_numbers++] = number;
    return true;
}

/* The line's first word ends where it does; its numbers go to s->numbers. */
static bool split(session *s)
{
    s->num_numbers = 0;
    s->line[strcspn(s->line, "\n")] = '\0';
    char *at = s->line + strcspn(s->line, " ");
    while (*at == ' ') {
        *at++ = '\0';
        if (*at < '0' || *at > '9')
            return false;
        char *end = at;
        errno = 0;
        uint64_t number = strtoull(at, &end, 10);
        if (errno != 0 || !add_number(s, number))
            return false;
        at = end;
    }
    return *at == '\0';
}

/* ---- what is told ------------------------------------------------------------ */

static const char *tell_model(session *s)
{
    const uint64_t *n = s->numbers;
    if (s->steps != NULL || s->num_numbers != 8)
        return "a model has eight numbers, and there is one";
    for (size_t i = 1; i < s->num_numbers; i++)
        if (n[i] > UINT32_MAX)
            return "a number is too large";
    steps_config config = {.seed = n[0],
                           .vocabulary = (uint32_t)n[1],
                           .max_len = (uint32_t)n[2],
                           .block_size = (uint32_t)n[3],
                           .num_blocks = (uint32_t)n[4],
                           .max_tokens = (uint32_t)n[5],
                           .max_rows = (uint32_t)n[6],
                           .max_requests = (uint32_t)n[7]};
    s->steps = steps_create(&config, s->options->ops, &s->is_disabled);
    if (s->steps == NULL)
        return quire_refusal();
    steps_break(s->steps, s->options->break_at);
    return NULL;
}

static const char *tell_each(session *s, const char *(*tell)(steps *, uint64_t))
{
    const char *wrong = NULL;
    for (size_t i = 0; i < s->num_numbers && wrong == NULL; i++)
        wrong = tell(s->steps, s->numbers[i]);
    return wrong;
}

/* The first three numbers; blocks are those from first_block on. */
static bool read_part(const session *s, size_t first_block, steps_part *part)
{
    const uint64_t *n = s->numbers;
    if (s->num_numbers < first_block || s->num_numbers > UINT32_MAX || n[0] > UINT32_MAX ||
        n[1] > UINT32_MAX || n[2] > UINT32_MAX)
        return false;
    *part = (steps_part){.id = (uint32_t)n[0],
                         .num_computed = (uint32_t)n[1],
                         .num_scheduled = (uint32_t)n[2],
                         .num_blocks = (uint32_t)(s->num_numbers - first_block),
                         .blocks = n + first_block};
    return true;
}

static const char *tell_new(session *s)
{
    steps_part part;
    if (s->num_numbers < 4 || s->numbers[3] > s->num_numbers - 4 ||
        !read_part(s, 4 + (size_t)s->numbers[3], &part))
        return "a new request has more numbers";
    return steps_add(s->steps, &part, (uint32_t)s->numbers[3], s->numbers + 4);
}

static const char *tell_run(session *s, bool is_resumed)
{
    steps_part part;
    if (!read_part(s, 3, &part))
        return "a request has at least three numbers";
    return steps_run(s->steps, &part, is_resumed);
}

static void write_tokens(FILE *to, const uint32_t *pairs, uint32_t count)
{
    (void)fputs("tokens", to);
    for (uint32_t i = 0; i < 2 * count; i++)
        (void)fprintf(to, " %" PRIu32, pairs[i]);
    (void)fputc('\n', to);
}

static const char *tell_go(session *s)
{
    const char *wrong = steps_go(s->steps);
    if (wrong != NULL)
        return wrong;
    const uint32_t *pairs = NULL;
    uint32_t count = steps_sampled(s->steps, &pairs);
    if (s->record != NULL)
        write_tokens(s->record, pairs, count);
    if (s->options->replay != NULL)
        return NULL;
    write_tokens(stdout, pairs, count);
    return fflush(stdout) == 0 ? NULL : "nobody reads the answer";
}

/* A recorded answer. */
static const char *expect_tokens(session *s)
{
    const uint32_t *pairs = NULL;
    uint32_t count = steps_sampled(s->steps, &pairs);
    bool is_same = s->num_numbers == 2 * (size_t)count;
    for (size_t i = 0; i < s->num_numbers && is_same; i++)
        is_same = s->numbers[i] == pairs[i];
    s->num_unexpected += !is_same;
    return NULL;
}

static const char *tell(session *s)
{
    const char *word = s->line;
    if (strcmp(word, "model") == 0)
        return tell_model(s);
    if (s->steps == NULL)
        return "no model yet";
    if (strcmp(word, "preempted") == 0)
        return tell_each(s, steps_preempt);
    if (strcmp(word, "finished") == 0)
        return tell_each(s, steps_finish);
    if (strcmp(word, "new") == 0)
        return tell_new(s);
    if (strcmp(word, "run") == 0)
        return tell_run(s, false);
    if (strcmp(word, "resumed") == 0)
        return tell_run(s, true);
    if (strcmp(word, "go") == 0)
        return tell_go(s);
    if (strcmp(word, "tokens") == 0 && s->options->replay != NULL)
        return expect_tokens(s);
    return "no such word";
}

/* All lines up to the end. 0, or 1: something made no sense. */
static int listen_to(session *s)
{
    while (getline(&s->line, &s->line_bytes, s->in) > 0) {
        s->num_lines++;
        if (s->record != NULL && strncmp(s->line, "tokens", 6) != 0)
            (void)fputs(s->line, s->record);
        const char *wrong = split(s) ? NULL : "a word and numbers are expected";
        if (wrong == NULL && strcmp(s->line, "end") == 0)
            return 0;
        wrong = wrong == NULL ? tell(s) : wrong;
        if (wrong == NULL)
            continue;
        s->wrong = wrong;
        return 1;
    }
    s->wrong = "there is no end";
    return 1;
}

/* ---- the program ------------------------------------------------------------- */

static int judge(const session *s)
{
    const steps_counts *c = steps_count(s->steps);
    printf("backend %s\nrequests %" PRIu64 "\nsteps %" PRIu64 "\ncompared %" PRIu64
           "\ndiffering %" PRIu64 "\nsampled %" PRIu64 "\npreempted %" PRIu64 "\nresumed %" PRIu64
           "\nhit_tokens %" PRIu64 "\nunexpected_answers %" PRIu64 "\nbroken %d\n",
           s->options->ops->name, c->requests, c->steps, c->compared, c->differing, c->sampled,
           c->preempted, c->resumed, c->hit_tokens, s->num_unexpected, steps_was_broken(s->steps));
    bool is_same = c->compared > 0 && c->differing == 0 && s->num_unexpected == 0;
    printf("%s\n", is_same ? "every bit is the same" : "FAILED");
    return is_same ? EXIT_SAME : EXIT_DIFFERENT;
}

static int run_session(session *s)
{
    if (listen_to(s) == 0 && s->steps != NULL)
        return judge(s);
    if (s->is_disabled) {
        printf("skipped: %s\n", quire_refusal());
        return EXIT_SKIPPED;
    }
    (void)fprintf(stderr, "engine_steps: line %" PRIu64 ": %s\n", s->num_lines,
                  s->wrong != NULL ? s->wrong : "no model");
    return EXIT_WRONG;
}

static int read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return 1;
        if (strcmp(argv[i], "--backend") == 0)
            o->ops = engine_backend_find(argv[i + 1]);
        else if (strcmp(argv[i], "--record") == 0)
            o->record = argv[i + 1];
        else if (strcmp(argv[i], "--replay") == 0)
            o->replay = argv[i + 1];
        else if (strcmp(argv[i], "--break") == 0)
            o->break_at = strtoull(argv[i + 1], NULL, 10);
        else
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o = {.ops = &ENGINE_CPU_OPS};
    if (read_options(&o, argc, argv) != 0) {
        printf("engine_steps [--backend cpu|cuda] [--record FILE] [--replay FILE] [--break STEP]\n"
               "The reference engine, told its steps: see the top of tests/engine/dropin/main.c\n");
        return EXIT_WRONG;
    }
    if (o.ops == NULL) {
        printf("skipped: this program has no such backend\n");
        return EXIT_SKIPPED;
    }
    session s = {.options = &o, .in = stdin};
    s.in = o.replay == NULL ? stdin : fopen(o.replay, "r");
    s.record = o.record == NULL ? NULL : fopen(o.record, "w");
    int result = EXIT_WRONG;
    if (s.in == NULL || (o.record != NULL && s.record == NULL))
        perror("engine_steps");
    else
        result = run_session(&s);
    if (s.record != NULL && fclose(s.record) != 0)
        result = EXIT_WRONG;
    if (s.in != NULL && o.replay != NULL)
        (void)fclose(s.in);
    steps_destroy(s.steps);
    free(s.line);
    free(s.numbers);
    return result;
}
