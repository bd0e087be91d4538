/* cli/trace/trace.c - opens a trace, finds out its format, and hands out its requests. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "merge.h"
#include "output/failure.h"
#include "reader.h"
#include "tar.h"

enum { HEAD_BYTES = 1 << 16 };

static const trace_kind *const kinds[] = {
    &trace_mooncake,       &trace_bailian, &trace_azure,    &trace_burstgpt, &trace_sharegpt,
    &trace_mooncake_delta, &trace_agent,   &trace_quire,    &trace_dynamo,   &trace_recording,
    &trace_lmcache,        &trace_otel,    &trace_vllm_log,
};

enum { NUM_KINDS = sizeof kinds / sizeof kinds[0] };

trace_format trace_format_of(const char *name)
{
    for (int i = 0; i < NUM_KINDS; i++) {
        const trace_kind *kind = kinds[i];
        if (strcmp(name, kind->name) == 0 || (kind->alias && strcmp(name, kind->alias) == 0))
            return kind->format;
    }
    return TRACE_DETECT;
}

static const trace_kind *kind_of(trace_format format)
{
    for (int i = 0; i < NUM_KINDS; i++)
        if (kinds[i]->format == format)
            return kinds[i];
    return NULL;
}

const char *trace_format_name(trace_format format)
{
    const trace_kind *kind = kind_of(format);
    if (format == TRACE_MIXED)
        return "mixed";
    return kind != NULL ? kind->name : "detect";
}

/* ---- detection ------------------------------------------------------------- */

/* By the names of an object's fields, as far as they are seen. What only one format has comes
 * before what several have. */
static trace_format format_of_object(scanner *scan)
{
    trace_format found = TRACE_DETECT;
    scan_text name;
    scan_open(scan, '{');
    while (scan_field(scan, &name) == 1) {
        if (scan_is(&name, "quire_workload"))
            return TRACE_QUIRE;
        if (scan_is(&name, "recording"))
            return TRACE_RECORDING;
        if (scan_is(&name, "event_type") || scan_is(&name, "event"))
            return TRACE_DYNAMO;
        if (scan_is(&name, "chat_id") || scan_is(&name, "parent_chat_id"))
            return TRACE_BAILIAN;
        if (scan_is(&name, "conversations"))
            return TRACE_SHAREGPT;
        if (scan_is(&name, "resourceSpans"))
            return TRACE_OTEL;
        if (scan_is(&name, "pre_gap") || scan_is(&name, "session_timestamp"))
            return TRACE_LMCACHE;
        if (scan_is(&name, "input") &&
            (scan_peek(scan) == JSON_STRING || scan_peek(scan) == JSON_ARRAY))
            return TRACE_LMCACHE;
        if (scan_is(&name, "requests") || scan_is(&name, "tool_tokens"))
            return TRACE_AGENT;
        if (scan_is(&name, "hash_ids") || scan_is(&name, "input_length") ||
            scan_is(&name, "input_tokens") || scan_is(&name, "schema"))
            found = TRACE_MOONCAKE;
        if (!scan_skip(scan))
            break;
    }
    return found;
}

static trace_format format_of_head(const char *head, size_t num_bytes)
{
    if (trace_tar_is_header(head, num_bytes))
        return TRACE_AGENT;
    if (num_bytes >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0) {
        head += 3;
        num_bytes -= 3;
    }
    scanner scan;
    scan_of_text(&scan, head, num_bytes);
    scan_kind first = scan_peek(&scan);
    if (first == JSON_ARRAY && scan_open(&scan, '[') && scan_element(&scan) == 1 &&
        scan_peek(&scan) == JSON_OBJECT)
        return format_of_object(&scan) == TRACE_OTEL ? TRACE_OTEL : TRACE_SHAREGPT;
    if (first == JSON_ARRAY)
        return TRACE_SHAREGPT;
    if (first == JSON_OBJECT)
        return format_of_object(&scan);
    size_t line_bytes = strcspn(head, "\n");
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)(line_bytes < 255 ? line_bytes : 255), head);
    if (strstr(line, "ContextTokens") != NULL)
        return TRACE_AZURE;
    if (strstr(line, "Request tokens") != NULL)
        return TRACE_BURSTGPT;
    if (strstr(head, "] Received request ") != NULL || strstr(head, "] Request ") != NULL)
        return TRACE_VLLM_LOG;
    return TRACE_DETECT;
}

/* ---- the reader ------------------------------------------------------------ */

static bool refuse(const trace_reader *reader, const char *why)
{
    return fail_with("%s: %s", input_name(reader->in), why) == 0;
}

