/* tier/peer/peer.c - jobs, the calls that are made of them, connecting, and one turn. */
#include "tier/peer/peer.h"

#include "base/hooks.h"

#include <string.h>

enum { BACKOFF_TIMES = 32, JITTER_PERCENT = 25 };

/* ---- ends ------------------------------------------------------------------ */

/* What is no call yet fails. */
static void fail_waiting(quire_tier_peer *peer)
{
    for (qr_net_batch *batch = peer->net.active; batch != NULL;) {
        qr_net_batch *next = batch->next;
        qr_net_end_waiting(&peer->net, batch, QUIRE_TIER_FAILED);
        batch = next;
    }
}

/* Ends all of it, what is asked too. */
static void leave_batch(qr_net_client *net, qr_net_batch *batch, bool is_late)
{
    quire_tier_peer *peer = (quire_tier_peer *)net;
    for (uint32_t i = 0; i < peer->num_links; i++)
        qr_peer_link_forget(peer, &peer->links[i], batch);
    batch->next_io = 0;
    qr_net_end_waiting(net, batch, is_late ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED);
}

static bool has_ready_link(const quire_tier_peer *peer)
{
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state == QR_PEER_LINK_READY)
            return true;
    return false;
}

static bool can_begin(qr_net_client *net, const quire_tier_job *job)
{
    quire_tier_peer *peer = (quire_tier_peer *)net;
    if (peer->has_next_fingerprint) {
        peer->has_next_fingerprint = false;
        memcpy(peer->fingerprint, peer->next_fingerprint, sizeof peer->fingerprint);
        for (uint32_t i = 0; i < peer->num_links; i++)
            qr_peer_link_close(peer, &peer->links[i]);
        peer->retry_at_ns = 0;
        peer->backoff_ns = peer->retry_ns;
    }
    bool is_down = peer->net.now_ns < peer->retry_at_ns && !has_ready_link(peer);
    bool is_known = job->op == QUIRE_TIER_LOAD || job->op == QUIRE_TIER_FIND;
    return is_known && !is_down;
}

/* ---- calls ----------------------------------------------------------------- */

/* The ready link with the least to do, if it has room for a question of so many bytes, and for so
 * many of a block. */
static qr_peer_link *choose_link(quire_tier_peer *peer, uint32_t bytes, uint32_t block_bytes)
{
    qr_peer_link *best = NULL;
    for (uint32_t i = 0; i < peer->num_links; i++) {
        qr_peer_link *link = &peer->links[i];
        if (link->state == QR_PEER_LINK_READY &&
            (best == NULL || link->bytes < best->bytes ||
             (link->bytes == best->bytes && link->num_calls < best->num_calls)))
            best = link;
    }
    bool has_room = best != NULL && best->num_calls < QR_PEER_CALLS &&
                    QR_PEER_OUT - best->out_bytes >= bytes &&
                    (best->num_calls == 0 || best->bytes + block_bytes <= peer->window_bytes);
    return has_room ? best : NULL;
}

static qr_peer_call *add_call(qr_peer_link *link, qr_net_batch *batch, uint32_t num_ios)
{
    qr_peer_call *call = qr_peer_call_at(link, link->num_calls++);
    *call = (qr_peer_call){
        .batch = batch, .io = batch->next_io, .num_ios = num_ios, .id = link->next_id++};
    for (uint32_t i = 0; i < num_ios; i++)
        batch->ios[batch->next_io++].generation = QR_NET_ASKED;
    return call;
}

static bool ask_load(quire_tier_peer *peer, qr_net_batch *batch)
{
    const quire_tier_io *io = &batch->ios[batch->next_io];
    qr_peer_link *link = choose_link(peer, QR_PEER_LOAD, io->bytes);
    if (link == NULL)
        return false;
    qr_peer_call *call = add_call(link, batch, 1);
    call->is_load = true;
    call->bytes = io->bytes;
    link->bytes += io->bytes;
    qr_peer_put_head(link->out + link->out_bytes, QR_PEER_TYPE_LOAD, call->id, io->bytes, 0);
    memcpy(link->out + link->out_bytes + QR_PEER_HEAD, &io->key, QR_PEER_KEY);
    link->out_bytes += QR_PEER_LOAD;
    return true;
}

static bool ask_find(quire_tier_peer *peer, qr_net_batch *batch)
{
    const quire_tier_io *ios = &batch->ios[batch->next_io];
    uint32_t most = batch->num_ios - batch->next_io;
    uint32_t n = 1;
    while (n < most && n < QR_PEER_MAX_FIND && ios[n].status == QUIRE_TIER_PENDING)
        n++;
    uint32_t bytes = QR_PEER_HEAD + n * QR_PEER_KEY;
    qr_peer_link *link = choose_link(peer, bytes, 0);
    if (link == NULL)
        return false;
    qr_peer_call *call = add_call(link, batch, n);
    qr_peer_put_head(link->out + link->out_bytes, QR_PEER_TYPE_FIND, call->id, n, 0);
    for (uint32_t i = 0; i < n; i++)
        memcpy(link->out + link->out_bytes + QR_PEER_HEAD + (size_t)i * QR_PEER_KEY, &ios[i].key,
               QR_PEER_KEY);
    link->out_bytes += bytes;
    return true;
}

