/* quire/error.h - the statuses that calls return.
 *
 * Every call that can succeed or fail returns an int:
 *
 *        0   QUIRE_OK: the call has done its work
 *      > 0   an expected outcome: nothing is wrong, and nothing was changed (pool full, cache miss)
 *      < 0   an error: the call was invalid or failed, and nothing was changed
 *
 * "Nothing was changed" is meant literally: a call that does not return QUIRE_OK leaves every
 * handle as the handle was before the call. A header names each exception. (A reader or a
 * subscriber that returns QUIRE_LOST in quire/monitor.h or QUIRE_E_CORRUPT in quire/events.h has
 * skipped the lost or corrupt data.) No argument of a caller makes the library abort.
 *
 * The values are part of the ABI: a value is never renumbered, new values are added.
 */
#ifndef QUIRE_ERROR_H
#define QUIRE_ERROR_H

#include "version.h"

/* X(value, name, sentence) */
#define QUIRE_OUTCOME_MAP(X)                                                                       \
    X(0, OK, "success")                                                                            \
    X(1, NO_SPACE, "not enough free blocks; free blocks, preempt a request or wait, then retry")   \
    X(2, RETRY, "the answer is not known yet; retry later")                                        \
    X(3, FULL,                                                                                     \
      "a limit of the config is reached; retry when requests have ended, or raise the limit")      \
    X(4, MISS, "not found")                                                                        \
    X(5, BUSY, "still in use; retry after its users have released it")                             \
    X(6, LOST, "events were overwritten before they were read; ask for a walk")

#define QUIRE_ERROR_MAP(X)                                                                         \
    X(-1, E_NOMEM, "out of memory: the allocator returned NULL")                                   \
    X(-2, E_ARGUMENT, "invalid argument: a required pointer is NULL, or a value is not allowed")   \
    X(-3, E_CONFIG, "invalid config: a wrong size field, or a field out of its range")             \
    X(-4, E_RANGE, "out of range: a count or position exceeds its limit")                          \
    X(-5, E_UNKNOWN_BLOCK, "unknown block: the id is not below the number of blocks")              \
    X(-6, E_NULL_BLOCK, "block 0 is the null block; it cannot be freed, touched or evicted")       \
    X(-7, E_DOUBLE_FREE, "double free: a block is freed more often than it is referenced")         \
    X(-8, E_ALREADY_CACHED, "a block already has a hash, or is listed twice")                      \
    X(-9, E_DISABLED, "the config has disabled this feature")                                      \
    X(-10, E_TOO_SMALL, "the memory given is smaller than required")                               \
    X(-11, E_ALIGNMENT, "the memory given is not aligned as required")                             \
    X(-12, E_RANDOM, "the source of random bytes failed")                                          \
    X(-13, E_OVERFLOW, "a reference count or a size would overflow")                               \
    X(-14, E_CORRUPT, "corrupt: recreate the handle, or discard the image or the message")         \
    X(-15, E_UNKNOWN_NAME, "unknown name")                                                         \
    X(-16, E_MIXED, "the layers cannot share one group or one page size")                          \
    X(-17, E_MEMORY_LIMIT, "the memory cannot hold one request of the maximum length")             \
    X(-18, E_UNKNOWN_SEQ, "unknown sequence: it was freed, or it never had blocks")                \
    X(-19, E_PREDICTION,                                                                           \
      "fewer blocks were predicted than needed, and the missing blocks are not free")              \
    X(-20, E_STALE_HIT, "stale hit: a block is no longer cached in its group; repeat the lookup")  \
    X(-21, E_UNKNOWN_REQ, "unknown request: it has ended, or it was never added")                  \
    X(-22, E_DUPLICATE, "a request with this id already exists")                                   \
    X(-23, E_TOO_LONG, "the request could never run, even alone in an empty engine")               \
    X(-24, E_SYSTEM, "the operating system refused an address, a socket, a file or a thread")      \
    X(-25, E_UNSAFE, "unauthenticated: an address beyond this machine requires keys or a token")   \
    X(-26, E_IDENTITY, "a tier that other engines share cannot be reset; change its identity")

enum quire_status {
#define QUIRE_X(value, name, sentence) QUIRE_##name = (value),
    QUIRE_OUTCOME_MAP(QUIRE_X) QUIRE_ERROR_MAP(QUIRE_X)
#undef QUIRE_X
};

#ifdef __cplusplus
extern "C" {
#endif

/* The sentence of a status, and its name, as "QUIRE_NO_SPACE". Never NULL: for a value that is not
 * a status of this library, "unknown status" and "QUIRE_UNKNOWN". Both strings are static. Any
 * thread may call both functions. */
QUIRE_API const char *quire_strerror(int status);
static inline const char *quire_status_name(int status)
{
    switch (status) {
#define QUIRE_X(value, name, sentence)                                                             \
    case value:                                                                                    \
        return "QUIRE_" #name;
        QUIRE_OUTCOME_MAP(QUIRE_X)
        QUIRE_ERROR_MAP(QUIRE_X)
#undef QUIRE_X
    default:
        return "QUIRE_UNKNOWN";
    }
}

/* Why the last call of this thread that creates, opens or restores a handle, or that adds,
 * continues or forks a request, failed: one sentence with the field or the need, the value and the
 * limit, as "invalid num_blocks 0 (expected 1..2147483647)". All libraries of Quire use it. Call
 * this function right after the call that failed, on the same thread: the next such call overwrites
 * the sentence. Never NULL; "" if there was nothing to reject. */
QUIRE_API const char *quire_refusal(void);
/* Sets that sentence, at most 1,023 bytes of it, and returns status. For functions that the library
 * calls, as quire_tier_ops.open. NULL: no sentence. */
QUIRE_API int quire_refuse(int status, const char *sentence);

#ifdef __cplusplus
}
#endif
#endif
