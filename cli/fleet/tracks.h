/* cli/fleet/tracks.h - a fleet as a trace for ui.perfetto.dev: one process for each worker, with
 * its requests (waiting, prefill, transfer, decode) and a counter of its queue.
 *
 * Lines are written in the order in which the fleet merges what happened, so the file does not
 * depend on threads. A request is written when it ends.
 */
#ifndef QUIRE_CLI_FLEET_TRACKS_H
#define QUIRE_CLI_FLEET_TRACKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct tracks tracks;

/* made_by: a JSON object, or NULL. NULL: no memory. */
tracks *tracks_open(FILE *out, uint32_t num_workers, const char *made_by);
/* Writes the end of the file. */
void tracks_close(tracks *t);

void tracks_routed(tracks *t, uint32_t worker, double time_s);
void tracks_admitted(tracks *t, uint32_t worker, double time_s);
void tracks_left_out(tracks *t, uint32_t worker, double time_s);

typedef struct track_request {
    uint64_t id; /* as users know it: from 1 on */
    double arrival_s;
    double scheduled_s;
    double first_token_s;
    double end_s;
    bool is_apart; /* another worker computed the prompt: */
    uint32_t prefill_worker;
    double computed_s; /* the end of the prompt there */
    uint32_t prompt_tokens;
    uint32_t hit_tokens;
    uint32_t believed_tokens;
} track_request;

/* An admitted request has left: its prompt is computed, for another worker, or this one crashed. */
void tracks_left(tracks *t, uint32_t worker, double time_s);
void tracks_ended(tracks *t, uint32_t worker, const track_request *request);

#endif
