/* tier/peer/tier_peer.c - how the peer tier is made, and what a runner calls. peer.h has its
 * inside. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "tier/core/tier.h"
#include "tier/peer/peer.h"
#include "tier/promote/known.h"

#include <quire/wire.h>

#include <openssl/crypto.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { LINKS = 2, BLOCK_BYTES = 64 * 1024 * 1024, WINDOW_BYTES = 8 * 1024 * 1024, JOBS = 256 };
#define SECOND  UINT64_C(1000000000)
#define LONGEST (86400 * SECOND)

/* ---- the config ------------------------------------------------------------ */

static const char *check_fields(const quire_tier_peer_config *c)
{
    bool has_files = c->tls_ca_file != NULL || c->tls_cert_file != NULL ||
                     c->tls_key_file != NULL || c->tls_server_name != NULL;
    if (c->connect_ns > LONGEST || c->wait_ns > LONGEST || c->retry_ns > LONGEST ||
        c->late_ns > LONGEST)
        return "invalid time (expected *_ns of at most a day)";
    if (c->fingerprint == NULL)
        return "fingerprint is NULL (expected the 32 bytes of quire_fingerprint)";
    if (c->event_keys > QUIRE_SLOTS_MAX)
        return "invalid event_keys (expected at most QUIRE_SLOTS_MAX)";
    if (c->connections > QR_PEER_MAX_LINKS)
        return "invalid connections (expected at most 16)";
    if ((c->secret != NULL) + (c->secret_file != NULL) + (c->get_secret != NULL) != 1)
        return "secret, secret_file, get_secret: set exactly one";
    if (c->tls == 0 && has_files)
        return "tls is 0, but a TLS file or name is set";
    if (c->tls_trust_any != 0 && c->tls_ca_file != NULL)
        return "tls_trust_any and tls_ca_file are both set: set one of them";
    if (c->max_hints > QR_PEER_MAX_HINTS)
        return "invalid max_hints (expected at most 2^26, 67,108,864)";
    return NULL;
}

static int check_config(const quire_tier_peer_config *c, qr_address *address, char *message,
                        size_t bytes)
{
    const char *wrong = check_fields(c);
    if (wrong != NULL) {
        qr_say(message, bytes, "%s", wrong);
        return QUIRE_E_CONFIG;
    }
    if (c->server == NULL || !qr_address_parse_or(address, c->server, strlen(c->server), 0)) {
        qr_say(message, bytes, "server: \"%s\" is not HOST:PORT, [IPv6]:PORT or unix:PATH",
               c->server == NULL ? "(null)" : c->server);
        return QUIRE_E_CONFIG;
    }
    if (c->tls == 0 && c->trust_network == 0 && !qr_address_is_local(address)) {
        qr_say(message, bytes,
               "server: \"%s\" is beyond this machine: set tls, or trust_network if the "
               "network is trusted",
               c->server);
        return QUIRE_E_UNSAFE;
    }
    return QUIRE_OK;
}

/* ---- making ---------------------------------------------------------------- */

static void close_peer(void *self)
{
    quire_tier_peer *peer = self;
    for (uint32_t i = 0; peer->links != NULL && i < peer->num_links; i++)
        qr_socket_close(&peer->links[i].socket);
    qr_name_close(peer->name);
    if (peer->epoll_fd >= 0)
        close(peer->epoll_fd);
    quire_slots_destroy(peer->known);
    qr_tls_close(peer->tls);
    qr_secret_close(&peer->secret);
    if (peer->links != NULL)
        OPENSSL_cleanse(peer->links, peer->num_links * sizeof *peer->links);
    qr_free(peer->links);
    qr_free(peer->scratch);
    qr_free(peer->batches);
    qr_peer_hints_close(&peer->hints);
    qr_free(peer);
}

static void set_limits(quire_tier_peer *peer, const quire_tier_peer_config *c, uint32_t max_jobs)
{
    peer->num_links = (uint32_t)qr_or_default(c->connections, LINKS);
    peer->max_block_bytes = (uint32_t)qr_or_default(c->max_block_bytes, BLOCK_BYTES);
    peer->window_bytes = qr_or_default(c->load_window_bytes, WINDOW_BYTES);
    peer->connect_ns = qr_or_default(c->connect_ns, SECOND);
    peer->wait_ns = c->wait_ns;
    peer->retry_ns = qr_or_default(c->retry_ns, SECOND / 10);
    peer->backoff_ns = peer->retry_ns;
    peer->late_ns = qr_or_default(c->late_ns, SECOND);
    peer->max_jobs = (uint32_t)qr_or_default(max_jobs, JOBS);
    memcpy(peer->fingerprint, c->fingerprint, sizeof peer->fingerprint);
}

