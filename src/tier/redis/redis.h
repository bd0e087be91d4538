/* tier/redis/redis.h - the Redis tier's inside: jobs become calls, calls wait at nodes, links
 * carry them.
 *
 *      job ─ batch ─┬─ call ──► node's queue ──► link: | sent, unanswered | being sent | not yet |
 *                   ├─ call ──►   by its slot            first              sending      last
 *                   └─ ios not yet calls
 *
 * call    one command. With its batch it may touch a job's memory; without (its user is gone: late,
 *         cancelled) its answer is read and thrown away, and when that takes too long the link is
 *         closed. So no memory is touched after its io has ended.
 * node    an address, its links and its breaker. Slots point to nodes.
 * link    one connection. Answers come in the order of the calls; anything else is a surprise, and
 *         all calls of the link fail with it.
 *
 * batch.c    jobs and calls            map.c     slots -> nodes, CLUSTER SLOTS
 * node.c     queues, breaker           reply.c   what an answer means
 * link.c     bytes                     usage.c   how full the servers are
 * tier_redis.c     one turn over all of it
 */
#ifndef QR_TIER_REDIS_REDIS_H
#define QR_TIER_REDIS_REDIS_H

#include "tier/core/breaker.h"
#include "tier/net/client.h"
#include "tier/redis/resp.h"
#include "tier/redis/value.h"

#include <quire/tier_redis.h>

enum {
    QR_REDIS_SLOTS = 16384,
    QR_REDIS_NOBODY = 0xffff,
    QR_REDIS_CALLS = 4096,      /* for jobs, at a time; more ios wait */
    QR_REDIS_LINK_CALLS = 256,  /* on one link */
    QR_REDIS_REDIRECTS = 5,     /* of one call */
    QR_REDIS_INPUT = 16 * 1024, /* of a link: holds any item that is not a value */
    QR_REDIS_ASKING = 16,       /* bytes of "ASKING" before a command */
    QR_REDIS_INFO_LINE = 48     /* of INFO: longer lines are of no interest */
};

/* The first four are quire_tier_op's. */
typedef enum qr_call_kind {
    QR_CALL_LOAD = QUIRE_TIER_LOAD,
    QR_CALL_STORE = QUIRE_TIER_STORE,
    QR_CALL_REMOVE = QUIRE_TIER_REMOVE,
    QR_CALL_FIND = QUIRE_TIER_FIND,
    QR_CALL_CHECK, /* before a STORE: STRLEN. What is there is not sent */
    QR_CALL_AUTH,
    QR_CALL_PING,
    QR_CALL_SLOTS,
    QR_CALL_INFO, /* INFO memory, and */
    QR_CALL_COUNT /* DBSIZE: how full the server is */
} qr_call_kind;

typedef struct qr_node qr_node;

typedef struct qr_call {
    struct qr_call *next; /* in the queue that it is in */
    qr_net_batch *batch;  /* NULL: our own, or its user is gone */
    uint32_t io;
    qr_call_kind kind;
    uint16_t slot;
    uint8_t redirects;
    uint8_t num_skipped; /* answers before its own: of ASKING */
    uint64_t due_ns;     /* without a batch: the link is closed when there is no answer by then */
    const char *head;    /* what is sent: head, body, tail */
    uint32_t head_bytes;
    uint32_t body_bytes;
    const unsigned char *body;
    uint32_t answer_bytes; /* about */
    char text[QR_REDIS_ASKING + QR_REDIS_COMMAND];
} qr_call;

/* In the order in which they came. */
typedef struct qr_call_list {
    qr_call *first;
    qr_call *last;
} qr_call_list;

static inline void qr_call_list_add(qr_call_list *list, qr_call *call)
{
    call->next = NULL;
    if (list->last != NULL)
        list->last->next = call;
    else
        list->first = call;
    list->last = call;
}

static inline void qr_call_list_drop_first(qr_call_list *list)
{
    list->first = list->first->next;
    if (list->first == NULL)
        list->last = NULL;
}

typedef enum qr_link_state {
    QR_LINK_CLOSED = 0,
    QR_LINK_CONNECTING, /* and TLS */
    QR_LINK_GREETING,   /* AUTH and PING */
    QR_LINK_READY
} qr_link_state;

/* Where the next byte that comes belongs. */
typedef enum qr_link_mode {
    QR_MODE_REPLY = 0,
    QR_MODE_HEADER, /* of a value */
    QR_MODE_VALUE,  /* the job's memory, or nowhere */
    QR_MODE_END     /* \r\n behind a value */
} qr_link_mode;

/* How full a server is, as it says. */
typedef struct qr_redis_usage {
    uint64_t keys;
    uint64_t used_bytes;
    uint64_t max_bytes; /* maxmemory; 0: none */
} qr_redis_usage;

