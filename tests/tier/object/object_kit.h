/* tier/object/object_kit.h - an object store tier for a test.
 *
 *      object_tier t = {.deadline_ms = 300};  object_tier_open(&t, port)
 *      object_do(&t, QUIRE_TIER_STORE, key, num_keys) ──► t.status[i], t.took_ms
 *      object_tier_close(&t)     nothing is left: jobs, requests
 *
 * Blocks have a pattern that belongs to their key; a load that is DONE is compared with it. */
#ifndef OBJECT_KIT_H
#define OBJECT_KIT_H

#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire/tier_object.h>

enum { OBJECT_MAX_IOS = 512, OBJECT_SLACK_MS = 20000, OBJECT_DEADLINE_MS = 30000 };

typedef struct object_tier {
    /* before open; 0: long enough for a busy machine */
    uint32_t deadline_ms;
    uint32_t bytes; /* of a block; 0 = 10,000 */
    quire_tier_object_config config;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];

    char endpoint[64];
    quire_tier *tier;
    quire_tier_object *object;
    quire_tier_job job;
    quire_tier_io ios[OBJECT_MAX_IOS];
    quire_tier_status status[OBJECT_MAX_IOS];
    unsigned char *memory;
    uint64_t took_ms;
    char log[4096]; /* all lines */
} object_tier;

/* At config.endpoint; NULL: http://127.0.0.1:PORT. */
int object_tier_try(object_tier *t, int port);
void object_tier_open(object_tier *t, int port);
void object_tier_close(object_tier *t);
void object_fill(object_tier *t, quire_tier_op op, uint32_t key, uint32_t num);
void object_wait(object_tier *t);
/* Submits, and waits; the breaker of the tier never opens here. */
void object_do(object_tier *t, quire_tier_op op, uint32_t key, uint32_t num);
uint32_t object_count(const object_tier *t, quire_tier_status status);
/* All of them have one of these: bits 1 << status. */
void object_expect_only(const object_tier *t, uint32_t statuses);
/* What works with a server that is well and empty. */
void object_all_operations(object_tier *t);
quire_tier_object_stats object_stats(const object_tier *t);

uint64_t object_now_ms(void);
void object_sleep_ms(int ms);

#define OBJECT_BIT(name) (1u << QUIRE_TIER_##name)

#endif