static int take_memory(quire_tier_peer *peer)
{
    peer->links = qr_alloc(peer->num_links, sizeof *peer->links);
    peer->scratch = qr_alloc(1, QR_PEER_SCRATCH);
    peer->batches = qr_alloc(peer->max_jobs, sizeof *peer->batches);
    for (uint32_t i = 0; peer->links != NULL && i < peer->num_links; i++)
        peer->links[i].socket.fd = -1;
    if (peer->links == NULL || peer->scratch == NULL || peer->batches == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < peer->max_jobs; i++) {
        peer->batches[i].next = peer->free_batches;
        peer->free_batches = &peer->batches[i];
    }
    return QUIRE_OK;
}

static int open_descriptors(quire_tier_peer *peer)
{
    peer->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    peer->name = peer->epoll_fd < 0 ? NULL : qr_name_open();
    if (peer->name == NULL)
        return QUIRE_E_SYSTEM;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer->name};
    bool is_watched = epoll_ctl(peer->epoll_fd, EPOLL_CTL_ADD, qr_name_fd(peer->name), &event) == 0;
    return is_watched ? QUIRE_OK : QUIRE_E_SYSTEM;
}

static int open_secret(quire_tier_peer *peer, const quire_tier_peer_config *c, char *message,
                       size_t bytes)
{
    qr_secret_options options = {.field = "secret",
                                 .text = c->secret,
                                 .file = c->secret_file,
                                 .get = c->get_secret,
                                 .get_user = c->secret_user,
                                 .least = QR_PEER_SECRET_LEAST};
    return qr_secret_open(&peer->secret, &options, message, bytes);
}

static int open_tls(quire_tier_peer *peer, const quire_tier_peer_config *c, char *message,
                    size_t bytes)
{
    qr_tls_options options = {.ca_file = c->tls_ca_file,
                              .cert_file = c->tls_cert_file,
                              .key_file = c->tls_key_file,
                              .server_name = c->tls_server_name,
                              .trusts_any = c->tls_trust_any != 0};
    return c->tls == 0 ? QUIRE_OK : qr_tls_open(&options, &peer->tls, message, bytes);
}

static int open_parts(quire_tier_peer *peer, const quire_tier_peer_config *c, char *message,
                      size_t bytes)
{
    uint64_t seed = 0;
    (void)qr_random_bytes(&peer->hooks, &seed, sizeof seed); /* 0 will do as well */
    int status = take_memory(peer);
    if (status == QUIRE_OK && c->event_keys > 0)
        status = qr_known_open(c->event_keys, &peer->hooks, &peer->known);
    if (status == QUIRE_OK)
        status = qr_peer_hints_open(&peer->hints, c->max_hints, seed);
    if (status == QUIRE_OK)
        status = open_descriptors(peer);
    if (status == QUIRE_OK)
        status = open_secret(peer, c, message, bytes);
    return status == QUIRE_OK ? open_tls(peer, c, message, bytes) : status;
}

QUIRE_API int quire_tier_peer_create(const quire_tier_peer_config *config, uint32_t max_jobs,
                                     const quire_hooks *hooks, quire_tier_peer **out, char *message,
                                     size_t message_bytes)
{
    quire_tier_peer_config c;
    qr_address address;
    if (out == NULL)
        return QUIRE_E_ARGUMENT;
    *out = NULL;
    qr_say(message, message_bytes, "%s", "");
    int status = qr_config_read(&c, sizeof c, config);
    if (status == QUIRE_OK)
        status = check_config(&c, &address, message, message_bytes);
    quire_tier_peer *peer = status == QUIRE_OK ? qr_alloc(1, sizeof *peer) : NULL;
    if (peer != NULL) {
        peer->epoll_fd = -1;
        peer->wake_fd = -1;
        peer->address = address;
        if (hooks != NULL)
            peer->hooks = *hooks;
        set_limits(peer, &c, max_jobs);
        status = open_parts(peer, &c, message, message_bytes);
    } else if (status == QUIRE_OK) {
        status = QUIRE_E_NOMEM;
    }
    if (status == QUIRE_OK) {
        *out = peer;
        return QUIRE_OK;
    }
    if (peer != NULL)
        close_peer(peer);
    if (message != NULL && message_bytes > 0 && message[0] == 0)
        qr_say(message, message_bytes, "%s", quire_strerror(status));
    return status;
}

