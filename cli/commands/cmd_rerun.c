/* cmd_rerun.c - `quire rerun`: repeats the command that made a result.
 *
 *      result.json ─► made_by ─► quire replay --tp=4 --speed=0.5 [further options] -- day.jsonl
 *                        └─► is the trace the same bytes?
 *
 * Options that follow the result's name replace those of the result. An option is passed on if its
 * value is not the default of this program.
 */
#define _GNU_SOURCE /* asprintf */
#include "commands.h"
#include "output/grown.h"
#include "output/made_by.h"
#include "output/output.h"

#include <quire/version.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *trace_path;
    bool changed_trace;
} o;

static const option table[] = {{"trace-path", OPTION_TEXT, &o.trace_path, "FILE",
                                "path of the trace", .def = "as in the result"},
                               {"changed-trace", OPTION_SWITCH, &o.changed_trace, NULL,
                                "run even if the trace has changed since the result was made",
                                .def = "off"},
                               {0}};

/* ---- what is repeated -------------------------------------------------------- */

static command *find_command(const char *name)
{
    static command *const known[] = {&cmd_replay, &cmd_sweep, &cmd_curve, &cmd_fleet, &cmd_size};
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    return NULL;
}

/* ---- words of a command line ------------------------------------------------- */

typedef struct words {
    char **texts; /* and NULL */
    uint32_t num;
    uint32_t room;
    bool no_memory;
} words;

static void add_word(words *w, const char *text)
{
    char *copy = strdup(text);
    if (copy != NULL && grow(&w->texts, w->num + 1, &w->room, INT32_MAX, sizeof copy)) {
        w->texts[w->num++] = copy;
        w->texts[w->num] = NULL;
    } else {
        free(copy);
        w->no_memory = true;
    }
}

static void free_words(words *w)
{
    for (uint32_t i = 0; i < w->num; i++)
        free(w->texts[i]);
    free(w->texts);
}

/* A value as an option takes it; false: it is no value. */
static bool print_value(FILE *out, const json_t *value)
{
    if (json_is_string(value))
        fputs(json_string_value(value), out);
    else if (json_is_integer(value))
        fprintf(out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        fprintf(out, "%.17g", json_real_value(value));
    else
        return false;
    return true;
}

/* "--name=value", "--name", "--no-name", or for a list of a sweep "--name=a,b". */
static bool add_option(words *w, const option *opt, const json_t *value)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    bool ok = out != NULL;
    bool is_list = json_is_array(value);
    if (!ok)
        return false;
    if (opt->role == OPTION_ADDITION) { /* it adds to the result; the file itself is not wanted */
        fprintf(out, "--%s=/dev/null", opt->name);
    } else if (opt->kind == OPTION_SWITCH && !is_list) {
        ok = json_is_boolean(value);
        fprintf(out, "--%s%s", json_is_true(value) ? "" : "no-", opt->name);
    } else {
        fprintf(out, "--%s=", opt->name);
        for (size_t i = 0; i < json_array_size(value); i++) {
            fputs(i == 0 ? "" : opt->has_commas ? ";" : ",", out);
            ok = ok && print_value(out, json_array_get(value, i));
        }
        ok = ok && (is_list || print_value(out, value));
    }
    fclose(out);
    if (ok)
        add_word(w, text);
    free(text);
    return ok;
}

/* An option that is given several times: "--name=a", "--name=b". */
static bool add_options(words *w, const option *opt, const json_t *values)
{
    size_t index;
    json_t *value;
    bool ok = json_is_array(values);
    json_array_foreach(values, index, value)
    {
        ok = ok && add_option(w, opt, value);
    }
    return ok;
}

/* Whether the words have the option. */
static bool has_option(const words *w, const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < w->num; i++) {
        const char *text = w->texts[i];
        bool is_it = strncmp(text, "--", 2) == 0 && strncmp(text + 2, name, length) == 0;
        if (is_it && (text[2 + length] == '\0' || text[2 + length] == '='))
            return true;
    }
    return false;
}

