/* cli/trace/merge.h - several files as one trace, in the order of time.
 *
 *      quire replay day/ chats.jsonl
 *
 *      trace 0: the folder day/    a.csv  8:00 ─┐                    sources: one reader each,
 *                                  b.csv  9:00 ─┤                    one request read ahead
 *      trace 1: chats.jsonl ────────────────────┴─► the earliest ──► one trace
 *
 * The files of one trace have one clock: its time 0 is its first request. All traces begin at
 * their time 0. A file is opened when the merged time reaches its first request, so parts that
 * follow each other are read one after the other; files without times follow each other in the
 * order of their names. Turns of a closed loop, which wait for the turn before, are handed out at
 * once, as in one file. All readers share what they remember of sessions and requests, so a session
 * may go on in the next file of a folder.
 */
#ifndef QUIRE_CLI_TRACE_MERGE_H
#define QUIRE_CLI_TRACE_MERGE_H

#include "trace.h"

trace_reader *trace_merge(const char *const *paths, uint32_t num_paths,
                          const trace_options *options);
/* Of a reader that trace_merge made. */
trace_format trace_merge_format(const trace_reader *reader);
uint64_t trace_merge_position(const trace_reader *reader);
uint64_t trace_merge_size(const trace_reader *reader);

#endif