/* ---- what a runner calls --------------------------------------------------- */

static int open_peer(void *self, const void *memory, size_t bytes, char *message,
                     size_t message_bytes)
{
    quire_tier_peer *peer = self;
    (void)memory; /* sockets need no memory to be registered */
    (void)bytes;
    uint64_t end = qr_now_ns(NULL) + peer->wait_ns; /* a clock of the caller's may stand still */
    while (peer->wait_ns > 0 && atomic_load_explicit(&peer->counts[QR_PEER_COUNT_CONNECTED],
                                                     memory_order_relaxed) == 0) {
        enum { MOST_MS = 20 }; /* a peer that is down is tried again */
        uint64_t now = qr_now_ns(NULL);
        if (now >= end) {
            qr_say(message, message_bytes, "peer %s:%u: %s", peer->address.host, peer->address.port,
                   peer->why[0] != 0 ? peer->why : "no reply");
            return QUIRE_E_SYSTEM;
        }
        qr_peer_turn(peer, NULL, -1, MOST_MS);
    }
    return QUIRE_OK;
}

static quire_tier_caps get_caps(void *self)
{
    const quire_tier_peer *peer = self;
    return (quire_tier_caps){.alignment = 1,
                             .max_bytes = peer->max_block_bytes,
                             .is_persistent = 1, /* as far as this engine can tell */
                             .is_shared = 1,
                             .checks_crc = 1,
                             .is_read_only = 1};
}

static void prepare_job(void *self, quire_tier_job *job)
{
    (void)self;
    bool is_known = job->op == QUIRE_TIER_LOAD || job->op == QUIRE_TIER_FIND;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        job->ios[i].place = 0;
        job->ios[i].generation = 0;
        if (!is_known)
            job->ios[i].status = QUIRE_TIER_REFUSED;
    }
}

static void finish_job(void *self, quire_tier_job *job)
{
    const quire_tier_peer *peer = self;
    qr_known_finish(peer->known, job);
}

static quire_slots *get_slots(void *self)
{
    const quire_tier_peer *peer = self;
    return peer->known;
}

/* What this engine has seen of the peer's blocks; how many there are only the peer knows. */
static quire_usage get_usage(void *self)
{
    const quire_tier_peer *peer = self;
    quire_usage usage = quire_slots_usage(peer->known);
    return (quire_usage){
        .total = usage.cached + usage.active, .cached = usage.cached, .active = usage.active};
}

static void lookup_keys(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    quire_tier_peer *peer = self;
    qr_peer_count(peer, QR_PEER_COUNT_NOT_ASKED,
                  qr_peer_hints_lookup(&peer->hints, keys, n, found));
}

/* Without jobs nothing on the tier's thread looks at these; the next job brings them. */
static int set_identity(void *self, const unsigned char *fingerprint)
{
    quire_tier_peer *peer = self;
    memcpy(peer->next_fingerprint, fingerprint, sizeof peer->next_fingerprint);
    peer->has_next_fingerprint = true;
    (void)quire_slots_reset(peer->known);
    return QUIRE_OK;
}

static void begin_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_peer *peer = self;
    peer->ends = ends;
    peer->now_ns = qr_now_ns(&peer->hooks);
    if (peer->has_next_fingerprint) {
        peer->has_next_fingerprint = false;
        memcpy(peer->fingerprint, peer->next_fingerprint, sizeof peer->fingerprint);
        for (uint32_t i = 0; i < peer->num_links; i++)
            qr_peer_link_close(peer, &peer->links[i]);
        peer->retry_at_ns = 0;
        peer->backoff_ns = peer->retry_ns;
    }
    qr_peer_batch_begin(peer, job);
}

static void turn_peer(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    qr_peer_turn(self, ends, wake_fd, timeout_ms);
}

static void cancel_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    quire_tier_peer *peer = self;
    peer->ends = ends;
    peer->now_ns = qr_now_ns(&peer->hooks);
    qr_peer_batch_cancel(peer, job);
}

QUIRE_API const quire_tier_ops *quire_tier_peer_ops(void)
{
    static const quire_tier_ops ops = {.abi = 1,
                                       .size = sizeof(quire_tier_ops),
                                       .name = "peer",
                                       .medium = "PEER",
                                       .open = open_peer,
                                       .close = close_peer,
                                       .caps = get_caps,
                                       .prepare = prepare_job,
                                       .finish = finish_job,
                                       .slots = get_slots,
                                       .usage = get_usage,
                                       .lookup = lookup_keys,
                                       .set_identity = set_identity,
                                       .begin = begin_job,
                                       .turn = turn_peer,
                                       .cancel = cancel_job};
    return &ops;
}

