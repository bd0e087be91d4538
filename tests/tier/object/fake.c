#define _GNU_SOURCE /* strcasestr */
#include "fake_parts.h"

#include "base/unit.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

static const char *const texts[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) text,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

const char *const fake_names[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) #name,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

/* ---- objects ---------------------------------------------------------------- */

static void drop_bytes(bytes *b)
{
    if (b != NULL && --b->users == 0)
        free(b);
}

static object *find_object(object_fake *f, const char *path, bool creates)
{
    uint32_t at = 2166136261u;
    for (const char *c = path; *c != 0; c++)
        at = (at ^ (unsigned char)*c) * 16777619u;
    for (uint32_t i = 0; i < OBJECTS; i++) {
        object *o = &f->objects[(at + i) % OBJECTS];
        if (strcmp(o->path, path) == 0)
            return o;
        if (o->path[0] == 0) {
            if (creates)
                (void)snprintf(o->path, sizeof o->path, "%s", path);
            return creates ? o : NULL;
        }
    }
    return NULL;
}

static void keep_object(object_fake *f, const char *path, bytes *body)
{
    object *o = find_object(f, path, true);
    assert_non_null(o);
    (void)atomic_fetch_add(&f->num_objects, o->body == NULL);
    drop_bytes(o->body);
    o->body = body;
    body->users++;
}

static void drop_object(object_fake *f, const char *path)
{
    object *o = find_object(f, path, false);
    if (o == NULL || o->body == NULL)
        return;
    (void)atomic_fetch_sub(&f->num_objects, 1);
    drop_bytes(o->body);
    o->body = NULL; /* its name stays, so that others are still found */
}

/* ---- replies ------------------------------------------------------------------ */

static void say(client *c, const void *data, size_t n)
{
    c->output = realloc(c->output, c->out + n + 1);
    assert_non_null(c->output);
    memcpy(c->output + c->out, data, n);
    c->out += n;
}

static void say_text(client *c, const char *text)
{
    say(c, text, strlen(text));
}

/* HEAD gets the lines alone. */
static void say_reply(client *c, const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    bool is_head = strcmp(c->method, "HEAD") == 0;
    say(c, text, is_head && end != NULL ? (size_t)(end - text) + 4 : strlen(text));
}

static bytes *copy_bytes(const bytes *from, size_t n)
{
    bytes *b = calloc(1, sizeof *b + n + 1);
    assert_non_null(b);
    b->users = 1;
    b->n = n;
    memcpy(b->data, from->data, n < from->n ? n : from->n);
    return b;
}

static bytes *find_other(object_fake *f, const bytes *body)
{
    for (uint32_t i = 0; i < OBJECTS; i++)
        if (f->objects[i].body != NULL && f->objects[i].body != body)
            return f->objects[i].body;
    return NULL;
}

/* The bytes of an object, in the way of the mode; a reference. */
static bytes *choose_body(object_fake *f, bytes *body, int mode)
{
    bytes *chosen = body;
    if (mode == FAKE_SWAPPED && find_other(f, body) != NULL)
        chosen = find_other(f, body);
    if (mode == FAKE_SHORT || mode == FAKE_LONGER)
        return copy_bytes(body, mode == FAKE_SHORT ? body->n - 1 : body->n + 1);
    if (mode == FAKE_FLIPPED || mode == FAKE_FLIPPED_HEADER) {
        chosen = copy_bytes(body, body->n);
        chosen->data[mode == FAKE_FLIPPED ? body->n - 5 : 50] ^= 16;
        return chosen;
    }
    chosen->users++;
    return chosen;
}

static void say_object(object_fake *f, client *c, bytes *body, int mode)
{
    char line[128];
    bytes *chosen = choose_body(f, body, mode);
    if (mode == FAKE_NO_LENGTH)
        say_text(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    else {
        (void)snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       chosen->n);
        say_text(c, line);
    }
    if (strcmp(c->method, "GET") == 0)
        c->body = chosen;
    else
        drop_bytes(chosen);
    c->closes = mode == FAKE_NO_LENGTH;
    bool is_half = mode == FAKE_HALF || mode == FAKE_HALF_CLOSES || mode == FAKE_HALF_RESETS;
    if (is_half && c->body != NULL) {
        bytes *half = copy_bytes(c->body, c->body->n / 2);
        drop_bytes(c->body);
        c->body = half;
    } else if (is_half) {
        c->out /= 2;
    }
    c->closes = c->closes || (is_half && mode != FAKE_HALF);
    c->resets = mode == FAKE_HALF_RESETS;
}

