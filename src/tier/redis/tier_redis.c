/* tier/redis/tier_redis.c - how the Redis tier is made, what a runner calls, and one turn. redis.h
 * has its inside. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/core/tier.h"
#include "tier/redis/redis.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum {
    PORT = 6379,
    CONNECTIONS = 3,
    MAX_CONNECTIONS = 64,
    NODES = 32,
    MAX_NODES = 1024,
    WINDOW_BYTES = 16 * 1024 * 1024,
    LOAD_WINDOW_BYTES = 3 * 1024 * 1024,
    STRIKES = 3,
    OURS_PER_LINK = 5 /* AUTH, PING, CLUSTER SLOTS, INFO, DBSIZE */
};
#define LONGEST_TTL_MS (UINT64_C(3650) * 86400 * 1000)

/* ---- a turn ---------------------------------------------------------------- */

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
    qr_net_expire(net);
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
            if (link->state == QR_LINK_READY && qr_usage_is_asked(node))
                qr_earlier(&when, node->usage_after_ns);
            has_ready = has_ready || link->state == QR_LINK_READY;
            if (link->state == QR_LINK_CONNECTING || link->state == QR_LINK_GREETING)
                qr_earlier(&when, link->until_ns);
            else if (link->calls.first != NULL && link->calls.first->batch == NULL)
                qr_earlier(&when, link->calls.first->due_ns);
        }
    }
    if (redis->wants_map && has_ready && redis->reader.link == NULL)
        qr_earlier(&when, redis->map_after_ns);
    return when;
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

static const qr_net_ops net_ops = {.name = "redis",
                                   .work = work,
                                   .next_time = next_time,
                                   .name_found = qr_node_found,
                                   .leave = qr_batch_leave,
                                   .find_missing = find_missing};

/* ---- the config ------------------------------------------------------------ */

static qr_net_options options_of(const quire_tier_redis_config *c, uint32_t max_jobs)
{
    return (qr_net_options){QR_NET_OPTIONS(c, max_jobs), .secret = {.field = "password",
                                                                    .user = c->user,
                                                                    .text = c->password,
                                                                    .file = c->password_file,
                                                                    .get = c->get_password,
                                                                    .get_user = c->password_user}};
}

static bool is_prefix(const char *prefix)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; i < n; i++)
        if (prefix[i] <= ' ' || prefix[i] > '~' || prefix[i] == '{' || prefix[i] == '}')
            return false;
    return n > 0 && n <= QR_REDIS_PREFIX;
}

static int check_servers(const quire_tier_redis_config *c, const qr_net_options *options)
{
    int status = QUIRE_OK;
    const uint32_t most = (uint32_t)qr_or_default(c->max_nodes, NODES);
    if (c->servers == NULL || c->num_servers == 0 || c->num_servers > most)
        return qr_fail(QUIRE_E_CONFIG, "invalid num_servers %u (expected 1..%u, and servers)",
                       c->num_servers, most);
    for (uint32_t i = 0; i < c->num_servers && status == QUIRE_OK; i++) {
        qr_address address;
        const char *text = c->servers[i];
        if (text == NULL || !qr_address_parse(&address, text, strlen(text), PORT))
            return qr_fail(QUIRE_E_CONFIG,
                           "servers: \"%s\" is not HOST[:PORT], [IPv6]:PORT or unix:PATH",
                           text == NULL ? "(null)" : text);
        status = qr_net_check_trust(options, &address, "servers", text);
    }
    return status;
}

/* So that none of them overflows when it is added to now, or doubled. */
static bool are_times(const quire_tier_redis_config *c)
{
    return c->connect_ns <= QR_NET_LONGEST && c->wait_ns <= QR_NET_LONGEST &&
           c->refresh_ns <= QR_NET_LONGEST && c->breaker_ns <= QR_NET_LONGEST &&
           c->late_ns <= QR_NET_LONGEST && c->ttl_ms <= LONGEST_TTL_MS &&
           c->usage_ns <= QR_NET_LONGEST;
}

