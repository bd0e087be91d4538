/* cli/live/engines.h - `quire serve --engines N`: engines that take requests over HTTP.
 *
 *      engine i   live_engine   scheduler, cache, time of a step
 *                 api_server    --listen, port + i           completions, metrics
 *                 publisher     --events, port + i           KV events, data-parallel rank i
 *                 quire_http    --page-listen, port + i      the live page
 *
 * The engines share nothing. A trace, if there is one, is played to all of them (player.h).
 */
#ifndef QUIRE_CLI_LIVE_ENGINES_H
#define QUIRE_CLI_LIVE_ENGINES_H

#include "serve.h"

enum { ENGINES_MAX = 256 };

/* What --engines adds to the settings of `quire serve`; http.address and port are --listen. */
typedef struct engines_settings {
    uint32_t count;
    uint32_t answer_tokens; /* 0: an answer ends at max_tokens */
    const char *model;      /* that clients name */
    bool has_pages;
    const char *page_address;
    uint32_t page_port;
} engines_settings;

/* An exit status; a sentence is out where it is not 0. setup->settings.path NULL: no trace. */
int engines_run(const command *cmd, const serve_settings *settings, const engines_settings *engines,
                replay_setup *setup);

#endif
