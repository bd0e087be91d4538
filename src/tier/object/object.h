/* tier/object/object.h - the object store tier's inside: ios become requests, lanes carry them.
 *
 *      job ─ batch ─┬─ lane: HEAD, pause, HEAD, PUT ──┐
 *                   ├─ lane: GET                      ├── libcurl's multi ──► connections
 *                   └─ ios that wait for a lane       ┘    kept alive, one request on each
 *
 * lane    one io at a time, with all its attempts. A lane that pauses before its next attempt stays
 *         taken: a server that asks for fewer requests gets fewer. As many lanes as connections.
 *         A lane's request that ends early (late, cancelled) is taken out of libcurl at once: no
 *         memory is touched after its io has ended.
 * kind    what the lane asks. A store checks first (HEAD), then it sends (PUT).
 * wrong   paths of objects that were wrong: deleted by lanes that no io needs.
 *
 * lane.c     lanes and their ios           answer.c   what a reply means
 * request.c  one attempt, as libcurl's     multi.c    libcurl's sockets and timer
 * renew.c    credentials from a URI        tier_object.c   one turn over all of it
 */
#ifndef QR_TIER_OBJECT_OBJECT_H
#define QR_TIER_OBJECT_OBJECT_H

#include "tier/net/client.h"
#include "tier/net/header.h"
#include "tier/object/credentials.h"
#include "tier/object/place.h"

#include <quire/tier_object.h>

#include <curl/curl.h>

enum {
    QR_OBJECT_SAID = 2048,         /* of the body of an error; what follows is dropped, */
    QR_OBJECT_BODY = 64 * 1024,    /* and no more than this is read */
    QR_OBJECT_HEADERS = 64 * 1024, /* of all header lines of a reply */
    QR_OBJECT_WRONG = 64,
    QR_OBJECT_LINES = 8, /* headers of a request */
    QR_OBJECT_LINE = 896 /* the longest of them, without a token */
};

/* The first four are quire_tier_op's. */
typedef enum qr_object_kind {
    QR_OBJECT_LOAD = QUIRE_TIER_LOAD,
    QR_OBJECT_STORE = QUIRE_TIER_STORE,
    QR_OBJECT_REMOVE = QUIRE_TIER_REMOVE,
    QR_OBJECT_FIND = QUIRE_TIER_FIND,
    QR_OBJECT_CHECK, /* before a STORE: what is there is not sent */
    QR_OBJECT_PROBE  /* the bucket, when the tier is opened */
} qr_object_kind;

typedef enum qr_lane_state {
    QR_LANE_FREE = 0,
    QR_LANE_RUNNING, /* libcurl has it */
    QR_LANE_PAUSED   /* until until_ns */
} qr_lane_state;

/* What has come of a reply. */
typedef struct qr_object_reply {
    long code;      /* 0: none */
    int64_t length; /* of the body; -1: not said */
    int64_t date_s; /* of the server's clock; -1 */
    uint32_t retry_after_s;
    uint32_t header_bytes; /* all lines */
    uint64_t body_bytes;
    bool is_bad; /* it is not a reply to this: the connection is closed */
    char region[QR_SIGV4_REGION];
    char said[QR_OBJECT_SAID + 1]; /* of an error */
    uint32_t said_bytes;
} qr_object_reply;

typedef struct qr_lane {
    struct quire_tier_object *object;
    CURL *easy;
    qr_lane_state state;
    qr_object_kind kind;
    qr_net_batch *batch; /* NULL: for no io */
    uint32_t io;
    uint32_t num_attempts;
    bool is_fresh; /* on a new connection: the last one may still send what nobody asked for */
    char path[QR_PLACE_PATH];
    uint64_t generation; /* of the credentials that signed it, */
    int64_t clock_s;     /* and the clock by which they did */
    uint64_t moved_ns;   /* when a byte moved last */
    uint64_t until_ns;   /* PAUSED */

    unsigned char header[QR_NET_HEADER]; /* of the block: that is sent, or has come */
    uint64_t at;                         /* bytes of header and block that were sent or have come */
    qr_net_block block;                  /* that comes */
    uint32_t expected_crc;
    bool is_wrong; /* not the object that it should be */
    qr_object_reply reply;

    struct curl_slist lines[QR_OBJECT_LINES];
    uint32_t num_lines;
    char texts[QR_OBJECT_LINES][QR_OBJECT_LINE];
    char why[CURL_ERROR_SIZE];
} qr_lane;

/* The request for credentials. */
typedef struct qr_renewal {
    CURL *easy;
    bool is_running;
    bool is_wanted;    /* the server refused the credentials */
    uint64_t after_ns; /* not before */
    size_t bytes;      /* of the answer; more than its room: it is too long */
    struct curl_slist line;
    char text[QR_CREDENTIALS_TOKEN + 32];
} qr_renewal;

/* X(count, field of the stats). */
#define QR_OBJECT_OWN_COUNTS(X)                                                                    \
    X(CALLS, calls)                                                                                \
    X(REQUESTS, requests)                                                                          \
    X(RETRIES, retries)                                                                            \
    X(SLOWED, slowed)                                                                              \
    X(DENIED, denied)                                                                              \
    X(RENEWED, renewed)                                                                            \
    X(PRESENT, present)                                                                            \
    X(BYTES_OUT, bytes_out)
