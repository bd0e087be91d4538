/* http/server_kit.h - an engine with a server on it. */
#ifndef HTTP_SERVER_KIT_H
#define HTTP_SERVER_KIT_H

#include "http/client.h"
#include "http/engine.h"

#include <quire/http.h>

typedef struct server_kit {
    engine engine;
    quire_http_config config; /* between server_open and server_start: may be changed */
    quire_http *http;
    uint32_t port;
    client_reply reply;
} server_kit;

void server_open(server_kit *kit);
void server_start(server_kit *kit);
void server_close(server_kit *kit);
/* The status of GET path, on a connection of its own; the rest is in reply. */
int server_get(server_kit *kit, const char *path);
/* Whether it still answers. */
bool server_is_alive(server_kit *kit);

/* Open files of this process. */
uint32_t server_num_files(void);
/* Resident memory of this process. Sanitizers keep what was freed: with them it says nothing, and
 * SERVER_MEMORY_TELLS is 0. */
uint64_t server_rss_kib(void);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SERVER_MEMORY_TELLS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SERVER_MEMORY_TELLS 0
#endif
#endif
#ifndef SERVER_MEMORY_TELLS
#define SERVER_MEMORY_TELLS 1
#endif

#endif
