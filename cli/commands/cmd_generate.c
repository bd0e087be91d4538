/* cli/commands/cmd_generate.c - `quire generate KIND`: a workload from a seed, as a file that
 * replay reads.
 *
 * An option that is not given is as the kind has it (generate.c); -1 stands for that here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "output/failure.h"
#include "output/made_by.h"
#include "output/packed.h"
#include "trace/generate.h"

static struct {
    uint64_t seed;
    uint64_t num_requests;
    double rate;
    uint32_t max_tokens;
    const char *out;
    const char *mix;
    generate_shape shape; /* each negative: the kind's */
} o = {.seed = 1,
       .num_requests = 5000,
       .rate = -1,
       .max_tokens = 128000,
       .out = "-",
       .shape = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};

#define MOST_TOKENS 10000000

/* clang-format off */
#define SHAPE(name, member, argument, help, least, most, ...)                                      \
    {name, OPTION_REAL, &o.shape.member, argument, help, .def = "depends on KIND", .min = least,   \
     .max = most, __VA_ARGS__}
/* clang-format on */

static const option table[] = {
    {"seed", OPTION_U64, &o.seed, "N", "the same seed gives the same workload", .def = "1",
     .section = "Workload"},
    {"requests", OPTION_U64, &o.num_requests, "N", "number of requests, turns of sessions included",
     .def = "5000", .min = 1, .max = 1e15},
    {"rate", OPTION_REAL, &o.rate, "R", "arrivals a second, of sessions where there are sessions",
     .def = "2; agent 0.1, mixed 1", .min = 1e-6, .max = 1e6},
    {"out", OPTION_TEXT, &o.out, "FILE",
     "output file; packed if it ends with .zst or .gz; -: standard output", .def = "-",
     .role = OPTION_OUTPUT},
    {"max-tokens", OPTION_U32, &o.max_tokens, "N",
     "maximum tokens of a prompt and its output together", .def = "128000", .min = 2,
     .max = MOST_TOKENS},
    {"mix", OPTION_TEXT, &o.mix, "KIND=SHARE,...", "kinds and shares of arrivals, for mixed",
     .def = "chat=40,multi-turn=20,rag=15,code=10,agent=5,unique=10"},
    SHAPE("head-tokens", head_tokens, "N",
          "length of the shared prefix: system prompt, tools, examples", 0, MOST_TOKENS,
          .section = "Shape of a request (mixed: of all kinds)"),
    SHAPE("heads", num_heads, "N", "number of different shared prefixes", 1, 65536),
    SHAPE("document-tokens", document_tokens, "N", "mean length of a document; 0: no document", 0,
          MOST_TOKENS),
    SHAPE("fresh", fresh, "SHARE", "share of requests with a document that no earlier request had",
          0, 1),
    SHAPE("user-tokens", user_tokens, "N", "mean length of the first user message", 1, MOST_TOKENS),
    SHAPE("more-tokens", more_tokens, "N", "mean length that each later turn adds", 1, MOST_TOKENS),
    SHAPE("output-tokens", output_tokens, "N", "mean length of the output", 1, MOST_TOKENS),
    SHAPE("min-turns", min_turns, "N", "minimum turns of a session", 1, 1e6),
    SHAPE("turns", turns, "N", "mean turns of a session", 1, 1e6),
    SHAPE("think-time", think_s, "S", "mean seconds before a later turn", 0, 1e6),
    SHAPE("spread", spread, "SIGMA",
          "standard deviation of the logarithm of lengths and think times; 0: all equal", 0, 4),
    {0}};

static int kind_of(const char *name, size_t length)
{
    for (int k = 0; k <= GENERATE_MIXED; k++)
        if (strlen(generate_kind_names[k]) == length &&
            strncmp(name, generate_kind_names[k], length) == 0)
            return k;
    return -1;
}