/* What this program's defaults would not give. A list of the rest replaces the recorded one. */
static int add_recorded(words *w, const command *c, const json_t *record, const words *rest,
                        const char *path)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(record, "options"), name, value)
    {
        const option *opt = option_find(c, name);
        if (opt == NULL)
            return command_error(&cmd_rerun,
                                 "%s: made with --%s, which is not an option of this version", path,
                                 name);
        json_t *now = option_json(opt);
        bool is_wanted = !json_is_null(value) && !json_equal(value, now);
        json_decref(now);
        bool is_list = opt->kind == OPTION_LIST;
        if (!is_wanted || (is_list && has_option(rest, name)))
            continue;
        if (!(is_list ? add_options(w, opt, value) : add_option(w, opt, value)))
            return command_error(&cmd_rerun, "%s: invalid value of \"%s\" in made_by", path, name);
    }
    return 0;
}

/* ---- the trace ----------------------------------------------------------------- */

/* As recorded; where there is no such file, the same relative path beside the result. */
static char *locate_trace(const char *recorded, const char *result)
{
    const char *path = o.trace_path != NULL ? o.trace_path : recorded;
    const char *slash = strrchr(result, '/');
    if (o.trace_path != NULL || path[0] == '/' || slash == NULL || access(path, R_OK) == 0)
        return strdup(path);
    char *beside = NULL;
    if (asprintf(&beside, "%.*s%s", (int)(slash - result) + 1, result, path) < 0)
        return NULL;
    if (access(beside, R_OK) == 0)
        return beside;
    free(beside);
    return strdup(path);
}

static int check_trace(const json_t *before, const char *path)
{
    const char *hash = json_string_value(json_object_get(before, "sha256"));
    if (strcmp(path, "-") == 0)
        return command_error(
            &cmd_rerun, "the trace was read from standard input; give a file with --trace-path");
    if (access(path, R_OK) != 0) {
        command_error(&cmd_rerun, "%s: cannot read the trace; give its path with --trace-path",
                      path);
        return 1;
    }
    if (o.changed_trace)
        return 0;
    json_t *after = made_by_trace(path);
    const char *now = json_string_value(json_object_get(after, "sha256"));
    bool is_same = hash != NULL && now != NULL && strcmp(hash, now) == 0;
    if (!is_same)
        command_error(&cmd_rerun,
                      "%s: the trace has changed (sha256 %.12s, expected %.12s); use "
                      "--changed-trace to run it anyway",
                      path, now != NULL ? now : "unknown", hash != NULL ? hash : "unknown");
    json_decref(after);
    return is_same ? 0 : 1;
}

/* ---- the command --------------------------------------------------------------- */

/* Takes the options of rerun itself out of argv; the others go to the command. */
static int take_own(int argc, char **argv, words *rest)
{
    for (int i = 2; i < argc; i++) {
        char *own[] = {argv[0], argv[i], i + 1 < argc ? argv[i + 1] : NULL};
        bool is_path = strcmp(argv[i], "--trace-path") == 0;
        bool is_own = is_path || strncmp(argv[i], "--trace-path=", 13) == 0 ||
                      strcmp(argv[i], "--changed-trace") == 0 ||
                      strcmp(argv[i], "--no-changed-trace") == 0;
        if (!is_own) {
            add_word(rest, argv[i]);
            continue;
        }
        int leave = command_parse(&cmd_rerun, is_path && i + 1 < argc ? 3 : 2, own);
        if (leave != 0)
            return leave - 1;
        i += is_path;
    }
    return 0;
}

/* A command may reorder its argv: it gets a copy, so that each word is freed once. */
static int run_words(command *c, const words *w)
{
    size_t bytes = ((size_t)w->num + 1) * sizeof *w->texts;
    char **argv = malloc(bytes);
    if (argv == NULL)
        return command_failed(&cmd_rerun, "not enough memory");
    memcpy(argv, w->texts, bytes);
    int status = command_run(c, (int)w->num, argv);
    free(argv);
    return status;
}

