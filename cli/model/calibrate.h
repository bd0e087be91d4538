/* cli/model/calibrate.h - constants of a GPU from measured steps.
 *
 * Seven constants are fitted: rates of matrix products and attention, bandwidths of weights and KV
 * cache, fixed cost of a layer, activations, exponent of the soft maximum. What the steps do not
 * tell (one model alone cannot tell a layer's fixed cost from the reading of its weights) stays
 * near where it began. Same steps, same constants: nothing is random.
 */
#ifndef QUIRE_CLI_MODEL_CALIBRATE_H
#define QUIRE_CLI_MODEL_CALIBRATE_H

#include "steps_file.h"

typedef struct step_errors {
    uint32_t num_steps; /* that were measured */
    double median;      /* of |predicted / measured - 1| */
    double worst;
    uint32_t worst_line;
} step_errors;

/* The time of each step, in ms. */
void steps_predict(const steps_file *file, const gpu *g, uint32_t tp, quire_cache_dtype cache_dtype,
                   double *ms);
step_errors steps_compare(const steps_file *file, const double *ms);

/* Replaces g's constants. False where no step was measured. */
bool calibrate(const steps_file *file, gpu *g, uint32_t tp, quire_cache_dtype cache_dtype);

#endif
