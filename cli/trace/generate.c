/* cli/trace/generate.c - makes up workloads: see generate.h. */
#include "generate.h"
#include "content.h"
#include "output/failure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *const generate_kind_names[GENERATE_KINDS + 2] = {"chat",  "multi-turn", "rag",   "code",
                                                             "agent", "unique",     "mixed", NULL};

enum {
    PAST_REQUESTS = 1 << 16, /* whose documents may be asked for again */
    MAX_HEADS = 1 << 16,
};

#define DOCUMENT_SPREAD 0.25 /* passages are cut to about one length */

typedef struct document {
    uint64_t content;
    uint32_t num_tokens;
} document;

typedef struct maker {
    const generate_options *options;
    FILE *out;
    uint64_t random;
    uint64_t num_contents;
    uint64_t num_sessions;
    uint64_t num_requests;
    double now_s;
    uint64_t heads[GENERATE_KINDS]; /* content of the first of each kind */
    document *past;                 /* of the requests before, a ring */
    uint64_t num_past;
} maker;

/* Shares of prompt tokens that an unlimited cache finds, at block size 16: 92, 78, 65, 55, -, 5 %.
 * docs/traces.md shows how they come about. */
/* clang-format off */
static const generate_shape usual_shapes[GENERATE_KINDS] = {
    /*                         head heads  doc. fresh  user more output min turns think spread */
    [GENERATE_CHAT] =       {  2048,    1,    0,    0,  178,   0,  220,  1,    0,    0,  0.8},
    [GENERATE_MULTI_TURN] = {     0,    0,    0,    0,  250, 210,  240,  3,    4,   30,  0.8},
    [GENERATE_RAG] =        {   128,    1, 2400, 0.34,   70,   0,  200,  1,    0,    0,  0.8},
    [GENERATE_CODE] =       {  1200,    8,    0,    0,  980,   0,  350,  1,    0,    0,  0.8},
    [GENERATE_AGENT] =      { 14336,    4,    0,    0,  600, 1400, 400,  3,   25,    8,  1.2},
    [GENERATE_UNIQUE] =     {    64,    1,    0,    0, 1210,   0,  250,  1,    0,    0,  0.8},
};
/* clang-format on */

static const double usual_shares[GENERATE_KINDS] = {
    [GENERATE_CHAT] = 40, [GENERATE_MULTI_TURN] = 20, [GENERATE_RAG] = 15,
    [GENERATE_CODE] = 10, [GENERATE_AGENT] = 5,       [GENERATE_UNIQUE] = 10};

generate_options generate_defaults(generate_kind kind)
{
    generate_options options = {
        .kind = kind, .seed = 1, .num_requests = 5000, .max_tokens = 128000};
    options.rate = kind == GENERATE_AGENT ? 0.1 : kind == GENERATE_MIXED ? 1 : 2;
    for (int k = 0; k < GENERATE_KINDS; k++) {
        options.shapes[k] = usual_shapes[k];
        options.shares[k] = usual_shares[k];
    }
    return options;
}

/* ---- chance ---------------------------------------------------------------- */

/* In (0, 1]: its logarithm is finite. */
static double draw_share(maker *m)
{
    return ((double)(content_random(&m->random) >> 11) + 1) * 0x1p-53;
}

static uint64_t draw_below(maker *m, uint64_t n)
{
    return (uint64_t)((double)(content_random(&m->random) >> 11) * 0x1p-53 * (double)n);
}

/* Log-normal with this mean. */
static double draw_about(maker *m, double mean, double spread)
{
    double radius = sqrt(-2 * log(draw_share(m)));
    double normal = radius * cos(6.283185307179586 * draw_share(m));
    return mean * exp(spread * normal - spread * spread / 2);
}

static uint32_t draw_tokens(maker *m, double mean, double spread)
{
    double tokens = rint(draw_about(m, mean, spread));
    double most = m->options->max_tokens;
    return (uint32_t)fmin(fmax(tokens, 1), most);
}

/* So many that `used` tokens and they stay within the limit, but one at least. */
static uint32_t fit(const maker *m, uint64_t used, uint32_t num_tokens)
{
    uint64_t most = m->options->max_tokens;
    uint64_t left = used < most ? most - used : 1;
    return num_tokens < left ? num_tokens : (uint32_t)left;
}

/* min_turns, and behind each as many more as a coin allows. */
static uint32_t draw_turns(maker *m, const generate_shape *shape)
{
    double more = shape->turns - shape->min_turns;
    if (!(more > 0))
        return (uint32_t)shape->min_turns;
    double turns = floor(log(draw_share(m)) / log(more / (more + 1)));
    return (uint32_t)(shape->min_turns + fmin(turns, 1e6));
}

static generate_kind draw_kind(maker *m)
{
    const generate_options *options = m->options;
    if (options->kind != GENERATE_MIXED)
        return options->kind;
    double sum = 0;
    for (int k = 0; k < GENERATE_KINDS; k++)
        sum += options->shares[k];
    double at = draw_share(m) * sum;
    int chosen = 0;
    for (int k = 0; k < GENERATE_KINDS; k++) {
        if (options->shares[k] > 0)
            chosen = k;
        at -= options->shares[k];
        if (at <= 0 && options->shares[k] > 0)
            break;
    }
    return (generate_kind)chosen;
}

