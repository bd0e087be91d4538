/* tier/net/client.h - what the tiers share that ask servers: jobs, descriptors, one turn.
 *
 *      job ─ batch: how many of its ios have no status, its deadline
 *      turn: work ── wait for sockets, names, the tier's wake ── work
 *
 * The client is the first member of a tier's own part, so that it is also the self of its ops.
 * Everything is taken at creation and belongs to the tier's thread; other threads see counts alone.
 */
#ifndef QR_TIER_NET_CLIENT_H
#define QR_TIER_NET_CLIENT_H

#include "tier/net/name.h"
#include "tier/net/secret.h"
#include "tier/net/socket.h"
#include "tier/slots/known.h"

#include "base/count.h"

#include <stdatomic.h>

/* X(count, field of the stats). A tier's own counts follow. */
#define QR_NET_COUNTS(X)                                                                           \
    X(CONNECTIONS, connections)                                                                    \
    X(JOBS, jobs)                                                                                  \
    X(CONNECTED, connected)                                                                        \
    X(LOST, lost)                                                                                  \
    X(SURPRISES, surprises)                                                                        \
    X(WRONG, wrong)                                                                                \
    X(REFUSED, refused)                                                                            \
    X(LATE, late)                                                                                  \
    X(BYTES_IN, bytes_in)

#define QR_NET_COUNT_NAME(name, field) QR_NET_##name,
enum { QR_NET_COUNTS(QR_NET_COUNT_NAME) QR_NET_NUM_COUNTS, QR_NET_MAX_COUNTS = 24 };
enum { QR_NET_WHY = 160 };

#define QR_NET_SECOND  UINT64_C(1000000000)
#define QR_NET_LONGEST (86400 * QR_NET_SECOND)
/* The generation of an io that a call asks for: it no longer waits. */
#define QR_NET_ASKED UINT32_MAX

typedef struct qr_net_batch {
    quire_tier_job *job;
    quire_tier_io *ios;
    uint32_t num_ios;
    uint32_t next_io; /* all before it are asked for, or have ended */
    uint32_t open;    /* ios without a status */
    quire_tier_op op;
    uint64_t deadline_ns;
    struct qr_net_batch *next; /* active ones in the order of begin; free ones */
    struct qr_net_batch *prev;
} qr_net_batch;

/* A server and its addresses. */
typedef struct qr_net_target {
    qr_address address;
    qr_endpoint endpoints[QR_ADDRESS_MAX];
    uint32_t num_endpoints;
    uint32_t at_endpoint;
    bool is_looking; /* its name is being looked up, */
    uint64_t until_ns;
    bool is_told;         /* what is wrong with it is in the log */
    char why[QR_NET_WHY]; /* the last failure */
} qr_net_target;

