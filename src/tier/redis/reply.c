/* tier/redis/reply.c - what an answer means for its call, its link and its node.
 *
 *      MOVED        the slot is another node's: there, and the map is asked for
 *      ASK          this key is, for now: there, after ASKING; the map stays
 *      TRYAGAIN     the same again
 *      CLUSTERDOWN, READONLY, MASTERDOWN   failed; the map is asked for
 *      OOM          a store has no room; the node is well
 *      LOADING      failed; the node is left alone for a while
 *      NOAUTH, WRONGPASS                   failed; left alone, and the log says why
 *      NOPERM       failed, and the log says why; who may only read can go on reading
 *      any other    failed
 */
#include "tier/redis/redis.h"

#include "base/hooks.h"

#include <string.h>

static void say_error(qr_node *node, const qr_resp_item *item)
{
    int n = item->bytes < QR_NET_WHY ? (int)item->bytes : QR_NET_WHY - 1;
    qr_net_note(&node->target, "%.*s", n, item->text);
    for (char *c = node->target.why; *c != 0; c++) /* they are the server's own words */
        if (*c < ' ' || *c > '~')
            *c = '?';
}

/* ---- greeting -------------------------------------------------------------- */

static void take_greeting(quire_tier_redis *redis, qr_link *link, qr_call *call,
                          const qr_resp_item *item)
{
    bool is_ping = call->kind == QR_CALL_PING;
    const char *expected = is_ping ? "PONG" : "OK";
    qr_call_end(redis, call, QUIRE_TIER_DONE);
    if (item->kind == QR_RESP_ERROR) {
        say_error(link->node, item);
        qr_link_close(redis, link, false);
        qr_node_strike(redis, link->node, true);
    } else if (item->kind != QR_RESP_STATUS || item->bytes != strlen(expected) ||
               memcmp(item->text, expected, item->bytes) != 0) {
        qr_net_count(&redis->net, QR_NET_SURPRISES, 1);
        qr_net_note(&link->node->target, "not a Redis server");
        qr_link_close(redis, link, true);
    } else if (is_ping) {
        link->state = QR_LINK_READY;
        qr_node_ready(redis, link->node);
    }
}

/* ---- errors ---------------------------------------------------------------- */

/* "MOVED 3999 127.0.0.1:6381": the node there. */
static qr_node *read_target(quire_tier_redis *redis, const qr_link *link, const qr_resp_item *item,
                            int64_t *slot)
{
    const char *end = item->text + item->bytes;
    const char *at = memchr(item->text, ' ', item->bytes);
    qr_address address;
    *slot = 0;
    if (at == NULL)
        return NULL;
    for (at++; at < end && *at >= '0' && *at <= '9' && *slot < QR_REDIS_SLOTS; at++)
        *slot = *slot * 10 + (*at - '0');
    if (at == end || *at != ' ' || *slot >= QR_REDIS_SLOTS ||
        !qr_address_parse_said(&address, at + 1, (size_t)(end - at - 1),
                               &link->node->target.address))
        return NULL;
    return qr_node_find(redis, &address);
}

static void redirect(quire_tier_redis *redis, qr_link *link, qr_call *call,
                     const qr_resp_item *item, bool is_asking)
{
    int64_t slot;
    qr_node *node = read_target(redis, link, item, &slot);
    qr_net_count(&redis->net, is_asking ? QR_NET_ASKS : QR_NET_MOVED, 1);
    if (!is_asking)
        redis->wants_map = true;
    if (node == NULL || slot != call->slot || ++call->redirects > QR_REDIS_REDIRECTS) {
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
        return;
    }
    call->head_bytes -= call->head == call->text ? QR_REDIS_ASKING : 0;
    call->head = is_asking ? call->text : call->text + QR_REDIS_ASKING;
    call->head_bytes += is_asking ? QR_REDIS_ASKING : 0;
    call->num_skipped = is_asking;
    if (!is_asking) {
        redis->owner[slot] = (uint16_t)(node - redis->nodes);
        node->is_mapped = true;
    }
    qr_call_route(redis, call, node);
}

static bool is_any(const qr_resp_item *item, const char *const *words)
{
    for (; *words != NULL; words++)
        if (qr_resp_is_error(item, *words))
            return true;
    return false;
}

static void tell_forbidden(quire_tier_redis *redis, qr_node *node, const qr_resp_item *item)
{
    if (node->is_forbidden_told)
        return;
    node->is_forbidden_told = true;
    say_error(node, item);
    qr_log(&redis->net.hooks, QUIRE_LOG_WARNING, "redis %s:%u: %s", node->target.address.host,
           node->target.address.port, node->target.why);
}

