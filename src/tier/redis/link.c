/* tier/redis/link.c - one connection: bytes out, bytes in.
 *
 *      sending   head ─┐                                  | *3 SET key $n header |
 *                body ─┼─ one sendmsg for many calls      | the block's memory   |
 *                tail ─┘                                  | \r\n                 |
 *
 *      receiving ─┬─ lines, to the input buffer           | $n |
 *                 ├─ a value's header, there too          | header |
 *                 ├─ its bytes, to the job's memory       | the block's memory |
 *                 └─ what is behind, to the input buffer  | \r\n$n ...
 */
#include "tier/redis/redis.h"

#include "base/bits.h"

#include <errno.h>
#include <string.h>

enum {
    CALL_PIECES = 3, /* a call is sent in so many */
    MAX_PIECES = QR_AT_A_TIME(48, CALL_PIECES),
    READ_BUDGET = QR_AT_A_TIME(8 * 1024 * 1024, 1),
    READ_AT_ONCE = QR_AT_A_TIME(192 * 1024, 64) /* 64: a block takes many turns, but not seconds */
};

static const char PING[] = "*1\r\n$4\r\nPING\r\n";

/* ---- opening and closing --------------------------------------------------- */

void qr_link_begin(quire_tier_redis *redis, qr_link *link)
{
    link->state = QR_LINK_CONNECTING;
    link->until_ns = redis->net.now_ns + redis->net.connect_ns;
    link->resp = (qr_resp){0};
    link->mode = QR_MODE_REPLY;
    link->in_begin = 0;
    link->in_end = 0;
    qr_net_count(&redis->net, QR_NET_CONNECTIONS, 1);
}

void qr_link_close(quire_tier_redis *redis, qr_link *link, bool strikes)
{
    if (link->state == QR_LINK_CLOSED)
        return;
    bool was_ready = link->state == QR_LINK_READY;
    qr_call *call = link->calls.first;
    qr_socket_close(&link->socket);
    link->state = QR_LINK_CLOSED;
    link->calls = (qr_call_list){0};
    link->sending = NULL;
    link->sent = 0;
    link->num_calls = 0;
    link->bytes = 0;
    qr_net_count(&redis->net, QR_NET_CONNECTIONS, (uint64_t)-1);
    qr_net_count(&redis->net, QR_NET_LOST, 1);
    qr_map_forget(redis, link);
    while (call != NULL) {
        qr_call *next = call->next;
        link->node->num_calls--;
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
        call = next;
    }
    if (!strikes)
        return;
    if (was_ready)
        qr_node_strike(redis, link->node, false);
    else
        qr_node_not_connected(redis, link->node);
}

/* A server may close a connection that nothing is asked on: that is no fault of it. */
static void lose_link(quire_tier_redis *redis, qr_link *link, const char *why)
{
    qr_net_note(&link->node->target, "%s", why);
    qr_link_close(redis, link, link->state != QR_LINK_READY || link->calls.first != NULL);
}

static void surprise(quire_tier_redis *redis, qr_link *link, const char *what)
{
    qr_net_count(&redis->net, QR_NET_SURPRISES, 1);
    qr_net_note(&link->node->target, "%s", what);
    qr_link_close(redis, link, true);
}

/* ---- calls ----------------------------------------------------------------- */

uint64_t qr_call_weight(const qr_call *call)
{
    if (call->kind >= QR_CALL_AUTH)
        return 0;
    return (uint64_t)call->head_bytes + call->body_bytes + call->answer_bytes;
}

/* The node has counted it already. */
void qr_link_push(qr_link *link, qr_call *call)
{
    qr_call_list_add(&link->calls, call);
    if (link->sending == NULL) {
        link->sending = call;
        link->sent = 0;
    }
    link->num_calls++;
    link->bytes += qr_call_weight(call);
}

static void unlink_call(qr_link *link, qr_call *before, qr_call *call)
{
    if (before != NULL)
        before->next = call->next;
    else
        link->calls.first = call->next;
    if (link->calls.last == call)
        link->calls.last = before;
    if (link->sending == call)
        link->sending = call->next;
    link->num_calls--;
    link->node->num_calls--;
    link->bytes -= qr_call_weight(call);
}

static qr_call *pop_call(qr_link *link)
{
    qr_call *call = link->calls.first;
    unlink_call(link, NULL, call);
    return call;
}

