#include "tier/peer/peer.h"

#include "base/hooks.h"

enum { BACKOFF_TIMES = 32, JITTER_PERCENT = 25 };

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
    peer->target.num_endpoints = 0;    /* a name is looked up anew */
    if (!qr_peer_has_ready_link(peer)) /* else it goes on with fewer connections */
        qr_peer_batch_end_waiting(peer, QUIRE_TIER_FAILED);
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
    qr_peer_batch_expire(peer);
    close_late(peer);
    bool is_opening = peer->net.wait_ns > 0 && peer->net.ends == NULL;
    if (qr_peer_batch_ask(peer) || is_opening)
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
                                    .begin = qr_peer_batch_begin,
                                    .cancel = qr_peer_batch_cancel,
                                    .find_missing = find_missing};