static bool choose_kind(trace_reader *reader)
{
    trace_format format = reader->options.format;
    /* A pipe may have only a part for now: no more is waited for than is needed. */
    size_t num_bytes = input_ahead(reader->in, format == TRACE_DETECT ? HEAD_BYTES : 1);
    if (input_error(reader->in) != NULL)
        return fail_with("%s", input_error(reader->in)) == 0;
    if (num_bytes == 0)
        return refuse(reader, "the file is empty");
    if (format == TRACE_DETECT)
        format = format_of_head(input_bytes(reader->in), num_bytes);
    reader->kind = kind_of(format);
    if (reader->kind == NULL && strstr(input_bytes(reader->in), " HTTP/1.") != NULL)
        return refuse(reader, "is an access log: it says nothing of the lengths of prompts and "
                              "outputs");
    if (reader->kind == NULL)
        return refuse(reader, "unknown trace format; --format names one");
    reader->id_block_size = reader->options.id_block_size > 0 ? reader->options.id_block_size
                                                              : reader->kind->id_block_size;
    size_t state_bytes = reader->kind->state_bytes;
    reader->state = state_bytes > 0 ? calloc(1, state_bytes) : NULL;
    if ((state_bytes > 0 && reader->state == NULL) || !trace_reader_reserve(reader) ||
        (reader->kind->begin != NULL && !reader->kind->begin(reader)))
        return refuse(reader, "no memory to read it");
    return true;
}

trace_reader *trace_open_input(input *in, const trace_options *options)
{
    return trace_open_member(in, options, NULL);
}

trace_reader *trace_open_member(input *in, const trace_options *options,
                                const trace_membership *member)
{
    trace_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        fail_with("%s: no memory to read it", input_name(in));
        input_close(in);
        return NULL;
    }
    reader->in = in;
    reader->is_merged = member != NULL;
    reader->shared = member != NULL ? member->shared : &reader->own_shared;
    reader->clock = member != NULL ? member->clock : &reader->own_clock;
    reader->scope = member != NULL ? member->scope : 0;
    if (options != NULL)
        reader->options = *options;
    if (choose_kind(reader))
        return reader;
    trace_close(reader);
    return NULL;
}

trace_reader *trace_open(const char *path, const trace_options *options)
{
    return trace_open_all(&path, 1, options);
}

trace_reader *trace_open_all(const char *const *paths, uint32_t num_paths,
                             const trace_options *options)
{
    bool has_speeds = options != NULL && options->speeds != NULL;
    if (num_paths != 1 || has_speeds || trace_is_folder(paths[0]))
        return trace_merge(paths, num_paths, options);
    input *in = input_open(paths[0]);
    return in != NULL ? trace_open_input(in, options) : NULL;
}

trace_outcome trace_next_file(trace_reader *reader)
{
    if (reader->num_opened == reader->num_files)
        return TRACE_END;
    input *in = input_open(reader->files[reader->num_opened]);
    if (in == NULL) {
        snprintf(reader->message, sizeof reader->message, "%s", failure());
        return TRACE_BROKEN;
    }
    input_close(reader->in);
    reader->in = in;
    reader->num_opened++;
    return TRACE_OK;
}

void trace_close(trace_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->state != NULL && reader->kind->end != NULL)
        reader->kind->end(reader);
    input_close(reader->in);
    trace_shared_end(&reader->own_shared);
    free(reader->state);
    free(reader->segments);
    free(reader->ids);
    free(reader->after);
    free(reader);
}

int trace_next(trace_reader *reader, trace_request *request)
{
    if (reader->is_broken)
        return -1;
    if (reader->is_finished ||
        (reader->options.max_requests > 0 && reader->num_requests >= reader->options.max_requests))
        return 0;
    trace_outcome outcome;
    do {
        outcome = reader->kind->next(reader, request);
        bool is_skipped = outcome == TRACE_BAD && reader->options.skip_bad;
        reader->num_bad += is_skipped;
        if (is_skipped && reader->options.on_bad != NULL)
            reader->options.on_bad(reader->options.on_bad_user, reader->message);
    } while (outcome == TRACE_BAD && reader->options.skip_bad);
    if (outcome == TRACE_OK) {
        reader->num_requests++;
        reader->shared->number += reader->kind != &trace_merged;
        return 1;
    }
    reader->is_finished = outcome == TRACE_END;
    reader->is_broken = outcome != TRACE_END;
    return outcome == TRACE_END ? 0 : -1;
}

const char *trace_error(const trace_reader *reader)
{
    return reader->message;
}

trace_format trace_reader_format(const trace_reader *reader)
{
    return reader->kind == &trace_merged ? trace_merge_format(reader) : reader->kind->format;
}

bool trace_has_contents(const trace_reader *reader)
{
    return reader->has_contents;
}

uint64_t trace_num_bad(const trace_reader *reader)
{
    return reader->num_bad;
}

uint64_t trace_position(const trace_reader *reader)
{
    return reader->kind == &trace_merged ? trace_merge_position(reader)
                                         : input_position(reader->in);
}

uint64_t trace_size(const trace_reader *reader)
{
    return reader->kind == &trace_merged ? trace_merge_size(reader) : input_size(reader->in);
}
