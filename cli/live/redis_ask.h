/* cli/live/redis_ask.h - one command to a Redis server on this machine, waited for: for starting a
 * cluster, not for blocks. */
#ifndef QUIRE_CLI_LIVE_REDIS_ASK_H
#define QUIRE_CLI_LIVE_REDIS_ASK_H

#include <stdbool.h>
#include <stdint.h>

enum { REDIS_ASK_BYTES = 8192 };

/* Words until NULL. said: the answer as text (of an array, its last element). false: no answer, or
 * an error, which said has then. */
bool redis_ask(uint32_t port, char said[REDIS_ASK_BYTES], ...);
/* Whether anybody listens there. */
bool redis_can_connect(uint32_t port);

#endif
