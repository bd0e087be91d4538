/* quire/error.h - what a call can answer.
 *
 * Every call that can go more than one way returns an int:
 *
 *      0   done
 *    > 0   an expected outcome: nothing is wrong, and nothing was changed (pool full, cache miss)
 *    < 0   an error: the call was not valid, and nothing was changed
 *
 * "Nothing was changed" is meant literally: a call that does not return 0 leaves every handle as it
 * was before it. (Only what a reader or subscriber had to pass over is behind it then: QUIRE_LOST
 * in quire/monitor.h, QUIRE_E_CORRUPT in quire/events.h.) Nothing in the library aborts because of
 * what a caller passed in.
 *
 * The values are part of the ABI: they are never renumbered, only added.
 */
#ifndef QUIRE_ERROR_H
#define QUIRE_ERROR_H

#include "version.h"

/* X(value, name, sentence) */
#define QUIRE_OUTCOME_MAP(X)                                                                       \
    X(0, OK, "done")                                                                               \
    X(1, NO_SPACE, "not enough free blocks now; free, preempt or wait, then ask again")            \
    X(2, RETRY, "not known yet; ask again later")                                                  \
    X(3, FULL, "a limit given at creation is reached; finish something or create with more")       \
    X(4, MISS, "there is none: not in the prefix cache, or no step was made yet")                  \
    X(5, BUSY, "blocks are still in use; free them first")                                         \
    X(6, LOST, "events were overwritten before they were read; ask for a walk")

#define QUIRE_ERROR_MAP(X)                                                                         \
    X(-1, E_NOMEM, "the allocator returned no memory")                                             \
    X(-2, E_ARGUMENT, "a required pointer is NULL, or a value is not an allowed one")              \
    X(-3, E_CONFIG, "the config has a wrong size field or a field out of its range")               \
    X(-4, E_RANGE, "a count or position is larger than the structure can hold")                    \
    X(-5, E_UNKNOWN_BLOCK, "a block id is not below the number of blocks")                         \
    X(-6, E_NULL_BLOCK, "block 0 is the null block; it cannot be freed, touched or evicted")       \
    X(-7, E_DOUBLE_FREE, "a block is freed more often than it is referenced")                      \
    X(-8, E_ALREADY_CACHED, "a block already carries a hash, or is listed twice")                  \
    X(-9, E_DISABLED, "prefix caching is off in this pool")                                        \
    X(-10, E_TOO_SMALL, "the memory given is smaller than the bytes asked for")                    \
    X(-11, E_ALIGNMENT, "the memory given is not aligned to QUIRE_ALIGNMENT")                      \
    X(-12, E_RANDOM, "the random hook failed")                                                     \
    X(-13, E_OVERFLOW, "a reference count or a size would overflow")                               \
    X(-14, E_CORRUPT, "damaged: a handle (use it no more), or bytes of an image or a message")     \
    X(-15, E_UNKNOWN_NAME, "no such name")                                                         \
    X(-16, E_MIXED, "the layers cannot share one group or one page size")                          \
    X(-17, E_MEMORY_LIMIT, "the memory cannot hold one request of the maximum length")             \
    X(-18, E_UNKNOWN_SEQ, "no such sequence: it was freed, or never got blocks")                   \
    X(-19, E_PREDICTION, "fewer blocks were predicted than are needed, and they are not free")     \
    X(-20, E_STALE_HIT, "a block of the hit is not cached in its group any more; look up again")   \
    X(-21, E_UNKNOWN_REQ, "no such request: it has ended, or never was")                           \
    X(-22, E_DUPLICATE, "a request with this id is there already")                                 \
    X(-23, E_TOO_LONG, "the request could never run, even alone in an empty engine")               \
    X(-24, E_SYSTEM, "the operating system refused: an address, a socket or a thread")             \
    X(-25, E_UNSAFE, "an address beyond this machine needs keys or a token")                       \
    X(-26, E_IDENTITY, "a tier that other engines share is not reset; give it a new identity")

enum quire_status {
#define QUIRE_X(value, name, sentence) QUIRE_##name = (value),
    QUIRE_OUTCOME_MAP(QUIRE_X) QUIRE_ERROR_MAP(QUIRE_X)
#undef QUIRE_X
};

#ifdef __cplusplus
extern "C" {
#endif

/* The sentence for a status, and its name ("QUIRE_NO_SPACE"). Never NULL: a value that is no status
 * of this library gives "unknown status" and "QUIRE_UNKNOWN". Static strings; any thread. */
QUIRE_API const char *quire_strerror(int status);
QUIRE_API const char *quire_status_name(int status);

/* Why the last config or params that this thread gave to a call of libquire were refused
 * (QUIRE_E_CONFIG; for a model also QUIRE_E_UNKNOWN_NAME): one sentence with the field, its value
 * and its range, as "invalid max_num_seqs 5000 (expected 0..4096)". Ask right after the call that
 * failed: the next call on this thread that reads a config overwrites it. Never NULL; "" when there
 * is nothing to say. */
QUIRE_API const char *quire_refusal(void);

#ifdef __cplusplus
}
#endif
#endif
