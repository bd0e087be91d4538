/* cli/events_keys.h - CURVE keys: pairs, and which public key belongs to a secret one. */
#ifndef QUIRE_CLI_EVENTS_KEYS_H
#define QUIRE_CLI_EVENTS_KEYS_H

#include "options.h"
#include "secret_file.h"

/* 0, or 1 after a sentence. */
int events_keys_public(const command *cmd, const char *secret_key,
                       char public_key[KEY_CHARACTERS + 1]);
/* Writes a secret key to a new file that only its owner may read, and prints the public one. */
int events_keys_make(const command *cmd, const char *path);

#endif
