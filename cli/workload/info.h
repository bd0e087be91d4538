/* cli/workload/info.h - what a trace is: how much, how long, how often, and what its prompts share.
 *
 *      info_add for each request ──► info_end ──► info_print, info_json
 */
#ifndef QUIRE_CLI_WORKLOAD_INFO_H
#define QUIRE_CLI_WORKLOAD_INFO_H

#include "numbers.h"
#include "output/distribution.h"
#include "prefix_tree.h"
#include "trace/ideal.h"
#include "trace/trace.h"

#include <jansson.h>
#include <stdio.h>

enum { INFO_MAX_PREFIXES = 64, INFO_MINUTE_S = 60 };

typedef struct trace_info {
    const char *trace; /* its name, and its format */
    trace_format format;
    uint64_t num_bad; /* skipped */
    bool has_contents;
    uint32_t num_wanted; /* prefixes */
    /* counted */
    uint64_t num_requests;
    uint64_t num_arrivals; /* that wait for nothing */
    uint64_t num_waiting;  /* that wait for other requests */
    double last_s;         /* of the arrivals */
    uint64_t minute;       /* since the first one */
    uint64_t num_in_minute;
    uint64_t most_in_minute;
    distribution prompts;
    distribution outputs;
    distribution thinks;     /* s */
    distribution turns;      /* of sessions */
    number_map sessions;     /* -> turns */
    uint64_t num_priorities; /* requests that have one */
    uint64_t num_pins;
    uint32_t id_block_size;
    ideal_cache ideal;
    uint64_t shared_tokens; /* of prompts, that came before */
    uint64_t blocks;        /* of the trace's own ids */
    uint64_t shared_blocks; /* that came before, from the beginning of the prompt on */
    number_map ids;         /* different ones */
    prefix_tree tree;
    shared_prefix prefixes[INFO_MAX_PREFIXES];
    uint32_t num_prefixes;
    bool has_ideal; /* the figures of shared tokens mean something */
} trace_info;

/* has_contents: something says what prompts share (trace_has_contents). False: no memory. */
bool info_add(trace_info *info, const trace_request *request, bool has_contents);
bool info_end(trace_info *info);
void info_print(FILE *out, trace_info *info);
/* NULL: no memory. */
json_t *info_json(trace_info *info);
void info_free(trace_info *info);

#endif
