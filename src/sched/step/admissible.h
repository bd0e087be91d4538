/* sched/step/admissible.h - whether a request could run if it were alone in an empty engine.
 *
 * A request that could not is refused by add and continue, so that every request that was accepted
 * can run as soon as no other request is in its way. A prompt that is cut needs no check: with
 * fewer tokens and features the answer stays the same. What is compared:
 *
 *      blocks of the prompt, and of the encoder's tokens     the pool without its sinks
 *      the encoder's tokens of an encoder-decoder model      cache.max_encoder_tokens
 *      embeddings that one step must have together           encoder_compute_budget,
 *                                                            encoder_cache_size
 *      features that one step must have together             max_encoder_items
 *      tokens of a feature that may not be split             tokens of one step
 *
 * What one step must have together: the smallest step is one token, or mamba_block_size tokens in
 * align mode, and EAGLE looks one token further. All features that lie in such a step must be in
 * the encoder cache at the same time.
 *
 *      tokens      c                c + unit      + shift
 *                  |   the smallest step  |          |
 *      features  [ 0 ]   [ 1 ]         [ 2         ]           0, 1 and 2 together
 *
 * Text pages need no check: qr_text_carve has room for max_num_seqs requests of max_model_len
 * tokens. The budget without chunked prefill, and Mamba blocks that are larger than a step, are
 * checked when the scheduler is created (qr_admissible_config).
 */
#ifndef QR_SCHED_STEP_ADMISSIBLE_H
#define QR_SCHED_STEP_ADMISSIBLE_H

#include "sched/encoder/encoder.h"

#include <quire/sched.h>

/* One request, or a session with an input that follows. */
typedef struct qr_admissible_ask {
    uint32_t num_tokens; /* of the prompt, or of the session with the input */
    bool has_second;     /* more than one token is generated: the first needs a slot too */
    const qr_feature *features;
    uint32_t num_features;
    uint32_t first_new; /* features from here on have offsets that count from `base` */
    uint32_t base;
} qr_admissible_ask;

/* Why not: "needs: needed (limit_name: limit)"; needs NULL: the request could run. */
typedef struct qr_never {
    const char *needs;
    uint64_t needed;
    const char *limit_name;
    uint64_t limit;
} qr_never;

qr_never qr_why_never(const quire_sched *sched, const qr_admissible_ask *ask);

/* Says why in quire_refusal. QUIRE_E_TOO_LONG; QUIRE_OK if there is no reason, and
 * with QUIRE_QUIRK_HOPELESS_WAITS. */
int qr_admissible_check(quire_sched *sched, const qr_admissible_ask *ask);

/* NULL, or why a request of max_model_len tokens could never run, whatever the pool. align_size is
 * the number of tokens to which steps are aligned for Mamba, 0: none. */
const char *qr_admissible_config(const quire_sched_config *config, uint32_t align_size);

#endif
