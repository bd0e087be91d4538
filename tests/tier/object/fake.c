#define _GNU_SOURCE /* strcasestr, ppoll */
#include "fake_parts.h"

#include "base/hooks.h"
#include "base/unit.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

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
        fake_say_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
    c->is_deaf = is_put && mode == FAKE_DEAF;
    if (is_put && mode == FAKE_EARLY)
        fake_reply(f, c);
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
    fake_drop_bytes(c->body);
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

/* The request is whole: its reply, when it is time. */
static void reply_in_time(object_fake *f, client *c)
{
    uint64_t delay_ns = atomic_load(&f->delay_ms) * UINT64_C(1000000);
    uint64_t now = delay_ns == 0 ? 0 : qr_now_ns(NULL);
    c->reply_ns = c->reply_ns == 0 ? now + delay_ns : c->reply_ns;
    if (now < c->reply_ns) {
        f->next_ns = c->reply_ns < f->next_ns ? c->reply_ns : f->next_ns;
        return;
    }
    c->reply_ns = 0;
    fake_reply(f, c);
}

static void receive(object_fake *f, client *c)
{
    while (!c->closes && !c->is_deaf && c->socket.can_read && c->out == 0 && c->body == NULL &&
           (c->input == NULL || c->in < c->input->n))
        if (!receive_some(f, c))
            break;
    if (!c->closes && !c->is_deaf && c->input != NULL && c->in == c->input->n)
        reply_in_time(f, c);
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
    fake_drop_bytes(c->body);
    c->body = NULL;
    c->is_slow = false;
    if (c->floods)
        fake_say(c, f->flood, f->flood_bytes);
}

/* ---- the thread -------------------------------------------------------------------- */

static void close_client(object_fake *f, client *c)
{
    struct linger hard = {.l_onoff = 1};
    if (c->resets)
        (void)setsockopt(c->socket.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    qr_socket_close(&c->socket);
    free(c->output);
    fake_drop_bytes(c->body);
    fake_drop_bytes(c->input);
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
    } while (!c->closes && !c->is_deaf && c->out == 0 && c->body == NULL && c->socket.can_read &&
             c->reply_ns == 0);
    if (c->closes && c->out == 0 && c->body == NULL)
        close_client(f, c);
}

/* Until a socket or the next reply: epoll_wait would wait for that in whole milliseconds. */
static void wait_for_events(object_fake *f)
{
    struct pollfd all = {.fd = f->epoll_fd, .events = POLLIN};
    uint64_t now = f->next_ns == UINT64_MAX ? 0 : qr_now_ns(NULL);
    uint64_t left = f->next_ns > now ? f->next_ns - now : 0;
    const struct timespec tick = {.tv_nsec = (long)(left < TICK_NS ? left : TICK_NS)};
    (void)ppoll(&all, 1, &tick, NULL);
    f->next_ns = UINT64_MAX;
}

static void *run_fake(void *user)
{
    object_fake *f = user;
    struct epoll_event events[64];
    while (!atomic_load(&f->is_stopped)) {
        wait_for_events(f);
        int n = epoll_wait(f->epoll_fd, events, 64, 0);
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
        fake_drop_bytes(f->objects[i].body);
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

void object_fake_set_delay(object_fake *f, uint32_t delay_ms)
{
    atomic_store(&f->delay_ms, delay_ms);
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
