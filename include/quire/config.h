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

/* Whose decisions the library reproduces. VLLM_0_20: the decisions of vLLM 0.20.0 with its
 * observable bugs (the quirks below). DEFAULT: the same decisions without the bugs. */
typedef enum quire_profile { QUIRE_PROFILE_DEFAULT = 0, QUIRE_PROFILE_VLLM_0_20 = 1 } quire_profile;

/* Bugs of vLLM 0.20.0 that show in decisions, one bit each: X(bit, name, sentence). A profile turns
 * its quirks on; quirks_on and quirks_off of a config change single quirks. */
#define QUIRE_QUIRK_MAP(X)                                                                         \
    X(0, MM_LAST_FEATURE,                                                                          \
      "hashing that continues a request looks at its last multi-modal feature only")               \
    X(1, ADMISSION_CAP_PER_STEP,                                                                   \
      "window and chunked groups cap the blocks predicted for one step, not for admission alone; " \
      "more may then be taken than were predicted (vLLM #41282)")                                  \
    X(2, STATS_EVERY_LOOKUP,                                                                       \
      "prefix-cache stats count a request at every lookup, not once (vLLM #48860)")                \
    X(3, HYBRID_SECOND_FULL,                                                                       \
      "with two different full groups, the second keeps hit blocks past the end of the hit")       \
    X(4, MAMBA_ALIGN_ESTIMATE,                                                                     \
      "with external tokens, the blocks predicted for Mamba in align mode can be one off")         \
    X(5, TRIM_ON_FAILURE,                                                                          \
      "allocate_slots frees blocks outside the window even if it then returns QUIRE_NO_SPACE")     \
    X(6, SINK_BLOCKS_BUSY,                                                                         \
      "blocks of a sink count as in use, so that reset_prefix_cache never succeeds")               \
    X(7, MAMBA_ALIGN_SHRINK,                                                                       \
      "Mamba in align mode refuses a step that needs fewer blocks than the one before it, as "     \
      "rejected drafts can cause (vLLM #39562)")                                                   \
    X(8, CHUNK_INSIDE_BLOCK,                                                                       \
      "where a chunk of local attention begins inside a block, a hit may end in the chunk before " \
      "without that chunk's blocks")                                                               \
    X(9, PRIORITY_SKIP,                                                                            \
      "PRIORITY: if a request that was skipped in this step is preempted, another request is "     \
      "skipped too (vLLM #49206)")                                                                 \
    X(10, SESSION_STALE_HASH,                                                                      \
      "a session that continues keeps the hash of a block that ended with the dropped token")      \
    X(11, ENCODER_FREES_AGAIN,                                                                     \
      "encoder-decoder: every update frees the same space again, so that the encoder cache seems " \
      "to grow; an identifier with several sizes counts with its last size")                       \
    X(12, HOPELESS_WAITS,                                                                          \
      "a request that could never run is accepted and blocks all requests behind it forever; a "   \
      "request that outgrows the pool alone is preempted again and again (vLLM #39734); a "        \
      "waiting request that does not fit hides a loaded request that holds the blocks "            \
      "(vLLM #45388)")                                                                             \
    X(13, MIN_TOKENS_HIDES_LENGTH,                                                                 \
      "a request below min_tokens does not end at max_model_len, and then never ends")             \
    X(14, RESET_DROPS_ONE,                                                                         \
      "after a reset with running requests, async scheduling drops one output of each request, "   \
      "even if several are in flight")                                                             \
    X(15, FAILED_BLOCKS_STAY,                                                                      \
      "blocks whose load failed stay in the prefix cache until they are computed again")           \
    X(16, STALE_OUTPUTS,                                                                           \
      "outputs of steps in flight count after their request was preempted, and their rejected "    \
      "drafts are subtracted from the tokens computed since (vLLM #48245)")                        \
    X(17, SESSION_KEEPS_AHEAD,                                                                     \
      "a session that continues keeps computed tokens past the end of its kept text, and accepts " \
      "outputs of steps that were in flight when it stopped")                                      \
    X(18, LORA_OF_STEP,                                                                            \
      "max_loras counts the adapters of the requests in the step, not of all running requests, "   \
      "and can be exceeded in a later step")                                                       \
    X(19, WINDOW_AHEAD,                                                                            \
      "blocks behind the window are freed because of tokens that may still be removed: rejected "  \
      "drafts, or the last token of a prompt that was loaded as a whole (vLLM #47728)")            \
    X(20, UNENCODED_STAYS,                                                                         \
      "PRIORITY: if a request is preempted from the step being scheduled, the encoder inputs and " \
      "tokens scheduled for it in that step count as done")                                        \
    X(21, LOADS_ARE_ZEROED, "blocks that a connector fills are listed in blocks_to_zero")          \
    X(22, RESET_IN_PARTS,                                                                          \
      "reset_prefix_cache preempts running requests even if the cache then cannot be reset, and "  \
      "resets the cache even if the connector was not reset")                                      \
    X(23, MAMBA_EAGLE_GROWS,                                                                       \
      "EAGLE with full and Mamba groups: the hit can be one block longer than the hit of the "     \
      "full groups, and the extra block is read without having been computed")                     \
    X(24, MAMBA_ALIGN_INSIDE,                                                                      \
      "Mamba in align mode: a step that begins inside a block may pass the block's end; the "      \
      "block is then cached with the state of an earlier token")                                   \
    X(25, PRIORITY_TIES,                                                                           \
      "PRIORITY: among running requests with equal priority and arrival time the first is "        \
      "preempted, so that two requests may preempt each other forever")                            \
    X(26, LOAD_ASKED_AGAIN,                                                                        \
      "a loaded request without a computed token (its prompt is one token, or outputs of older "   \
      "steps removed its tokens) is looked up again, and its connector is asked again")

enum quire_quirk_bit {
#define QUIRE_X(bit, name, sentence) QUIRE_QUIRK_BIT_##name = (bit),
    QUIRE_QUIRK_MAP(QUIRE_X)
#undef QUIRE_X
};
#define QUIRE_QUIRK(name) (UINT64_C(1) << QUIRE_QUIRK_BIT_##name)

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
