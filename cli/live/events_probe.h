/* cli/live/events_probe.h - why nothing comes from an endpoint.
 *
 *      a second socket ──► endpoint      refused │ speaks something else │ wants other keys │ well
 *
 * ZeroMQ connects in the background and tells nobody that it cannot. This connects once more,
 * watches how that goes, and says it in a sentence with what could be wrong.
 */
#ifndef QUIRE_CLI_LIVE_EVENTS_PROBE_H
#define QUIRE_CLI_LIVE_EVENTS_PROBE_H

#include <quire/events.h>

#include <stdbool.h>

enum { PROBE_MESSAGE_BYTES = 512 };

typedef enum probe_result {
    PROBE_FINE,   /* a peer of the right kind is there, and took our keys */
    PROBE_FAILED, /* the message says why */
    PROBE_UNKNOWN /* one cannot connect to an endpoint on which the subscriber itself listens */
} probe_result;

/* A second at most. is_replay: the replay endpoint, else that of events. */
probe_result events_probe(const quire_subscriber_config *config, bool is_replay,
                          char message[PROBE_MESSAGE_BYTES]);

#endif