/* "chat=9,agent=1": those alone. */
static int parse_mix(const char *mix, double shares[GENERATE_KINDS])
{
    double sum = 0;
    for (int k = 0; k < GENERATE_KINDS; k++)
        shares[k] = 0;
    for (const char *at = mix; *at != 0;) {
        size_t length = strcspn(at, "=");
        int kind = kind_of(at, length);
        if (kind < 0 || kind == GENERATE_MIXED || at[length] != '=')
            return command_error(&cmd_generate,
                                 "invalid value \"%.*s\" for --mix (expected KIND=SHARE)",
                                 (int)strcspn(at, ","), at);
        char *end;
        shares[kind] = strtod(at + length + 1, &end);
        if (end == at + length + 1 || (*end != ',' && *end != 0) ||
            !(shares[kind] >= 0 && shares[kind] <= 1e9))
            return command_error(&cmd_generate,
                                 "invalid share of %s in --mix %s (expected 0 or more)",
                                 generate_kind_names[kind], mix);
        sum += shares[kind];
        at = *end == ',' ? end + 1 : end;
    }
    return sum > 0 ? 0 : command_error(&cmd_generate, "--mix %s: all shares are 0", mix);
}

/* A shape is nothing but numbers. */
static void apply_shape(generate_shape *shape)
{
    double *numbers = (double *)shape;
    const double *given = (const double *)&o.shape;
    for (size_t i = 0; i < sizeof o.shape / sizeof *given; i++)
        if (given[i] >= 0)
            numbers[i] = given[i];
    shape->head_tokens = rint(shape->head_tokens);
    shape->num_heads = rint(shape->num_heads);
    shape->min_turns = rint(shape->min_turns);
}

static int run_generate(void)
{
    int kind = kind_of(cmd_generate.arguments[0], strlen(cmd_generate.arguments[0]));
    if (kind < 0)
        return command_error(
            &cmd_generate,
            "invalid KIND \"%s\" (expected chat, multi-turn, rag, code, agent, unique or mixed)",
            cmd_generate.arguments[0]);
    generate_options options = generate_defaults((generate_kind)kind);
    options.seed = o.seed;
    options.num_requests = o.num_requests;
    if (o.rate >= 0)
        options.rate = o.rate;
    options.max_tokens = o.max_tokens;
    for (int k = 0; k < GENERATE_KINDS; k++)
        apply_shape(&options.shapes[k]);
    if (o.mix != NULL) {
        if (kind != GENERATE_MIXED)
            return command_error(&cmd_generate, "--mix needs the KIND mixed");
        int status = parse_mix(o.mix, options.shares);
        if (status != 0)
            return status;
    }
    json_t *record = made_by(&cmd_generate);
    options.made_by = json_dumps(record, JSON_REAL_PRECISION(12));
    json_decref(record);
    packed_file *file = packed_open(o.out);
    bool is_made = file != NULL && generate(&options, packed_text(file));
    bool is_written = is_made && packed_close(file);
    if (!is_made)
        packed_discard(file);
    if (!is_written)
        command_error(&cmd_generate, "%s", failure());
    free(options.made_by);
    return is_written ? 0 : 1;
}

command cmd_generate = {
    .name = "generate",
    .usage = "generate [OPTION]... KIND",
    .summary = "generates a workload: chat, multi-turn, rag, code, agent, unique or mixed",
    .examples =
        "  quire generate chat --requests 10000 --out chat.jsonl.zst\n"
        "      one system prompt of 2,048 tokens for all: 92 % of the prompt tokens are found\n"
        "  quire generate mixed --mix agent=1,chat=9 --seed 7 | quire replay -\n"
        "      sessions of agents among single questions\n"
        "  quire generate rag --fresh 0.1\n"
        "      documents that are asked for more often\n",
    .options = table,
    .max_arguments = 1,
    .words = {generate_kind_names},
    .missing = "expected one KIND: chat, multi-turn, rag, code, agent, unique or mixed",
    .run = run_generate,
};
