/* cli/live/serve.h - a replay that others see while it runs.
 *
 *      trace ──► replay, paced ──► scheduler ──► monitor ──► libquire_http     page, metrics
 *                (replay.h, pace.h)                     └──► libquire_events   KV events
 *
 * Decisions are those of `quire replay`: who looks on changes nothing.
 */
#ifndef QUIRE_CLI_LIVE_SERVE_H
#define QUIRE_CLI_LIVE_SERVE_H

#include "options/replay_options.h"
#include "output/output.h"

#include <quire/events.h>
#include <quire/http.h>

typedef struct serve_settings {
    double speed; /* simulated seconds in a second; 0: as fast as it goes */
    bool loop;
    bool hold;
    bool quiet;
    output_file json;
    quire_monitor_config monitor;
    quire_http_config http; /* its monitor is filled in here, as is the publisher's */
    quire_publisher_config publisher;
    bool has_events;
    const char *token_file; /* to be named where the URL is printed */
} serve_settings;

/* Why there is no publisher, with the option that says it: a sentence (failure.h). said: of
 * quire_refusal. */
void serve_explain_publisher(const quire_publisher_config *config, int err, const char *said);

/* An exit status; a sentence is out where it is not 0. */
int serve_run(const command *cmd, const serve_settings *settings, replay_setup *setup);

#endif
