#include "tier/redis/redis.h"

static void publish(quire_tier_redis *redis)
{
    uint64_t num_used = 0;
    uint64_t num_open = 0;
    uint64_t num_calls = 0;
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        const qr_node *node = &redis->nodes[i];
        num_used += node->is_used;
        num_open += node->is_used && qr_node_is_open(node);
        num_calls += node->is_used ? node->num_calls : 0;
    }
    qr_count_set(&redis->net.counts[QR_NET_NODES], num_used);
    qr_count_set(&redis->net.counts[QR_NET_NODES_OPEN], num_open);
    qr_count_set(&redis->net.counts[QR_NET_CALLS], num_calls);
    qr_usage_publish(redis);
}

/* Everything that can be done without waiting. A pass may make room for another: an answer frees a
 * call, a map gives calls their nodes; so the sending comes last. */
static void work(qr_net_client *net)
{
    quire_tier_redis *redis = (quire_tier_redis *)net;
    uint32_t total = redis->max_nodes * redis->num_links;
    for (uint32_t i = 0; i < total; i++)
        if (redis->links[i].state != QR_LINK_CLOSED)
            qr_link_pump(redis, &redis->links[i]);
    qr_batch_expire(redis);
    qr_map_tend(redis);
    qr_usage_tend(redis);
    qr_batch_route_all(redis);
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        if (redis->nodes[i].is_used)
            qr_node_tend(redis, &redis->nodes[i]);
    for (uint32_t i = 0; i < total; i++) {
        const qr_link *link = &redis->links[i];
        if (link->state > QR_LINK_CONNECTING && link->sending != NULL && link->socket.can_write)
            qr_link_pump(redis, &redis->links[i]);
    }
    publish(redis);
}

static uint64_t next_time(qr_net_client *net)
{
    const quire_tier_redis *redis = (quire_tier_redis *)net;
    uint64_t when = UINT64_MAX;
    bool has_ready = false;
    for (uint32_t n = 0; n < redis->max_nodes; n++) {
        const qr_node *node = &redis->nodes[n];
        if (!node->is_used)
            continue;
        if (node->breaker.health == QUIRE_TIER_OPEN && (node->is_mapped || node->is_seed))
            qr_earlier(&when, node->breaker.until_ns);
        if (node->target.is_looking)
            qr_earlier(&when, node->target.until_ns);
        for (uint32_t i = 0; i < redis->num_links; i++) {
            const qr_link *link = &node->links[i];
            has_ready = has_ready || link->state == QR_LINK_READY;
            if (link->state == QR_LINK_CONNECTING || link->state == QR_LINK_GREETING)
                qr_earlier(&when, link->until_ns);
            else if (link->calls.first != NULL && link->calls.first->batch == NULL)
                qr_earlier(&when, link->calls.first->due_ns);
        }
    }
    if (redis->wants_map && has_ready && redis->reader.link == NULL)
        qr_earlier(&when, redis->map_after_ns);
    qr_earlier(&when, qr_usage_time(redis));
    return when;
}

static void name_found(qr_net_client *net, qr_net_target *target)
{
    qr_node_found((quire_tier_redis *)net, (qr_node *)target);
}

static void begin(qr_net_client *net, quire_tier_job *job)
{
    qr_net_begin(net, job, true);
}

/* The first that has a failure to tell of. */
static const qr_net_target *find_missing(const qr_net_client *net)
{
    const quire_tier_redis *redis = (const quire_tier_redis *)net;
    if (redis->has_map)
        return NULL;
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        if (redis->nodes[i].is_used && redis->nodes[i].target.why[0] != 0)
            return &redis->nodes[i].target;
    return &redis->nodes[0].target;
}

const qr_net_ops qr_redis_net_ops = {.name = "redis",
                                     .work = work,
                                     .next_time = next_time,
                                     .name_found = name_found,
                                     .begin = begin,
                                     .cancel = qr_batch_cancel,
                                     .find_missing = find_missing};
