/* cmd_trace.c - `quire trace COMMAND`: what can be done with a trace besides replaying it. */
#include "commands.h"

#include <stddef.h>

static command *const parts[] = {
    &cmd_trace_info,  &cmd_trace_check, &cmd_trace_convert,   &cmd_trace_cut,
    &cmd_trace_scale, &cmd_trace_mix,   &cmd_trace_anonymise, NULL};

command cmd_trace = {
    .name = "trace",
    .usage = "trace info|check|convert|cut|scale|mix|anonymise [OPTION]... TRACE...",
    .summary = "describes, checks, converts and changes traces",
    .examples = "  quire trace info day.jsonl.zst\n"
                "      how many requests, how long, how much they share\n"
                "  quire trace cut --first 1000 day.jsonl.zst | quire replay -\n"
                "      a replay of the first thousand\n"
                "  quire trace anonymise --out shared.jsonl.zst day.jsonl.zst\n"
                "      a trace to give away\n",
    .parts = parts,
    .missing = "expected info, check, convert, cut, scale, mix or anonymise; see quire trace "
               "--help",
};