static int make_peer(const void *config, uint32_t max_jobs, const quire_hooks *hooks, void **self,
                     char *message, size_t message_bytes)
{
    quire_tier_peer *peer = NULL;
    int status = quire_tier_peer_create(config, max_jobs, hooks, &peer, message, message_bytes);
    *self = peer;
    return status;
}

QUIRE_API int quire_tier_peer_open(const quire_tier_peer_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier,
                                   quire_tier_peer **peer, char *message, size_t message_bytes)
{
    void *self;
    int status = qr_tier_open_with(make_peer, quire_tier_peer_ops(), config, common, allocator,
                                   tier, &self, message, message_bytes);
    if (peer != NULL)
        *peer = self;
    return status;
}

/* ---- what its events say ----------------------------------------------------- */

static bool is_host_memory(const quire_wire_event *event)
{
    return event->medium.len == 3 && event->medium.data != NULL &&
           memcmp(event->medium.data, "CPU", 3) == 0;
}

static bool has_whole_hashes(const quire_wire_event *event)
{
    for (uint32_t i = 0; i < event->num_hashes; i++)
        if (event->hashes[i].bytes.data == NULL)
            return false;
    return event->hashes != NULL || event->num_hashes == 0;
}

QUIRE_API int quire_tier_peer_take_event(quire_tier_peer *peer, const quire_wire_event *event)
{
    if (peer == NULL || event == NULL)
        return QUIRE_E_ARGUMENT;
    if (peer->hints.entries == NULL)
        return QUIRE_E_DISABLED;
    bool is_change = event->kind == QUIRE_WIRE_STORED || event->kind == QUIRE_WIRE_REMOVED;
    int status = QUIRE_OK;
    if (event->kind == QUIRE_WIRE_CLEARED)
        qr_peer_hints_clear(&peer->hints);
    if (!is_change || !is_host_memory(event))
        return QUIRE_OK;
    if (!has_whole_hashes(event))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < event->num_hashes && status == QUIRE_OK; i++) {
        if (event->kind == QUIRE_WIRE_STORED)
            status = qr_peer_hints_add(&peer->hints, event->hashes[i].bytes);
        else
            qr_peer_hints_remove(&peer->hints, event->hashes[i].bytes);
    }
    return status;
}

QUIRE_API int quire_tier_peer_set_whole(quire_tier_peer *peer, uint32_t is_whole)
{
    if (peer == NULL)
        return QUIRE_E_ARGUMENT;
    if (peer->hints.entries == NULL)
        return QUIRE_E_DISABLED;
    qr_peer_hints_set_whole(&peer->hints, is_whole != 0);
    if (is_whole == 0)
        qr_peer_hints_clear(&peer->hints);
    return QUIRE_OK;
}

QUIRE_API int quire_tier_peer_get_stats(const quire_tier_peer *peer, quire_tier_peer_stats *stats)
{
    if (peer == NULL || stats == NULL)
        return QUIRE_E_ARGUMENT;
    uint64_t *const fields[QR_PEER_NUM_COUNTS] = {
        [QR_PEER_COUNT_CONNECTIONS] = &stats->connections,
        [QR_PEER_COUNT_JOBS] = &stats->jobs,
        [QR_PEER_COUNT_CONNECTED] = &stats->connected,
        [QR_PEER_COUNT_LOST] = &stats->lost,
        [QR_PEER_COUNT_SURPRISES] = &stats->surprises,
        [QR_PEER_COUNT_WRONG] = &stats->wrong,
        [QR_PEER_COUNT_VOIDED] = &stats->voided,
        [QR_PEER_COUNT_REFUSED] = &stats->refused,
        [QR_PEER_COUNT_LATE] = &stats->late,
        [QR_PEER_COUNT_BYTES_IN] = &stats->bytes_in,
        [QR_PEER_COUNT_NOT_ASKED] = &stats->not_asked,
    };
    stats->hints = atomic_load_explicit(&peer->hints.num, memory_order_relaxed);
    for (int i = 0; i < QR_PEER_NUM_COUNTS; i++)
        *fields[i] = atomic_load_explicit(&peer->counts[i], memory_order_relaxed);
    return QUIRE_OK;
}
