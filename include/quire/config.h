/* quire/config.h - rules that all structs share.
 *
 * A program that was compiled against these headers runs with every later library of the same major
 * version: later versions only append fields. Each struct is of one of three kinds:
 *
 *      sized   its first field is its own size, as the program was compiled. The library reads and
 *              writes at most this size. Fields that the program does not know are 0: the default.
 *              Fields that the library does not know must be 0
 *      lent    the library owns the struct, and the program reads it through a pointer. A program
 *              never makes such a struct, and no array and no other struct contains it
 *      final   never gets another field: small values, and elements of arrays
 *
 * The headers mark lent and final structs. Start a sized struct from its _INIT macro, in which all
 * other fields are 0:
 *
 *      quire_pool_config cfg = QUIRE_POOL_CONFIG_INIT;
 *      cfg.num_blocks = 1000;
 *
 * If the size of a struct is wrong, a call returns QUIRE_E_CONFIG for a config and QUIRE_E_ARGUMENT
 * for any other struct.
 *
 * If a field is out of its range, the call that creates the handle returns QUIRE_E_CONFIG, and
 * quire_refusal names the field: "invalid num_blocks 0 (expected 1..2147483647)".
 */
#ifndef QUIRE_CONFIG_H
#define QUIRE_CONFIG_H

#include "version.h"

#include <stddef.h>
#include <stdint.h>

/* The _INIT macros: the size, and 0 in every other field. In C++ a macro is a lambda, because C++
 * before C++20 has no designated initializers. */
#ifdef __cplusplus
#define QUIRE_SIZED_INIT(type)                                                                     \
    [] {                                                                                           \
        type sized = type();                                                                       \
        sized.size = sizeof sized;                                                                 \
        return sized;                                                                              \
    }()
#else
#define QUIRE_SIZED_INIT(type)                                                                     \
    {                                                                                              \
        .size = sizeof(type)                                                                       \
    }
#endif

/* A yes-or-no setting. QUIRE_DEFAULT means the default of the setting, which is on for some
 * settings. */
typedef enum quire_switch { QUIRE_DEFAULT = 0, QUIRE_ON = 1, QUIRE_OFF = 2 } quire_switch;

/* Whose decisions the library reproduces. VLLM_0_20 and VLLM_0_32: the decisions of vLLM 0.20.0 and
 * 0.32.0 with their observable bugs, which docs/quirks.md lists. DEFAULT: no bugs, and of each rule
 * the better one. */
typedef enum quire_profile {
    QUIRE_PROFILE_DEFAULT = 0,
    QUIRE_PROFILE_VLLM_0_20 = 1,
    QUIRE_PROFILE_VLLM_0_32 = 2
} quire_profile;

typedef enum quire_log_level {
    QUIRE_LOG_ERROR = 0,
    QUIRE_LOG_WARNING = 1,
    QUIRE_LOG_INFO = 2
} quire_log_level;

/* Functions through which the library reads the clock, draws random bytes and logs. If the caller
 * sets its own functions, one seed replays a whole run. If a function is NULL, the library uses
 * CLOCK_MONOTONIC, the kernel's random bytes, and no log.
 *
 * The library draws random bytes at creation alone. It logs one message at creation: why no request
 * of a scheduler's config could ever run. A message never contains token ids or salts. The library
 * calls these functions on the thread that calls the library. They must not call the same handle.
 */
typedef struct quire_hooks { /* final */
    void *user;
    uint64_t (*now_ns)(void *user);
    /* 0: success; other values: the call failed */
    int (*random_bytes)(void *user, void *out, size_t bytes);
    void (*log)(void *user, quire_log_level level, const char *message);
    void *reserved[4]; /* NULL; reserved for new hooks */
} quire_hooks;

#define QUIRE_HOOKS_INIT                                                                           \
    {                                                                                              \
        NULL, NULL, NULL, NULL,                                                                    \
        {                                                                                          \
            NULL, NULL, NULL, NULL                                                                 \
        }                                                                                          \
    }

/* Ids of blocks and tokens. Block 0 of every pool is the null block: a placeholder that is never
 * allocated, freed or cached. */
typedef uint32_t quire_block;
typedef int32_t quire_token;
#define QUIRE_NULL_BLOCK ((quire_block)0)

/* A request of a scheduler; 0 is not a request. quire/sched.h says what its halves mean. */
typedef uint64_t quire_req;

static inline uint32_t quire_req_index(quire_req req)
{
    return (uint32_t)req - 1;
}

#endif
