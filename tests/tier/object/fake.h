/* tier/object/fake.h - a small object store that misbehaves as told.
 *
 *      object_fake *f = object_fake_start(NULL)    a thread, a port of its own; it keeps objects
 *      object_fake_set(f, FAKE_HALF)               from the next request on
 *
 * HEAD, GET, PUT and DELETE of any path; a path with one part is a bucket, which exists. Signatures
 * are not looked at, but access keys are: object_fake_set_key. */
#ifndef OBJECT_FAKE_H
#define OBJECT_FAKE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct object_fake object_fake;

/* X(name, what it sends instead of a reply: NULL: see fake.c) */
#define FAKE_MAP(X)                                                                                \
    X(WELL, NULL)                                                                                  \
    X(SILENT, "")           /* no reply at all */                                                  \
    X(DEAF, NULL)           /* does not read the body of a PUT */                                  \
    X(CLOSES, NULL)         /* instead of a reply */                                               \
    X(RESETS, NULL)         /* the same with RST */                                                \
    X(HALF, NULL)           /* half of the reply, and no more */                                   \
    X(HALF_CLOSES, NULL)    /* half of it, then closed */                                          \
    X(HALF_RESETS, NULL)    /* half of it, then RST */                                             \
    X(SLOW, NULL)           /* a byte now and then */                                              \
    X(SWAPPED, NULL)        /* another object */                                                   \
    X(FLIPPED, NULL)        /* one bit of the bytes is another */                                  \
    X(FLIPPED_HEADER, NULL) /* one bit of the block's header */                                    \
    X(SHORT, NULL)          /* the object's end is missing, and so its length says */              \
    X(LONGER, NULL)         /* the object goes on */                                               \
    X(FLAKY, NULL)          /* every other request: 503 */                                         \
    X(FLAKY_RESETS, NULL)   /* every other request: RST */                                         \
    X(EARLY, NULL)          /* replies to a PUT before it was sent, and closes */                  \
    X(KEY_EXPIRED, NULL)    /* 400 ExpiredToken to any but the key that was set; HEAD: no body */  \
    X(KEY_DENIED, NULL)     /* 403 to any but the key that was set */                              \
    X(CLOCK, NULL)          /* 403 with a date of 2001, if it is signed in another year */         \
    X(TINY, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")                                     \
    X(EMPTY, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")                                       \
    X(CHUNKED, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")       \
    X(CHUNKED_ENDLESS, NULL)                                                                       \
    X(BAD_CHUNK, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")                    \
    X(NO_LENGTH, NULL) /* a body that ends with the connection */                                  \
    X(HUGE_LENGTH, "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\nQUIREKV1")              \
    X(BAD_LENGTH, "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")                                 \
    X(OVERFLOW_LENGTH, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n")       \
    X(TWO_LENGTHS, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9000\r\n\r\nabc")      \
    X(GZIP, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc")           \
    X(GARBAGE, "SSH-2.0-OpenSSH_9.2\r\n\r\n")                                                      \
    X(OLD_HTTP, "<html>hello</html>")                                                              \
    X(HTTP2, "HTTP/2 200\r\n\r\n")                                                                 \
    X(BAD_STATUS, "HTTP/1.1 99999 Well\r\n\r\n")                                                   \
    X(NO_STATUS, "HTTP/1.1 \r\n\r\n")                                                              \
    X(CONTINUES, NULL)    /* 100 Continue, again and again */                                      \
    X(LONG_HEADERS, NULL) /* lines without end */                                                  \
    X(LONG_LINE, NULL)                                                                             \
    X(NUL_HEADER, NULL) /* a zero byte in a line */                                                \
    X(SWITCHES, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")                  \
    X(NO_CONTENT, "HTTP/1.1 204 No Content\r\n\r\n")                                               \
    X(PARTIAL, "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc")                     \
    X(NOT_MODIFIED, "HTTP/1.1 304 Not Modified\r\n\r\n")                                           \
    X(MOVED, "HTTP/1.1 301 Moved Permanently\r\nx-amz-bucket-region: eu-central-1\r\n"             \
             "Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")                         \
    X(REDIRECTS, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://10.255.255.1/\r\n"           \
                 "Content-Length: 0\r\n\r\n")                                                      \
    X(BAD_REQUEST, "HTTP/1.1 400 Bad Request\r\nContent-Length: 28\r\n\r\n"                        \
                   "<Code>InvalidRequest</Code>\n")                                                \
    X(UNAUTHORIZED, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")                      \
    X(DENIED, "HTTP/1.1 403 Forbidden\r\nContent-Length: 26\r\n\r\n<Code>AccessDenied</Code>\n")   \
    X(DENIED_STRANGE, "HTTP/1.1 403 Forbidden\r\nx-amz-bucket-region: \x1b[1m\xff\r\n"             \
                      "Content-Length: 20\r\n\r\n<Code>\x1b[1m</Code>\n\n\n")                      \
    X(NO_BUCKET,                                                                                   \
      "HTTP/1.1 404 Not Found\r\nContent-Length: 26\r\n\r\n<Code>NoSuchBucket</Code>\n")           \
    X(TIMED_OUT, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")                      \
    X(CONFLICT, "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n")                              \
    X(TEAPOT, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n")                            \
    X(TOO_MANY, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")   \
    X(SERVER_ERROR, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")             \
    X(BAD_GATEWAY, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")                        \
    X(SLOW_DOWN, "HTTP/1.1 503 Slow Down\r\nContent-Length: 22\r\n\r\n<Code>SlowDown</Code>\n")    \
    X(SLOW_DOWN_LONG, "HTTP/1.1 503 Slow Down\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n")  \
    X(GATEWAY_TIMEOUT, "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 0\r\n\r\n")                \
    X(FULL, "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n")                      \
    X(QUOTA, NULL) /* PUT: 403 QuotaExceeded */                                                    \
    X(ERROR_ENDLESS, NULL)

typedef enum fake_mode {
#define FAKE_X(name, text) FAKE_##name,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
        FAKE_NUM_MODES
} fake_mode;

extern const char *const fake_names[FAKE_NUM_MODES];

/* A folder with server.crt and server.key: with TLS; NULL: without. */
object_fake *object_fake_start(const char *cert_file, const char *key_file);
void object_fake_stop(object_fake *f);
int object_fake_port(const object_fake *f);
void object_fake_set(object_fake *f, fake_mode mode);
/* Each reply waits this long, while others are served: the latency of a store. */
void object_fake_set_delay(object_fake *f, uint32_t delay_ms);
/* The access key that is right in the modes KEY_EXPIRED and KEY_DENIED. */
void object_fake_set_key(object_fake *f, const char *access_key);
/* What GET /credentials answers, to who has the Authorization "secret"; NULL: 404. */
void object_fake_set_credentials(object_fake *f, const char *json);
uint64_t object_fake_num_requests(const object_fake *f);
uint64_t object_fake_num_objects(const object_fake *f);
/* Of the most connections at a time. */
uint64_t object_fake_most_clients(const object_fake *f);
/* The last request line and its headers. */
void object_fake_last(object_fake *f, char text[4096]);

#endif
