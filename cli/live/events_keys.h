/* cli/live/events_keys.h - a pair of CURVE keys. */
#ifndef QUIRE_CLI_LIVE_EVENTS_KEYS_H
#define QUIRE_CLI_LIVE_EVENTS_KEYS_H

#include "options/options.h"

/* Writes a secret key to a new file that only its owner may read, and prints the public one. An
 * exit status. */
int events_keys_make(const command *cmd, const char *path);

#endif
