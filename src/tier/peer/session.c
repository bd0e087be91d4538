#include "tier/peer/server.h"

#include "base/hooks.h"

#include <openssl/crypto.h>
#include <string.h>

enum {
    SEND_AT_ONCE = QR_AT_A_TIME(512 * 1024, 300), /* while it is in the cache from its checksum */
    SEND_BUDGET = QR_AT_A_TIME(8 * 1024 * 1024, 450),
    FILLER = 64 * 1024
};

/* The block's memory may be written while it is read here; what was read is then not used (see
 * table.h). The thread sanitizer cannot know that. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#else
#define AnnotateIgnoreReadsBegin(file, line) ((void)0)
#define AnnotateIgnoreReadsEnd(file, line)   ((void)0)
#endif

/* In place of a block that is not there any more. */
static const unsigned char filler[FILLER];

void qr_session_close(quire_peer_server *server, qr_session *session)
{
    if (session->state == QR_SESSION_CLOSED)
        return;
    /* Before the socket: a client that sees it closed may read the counts. */
    qr_served(server, QR_SERVED_CONNECTIONS, (uint64_t)-1);
    qr_socket_close(&session->socket);
    session->state = QR_SESSION_CLOSED;
    OPENSSL_cleanse(&session->talk, sizeof session->talk);
}

void qr_session_begin(quire_peer_server *server, qr_session *session)
{
    session->state = QR_SESSION_TLS;
    session->since_ns = server->now_ns;
    session->in_bytes = 0;
    session->out_bytes = 0;
    session->out_sent = 0;
    session->has_block = false;
    session->socket.can_read = true;
    session->socket.can_write = true;
    qr_served(server, QR_SERVED_CONNECTIONS, 1);
    qr_served(server, QR_SERVED_ACCEPTED, 1);
}

static bool is_answering(const qr_session *session)
{
    return session->has_block || session->out_sent < session->out_bytes;
}

uint64_t qr_session_due(const quire_peer_server *server, const qr_session *session)
{
    if (session->state == QR_SESSION_CLOSED)
        return UINT64_MAX;
    if (session->state != QR_SESSION_READY)
        return session->since_ns + server->handshake_ns;
    return is_answering(session) ? session->since_ns + server->stall_ns : UINT64_MAX;
}

static void refuse_frame(quire_peer_server *server, qr_session *session)
{
    qr_served(server, QR_SERVED_BAD_FRAMES, 1);
    qr_session_close(server, session);
}

/* ---- the handshake --------------------------------------------------------- */

static void answer(qr_session *session, uint32_t bytes)
{
    session->out_bytes = bytes;
    session->out_sent = 0;
}

static void take_hello(quire_peer_server *server, qr_session *session)
{
    uint32_t version;
    uint32_t status;
    unsigned char random[QR_PEER_RANDOM];
    if (!qr_peer_get_greeting(session->in, &version, &status) || status != QR_PEER_OK) {
        refuse_frame(server, session);
        return;
    }
    if (qr_random_bytes(&server->hooks, random, sizeof random) != 0) {
        qr_session_close(server, session);
        return;
    }
    bool is_known = version == QR_PEER_VERSION;
    qr_peer_put_greeting(session->out, is_known ? QR_PEER_OK : QR_PEER_UNKNOWN, random);
    memcpy(session->talk.hello, session->in, QR_PEER_HELLO);
    memcpy(session->talk.challenge, session->out, QR_PEER_CHALLENGE);
    session->state = is_known ? QR_SESSION_PROOF : QR_SESSION_LEAVING;
    answer(session, QR_PEER_CHALLENGE);
}

/* OK, or why it may not come in. */
static qr_peer_status judge_proof(quire_peer_server *server, qr_session *session,
                                  const char *secret)
{
    unsigned char mac[QR_PEER_MAC];
    memcpy(session->talk.fingerprint, session->in, QUIRE_FINGERPRINT_BYTES);
    if (strlen(secret) < QR_PEER_SECRET_LEAST ||
        !qr_peer_prove(secret, &session->talk, NULL, mac) ||
        CRYPTO_memcmp(mac, session->in + QUIRE_FINGERPRINT_BYTES, QR_PEER_MAC) != 0) {
        qr_served(server, QR_SERVED_NOT_PROVEN, 1);
        return QR_PEER_SECRET;
    }
    if (!qr_peer_table_is_same(&server->table, session->talk.fingerprint, &session->epoch)) {
        qr_served(server, QR_SERVED_NOT_SAME, 1);
        return QR_PEER_IDENTITY;
    }
    return QR_PEER_OK;
}

