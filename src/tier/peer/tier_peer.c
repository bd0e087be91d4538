/* tier/peer/tier_peer.c - how the peer tier is made, and what a runner calls. peer.h has its
 * inside. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/core/tier.h"
#include "tier/peer/peer.h"

#include <quire/wire.h>

#include <openssl/crypto.h>
#include <string.h>

enum { LINKS = 2, WINDOW_BYTES = 8 * 1024 * 1024 };

/* ---- making ---------------------------------------------------------------- */

static qr_net_options options_of(const quire_tier_peer_config *c, uint32_t max_jobs)
{
    return (qr_net_options){QR_NET_OPTIONS(c, max_jobs), .secret = QR_PEER_SECRET_OPTIONS(c)};
}

static const char *check_fields(const quire_tier_peer_config *c, const qr_net_options *options)
{
    if (c->connect_ns > QR_NET_LONGEST || c->wait_ns > QR_NET_LONGEST ||
        c->retry_ns > QR_NET_LONGEST || c->late_ns > QR_NET_LONGEST)
        return "invalid time (expected *_ns of at most a day)";
    if (c->connections > QR_PEER_MAX_LINKS)
        return "invalid connections (expected at most 16)";
    if ((c->secret != NULL) + (c->secret_file != NULL) + (c->get_secret != NULL) != 1)
        return "secret, secret_file, get_secret: set exactly one";
    if (c->max_hints > QR_PEER_MAX_HINTS)
        return "invalid max_hints (expected at most 2^26, 67,108,864)";
    return qr_net_check(options);
}

static int check_config(const void *config)
{
    const quire_tier_peer_config *c = config;
    qr_address address;
    qr_net_options options = options_of(c, 0);
    const char *wrong = check_fields(c, &options);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "%s", wrong);
    if (c->server == NULL || !qr_address_parse(&address, c->server, strlen(c->server), 0))
        return qr_fail(QUIRE_E_CONFIG, "server: \"%s\" is not HOST:PORT, [IPv6]:PORT or unix:PATH",
                       c->server == NULL ? "(null)" : c->server);
    return qr_net_check_trust(&options, &address, "server", c->server);
}

static void close_peer(void *self)
{
    quire_tier_peer *peer = self;
    for (uint32_t i = 0; peer->links != NULL && i < peer->num_links; i++)
        qr_socket_close(&peer->links[i].socket);
    qr_net_close(&peer->net);
    if (peer->links != NULL)
        OPENSSL_cleanse(peer->links, peer->num_links * sizeof *peer->links);
    qr_free(peer->links);
    qr_free(peer->scratch);
    qr_peer_hints_close(&peer->hints);
    qr_free(peer);
}

static int init_peer(void *self, const void *config, uint32_t max_jobs, const quire_hooks *hooks)
{
    quire_tier_peer *peer = self;
    const quire_tier_peer_config *c = config;
    qr_net_options options = options_of(c, max_jobs);
    uint64_t seed = 0;
    int status = qr_net_open(&peer->net, &qr_peer_net_ops, &options, hooks);
    if (status != QUIRE_OK)
        return status;
    (void)qr_address_parse(&peer->target.address, c->server, strlen(c->server), 0);
    (void)qr_random_bytes(&peer->net.hooks, &seed, sizeof seed); /* 0 will do as well */
    peer->num_links = (uint32_t)qr_or_default(c->connections, LINKS);
    peer->window_bytes = qr_or_default(c->load_window_bytes, WINDOW_BYTES);
    peer->retry_ns = qr_or_default(c->retry_ns, QR_NET_SECOND / 10);
    peer->backoff_ns = peer->retry_ns;
    memcpy(peer->fingerprint, c->fingerprint, sizeof peer->fingerprint);
    peer->links = qr_alloc(peer->num_links, sizeof *peer->links);
    peer->scratch = qr_alloc(1, QR_PEER_SCRATCH);
    for (uint32_t i = 0; peer->links != NULL && i < peer->num_links; i++)
        peer->links[i].socket.fd = -1;
    if (peer->links == NULL || peer->scratch == NULL)
        return QUIRE_E_NOMEM;
    return qr_peer_hints_open(&peer->hints, c->max_hints, seed);
}

/* ---- what a runner calls --------------------------------------------------- */

static void get_caps(void *self, quire_tier_caps *caps)
{
    qr_net_get_caps(self, caps);
    caps->is_read_only = 1;
}

static void prepare_job(void *self, quire_tier_job *job)
{
    bool is_known = job->op == QUIRE_TIER_LOAD || job->op == QUIRE_TIER_FIND;
    qr_net_prepare_job(self, job);
    for (uint32_t i = 0; i < job->num_ios && !is_known; i++)
        job->ios[i].status = QUIRE_TIER_REFUSED;
}

/* What this engine has seen of the peer's blocks; how many there are only the peer knows. */
static quire_usage get_usage(void *self)
{
    const quire_tier_peer *peer = self;
    quire_usage usage = quire_slots_usage(peer->net.known);
    return (quire_usage){
        .total = usage.cached + usage.active, .cached = usage.cached, .active = usage.active};
}

static void lookup_keys(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    quire_tier_peer *peer = self;
    qr_net_count(&peer->net, QR_NET_NOT_ASKED, qr_peer_hints_lookup(&peer->hints, keys, n, found));
}

/* Without jobs nothing on the tier's thread looks at these; the next job brings them. */
static int set_identity(void *self, const unsigned char *fingerprint)
{
    quire_tier_peer *peer = self;
    memcpy(peer->next_fingerprint, fingerprint, sizeof peer->next_fingerprint);
    peer->has_next_fingerprint = true;
    (void)quire_slots_reset(peer->net.known);
    return QUIRE_OK;
}

static const quire_tier_ops ops = {QR_NET_TIER_OPS("peer"), .medium = "PEER",
                                   .close = close_peer,     .caps = get_caps,
                                   .prepare = prepare_job,  .usage = get_usage,
                                   .lookup = lookup_keys,   .set_identity = set_identity};
static const qr_tier_kind kind = {.ops = &ops,
                                  .config_bytes = sizeof(quire_tier_peer_config),
                                  .self_bytes = sizeof(quire_tier_peer),
                                  .check = check_config,
                                  .init = init_peer};

QR_TIER_CALLS(peer)

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
    quire_wire_event room;
    event = qr_struct_in(&room, sizeof room, event);
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
    quire_tier_peer_stats own;
    if (peer == NULL)
        return QUIRE_E_ARGUMENT;
#define QR_X(name, field) own.field = qr_count_get(&peer->net.counts[QR_NET_##name]);
    QR_PEER_COUNTS(QR_X)
#undef QR_X
    own.hints = atomic_load_explicit(&peer->hints.num, memory_order_relaxed);
    return qr_struct_out(stats, &own, sizeof own);
}
