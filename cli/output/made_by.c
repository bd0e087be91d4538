#include "made_by.h"

#include "base/hex.h"
#include "failure.h"
#include "file_target.h"
#include "trace/files.h"

#include <quire/version.h>

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- options --------------------------------------------------------------- */

/* Results are written with 9 digits or more. A number that needs more digits is a text. */
static json_t *real_json(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    if (strtod(text, NULL) == value)
        return json_real(value);
    snprintf(text, sizeof text, "%.17g", value);
    return json_string(text);
}

static json_t *list_json(const option_list *list)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < list->count; i++)
        json_array_append_new(array, json_string(list->texts[i]));
    return array;
}

/* A number below the range, or 0 where the default is a phrase such as "from the memory" (no digit
 * begins it), stands for "not set". */
static bool is_unset(const option *opt, double value)
{
    bool has_phrase = opt->def != NULL && !(opt->def[0] >= '0' && opt->def[0] <= '9');
    return value < opt->min || (value == 0 && has_phrase);
}

json_t *option_json(const option *opt)
{
    if (opt->is_given != NULL && !*opt->is_given)
        return json_null(); /* that it is given matters */
    switch (opt->kind) {
    case OPTION_SWITCH:
        return json_boolean(*(const bool *)opt->value);
    case OPTION_TEXT: {
        const char *text = *(const char *const *)opt->value;
        return text == NULL ? json_null() : json_string(text);
    }
    case OPTION_LIST:
        return list_json(opt->value);
    case OPTION_CHOICE:
        return json_string(opt->choices[*(const int *)opt->value]);
    case OPTION_U32: {
        uint32_t value = *(const uint32_t *)opt->value;
        return is_unset(opt, value) ? json_null() : json_integer(value);
    }
    case OPTION_U64: {
        uint64_t value = *(const uint64_t *)opt->value;
        if (is_unset(opt, (double)value))
            return json_null();
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)value);
        return value > INT64_MAX ? json_string(text) : json_integer((json_int_t)value);
    }
    default: {
        double value = *(const double *)opt->value;
        return is_unset(opt, value) ? json_null() : real_json(value);
    }
    }
}

static json_t *options_json(const command *cmd)
{
    json_t *options = json_object();
    for (const option *opt = cmd->options; opt->name != NULL; opt++) {
        bool is_addition = opt->role == OPTION_ADDITION;
        if (opt->role == OPTION_OUTPUT || (is_addition && *(const char **)opt->value == NULL))
            continue;
        json_t *value = is_addition ? json_true() : option_json(opt);
        if (opt->is_rare && json_is_null(value))
            json_decref(value);
        else
            json_object_set_new(options, opt->name, value);
    }
    return options;
}

/* ---- the trace ------------------------------------------------------------- */

enum { READ_BYTES = 1 << 17, SHA256_BYTES = 32 };

static bool hash_file(FILE *file, char hex[2 * SHA256_BYTES + 1])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned char *bytes = malloc(READ_BYTES);
    bool ok =
        context != NULL && bytes != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    size_t n = 1;
    while (ok && (n = fread(bytes, 1, READ_BYTES, file)) > 0)
        ok = EVP_DigestUpdate(context, bytes, n) == 1;
    ok = ok && ferror(file) == 0 && EVP_DigestFinal_ex(context, digest, NULL) == 1;
    if (ok)
        *qr_hex_write(hex, digest, SHA256_BYTES) = 0;
    free(bytes);
    EVP_MD_CTX_free(context);
    return ok;
}

static json_t *trace_record(const char *path, bool has_hash, uint64_t num_bytes, const char *hex)
{
    json_t *trace = json_object();
    json_object_set_new(trace, "path", json_string(path)); /* no key where it is no UTF-8 */
    json_object_set_new(trace, "bytes",
                        has_hash ? json_integer((json_int_t)num_bytes) : json_null());
    json_object_set_new(trace, "sha256", has_hash ? json_string(hex) : json_null());
    return trace;
}

static json_t *file_record(const char *path)
{
    char hex[2 * SHA256_BYTES + 1];
    struct stat info = {0};
    bool is_file = strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode);
    FILE *file = is_file ? fopen(path, "rb") : NULL;
    bool has_hash = file != NULL && hash_file(file, hex);
    if (file != NULL)
        fclose(file);
    return trace_record(path, has_hash, (uint64_t)info.st_size, hex);
}

/* Adds a record to those that are hashed as one: "HASH  NAME" in a line. False: it has no hash. */
static bool add_record(FILE *lines, const json_t *record, const char *name, uint64_t *num_bytes)
{
    const char *hash = json_string_value(json_object_get(record, "sha256"));
    *num_bytes += (uint64_t)json_integer_value(json_object_get(record, "bytes"));
    return hash != NULL && fprintf(lines, "%s  %s\n", hash, name) > 0;
}

