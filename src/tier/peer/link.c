/* tier/peer/link.c - one connection of the peer tier: bytes out, bytes in.
 *
 *      receiving ─┬─ heads and tails, to the input buffer
 *                 └─ blocks, to the job's memory; what is behind them, to the input buffer
 */
#include "tier/peer/peer.h"

#include "base/hooks.h"
#include "tier/core/key.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>

enum {
    READ_BUDGET = QR_AT_A_TIME(8 * 1024 * 1024, 1),
    READ_AT_ONCE = QR_AT_A_TIME(192 * 1024, 500)
};

/* ---- ends ------------------------------------------------------------------ */

/* Its ios end; the call has left its link. */
static void end_call(quire_tier_peer *peer, const qr_peer_call *call, quire_tier_status status)
{
    qr_net_batch *batch = call->batch;
    if (batch == NULL)
        return;
    qr_net_count(&peer->net, QR_NET_WRONG, status == QUIRE_TIER_WRONG);
    for (uint32_t i = 0; i < call->num_ios; i++)
        qr_net_end_io(&peer->net, batch, call->io + i, status);
}

/* The lengths of a FIND's answer. */
static void end_find(quire_tier_peer *peer, const qr_peer_call *call, const unsigned char *lengths)
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

/* ---- opening and closing --------------------------------------------------- */

void qr_peer_link_begin(quire_tier_peer *peer, qr_peer_link *link)
{
    link->state = QR_PEER_LINK_CONNECTING;
    link->until_ns = peer->net.now_ns + peer->net.connect_ns;
    link->first_call = 0;
    link->num_calls = 0;
    link->bytes = 0;
    link->mode = QR_PEER_MODE_HEAD;
    link->in_bytes = 0;
    link->out_bytes = 0;
    link->out_sent = 0;
}

void qr_peer_link_close(quire_tier_peer *peer, qr_peer_link *link)
{
    if (link->state == QR_PEER_LINK_CLOSED)
        return;
    if (link->state == QR_PEER_LINK_READY)
        qr_net_count(&peer->net, QR_NET_CONNECTIONS, (uint64_t)-1);
    qr_net_count(&peer->net, QR_NET_LOST, 1);
    qr_socket_close(&link->socket);
    link->state = QR_PEER_LINK_CLOSED;
    OPENSSL_cleanse(&link->talk, sizeof link->talk);
    uint32_t n = link->num_calls;
    link->num_calls = 0;
    for (uint32_t i = 0; i < n; i++)
        end_call(peer, qr_peer_call_at(link, i), QUIRE_TIER_FAILED);
}

void qr_peer_link_lose(quire_tier_peer *peer, qr_peer_link *link, const char *why)
{
    bool was_ready = link->state == QR_PEER_LINK_READY;
    qr_net_note(&peer->target, "%s", why);
    qr_peer_link_close(peer, link);
    if (!was_ready)
        qr_peer_not_connected(peer);
}

/* A connection that the other side closed. */
static const char *why_lost(const qr_peer_link *link)
{
    bool is_plain = link->socket.session == NULL && link->state == QR_PEER_LINK_HELLO;
    return is_plain ? "connection closed before the handshake: the peer expects TLS, or has no "
                      "room for a connection"
                    : qr_socket_why(&link->socket, "connection lost");
}

static void surprise(quire_tier_peer *peer, qr_peer_link *link, const char *what)
{
    qr_net_count(&peer->net, QR_NET_SURPRISES, 1);
    qr_peer_link_lose(peer, link, what);
}

/* ---- calls ----------------------------------------------------------------- */

void qr_peer_link_forget(quire_tier_peer *peer, qr_peer_link *link, const qr_net_batch *batch)
{
    for (uint32_t i = 0; i < link->num_calls; i++) {
        qr_peer_call *call = qr_peer_call_at(link, i);
        if (call->batch != batch)
            continue;
        for (uint32_t k = 0; k < call->num_ios; k++)
            batch->ios[call->io + k].generation = 0;
        if (i == 0)
            link->block.memory = NULL;
        call->batch = NULL;
        call->due_ns = peer->net.now_ns + peer->net.late_ns;
    }
}

