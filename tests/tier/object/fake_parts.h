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
    TICK_MS = 5,
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
} client;

struct object_fake {
    pthread_t thread;
    pthread_mutex_t lock; /* of key, credentials and last */
    int listener;
    int epoll_fd;
    int port;
    qr_tls *tls;
    _Atomic int mode;
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

#endif