static void reply_well(object_fake *f, client *c, int mode)
{
    const char *not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 23\r\n\r\n"
                            "<Code>NoSuchKey</Code>\n";
    const object *o = find_object(f, c->path, false);
    c->is_slow = mode == FAKE_SLOW;
    if (strcmp(c->method, "PUT") == 0) {
        keep_object(f, c->path, c->input);
        say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else if (strcmp(c->method, "DELETE") == 0) {
        drop_object(f, c->path);
        say_text(c, "HTTP/1.1 204 No Content\r\n\r\n");
    } else if (strchr(c->path + 1, '/') == NULL) {
        say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else if (o == NULL || o->body == NULL) {
        say_reply(c, not_found);
    } else {
        say_object(f, c, o->body, mode);
    }
}

static void set_flood(object_fake *f, client *c, const char *begin, const char *again)
{
    size_t n = strlen(again);
    say_text(c, begin);
    for (f->flood_bytes = 0; f->flood_bytes + n < FLOOD; f->flood_bytes += n)
        memcpy(f->flood + f->flood_bytes, again, n);
    c->floods = true;
}

static void reply_credentials(object_fake *f, client *c)
{
    char line[128];
    bool is_known = strcasestr(c->head, "authorization: secret\r\n") != NULL;
    (void)pthread_mutex_lock(&f->lock);
    const char *json = f->credentials;
    if (json == NULL || !is_known) {
        say_text(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    } else {
        (void)snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       strlen(json));
        say_text(c, line);
        say_text(c, json);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static bool has_right_key(object_fake *f, const client *c)
{
    char text[160];
    (void)pthread_mutex_lock(&f->lock);
    (void)snprintf(text, sizeof text, "Credential=%s/", f->key);
    (void)pthread_mutex_unlock(&f->lock);
    return strstr(c->head, text) != NULL;
}

static void reply_strangely(object_fake *f, client *c, int mode)
{
    switch (mode) {
    case FAKE_CLOSES:
    case FAKE_RESETS:
    case FAKE_FLAKY_RESETS:
        c->closes = true;
        c->resets = mode != FAKE_CLOSES;
        return;
    case FAKE_KEY_EXPIRED:
        say_reply(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 26\r\n\r\n"
                     "<Code>ExpiredToken</Code>\n");
        return;
    case FAKE_CLOCK:
        say_reply(c, "HTTP/1.1 403 Forbidden\r\nDate: Wed, 05 Sep 2001 12:00:00 GMT\r\n"
                     "Content-Length: 34\r\n\r\n<Code>RequestTimeTooSkewed</Code>\n");
        return;
    case FAKE_CHUNKED_ENDLESS:
        set_flood(f, c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n");
        return;
    case FAKE_ERROR_ENDLESS:
        set_flood(f, c, "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n");
        return;
    case FAKE_CONTINUES:
        set_flood(f, c, "", "HTTP/1.1 100 Continue\r\n\r\n");
        return;
    case FAKE_LONG_HEADERS:
        set_flood(f, c, "HTTP/1.1 200 OK\r\n", "x-y: zzzzzzzzzzzzzzzz\r\n");
        return;
    case FAKE_LONG_LINE:
        set_flood(f, c, "HTTP/1.1 200 OK\r\nx-y: ", "zzzzzzzzzzzzzzzz");
        return;
    case FAKE_NUL_HEADER:
        say(c, "HTTP/1.1 200 OK\r\nx-\0y: z\r\nContent-Length: 3\r\n\r\nabc", 51);
        return;
    case FAKE_QUOTA:
        say_reply(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 27\r\n\r\n"
                     "<Code>QuotaExceeded</Code>\n");
        return;
    case FAKE_FLAKY:
        say_reply(c, texts[FAKE_SLOW_DOWN]);
        return;
    case FAKE_EARLY:
        say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        c->closes = true;
        return;
    default:
        say_reply(c, texts[mode == FAKE_KEY_DENIED ? FAKE_DENIED : mode]);
    }
}

static bool is_strange(object_fake *f, const client *c, int mode, uint64_t number)
{
    bool is_head = strcmp(c->method, "HEAD") == 0;
    switch (mode) {
    case FAKE_KEY_EXPIRED:
    case FAKE_KEY_DENIED:
        return !has_right_key(f, c);
    case FAKE_CLOCK:
        return strcasestr(c->head, "x-amz-date: 2001") == NULL;
    case FAKE_FLAKY:
    case FAKE_FLAKY_RESETS:
        return number % 2 == 0;
    case FAKE_QUOTA:
    case FAKE_EARLY:
        return strcmp(c->method, "PUT") == 0;
    case FAKE_FULL: /* who stores is told so by the PUT */
        return !is_head;
    case FAKE_CLOSES:
    case FAKE_RESETS:
    case FAKE_CHUNKED_ENDLESS:
    case FAKE_ERROR_ENDLESS:
    case FAKE_CONTINUES:
    case FAKE_LONG_HEADERS:
    case FAKE_LONG_LINE:
    case FAKE_NUL_HEADER:
        return true;
    default:
        return texts[mode] != NULL;
    }
}

static void reply(object_fake *f, client *c)
{
    int mode = atomic_load(&f->mode);
    uint64_t number = atomic_fetch_add(&f->num_requests, 1);
    (void)pthread_mutex_lock(&f->lock);
    (void)snprintf(f->last, sizeof f->last, "%.4000s", c->head);
    (void)pthread_mutex_unlock(&f->lock);
    if (strcmp(c->path, "/credentials") == 0)
        reply_credentials(f, c);
    else if (is_strange(f, c, mode, number))
        reply_strangely(f, c, mode);
    else
        reply_well(f, c, mode);
    drop_bytes(c->input);
    c->input = NULL;
    c->head_bytes = 0;
}

/* ---- requests ------------------------------------------------------------------- */

/* The head is whole: what follows of it is the beginning of the body. */
static void begin_request(object_fake *f, client *c, size_t head)
{
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    size_t n = length == NULL || length > c->head + head ? 0 : strtoull(length + 17, NULL, 10);
    int mode = atomic_load(&f->mode);
    bool is_put = strncmp(c->head, "PUT ", 4) == 0;
    assert_int_equal(sscanf(c->head, "%7s %511s", c->method, c->path), 2);
    assert_true(n < 1u << 30);
    c->input = malloc(sizeof *c->input + n);
    assert_non_null(c->input);
    c->input->users = 1;
    c->input->n = n;
    c->in = c->head_bytes - head < n ? c->head_bytes - head : n;
    memcpy(c->input->data, c->head + head, c->in);
    c->head[head] = 0;
    if (strcasestr(c->head, "expect: 100-continue") != NULL && mode == FAKE_WELL)
        say_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
    c->is_deaf = is_put && mode == FAKE_DEAF;
    if (is_put && mode == FAKE_EARLY)
        reply(f, c);
}

static void take_head(object_fake *f, client *c)
{
    c->head[c->head_bytes] = 0;
    const char *end = strstr(c->head, "\r\n\r\n");
    if (end != NULL)
        begin_request(f, c, (size_t)(end - c->head) + 4);
    else
        assert_true(c->head_bytes < HEAD - 1);
}

/* It is gone: nothing more is sent to it. */
static void lose_client(client *c)
{
    c->closes = true;
    c->floods = false;
    c->sent = c->out = 0;
    drop_bytes(c->body);
    c->body = NULL;
}

/* false: nothing more can be read now. */
static bool receive_some(object_fake *f, client *c)
{
    struct iovec piece = {c->head + c->head_bytes, HEAD - 1 - c->head_bytes};
    if (c->input != NULL)
        piece = (struct iovec){c->input->data + c->in,
                               c->input->n - c->in < PIECE ? c->input->n - c->in : PIECE};
    ssize_t got = qr_socket_receive(&c->socket, &piece, 1);
    if (got < 0)
        lose_client(c);
    if (got <= 0)
        return false;
    if (c->input != NULL) {
        c->in += (size_t)got;
    } else {
        c->head_bytes += (size_t)got;
        take_head(f, c);
    }
    return true;
}

static void receive(object_fake *f, client *c)
{
    while (!c->closes && !c->is_deaf && c->socket.can_read && c->out == 0 && c->body == NULL) {
        if (c->input != NULL && c->in == c->input->n) {
            reply(f, c);
            return;
        }
        if (!receive_some(f, c))
            break;
    }
    if (!c->closes && !c->is_deaf && c->input != NULL && c->in == c->input->n)
        reply(f, c);
}

/* ---- sending --------------------------------------------------------------------- */

static void send_all(object_fake *f, client *c)
{
    while (c->socket.can_write && (c->sent < c->out + (c->body == NULL ? 0 : c->body->n))) {
        struct iovec piece = {c->output + c->sent, c->out - c->sent};
        if (c->sent >= c->out)
            piece =
                (struct iovec){c->body->data + (c->sent - c->out), c->body->n - (c->sent - c->out)};
        if (c->is_slow)
            piece.iov_len = 1;
        ssize_t sent = qr_socket_send(&c->socket, &piece, 1);
        if (sent < 0)
            lose_client(c);
        if (sent <= 0)
            return;
        c->sent += (size_t)sent;
        if (c->is_slow)
            return;
    }
    if (c->sent < c->out + (c->body == NULL ? 0 : c->body->n))
        return;
    c->sent = c->out = 0;
    drop_bytes(c->body);
    c->body = NULL;
    c->is_slow = false;
    if (c->floods)
        say(c, f->flood, f->flood_bytes);
}

/* ---- the thread -------------------------------------------------------------------- */

static void close_client(object_fake *f, client *c)
{
    struct linger hard = {.l_onoff = 1};
    if (c->resets)
        (void)setsockopt(c->socket.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    qr_socket_close(&c->socket);
    free(c->output);
    drop_bytes(c->body);
    drop_bytes(c->input);
    memset(c, 0, sizeof *c);
    (void)atomic_fetch_sub(&f->num_clients, 1);
}

static void accept_clients(object_fake *f)
{
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &f->clients[i];
        if (c->is_used)
            continue;
        if (qr_socket_accept(&c->socket, f->listener, f->tls, f->epoll_fd, &c->socket) <= 0)
            return;
        int one = 1;
        (void)setsockopt(c->socket.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        c->is_used = true;
        c->socket.can_read = c->socket.can_write = true;
        uint64_t n = atomic_fetch_add(&f->num_clients, 1) + 1;
        if (n > atomic_load(&f->most_clients))
            atomic_store(&f->most_clients, n);
    }
}

static void pump(object_fake *f, client *c)
{
    if (!c->is_greeted) {
        int finished = qr_socket_finish(&c->socket);
        c->is_greeted = finished > 0;
        if (finished < 0)
            close_client(f, c);
        if (finished <= 0)
            return;
    }
    do {
        receive(f, c);
        send_all(f, c);
    } while (!c->closes && !c->is_deaf && c->out == 0 && c->body == NULL && c->socket.can_read);
    if (c->closes && c->out == 0 && c->body == NULL)
        close_client(f, c);
}

static void *run_fake(void *user)
{
    object_fake *f = user;
    struct epoll_event events[64];
    while (!atomic_load(&f->is_stopped)) {
        int n = epoll_wait(f->epoll_fd, events, 64, TICK_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr != f) {
                qr_socket *socket = events[i].data.ptr;
                socket->can_read = socket->can_write = true;
            }
        accept_clients(f);
        for (int i = 0; i < CLIENTS; i++)
            if (f->clients[i].is_used)
                pump(f, &f->clients[i]);
    }
    return NULL;
}

object_fake *object_fake_start(const char *cert_file, const char *key_file)
{
    object_fake *f = calloc(1, sizeof *f);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    assert_non_null(f);
    f->clients = calloc(CLIENTS, sizeof *f->clients);
    assert_non_null(f->clients);
    (void)pthread_mutex_init(&f->lock, NULL);
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    f->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(f->listener, CLIENTS), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&address, &n), 0);
    f->port = ntohs(address.sin_port);
    qr_tls_options tls = {.cert_file = cert_file, .key_file = key_file, .is_server = true};
    if (cert_file != NULL)
        assert_int_equal(qr_tls_open(&tls, &f->tls), QUIRE_OK);
    assert_true(qr_socket_watch(f->epoll_fd, f->listener, f));
    assert_int_equal(pthread_create(&f->thread, NULL, run_fake, f), 0);
    return f;
}

void object_fake_stop(object_fake *f)
{
    atomic_store(&f->is_stopped, true);
    (void)pthread_join(f->thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        if (f->clients[i].is_used)
            close_client(f, &f->clients[i]);
    for (int i = 0; i < OBJECTS; i++)
        drop_bytes(f->objects[i].body);
    if (f->tls != NULL)
        qr_tls_close(f->tls);
    close(f->listener);
    close(f->epoll_fd);
    (void)pthread_mutex_destroy(&f->lock);
    free(f->clients);
    free(f->credentials);
    free(f);
}

int object_fake_port(const object_fake *f)
{
    return f->port;
}

void object_fake_set(object_fake *f, fake_mode mode)
{
    atomic_store(&f->mode, (int)mode);
}

void object_fake_set_key(object_fake *f, const char *access_key)
{
    (void)pthread_mutex_lock(&f->lock);
    (void)snprintf(f->key, sizeof f->key, "%s", access_key);
    (void)pthread_mutex_unlock(&f->lock);
}

void object_fake_set_credentials(object_fake *f, const char *json)
{
    (void)pthread_mutex_lock(&f->lock);
    free(f->credentials);
    f->credentials = json == NULL ? NULL : strdup(json);
    (void)pthread_mutex_unlock(&f->lock);
}

uint64_t object_fake_num_requests(const object_fake *f)
{
    return atomic_load(&f->num_requests);
}

uint64_t object_fake_num_objects(const object_fake *f)
{
    return atomic_load(&f->num_objects);
}

uint64_t object_fake_most_clients(const object_fake *f)
{
    return atomic_load(&f->most_clients);
}

void object_fake_last(object_fake *f, char text[4096])
{
    (void)pthread_mutex_lock(&f->lock);
    memcpy(text, f->last, sizeof f->last);
    (void)pthread_mutex_unlock(&f->lock);
}