static void take_error(quire_tier_redis *redis, qr_link *link, qr_call *call,
                       const qr_resp_item *item)
{
    static const char *const stale[] = {"CLUSTERDOWN", "READONLY", "MASTERDOWN", NULL};
    static const char *const useless[] = {"LOADING", "NOAUTH", "WRONGPASS", NULL};
    if (call->batch == NULL) {
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
    } else if (qr_resp_is_error(item, "MOVED")) {
        redirect(redis, link, call, item, false);
    } else if (qr_resp_is_error(item, "ASK")) {
        redirect(redis, link, call, item, true);
    } else if (qr_resp_is_error(item, "TRYAGAIN")) {
        if (++call->redirects > QR_REDIS_REDIRECTS)
            qr_call_end(redis, call, QUIRE_TIER_FAILED);
        else
            qr_call_route(redis, call, link->node);
    } else if (qr_resp_is_error(item, "OOM") &&
               (call->kind == QR_CALL_STORE || call->kind == QR_CALL_CHECK)) {
        qr_node_good(link->node);
        qr_call_end(redis, call, QUIRE_TIER_NO_ROOM);
    } else if (qr_resp_is_error(item, "WRONGTYPE") && call->kind == QR_CALL_LOAD) {
        qr_net_count(&redis->net, QR_NET_WRONG, 1);
        qr_call_drop_key(redis, call);
        qr_call_end(redis, call, QUIRE_TIER_WRONG);
    } else if (qr_resp_is_error(item, "WRONGTYPE") && call->kind == QR_CALL_FIND) {
        qr_call_end(redis, call, QUIRE_TIER_MISSING);
    } else if (qr_resp_is_error(item, "WRONGTYPE") && call->kind == QR_CALL_CHECK) {
        qr_call_send_store(redis, call); /* SET replaces it */
    } else if (is_any(item, useless)) {
        say_error(link->node, item);
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
        qr_node_strike(redis, link->node, true);
    } else {
        redis->wants_map = redis->wants_map || is_any(item, stale);
        if (qr_resp_is_error(item, "NOPERM"))
            tell_forbidden(redis, link->node, item);
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
    }
}

/* ---- answers --------------------------------------------------------------- */

/* PENDING: it is no answer to this. */
static quire_tier_status judge(const qr_call *call, const qr_resp_item *item)
{
    switch (call->kind) {
    case QR_CALL_LOAD:
        return item->kind == QR_RESP_NIL ? QUIRE_TIER_MISSING : QUIRE_TIER_PENDING;
    case QR_CALL_STORE:
        return item->kind == QR_RESP_STATUS && item->bytes == 2 && memcmp(item->text, "OK", 2) == 0
                   ? QUIRE_TIER_DONE
                   : QUIRE_TIER_PENDING;
    case QR_CALL_REMOVE:
        if (item->kind != QR_RESP_NUMBER || item->number < 0 || item->number > 1)
            return QUIRE_TIER_PENDING;
        return item->number == 1 ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING;
    default: /* STRLEN */
        if (item->kind != QR_RESP_NUMBER || item->number < 0)
            return QUIRE_TIER_PENDING;
        return item->number >= QR_NET_HEADER && item->number <= QR_RESP_VALUE ? QUIRE_TIER_DONE
                                                                              : QUIRE_TIER_MISSING;
    }
}

/* A block of that length is there, and who loads it checks it: it is not sent again. */
static void take_check(quire_tier_redis *redis, qr_call *call, const qr_resp_item *item)
{
    if (item->number == (int64_t)QR_NET_HEADER + qr_call_io(call)->bytes) {
        qr_net_count(&redis->net, QR_NET_PRESENT, 1);
        qr_call_end(redis, call, QUIRE_TIER_DONE);
    } else {
        qr_call_send_store(redis, call);
    }
}

void qr_reply_take(quire_tier_redis *redis, qr_link *link, qr_call *call, const qr_resp_item *item)
{
    if (call->kind == QR_CALL_AUTH || call->kind == QR_CALL_PING) {
        take_greeting(redis, link, call, item);
        return;
    }
    bool is_usage = call->kind == QR_CALL_INFO || call->kind == QR_CALL_COUNT;
    if (is_usage && qr_usage_take(redis, link->node, call, item)) {
        qr_call_end(redis, call, QUIRE_TIER_DONE);
        return;
    }
    if (item->kind == QR_RESP_ERROR) {
        take_error(redis, link, call, item);
        return;
    }
    quire_tier_status status = is_usage ? QUIRE_TIER_PENDING : judge(call, item);
    if (status == QUIRE_TIER_PENDING) {
        qr_net_count(&redis->net, QR_NET_SURPRISES, 1);
        qr_net_note(&link->node->target, "protocol error: unexpected reply");
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
        qr_link_close(redis, link, true);
        return;
    }
    qr_node_good(link->node);
    if (call->kind == QR_CALL_CHECK && call->batch != NULL) {
        take_check(redis, call, item);
        return;
    }
    if (call->kind == QR_CALL_FIND && status == QUIRE_TIER_DONE && call->batch != NULL)
        qr_call_io(call)->bytes = (uint32_t)(item->number - QR_NET_HEADER);
    qr_call_end(redis, call, status);
}

void qr_reply_value(quire_tier_redis *redis, qr_link *link, qr_call *call)
{
    bool is_good = link->value.memory != NULL && link->value.crc == link->expected_crc;
    if (call->kind == QR_CALL_INFO) { /* its lines were read as they came */
        qr_call_end(redis, call, QUIRE_TIER_DONE);
        return;
    }
    qr_node_good(link->node);
    if (call->batch != NULL && is_good) {
        qr_call_io(call)->crc = link->value.crc;
    } else if (call->batch != NULL) {
        qr_net_count(&redis->net, QR_NET_WRONG, 1);
        qr_call_drop_key(redis, call);
    }
    qr_call_end(redis, call, is_good ? QUIRE_TIER_DONE : QUIRE_TIER_WRONG);
}
