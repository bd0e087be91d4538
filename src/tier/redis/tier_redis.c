/* tier/redis/tier_redis.c - how the Redis tier is made, and what a runner calls. redis.h has its
 * inside. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "tier/core/tier.h"
#include "tier/promote/known.h"
#include "tier/redis/redis.h"

#include <quire/tier_redis.h>

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    CONNECTIONS = 3,
    MAX_CONNECTIONS = 64,
    NODES = 32,
    MAX_NODES = 1024,
    BLOCK_BYTES = 64 * 1024 * 1024,
    WINDOW_BYTES = 16 * 1024 * 1024,
    LOAD_WINDOW_BYTES = 3 * 1024 * 1024,
    JOBS = 256,
    STRIKES = 3,
    OURS_PER_LINK = 5 /* AUTH, PING, CLUSTER SLOTS, INFO, DBSIZE */
};
#define SECOND         UINT64_C(1000000000)
#define LONGEST        (86400 * SECOND)
#define LONGEST_TTL_MS (UINT64_C(3650) * 86400 * 1000)

/* ---- the config ------------------------------------------------------------ */

static bool is_prefix(const char *prefix)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; i < n; i++)
        if (prefix[i] <= ' ' || prefix[i] > '~' || prefix[i] == '{' || prefix[i] == '}')
            return false;
    return n > 0 && n <= QR_REDIS_PREFIX;
}

static int check_servers(const quire_tier_redis_config *c, char *message, size_t bytes)
{
    if (c->servers == NULL || c->num_servers == 0 ||
        c->num_servers > qr_or_default(c->max_nodes, NODES)) {
        qr_say(message, bytes, "invalid num_servers (expected 1..max_nodes)");
        return QUIRE_E_CONFIG;
    }
    for (uint32_t i = 0; i < c->num_servers; i++) {
        qr_address address;
        const char *text = c->servers[i];
        if (text == NULL || !qr_address_parse(&address, text, strlen(text))) {
            qr_say(message, bytes,
                   "servers: \"%s\" is not HOST[:PORT], [IPv6]:PORT or "
                   "unix:PATH",
                   text == NULL ? "(null)" : text);
            return QUIRE_E_CONFIG;
        }
        if (c->tls == 0 && c->trust_network == 0 && !qr_address_is_local(&address)) {
            qr_say(message, bytes,
                   "servers: \"%s\" is beyond this machine: set tls, or trust_network if the "
                   "network is trusted",
                   text);
            return QUIRE_E_UNSAFE;
        }
    }
    return QUIRE_OK;
}

/* So that none of them overflows when it is added to now, or doubled. */
static bool are_times(const quire_tier_redis_config *c)
{
    return c->connect_ns <= LONGEST && c->wait_ns <= LONGEST && c->refresh_ns <= LONGEST &&
           c->breaker_ns <= LONGEST && c->late_ns <= LONGEST && c->ttl_ms <= LONGEST_TTL_MS &&
           c->usage_ns <= LONGEST;
}

static int check_config(const quire_tier_redis_config *c, char *message, size_t bytes)
{
    const char *wrong = NULL;
    if (!are_times(c))
        wrong = "invalid time (expected *_ns of at most a day, ttl_ms of at most ten years)";
    else if (c->fingerprint == NULL)
        wrong = "fingerprint is NULL (expected the 32 bytes of quire_fingerprint)";
    else if (c->prefix != NULL && !is_prefix(c->prefix))
        wrong = "invalid prefix (expected 1 to 64 printable characters without blanks and { })";
    else if (c->connections > MAX_CONNECTIONS)
        wrong = "invalid connections (expected at most 64 to a node)";
    else if (c->event_keys > QUIRE_SLOTS_MAX)
        wrong = "invalid event_keys (expected at most QUIRE_SLOTS_MAX)";
    else if (c->max_nodes > MAX_NODES)
        wrong = "invalid max_nodes (expected at most 1,024)";
    else if (c->max_block_bytes > QR_RESP_VALUE - QR_REDIS_HEADER)
        wrong = "invalid max_block_bytes (expected at most 512 MiB, the limit of Redis)";
    else if ((c->password != NULL) + (c->password_file != NULL) + (c->get_password != NULL) > 1)
        wrong = "password, password_file and get_password: set at most one";
    else if (c->user != NULL && c->password == NULL && c->password_file == NULL &&
             c->get_password == NULL)
        wrong = "user is set without a password";
    else if (c->tls == 0 && (c->tls_ca_file != NULL || c->tls_cert_file != NULL ||
                             c->tls_key_file != NULL || c->tls_server_name != NULL))
        wrong = "tls is 0, but a TLS file or name is set";
    else if (c->tls_trust_any != 0 && c->tls_ca_file != NULL)
        wrong = "tls_trust_any and tls_ca_file are both set: set one of them";
    if (wrong != NULL) {
        qr_say(message, bytes, "%s", wrong);
        return QUIRE_E_CONFIG;
    }
    return check_servers(c, message, bytes);
}

