/* cli/live/api_server.h - the HTTP server of one engine, in the forms of OpenAI's API and vLLM.
 *
 *      POST /v1/completions, /v1/chat/completions    an ask, and its answer, whole or as it comes
 *      POST /tokenize                                the tokens of a prompt
 *      GET  /v1/models, /health, /version, /metrics
 *
 *      client ──► body ──► api_request ──► ask ──► inbox ──► engine
 *             ◄── api_answer ◄──────────── progress ◄──┘         the connection sleeps in between
 *
 * A client that closes its connection takes its ask back: the engine aborts it. libmicrohttpd's
 * thread serves all connections; api_server_tick, on another thread, looks for clients that have
 * left while their connection sleeps.
 */
#ifndef QUIRE_CLI_LIVE_API_SERVER_H
#define QUIRE_CLI_LIVE_API_SERVER_H

#include "inbox.h"

#include <quire/monitor.h>

enum { API_ADDRESS_BYTES = 64 };

typedef struct api_server_config {
    const char *address; /* numeric */
    uint32_t port;       /* 0: the system chooses one */
    const char *token;   /* "Authorization: Bearer TOKEN" is required; NULL: nothing is */
    /* Names that the Host header may have beside localhost and numeric addresses, so that no page
     * of a stranger can read this server through a browser. */
    const char *const *hosts;
    uint32_t num_hosts;
    api_limits limits;
    uint32_t answer_tokens; /* as ask_create has it */
    uint32_t rank;          /* of the engine: in ids of answers and labels of metrics */
    inbox *inbox;
    quire_monitor *monitor;
} api_server_config;

typedef struct api_server api_server;

/* How askers of its inbox sleep and wake: for inbox_open. */
void api_server_sleep(void *asker);
void api_server_wake(void *asker);

/* NULL, and a sentence. */
api_server *api_server_start(const api_server_config *config);
/* The inbox is closed, and every ask has its end. */
void api_server_stop(api_server *s);
uint32_t api_server_port(const api_server *s);
void api_server_tick(api_server *s);

#endif
