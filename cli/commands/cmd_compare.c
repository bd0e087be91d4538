/* cmd_compare.c - `quire compare`: two results side by side.
 *
 *      A.json ─► "ttft_ms.p50" 12.5 ─┐
 *                                    ├─► 12.5   13.0   +0.5   +4.0 %   red: a latency that grows
 *      B.json ─► "ttft_ms.p50" 13.0 ─┘
 *
 * Both must be results of one kind: replay (and serve), sweep, curve or plan.
 */
#include "commands.h"
#include "output/grown.h"
#include "output/progress.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 192, NUM_ARGUMENTS = 2, EXIT_BEYOND_LIMIT = 1 };

static struct {
    const char *fail_on;
    bool all;
} o;

static const option table[] = {
    {"fail-on", OPTION_TEXT, &o.fail_on, "LIST",
     "exit with 1 when B is beyond a limit: hit_rate:-1%,ttft_ms.p99:+5%,preemptions:+0",
     .def = NULL},
    {"all", OPTION_SWITCH, &o.all, NULL, "also print values that are equal in both", .def = "off"},
    {0}};

/* ---- values by path -------------------------------------------------------- */

/* A value of either, and the same of the other; NULL: it has none. */
typedef struct pair {
    char path[MAX_PATH];
    const json_t *a;
    const json_t *b;
} pair;

typedef struct pair_list {
    pair *pairs;
    uint32_t num_pairs;
    uint32_t room;
    bool no_memory;
} pair_list;

static void add_pair(pair_list *list, const char *path, const json_t *a, const json_t *b)
{
    pair added = {.a = a, .b = b};
    snprintf(added.path, sizeof added.path, "%s", path);
    if (grow(&list->pairs, list->num_pairs, &list->room, UINT32_MAX, sizeof added))
        list->pairs[list->num_pairs++] = added;
    else
        list->no_memory = true;
}

static bool has_parts(const json_t *value)
{
    return json_is_object(value) || json_is_array(value);
}

/* Sentences say in words what other values say. */
static bool is_prose(const char *path)
{
    size_t length = strlen(path);
    return length >= 12 && strcmp(path + length - 12, "verdict.text") == 0;
}

static void collect(pair_list *list, const char *path, const json_t *a, const json_t *b);

static void collect_part(pair_list *list, const char *path, const char *name, const json_t *a,
                         const json_t *b)
{
    char longer[MAX_PATH];
    snprintf(longer, sizeof longer, "%.*s%s%.60s", MAX_PATH - 64, path, path[0] ? "." : "", name);
    collect(list, longer, a, b);
}

/* In the order of A, then what only B has. Depth is bounded by the JSON reader. */
static void collect(pair_list *list, const char *path, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    if (!has_parts(a) && !has_parts(b)) {
        if (!is_prose(path))
            add_pair(list, path, a, b);
        return;
    }
    json_object_foreach((json_t *)a, key, value)
        collect_part(list, path, key, value, json_object_get(b, key));
    json_object_foreach((json_t *)b, key, value) if (json_object_get(a, key) == NULL)
        collect_part(list, path, key, NULL, value);
    size_t most = json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);
    for (size_t i = 0; i < most; i++) {
        char number[32];
        snprintf(number, sizeof number, "%zu", i);
        collect_part(list, path, number, json_array_get(a, i), json_array_get(b, i));
    }
}

/* ---- rows ------------------------------------------------------------------ */

