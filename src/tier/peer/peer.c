#include "tier/peer/peer.h"

#include "base/hooks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS = QR_AT_A_TIME(32, 1), NS_PER_MS = 1000000, BACKOFF_TIMES = 32, JITTER_PERCENT = 25 };

void qr_peer_say(quire_tier_peer *peer, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(peer->why, sizeof peer->why, format, values);
    va_end(values);
}

/* ---- connecting ------------------------------------------------------------ */

static void go_down(quire_tier_peer *peer)
{
    uint32_t random = 0;
    uint64_t longest = peer->retry_ns * BACKOFF_TIMES;
    (void)qr_random_bytes(&peer->hooks, &random, sizeof random); /* 0 will do as well */
    uint64_t wait = peer->backoff_ns + peer->backoff_ns / 100 * (random % JITTER_PERCENT);
    if (!peer->is_told)
        qr_log(&peer->hooks, QUIRE_LOG_WARNING, "peer %s:%u: %s; retry in %.1f s",
               peer->address.host, peer->address.port, peer->why, (double)wait * 1e-9);
    peer->is_told = true;
    peer->retry_at_ns = peer->now_ns + wait;
    peer->backoff_ns = peer->backoff_ns > longest / 2 ? longest : peer->backoff_ns * 2;
    peer->num_endpoints = 0; /* a name is looked up anew */
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state == QR_PEER_LINK_READY)
            return; /* it goes on with fewer connections */
    qr_peer_batch_end_waiting(peer, QUIRE_TIER_FAILED);
}

void qr_peer_not_connected(quire_tier_peer *peer)
{
    if (++peer->at_endpoint >= peer->num_endpoints)
        go_down(peer);
}

void qr_peer_ready(quire_tier_peer *peer)
{
    if (peer->is_told)
        qr_log(&peer->hooks, QUIRE_LOG_INFO, "peer %s:%u: connected again", peer->address.host,
               peer->address.port);
    peer->is_told = false;
    peer->backoff_ns = peer->retry_ns;
    peer->retry_at_ns = 0;
    peer->at_endpoint = 0;
}

/* The addresses to try; false: not known yet, or never. */
static bool find_endpoints(quire_tier_peer *peer)
{
    if (peer->num_endpoints > 0)
        return true;
    peer->at_endpoint = 0;
    if (qr_address_to_endpoint(&peer->address, &peer->endpoints[0])) {
        peer->num_endpoints = 1;
        return true;
    }
    if (!peer->is_looking && qr_name_ask(peer->name, &peer->address)) {
        peer->is_looking = true;
        peer->look_until_ns = peer->now_ns + peer->connect_ns;
    }
    return false;
}

static void take_name(quire_tier_peer *peer)
{
    qr_address asked;
    qr_endpoint endpoints[QR_ADDRESS_MAX];
    int count = qr_name_answer(peer->name, &asked, endpoints);
    if (count < 0 || !peer->is_looking)
        return;
    peer->is_looking = false;
    peer->at_endpoint = 0;
    peer->num_endpoints = (uint32_t)count;
    memcpy(peer->endpoints, endpoints, (size_t)count * sizeof *endpoints);
    if (count == 0) {
        qr_peer_say(peer, "name not found");
        go_down(peer);
    }
}

/* One more connection, unless one is being made or the peer is down. */
static void add_link(quire_tier_peer *peer)
{
    qr_peer_link *closed = NULL;
    for (uint32_t i = 0; i < peer->num_links; i++) {
        qr_peer_link *link = &peer->links[i];
        if (link->state == QR_PEER_LINK_CLOSED)
            closed = link;
        else if (link->state != QR_PEER_LINK_READY)
            return;
    }
    if (closed == NULL || peer->now_ns < peer->retry_at_ns || !find_endpoints(peer))
        return;
    while (peer->at_endpoint < peer->num_endpoints) {
        if (qr_peer_link_open(peer, closed, &peer->endpoints[peer->at_endpoint]))
            return;
        peer->at_endpoint++;
    }
    go_down(peer);
}

/* ---- time ------------------------------------------------------------------ */

