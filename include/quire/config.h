/* quire/config.h - what all configs have in common.
 *
 * A config is a plain struct. Its first field is its own size: a program compiled against an older
 * header, whose config is shorter, keeps working; fields that a library does not know must be 0.
 * This is so for the outer struct. A config inside another (quire_sched_config.cache) must have the
 * size that the library knows, else QUIRE_E_CONFIG; structs without a size field, and the elements
 * of arrays such as groups, must be the library's. Before 1.0 Quire makes no promise of a stable
 * ABI: compile the program against the headers of the library that it runs with.
 *
 * A zero in any other field means the default. Start from the _INIT macro:
 *
 *      quire_pool_config cfg = QUIRE_POOL_CONFIG_INIT;
 *      cfg.num_blocks = 1000;
 *
 * If a field is out of its range, the call that makes the handle returns QUIRE_E_CONFIG, and
 * quire_refusal says which: "invalid num_blocks 0 (expected 1..2147483647)".
 */
#ifndef QUIRE_CONFIG_H
#define QUIRE_CONFIG_H

#include "version.h"

#include <stddef.h>
#include <stdint.h>

/* What the _INIT macros are made of: the size, and 0 in every other field; with a second one, the
 * size of the config inside it too. In C++ they are lambdas: C++ before 20 has no designators, and
 * compilers warn of fields that a list leaves out. */
#ifdef __cplusplus
#define QUIRE_SIZED_INIT(type)                                                                     \
    [] {                                                                                           \
        type sized = type();                                                                       \
        sized.size = sizeof sized;                                                                 \
        return sized;                                                                              \
    }()
#define QUIRE_NESTED_INIT(type, inner)                                                             \
    [] {                                                                                           \
        type sized = type();                                                                       \
        sized.size = sizeof sized;                                                                 \
        sized.inner.size = sizeof sized.inner;                                                     \
        return sized;                                                                              \
    }()
#else
#define QUIRE_SIZED_INIT(type)                                                                     \
    {                                                                                              \
        .size = sizeof(type)                                                                       \
    }
#define QUIRE_NESTED_INIT(type, inner)                                                             \
    {                                                                                              \
        .size = sizeof(type), .inner = {.size = sizeof(((type *)0)->inner) }                       \
    }
#endif

/* A yes-or-no setting whose default is not always "no". */
typedef enum quire_switch { QUIRE_DEFAULT = 0, QUIRE_ON = 1, QUIRE_OFF = 2 } quire_switch;

/* Whose decisions to reproduce. VLLM_0_20 is vLLM 0.20.0 with its observable bugs (the quirks
 * below); DEFAULT makes the same decisions without them. */
typedef enum quire_profile { QUIRE_PROFILE_DEFAULT = 0, QUIRE_PROFILE_VLLM_0_20 = 1 } quire_profile;

