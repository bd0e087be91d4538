/* tier/peer/batch.c - jobs, and the calls that are made of them. */
#include "tier/peer/peer.h"

#include <string.h>

/* ---- ends ------------------------------------------------------------------ */

void qr_peer_call_end(quire_tier_peer *peer, const qr_peer_call *call, quire_tier_status status)
{
    qr_net_batch *batch = call->batch;
    if (batch == NULL)
        return;
    qr_net_count(&peer->net, QR_NET_WRONG, status == QUIRE_TIER_WRONG);
    for (uint32_t i = 0; i < call->num_ios; i++)
        qr_net_end_io(&peer->net, batch, call->io + i, status);
}

void qr_peer_call_found(quire_tier_peer *peer, const qr_peer_call *call,
                        const unsigned char *lengths)
{
    qr_net_batch *batch = call->batch;
    for (uint32_t i = 0; batch != NULL && i < call->num_ios; i++) {
        uint32_t bytes = qr_load_u32(lengths + (size_t)i * 4);
        if (bytes > 0)
            batch->ios[call->io + i].bytes = bytes;
        qr_net_end_io(&peer->net, batch, call->io + i,
                      bytes > 0 ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
    }
}

void qr_peer_batch_end_waiting(quire_tier_peer *peer, quire_tier_status status)
{
    for (qr_net_batch *batch = peer->net.active; batch != NULL;) {
        qr_net_batch *next = batch->next;
        qr_net_end_waiting(&peer->net, batch, status);
        batch = next;
    }
}

/* Ends all of it, what is asked too. */
static void end_batch(quire_tier_peer *peer, qr_net_batch *batch, quire_tier_status status)
{
    for (uint32_t i = 0; i < peer->num_links; i++)
        qr_peer_link_forget(peer, &peer->links[i], batch);
    batch->next_io = 0;
    qr_net_end_waiting(&peer->net, batch, status);
}

/* ---- begin, cancel, expire ------------------------------------------------- */

bool qr_peer_has_ready_link(const quire_tier_peer *peer)
{
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state == QR_PEER_LINK_READY)
            return true;
    return false;
}

void qr_peer_batch_begin(qr_net_client *net, quire_tier_job *job)
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
    bool is_down = peer->net.now_ns < peer->retry_at_ns && !qr_peer_has_ready_link(peer);
    bool is_known = job->op == QUIRE_TIER_LOAD || job->op == QUIRE_TIER_FIND;
    qr_net_begin(net, job, is_known && !is_down);
}

void qr_peer_batch_cancel(qr_net_client *net, qr_net_batch *batch)
{
    bool is_late = net->now_ns >= batch->deadline_ns;
    end_batch((quire_tier_peer *)net, batch, is_late ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED);
}

void qr_peer_batch_expire(quire_tier_peer *peer)
{
    for (qr_net_batch *batch = peer->net.active; batch != NULL;) {
        qr_net_batch *next = batch->next;
        if (peer->net.now_ns >= batch->deadline_ns) {
            qr_net_count(&peer->net, QR_NET_LATE, 1);
            end_batch(peer, batch, QUIRE_TIER_FAILED);
        }
        batch = next;
    }
}

/* ---- calls ----------------------------------------------------------------- */

/* The ready link with the least to do, if it has room. */
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
    return best != NULL && qr_peer_link_has_room(peer, best, bytes, block_bytes) ? best : NULL;
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

bool qr_peer_batch_ask(quire_tier_peer *peer)
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