/* Its answer goes nowhere. */
static void orphan_call(quire_tier_redis *redis, qr_link *link, qr_call *call,
                        quire_tier_status status)
{
    qr_net_batch *batch = call->batch;
    uint32_t io = call->io;
    if (call == link->calls.first && link->mode == QR_MODE_HEADER)
        link->mode = QR_MODE_VALUE;
    if (call == link->calls.first)
        link->value.memory = NULL;
    call->batch = NULL;
    call->due_ns = redis->net.now_ns + redis->net.late_ns;
    qr_net_end_io(&redis->net, batch, io, status);
}

bool qr_link_forget(quire_tier_redis *redis, qr_link *link, qr_net_batch *batch,
                    quire_tier_status status, bool keeps_stores, uint32_t *num_gone)
{
    bool is_clean = true;
    bool is_sent = true; /* before sending, everything is */
    qr_call *before = NULL;
    for (qr_call *call = link->calls.first; call != NULL;) {
        qr_call *next = call->next;
        bool is_half = call == link->sending && (link->sent > 0 || link->socket.is_promised);
        is_sent = is_sent && call != link->sending;
        if (call->batch != batch) {
            before = call;
        } else if (!is_sent && !is_half) {
            unlink_call(link, before, call);
            qr_call_end(redis, call, status);
        } else if (keeps_stores && call->kind == QR_CALL_STORE) {
            before = call;
        } else {
            ++*num_gone;
            is_clean = is_clean && (!is_half || call->body == NULL); /* its own text stays */
            orphan_call(redis, link, call, status);
            before = call;
        }
        call = next;
    }
    return is_clean;
}

/* ---- sending --------------------------------------------------------------- */

typedef struct piece {
    const void *bytes;
    size_t n;
} piece;

static int list_pieces(quire_tier_redis *redis, const qr_link *link, struct iovec *pieces)
{
    int n = 0;
    uint64_t skip = link->sent;
    for (const qr_call *call = link->sending; call != NULL && n + CALL_PIECES <= MAX_PIECES;
         call = call->next) {
        bool has_body = call->kind == QR_CALL_STORE;
        const piece parts[CALL_PIECES] = {{call->head, call->head_bytes},
                                          {call->body, call->body_bytes},
                                          {redis->tail, has_body ? redis->tail_bytes : 0}};
        for (int i = 0; i < CALL_PIECES; i++) {
            if (skip >= parts[i].n) {
                skip -= parts[i].n;
                continue;
            }
            pieces[n].iov_base = (char *)(uintptr_t)parts[i].bytes + skip;
            pieces[n].iov_len = parts[i].n - skip;
            skip = 0;
            n++;
        }
    }
    return n;
}

static void note_sent(quire_tier_redis *redis, qr_link *link, uint64_t sent)
{
    qr_net_count(&redis->net, QR_NET_BYTES_OUT, sent);
    link->sent += sent;
    while (link->sending != NULL) {
        const qr_call *call = link->sending;
        uint64_t whole = (uint64_t)call->head_bytes + call->body_bytes +
                         (call->kind == QR_CALL_STORE ? redis->tail_bytes : 0);
        if (link->sent < whole)
            return;
        link->sent -= whole;
        link->sending = call->next;
    }
}

static void send_calls(quire_tier_redis *redis, qr_link *link)
{
    while (link->sending != NULL && link->socket.can_write) {
        struct iovec pieces[MAX_PIECES];
        int n = list_pieces(redis, link, pieces);
        ssize_t sent = qr_socket_send(&link->socket, pieces, n);
        if (sent < 0) {
            lose_link(redis, link, qr_socket_why(&link->socket, "connection lost"));
            return;
        }
        note_sent(redis, link, (uint64_t)sent);
    }
}

/* ---- receiving ------------------------------------------------------------- */

/* Where the next bytes go. */
static int aim(qr_link *link, struct iovec *pieces)
{
    int n = 0;
    uint64_t left = link->value.bytes - link->value.at;
    if (link->mode == QR_MODE_VALUE && link->value.memory != NULL && left > 0) {
        pieces[n].iov_base = link->value.memory + link->value.at;
        pieces[n++].iov_len = left < READ_AT_ONCE ? left : READ_AT_ONCE;
        if (left > READ_AT_ONCE)
            return n;
    }
    if (link->in_begin > 0) {
        memmove(link->input, link->input + link->in_begin, link->in_end - link->in_begin);
        link->in_end -= link->in_begin;
        link->in_begin = 0;
    }
    pieces[n].iov_base = link->input + link->in_end;
    pieces[n++].iov_len = QR_REDIS_INPUT - link->in_end;
    return n;
}