/* Sets the last failure. */
void qr_net_note(qr_net_target *target, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct qr_net_client {
    quire_slots *known; /* first, see known.h: the scheduler's thread; NULL: no events are told */
    const struct qr_net_ops *ops;
    quire_hooks hooks;
    quire_tier_ends *ends; /* of the turn */
    uint64_t now_ns;
    qr_secret secret;
    qr_tls *tls;
    uint32_t max_block_bytes;
    uint64_t connect_ns;
    uint64_t wait_ns;
    uint64_t late_ns;

    int epoll_fd;
    int wake_fd; /* that epoll knows; -1 */
    qr_name *name;
    qr_net_target *looking; /* whose name is looked up; NULL: none's */

    qr_net_batch *batches;
    qr_net_batch *free_batches;
    qr_net_batch *active;
    qr_net_batch *active_last;
    uint32_t max_jobs;
    uint32_t num_jobs;
    bool has_more; /* a connection stopped before its input was empty */

    _Atomic uint64_t counts[QR_NET_MAX_COUNTS];
} qr_net_client;

/* What a config says, in the words that all have; 0 is the default. */
typedef struct qr_net_options {
    uint32_t max_jobs;
    uint32_t event_keys;
    uint64_t max_block_bytes;
    uint64_t connect_ns;
    uint64_t wait_ns;
    uint64_t late_ns;
    const unsigned char *fingerprint;
    qr_secret_options secret;
    qr_tls_options tls;
    bool has_tls;
    bool trusts_network;
} qr_net_options;

/* The options of a config, which all have these names; the rest of them follows. */
#define QR_NET_OPTIONS(c, jobs)                                                                    \
    .max_jobs = (jobs), .event_keys = (c)->event_keys, .max_block_bytes = (c)->max_block_bytes,    \
    .connect_ns = (c)->connect_ns, .wait_ns = (c)->wait_ns, .late_ns = (c)->late_ns,               \
    .fingerprint = (c)->fingerprint, .has_tls = (c)->tls != 0,                                     \
    .trusts_network = (c)->trust_network != 0,                                                     \
    .tls = {.ca_file = (c)->tls_ca_file,                                                           \
            .cert_file = (c)->tls_cert_file,                                                       \
            .key_file = (c)->tls_key_file,                                                         \
            .server_name = (c)->tls_server_name,                                                   \
            .trusts_any = (c)->tls_trust_any != 0}

/* What a tier does in a turn, and with jobs. */
typedef struct qr_net_ops {
    const char *name;
    void (*work)(qr_net_client *net); /* all that can be done without waiting */
    /* When something is to be done even if nothing comes; deadlines of jobs apart. */
    uint64_t (*next_time)(qr_net_client *net);
    void (*name_found)(qr_net_client *net, qr_net_target *target);
    bool (*can_begin)(qr_net_client *net, const quire_tier_job *job); /* NULL: always */
    /* Its user is gone: late, or cancelled. Late, all its ios end. */
    void (*leave)(qr_net_client *net, qr_net_batch *batch, bool is_late);
    /* NULL: it is connected; else a server that is not, which may say why. */
    const qr_net_target *(*find_missing)(const qr_net_client *net);
} qr_net_ops;

static inline void qr_net_count(qr_net_client *net, int what, uint64_t n)
{
    atomic_fetch_add_explicit(&net->counts[what], n, memory_order_relaxed);
}

static inline void qr_earlier(uint64_t *when, uint64_t ns)
{
    *when = ns < *when ? ns : *when;
}

/* NULL, or what is wrong with the options. */
const char *qr_net_check(const qr_net_options *options);
/* Without TLS a server beyond this machine needs the caller's word. QUIRE_OK, QUIRE_E_UNSAFE. */
int qr_net_check_trust(const qr_net_options *options, const qr_address *address, const char *field,
                       const char *text);
/* Closed by the caller, also after an error. */
int qr_net_open(qr_net_client *net, const qr_net_ops *ops, const qr_net_options *options,
                const quire_hooks *hooks);
void qr_net_close(qr_net_client *net);

/* ---- jobs ------------------------------------------------------------------- */

/* Refuses the job if it cannot begin, or if there are as many jobs as may be. */
void qr_net_begin(qr_net_client *net, quire_tier_job *job);
/* After the last one neither the job nor its ios may be looked at: they are its user's again. */
void qr_net_end_io(qr_net_client *net, qr_net_batch *batch, uint32_t io, quire_tier_status status);
static inline bool qr_net_waits(const quire_tier_io *io)
{
    return io->status == QUIRE_TIER_PENDING && io->generation != QR_NET_ASKED;
}
/* Ends what waits. */
void qr_net_end_waiting(qr_net_client *net, qr_net_batch *batch, quire_tier_status status);
/* One io less is open: the batch is free after the last one. */
void qr_net_release(qr_net_client *net, qr_net_batch *batch);
/* NULL: the job has ended. */
qr_net_batch *qr_net_find(qr_net_client *net, const quire_tier_job *job);
void qr_net_leave(qr_net_client *net, qr_net_batch *batch);
/* Leaves those whose time is over. */
void qr_net_expire(qr_net_client *net);

/* ---- a block that comes --------------------------------------------------------- */

typedef struct qr_net_block {
    unsigned char *memory; /* NULL: its bytes go nowhere */
    uint64_t bytes;
    uint64_t at;     /* bytes that have come, */
    uint64_t summed; /* and of those in crc */
    uint32_t crc;
} qr_net_block;

/* n bytes more have come to where they belong. */
void qr_net_block_note(qr_net_block *block, uint64_t n);
/* Takes its bytes from the beginning of input, and returns how many. */
uint32_t qr_net_block_take(qr_net_block *block, const unsigned char *input, uint32_t bytes);

/* ---- a turn ------------------------------------------------------------------ */

/* The addresses, from the first one; false: its name is looked up, or cannot be now. */
bool qr_net_find_endpoints(qr_net_client *net, qr_net_target *target);
/* Begins to connect to the next address that can be tried. false: there is none, and the target's
 * why says it. */
bool qr_net_connect(qr_net_client *net, qr_net_target *target, qr_socket *socket);

/* ---- of quire_tier_ops, with the client as self ------------------------------- */

#define QR_NET_TIER_OPS(tier)                                                                      \
    .abi = 1, .size = sizeof(quire_tier_ops), .name = (tier), .open = qr_net_await,                \
    .finish = qr_known_finish_job, .slots = qr_known_get_slots, .begin = qr_net_begin_job,         \
    .turn = qr_net_turn, .cancel = qr_net_cancel_job

/* Waits for a connection as long as the config says. */
int qr_net_await(void *self, const void *memory, size_t bytes);
void qr_net_get_caps(void *self, quire_tier_caps *caps);
void qr_net_prepare_job(void *self, quire_tier_job *job);
void qr_net_begin_job(void *self, quire_tier_ends *ends, quire_tier_job *job);
void qr_net_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms);
void qr_net_cancel_job(void *self, quire_tier_ends *ends, quire_tier_job *job);

#endif
