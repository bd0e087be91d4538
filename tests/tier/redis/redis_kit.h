/* tier/redis/redis_kit.h - real Redis servers for a test, and a tier on them.
 *
 *      redis_server s;  redis_start(&s, "--maxmemory", "4mb", NULL)     in a folder of its own
 *      redis_tier t = {.deadline_ms = 300};  redis_tier_open(&t, &s, 1)
 *      redis_do(&t, QUIRE_TIER_STORE, key, num_keys) ──► t.status[i], t.took_ms
 *      redis_tier_close(&t)     nothing is left: jobs, calls, connections
 *
 * Blocks have a pattern that belongs to their key; a load that is DONE is compared with it. */
#ifndef REDIS_KIT_H
#define REDIS_KIT_H

#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/redis/value.h"

#include <quire/tier_redis.h>

#include <sys/types.h>

enum { REDIS_MAX_IOS = 64, REDIS_NODES = 6, REDIS_SLACK_MS = 4000 };

typedef struct redis_server {
    pid_t pid; /* 0: not running */
    int port;
    char dir[64];
    const char *arguments[24];
    int num_arguments;
} redis_server;

/* Ends the program with 77 where there is no redis-server. */
void redis_need_server(void);
/* A port that is free, and so is the one of the cluster's bus, 10,000 above. */
int redis_free_port(void);
/* Arguments until NULL. It answers when this returns. */
void redis_start(redis_server *s, ...);
void redis_start_again(redis_server *s);     /* same port, folder and arguments */
void redis_end(redis_server *s, int signal); /* and wait */
void redis_signal(const redis_server *s, int signal);
void redis_forget_all(redis_server *servers, int n);
void redis_forget(redis_server *s); /* ends it, and its folder goes */
/* One command, words until NULL; the first line of the answer, or what a text says, in out. */
void redis_say(int port, char out[256], ...);
/* The same as a check: the answer must begin so. */
#define redis_expect(port, begin, ...)                                                             \
    do {                                                                                           \
        char said_[256];                                                                           \
        redis_say(port, said_, __VA_ARGS__);                                                       \
        if (strncmp(said_, begin, strlen(begin)) != 0)                                             \
            fail_msg("%s: \"%s\", not \"%s\"", #__VA_ARGS__, said_, begin);                        \
    } while (0)

/* n masters with all slots; waits until they agree. More arguments for each, until NULL. */
void redis_start_cluster(redis_server *servers, int n, const char *argument, const char *value);
void redis_meet(const redis_server *one, const redis_server *other);
void redis_await_cluster(const redis_server *servers, int n, const char *line);

typedef struct redis_tier {
    /* before open; 0: a short time */
    uint32_t deadline_ms;
    uint32_t breaker_ms;
    uint32_t bytes; /* of a block; 0 = 10,000 */
    quire_tier_redis_config config;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];

    quire_tier *tier;
    quire_tier_redis *redis;
    quire_tier_job job;
    quire_tier_io ios[REDIS_MAX_IOS];
    quire_tier_status status[REDIS_MAX_IOS];
    unsigned char *memory;
    uint64_t took_ms;
    char log[4096]; /* all lines */
} redis_tier;

/* Addresses as text; NULL at the end of none: num says how many. */
int redis_tier_open_at(redis_tier *t, const char *const *addresses, uint32_t num);
void redis_tier_open(redis_tier *t, const redis_server *servers, int n);
void redis_fill(redis_tier *t, quire_tier_op op, uint32_t key, uint32_t num);
/* Submits, and waits; the breaker of the whole tier never opens here. */
void redis_do(redis_tier *t, quire_tier_op op, uint32_t key, uint32_t num);
void redis_wait(redis_tier *t);
/* How many ios of the last job have this status. */
uint32_t redis_count(const redis_tier *t, quire_tier_status status);
/* All of them have one of these: bits 1 << status. */
void redis_expect_only(const redis_tier *t, uint32_t statuses);
/* Until all of them are stored: breakers need their time, and so do clusters. */
void redis_await_stores(redis_tier *t, uint32_t key, uint32_t num);
/* What works with servers that are well and empty. */
void redis_all_operations(redis_tier *t);
/* The n-th key, as Redis knows it. */
void redis_key_text(const redis_tier *t, uint32_t n, char *text);
quire_tier_redis_stats redis_stats(const redis_tier *t);
void redis_tier_close(redis_tier *t);

uint64_t redis_now_ms(void);
void redis_sleep_ms(int ms);

#define REDIS_BIT(name) (1u << QUIRE_TIER_##name)

#endif