/* ---- making ---------------------------------------------------------------- */

static void close_redis(void *self)
{
    quire_tier_redis *redis = self;
    uint32_t total = redis->links == NULL ? 0 : redis->max_nodes * redis->num_links;
    for (uint32_t i = 0; i < total; i++)
        qr_socket_close(&redis->links[i].socket);
    qr_name_close(redis->name);
    if (redis->epoll_fd >= 0)
        close(redis->epoll_fd);
    quire_slots_destroy(redis->known);
    qr_tls_close(redis->tls);
    if (redis->auth != NULL)
        OPENSSL_cleanse(redis->auth, (size_t)total * QR_SECRET_AUTH);
    qr_free(redis->auth);
    qr_secret_close(&redis->secret);
    qr_free(redis->batches);
    qr_free(redis->calls);
    qr_free(redis->input);
    qr_free(redis->links);
    qr_free(redis->nodes);
    qr_free(redis);
}

static void set_limits(quire_tier_redis *redis, const quire_tier_redis_config *c, uint32_t max_jobs)
{
    redis->num_links = (uint32_t)qr_or_default(c->connections, CONNECTIONS);
    redis->max_nodes = (uint32_t)qr_or_default(c->max_nodes, NODES);
    redis->max_block_bytes = (uint32_t)qr_or_default(c->max_block_bytes, BLOCK_BYTES);
    redis->window_bytes = qr_or_default(c->window_bytes, WINDOW_BYTES);
    redis->load_window_bytes = qr_or_default(c->load_window_bytes, LOAD_WINDOW_BYTES);
    redis->connect_ns = qr_or_default(c->connect_ns, SECOND);
    redis->wait_ns = c->wait_ns;
    redis->refresh_ns = qr_or_default(c->refresh_ns, SECOND);
    redis->late_ns = qr_or_default(c->late_ns, SECOND);
    redis->drop_ns = 5 * SECOND;
    redis->usage_ns = qr_or_default(c->usage_ns, 5 * SECOND);
    redis->breaker_strikes = (uint32_t)qr_or_default(c->breaker_strikes, STRIKES);
    redis->breaker_ns = qr_or_default(c->breaker_ns, 5 * SECOND);
    redis->max_jobs = (uint32_t)qr_or_default(max_jobs, JOBS);
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
    redis->batches = qr_alloc(redis->max_jobs, sizeof *redis->batches);
    for (uint32_t i = 0; redis->links != NULL && i < total; i++)
        redis->links[i].socket.fd = -1;
    if (redis->nodes == NULL || redis->links == NULL || redis->input == NULL ||
        redis->calls == NULL || redis->batches == NULL)
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
    for (uint32_t i = 0; i < redis->max_jobs; i++) {
        redis->batches[i].next = redis->free_batches;
        redis->free_batches = &redis->batches[i];
    }
    return QUIRE_OK;
}

static int open_descriptors(quire_tier_redis *redis)
{
    redis->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    redis->name = redis->epoll_fd < 0 ? NULL : qr_name_open();
    if (redis->name == NULL)
        return QUIRE_E_SYSTEM;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = redis->name};
    return epoll_ctl(redis->epoll_fd, EPOLL_CTL_ADD, qr_name_fd(redis->name), &event) == 0
               ? QUIRE_OK
               : QUIRE_E_SYSTEM;
}