static qr_peer_call pop_call(qr_peer_link *link)
{
    qr_peer_call call = *qr_peer_call_at(link, 0);
    link->first_call = (link->first_call + 1) & (QR_PEER_CALLS - 1);
    link->num_calls--;
    link->bytes -= call.bytes;
    return call;
}

static quire_tier_io *io_of(const qr_peer_call *call)
{
    return &call->batch->ios[call->io];
}

/* ---- sending --------------------------------------------------------------- */

static void send_out(quire_tier_peer *peer, qr_peer_link *link)
{
    while (link->out_sent < link->out_bytes && link->socket.can_write) {
        struct iovec piece = {link->out + link->out_sent, link->out_bytes - link->out_sent};
        ssize_t sent = qr_socket_send(&link->socket, &piece, 1);
        if (sent < 0) {
            qr_peer_link_lose(peer, link, why_lost(link));
            return;
        }
        link->out_sent += (uint32_t)sent;
    }
    if (link->out_sent == link->out_bytes && !link->socket.is_promised) {
        link->out_sent = 0;
        link->out_bytes = 0;
    }
}

/* ---- the handshake --------------------------------------------------------- */

static void say_hello(quire_tier_peer *peer, qr_peer_link *link)
{
    unsigned char random[QR_PEER_RANDOM];
    if (qr_random_bytes(&peer->net.hooks, random, sizeof random) != 0) {
        qr_peer_link_lose(peer, link, "no random bytes");
        return;
    }
    qr_peer_put_greeting(link->out, QR_PEER_OK, random);
    link->out_bytes = QR_PEER_HELLO;
    memcpy(link->talk.hello, link->out, QR_PEER_HELLO);
    memcpy(link->talk.fingerprint, peer->fingerprint, QUIRE_FINGERPRINT_BYTES);
    link->state = QR_PEER_LINK_HELLO;
}

static void take_challenge(quire_tier_peer *peer, qr_peer_link *link)
{
    uint32_t version;
    uint32_t status;
    const char *secret = qr_secret_get(&peer->net.secret);
    if (!qr_peer_get_greeting(link->in, &version, &status)) {
        surprise(peer, link, "not a Quire peer");
        return;
    }
    if (version != QR_PEER_VERSION || status != QR_PEER_OK) {
        qr_peer_link_lose(peer, link, "the peer speaks another version of the protocol");
        return;
    }
    memcpy(link->talk.challenge, link->in, QR_PEER_CHALLENGE);
    memcpy(link->out, link->talk.fingerprint, QUIRE_FINGERPRINT_BYTES);
    if (strlen(secret) < QR_PEER_SECRET_LEAST ||
        !qr_peer_prove(secret, &link->talk, NULL, link->out + QUIRE_FINGERPRINT_BYTES)) {
        qr_peer_link_lose(peer, link, "secret is too short, or its digest failed");
        return;
    }
    link->out_bytes = QR_PEER_PROOF;
    link->out_sent = 0;
    link->state = QR_PEER_LINK_PROOF;
}

static void take_welcome(quire_tier_peer *peer, qr_peer_link *link)
{
    uint32_t status;
    uint32_t max_block_bytes;
    unsigned char mac[QR_PEER_MAC];
    if (!qr_peer_get_welcome(link->in, &status, &max_block_bytes)) {
        surprise(peer, link, "protocol error: no welcome");
        return;
    }
    bool is_proven = qr_peer_prove(peer->net.secret.password, &link->talk, link->in, mac) &&
                     CRYPTO_memcmp(mac, link->in + QR_PEER_WELCOME_HEAD, QR_PEER_MAC) == 0;
    if (status == QR_PEER_SECRET || !is_proven) {
        qr_peer_link_lose(peer, link, "authentication failed: the peer has another secret");
        return;
    }
    if (status == QR_PEER_IDENTITY) {
        qr_peer_link_lose(peer, link, "the peer has blocks of another fingerprint");
        return;
    }
    link->state = QR_PEER_LINK_READY;
    qr_net_count(&peer->net, QR_NET_CONNECTIONS, 1);
    qr_net_count(&peer->net, QR_NET_CONNECTED, 1);
    qr_peer_ready(peer);
}

