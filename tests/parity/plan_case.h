/* parity/plan_case.h - one planning case of a recording, and a plan in the recorder's words.
 *
 *      plan LEN STEP ENC FIT HYBRID EAGLE OVERRIDE DCP PCP BLOCK HASH CACHING CONNECTOR
 *      s k1 b16 h8 d128 t2     a layer spec: a letter is a field, its number the value
 *      l 0*3,1                 the layers: spec 0 three times, then spec 1
 *      w 1000000 0-3,5         a worker: its memory, its layers
 *      r a1f                   the answer's fingerprint
 */
#ifndef PARITY_PLAN_CASE_H
#define PARITY_PLAN_CASE_H

#include "parity/recording.h"

#include <quire/plan.h>

enum { MAX_PLAN_SPECS = 64, MAX_PLAN_LAYERS = 512, MAX_PLAN_WORKERS = 16 };

typedef struct plan_case {
    quire_plan_params params;
    quire_plan_shortage shortage;
    quire_layer_spec specs[MAX_PLAN_SPECS];
    uint32_t num_specs;
    int model_status; /* of quire_model_layers */
    quire_layer_spec layers[MAX_PLAN_LAYERS];
    quire_plan_worker workers[MAX_PLAN_WORKERS];
    uint32_t worker_layers[MAX_PLAN_WORKERS][MAX_PLAN_LAYERS];
} plan_case;

/* Read the rest of a line of the recording. */
void plan_case_read_params(recording *r, plan_case *c);
void plan_case_read_spec(recording *r, quire_layer_spec *spec);
void plan_case_read_layers(recording *r, plan_case *c);
void plan_case_read_worker(recording *r, plan_case *c);

/* Add the fields of a spec, those that are not 0; and the answer to a case. */
void plan_case_add_spec(text *t, const quire_layer_spec *spec);
void plan_case_add_answer(text *t, const plan_case *c);

#endif
