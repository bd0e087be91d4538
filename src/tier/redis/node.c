/* tier/redis/node.c - a server: who waits for it, and whether it is worth waiting.
 *
 * Each server has a breaker. A strike: a connection that is not made, or is lost with calls on it,
 * or an answer that is late. An answer to a call takes all strikes away. The probe is a connection.
 */
#include "tier/redis/redis.h"

#include "base/hooks.h"

qr_node *qr_node_find(quire_tier_redis *redis, const qr_address *address)
{
    qr_node *unused = NULL;
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (node->is_used && qr_address_is_equal(&node->target.address, address))
            return node;
        if (!node->is_used && unused == NULL)
            unused = node;
    }
    /* A server must not send us where the caller would not. */
    if (!redis->is_trusting && !qr_address_is_local(address))
        return NULL;
    if (unused == NULL) {
        redis->wants_map = true; /* with a new one, those without slots are forgotten */
        return NULL;
    }
    uint64_t seed = 0;
    (void)qr_random_bytes(&redis->net.hooks, &seed, sizeof seed); /* 0 will do as well */
    *unused = (qr_node){.target.address = *address, .is_used = true, .links = unused->links};
    qr_breaker_init(&unused->breaker, redis->breaker_strikes, redis->breaker_ns, seed);
    return unused;
}

void qr_node_push(qr_node *node, qr_call *call)
{
    qr_call_list_add(&node->waiting, call);
    node->num_calls++;
}

void qr_node_end_waiting(quire_tier_redis *redis, qr_node *node, const qr_net_batch *batch,
                         quire_tier_status status)
{
    qr_call *call = node->waiting.first;
    node->waiting = (qr_call_list){0};
    while (call != NULL) {
        qr_call *next = call->next;
        node->num_calls--;
        if (batch == NULL || call->batch == batch)
            qr_call_end(redis, call, status);
        else
            qr_node_push(node, call);
        call = next;
    }
}

static void fail_waiting(quire_tier_redis *redis, qr_node *node)
{
    qr_node_end_waiting(redis, node, NULL, QUIRE_TIER_FAILED);
}

/* ---- the breaker ----------------------------------------------------------- */

/* Its breaker has opened. */
static void leave_alone(quire_tier_redis *redis, qr_node *node)
{
    if (!node->target.is_told)
        qr_log(&redis->net.hooks, QUIRE_LOG_WARNING, "redis %s:%u: %s; breaker open for %.1f s",
               node->target.address.host, node->target.address.port, node->target.why,
               (double)(node->breaker.until_ns - redis->net.now_ns) * 1e-9);
    node->target.is_told = true;
    redis->wants_map = true; /* its slots may be somebody else's by now */
    for (uint32_t i = 0; i < redis->num_links; i++)
        qr_link_close(redis, &node->links[i], false);
    fail_waiting(redis, node);
}

void qr_node_strike(quire_tier_redis *redis, qr_node *node, bool opens)
{
    qr_breaker *breaker = &node->breaker;
    if (breaker->health == QUIRE_TIER_OPEN)
        return;
    if (opens)
        qr_breaker_open(breaker, redis->net.now_ns);
    else
        qr_breaker_take(breaker, breaker->epoch, QR_OUTCOME_BAD, redis->net.now_ns);
    if (breaker->health == QUIRE_TIER_OPEN)
        leave_alone(redis, node);
}

void qr_node_good(qr_node *node)
{
    node->breaker.strikes = 0;
    node->target.is_told = false;
}

void qr_node_ready(quire_tier_redis *redis, qr_node *node)
{
    qr_breaker *breaker = &node->breaker;
    if (!qr_node_is_open(node))
        return;
    qr_log(&redis->net.hooks, QUIRE_LOG_INFO, "redis %s:%u: connected again",
           node->target.address.host, node->target.address.port);
    qr_breaker_take(breaker, breaker->epoch, QR_OUTCOME_GOOD, redis->net.now_ns);
    breaker->strikes = breaker->max_strikes - 1; /* one more, and it is left alone again */
}

/* ---- connecting ------------------------------------------------------------ */

qr_link *qr_node_link(const quire_tier_redis *redis, const qr_node *node, qr_link_state state)
{
    for (uint32_t i = 0; i < redis->num_links; i++)
        if (node->links[i].state == state)
            return &node->links[i];
    return NULL;
}