/* Each connection has room for its AUTH: the password may change while another one is sent. */
static int open_secret(quire_tier_redis *redis, const quire_tier_redis_config *c, char *message,
                       size_t bytes)
{
    qr_secret_options options = {.field = "password",
                                 .user = c->user,
                                 .text = c->password,
                                 .file = c->password_file,
                                 .get = c->get_password,
                                 .get_user = c->password_user};
    int status = qr_secret_open(&redis->secret, &options, message, bytes);
    if (status != QUIRE_OK || !redis->secret.is_used)
        return status;
    redis->auth = qr_alloc((size_t)redis->max_nodes * redis->num_links, QR_SECRET_AUTH);
    return redis->auth == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

static int open_tls(quire_tier_redis *redis, const quire_tier_redis_config *c, char *message,
                    size_t bytes)
{
    qr_tls_options options = {.ca_file = c->tls_ca_file,
                              .cert_file = c->tls_cert_file,
                              .key_file = c->tls_key_file,
                              .server_name = c->tls_server_name,
                              .trusts_any = c->tls_trust_any != 0};
    return c->tls == 0 ? QUIRE_OK : qr_tls_open(&options, &redis->tls, message, bytes);
}

static void add_seeds(quire_tier_redis *redis, const quire_tier_redis_config *c)
{
    memset(redis->owner, 0xff, sizeof redis->owner);
    redis->wants_map = true;
    for (uint32_t i = 0; i < c->num_servers; i++) {
        qr_address address;
        if (!qr_address_parse(&address, c->servers[i], strlen(c->servers[i])))
            continue;
        qr_node *node = qr_node_find(redis, &address);
        if (node != NULL)
            node->is_seed = true;
    }
}

QUIRE_API int quire_tier_redis_create(const quire_tier_redis_config *config, uint32_t max_jobs,
                                      const quire_hooks *hooks, quire_tier_redis **redis,
                                      char *message, size_t message_bytes)
{
    quire_tier_redis_config c;
    if (redis == NULL)
        return QUIRE_E_ARGUMENT;
    *redis = NULL;
    qr_say(message, message_bytes, "%s", "");
    int status = qr_config_read(&c, sizeof c, config);
    if (status == QUIRE_OK)
        status = check_config(&c, message, message_bytes);
    if (status != QUIRE_OK)
        return status;
    quire_tier_redis *r = qr_alloc(1, sizeof *r);
    if (r == NULL) {
        qr_say(message, message_bytes, "%s", quire_strerror(QUIRE_E_NOMEM));
        return QUIRE_E_NOMEM;
    }
    r->epoll_fd = -1;
    r->wake_fd = -1;
    if (hooks != NULL)
        r->hooks = *hooks;
    (void)snprintf(r->prefix, sizeof r->prefix, "%s", c.prefix == NULL ? "quire" : c.prefix);
    qr_redis_space_init(&r->space, r->prefix, c.fingerprint);
    set_limits(r, &c, max_jobs);
    status = take_memory(r);
    if (status == QUIRE_OK && c.event_keys > 0)
        status = qr_known_open(c.event_keys, &r->hooks, &r->known);
    if (status == QUIRE_OK)
        status = open_descriptors(r);
    if (status == QUIRE_OK)
        status = open_secret(r, &c, message, message_bytes);
    if (status == QUIRE_OK)
        status = open_tls(r, &c, message, message_bytes);
    if (status != QUIRE_OK) {
        close_redis(r);
        if (message != NULL && message_bytes > 0 && message[0] == 0)
            qr_say(message, message_bytes, "%s", quire_strerror(status));
        return status;
    }
    add_seeds(r, &c);
    *redis = r;
    return QUIRE_OK;
}

/* ---- what a runner calls --------------------------------------------------- */

/* The first failure that there is, for the message. */
static const char *find_reason(const quire_tier_redis *redis)
{
    for (uint32_t i = 0; i < redis->max_nodes; i++)
        if (redis->nodes[i].is_used && redis->nodes[i].why[0] != 0)
            return redis->nodes[i].why;
    return "no reply";
}

static int open_redis(void *self, const void *memory, size_t bytes, char *message,
                      size_t message_bytes)
{
    quire_tier_redis *redis = self;
    (void)memory; /* sockets need no memory to be registered */
    (void)bytes;
    uint64_t end = qr_now_ns(NULL) + redis->wait_ns; /* a clock of the caller's may stand still */
    while (redis->wait_ns > 0 && !redis->has_map) {
        uint64_t now = qr_now_ns(NULL);
        if (now >= end) {
            qr_say(message, message_bytes, "redis %s:%u: %s", redis->nodes[0].address.host,
                   redis->nodes[0].address.port, find_reason(redis));
            return QUIRE_E_SYSTEM;
        }
        qr_redis_turn(redis, NULL, -1, (int)((end - now) / 1000000 + 1));
    }
    return QUIRE_OK;
}

static quire_tier_caps get_caps(void *self)
{
    const quire_tier_redis *redis = self;
    return (quire_tier_caps){.alignment = 1,
                             .max_bytes = redis->max_block_bytes,
                             .is_persistent = 1,
                             .is_shared = 1,
                             .checks_crc = 1};
}

static void prepare_job(void *self, quire_tier_job *job)
{
    (void)self;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        job->ios[i].place = 0;
        job->ios[i].generation = 0;
    }
}

static void finish_job(void *self, quire_tier_job *job)
{
    const quire_tier_redis *redis = self;
    qr_known_finish(redis->known, job);
}

static quire_slots *get_slots(void *self)
{
    const quire_tier_redis *redis = self;
    return redis->known;
}

static uint64_t get_gauge(const _Atomic uint64_t *gauge)
{
    return atomic_load_explicit(gauge, memory_order_relaxed);
}

