/* tier/core/faulty.h - a tier in memory that goes wrong on demand.
 *
 *      faulty *f = faulty_create(&(faulty_config){.max_keys = 100, .max_bytes = 4096, .seed = 1});
 *      quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
 *      config.ops = faulty_ops(), config.self = f;
 *      quire_tier_open(&config, ...);              the tier frees f when it is closed
 *      faulty_set(f, FAULTY_FLIP, 100);            from now on 100 of 1,000 ios
 *      faulty_set_delay(f, 5);                     each io ends 0 to 5 turns later, in any order
 *      faulty_hold(f, true);                       nothing ends until faulty_hold(f, false)
 *      faulty_block(f, true);                      the thread itself hangs, in begin
 *
 * Memory is read and written at the very end of an io, and a LOAD that fails leaves rubbish there:
 * whoever uses the memory of a job before its completion will see it. CRCs are left to the runner.
 * With run_inline the same seed gives the same run. The calls here may come from any thread.
 */
#ifndef CORE_FAULTY_H
#define CORE_FAULTY_H

#include <quire/tier.h>

#include <stdbool.h>

typedef struct faulty faulty;

typedef struct faulty_config {
    uint32_t max_keys;
    uint32_t max_bytes;
    uint64_t seed;
    bool is_shared;      /* lookup knows nothing, FIND must ask */
    bool ignores_cancel; /* what was begun goes on */
    bool has_ghosts;     /* FAULTY_TWICE: also long after; only where no job is used again */
    bool fails_to_open;
} faulty_config;

typedef enum faulty_kind {
    FAULTY_FAIL,       /* ends with FAILED */
    FAULTY_SHORT,      /* LOAD: half of the bytes, said to be DONE */
    FAULTY_FLIP,       /* LOAD: one bit is wrong, DONE */
    FAULTY_FOREIGN,    /* LOAD: the bytes of another key, DONE */
    FAULTY_TORN,       /* STORE: half of the bytes are kept, DONE */
    FAULTY_LOSE,       /* STORE: nothing is kept, DONE */
    FAULTY_NO_ROOM,    /* STORE */
    FAULTY_TWICE,      /* the io ends a second time */
    FAULTY_STRAY,      /* an io that is not there, and a job that never was, end too */
    FAULTY_BAD_STATUS, /* ends with a status that does not exist */
    FAULTY_HOLD,       /* does not end before faulty_release */
    FAULTY_NUM_KINDS
} faulty_kind;

faulty *faulty_create(const faulty_config *config);
const quire_tier_ops *faulty_ops(void);

void faulty_set(faulty *f, faulty_kind kind, uint32_t per_mille);
void faulty_set_all(faulty *f, uint32_t per_mille); /* all kinds but HOLD */
void faulty_set_delay(faulty *f, uint32_t turns);
void faulty_hold(faulty *f, bool is_on);  /* all ios */
void faulty_release(faulty *f);           /* those held by FAULTY_HOLD */
void faulty_block(faulty *f, bool is_on); /* the thread */

bool faulty_has(faulty *f, const quire_tier_key *key);
uint64_t faulty_num_keys(faulty *f);
uint64_t faulty_num_begun(faulty *f); /* jobs */
uint64_t faulty_num_turns(faulty *f);
/* How often each went wrong so far. */
uint64_t faulty_num(faulty *f, faulty_kind kind);

/* Bytes that belong to a key and to no other. */
void faulty_pattern(const quire_tier_key *key, void *memory, uint32_t bytes);
bool faulty_is_pattern(const quire_tier_key *key, const void *memory, uint32_t bytes);
/* The n-th key. */
quire_tier_key faulty_key(uint32_t n);

#endif
