#include "recorded_ends.h"

#include "output/failure.h"
#include "output/grown.h"
#include "verify/recording.h"

#include <stdlib.h>
#include <string.h>

static bool note(recorded_ends *ends, const recording_line *line)
{
    uint64_t before = ends->ends_room;
    if (line->req >= UINT32_MAX ||
        !reserve(&ends->ends, line->req + 1, &ends->ends_room, sizeof *ends->ends) ||
        !reserve(&ends->hashes, ends->num_hashes + line->hashes.count, &ends->hashes_room,
                 sizeof *ends->hashes))
        return fail_with("not enough memory for the ends of %llu requests",
                         (unsigned long long)line->req) == 0;
    if (ends->ends_room > before)
        memset(ends->ends + before, 0, (ends->ends_room - before) * sizeof *ends->ends);
    if (line->req >= ends->num_ends)
        ends->num_ends = (uint32_t)line->req + 1;
    ends->ends[line->req] = (recorded_end){.first_hash = ends->num_hashes,
                                           .num_hashes = line->hashes.count,
                                           .num_output_tokens = (uint32_t)line->output,
                                           .reason = line->reason};
    if (line->hashes.count != 0)
        memcpy(ends->hashes + ends->num_hashes, line->hashes.items,
               line->hashes.count * sizeof *ends->hashes);
    ends->num_hashes += line->hashes.count;
    return true;
}

int recorded_ends_read(recorded_ends *ends, const char *path)
{
    recording *rec = recording_open(path);
    const recording_line *line;
    int more;
    *ends = (recorded_ends){0};
    if (rec == NULL)
        return -1;
    while ((more = recording_next(rec, &line)) == 1) {
        ends->num_requests += line->type == RECORDING_REQUEST;
        ends->num_ended += line->type == RECORDING_END;
        if (line->type == RECORDING_END && !note(ends, line)) {
            more = -1;
            break;
        }
    }
    recording_close(rec);
    return more;
}

void recorded_ends_free(recorded_ends *ends)
{
    free(ends->ends);
    free(ends->hashes);
    *ends = (recorded_ends){0};
}

recorded_end recorded_ends_of(const recorded_ends *ends, uint64_t req)
{
    return req < ends->num_ends ? ends->ends[req] : (recorded_end){0};
}
