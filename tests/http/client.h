/* http/client.h - the other end of the wire: sends any bytes, and reads what comes with patience.
 *
 *      client_get(port, "GET /metrics", "Accept: ...\r\n", &reply)      one request, one connection
 *      client_open, client_send, client_read ...                       the steps one by one
 */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include "base/unit.h"

enum { CLIENT_PATIENCE_MS = 30000, CLIENT_MAX_REPLY = 1 << 20 };

typedef struct client_reply {
    int status; /* 0: closed without an answer */
    size_t num_bytes;
    size_t body;       /* where it begins in text */
    size_t body_bytes; /* without chunk marks */
    char *text;        /* of CLIENT_MAX_REPLY bytes, with a zero byte behind */
} client_reply;

int client_open(uint32_t port);
/* From that address of the loopback, 127.0.0.2 say; NULL: any. */
int client_open_from(uint32_t port, const char *source);
/* False when the other side has closed. */
bool client_send(int socket, const char *bytes, size_t num_bytes);
bool client_say(int socket, const char *text);
/* One whole response, with its body by Content-Length or chunks. */
bool client_read(int socket, client_reply *reply);
/* Whatever comes within so many ms, up to most; 0: it was closed; -1: nothing came. */
long client_read_some(int socket, char *bytes, size_t most, int timeout_ms);
/* Whether it is closed within so many ms, whatever comes before. */
bool client_is_closed(int socket, int timeout_ms);
void client_close(int socket);

void client_reply_init(client_reply *reply);
void client_reply_free(client_reply *reply);
const char *client_body(const client_reply *reply);
/* The value of a header, in a static buffer; NULL: not there. */
const char *client_header(const client_reply *reply, const char *name);

/* One request on a connection of its own: the request line without its version, headers or NULL.
 * Host is 127.0.0.1 unless the headers have one. Returns the status. */
int client_get(uint32_t port, const char *line, const char *headers, client_reply *reply);

uint64_t client_now_ms(void);

#endif