/* 1: more is better, -1: less is better, 0: neither. By the first name of the path that says it. */
static int direction_of(const char *path)
{
    static const struct {
        const char *name;
        int direction;
    } known[] = {{"goodput", 1},      {"hit_", 1},       {"ideal_", 0},    {"ttft_ms", -1},
                 {"tpot_ms", -1},     {"e2e_ms", -1},    {"queue_ms", -1}, {"preemptions", -1},
                 {"recomputed_", -1}, {"dropped_", -1},  {"evicted_", -1}, {"_per_s", 1},
                 {"speed_factor", 1}, {"wall_s", -1},    {"errors", -1},   {"simulated_s", -1},
                 {"max_waiting", -1}, {"not_ready_", -1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(path, known[i].name) != NULL)
            return known[i].direction;
    return 0;
}

static void format_value(char *text, size_t bytes, const json_t *value)
{
    if (value == NULL)
        snprintf(text, bytes, "-");
    else if (json_is_integer(value))
        snprintf(text, bytes, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, bytes, "%.6g", json_real_value(value));
    else if (json_is_string(value))
        snprintf(text, bytes, "%.40s", json_string_value(value));
    else
        snprintf(text, bytes, "%s",
                 json_is_true(value)    ? "true"
                 : json_is_false(value) ? "false"
                                        : "null");
}

/* Per cent of A; false where A is 0. */
static bool change_of(const pair *p, double *difference, double *per_cent)
{
    double a = json_number_value(p->a);
    *difference = json_number_value(p->b) - a;
    *per_cent = a != 0 ? 100 * *difference / fabs(a) : 0;
    return a != 0;
}

static void print_row(const pair *p, int width, bool has_colors)
{
    char a[48];
    char b[48];
    format_value(a, sizeof a, p->a);
    format_value(b, sizeof b, p->b);
    printf("%-*s %16s %16s", width, p->path, a, b);
    if (json_is_number(p->a) && json_is_number(p->b)) {
        double difference;
        double per_cent;
        bool has_share = change_of(p, &difference, &per_cent);
        int direction = direction_of(p->path) * (difference > 0 ? 1 : difference < 0 ? -1 : 0);
        const char *color = direction > 0 ? "\033[32m" : direction < 0 ? "\033[31m" : "";
        printf(" %s%+14.6g", has_colors ? color : "", difference);
        if (has_share)
            printf(" %+9.2f %%", per_cent);
        printf("%s", has_colors && direction != 0 ? "\033[0m" : "");
    }
    putchar('\n');
}

static bool is_same(const pair *p)
{
    if (json_is_number(p->a) && json_is_number(p->b))
        return json_number_value(p->a) == json_number_value(p->b);
    return p->a != NULL && p->b != NULL && json_equal(p->a, p->b);
}

static void print_rows(const pair_list *list)
{
    bool has_colors = terminal_has_colors(stdout);
    int width = 24;
    uint32_t num_same = 0;
    for (size_t i = 0; i < list->num_pairs; i++) {
        int length = (int)strlen(list->pairs[i].path);
        bool is_shown = o.all || !is_same(&list->pairs[i]);
        width = is_shown && length > width ? length : width;
    }
    printf("%-*s %16s %16s %14s %11s\n", width, "", "A", "B", "B - A", "of A");
    for (size_t i = 0; i < list->num_pairs; i++) {
        num_same += is_same(&list->pairs[i]);
        if (o.all || !is_same(&list->pairs[i]))
            print_row(&list->pairs[i], width, has_colors);
    }
    printf("%u values, %u equal\n", list->num_pairs, num_same);
}

/* ---- limits ---------------------------------------------------------------- */

static const pair *find_pair(const pair_list *list, const char *path)
{
    for (size_t i = 0; i < list->num_pairs; i++)
        if (strcmp(list->pairs[i].path, path) == 0)
            return &list->pairs[i];
    return NULL;
}

/* "hit_rate:-1%": B may be smaller by 1 % and not more. 0, EXIT_BEYOND_LIMIT, or 2. */
static int check_limit(const pair_list *list, char *text)
{
    char *colon = strrchr(text, ':');
    if (colon == NULL || (colon[1] != '+' && colon[1] != '-'))
        return command_error(
            &cmd_compare, "invalid value \"%s\" for --fail-on (expected KEY:-LIMIT or KEY:+LIMIT)",
            text);
    char *end;
    double limit = strtod(colon + 1, &end);
    bool is_share = *end == '%';
    bool is_below = colon[1] == '-';
    if (end == colon + 1 || end[is_share] != '\0' || !isfinite(limit))
        return command_error(
            &cmd_compare, "invalid limit \"%s\" for --fail-on (expected a number or a percentage)",
            colon + 1);
    *colon = '\0';
    const pair *p = find_pair(list, text);
    if (p == NULL || !json_is_number(p->a) || !json_is_number(p->b))
        return command_error(
            &cmd_compare, "invalid key \"%s\" for --fail-on (no such number in both files)", text);
    double difference;
    double per_cent;
    bool has_share = change_of(p, &difference, &per_cent);
    if (is_share && !has_share && difference != 0)
        per_cent = difference > 0 ? HUGE_VAL : -HUGE_VAL; /* from 0, any change is beyond */
    double change = is_share ? per_cent : difference;
    if (is_below ? change >= limit : change <= limit)
        return 0;
    printf("limit exceeded: %s changed by %+.6g%s (allowed %+.6g%s)\n", text, change,
           is_share ? " %" : "", limit, is_share ? " %" : "");
    return EXIT_BEYOND_LIMIT;
}

static int check_limits(const pair_list *list)
{
    int status = 0;
    for (const char *at = o.fail_on; at != NULL && *at != '\0';) {
        char text[MAX_PATH];
        size_t length = strcspn(at, ",");
        if (length >= sizeof text)
            return command_error(&cmd_compare,
                                 "invalid value \"%.40s...\" for --fail-on (too long)", at);
        memcpy(text, at, length);
        text[length] = '\0';
        int one = check_limit(list, text);
        if (one > EXIT_BEYOND_LIMIT)
            return one;
        status |= one;
        at += length + (at[length] == ',');
    }
    return status;
}

/* ---- the command ----------------------------------------------------------- */

/* Results are known by their keys, so that results without made_by can be compared too. */
static const char *kind_of(const json_t *root)
{
    static const struct {
        const char *name;
        const char *keys[3];
    } kinds[] = {{"replay", {"hit_rate", "ttft_ms", "steps"}},
                 {"sweep", {"axes", "runs", "trace"}},
                 {"curve", {"sizes", "points", "min_blocks"}},
                 {"plan", {"kv_bytes", "block_bytes", "max_concurrency"}}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_object_get(root, kinds[i].keys[0]) != NULL &&
            json_object_get(root, kinds[i].keys[1]) != NULL &&
            json_object_get(root, kinds[i].keys[2]) != NULL)
            return kinds[i].name;
    return NULL;
}

/* 0, or exit status 2 after a sentence. */
static int check_kinds(const json_t *a, const json_t *b)
{
    const char *kinds[NUM_ARGUMENTS] = {kind_of(a), kind_of(b)};
    for (int i = 0; i < NUM_ARGUMENTS; i++)
        if (kinds[i] == NULL)
            return command_error(&cmd_compare,
                                 "%s: not a result of quire replay, serve, sweep, curve or plan",
                                 cmd_compare.arguments[i]);
    if (strcmp(kinds[0], kinds[1]) == 0)
        return 0;
    return command_error(
        &cmd_compare,
        "cannot compare results of different commands: %s is from quire %s, %s is from quire %s",
        cmd_compare.arguments[0], kinds[0], cmd_compare.arguments[1], kinds[1]);
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root =
        strcmp(path, "-") == 0 ? json_loadf(stdin, 0, &error) : json_load_file(path, 0, &error);
    if (root == NULL && error.line > 0)
        command_error(&cmd_compare, "%s:%d: %s", path, error.line, error.text);
    else if (root == NULL)
        command_error(&cmd_compare, "%s", error.text);
    return root;
}

static int run_compare(void)
{
    pair_list list = {0};
    int status = 1;
    json_t *a = load(cmd_compare.arguments[0]);
    json_t *b = a != NULL ? load(cmd_compare.arguments[1]) : NULL;
    if (a != NULL && b != NULL)
        status = check_kinds(a, b);
    if (a != NULL && b != NULL && status == 0) {
        collect(&list, "", a, b);
        printf("A  %s\nB  %s\n\n", cmd_compare.arguments[0], cmd_compare.arguments[1]);
        print_rows(&list);
        status = list.no_memory ? 1 : check_limits(&list);
        if (list.no_memory)
            command_error(&cmd_compare, "not enough memory");
    }
    free(list.pairs);
    json_decref(a);
    json_decref(b);
    return status;
}

command cmd_compare = {
    .name = "compare",
    .usage = "compare [OPTION]... A.json B.json",
    .summary = "puts two results of replay, sweep or curve side by side, with their differences",
    .examples = "  quire compare before.json after.json\n"
                "      what differs: before, after, difference, per cent\n"
                "  quire compare --fail-on hit_rate:-1%,ttft_ms.p99:+10% before.json after.json\n"
                "      for CI: 1 when the hit rate falls by more than 1 % or the p99 grows by more "
                "than 10 %\n",
    .options = table,
    .max_arguments = NUM_ARGUMENTS,
    .reads_arguments = true,
    .missing = "expected two files",
    .run = run_compare,
};
