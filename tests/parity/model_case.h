/* parity/model_case.h - a known model in a recording of plans.
 *
 *      m model_type=llama num_hidden_layers=32 ...     fields by the names of quire_model_params
 *      x a1f                                           the fingerprint of its layers
 */
#ifndef PARITY_MODEL_CASE_H
#define PARITY_MODEL_CASE_H

#include "parity/plan_case.h"

/* Reads the rest of an m line, and makes the layers of the case from it. */
void model_case_read(recording *r, plan_case *c);
/* Adds all layers of the case. */
void model_case_add_layers(text *t, const plan_case *c);

#endif