/* A server does not say which of its keys are in use: all of them are cached ones. */
static quire_usage get_usage(void *self)
{
    const quire_tier_redis *redis = self;
    uint64_t num_keys = get_gauge(&redis->num_keys);
    uint64_t room = get_gauge(&redis->room_keys);
    return (quire_usage){.total = num_keys + room, .empty = room, .cached = num_keys};
}

static quire_tier_space get_space(void *self)
{
    const quire_tier_redis *redis = self;
    return (quire_tier_space){.used_bytes = get_gauge(&redis->used_bytes),
                              .capacity_bytes = get_gauge(&redis->max_bytes)};
}

/* Without jobs nothing on the tier's thread looks at the namespace; the next job brings it. */
static int set_identity(void *self, const unsigned char *fingerprint)
{
    quire_tier_redis *redis = self;
    qr_redis_space_init(&redis->space, redis->prefix, fingerprint);
    (void)quire_slots_reset(redis->known);
    return QUIRE_OK;
}

static void begin_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_redis *redis = self;
    redis->ends = ends;
    redis->now_ns = qr_now_ns(&redis->hooks);
    qr_batch_begin(redis, job);
}

static void turn_redis(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    qr_redis_turn(self, ends, wake_fd, timeout_ms);
}

static void cancel_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_redis *redis = self;
    redis->ends = ends;
    redis->now_ns = qr_now_ns(&redis->hooks);
    qr_batch_cancel(redis, job);
}

QUIRE_API const quire_tier_ops *quire_tier_redis_ops(void)
{
    static const quire_tier_ops ops = {.abi = 1,
                                       .size = sizeof(quire_tier_ops),
                                       .name = "redis",
                                       .open = open_redis,
                                       .close = close_redis,
                                       .caps = get_caps,
                                       .prepare = prepare_job,
                                       .finish = finish_job,
                                       .slots = get_slots,
                                       .set_identity = set_identity,
                                       .usage = get_usage,
                                       .space = get_space,
                                       .begin = begin_job,
                                       .turn = turn_redis,
                                       .cancel = cancel_job};
    return &ops;
}

static int make_redis(const void *config, uint32_t max_jobs, const quire_hooks *hooks, void **self,
                      char *message, size_t message_bytes)
{
    quire_tier_redis *redis = NULL;
    int status = quire_tier_redis_create(config, max_jobs, hooks, &redis, message, message_bytes);
    *self = redis;
    return status;
}

QUIRE_API int quire_tier_redis_open(const quire_tier_redis_config *config,
                                    const quire_tier_config *common,
                                    const quire_allocator *allocator, quire_tier **tier,
                                    quire_tier_redis **redis, char *message, size_t message_bytes)
{
    void *self;
    int status = qr_tier_open_with(make_redis, quire_tier_redis_ops(), config, common, allocator,
                                   tier, &self, message, message_bytes);
    if (redis != NULL)
        *redis = self;
    return status;
}

QUIRE_API int quire_tier_redis_get_stats(const quire_tier_redis *redis,
                                         quire_tier_redis_stats *stats)
{
    if (redis == NULL || stats == NULL)
        return QUIRE_E_ARGUMENT;
    uint64_t *const fields[QR_NUM_COUNTS] = {
        [QR_COUNT_NODES] = &stats->nodes,         [QR_COUNT_NODES_OPEN] = &stats->nodes_open,
        [QR_COUNT_SLOTS] = &stats->slots,         [QR_COUNT_CONNECTIONS] = &stats->connections,
        [QR_COUNT_CALLS] = &stats->calls,         [QR_COUNT_JOBS] = &stats->jobs,
        [QR_COUNT_CONNECTED] = &stats->connected, [QR_COUNT_LOST] = &stats->lost,
        [QR_COUNT_REFRESHED] = &stats->refreshed, [QR_COUNT_MOVED] = &stats->moved,
        [QR_COUNT_ASKED] = &stats->asked,         [QR_COUNT_SURPRISES] = &stats->surprises,
        [QR_COUNT_WRONG] = &stats->wrong,         [QR_COUNT_REFUSED] = &stats->refused,
        [QR_COUNT_LATE] = &stats->late,           [QR_COUNT_PRESENT] = &stats->present,
        [QR_COUNT_BYTES_IN] = &stats->bytes_in,   [QR_COUNT_BYTES_OUT] = &stats->bytes_out,
    };
    for (int i = 0; i < QR_NUM_COUNTS; i++)
        *fields[i] = atomic_load_explicit(&redis->counts[i], memory_order_relaxed);
    return QUIRE_OK;
}

QUIRE_API int quire_tier_redis_has_tls(void)
{
    return qr_tls_is_built();
}