/* ---- prompts --------------------------------------------------------------- */

static document draw_document(maker *m, const generate_shape *shape)
{
    document d;
    if (m->num_past == 0 || draw_share(m) <= shape->fresh) {
        d.content = ++m->num_contents;
        d.num_tokens = draw_tokens(m, shape->document_tokens, DOCUMENT_SPREAD);
    } else {
        uint64_t known = m->num_past < PAST_REQUESTS ? m->num_past : PAST_REQUESTS;
        d = m->past[draw_below(m, known)];
    }
    m->past[m->num_past++ % PAST_REQUESTS] = d;
    return d;
}

/* Writes the first prompt; how many tokens it has. */
static uint64_t write_prompt(maker *m, generate_kind kind)
{
    const generate_shape *shape = &m->options->shapes[kind];
    uint64_t num_tokens = 0;
    fprintf(m->out, "\"prompt\": [");
    if (shape->head_tokens > 0) {
        uint64_t head = m->heads[kind] + draw_below(m, (uint64_t)shape->num_heads);
        fprintf(m->out, "[%" PRIu64 ", %.0f], ", head, shape->head_tokens);
        num_tokens += (uint64_t)shape->head_tokens;
    }
    if (shape->document_tokens > 0) {
        document d = draw_document(m, shape);
        fprintf(m->out, "[%" PRIu64 ", %" PRIu32 "], ", d.content, d.num_tokens);
        num_tokens += d.num_tokens;
    }
    uint32_t words = draw_tokens(m, shape->user_tokens, shape->spread);
    words = fit(m, num_tokens + 1, words); /* and one to generate */
    fprintf(m->out, "[%" PRIu64 ", %" PRIu32 "]]", ++m->num_contents, words);
    return num_tokens + words;
}

static void write_output(maker *m, uint32_t num_tokens, bool is_last)
{
    fprintf(m->out, ", \"output\": [%" PRIu64 ", %" PRIu32 "]%s}\n", ++m->num_contents, num_tokens,
            is_last ? ", \"last\": true" : "");
    m->num_requests++;
}

/* What a later turn adds. */
typedef struct step {
    uint32_t words;
    uint32_t output;
    double think_s;
} step;

static step draw_step(maker *m, const generate_shape *shape)
{
    double words = shape->more_tokens > 0 ? shape->more_tokens : shape->user_tokens;
    step s;
    s.words = draw_tokens(m, words, shape->spread);
    s.output = draw_tokens(m, shape->output_tokens, shape->spread);
    s.think_s = draw_about(m, shape->think_s, shape->spread);
    return s;
}

/* A request, or a session of them: its turns stand together. A turn that would not fit into
 * max_tokens any more is not made, so the one before has to know. */
static void make_arrival(maker *m)
{
    const generate_options *options = m->options;
    generate_kind kind = draw_kind(m);
    const generate_shape *shape = &options->shapes[kind];
    uint64_t turns = draw_turns(m, shape);
    uint64_t left = options->num_requests - m->num_requests;
    if (turns > left)
        turns = left;
    bool is_session = shape->turns > 1 || shape->min_turns > 1;
    fprintf(m->out, "{\"time\": %.3f, ", m->now_s);
    if (is_session)
        fprintf(m->out, "\"session\": %" PRIu64 ", ", ++m->num_sessions);
    uint64_t num_tokens = write_prompt(m, kind);
    uint32_t output = fit(m, num_tokens, draw_tokens(m, shape->output_tokens, shape->spread));
    num_tokens += output;
    for (uint64_t turn = 1; turn < turns; turn++) {
        step s = draw_step(m, shape);
        if (num_tokens + s.words + s.output > options->max_tokens)
            break;
        write_output(m, output, false);
        fprintf(m->out,
                "{\"session\": %" PRIu64 ", \"think\": %.3f, \"more\": [[%" PRIu64 ", %" PRIu32
                "]]",
                m->num_sessions, s.think_s, ++m->num_contents, s.words);
        num_tokens += s.words + s.output;
        output = s.output;
    }
    write_output(m, output, is_session);
}

bool generate(const generate_options *options, FILE *out)
{
    maker m = {.options = options, .out = out, .random = options->seed};
    m.past = calloc(PAST_REQUESTS, sizeof *m.past);
    if (m.past == NULL)
        return fail_with("not enough memory") == 0;
    for (int k = 0; k < GENERATE_KINDS; k++) {
        m.heads[k] = m.num_contents + 1;
        m.num_contents += MAX_HEADS;
    }
    fprintf(m.out, "{\"quire_workload\": 1, \"kind\": \"%s\", \"seed\": %" PRIu64,
            generate_kind_names[options->kind], options->seed);
    if (options->made_by != NULL)
        fprintf(m.out, ", \"made_by\": %s", options->made_by);
    fprintf(m.out, "}\n");
    while (m.num_requests < options->num_requests) {
        make_arrival(&m);
        m.now_s -= 1 / options->rate * log(draw_share(&m));
    }
    free(m.past);
    return true;
}
