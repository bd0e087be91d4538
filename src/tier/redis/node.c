/* tier/redis/node.c - a server: who waits for it, and whether it is worth waiting.
 *
 *      CLOSED ── strikes in a row ──► OPEN ── its time is over ──► probing: a connection alone
 *        ▲                             ▲                                │ answers        │ does not
 *        └─────────────────────────────┼────────────────────────────────┘                │
 *                                      └──── twice as long as before ────────────────────┘
 *
 * A strike: a connection that is not made, or is lost with calls on it, or an answer that is late.
 * An answer to a call takes all strikes away. */
#include "tier/redis/redis.h"

#include "base/hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BACKOFF_TIMES = 12, JITTER_PERCENT = 25 };

qr_node *qr_node_find(quire_tier_redis *redis, const qr_address *address)
{
    qr_node *unused = NULL;
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (node->is_used && qr_address_is_equal(&node->address, address))
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
    qr_link *links = unused->links;
    *unused = (qr_node){
        .address = *address, .is_used = true, .backoff_ns = redis->breaker_ns, .links = links};
    return unused;
}

void qr_node_say(qr_node *node, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(node->why, sizeof node->why, format, values);
    va_end(values);
    for (char *c = node->why; *c != 0; c++) /* it may be a server's own words */
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void qr_node_push(quire_tier_redis *redis, qr_node *node, qr_call *call)
{
    (void)redis;
    call->next = NULL;
    if (node->waiting_last != NULL)
        node->waiting_last->next = call;
    else
        node->waiting = call;
    node->waiting_last = call;
    node->num_calls++;
}

/* ---- the breaker ----------------------------------------------------------- */

static void fail_waiting(quire_tier_redis *redis, qr_node *node)
{
    qr_call *call = node->waiting;
    node->waiting = NULL;
    node->waiting_last = NULL;
    while (call != NULL) {
        qr_call *next = call->next;
        node->num_calls--;
        qr_call_end(redis, call, QUIRE_TIER_FAILED);
        call = next;
    }
}

static uint64_t jitter(quire_tier_redis *redis, uint64_t span)
{
    uint32_t random = 0;
    (void)qr_random_bytes(&redis->hooks, &random, sizeof random); /* 0 will do as well */
    return span / 100 * (random % JITTER_PERCENT);
}

static void open_breaker(quire_tier_redis *redis, qr_node *node)
{
    uint64_t longest = redis->breaker_ns * BACKOFF_TIMES;
    if (!node->is_told)
        qr_log(&redis->hooks, QUIRE_LOG_WARNING, "redis %s:%u: %s; not used for %.1f s",
               node->address.host, node->address.port, node->why, (double)node->backoff_ns * 1e-9);
    node->is_told = true;
    node->is_open = true;
    node->is_probing = false;
    node->open_until_ns = redis->now_ns + node->backoff_ns + jitter(redis, node->backoff_ns);
    node->backoff_ns = node->backoff_ns > longest / 2 ? longest : node->backoff_ns * 2;
    redis->wants_map = true; /* its slots may be somebody else's by now */
    for (uint32_t i = 0; i < redis->num_links; i++)
        qr_link_close(redis, &node->links[i], false);
    fail_waiting(redis, node);
}

void qr_node_strike(quire_tier_redis *redis, qr_node *node, bool opens)
{
    if (node->is_open && !node->is_probing)
        return;
    node->strikes++;
    if (opens || node->is_probing || node->strikes >= redis->breaker_strikes)
        open_breaker(redis, node);
}

void qr_node_good(qr_node *node)
{
    node->strikes = 0;
    node->is_told = false;
}

void qr_node_ready(quire_tier_redis *redis, qr_node *node)
{
    if (!node->is_open)
        return;
    qr_log(&redis->hooks, QUIRE_LOG_INFO, "redis %s:%u: is back", node->address.host,
           node->address.port);
    node->is_open = false;
    node->is_probing = false;
    node->backoff_ns = redis->breaker_ns;
    node->strikes = redis->breaker_strikes - 1; /* one more, and it is left alone again */
}

/* ---- connecting ------------------------------------------------------------ */

static qr_link *find_link(quire_tier_redis *redis, qr_node *node, qr_link_state state)
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

/* The addresses to try, from the beginning; false: not known yet, or never. */
static bool find_endpoints(quire_tier_redis *redis, qr_node *node)
{
    node->at_endpoint = 0;
    node->num_endpoints = 1;
    if (qr_address_to_endpoint(&node->address, &node->endpoints[0]))
        return true;
    node->num_endpoints = 0;
    if (redis->looking == NULL && qr_name_ask(redis->name, &node->address)) {
        redis->looking = node;
        node->is_looking = true;
        node->until_ns = redis->now_ns + redis->connect_ns;
    }
    return false;
}

static void connect_link(quire_tier_redis *redis, qr_node *node, qr_link *link)
{
    while (node->at_endpoint < node->num_endpoints) {
        if (qr_link_open(redis, link, &node->endpoints[node->at_endpoint]))
            return;
        node->at_endpoint++;
    }
    fail_waiting(redis, node);
    qr_node_strike(redis, node, false);
}

void qr_node_not_connected(quire_tier_redis *redis, qr_node *node)
{
    if (++node->at_endpoint < node->num_endpoints && !has_links(redis, node)) {
        connect_link(redis, node, &node->links[0]);
        return;
    }
    if (!has_links(redis, node))
        fail_waiting(redis, node);
    qr_node_strike(redis, node, false);
}

void qr_node_answered(quire_tier_redis *redis)
{
    qr_address asked;
    qr_endpoint endpoints[QR_ADDRESS_MAX];
    int count = qr_name_answer(redis->name, &asked, endpoints);
    qr_node *node = redis->looking;
    if (count < 0 || node == NULL)
        return;
    redis->looking = NULL;
    if (!node->is_used || !node->is_looking || !qr_address_is_equal(&node->address, &asked))
        return;
    node->is_looking = false;
    node->num_endpoints = (uint32_t)count;
    node->at_endpoint = 0;
    memcpy(node->endpoints, endpoints, (size_t)count * sizeof *endpoints);
    if (count == 0)
        qr_node_say(node, "the name is not known");
    if (!has_links(redis, node))
        connect_link(redis, node, &node->links[0]);
}

/* Another connection where all that are ready have as much as they may. */
static void add_link(quire_tier_redis *redis, qr_node *node)
{
    qr_link *link = find_link(redis, node, QR_LINK_CLOSED);
    bool is_coming = find_link(redis, node, QR_LINK_CONNECTING) != NULL ||
                     find_link(redis, node, QR_LINK_GREETING) != NULL;
    if (link != NULL && !is_coming && node->at_endpoint < node->num_endpoints)
        connect_link(redis, node, link);
}

/* ---- calls to links -------------------------------------------------------- */

static uint64_t bytes_of(const qr_call *call)
{
    return (uint64_t)call->head_bytes + call->body_bytes + call->answer_bytes;
}

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
    bool has_room = best->num_calls < QR_REDIS_LINK_CALLS && best->bytes + bytes_of(call) <= window;
    return has_room ? best : NULL;
}

