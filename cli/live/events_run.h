/* cli/live/events_run.h - follows a publisher of KV events: prints, counts, checks, compares.
 *
 *      publisher ──► subscriber ──► print (events_print.h)
 *                               ├─► count (events_tally.h)
 *                               └─► index (events_index.h) ◄── compare ── the publisher's own
 */
#ifndef QUIRE_CLI_LIVE_EVENTS_RUN_H
#define QUIRE_CLI_LIVE_EVENTS_RUN_H

#include "options/options.h"

#include <quire/events.h>

typedef struct events_settings {
    quire_subscriber_config subscriber;
    uint64_t max_batches; /* 0: no limit */
    double max_seconds;   /* 0: no limit */
    bool json;
    bool quiet;
    bool check;
    bool index;
    bool compare;
} events_settings;

/* An exit status; a sentence is out where something failed. */
int events_run(const command *cmd, const events_settings *settings);

/* Writes a secret CURVE key to a new file that only its owner may read, and prints the public one.
 * An exit status. */
int events_keys_make(const command *cmd, const char *path);

#endif
