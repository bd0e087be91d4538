/* tier/file/crowd.h - a crowd of jobs at random on one tier, and a memory of what was stored.
 *
 * A key has been stored in versions 0, 1, ...: a load may give any of them that was begun, whole,
 * and nothing else. Jobs that do not end keep their memory; they are waited for at the end. */
#ifndef FILE_CROWD_H
#define FILE_CROWD_H

#include "tier/file/disk.h"
#include "tier/file/file_kit.h"

enum { CROWD_KEYS = 64, CROWD_JOBS = 48, CROWD_IOS = 4, CROWD_BLOCK = 4096, CROWD_VERSIONS = 4 };

typedef struct crowd_job {
    quire_tier_job job;
    quire_tier_io ios[CROWD_IOS];
    uint32_t keys[CROWD_IOS];
    unsigned char *memory;
    bool is_busy;
} crowd_job;

typedef struct crowd {
    quire_tier *tier;
    quire_tier_file_config config;
    quire_tier_config common;
    uint64_t now_ns;
    uint64_t random;
    uint32_t store_percent;         /* of idle jobs that store, in a step */
    uint8_t was_stored[CROWD_KEYS]; /* bits of versions */
    uint32_t num_ended;
    uint32_t statuses[5][8];
    crowd_job jobs[CROWD_JOBS];
} crowd;

void crowd_init(crowd *crowd, uint32_t num_slots, uint64_t seed);
void crowd_free(crowd *crowd);
int crowd_open(crowd *crowd, file_disk *disk);
uint32_t crowd_random(crowd *crowd, uint32_t below);
/* Some jobs at random, and some turns. may_reset: resets too. */
void crowd_step(crowd *crowd, bool may_reset);
/* Until all jobs have ended, at most so many turns; returns the jobs that have not. */
uint32_t crowd_wait(crowd *crowd, uint32_t num_turns);
/* Which keys can be loaded, as bits; all that come are right. */
uint64_t crowd_load_all(crowd *crowd);

#endif
