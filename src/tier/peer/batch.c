/* tier/peer/batch.c - jobs, and the calls that are made of them. */
#include "tier/peer/peer.h"

#include <string.h>

/* ---- ends ------------------------------------------------------------------ */

static void release_batch(quire_tier_peer *peer, qr_peer_batch *batch)
{
    if (batch->prev != NULL)
        batch->prev->next = batch->next;
    else
        peer->active = batch->next;
    if (batch->next != NULL)
        batch->next->prev = batch->prev;
    else
        peer->active_last = batch->prev;
    batch->next = peer->free_batches;
    peer->free_batches = batch;
    peer->num_jobs--;
    qr_peer_count(peer, QR_PEER_COUNT_JOBS, (uint64_t)-1);
}

/* After the last one neither the job nor its ios may be looked at: they are its user's again. */
static void end_io(quire_tier_peer *peer, qr_peer_batch *batch, uint32_t io,
                   quire_tier_status status)
{
    quire_tier_job *job = batch->job;
    if (--batch->open == 0)
        release_batch(peer, batch);
    peer->ends->end(peer->ends, job, io, status);
}

void qr_peer_call_end(quire_tier_peer *peer, const qr_peer_call *call, quire_tier_status status)
{
    qr_peer_batch *batch = call->batch;
    if (batch == NULL)
        return;
    qr_peer_count(peer, QR_PEER_COUNT_WRONG, status == QUIRE_TIER_WRONG);
    for (uint32_t i = 0; i < call->num_ios; i++)
        end_io(peer, batch, call->io + i, status);
}

void qr_peer_call_found(quire_tier_peer *peer, const qr_peer_call *call,
                        const unsigned char *lengths)
{
    qr_peer_batch *batch = call->batch;
    for (uint32_t i = 0; batch != NULL && i < call->num_ios; i++) {
        uint32_t bytes;
        memcpy(&bytes, lengths + (size_t)i * 4, sizeof bytes);
        if (bytes > 0)
            batch->ios[call->io + i].bytes = bytes;
        end_io(peer, batch, call->io + i, bytes > 0 ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
    }
}

/* Ends what is no call yet. true: the batch is gone with it. */
static bool end_rest(quire_tier_peer *peer, qr_peer_batch *batch, quire_tier_status status)
{
    uint32_t num_ios = batch->num_ios;
    uint32_t open = batch->open;
    quire_tier_io *ios = batch->ios;
    uint32_t i = batch->next_io;
    uint32_t left = 0;
    batch->next_io = num_ios;
    for (uint32_t k = i; k < num_ios; k++)
        left += ios[k].status == QUIRE_TIER_PENDING;
    bool is_last = left == open && left > 0;
    for (; left > 0; i++)
        if (ios[i].status == QUIRE_TIER_PENDING) {
            left--;
            end_io(peer, batch, i, status);
        }
    return is_last;
}

void qr_peer_batch_end_waiting(quire_tier_peer *peer, quire_tier_status status)
{
    for (qr_peer_batch *batch = peer->active; batch != NULL;) {
        qr_peer_batch *next = batch->next;
        (void)end_rest(peer, batch, status);
        batch = next;
    }
}

/* Ends all of it, what is asked too. */
static void end_batch(quire_tier_peer *peer, qr_peer_batch *batch, quire_tier_status status)
{
    for (uint32_t i = 0; i < peer->num_links; i++)
        qr_peer_link_forget(peer, &peer->links[i], batch);
    batch->next_io = 0; /* what was asked is PENDING, and nobody's call any more */
    (void)end_rest(peer, batch, status);
}

/* ---- begin, cancel, expire ------------------------------------------------- */

static void refuse_job(quire_tier_peer *peer, quire_tier_job *job, uint32_t open)
{
    quire_tier_io *ios = job->ios;
    qr_peer_count(peer, QR_PEER_COUNT_REFUSED, open);
    for (uint32_t i = 0; open > 0; i++)
        if (ios[i].status == QUIRE_TIER_PENDING) {
            open--;
            peer->ends->end(peer->ends, job, i, QUIRE_TIER_REFUSED);
        }
}

static bool has_ready_link(const quire_tier_peer *peer)
{
    for (uint32_t i = 0; i < peer->num_links; i++)
        if (peer->links[i].state == QR_PEER_LINK_READY)
            return true;
    return false;
}

void qr_peer_batch_begin(quire_tier_peer *peer, quire_tier_job *job)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < job->num_ios; i++)
        open += job->ios[i].status == QUIRE_TIER_PENDING;
    if (open == 0)
        return;
    bool is_down = peer->now_ns < peer->retry_at_ns && !has_ready_link(peer);
    bool is_known = job->op == QUIRE_TIER_LOAD || job->op == QUIRE_TIER_FIND;
    qr_peer_batch *batch = peer->free_batches;
    if (is_down || !is_known || batch == NULL) {
        refuse_job(peer, job, open);
        return;
    }
    peer->free_batches = batch->next;
    *batch = (qr_peer_batch){.job = job,
                             .ios = job->ios,
                             .num_ios = job->num_ios,
                             .open = open,
                             .op = job->op,
                             .deadline_ns = job->due_ns,
                             .prev = peer->active_last};
    if (peer->active_last != NULL)
        peer->active_last->next = batch;
    else
        peer->active = batch;
    peer->active_last = batch;
    peer->num_jobs++;
    qr_peer_count(peer, QR_PEER_COUNT_JOBS, 1);
}

void qr_peer_batch_cancel(quire_tier_peer *peer, const quire_tier_job *job)
{
    for (qr_peer_batch *batch = peer->active; batch != NULL; batch = batch->next)
        if (batch->job == job) {
            bool is_late = peer->now_ns > batch->deadline_ns;
            end_batch(peer, batch, is_late ? QUIRE_TIER_FAILED : QUIRE_TIER_CANCELLED);
            return;
        }
}

void qr_peer_batch_expire(quire_tier_peer *peer)
{
    for (qr_peer_batch *batch = peer->active; batch != NULL;) {
        qr_peer_batch *next = batch->next;
        if (peer->now_ns > batch->deadline_ns) {
            qr_peer_count(peer, QR_PEER_COUNT_LATE, 1);
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

static qr_peer_call *add_call(qr_peer_link *link, qr_peer_batch *batch, uint32_t num_ios)
{
    qr_peer_call *call = qr_peer_call_at(link, link->num_calls++);
    *call = (qr_peer_call){
        .batch = batch, .io = batch->next_io, .num_ios = num_ios, .id = link->next_id++};
    batch->next_io += num_ios;
    return call;
}

static bool ask_load(quire_tier_peer *peer, qr_peer_batch *batch)
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
    qr_peer_put_key(link->out + link->out_bytes + QR_PEER_HEAD, &io->key);
    link->out_bytes += QR_PEER_LOAD;
    return true;
}

static bool ask_find(quire_tier_peer *peer, qr_peer_batch *batch)
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
        qr_peer_put_key(link->out + link->out_bytes + QR_PEER_HEAD + (size_t)i * QR_PEER_KEY,
                        &ios[i].key);
    link->out_bytes += bytes;
    return true;
}

bool qr_peer_batch_ask(quire_tier_peer *peer)
{
    for (qr_peer_batch *batch = peer->active; batch != NULL; batch = batch->next)
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