static const char *check_fields(const quire_tier_redis_config *c, const qr_net_options *options)
{
    int num_passwords =
        (c->password != NULL) + (c->password_file != NULL) + (c->get_password != NULL);
    if (!are_times(c))
        return "invalid time (expected *_ns of at most a day, ttl_ms of at most ten years)";
    if (c->prefix != NULL && !is_prefix(c->prefix))
        return "invalid prefix (expected 1 to 64 printable characters without blanks and { })";
    if (c->connections > MAX_CONNECTIONS)
        return "invalid connections (expected at most 64 to a node)";
    if (c->max_nodes > MAX_NODES)
        return "invalid max_nodes (expected at most 1,024)";
    if (c->max_block_bytes > QR_RESP_VALUE - QR_NET_HEADER)
        return "invalid max_block_bytes (expected at most 512 MiB, the limit of Redis)";
    if (num_passwords > 1)
        return "password, password_file and get_password: set at most one";
    if (c->user != NULL && num_passwords == 0)
        return "user is set without a password";
    return qr_net_check(options);
}

static int check_config(const void *config)
{
    const quire_tier_redis_config *c = config;
    qr_net_options options = options_of(c, 0);
    const char *wrong = check_fields(c, &options);
    if (wrong == NULL)
        return check_servers(c, &options);
    return qr_fail(QUIRE_E_CONFIG, "%s", wrong);
}

/* ---- making ---------------------------------------------------------------- */

static void close_redis(void *self)
{
    quire_tier_redis *redis = self;
    uint32_t total = redis->links == NULL ? 0 : redis->max_nodes * redis->num_links;
    for (uint32_t i = 0; i < total; i++)
        qr_socket_close(&redis->links[i].socket);
    qr_net_close(&redis->net);
    if (redis->auth != NULL)
        OPENSSL_cleanse(redis->auth, (size_t)total * QR_SECRET_AUTH);
    qr_free(redis->auth);
    qr_free(redis->calls);
    qr_free(redis->input);
    qr_free(redis->links);
    qr_free(redis->nodes);
    qr_free(redis);
}

static void set_limits(quire_tier_redis *redis, const quire_tier_redis_config *c)
{
    redis->num_links = (uint32_t)qr_or_default(c->connections, CONNECTIONS);
    redis->max_nodes = (uint32_t)qr_or_default(c->max_nodes, NODES);
    redis->window_bytes = qr_or_default(c->window_bytes, WINDOW_BYTES);
    redis->load_window_bytes = qr_or_default(c->load_window_bytes, LOAD_WINDOW_BYTES);
    redis->refresh_ns = qr_or_default(c->refresh_ns, QR_NET_SECOND);
    redis->usage_ns = qr_or_default(c->usage_ns, 5 * QR_NET_SECOND);
    redis->breaker_strikes = (uint32_t)qr_or_default(c->breaker_strikes, STRIKES);
    redis->breaker_ns = qr_or_default(c->breaker_ns, 5 * QR_NET_SECOND);
    redis->is_trusting = c->trust_network != 0 || c->tls != 0;
    redis->has_ttl = c->ttl_ms != 0;
    int n = 2;
    memcpy(redis->tail, "\r\n", 2);
    if (redis->has_ttl) {
        char ttl[24];
        int digits = snprintf(ttl, sizeof ttl, "%llu", (unsigned long long)c->ttl_ms);
        n = snprintf(redis->tail, sizeof redis->tail, "\r\n$2\r\nPX\r\n$%d\r\n%s\r\n", digits, ttl);
    }
    redis->tail_bytes = (uint32_t)n;
}

static int take_memory(quire_tier_redis *redis)
{
    uint32_t total = redis->max_nodes * redis->num_links;
    redis->num_kept_calls = total * OURS_PER_LINK;
    redis->num_free_calls = QR_REDIS_CALLS + redis->num_kept_calls;
    redis->nodes = qr_alloc(redis->max_nodes, sizeof *redis->nodes);
    redis->links = qr_alloc(total, sizeof *redis->links);
    redis->input = qr_alloc(total, QR_REDIS_INPUT);
    redis->calls = qr_alloc(redis->num_free_calls, sizeof *redis->calls);
    if (redis->net.secret.is_used) /* each its own: the password may change while one is sent */
        redis->auth = qr_alloc(total, QR_SECRET_AUTH);
    for (uint32_t i = 0; redis->links != NULL && i < total; i++)
        redis->links[i].socket.fd = -1;
    if (redis->nodes == NULL || redis->links == NULL || redis->input == NULL ||
        redis->calls == NULL || (redis->net.secret.is_used && redis->auth == NULL))
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < total; i++) {
        redis->links[i].node = &redis->nodes[i / redis->num_links];
        redis->links[i].input = redis->input + (size_t)i * QR_REDIS_INPUT;
    }
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        redis->nodes[i].links = &redis->links[(size_t)i * redis->num_links];
    for (uint32_t i = 0; i < redis->num_free_calls; i++) {
        redis->calls[i].next = redis->free_calls;
        redis->free_calls = &redis->calls[i];
    }
    return QUIRE_OK;
}

