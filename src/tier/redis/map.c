/* tier/redis/map.c - which node has which slot, as the servers say it.
 *
 *      CLUSTER SLOTS
 *      [ [ 0, 5460, [ host, port, id, [...] ], [ a replica ... ] ], ... ]
 *        depth 2    depth 3
 *
 * The answer is walked item by item; the new map takes the place of the old one when all of it is
 * here. A server that is no cluster says so, and then has all slots. */
#include "tier/redis/redis.h"

#include <string.h>

enum { LEAST_SHARE = 64 };

static const char QUESTION[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";

static void mark_nodes(quire_tier_redis *redis)
{
    uint64_t num_slots = 0;
    uint32_t num_nodes = 0;
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        redis->nodes[i].is_mapped = false;
    for (uint32_t slot = 0; slot < QR_REDIS_SLOTS; slot++)
        if (redis->owner[slot] != QR_REDIS_NOBODY) {
            redis->nodes[redis->owner[slot]].is_mapped = true;
            num_slots++;
        }
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        num_nodes += redis->nodes[i].is_mapped;
    redis->node_share = QR_REDIS_CALLS / (num_nodes == 0 ? 1 : num_nodes);
    if (redis->node_share < LEAST_SHARE)
        redis->node_share = LEAST_SHARE;
    qr_count_set(&redis->net.counts[QR_NET_SLOTS], num_slots);
}

/* Nodes that nobody needs any more. */
static void sweep_nodes(quire_tier_redis *redis)
{
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (!node->is_used || node->is_seed || node->is_mapped || node->num_calls > 0 ||
            node->target.is_looking)
            continue;
        for (uint32_t k = 0; k < redis->num_links; k++)
            qr_link_close(redis, &node->links[k], false);
        node->is_used = false;
    }
}

static void accept_map(quire_tier_redis *redis)
{
    memcpy(redis->owner, redis->reader.owner, sizeof redis->owner);
    redis->reader.link = NULL;
    redis->has_map = true;
    qr_net_count(&redis->net, QR_NET_REFRESHED, 1);
    mark_nodes(redis);
    sweep_nodes(redis);
    for (uint32_t i = 0; i < redis->max_nodes; i++) /* whose slots may move to a replica */
        if (redis->nodes[i].is_used && redis->nodes[i].is_mapped &&
            qr_node_is_open(&redis->nodes[i]))
            redis->wants_map = true;
}

/* Any link that is ready, of another node than the last time. */
static qr_link *choose_asked(quire_tier_redis *redis)
{
    for (uint32_t n = 0; n < redis->max_nodes; n++) {
        uint32_t at = (redis->next_asked + n) % redis->max_nodes;
        qr_node *node = &redis->nodes[at];
        qr_link *link = node->is_used ? qr_node_link(redis, node, QR_LINK_READY) : NULL;
        if (link != NULL) {
            redis->next_asked = at + 1;
            return link;
        }
    }
    return NULL;
}

void qr_map_tend(quire_tier_redis *redis)
{
    if (!redis->wants_map || redis->reader.link != NULL || redis->net.now_ns < redis->map_after_ns)
        return;
    qr_link *link = choose_asked(redis);
    uint64_t due_ns = redis->net.now_ns + redis->net.connect_ns + redis->net.late_ns;
    if (link == NULL ||
        !qr_link_ask(redis, link, QR_CALL_SLOTS, QUESTION, sizeof QUESTION - 1, due_ns))
        return;
    redis->wants_map = false;
    redis->map_after_ns = redis->net.now_ns + redis->refresh_ns;
    redis->reader.link = link;
    memset(redis->reader.owner, 0xff, sizeof redis->reader.owner);
}

void qr_map_forget(quire_tier_redis *redis, const qr_link *link)
{
    if (redis->reader.link != link)
        return;
    redis->reader.link = NULL;
    redis->wants_map = true;
}

/* ---- reading --------------------------------------------------------------- */

static bool take_owner(quire_tier_redis *redis, const qr_link *link, int64_t port)
{
    qr_map_reader *reader = &redis->reader;
    qr_address address;
    /* "?" stands for a node that does not know its own address yet. */
    if (port == 0 || (reader->host_bytes == 1 && reader->host[0] == '?'))
        return true;
    if (!qr_address_set(&address, reader->host, reader->host_bytes, port,
                        &link->node->target.address))
        return false;
    const qr_node *node = qr_node_find(redis, &address);
    if (node == NULL)
        return true; /* more nodes than may be, or not to be talked to: its slots are nobody's */
    for (int64_t slot = reader->begin; slot <= reader->end; slot++)
        reader->owner[slot] = (uint16_t)(node - redis->nodes);
    return true;
}

static bool take_entry(qr_map_reader *reader, const qr_resp_item *item)
{
    bool is_number = item->kind == QR_RESP_NUMBER;
    reader->part = item->index;
    if (item->index == 0) {
        reader->begin = item->number;
        return is_number && item->number >= 0 && item->number < QR_REDIS_SLOTS;
    }
    if (item->index == 1) {
        reader->end = item->number;
        return is_number && item->number >= reader->begin && item->number < QR_REDIS_SLOTS;
    }
    return item->kind == QR_RESP_ARRAY;
}

static bool take_node(quire_tier_redis *redis, const qr_link *link, const qr_resp_item *item)
{
    qr_map_reader *reader = &redis->reader;
    if (reader->part != 2) /* a replica */
        return reader->part > 2;
    if (item->index == 0) {
        bool is_text = item->kind == QR_RESP_TEXT_ITEM && item->bytes < sizeof reader->host;
        reader->host_bytes = is_text ? item->bytes : 0;
        memcpy(reader->host, is_text ? item->text : "", reader->host_bytes);
        return is_text || item->kind == QR_RESP_NIL;
    }
    if (item->index == 1)
        return item->kind == QR_RESP_NUMBER && take_owner(redis, link, item->number);
    return true;
}

/* No map here: a server by itself, or one that will not say. */
static bool take_refusal(quire_tier_redis *redis, const qr_link *link, const qr_resp_item *item)
{
    if (qr_resp_is_error(item, "LOADING") || qr_resp_is_error(item, "CLUSTERDOWN") ||
        qr_resp_is_error(item, "NOAUTH")) {
        qr_map_forget(redis, link);
        return true;
    }
    for (uint32_t slot = 0; slot < QR_REDIS_SLOTS; slot++)
        redis->reader.owner[slot] = (uint16_t)(link->node - redis->nodes);
    accept_map(redis);
    return true;
}

bool qr_map_take(quire_tier_redis *redis, const qr_link *link, const qr_resp_item *item)
{
    bool is_good = true;
    if (item->depth == 0)
        is_good = item->kind == QR_RESP_ARRAY || item->kind == QR_RESP_ERROR;
    else if (item->depth == 1) /* an entry has a range and a node at least */
        is_good = item->kind == QR_RESP_ARRAY && item->number >= 3;
    else if (item->depth == 2)
        is_good = take_entry(&redis->reader, item);
    else if (item->depth == 3)
        is_good = take_node(redis, link, item);
    if (!is_good || !item->is_last)
        return is_good;
    if (item->kind == QR_RESP_ERROR && item->depth == 0)
        return take_refusal(redis, link, item);
    accept_map(redis);
    return true;
}