/* Makes calls of ios while links have room. true: some ios wait for a link. */
static bool ask_all(quire_tier_peer *peer)
{
    for (qr_net_batch *batch = peer->net.active; batch != NULL; batch = batch->next)
        while (batch->next_io < batch->num_ios) {
            if (batch->ios[batch->next_io].status != QUIRE_TIER_PENDING) {
                batch->next_io++;
                continue;
            }
            bool is_asked =
                batch->op == QUIRE_TIER_LOAD ? ask_load(peer, batch) : ask_find(peer, batch);
            if (!is_asked)
                return true;
        }
    return false;
}

/* ---- connecting ------------------------------------------------------------ */

static void go_down(quire_tier_peer *peer)
{
    uint32_t random = 0;
    uint64_t longest = peer->retry_ns * BACKOFF_TIMES;
    (void)qr_random_bytes(&peer->net.hooks, &random, sizeof random); /* 0 will do as well */
    uint64_t wait = peer->backoff_ns + peer->backoff_ns / 100 * (random % JITTER_PERCENT);
    if (!peer->target.is_told)
        qr_log(&peer->net.hooks, QUIRE_LOG_WARNING, "peer %s:%u: %s; retry in %.1f s",
               peer->target.address.host, peer->target.address.port, peer->target.why,
               (double)wait * 1e-9);
    peer->target.is_told = true;
    peer->retry_at_ns = peer->net.now_ns + wait;
    peer->backoff_ns = peer->backoff_ns > longest / 2 ? longest : peer->backoff_ns * 2;
    peer->target.num_endpoints = 0; /* a name is looked up anew */
    if (!has_ready_link(peer))      /* else it goes on with fewer connections */
        fail_waiting(peer);
}

void qr_peer_not_connected(quire_tier_peer *peer)
{
    if (++peer->target.at_endpoint >= peer->target.num_endpoints)
        go_down(peer);
}

void qr_peer_ready(quire_tier_peer *peer)
{
    if (peer->target.is_told)
        qr_log(&peer->net.hooks, QUIRE_LOG_INFO, "peer %s:%u: connected again",
               peer->target.address.host, peer->target.address.port);
    peer->target.is_told = false;
    peer->backoff_ns = peer->retry_ns;
    peer->retry_at_ns = 0;
    peer->target.at_endpoint = 0;
}

static void name_found(qr_net_client *net, qr_net_target *target)
{
    quire_tier_peer *peer = (quire_tier_peer *)net;
    if (target->num_endpoints == 0) {
        qr_net_note(target, "name not found");
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
    bool is_down = peer->net.now_ns < peer->retry_at_ns;
    if (closed == NULL || is_down || peer->target.is_looking ||
        (peer->target.num_endpoints == 0 && !qr_net_find_endpoints(&peer->net, &peer->target)))
        return;
    if (qr_net_connect(&peer->net, &peer->target, &closed->socket))
        qr_peer_link_begin(peer, closed);
    else
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
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->net.now_ns >= link_due(&peer->links[i]))
            qr_peer_link_lose(peer, &peer->links[i], "timeout: no reply");
    if (peer->target.is_looking && peer->net.now_ns >= peer->target.until_ns) {
        peer->target.is_looking = false;
        qr_net_note(&peer->target, "timeout: name lookup");
        go_down(peer);
    }
}

static uint64_t next_time(qr_net_client *net)
{
    const quire_tier_peer *peer = (quire_tier_peer *)net;
    uint64_t when = peer->target.is_looking ? peer->target.until_ns : UINT64_MAX;
    for (uint32_t i = 0; i < peer->num_links; i++)
        qr_earlier(&when, link_due(&peer->links[i]));
    return when;
}

/* ---- a turn ---------------------------------------------------------------- */

static void work(qr_net_client *net)
{
    quire_tier_peer *peer = (quire_tier_peer *)net;
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state != QR_PEER_LINK_CLOSED)
            qr_peer_link_pump(peer, &peer->links[i]);
    qr_net_expire(net);
    close_late(peer);
    bool is_opening = peer->net.wait_ns > 0 && peer->net.ends == NULL;
    if (ask_all(peer) || is_opening)
        add_link(peer);
    for (uint32_t i = 0; i < peer->num_links; i++) {
        const qr_peer_link *link = &peer->links[i];
        if (link->state > QR_PEER_LINK_CONNECTING && link->out_sent < link->out_bytes &&
            link->socket.can_write)
            qr_peer_link_pump(peer, &peer->links[i]);
    }
}

static const qr_net_target *find_missing(const qr_net_client *net)
{
    const quire_tier_peer *peer = (const quire_tier_peer *)net;
    return qr_count_get(&net->counts[QR_NET_CONNECTED]) > 0 ? NULL : &peer->target;
}

const qr_net_ops qr_peer_net_ops = {.name = "peer",
                                    .work = work,
                                    .next_time = next_time,
                                    .name_found = name_found,
                                    .can_begin = can_begin,
                                    .leave = leave_batch,
                                    .find_missing = find_missing};
