/* sched/encoder/encoder_step.h - which features of a request are to be encoded before its next
 * tokens.
 *
 *      tokens     0                         num_computed      + num_new      + shift
 *                 |  computed                    |  this step      |            |
 *      features     [ 0 ]      [ 1 ]         [ 2      ]  [ 3 ]          [ 4 ]          [ 5 ]
 *                   past       past          needed      needed         needed          not yet
 *
 * A feature is needed in whole as soon as one of its tokens is: the encoder sees all of it at once.
 * Where it cannot be encoded now (budget, room in the cache), the step ends before it.
 */
#ifndef QR_SCHED_ENCODER_ENCODER_STEP_H
#define QR_SCHED_ENCODER_ENCODER_STEP_H

#include "sched/encoder/encoder.h"

#include <quire/sched.h>

typedef struct qr_encoder_ask {
    qr_feature *features; /* by offset; of an encoder-decoder model all at offset 0 */
    uint32_t num_features;
    const qr_flag_store *flags;
    const qr_flag_chain *chain; /* of the request */
    uint32_t num_computed_tokens;
    uint32_t num_new_tokens;
    uint32_t budget;      /* embeddings that this step may still encode */
    uint32_t shift;       /* EAGLE: 1, its model looks one token ahead; else 0 */
    bool counts_inputs;   /* as the encoder's config */
    bool disable_chunked; /* a feature's tokens are computed in one step or not at all */
    quire_req req;
    const quire_encoder_connector *connector; /* NULL: none */
} qr_encoder_ask;

typedef struct qr_encoder_plan {
    uint32_t num_inputs;     /* to be encoded, and then allocated if the request is scheduled */
    uint32_t num_external;   /* to be allocated as well, and loaded by the connector */
    uint32_t num_new_tokens; /* as asked, or fewer */
    uint32_t budget;         /* what is left of it */
    uint64_t end;            /* features that begin there or behind were not looked at */
    bool has_other_size;     /* a feature has not the size that its item has: nothing is planned */
} qr_encoder_plan;

/* Puts the numbers of the features to be encoded into inputs, which has num_features places, and
 * those to be loaded behind them, from the last place on backwards. The request becomes a user of
 * needed items that are there; those planned are not allocated yet. */
qr_encoder_plan qr_encoder_schedule(qr_encoder *encoder, const qr_encoder_ask *ask,
                                    uint32_t *inputs);

/* Where the k-th feature to be loaded stands. */
static inline uint32_t qr_encoder_external_at(uint32_t num_features, uint32_t k)
{
    return num_features - 1 - k;
}

#endif