/* Bytes of a value that came with what was before it. */
static void take_value(qr_link *link)
{
    const unsigned char *from = link->input + link->in_begin;
    uint32_t n = qr_net_block_take(&link->value, from, link->in_end - link->in_begin);
    if (link->calls.first->kind == QR_CALL_INFO)
        qr_usage_scan(link, from, n);
    link->in_begin += n;
}

static void begin_value(qr_link *link, uint64_t bytes)
{
    const qr_call *call = link->calls.first;
    bool is_expected =
        call->batch != NULL && bytes == (uint64_t)QR_NET_HEADER + qr_call_io(call)->bytes;
    link->mode = is_expected ? QR_MODE_HEADER : QR_MODE_VALUE;
    link->value = (qr_net_block){.bytes = bytes};
}

/* Of what is not ours no byte more is taken. */
static void take_header(quire_tier_redis *redis, qr_link *link)
{
    const quire_tier_io *io = qr_call_io(link->calls.first);
    bool is_ours = qr_net_header_check(redis->space.fingerprint, io, link->input + link->in_begin,
                                       &link->expected_crc);
    link->mode = QR_MODE_VALUE;
    link->in_begin += QR_NET_HEADER;
    link->value = (qr_net_block){.memory = is_ours ? io->memory : NULL, .bytes = io->bytes};
}

static void end_value(quire_tier_redis *redis, qr_link *link)
{
    const unsigned char *at = link->input + link->in_begin;
    if (at[0] != '\r' || at[1] != '\n') {
        surprise(redis, link, "protocol error: a value is longer than announced");
        return;
    }
    link->in_begin += 2;
    link->mode = QR_MODE_REPLY;
    qr_reply_value(redis, link, pop_call(link));
}

/* One item of an answer; false: nothing can be taken now. */
static bool take_reply(quire_tier_redis *redis, qr_link *link)
{
    qr_call *call = link->calls.first;
    qr_resp_item item;
    size_t used;
    if (call == NULL || (call == link->sending && call->num_skipped == 0)) {
        surprise(redis, link, "protocol error: a reply without a request");
        return false;
    }
    bool as_value = call->kind == QR_CALL_LOAD || call->kind == QR_CALL_INFO;
    int status = qr_resp_next(&link->resp, as_value, link->input + link->in_begin,
                              link->in_end - link->in_begin, &used, &item);
    if (status == QR_RESP_MORE)
        return false;
    if (status == QR_RESP_BAD) {
        surprise(redis, link, "protocol error: invalid RESP");
        return false;
    }
    link->in_begin += (uint32_t)used;
    if (call->kind == QR_CALL_SLOTS) {
        if (!qr_map_take(redis, link, &item))
            surprise(redis, link, "protocol error: invalid map of slots");
        else if (item.is_last)
            qr_call_end(redis, pop_call(link), QUIRE_TIER_DONE);
    } else if (call->num_skipped > 0 && item.is_last && item.kind != QR_RESP_VALUE_ITEM) {
        call->num_skipped--;
    } else if (item.kind == QR_RESP_VALUE_ITEM && call->num_skipped == 0) {
        begin_value(link, (uint64_t)item.number);
    } else if (!item.is_last || item.depth > 0 || item.kind == QR_RESP_ARRAY ||
               call->num_skipped > 0) {
        surprise(redis, link, "protocol error: a reply of the wrong kind");
    } else {
        qr_reply_take(redis, link, pop_call(link), &item);
    }
    return link->state != QR_LINK_CLOSED;
}

/* Everything that is in the input buffer. */
static void digest(quire_tier_redis *redis, qr_link *link)
{
    while (link->state != QR_LINK_CLOSED && link->in_begin < link->in_end) {
        uint32_t have = link->in_end - link->in_begin;
        if (link->mode == QR_MODE_VALUE && link->value.at == link->value.bytes)
            link->mode = QR_MODE_END;
        if ((link->mode == QR_MODE_HEADER && have < QR_NET_HEADER) ||
            (link->mode == QR_MODE_END && have < 2))
            return;
        if (link->mode == QR_MODE_HEADER)
            take_header(redis, link);
        else if (link->mode == QR_MODE_END)
            end_value(redis, link);
        else if (link->mode == QR_MODE_VALUE)
            take_value(link);
        else if (!take_reply(redis, link))
            return;
    }
}

