/* engine/proof.h - random engines, one after the other, each compared with the reference.
 *
 *      a seed ─► setup, model, texts ─► reference of all requests ─► engine ─► every bit compared
 *                                                        └─ restart ─► engine, with the same file
 */
#ifndef ENGINE_PROOF_H
#define ENGINE_PROOF_H

#include "engine/engine.h"

typedef struct engine_proof {
    const engine_backend_ops *ops;
    uint64_t num_requests;
    uint64_t seed;
    uint32_t per_engine; /* requests at most; 0 = 120, and no more than that */
    uint32_t num_jobs;   /* threads, each with engines of its own */
    engine_switches switches;
    engine_break broken;
    uint64_t quirks; /* bugs of vLLM 0.20.0 to reproduce */
    bool has_worker; /* --worker */
    uint64_t enough; /* more differing tokens than this are not looked for, where it is broken */
    bool is_verbose;
    bool is_part;      /* too few requests for all that is on to be at work */
    bool has_redis;    /* set: a server was found */
    bool is_disabled;  /* set: the backend is not for this machine */
    char message[512]; /* set, where it failed */
} engine_proof;

/* 0: it ran to its end, and counts say what came out; 1: something that must not fail did. */
int engine_prove(engine_proof *proof, engine_counts *counts);

/* One engine alone, as its seed draws it. */
int engine_prove_one(engine_proof *proof, uint64_t seed, engine_counts *counts);

/* Mechanisms that were on and never at work, and what differs: 0 where there is nothing of that.
 * Prints each. */
int engine_proof_judge(const engine_proof *proof, const engine_counts *counts);
void engine_proof_print(const engine_counts *counts);

#endif
