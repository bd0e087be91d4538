#include "header.h"

#include "output/failure.h"
#include "trace/files.h"
#include "trace/input.h"
#include "trace/json.h"
#include "trace/recording_line.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 1 << 12 };

/* ---- values ------------------------------------------------------------------ */

/* 0 where there is no number. */
static double take_real(scanner *scan)
{
    scan_value value = {0};
    if (scan_peek(scan) == JSON_NUMBER)
        scan_number(scan, &value);
    else
        scan_skip(scan);
    return value.real;
}

static uint32_t take_count(scanner *scan)
{
    double value = take_real(scan);
    return value > 0 && value <= (double)UINT32_MAX ? (uint32_t)value : 0;
}

static bool take_switch(scanner *scan)
{
    bool value = false;
    if (scan_peek(scan) == JSON_BOOL)
        scan_bool(scan, &value);
    else
        scan_skip(scan);
    return value;
}

/* Cut where it is too long; the line is in memory as a whole. */
static void take_text(scanner *scan, char *out, size_t bytes)
{
    if (scan_peek(scan) != JSON_STRING) {
        scan_skip(scan);
        return;
    }
    const char *at = scan->at + 1;
    scan_text text;
    scan_string(scan, &text);
    snprintf(out, bytes, "%.*s", (int)strcspn(at, "\""), at);
}

/* ---- the configuration ----------------------------------------------------------- */

static uint32_t count_groups(scanner *scan)
{
    uint32_t count = 0;
    if (scan_peek(scan) != JSON_ARRAY) {
        scan_skip(scan);
        return 0;
    }
    scan_open(scan, '[');
    while (scan_element(scan) == 1) {
        count++;
        scan_skip(scan);
    }
    return count;
}

typedef struct count_field {
    const char *name;
    size_t offset;
} count_field;

static const count_field counts[] = {
    {"num_blocks", offsetof(recorded_header, num_blocks)},
    {"block_size", offsetof(recorded_header, block_size)},
    {"hash_block_size", offsetof(recorded_header, hash_block_size)},
    {"max_model_len", offsetof(recorded_header, max_model_len)},
    {"max_num_seqs", offsetof(recorded_header, max_num_seqs)},
    {"max_num_batched_tokens", offsetof(recorded_header, max_num_batched_tokens)},
    {"long_prefill_token_threshold", offsetof(recorded_header, long_prefill_token_threshold)},
    {"num_spec_tokens", offsetof(recorded_header, num_spec_tokens)},
};

static const count_field switches[] = {
    {"enable_caching", offsetof(recorded_header, enable_caching)},
    {"enable_chunked_prefill", offsetof(recorded_header, enable_chunked_prefill)},
    {"reserve_full_sequence", offsetof(recorded_header, reserve_full_sequence)},
    {"async_scheduling", offsetof(recorded_header, async_scheduling)},
    {"is_pooling_model", offsetof(recorded_header, is_pooling_model)},
};

static const count_field *find_field(const count_field *fields, size_t count, const scan_text *name)
{
    for (size_t i = 0; i < count; i++)
        if (scan_is(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static void take_config(scanner *scan, recorded_header *out)
{
    scan_text name;
    char *header = (char *)out;
    if (scan_peek(scan) != JSON_OBJECT) {
        scan_skip(scan);
        return;
    }
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        const count_field *count = find_field(counts, sizeof counts / sizeof *counts, &name);
        const count_field *a_switch =
            find_field(switches, sizeof switches / sizeof *switches, &name);
        if (count != NULL)
            *(uint32_t *)(void *)(header + count->offset) = take_count(scan);
        else if (a_switch != NULL)
            *(bool *)(void *)(header + a_switch->offset) = take_switch(scan);
        else if (scan_is(&name, "watermark"))
            out->watermark = take_real(scan);
        else if (scan_is(&name, "profile"))
            take_text(scan, out->profile, sizeof out->profile);
        else if (scan_is(&name, "policy"))
            take_text(scan, out->policy, sizeof out->policy);
        else if (scan_is(&name, "groups"))
            out->num_groups = count_groups(scan);
        else
            scan_skip(scan);
    }
}

/* ---- the line --------------------------------------------------------------------- */

bool recorded_header_parse(const char *text, size_t length, recorded_header *out)
{
    scanner scan;
    scan_text name;
    *out = (recorded_header){0};
    scan_of_text(&scan, text, length);
    if (scan_peek(&scan) != JSON_OBJECT)
        return false;
    scan_open(&scan, '{');
    while (scan_field(&scan, &name) == 1) {
        if (scan_is(&name, "engine"))
            take_text(&scan, out->engine, sizeof out->engine);
        else if (scan_is(&name, "engine_version"))
            take_text(&scan, out->engine_version, sizeof out->engine_version);
        else if (scan_is(&name, "model"))
            take_text(&scan, out->model, sizeof out->model);
        else if (scan_is(&name, "config"))
            take_config(&scan, out);
        else
            scan_skip(&scan);
    }
    return scan.error == NULL;
}

/* Whether the first line is here, and names the format. */
static bool names_format(input *in)
{
    input_ahead(in, HEAD_BYTES);
    const char *head = input_bytes(in);
    const char *end = strchr(head, '\n');
    const char *found = strstr(head, RECORDING_FORMAT);
    return found != NULL && (end == NULL || found < end);
}

bool recorded_is_one(const char *path)
{
    if (strcmp(path, "-") == 0 || trace_is_folder(path))
        return false;
    input *in = input_open(path);
    bool is_one = in != NULL && names_format(in);
    input_close(in);
    return is_one;
}

int recorded_header_read(const char *path, recorded_header *out)
{
    char *text;
    size_t length;
    if (strcmp(path, "-") == 0)
        return fail_with("a recording cannot be read from standard input");
    if (trace_is_folder(path))
        return fail_with("%s is a folder: give the first part of the recording", path);
    input *in = input_open(path);
    if (in == NULL)
        return -1;
    int status = 0;
    if (!names_format(in) || input_line(in, &text, &length) != 1)
        status = fail_with("%s: is not a recording (expected a header with format %s)", path,
                           RECORDING_FORMAT);
    else if (!recorded_header_parse(text, length, out))
        status = fail_with("%s:1: the header is broken", path);
    input_close(in);
    return status;
}