#define QR_OBJECT_COUNTS(X) QR_NET_COUNTS(X) QR_OBJECT_OWN_COUNTS(X)
enum { QR_OBJECT_FIRST_COUNT = QR_NET_NUM_COUNTS - 1, QR_OBJECT_OWN_COUNTS(QR_NET_COUNT_NAME) };

struct quire_tier_object {
    qr_net_client net;
    qr_place place;
    qr_net_target target; /* the last failure, for messages */
    qr_sigv4 sigv4;
    qr_credentials credentials;
    char token_line[QR_CREDENTIALS_TOKEN + 32]; /* the header of credentials.now */
    uint64_t check_file_ns;                     /* then the file is looked at */
    int64_t clock_s;                            /* the server's clock before ours */
    qr_renewal renewal;

    bool signs_payload;
    uint32_t max_attempts;
    uint64_t retry_ns;
    uint64_t stall_ns;
    uint64_t random;
    uint64_t told_ns;  /* when a fault was logged last */
    bool is_reachable; /* has answered well once */
    uint64_t probe_ns; /* not before */

    CURLM *multi;
    int sockets_fd;    /* epoll of libcurl's sockets */
    qr_socket sockets; /* as the client's epoll knows it */
    uint64_t timer_ns; /* libcurl's, by the system's clock; UINT64_MAX: none */
    char *ca_file;     /* NULL: libcurl's own */
    char *cert_file;
    char *key_file;
    bool trusts_any;

    qr_lane *lanes;
    uint32_t num_lanes;
    uint32_t num_taken;
    uint32_t num_stores;  /* of them, */
    uint32_t num_deletes; /* and for no io */
    char wrong[QR_OBJECT_WRONG][QR_PLACE_PATH];
    uint32_t num_wrong;
};

/* ---- lane.c ----------------------------------------------------------------- */

quire_tier_io *qr_lane_io(const qr_lane *lane);
/* Gives waiting ios, then objects that were wrong, to free lanes. */
void qr_lane_fill(quire_tier_object *object);
/* Whether that would start something. */
bool qr_lane_can_fill(const quire_tier_object *object);
/* Starts attempts whose pause is over, and ends attempts in which nothing moves. */
void qr_lane_tend(quire_tier_object *object);
/* A lane for no io; false: none is free. */
bool qr_lane_probe(quire_tier_object *object);
/* Its io ends, and the lane is free. */
void qr_lane_end(qr_lane *lane, quire_tier_status status);
/* Its io ends with WRONG, and the object will be deleted. */
void qr_lane_end_wrong(qr_lane *lane);
/* Another attempt at once, as another kind. */
void qr_lane_begin(qr_lane *lane, qr_object_kind kind);
/* Another attempt after a pause, which is at least pause_ns; or its io fails: there were as many
 * as may be, or the deadline is nearer. */
void qr_lane_retry(qr_lane *lane, uint64_t pause_ns);
/* Of qr_net_ops. */
void qr_lane_leave(qr_net_client *net, qr_net_batch *batch, bool is_late);
uint64_t qr_lane_next_time(const quire_tier_object *object);

/* ---- request.c -------------------------------------------------------------- */

/* A handle with what all its requests have; NULL: no memory. */
CURL *qr_request_make(quire_tier_object *object);
/* What does not change from one request of a lane to the next. */
bool qr_request_prepare(qr_lane *lane);
/* The lane's request goes to libcurl. false: it cannot be made. */
bool qr_request_start(qr_lane *lane);
/* libcurl has no more to do with it. */
void qr_request_stop(qr_lane *lane);
/* The credentials have changed. */
void qr_request_use_token(quire_tier_object *object);

/* ---- answer.c --------------------------------------------------------------- */

/* An attempt has ended, with libcurl's result. */
void qr_answer_take(qr_lane *lane, CURLcode result);
/* An attempt got no answer: another one, or its io fails. */
void qr_answer_lost(qr_lane *lane, const char *why);

/* ---- multi.c ---------------------------------------------------------------- */

int qr_multi_open(quire_tier_object *object);
void qr_multi_close(quire_tier_object *object);
/* Everything that libcurl can do now; ended requests are taken. */
void qr_multi_drive(quire_tier_object *object);
/* When libcurl wants to be called, by the client's clock. */
uint64_t qr_multi_next_time(const quire_tier_object *object);

/* ---- renew.c ---------------------------------------------------------------- */

/* false: no memory. */
bool qr_renew_open(quire_tier_object *object);
void qr_renew_close(quire_tier_object *object);
/* Looks at the file, asks the URI, when it is time. */
void qr_renew_tend(quire_tier_object *object);
/* The server refused this generation. Whether there is another one, or may
 * soon be. */
bool qr_renew_after(quire_tier_object *object, uint64_t generation);
void qr_renew_take(quire_tier_object *object, CURLcode result);
uint64_t qr_renew_next_time(const quire_tier_object *object);
/* Seconds since 1970, by the server's clock if it is far from ours. */
int64_t qr_object_time(const quire_tier_object *object);

/* One line in the log, at most every ten seconds. */
void qr_object_tell(quire_tier_object *object, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