/* Finds a trace of the record, checks it, and adds it to the words. */
static int add_trace(words *w, const json_t *trace, const char *result)
{
    const char *recorded = json_string_value(json_object_get(trace, "path"));
    char *found = recorded != NULL ? locate_trace(recorded, result) : NULL;
    int status =
        found == NULL ? command_failed(&cmd_rerun, "not enough memory") : check_trace(trace, found);
    if (status == 0)
        add_word(w, found);
    free(found);
    return status;
}

static int add_traces(words *w, json_t *trace, const char *result)
{
    const json_t *traces = json_object_get(trace, "traces");
    size_t index;
    json_t *one;
    int status = 0;
    if (traces == NULL)
        return add_trace(w, trace, result);
    if (o.trace_path != NULL)
        return command_error(&cmd_rerun, "--trace-path cannot be used with a result of %zu traces",
                             json_array_size(traces));
    json_array_foreach(traces, index, one)
    {
        if (status == 0)
            status = add_trace(w, one, result);
    }
    return status;
}

static int repeat(const json_t *record, const char *path, const words *rest)
{
    const char *name = json_string_value(json_object_get(record, "command"));
    const char *version = json_string_value(json_object_get(record, "version"));
    json_t *trace = json_object_get(record, "trace");
    const char *recorded = json_string_value(json_object_get(trace, "path"));
    command *c = find_command(name);
    if (c == NULL || recorded == NULL)
        return command_error(
            &cmd_rerun,
            "%s: not a result of quire replay, fleet, size, sweep or curve (\"made_by\" is "
            "missing or names another command)",
            path);
    words w = {0};
    words traces = {0};
    add_word(&w, c->name);
    int status = add_traces(&traces, trace, path);
    if (status == 0)
        status = add_recorded(&w, c, record, rest, path);
    for (uint32_t i = 0; i < rest->num; i++)
        add_word(&w, rest->texts[i]);
    add_word(&w, "--");
    for (uint32_t i = 0; i < traces.num; i++)
        add_word(&w, traces.texts[i]);
    if (w.no_memory || traces.no_memory)
        status = command_failed(&cmd_rerun, "not enough memory");
    if (status == 0 && (version == NULL || strcmp(version, quire_version_string()) != 0))
        command_error(&cmd_rerun, "%s was made by quire %s; this is %s", path,
                      version != NULL ? version : "of unknown version", quire_version_string());
    if (status == 0)
        status = run_words(c, &w);
    free_words(&traces);
    free_words(&w);
    return status;
}

static int run_rerun(int argc, char **argv)
{
    json_error_t error;
    words rest = {0};
    if (argc < 2 || argv[1][0] == '-') { /* help, or an option that there is not */
        int leave = command_parse(&cmd_rerun, argc, argv);
        return leave != 0 ? leave - 1 : command_error(&cmd_rerun, "expected RESULT.json first");
    }
    struct stat result;
    int status = take_own(argc, argv, &rest);
    if (stat(argv[1], &result) == 0)
        output_protect(&result);
    json_t *root = status == 0 ? json_load_file(argv[1], 0, &error) : NULL;
    if (status == 0 && root == NULL)
        status = command_failed(&cmd_rerun, "%s: %s", argv[1], error.text);
    if (status == 0)
        status = repeat(json_object_get(root, "made_by"), argv[1], &rest);
    json_decref(root);
    free_words(&rest);
    return status;
}

command cmd_rerun = {
    .name = "rerun",
    .usage = "rerun RESULT.json [OPTION]...",
    .summary = "repeats the replay, fleet, size, sweep or curve that made a result, with other "
               "options if given",
    .examples =
        "  quire rerun result.json\n"
        "      the same command on the same trace; prints its report\n"
        "  quire rerun result.json --gpu H100 --json h100.json\n"
        "      the same with another GPU; then: quire compare result.json h100.json\n"
        "  quire rerun requests.csv.meta.json --trace-path /data/day.jsonl --csv again.csv\n"
        "      from the file beside a CSV; the trace is elsewhere now\n\n"
        "  Takes the options of the command that made the result as well. With --deterministic\n"
        "  the result has the same bytes.\n",
    .options = table,
    .run_line = run_rerun,
};