typedef struct qr_link {
    qr_node *node;
    qr_socket socket;
    qr_link_state state;
    uint64_t until_ns; /* to be ready */

    qr_call_list calls; /* that are not answered */
    qr_call *sending;   /* the first that is not sent in full */
    uint64_t sent;      /* bytes of it */
    uint32_t num_calls;
    uint64_t bytes; /* of all its calls, both ways */

    qr_resp resp;
    qr_link_mode mode;
    qr_net_block value; /* that comes; with its header until that is read */
    uint32_t expected_crc;
    unsigned char *input;
    uint32_t in_begin;
    uint32_t in_end;
    uint32_t info_bytes; /* in info */
    char info[QR_REDIS_INFO_LINE];
} qr_link;

struct qr_node {
    qr_net_target target;
    bool is_used;
    bool is_seed;
    bool is_mapped; /* has slots */
    bool is_forbidden_told;
    qr_breaker breaker;
    qr_call_list waiting;
    uint32_t num_calls; /* waiting and on its links */
    qr_link *links;
    bool has_usage;
    bool is_usage_refused;   /* it does not permit the question */
    uint64_t usage_after_ns; /* then it is asked how full it is */
    qr_redis_usage said;     /* in its answer so far */
    qr_redis_usage usage;    /* in its last whole answer */
};

/* X(count, field of the stats). */
#define QR_REDIS_OWN_COUNTS(X)                                                                     \
    X(NODES, nodes)                                                                                \
    X(NODES_OPEN, nodes_open)                                                                      \
    X(SLOTS, slots)                                                                                \
    X(CALLS, calls)                                                                                \
    X(REFRESHED, refreshed)                                                                        \
    X(MOVED, moved)                                                                                \
    X(ASKS, asked)                                                                                 \
    X(PRESENT, present)                                                                            \
    X(BYTES_OUT, bytes_out)
#define QR_REDIS_COUNTS(X) QR_NET_COUNTS(X) QR_REDIS_OWN_COUNTS(X)
enum { QR_REDIS_FIRST_COUNT = QR_NET_NUM_COUNTS - 1, QR_REDIS_OWN_COUNTS(QR_NET_COUNT_NAME) };

/* What CLUSTER SLOTS has said so far. */
typedef struct qr_map_reader {
    qr_link *link; /* that was asked; NULL: none */
    int64_t begin;
    int64_t end;
    uint32_t part; /* of an entry: 2 is the master */
    char host[QR_ADDRESS_HOST];
    uint32_t host_bytes;
    uint16_t owner[QR_REDIS_SLOTS];
} qr_map_reader;

struct quire_tier_redis {
    qr_net_client net;
    qr_redis_space space;
    char prefix[QR_REDIS_PREFIX + 1];
    bool is_trusting;

    uint32_t num_links; /* of a node */
    uint32_t max_nodes;
    uint64_t window_bytes;
    uint64_t load_window_bytes;
    uint64_t refresh_ns;
    uint64_t usage_ns;
    uint32_t value_bytes; /* of the last block that was stored or loaded; 0: none was */
    uint32_t breaker_strikes;
    uint64_t breaker_ns;

    char *auth;    /* the whole command: QR_SECRET_AUTH for each link; NULL: none */
    char tail[64]; /* behind a value: \r\n, and the TTL */
    uint32_t tail_bytes;
    bool has_ttl;

    qr_node *nodes;
    qr_link *links;
    unsigned char *input;

    uint32_t node_share; /* calls that a node may have */
    bool has_map;
    bool wants_map;
    uint64_t map_after_ns;
    uint32_t next_asked; /* node */
    uint16_t owner[QR_REDIS_SLOTS];
    qr_map_reader reader;

    qr_call *calls;
    qr_call *free_calls;
    uint32_t num_free_calls;
    uint32_t num_kept_calls; /* for our own */
    /* Of all servers with slots together; read by any thread. */
    _Atomic uint64_t num_keys;
    _Atomic uint64_t used_bytes; /* 0: no server has said */
    _Atomic uint64_t max_bytes;  /* 0: one of them has no limit */
    _Atomic uint64_t room_keys;  /* blocks that still fit; 0: not known */
};

/* ---- batch.c --------------------------------------------------------- */

/* Makes calls of ios while there are some free, and hands them to their nodes. */
void qr_batch_route_all(quire_tier_redis *redis);
/* Of qr_net_ops. */
void qr_batch_leave(qr_net_client *net, qr_net_batch *batch, bool is_late);

