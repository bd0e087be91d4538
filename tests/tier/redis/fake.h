/* tier/redis/fake.h - a small Redis server that misbehaves as told, for what real ones do not do on
 * demand.
 *
 *      redis_fake *f = redis_fake_start()      a thread, a port of its own; it keeps values
 *      redis_fake_set(f, FAKE_HALF)            from the next command on
 *
 * It greets well, and says well how full it is, unless the mode is about that; GET, SET, DEL and
 * STRLEN are where it goes wrong. */
#ifndef REDIS_FAKE_H
#define REDIS_FAKE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct redis_fake redis_fake;

/* X(name, what it sends instead of a GET's answer: NULL: see fake.c) */
#define FAKE_MAP(X)                                                                                \
    X(WELL, NULL)                                                                                  \
    X(SILENT, "")            /* no answer at all */                                                \
    X(DEAF, NULL)            /* reads no further than to the next SET */                           \
    X(CLOSES, NULL)          /* instead of an answer */                                            \
    X(RESETS, NULL)          /* the same with RST */                                               \
    X(HALF, NULL)            /* half of the answer, and no more */                                 \
    X(HALF_CLOSES, NULL)     /* half of it, then closed */                                         \
    X(HALF_RESETS, NULL)     /* half of it, then RST */                                            \
    X(SLOW, NULL)            /* a byte now and then */                                             \
    X(EXTRA, NULL)           /* one answer more than asked for */                                  \
    X(SWAPPED, NULL)         /* the value of another key */                                        \
    X(FLIPPED, NULL)         /* one bit of the bytes is another */                                 \
    X(FLIPPED_HEADER, NULL)  /* one bit of the header */                                           \
    X(SHORT, NULL)           /* the value's end is missing */                                      \
    X(LONGER, NULL)          /* the value goes on */                                               \
    X(TINY, "$3\r\nabc\r\n") /* a value of 3 bytes */                                              \
    X(EMPTY, "$0\r\n\r\n")                                                                         \
    X(NO_END, NULL) /* no \r\n behind the value */                                                 \
    X(NUMBER, ":5\r\n")                                                                            \
    X(STATUS, "+OK\r\n")                                                                           \
    X(ARRAY, "*1\r\n$3\r\nabc\r\n")                                                                \
    X(DEEP, "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n")                                          \
    X(MANY, "*1000000000\r\n")                                                                     \
    X(HUGE_VALUE, "$99999999999\r\n")                                                              \
    X(LARGE_VALUE, "$536870912\r\n") /* allowed, and never ends */                                 \
    X(NEGATIVE, "$-5\r\n")                                                                         \
    X(GARBAGE, "GET / HTTP/1.1\r\n\r\n")                                                           \
    X(LONG_LINE, NULL)                                                                             \
    X(MOVED_HERE, NULL) /* for ever */                                                             \
    X(ASK_HERE, NULL)                                                                              \
    X(MOVED_AWAY, "-MOVED 1 10.255.255.1:6379\r\n")                                                \
    X(MOVED_BAD, "-MOVED x y\r\n")                                                                 \
    X(MOVED_OTHER_SLOT, "-MOVED 99999 127.0.0.1:1\r\n")                                            \
    X(TRY_AGAIN, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n")                   \
    X(CLUSTER_DOWN, "-CLUSTERDOWN Hash slot not served\r\n")                                       \
    X(MASTER_DOWN, "-MASTERDOWN Link with MASTER is down\r\n")                                     \
    X(LOADING, "-LOADING Redis is loading the dataset in memory\r\n")                              \
    X(NO_AUTH, "-NOAUTH Authentication required.\r\n")                                             \
    X(NO_PERM, "-NOPERM \x1b[1m\xff user has no permissions to run the 'get' command\r\n")         \
    X(READ_ONLY, "-READONLY You can't write against a read only replica.\r\n")                     \
    X(OUT_OF_MEMORY, "-OOM command not allowed when used memory > 'maxmemory'.\r\n")               \
    X(WRONG_TYPE, "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")        \
    X(ERROR, "-ERR something else\r\n")                                                            \
    X(BARE_ERROR, "-\r\n")                                                                         \
    X(SAYS_BEFORE_READ, NULL) /* answers a SET before it was sent */                               \
    X(GREETS_BADLY, NULL)     /* PING: not PONG */                                                 \
    X(GREETS_NEVER, NULL)                                                                          \
    X(GREETS_LOADING, NULL)                                                                        \
    X(SLOTS_EMPTY, NULL) /* CLUSTER SLOTS: none */                                                 \
    X(SLOTS_BAD_RANGE, NULL)                                                                       \
    X(SLOTS_TEXT, NULL)                                                                            \
    X(SLOTS_DEEP, NULL)                                                                            \
    X(SLOTS_AWAY, NULL)    /* all slots at an address not to be talked to */                       \
    X(SLOTS_MANY, NULL)    /* more nodes than may be */                                            \
    X(SLOTS_UNKNOWN, NULL) /* "?" and port 0 */                                                    \
    X(SLOTS_HERE, NULL)    /* host nil: this one */                                                \
    X(SLOTS_CHANGE, NULL)  /* half of them here, half at another address each time */              \
    X(SLOTS_NEVER, NULL)                                                                           \
    X(USAGE_FORBIDDEN, NULL) /* INFO and DBSIZE: from here on, see fake.c */                       \
    X(USAGE_STATUS, NULL)                                                                          \
    X(USAGE_EMPTY, NULL)                                                                           \
    X(USAGE_HUGE, NULL)                                                                            \
    X(USAGE_NEGATIVE, NULL)                                                                        \
    X(USAGE_NEVER, NULL)

typedef enum fake_mode {
#define FAKE_X(name, text) FAKE_##name,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
        FAKE_NUM_MODES
} fake_mode;

extern const char *const fake_names[FAKE_NUM_MODES];

redis_fake *redis_fake_start(void);
void redis_fake_stop(redis_fake *f);
int redis_fake_port(const redis_fake *f);
void redis_fake_set(redis_fake *f, fake_mode mode);
/* Closes all connections, as a server that restarts. */
void redis_fake_cut(redis_fake *f);
uint64_t redis_fake_num_commands(const redis_fake *f);

#endif
