/* cli/live/player.h - a trace whose requests are asked of live engines, at the trace's times.
 *
 *      trace ──► arrivals ──► ask ──► inbox of an engine
 *                   ▲                     │
 *                   └──── its end ◄───────┘   the next turn of a session waits for it
 *
 * All turns of a session go to one engine, by the number of the session; requests without a session
 * go to the engines in turn. One thread reads the trace.
 */
#ifndef QUIRE_CLI_LIVE_PLAYER_H
#define QUIRE_CLI_LIVE_PLAYER_H

#include "live_engine.h"

typedef struct player player;

/* Opens the trace. NULL, and a sentence. */
player *player_open(const replay_settings *settings, double speed, live_engine *engines,
                    uint32_t num_engines);
/* 0, or -1 and a sentence. */
int player_start(player *p);
/* Stops: before the inboxes are closed, or after. */
void player_stop(player *p);
void player_close(player *p); /* after all asks have ended */

/* All of the trace was asked, and has ended. */
bool player_is_done(const player *p);
/* NULL: it goes on, or has ended well; else a sentence. */
const char *player_failure(const player *p);
/* Requests that could not be asked: longer than max_model_len, or refused. */
uint64_t player_num_left_out(const player *p);

#endif