/* A call with nothing in it; NULL: none is free. */
qr_call *qr_call_take(quire_tier_redis *redis, bool is_ours);
quire_tier_io *qr_call_io(const qr_call *call);
/* Its io ends; the call, which must be in no queue any more, is free. */
void qr_call_end(quire_tier_redis *redis, qr_call *call, quire_tier_status status);
/* To the node of its slot, or to this one. */
void qr_call_route(quire_tier_redis *redis, qr_call *call, qr_node *node);
/* The check of a store found nothing: the call becomes the store. */
void qr_call_send_store(quire_tier_redis *redis, qr_call *call);
/* Deletes what is under the key of a load that was wrong. */
void qr_call_drop_key(quire_tier_redis *redis, const qr_call *load);

/* ---- node.c ---------------------------------------------------------- */

/* NULL: there are as many as may be, or it may not be talked to. */
qr_node *qr_node_find(quire_tier_redis *redis, const qr_address *address);
void qr_node_push(qr_node *node, qr_call *call);
/* Calls that wait for it end: those of a batch; NULL: all. */
void qr_node_end_waiting(quire_tier_redis *redis, qr_node *node, const qr_net_batch *batch,
                         quire_tier_status status);
/* A link in this state; NULL: none is. */
qr_link *qr_node_link(const quire_tier_redis *redis, const qr_node *node, qr_link_state state);
/* Connects where somebody waits, and gives waiting calls to links. */
void qr_node_tend(quire_tier_redis *redis, qr_node *node);
/* Left alone, or tried with a connection alone. */
static inline bool qr_node_is_open(const qr_node *node)
{
    return node->breaker.health != QUIRE_TIER_CLOSED;
}
/* Something of it failed. opens: at once, without counting. */
void qr_node_strike(quire_tier_redis *redis, qr_node *node, bool opens);
void qr_node_good(qr_node *node);
/* Of qr_net_ops: its name's addresses are here. */
void qr_node_found(qr_net_client *net, qr_net_target *target);
/* A link is ready: it answers. */
void qr_node_ready(quire_tier_redis *redis, qr_node *node);
/* A link was lost while it was being made. */
void qr_node_not_connected(quire_tier_redis *redis, qr_node *node);

/* ---- link.c ---------------------------------------------------------- */

/* Its socket is being connected. */
void qr_link_begin(quire_tier_redis *redis, qr_link *link);
/* What a call takes of a link's room. Our own questions take none: no connection is made for
 * them. */
uint64_t qr_call_weight(const qr_call *call);
void qr_link_push(qr_link *link, qr_call *call);
/* A question of our own; the link is closed when there is no answer by due_ns. false: no call is
 * free. */
bool qr_link_ask(quire_tier_redis *redis, qr_link *link, qr_call_kind kind, const char *text,
                 uint32_t bytes, uint64_t due_ns);
/* Sends and receives what can be. */
void qr_link_pump(quire_tier_redis *redis, qr_link *link);
/* All its calls fail. strikes: the node gets one for it. */
void qr_link_close(quire_tier_redis *redis, qr_link *link, bool strikes);
/* The user of a batch's calls on this link is gone: those not yet sent leave, answers go nowhere.
 * false: one is half sent, and the link must be closed. keeps_stores: stores under way go on. */
bool qr_link_forget(quire_tier_redis *redis, qr_link *link, qr_net_batch *batch,
                    quire_tier_status status, bool keeps_stores, uint32_t *num_gone);

/* ---- map.c ----------------------------------------------------------- */

/* Asks a node, where that is wanted and its time has come. */
void qr_map_tend(quire_tier_redis *redis);
/* One item of the answer; false: it is not what it should be. */
bool qr_map_take(quire_tier_redis *redis, const qr_link *link, const qr_resp_item *item);
void qr_map_forget(quire_tier_redis *redis, const qr_link *link);

/* ---- usage.c --------------------------------------------------------- */

/* Asks each server with slots, where its time has come. */
void qr_usage_tend(quire_tier_redis *redis);
static inline bool qr_usage_is_asked(const qr_node *node)
{
    return node->is_used && node->is_mapped && !node->is_usage_refused;
}
/* Bytes of the answer to INFO. */
void qr_usage_scan(qr_link *link, const unsigned char *bytes, uint64_t n);
/* An answer that is no text, or an error; false: it is not an answer to this. */
bool qr_usage_take(quire_tier_redis *redis, qr_node *node, const qr_call *call,
                   const qr_resp_item *item);
/* For other threads. */
void qr_usage_publish(quire_tier_redis *redis);

/* ---- reply.c --------------------------------------------------------- */

/* The answer to a call, which left its queue. It may close the link. */
void qr_reply_take(quire_tier_redis *redis, qr_link *link, qr_call *call, const qr_resp_item *item);
/* The value of a load has come, or passed. */
void qr_reply_value(quire_tier_redis *redis, qr_link *link, qr_call *call);

#endif