static void take_proof(quire_peer_server *server, qr_session *session)
{
    const char *secret = qr_secret_get(&server->secret);
    qr_peer_status status = judge_proof(server, session, secret);
    qr_peer_put_welcome(session->out, status, server->max_block_bytes);
    if (status != QR_PEER_SECRET &&
        !qr_peer_prove(secret, &session->talk, session->out, session->out + QR_PEER_WELCOME_HEAD)) {
        qr_session_close(server, session);
        return;
    }
    session->state = status == QR_PEER_OK ? QR_SESSION_READY : QR_SESSION_LEAVING;
    session->since_ns = server->now_ns;
    answer(session, QR_PEER_WELCOME);
}

/* ---- questions ------------------------------------------------------------- */

static void take_find(quire_peer_server *server, qr_session *session, const qr_peer_head *head)
{
    uint32_t num_found = 0;
    qr_peer_put_head(session->out, QR_PEER_TYPE_FOUND, head->id, head->a, 0);
    for (uint32_t i = 0; i < head->a; i++) {
        quire_tier_key key;
        qr_peer_offer offer;
        uint32_t bytes = 0;
        memcpy(&key, session->in + QR_PEER_HEAD + (size_t)i * QR_PEER_KEY, QR_PEER_KEY);
        if (qr_peer_table_find(&server->table, &key, session->epoch, &offer))
            bytes = offer.bytes;
        num_found += bytes > 0;
        memcpy(session->out + QR_PEER_HEAD + (size_t)i * 4, &bytes, sizeof bytes);
    }
    qr_served(server, QR_SERVED_KEYS_FOUND, num_found);
    qr_served(server, QR_SERVED_KEYS_MISSING, head->a - num_found);
    answer(session, QR_PEER_HEAD + head->a * 4);
}

static void take_load(quire_peer_server *server, qr_session *session, const qr_peer_head *head)
{
    quire_tier_key key;
    qr_peer_status status = QR_PEER_OK;
    memcpy(&key, session->in + QR_PEER_HEAD, QR_PEER_KEY);
    if (!qr_peer_table_find(&server->table, &key, session->epoch, &session->offer))
        status = QR_PEER_MISSING;
    else if (session->offer.bytes != head->a)
        status = QR_PEER_LENGTH;
    memset(session->out, 0, QR_PEER_LOADED);
    qr_peer_put_head(session->out, QR_PEER_TYPE_LOADED, head->id, status,
                     status == QR_PEER_OK ? head->a : 0);
    memcpy(session->out + QR_PEER_HEAD, &key, QR_PEER_KEY);
    answer(session, QR_PEER_LOADED);
    session->id = head->id;
    session->has_block = status == QR_PEER_OK;
    session->is_void = false;
    session->block_sent = 0;
    session->crc = session->offer.crc;
    session->summed = session->has_block && session->offer.has_crc ? session->offer.bytes : 0;
    if (session->summed == 0)
        session->crc = 0;
    qr_served(server, QR_SERVED_MISSING, status != QR_PEER_OK);
}

/* How many bytes the question at the beginning of the input has; 0: it is none. */
static uint32_t question_bytes(const qr_session *session)
{
    if (session->state == QR_SESSION_HELLO)
        return QR_PEER_HELLO;
    if (session->state == QR_SESSION_PROOF)
        return QR_PEER_PROOF;
    if (session->in_bytes < QR_PEER_HEAD)
        return QR_PEER_HEAD;
    qr_peer_head head = qr_peer_get_head(session->in);
    if (head.b != 0)
        return 0;
    if (head.type == QR_PEER_TYPE_LOAD)
        return QR_PEER_LOAD;
    bool is_find = head.type == QR_PEER_TYPE_FIND && head.a > 0 && head.a <= QR_PEER_MAX_FIND;
    return is_find ? QR_PEER_HEAD + head.a * QR_PEER_KEY : 0;
}

static void take_question(quire_peer_server *server, qr_session *session, uint32_t bytes)
{
    qr_peer_head head = qr_peer_get_head(session->in);
    qr_peer_table_catch_up(&server->table); /* what was offered before the question is found */
    if (session->state == QR_SESSION_HELLO)
        take_hello(server, session);
    else if (session->state == QR_SESSION_PROOF)
        take_proof(server, session);
    else if (session->epoch != qr_peer_table_epoch(&server->table))
        qr_session_close(server, session); /* its blocks are of another identity */
    else if (head.type == QR_PEER_TYPE_FIND)
        take_find(server, session, &head);
    else
        take_load(server, session, &head);
    if (session->state == QR_SESSION_CLOSED)
        return;
    session->in_bytes -= bytes;
    memmove(session->in, session->in + bytes, session->in_bytes);
}

