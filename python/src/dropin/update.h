/* update.h - what the two halves of an update share: update.c reads, outputs.c makes vLLM's
 * objects. */
#ifndef QUIRE_PYTHON_UPDATE_H
#define QUIRE_PYTHON_UPDATE_H

#include "vllm.h"

/* What is read from the model runner's output; all owned. */
typedef struct update_input {
    PyObject *sampled;
    PyObject *index;
    PyObject *scheduled;
    PyObject *logprobs;        /* NULL: None */
    PyObject *prompt_logprobs; /* NULL: empty */
    PyObject *token_logprobs;  /* of some token ids, in 0.32; NULL: empty */
    PyObject *pooled;          /* NULL: none */
    PyObject *nans;            /* NULL: None */
    PyObject *masks;           /* which tokens could be sampled, in 0.32; NULL: not asked for */
    PyObject *drafts;          /* NULL: empty */
    PyObject *invalid;         /* drafts that a grammar refused; NULL: none */
} update_input;

/* outputs.c */
/* A dict of lists of EngineCoreOutput, by client. */
extern PyObject *vllm_add_outputs(vllm_core *core, const update_input *input,
                                  const quire_outputs *made);

#endif