/* Bugs of vLLM 0.20.0 that show in decisions, one bit each: X(bit, name, sentence). A profile turns
 * its own on; quirks_on and quirks_off of a config change single ones. */
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
      "allocate_slots gives back blocks outside the window even when it then finds no space")      \
    X(6, SINK_BLOCKS_BUSY,                                                                         \
      "blocks of a sink count as in use, so that reset_prefix_cache never succeeds")               \
    X(7, MAMBA_ALIGN_SHRINK,                                                                       \
      "Mamba in align mode refuses a step that needs fewer blocks than the one before it, as "     \
      "rejected drafts can cause (vLLM #39562)")                                                   \
    X(8, CHUNK_INSIDE_BLOCK,                                                                       \
      "where a chunk of local attention begins inside a block, a hit may end in the chunk before " \
      "without that chunk's blocks")                                                               \
    X(9, PRIORITY_SKIP,                                                                            \
      "PRIORITY: when a request that was passed over in this step is preempted, another one is "   \
      "passed over too (vLLM #49206)")                                                             \
    X(10, SESSION_STALE_HASH,                                                                      \
      "a session that goes on keeps the hash of a block that ended with the dropped token")        \
    X(11, ENCODER_FREES_AGAIN,                                                                     \
      "encoder-decoder: room is given back at every update, so that the encoder cache seems to "   \
      "grow; an identifier with several sizes counts with the last one")                           \
    X(12, HOPELESS_WAITS,                                                                          \
      "a request that could never run is accepted, and holds up all behind it for ever; one that " \
      "outgrows the pool alone is preempted again and again (vLLM #39734); a waiting request "     \
      "that does not fit hides a loaded one that has the blocks (vLLM #45388)")                    \
    X(13, MIN_TOKENS_HIDES_LENGTH,                                                                 \
      "below min_tokens a request does not end at max_model_len either, and then never")           \
    X(14, RESET_DROPS_ONE,                                                                         \
      "after a reset with running requests, async scheduling drops the next output of each, "      \
      "however many are in flight")                                                                \
    X(15, FAILED_BLOCKS_STAY,                                                                      \
      "blocks whose load failed stay in the prefix cache until they are computed again")           \
    X(16, STALE_OUTPUTS,                                                                           \
      "outputs of steps in flight count after their request was preempted, and drafts rejected "   \
      "there are taken off the computed tokens it has since (vLLM #48245)")                        \
    X(17, SESSION_KEEPS_AHEAD,                                                                     \
      "a session that goes on keeps computed tokens past the end of what it kept, and takes "      \
      "outputs of steps that were in flight when it stopped")                                      \
    X(18, LORA_OF_STEP,                                                                            \
      "the limit of adapters counts the requests of the step, not all that run, and can be "       \
      "passed in a later step")                                                                    \
    X(19, WINDOW_AHEAD,                                                                            \
      "blocks behind the window are given back by tokens that may still be taken back: rejected "  \
      "drafts, or the last token of a prompt that was loaded as a whole (vLLM #47728)")            \
    X(20, UNENCODED_STAYS,                                                                         \
      "PRIORITY: what a request was to encode or compute in a step from which it was preempted "   \
      "counts as done")                                                                            \
    X(21, LOADS_ARE_ZEROED, "blocks that a connector fills are listed in blocks_to_zero")          \
    X(22, RESET_IN_PARTS,                                                                          \
      "reset_prefix_cache preempts running requests even if the cache then cannot be reset, and "  \
      "resets the cache even if the connector was not reset")                                      \
    X(23, MAMBA_EAGLE_GROWS,                                                                       \
      "EAGLE with full and Mamba groups: the hit can be a block longer than what the full groups " \
      "have, and that block is read without having been computed")                                 \
    X(24, MAMBA_ALIGN_INSIDE,                                                                      \
      "Mamba in align mode: a step that begins inside a block may pass the block's end; the "      \
      "block is then cached with the state of an earlier token")                                   \
    X(25, PRIORITY_TIES,                                                                           \
      "PRIORITY: of running requests with equal priority and arrival time the first is "           \
      "preempted, "                                                                                \
      "so that two that need each other's blocks may be preempted in turns, for ever")             \
    X(26, LOAD_ASKED_AGAIN,                                                                        \
      "a request that was loaded but has no computed token (its prompt is one token, or outputs "  \
      "of older steps took its tokens back) is looked up, and its connector asked, once more")

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

/* The world outside, as the library sees it. Give your own and one seed replays a whole run.
 * A NULL function means the default: CLOCK_MONOTONIC, the kernel's random bytes, and no log. The
 * pool and the hasher take random bytes, at creation; the log is told why no request of a
 * scheduler's config could ever run.
 * Messages never contain token ids or salts. The functions are called on the thread that calls the
 * library, and must not call back into the same handle. */
typedef struct quire_hooks {
    void *user;
    uint64_t (*now_ns)(void *user);
    int (*random_bytes)(void *user, void *out, size_t bytes); /* 0, or nonzero when it failed */
    void (*log)(void *user, quire_log_level level, const char *message);
    void *reserved[4]; /* NULL; room for hooks to come */
} quire_hooks;

#define QUIRE_HOOKS_INIT                                                                           \
    {                                                                                              \
        NULL, NULL, NULL, NULL,                                                                    \
        {                                                                                          \
            NULL, NULL, NULL, NULL                                                                 \
        }                                                                                          \
    }

/* Ids of blocks, tokens and requests. Block 0 of every pool is the null block: a placeholder that
 * is never handed out, freed or cached. */
typedef uint32_t quire_block;
typedef int32_t quire_token;
#define QUIRE_NULL_BLOCK ((quire_block)0)

/* A request of a scheduler: quire/sched.h says what its halves mean. */
typedef uint64_t quire_req; /* 0: none */

static inline uint32_t quire_req_index(quire_req req)
{
    return (uint32_t)req - 1;
}

#endif
