#include "tier/redis/redis.h"

#include "base/bits.h"
#include "base/hooks.h"

#include <sys/epoll.h>

enum { EVENTS = QR_AT_A_TIME(64, 1), NS_PER_MS = 1000000 };

/* Everything that can be done without waiting. A pass may make room for another: an answer frees a
 * call, a map gives calls their nodes; so the sending comes last. */
static void work(quire_tier_redis *redis)
{
    uint32_t total = redis->max_nodes * redis->num_links;
    redis->has_more = false;
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
}

static void earlier(uint64_t *when, uint64_t ns)
{
    *when = ns < *when ? ns : *when;
}

/* When something is to be done even if nothing comes. */
static uint64_t next_time(const quire_tier_redis *redis)
{
    uint64_t when = UINT64_MAX;
    bool has_ready = false;
    for (const qr_batch *batch = redis->active; batch != NULL; batch = batch->next)
        earlier(&when, batch->deadline_ns);
    for (uint32_t n = 0; n < redis->max_nodes; n++) {
        const qr_node *node = &redis->nodes[n];
        if (!node->is_used)
            continue;
        if (node->breaker.health == QUIRE_TIER_OPEN && (node->is_mapped || node->is_seed))
            earlier(&when, node->breaker.until_ns);
        if (node->is_looking)
            earlier(&when, node->until_ns);
        for (uint32_t i = 0; i < redis->num_links; i++) {
            const qr_link *link = &node->links[i];
            has_ready = has_ready || link->state == QR_LINK_READY;
            if (link->state == QR_LINK_CONNECTING || link->state == QR_LINK_GREETING)
                earlier(&when, link->until_ns);
            else if (link->first != NULL && link->first->batch == NULL)
                earlier(&when, link->first->due_ns);
        }
    }
    if (redis->wants_map && has_ready && redis->reader.link == NULL)
        earlier(&when, redis->map_after_ns);
    earlier(&when, qr_usage_time(redis));
    return when;
}

static int wait_ms(const quire_tier_redis *redis, int timeout_ms)
{
    uint64_t when = next_time(redis);
    if (redis->has_more || when <= redis->now_ns)
        return 0;
    if (when == UINT64_MAX)
        return timeout_ms;
    uint64_t ms = (when - redis->now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return timeout_ms >= 0 && (uint64_t)timeout_ms < ms ? timeout_ms
                                                        : (int)(ms < 60000 ? ms : 60000);
}

static void watch_wake(quire_tier_redis *redis, int wake_fd)
{
    if (wake_fd == redis->wake_fd)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &redis->wake_fd};
    if (redis->wake_fd >= 0)
        (void)epoll_ctl(redis->epoll_fd, EPOLL_CTL_DEL, redis->wake_fd, NULL);
    redis->wake_fd = wake_fd;
    if (wake_fd >= 0 && epoll_ctl(redis->epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0)
        redis->wake_fd = -1; /* tried again in the next turn */
}

static void publish(quire_tier_redis *redis)
{
    uint64_t gauges[2] = {0, 0};
    uint64_t num_calls = 0;
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        const qr_node *node = &redis->nodes[i];
        gauges[0] += node->is_used;
        gauges[1] += node->is_used && qr_node_is_open(node);
        num_calls += node->is_used ? node->num_calls : 0;
    }
    const uint64_t now[][2] = {{QR_COUNT_NODES, gauges[0]},
                               {QR_COUNT_NODES_OPEN, gauges[1]},
                               {QR_COUNT_CALLS, num_calls},
                               {QR_COUNT_JOBS, redis->num_jobs}};
    for (size_t i = 0; i < sizeof now / sizeof *now; i++)
        atomic_store_explicit(&redis->counts[now[i][0]], now[i][1], memory_order_relaxed);
    qr_usage_publish(redis);
}

static void take_events(quire_tier_redis *redis, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        void *data = events[i].data.ptr;
        if (data == redis->name) {
            qr_node_answered(redis);
        } else if (data != &redis->wake_fd) {
            qr_link *link = data;
            link->socket.can_read = true;
            link->socket.can_write = true;
        }
    }
}

void qr_redis_turn(quire_tier_redis *redis, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    redis->ends = ends;
    redis->now_ns = qr_now_ns(&redis->hooks);
    watch_wake(redis, wake_fd);
    uint32_t num_jobs = redis->num_jobs;
    work(redis);
    publish(redis);
    /* What ended is told at once. */
    int timeout = redis->num_jobs < num_jobs ? 0 : wait_ms(redis, timeout_ms);
    int n = epoll_wait(redis->epoll_fd, events, EVENTS, timeout);
    redis->now_ns = qr_now_ns(&redis->hooks);
    if (n > 0) {
        take_events(redis, events, n);
        work(redis);
        publish(redis);
    }
}