static void hand_out(quire_tier_redis *redis, qr_node *node)
{
    while (node->waiting != NULL) {
        qr_call *call = node->waiting;
        qr_link *link = choose_link(redis, node, call);
        if (link == NULL)
            return;
        node->waiting = call->next;
        if (node->waiting == NULL)
            node->waiting_last = NULL;
        qr_link_push(link, call);
    }
}

/* Its answer, should it come, is for nobody. */
static void give_up_looking(quire_tier_redis *redis, qr_node *node)
{
    node->is_looking = false;
    qr_node_say(node, "its name is not found in time");
    fail_waiting(redis, node);
    qr_node_strike(redis, node, false);
}

/* A node that has slots is probed, and so is one that may tell where they are. */
static bool is_wanted(const quire_tier_redis *redis, const qr_node *node)
{
    return node->waiting != NULL || node->is_probing || (!redis->has_map && node->is_seed);
}

void qr_node_tend(quire_tier_redis *redis, qr_node *node)
{
    if (node->is_open && !node->is_probing) {
        if (redis->now_ns < node->open_until_ns || (!node->is_mapped && !node->is_seed))
            return;
        node->is_probing = true;
    }
    hand_out(redis, node);
    if (node->is_looking && redis->now_ns >= node->until_ns)
        give_up_looking(redis, node);
    if (!is_wanted(redis, node) || node->is_looking)
        return;
    if (has_links(redis, node)) {
        if (node->waiting != NULL)
            add_link(redis, node);
    } else if (find_endpoints(redis, node)) { /* names are looked up anew */
        connect_link(redis, node, &node->links[0]);
    }
}

void qr_node_sweep(quire_tier_redis *redis)
{
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (!node->is_used || node->is_seed || node->is_mapped || node->num_calls > 0 ||
            node->is_looking)
            continue;
        for (uint32_t k = 0; k < redis->num_links; k++)
            qr_link_close(redis, &node->links[k], false);
        node->is_used = false;
    }
}
