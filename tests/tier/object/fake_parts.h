/* tier/object/fake_parts.h - what a fake object store has: its objects and its clients. */
#ifndef QR_TEST_OBJECT_FAKE_PARTS_H
#define QR_TEST_OBJECT_FAKE_PARTS_H

#include "fake.h"

#include "tier/net/socket.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    CLIENTS = 300,
    HEAD = 64 * 1024,
    OBJECTS = 4096,
    PATH = 512,
    TICK_NS = 5000000,
    PIECE = 256 * 1024,
    FLOOD = 32 * 1024
};

/* Sent while another replaces it: counted. */
typedef struct bytes {
    int users;
    size_t n;
    char data[];
} bytes;

typedef struct object {
    char path[PATH]; /* empty: none */
    bytes *body;
} object;

typedef struct client {
    qr_socket socket;
    bool is_used;
    bool is_greeted;
    char head[HEAD]; /* of the request */
    size_t head_bytes;
    char method[8];
    char path[PATH];
    bytes *input; /* of a PUT */
    size_t in;
    char *output; /* header lines */
    size_t out;
    size_t sent;
    bytes *body;
    bool is_slow;
    bool floods; /* sends the flood again and again */
    bool closes; /* when its output is gone */
    bool resets;
    bool is_deaf;
    uint64_t reply_ns; /* not before; 0: no whole request is there */
} client;

struct object_fake {
    pthread_t thread;
    pthread_mutex_t lock; /* of key, credentials and last */
    int listener;
    int epoll_fd;
    int port;
    qr_tls *tls;
    _Atomic int mode;
    _Atomic uint32_t delay_ms;
    uint64_t next_ns; /* of the next reply that waits; UINT64_MAX: none */
    _Atomic bool is_stopped;
    _Atomic uint64_t num_requests;
    _Atomic uint64_t num_objects;
    _Atomic uint64_t num_clients;
    _Atomic uint64_t most_clients;
    char key[128];
    char *credentials;
    char last[4096];
    char flood[FLOOD];
    size_t flood_bytes;
    client *clients;
    object objects[OBJECTS];
};

/* ---- fake_reply.c: objects, and what is said of them ------------------------------ */

void fake_drop_bytes(bytes *b); /* a reference; NULL: nothing */
void fake_say(client *c, const void *data, size_t n);
void fake_say_text(client *c, const char *text);
/* The client's request is whole. */
void fake_reply(object_fake *f, client *c);

#endif
