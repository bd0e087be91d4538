/* base/quirks.h - quirks: the bugs of a vLLM release that show in its decisions, one bit each. A
 * profile of that release reproduces them. A caller chooses a profile; single quirks are for tests.
 */
#ifndef QR_BASE_QUIRKS_H
#define QR_BASE_QUIRKS_H

#include <quire/config.h>

#include <stdint.h>

/* X(bit, name, sentence) */
#define QR_QUIRK_MAP(X)                                                                            \
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
      "steps removed its tokens) is looked up again, and its connector is asked again")            \
    X(27, ANY_OUTPUT,                                                                              \
      "an update takes any number of tokens, steps in any order, and drafts for requests that do " \
      "not run")

enum qr_quirk_bit {
#define QR_X(bit, name, sentence) QR_QUIRK_BIT_##name = (bit),
    QR_QUIRK_MAP(QR_X)
#undef QR_X
};
#define QR_QUIRK(name) (UINT64_C(1) << QR_QUIRK_BIT_##name)

/* All bits: 0 to the last one, without a gap. */
#define QR_QUIRK_OR(bit, name, sentence) | QR_QUIRK(name)
#define QR_ALL_QUIRKS                    (UINT64_C(0) QR_QUIRK_MAP(QR_QUIRK_OR))

/* Those of vLLM 0.20.0 that 0.32.0 still has. */
#define QR_QUIRKS_0_32                                                                             \
    (QR_QUIRK(MAMBA_ALIGN_ESTIMATE) | QR_QUIRK(TRIM_ON_FAILURE) | QR_QUIRK(CHUNK_INSIDE_BLOCK) |   \
     QR_QUIRK(ENCODER_FREES_AGAIN) | QR_QUIRK(HOPELESS_WAITS) | QR_QUIRK(FAILED_BLOCKS_STAY) |     \
     QR_QUIRK(LORA_OF_STEP) | QR_QUIRK(WINDOW_AHEAD) | QR_QUIRK(UNENCODED_STAYS) |                 \
     QR_QUIRK(LOADS_ARE_ZEROED) | QR_QUIRK(RESET_IN_PARTS) | QR_QUIRK(PRIORITY_TIES) |             \
     QR_QUIRK(LOAD_ASKED_AGAIN) | QR_QUIRK(ANY_OUTPUT))

static inline uint64_t qr_quirks_of(quire_profile profile)
{
    return profile == QUIRE_PROFILE_VLLM_0_20   ? QR_ALL_QUIRKS
           : profile == QUIRE_PROFILE_VLLM_0_32 ? QR_QUIRKS_0_32
                                                : 0;
}

/* The quirks that a new handle reproduces: those of its profile. The function is alone in its
 * object file, so that a test can put its own in its place and change single quirks. */
uint64_t qr_quirks(quire_profile profile);

#endif
