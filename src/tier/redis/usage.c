/* tier/redis/usage.c - how full the servers are, as they say it themselves.
 *
 *      INFO memory   ...used_memory:1048576...maxmemory:0...   read line by line as it comes
 *      DBSIZE        :1234                                     keys, of whoever stored them
 *
 * Each server that has slots is asked on a connection that is ready, every usage_ns. Of a server
 * that is gone the last numbers stay until another one has its slots. No job waits for this, and no
 * answer to it counts for the server's breaker. */
#include "tier/redis/redis.h"

#include "base/hooks.h"

#include <string.h>

#define MOST_BYTES (INT64_C(1) << 56)

enum { PATIENCE = 4 }; /* so many times longer than for a map: nobody waits for it */

static const char INFO[] = "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n";
static const char COUNT[] = "*1\r\n$6\r\nDBSIZE\r\n";

/* ---- asking ---------------------------------------------------------------- */

void qr_usage_tend(quire_tier_redis *redis)
{
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (!qr_usage_is_asked(node) || redis->net.now_ns < node->usage_after_ns)
            continue;
        qr_link *link = qr_node_link(redis, node, QR_LINK_READY);
        if (link == NULL)
            continue;
        node->said = (qr_redis_usage){0};
        node->usage_after_ns =
            redis->net.now_ns + PATIENCE * (redis->net.connect_ns + redis->net.late_ns);
        link->info_bytes = 0;
        uint64_t due_ns = node->usage_after_ns;
        (void)qr_link_ask(redis, link, QR_CALL_INFO, INFO, sizeof INFO - 1, due_ns);
        (void)qr_link_ask(redis, link, QR_CALL_COUNT, COUNT, sizeof COUNT - 1, due_ns);
    }
}

/* ---- answers --------------------------------------------------------------- */

/* "used_memory:1048576". Not where it is another line, or no number. */
static void take_number(const qr_link *link, const char *name, uint64_t *value)
{
    size_t length = strlen(name);
    int64_t number;
    if (link->info_bytes <= length || link->info_bytes > QR_REDIS_INFO_LINE ||
        memcmp(link->info, name, length) != 0 ||
        !qr_digits_read(link->info + length, link->info_bytes - length, MOST_BYTES, &number))
        return;
    *value = (uint64_t)number;
}

void qr_usage_scan(qr_link *link, const unsigned char *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            qr_redis_usage *said = &link->node->said;
            take_number(link, "used_memory:", &said->used_bytes);
            take_number(link, "maxmemory:", &said->max_bytes);
            link->info_bytes = 0;
        } else if (bytes[i] != '\r') {
            if (link->info_bytes < QR_REDIS_INFO_LINE)
                link->info[link->info_bytes] = (char)bytes[i];
            link->info_bytes += link->info_bytes <= QR_REDIS_INFO_LINE;
        }
    }
}

bool qr_usage_take(quire_tier_redis *redis, qr_node *node, const qr_call *call,
                   const qr_resp_item *item)
{
    if (item->kind == QR_RESP_ERROR) {
        if (qr_resp_is_error(item, "NOPERM") && !node->is_usage_refused)
            qr_log(&redis->net.hooks, QUIRE_LOG_INFO,
                   "redis %s:%u: the user may not call INFO or DBSIZE: the usage of this server is "
                   "unknown",
                   node->target.address.host, node->target.address.port);
        node->is_usage_refused = node->is_usage_refused || qr_resp_is_error(item, "NOPERM");
        node->said.used_bytes = 0;
        node->usage_after_ns = redis->net.now_ns + redis->usage_ns;
        return true;
    }
    if (call->kind != QR_CALL_COUNT || item->kind != QR_RESP_NUMBER || item->number < 0)
        return false;
    node->said.keys = (uint64_t)item->number;
    node->usage_after_ns = redis->net.now_ns + redis->usage_ns;
    if (node->said.used_bytes > 0) { /* INFO was answered too */
        node->usage = node->said;
        node->has_usage = true;
    }
    return true;
}

/* ---- telling --------------------------------------------------------------- */

/* Blocks that fit into the rest, as large as the last one that was moved. */
static uint64_t count_room(const quire_tier_redis *redis, const qr_redis_usage *usage)
{
    if (redis->value_bytes == 0 || usage->max_bytes <= usage->used_bytes)
        return 0;
    return (usage->max_bytes - usage->used_bytes) / (redis->value_bytes + QR_NET_HEADER);
}

void qr_usage_publish(quire_tier_redis *redis)
{
    qr_redis_usage sum = {0};
    uint64_t room = 0;
    bool is_limited = true;
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        const qr_node *node = &redis->nodes[i];
        if (!node->is_used || !node->is_mapped || !node->has_usage)
            continue;
        sum.keys += node->usage.keys;
        sum.used_bytes += node->usage.used_bytes;
        sum.max_bytes += node->usage.max_bytes;
        is_limited = is_limited && node->usage.max_bytes > 0;
        room += count_room(redis, &node->usage);
    }
    qr_count_set(&redis->num_keys, sum.keys);
    qr_count_set(&redis->used_bytes, sum.used_bytes);
    qr_count_set(&redis->max_bytes, is_limited ? sum.max_bytes : 0);
    qr_count_set(&redis->room_keys, is_limited ? room : 0);
}