/* The record of what the lines say of its parts; closes them. */
static json_t *record_of_lines(const char *path, FILE *lines, bool has_all, uint64_t num_bytes)
{
    char hex[2 * SHA256_BYTES + 1];
    bool has_hash = has_all && fflush(lines) == 0;
    rewind(lines);
    has_hash = has_hash && hash_file(lines, hex);
    fclose(lines);
    return trace_record(path, has_hash, num_bytes, hex);
}

static json_t *folder_record(const char *path)
{
    trace_files files;
    FILE *lines = tmpfile();
    uint64_t num_bytes = 0;
    bool has_all = lines != NULL && trace_files_find(&files, path);
    if (lines == NULL)
        return trace_record(path, false, 0, NULL);
    if (!has_all)
        return record_of_lines(path, lines, false, 0);
    size_t length = strlen(path) + (path[strlen(path) - 1] != '/');
    for (uint32_t i = 0; i < files.count; i++) {
        json_t *record = file_record(files.paths[i]);
        has_all = add_record(lines, record, files.paths[i] + length, &num_bytes) && has_all;
        json_decref(record);
    }
    trace_files_free(&files);
    return record_of_lines(path, lines, has_all, num_bytes);
}

json_t *made_by_trace(const char *path)
{
    return trace_is_folder(path) ? folder_record(path) : file_record(path);
}

json_t *made_by_traces(const char *const *paths, uint32_t num_paths)
{
    char names[TRACE_NAMES_BYTES];
    FILE *lines = num_paths > 1 ? tmpfile() : NULL;
    uint64_t num_bytes = 0;
    bool has_all = true;
    if (num_paths == 1)
        return made_by_trace(paths[0]);
    json_t *traces = json_array();
    for (uint32_t i = 0; i < num_paths; i++) {
        json_t *record = made_by_trace(paths[i]);
        has_all = lines != NULL && add_record(lines, record, "", &num_bytes) && has_all;
        json_array_append_new(traces, record);
    }
    const char *name = trace_names(names, paths, num_paths);
    json_t *whole = lines != NULL ? record_of_lines(name, lines, has_all, num_bytes)
                                  : trace_record(name, false, 0, NULL);
    json_object_set_new(whole, "traces", traces);
    return whole;
}

json_t *made_by(const command *cmd)
{
    json_t *record = json_pack("{s:s, s:s, s:s}", "program", "quire", "version",
                               quire_version_string(), "command", cmd->name);
    if (record == NULL)
        return NULL;
    json_object_set_new(record, "options", options_json(cmd));
    return record;
}

void made_by_print(FILE *out, const command *cmd)
{
    json_t *record = made_by(cmd);
    if (record == NULL || json_dumpf(record, out, JSON_REAL_PRECISION(12)) != 0)
        fputs("null", out);
    json_decref(record);
}

/* ---- the record elsewhere -------------------------------------------------- */

static json_t *text_of(json_t *value)
{
    if (json_is_string(value))
        return json_incref(value);
    if (json_is_boolean(value))
        return json_string(json_is_true(value) ? "on" : "off");
    if (json_is_integer(value))
        return json_sprintf("%lld", (long long)json_integer_value(value));
    return json_sprintf("%.9g", json_number_value(value));
}

json_t *made_by_pairs(const json_t *record)
{
    json_t *options = json_object_get(record, "options");
    const json_t *resolved = json_object_get(record, "resolved");
    json_t *pairs = json_array();
    const char *name;
    json_t *value;
    json_object_foreach(options, name, value)
    {
        json_t *known = json_is_null(value) ? json_object_get(resolved, name) : value;
        if (known != NULL && !json_is_array(known))
            json_array_append_new(pairs, json_pack("[s,o]", name, text_of(known)));
    }
    return pairs;
}

static bool is_plain_file(const char *path)
{
    file_target target;
    return strcmp(path, "-") != 0 && file_target_find(path, &target) == 0 &&
           !target.is_descriptor && (!target.exists || S_ISREG(target.status.st_mode));
}

void made_by_write_beside(const command *cmd, const json_t *record, const char *path)
{
    char beside[PATH_MAX];
    if (path == NULL || !is_plain_file(path))
        return;
    bool fits = snprintf(beside, sizeof beside, "%s.meta.json", path) < (int)sizeof beside;
    FILE *file = fits ? output_open(beside) : NULL;
    json_t *whole = json_pack("{s:O}", "made_by", record);
    if (file != NULL && whole != NULL) {
        json_dumpf(whole, file, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        fputc('\n', file);
    }
    json_decref(whole);
    if (file == NULL)
        command_error(cmd, "no record of the options: %s",
                      fits ? failure() : "the path is too long");
}
