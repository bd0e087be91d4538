/* cli/trace/burstgpt.c - BurstGPT's table.
 *
 *   Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
 *   5,ChatGPT,472,18,490,Conversation log
 *
 * Times are in seconds: an open loop. Nothing is known of the contents, so every prompt is unique.
 * A response of 0 tokens is a request that failed; it counts with one.
 */
#include "csv.h"

static const char *const columns[] = {"Timestamp", "Request tokens", "Response tokens"};

enum { NUM_COLUMNS = sizeof columns / sizeof columns[0] };

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    trace_csv *csv = reader->state;
    trace_outcome outcome = trace_csv_next(csv, reader, columns, NUM_COLUMNS);
    if (outcome != TRACE_OK)
        return outcome;
    double time_s = trace_csv_time(reader, columns[0], csv->cells[0]);
    outcome = trace_csv_request(csv, reader, columns, request);
    if (outcome == TRACE_OK)
        request->time_s = trace_place(reader, time_s);
    return outcome;
}

const trace_kind trace_burstgpt = {
    .format = TRACE_BURSTGPT,
    .name = "burstgpt",
    .state_bytes = sizeof(trace_csv),
    .next = next,
};