static void add_seeds(quire_tier_redis *redis, const quire_tier_redis_config *c)
{
    memset(redis->owner, 0xff, sizeof redis->owner);
    redis->wants_map = true;
    for (uint32_t i = 0; i < c->num_servers; i++) {
        qr_address address;
        if (!qr_address_parse(&address, c->servers[i], strlen(c->servers[i]), PORT))
            continue;
        qr_node *node = qr_node_find(redis, &address);
        if (node != NULL)
            node->is_seed = true;
    }
}

static int init_redis(void *self, const void *config, uint32_t max_jobs, const quire_hooks *hooks)
{
    quire_tier_redis *redis = self;
    const quire_tier_redis_config *c = config;
    qr_net_options options = options_of(c, max_jobs);
    int status = qr_net_open(&redis->net, &net_ops, &options, hooks);
    if (status != QUIRE_OK)
        return status;
    (void)snprintf(redis->prefix, sizeof redis->prefix, "%s",
                   c->prefix == NULL ? "quire" : c->prefix);
    qr_redis_space_init(&redis->space, redis->prefix, c->fingerprint);
    set_limits(redis, c);
    status = take_memory(redis);
    if (status == QUIRE_OK)
        add_seeds(redis, c);
    return status;
}

/* ---- what a runner calls --------------------------------------------------- */

/* A server does not say which of its keys are in use: all of them are cached ones. */
static quire_usage get_usage(void *self)
{
    const quire_tier_redis *redis = self;
    uint64_t num_keys = qr_count_get(&redis->num_keys);
    uint64_t room = qr_count_get(&redis->room_keys);
    return (quire_usage){.total = num_keys + room, .empty = room, .cached = num_keys};
}

static quire_tier_space get_space(void *self)
{
    const quire_tier_redis *redis = self;
    return (quire_tier_space){.used_bytes = qr_count_get(&redis->used_bytes),
                              .capacity_bytes = qr_count_get(&redis->max_bytes)};
}

/* Without jobs nothing on the tier's thread looks at the namespace; the next job brings it. */
static int set_identity(void *self, const unsigned char *fingerprint)
{
    quire_tier_redis *redis = self;
    qr_redis_space_init(&redis->space, redis->prefix, fingerprint);
    (void)quire_slots_reset(redis->net.known);
    return QUIRE_OK;
}

static const quire_tier_ops ops = {QR_NET_TIER_OPS("redis"),
                                   .close = close_redis,
                                   .caps = qr_net_get_caps,
                                   .prepare = qr_net_prepare_job,
                                   .set_identity = set_identity,
                                   .usage = get_usage,
                                   .space = get_space};
static const qr_tier_kind kind = {.ops = &ops,
                                  .config_bytes = sizeof(quire_tier_redis_config),
                                  .self_bytes = sizeof(quire_tier_redis),
                                  .check = check_config,
                                  .init = init_redis};

QR_TIER_CALLS(redis)

QUIRE_API int quire_tier_redis_get_stats(const quire_tier_redis *redis,
                                         quire_tier_redis_stats *stats)
{
    quire_tier_redis_stats own;
    if (redis == NULL)
        return QUIRE_E_ARGUMENT;
#define QR_X(name, field) own.field = qr_count_get(&redis->net.counts[QR_NET_##name]);
    QR_REDIS_COUNTS(QR_X)
#undef QR_X
    return qr_struct_out(stats, &own, sizeof own);
}

QUIRE_API int quire_tier_redis_has_tls(void)
{
    return qr_tls_is_built();
}