static bool has_links(quire_tier_redis *redis, qr_node *node)
{
    for (uint32_t i = 0; i < redis->num_links; i++)
        if (node->links[i].state != QR_LINK_CLOSED)
            return true;
    return false;
}

static void connect_link(quire_tier_redis *redis, qr_node *node, qr_link *link)
{
    if (qr_net_connect(&redis->net, &node->target, &link->socket)) {
        qr_link_begin(redis, link);
        return;
    }
    fail_waiting(redis, node);
    qr_node_strike(redis, node, false);
}

void qr_node_not_connected(quire_tier_redis *redis, qr_node *node)
{
    if (++node->target.at_endpoint < node->target.num_endpoints && !has_links(redis, node)) {
        connect_link(redis, node, &node->links[0]);
        return;
    }
    if (!has_links(redis, node))
        fail_waiting(redis, node);
    qr_node_strike(redis, node, false);
}

void qr_node_found(qr_net_client *net, qr_net_target *target)
{
    quire_tier_redis *redis = (quire_tier_redis *)net;
    qr_node *node = (qr_node *)target;
    if (target->num_endpoints == 0)
        qr_net_note(target, "name not found");
    if (!has_links(redis, node))
        connect_link(redis, node, &node->links[0]);
}

/* Another connection where all that are ready have as much as they may. */
static void add_link(quire_tier_redis *redis, qr_node *node)
{
    qr_link *link = qr_node_link(redis, node, QR_LINK_CLOSED);
    bool is_coming = qr_node_link(redis, node, QR_LINK_CONNECTING) != NULL ||
                     qr_node_link(redis, node, QR_LINK_GREETING) != NULL;
    if (link != NULL && !is_coming && node->target.at_endpoint < node->target.num_endpoints)
        connect_link(redis, node, link);
}

/* ---- calls to links -------------------------------------------------------- */

/* The ready link with the least to do, if it has room. */
static qr_link *choose_link(quire_tier_redis *redis, qr_node *node, const qr_call *call)
{
    qr_link *best = NULL;
    for (uint32_t i = 0; i < redis->num_links; i++) {
        qr_link *link = &node->links[i];
        if (link->state == QR_LINK_READY && (best == NULL || link->bytes < best->bytes))
            best = link;
    }
    if (best == NULL || best->bytes == 0)
        return best;
    bool is_load = call->kind == QR_CALL_LOAD;
    uint64_t window = is_load ? redis->load_window_bytes : redis->window_bytes;
    bool has_room =
        best->num_calls < QR_REDIS_LINK_CALLS && best->bytes + qr_call_weight(call) <= window;
    return has_room ? best : NULL;
}

static void hand_out(quire_tier_redis *redis, qr_node *node)
{
    while (node->waiting.first != NULL) {
        qr_call *call = node->waiting.first;
        qr_link *link = choose_link(redis, node, call);
        if (link == NULL)
            return;
        qr_call_list_drop_first(&node->waiting);
        qr_link_push(link, call);
    }
}

/* A node that has slots is probed, and so is one that may tell where they are. */
static bool is_wanted(const quire_tier_redis *redis, const qr_node *node)
{
    return node->waiting.first != NULL || node->breaker.health == QUIRE_TIER_PROBING ||
           (!redis->has_map && node->is_seed);
}

void qr_node_tend(quire_tier_redis *redis, qr_node *node)
{
    if (node->breaker.health == QUIRE_TIER_OPEN &&
        ((!node->is_mapped && !node->is_seed) ||
         !qr_breaker_let(&node->breaker, redis->net.now_ns)))
        return;
    hand_out(redis, node);
    if (node->target.is_looking && redis->net.now_ns >= node->target.until_ns) {
        node->target.is_looking = false; /* the answer, should it come, is for no one */
        qr_net_note(&node->target, "timeout: name lookup");
        fail_waiting(redis, node);
        qr_node_strike(redis, node, false);
    }
    if (!is_wanted(redis, node) || node->target.is_looking)
        return;
    if (has_links(redis, node)) {
        if (node->waiting.first != NULL)
            add_link(redis, node);
    } else if (qr_net_find_endpoints(&redis->net, &node->target)) { /* names are looked up anew */
        connect_link(redis, node, &node->links[0]);
    }
}