/* ---- answers --------------------------------------------------------------- */

/* What the peer says of the block that follows, or that none does. */
static void take_loaded(quire_tier_peer *peer, qr_peer_link *link, const qr_peer_head *head)
{
    static const unsigned char zeros[8];
    const qr_peer_call *call = qr_peer_call_at(link, 0);
    quire_tier_key key;
    memcpy(&key, link->in + QR_PEER_HEAD, QR_PEER_KEY);
    bool is_ok = head->a == QR_PEER_OK && head->b == call->bytes;
    bool is_none = (head->a == QR_PEER_MISSING || head->a == QR_PEER_LENGTH) && head->b == 0;
    bool is_form = head->type == QR_PEER_TYPE_LOADED && head->id == call->id &&
                   memcmp(link->in + QR_PEER_LOAD, zeros, sizeof zeros) == 0;
    if (!is_form || (!is_ok && !is_none)) {
        surprise(peer, link, "protocol error: not the answer to a LOAD");
    } else if (call->batch != NULL && !qr_key_is_equal(&key, &io_of(call)->key)) {
        qr_peer_call wrong = pop_call(link);
        end_call(peer, &wrong, QUIRE_TIER_WRONG);
        surprise(peer, link, "protocol error: a block of another key");
    } else if (is_none) {
        qr_peer_call none = pop_call(link);
        end_call(peer, &none, head->a == QR_PEER_MISSING ? QUIRE_TIER_MISSING : QUIRE_TIER_WRONG);
    } else {
        link->mode = QR_PEER_MODE_BLOCK;
        link->block = (qr_net_block){.bytes = call->bytes};
        if (call->batch != NULL)
            link->block.memory = io_of(call)->memory;
    }
}

static void take_tail(quire_tier_peer *peer, qr_peer_link *link, const qr_peer_head *head)
{
    qr_peer_call call = *qr_peer_call_at(link, 0);
    if (head->type != QR_PEER_TYPE_TAIL || head->id != call.id ||
        (head->a != QR_PEER_OK && head->a != QR_PEER_VOID)) {
        surprise(peer, link, "protocol error: not the end of a block");
        return;
    }
    (void)pop_call(link);
    link->mode = QR_PEER_MODE_HEAD;
    if (call.batch == NULL)
        return;
    io_of(&call)->crc = head->b;
    qr_net_count(&peer->net, QR_NET_VOIDED, head->a == QR_PEER_VOID);
    if (head->a == QR_PEER_VOID)
        end_call(peer, &call, QUIRE_TIER_MISSING);
    else
        end_call(peer, &call, head->b == link->block.crc ? QUIRE_TIER_DONE : QUIRE_TIER_WRONG);
}

static void take_found(quire_tier_peer *peer, qr_peer_link *link, const qr_peer_head *head)
{
    qr_peer_call call = *qr_peer_call_at(link, 0);
    bool is_good = head->type == QR_PEER_TYPE_FOUND && head->id == call.id &&
                   head->a == call.num_ios && head->b == 0;
    for (uint32_t i = 0; is_good && i < call.num_ios; i++)
        is_good = qr_load_u32(link->in + QR_PEER_HEAD + (size_t)i * 4) <= peer->net.max_block_bytes;
    if (!is_good) {
        surprise(peer, link, "protocol error: not the answer to a FIND");
        return;
    }
    (void)pop_call(link);
    end_find(peer, &call, link->in + QR_PEER_HEAD);
}

/* ---- receiving ------------------------------------------------------------- */

/* How many bytes the next thing has. */
static uint32_t needed(qr_peer_link *link)
{
    if (link->state == QR_PEER_LINK_HELLO)
        return QR_PEER_CHALLENGE;
    if (link->state == QR_PEER_LINK_PROOF)
        return QR_PEER_WELCOME;
    if (link->mode == QR_PEER_MODE_TAIL || link->num_calls == 0)
        return QR_PEER_HEAD;
    const qr_peer_call *call = qr_peer_call_at(link, 0);
    return call->is_load ? QR_PEER_LOADED : QR_PEER_HEAD + call->num_ios * 4;
}