static uint64_t link_due(qr_peer_link *link)
{
    if (link->state == QR_PEER_LINK_CLOSED)
        return UINT64_MAX;
    if (link->state != QR_PEER_LINK_READY)
        return link->until_ns;
    const qr_peer_call *call = qr_peer_call_at(link, 0);
    return link->num_calls > 0 && call->batch == NULL ? call->due_ns : UINT64_MAX;
}

static void close_late(quire_tier_peer *peer)
{
    for (uint32_t i = 0; i < peer->num_links; i++) {
        qr_peer_link *link = &peer->links[i];
        if (peer->now_ns < link_due(link))
            continue;
        bool was_ready = link->state == QR_PEER_LINK_READY;
        qr_peer_say(peer, "timeout: no reply");
        qr_peer_link_close(peer, link);
        if (!was_ready)
            qr_peer_not_connected(peer);
    }
    if (peer->is_looking && peer->now_ns >= peer->look_until_ns) {
        peer->is_looking = false;
        qr_peer_say(peer, "timeout: name lookup");
        go_down(peer);
    }
}

static void earlier(uint64_t *when, uint64_t ns)
{
    *when = ns < *when ? ns : *when;
}

static int wait_ms(quire_tier_peer *peer, int timeout_ms)
{
    uint64_t when = UINT64_MAX;
    for (const qr_peer_batch *batch = peer->active; batch != NULL; batch = batch->next)
        earlier(&when, batch->deadline_ns);
    for (uint32_t i = 0; i < peer->num_links; i++)
        earlier(&when, link_due(&peer->links[i]));
    if (peer->is_looking)
        earlier(&when, peer->look_until_ns);
    if (peer->has_more || when < peer->now_ns)
        return 0;
    if (when == UINT64_MAX)
        return timeout_ms;
    uint64_t ms = (when - peer->now_ns) / NS_PER_MS + 1;
    return timeout_ms >= 0 && (uint64_t)timeout_ms < ms ? timeout_ms
                                                        : (int)(ms < 60000 ? ms : 60000);
}

/* ---- a turn ---------------------------------------------------------------- */

/* Everything that can be done without waiting. */
static void work(quire_tier_peer *peer)
{
    peer->has_more = false;
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state != QR_PEER_LINK_CLOSED)
            qr_peer_link_pump(peer, &peer->links[i]);
    qr_peer_batch_expire(peer);
    close_late(peer);
    bool is_opening = peer->wait_ns > 0 && peer->ends == NULL;
    if (qr_peer_batch_ask(peer) || is_opening)
        add_link(peer);
    for (uint32_t i = 0; i < peer->num_links; i++) {
        const qr_peer_link *link = &peer->links[i];
        if (link->state > QR_PEER_LINK_CONNECTING && link->out_sent < link->out_bytes &&
            link->socket.can_write)
            qr_peer_link_pump(peer, &peer->links[i]);
    }
}

static void watch_wake(quire_tier_peer *peer, int wake_fd)
{
    if (wake_fd == peer->wake_fd)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &peer->wake_fd};
    if (peer->wake_fd >= 0)
        (void)epoll_ctl(peer->epoll_fd, EPOLL_CTL_DEL, peer->wake_fd, NULL);
    peer->wake_fd = wake_fd;
    if (wake_fd >= 0 && epoll_ctl(peer->epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0)
        peer->wake_fd = -1; /* tried again in the next turn */
}

static void take_events(quire_tier_peer *peer, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        void *data = events[i].data.ptr;
        if (data == peer->name) {
            take_name(peer);
        } else if (data != &peer->wake_fd) {
            qr_peer_link *link = data;
            link->socket.can_read = true;
            link->socket.can_write = true;
        }
    }
}

void qr_peer_turn(quire_tier_peer *peer, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    peer->ends = ends;
    peer->now_ns = qr_now_ns(&peer->hooks);
    watch_wake(peer, wake_fd);
    uint32_t num_jobs = peer->num_jobs;
    work(peer);
    /* What ended is told at once. */
    int timeout = peer->num_jobs < num_jobs ? 0 : wait_ms(peer, timeout_ms);
    int n = epoll_wait(peer->epoll_fd, events, EVENTS, timeout);
    peer->now_ns = qr_now_ns(&peer->hooks);
    if (n > 0) {
        take_events(peer, events, n);
        work(peer);
    }
}