/* true: a question was taken, and its answer waits. */
static bool read_question(quire_peer_server *server, qr_session *session)
{
    for (;;) {
        uint32_t bytes = question_bytes(session);
        if (bytes == 0) {
            refuse_frame(server, session);
            return false;
        }
        if (session->in_bytes >= bytes &&
            (session->state != QR_SESSION_READY || bytes > QR_PEER_HEAD)) {
            take_question(server, session, bytes);
            return session->state != QR_SESSION_CLOSED;
        }
        if (!session->socket.can_read)
            return false;
        struct iovec piece = {session->in + session->in_bytes,
                              sizeof session->in - session->in_bytes};
        ssize_t got = qr_socket_receive(&session->socket, &piece, 1);
        if (got < 0) {
            qr_session_close(server, session);
            return false;
        }
        session->in_bytes += (uint32_t)got;
    }
}

/* ---- answers --------------------------------------------------------------- */

/* The next bytes of the block, at most SEND_AT_ONCE, with their checksum. */
static struct iovec next_bytes(qr_session *session)
{
    uint32_t left = session->offer.bytes - session->block_sent;
    uint32_t n = left < SEND_AT_ONCE ? left : SEND_AT_ONCE;
    if (session->is_void)
        return (struct iovec){(void *)(uintptr_t)filler, n < FILLER ? n : FILLER};
    if (session->summed < session->block_sent + n) {
        uint32_t more = session->block_sent + n - session->summed;
        session->crc = quire_crc32c(session->crc, session->offer.memory + session->summed, more);
        session->summed += more;
    }
    return (struct iovec){(void *)(uintptr_t)(session->offer.memory + session->block_sent), n};
}

static void end_block(quire_peer_server *server, qr_session *session)
{
    session->has_block = false;
    if (!session->is_void && !session->offer.has_crc)
        qr_peer_table_note_crc(&server->table, &session->offer, session->crc);
    qr_served(server, session->is_void ? QR_SERVED_VOID : QR_SERVED_BLOCKS, 1);
    qr_peer_put_head(session->out, QR_PEER_TYPE_TAIL, session->id,
                     session->is_void ? QR_PEER_VOID : QR_PEER_OK,
                     session->is_void ? 0 : session->crc);
    answer(session, QR_PEER_HEAD);
}

/* Head and block in one call. The system has copied what it took when the call returns; if the
 * offer stands then, these were its bytes. */
static ssize_t send_some(quire_peer_server *server, qr_session *session)
{
    struct iovec pieces[2];
    int n = 0;
    uint32_t head = session->out_bytes - session->out_sent;
    if (head > 0)
        pieces[n++] = (struct iovec){session->out + session->out_sent, head};
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    if (session->has_block)
        pieces[n++] = next_bytes(session);
    ssize_t sent = qr_socket_send(&session->socket, pieces, n);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    if (sent <= 0)
        return sent;
    uint32_t of_head = (size_t)sent < head ? (uint32_t)sent : head;
    session->out_sent += of_head;
    if (!session->has_block)
        return sent;
    uint32_t of_block = (uint32_t)sent - of_head;
    session->block_sent += of_block;
    qr_served(server, QR_SERVED_BYTES, of_block);
    if (!session->is_void && !qr_peer_table_is_standing(&server->table, &session->offer))
        session->is_void = true;
    if (session->block_sent == session->offer.bytes)
        end_block(server, session);
    return sent;
}

/* true: all of the answer is sent. */
static bool send_answer(quire_peer_server *server, qr_session *session, uint64_t *budget)
{
    while (is_answering(session) && session->socket.can_write) {
        if (*budget == 0) {
            server->has_more = true;
            return false;
        }
        ssize_t sent = send_some(server, session);
        if (sent < 0) {
            qr_session_close(server, session);
            return false;
        }
        if (sent > 0)
            session->since_ns = server->now_ns;
        *budget -= (uint64_t)sent < *budget ? (uint64_t)sent : *budget;
    }
    return !is_answering(session);
}

void qr_session_pump(quire_peer_server *server, qr_session *session)
{
    uint64_t budget = SEND_BUDGET;
    if (session->state == QR_SESSION_TLS) {
        int greeted = qr_socket_finish(&session->socket);
        if (greeted < 0)
            qr_session_close(server, session);
        if (greeted <= 0)
            return;
        session->state = QR_SESSION_HELLO;
    }
    while (session->state != QR_SESSION_CLOSED) {
        if (!send_answer(server, session, &budget))
            return;
        if (session->state == QR_SESSION_LEAVING) {
            qr_session_close(server, session);
            return;
        }
        if (!read_question(server, session))
            return;
    }
}