static void take_answer(quire_tier_peer *peer, qr_peer_link *link)
{
    qr_peer_head head = qr_peer_get_head(link->in);
    if (link->state == QR_PEER_LINK_HELLO)
        take_challenge(peer, link);
    else if (link->state == QR_PEER_LINK_PROOF)
        take_welcome(peer, link);
    else if (link->mode == QR_PEER_MODE_TAIL)
        take_tail(peer, link, &head);
    else if (qr_peer_call_at(link, 0)->is_load)
        take_loaded(peer, link, &head);
    else
        take_found(peer, link, &head);
}

/* All of the input that is whole. */
static void take_input(quire_tier_peer *peer, qr_peer_link *link)
{
    while (link->state != QR_PEER_LINK_CLOSED && link->in_bytes > 0) {
        bool is_ready = link->state == QR_PEER_LINK_READY;
        if (is_ready && link->num_calls == 0) {
            surprise(peer, link, "protocol error: bytes that were not asked for");
            return;
        }
        uint32_t n;
        if (link->mode == QR_PEER_MODE_BLOCK && link->block.at == link->block.bytes)
            link->mode = QR_PEER_MODE_TAIL;
        if (is_ready && link->mode == QR_PEER_MODE_BLOCK) {
            n = qr_net_block_take(&link->block, link->in, link->in_bytes);
        } else {
            n = needed(link);
            if (link->in_bytes < n)
                return;
            take_answer(peer, link);
            if (link->state == QR_PEER_LINK_CLOSED)
                return;
        }
        link->in_bytes -= n;
        memmove(link->in, link->in + n, link->in_bytes);
    }
}

/* Where the next bytes go; of_block: how many of them are the block's, at most. */
static int aim(quire_tier_peer *peer, qr_peer_link *link, struct iovec *pieces, uint32_t *of_block)
{
    int n = 0;
    *of_block = 0;
    const qr_net_block *block = &link->block;
    uint64_t left = block->bytes - block->at;
    if (link->mode == QR_PEER_MODE_BLOCK && left > 0) {
        bool is_used = block->memory != NULL;
        uint64_t most = is_used ? READ_AT_ONCE : QR_PEER_SCRATCH;
        *of_block = (uint32_t)(left < most ? left : most);
        pieces[n].iov_base = is_used ? block->memory + block->at : peer->scratch;
        pieces[n++].iov_len = *of_block;
        if (left > most)
            return n;
    }
    pieces[n].iov_base = link->in + link->in_bytes;
    pieces[n++].iov_len = QR_PEER_IN - link->in_bytes;
    return n;
}

static void receive(quire_tier_peer *peer, qr_peer_link *link)
{
    uint64_t budget = READ_BUDGET;
    while (link->state > QR_PEER_LINK_CONNECTING && link->socket.can_read) {
        struct iovec pieces[2];
        uint32_t of_block;
        if (budget == 0) {
            peer->net.has_more = true;
            return;
        }
        int n = aim(peer, link, pieces, &of_block);
        ssize_t got = qr_socket_receive(&link->socket, pieces, n);
        if (got < 0) {
            qr_peer_link_lose(peer, link, why_lost(link));
            return;
        }
        if (got == 0)
            continue; /* can_read tells whether there is more */
        budget -= (uint64_t)got < budget ? (uint64_t)got : budget;
        qr_net_count(&peer->net, QR_NET_BYTES_IN, (uint64_t)got);
        uint32_t block = (uint64_t)got < of_block ? (uint32_t)got : of_block;
        if (block > 0)
            qr_net_block_note(&link->block, block);
        link->in_bytes += (uint32_t)got - block;
        take_input(peer, link);
    }
}

void qr_peer_link_pump(quire_tier_peer *peer, qr_peer_link *link)
{
    if (link->state == QR_PEER_LINK_CONNECTING) {
        int done = qr_socket_finish(&link->socket);
        if (done < 0) {
            qr_peer_link_lose(peer, link, qr_socket_why(&link->socket, strerror(errno)));
        }
        if (done <= 0)
            return;
        say_hello(peer, link);
    }
    receive(peer, link);
    if (link->state > QR_PEER_LINK_CONNECTING)
        send_out(peer, link);
}