static void receive_answers(quire_tier_redis *redis, qr_link *link)
{
    uint64_t budget = READ_BUDGET;
    while (link->state != QR_LINK_CLOSED && link->socket.can_read) {
        struct iovec pieces[2];
        int n = aim(link, pieces);
        ssize_t got = qr_socket_receive(&link->socket, pieces, n);
        if (got < 0) {
            lose_link(redis, link, qr_socket_why(&link->socket, "connection closed by the server"));
            return;
        }
        uint64_t bytes = (uint64_t)got;
        qr_net_count(&redis->net, QR_NET_BYTES_IN, bytes);
        if (link->mode == QR_MODE_VALUE && link->value.memory != NULL) {
            uint64_t left = link->value.bytes - link->value.at;
            uint64_t of_value = bytes < left ? bytes : left;
            qr_net_block_note(&link->value, of_value);
            bytes -= of_value;
        }
        link->in_end += (uint32_t)bytes;
        digest(redis, link);
        if (budget <= (uint64_t)got) { /* others, too */
            redis->net.has_more = redis->net.has_more || link->socket.can_read;
            return;
        }
        budget -= (uint64_t)got;
    }
}

/* ---- both ------------------------------------------------------------------ */

bool qr_link_ask(quire_tier_redis *redis, qr_link *link, qr_call_kind kind, const char *text,
                 uint32_t bytes, uint64_t due_ns)
{
    qr_call *call = qr_call_take(redis, true);
    if (call == NULL)
        return false;
    call->kind = kind;
    call->head = text;
    call->head_bytes = bytes;
    call->due_ns = due_ns;
    link->node->num_calls++;
    qr_link_push(link, call);
    return true;
}

/* The link has its own time for these. */
static void greet(quire_tier_redis *redis, qr_link *link)
{
    bool is_pushed = true;
    link->state = QR_LINK_GREETING;
    if (redis->auth != NULL) {
        char *auth = redis->auth + (size_t)(link - redis->links) * QR_SECRET_AUTH;
        uint32_t bytes = qr_secret_write_auth(&redis->net.secret, auth);
        is_pushed = qr_link_ask(redis, link, QR_CALL_AUTH, auth, bytes, UINT64_MAX);
    }
    is_pushed =
        is_pushed && qr_link_ask(redis, link, QR_CALL_PING, PING, sizeof PING - 1, UINT64_MAX);
    if (!is_pushed)
        lose_link(redis, link, "too many new connections");
}

static void finish_connecting(quire_tier_redis *redis, qr_link *link)
{
    int finished = qr_socket_finish(&link->socket);
    if (finished > 0) {
        qr_net_count(&redis->net, QR_NET_CONNECTED, 1);
        link->socket.can_write = true;
        greet(redis, link);
    } else if (finished == 0) {
        link->socket.can_read = false;
        link->socket.can_write = false;
    } else {
        lose_link(redis, link, qr_socket_why(&link->socket, strerror(errno)));
    }
}

static void check_time(quire_tier_redis *redis, qr_link *link)
{
    bool is_made = link->state == QR_LINK_READY;
    if (!is_made && redis->net.now_ns >= link->until_ns) {
        lose_link(redis, link, "timeout: no reply to a new connection");
    } else if (is_made && link->calls.first != NULL && link->calls.first->batch == NULL &&
               redis->net.now_ns >= link->calls.first->due_ns) {
        lose_link(redis, link, "timeout: a reply is late");
    }
}

void qr_link_pump(quire_tier_redis *redis, qr_link *link)
{
    if (link->state == QR_LINK_CONNECTING && link->socket.can_write) /* an event sets both flags */
        finish_connecting(redis, link);
    if (link->state > QR_LINK_CONNECTING)
        send_calls(redis, link);
    if (link->state > QR_LINK_CONNECTING)
        receive_answers(redis, link);
    if (link->state != QR_LINK_CLOSED)
        check_time(redis, link);
}
