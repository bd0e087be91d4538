/* connector.h - quire._connector: a quire_planner and a quire_worker for vLLM's KV connector.
 *
 *      quire/vllm/tiers/scheduler.py ── Planner ── plan (bytes) ──► Worker ── .../worker.py
 *                                     ◄── report (bytes) ──────────
 *
 * Known     what the planner knows of one vLLM Request: its hashes as far as they were read, and
 *           the blocks that it has, for each group.
 *
 * Nothing is done in Python for each block. The functions of a Planner hold the GIL; those of a
 * Worker release it where they copy or wait.
 */
#ifndef QUIRE_PYTHON_CONNECTOR_H
#define QUIRE_PYTHON_CONNECTOR_H

#include "numbers.h"

#include <quire/planner.h>
#include <quire/tier_file.h>
#include <quire/tier_object.h>
#include <quire/tier_redis.h>
#include <quire/worker.h>

enum { CONNECTOR_MAX_GROUPS = 64 };

typedef struct known {
    PyObject_HEAD PyObject *request;
    quire_req req;
    uint32_t num_groups;
    int is_loading; /* vLLM waits for its load */
    int has_failed; /* a load of it: nothing more is loaded for it */
    int is_asked;   /* it was the first of the queue once */
    uint64_t tier_tokens[QUIRE_TRANSFER_MAX_TIERS]; /* of its last hit: from which tier they came */
    int has_run;                                    /* it had blocks: the next ones replace them */
    unsigned char *hashes;
    uint32_t num_hashes;
    uint32_t max_hashes;
    uint32_t num_read; /* hashes that the request had computed when the planner was told last */
    quire_block *blocks[CONNECTOR_MAX_GROUPS];
    uint32_t counts[CONNECTOR_MAX_GROUPS];
    uint32_t capacities[CONNECTOR_MAX_GROUPS];
    uint32_t told[CONNECTOR_MAX_GROUPS]; /* blocks that the planner was told of */
} known;

typedef struct planner_group {
    uint32_t block_size; /* tokens, over all ranks of context parallelism */
    int is_window;       /* blocks leave a request before it ends */
} planner_group;

typedef struct planner {
    PyObject_HEAD quire_planner *planner;
    uint32_t num_groups;
    planner_group groups[CONNECTOR_MAX_GROUPS];
    int has_windows;
    uint32_t hash_block_size;
    uint32_t digest_bytes;
    uint32_t max_requests;
    known **by_index;    /* by quire_req_index; strong */
    PyObject *pool;      /* vLLM's blocks, by number; NULL: not bound */
    PyObject *events;    /* a list; NULL: not asked for */
    known *asking;       /* whom the library works for now */
    uint32_t last_found; /* position of the last block that an event told of */
    uint64_t counted;    /* the sum of all counters, when it was asked for */
} planner;

/* module.c */
extern PyTypeObject *connector_known_type;
extern PyObject *connector_raise(int status, const char *what);
extern int connector_refuse(int status, const char *what);

/* known.c */
extern PyType_Spec connector_known_spec;
extern known *known_new(planner *p, PyObject *request);
/* Reads the hashes that the request has got since. -1 and an exception. */
extern int known_read_hashes(planner *p, known *k);
/* All blocks, or more of them: a tuple of lists, one for each group, of ids or of vLLM's blocks;
 * None: no more. */
extern int known_set_blocks(known *k, PyObject *ids);
extern int known_add_blocks(known *k, PyObject *ids);
extern void known_spans(const known *k, quire_block_span *spans);
/* The planner forgets what it has stored of the request: its blocks are others now. */
extern int known_begin_again(planner *p, known *k);

/* stores.c */
/* The first num_computed tokens are computed. */
extern int planner_tell_computed(planner *p, known *k, uint32_t num_computed);
extern PyObject *planner_new_requests(PyObject *self, PyObject *args);
extern PyObject *planner_cached_requests(PyObject *self, PyObject *args);
extern PyObject *planner_finished(PyObject *self, PyObject *args);

/* events.c */
extern void planner_on_event(void *user, const quire_event *event);
extern void planner_on_tier_event(void *user, uint32_t tier, const quire_event *event);
extern PyObject *planner_take_events(PyObject *self, PyObject *unused);

/* stats.c */
extern PyObject *planner_stats(PyObject *self, PyObject *unused);
extern PyObject *planner_has_counted(PyObject *self, PyObject *unused);
extern PyObject *connector_worker_stats(const quire_worker *worker, quire_tier *const *tiers,
                                        uint32_t num_tiers);
/* counted: their sum, when it was asked for. */
extern PyObject *connector_worker_has_counted(const quire_worker *worker, quire_tier *const *tiers,
                                              uint32_t num_tiers, uint64_t *counted);

/* planner.c */
extern PyType_Spec connector_planner_spec;

/* tiers.c */
/* Opens the tier that a dict describes. -1 and an exception. */
extern int connector_open_tier(PyObject *given, const quire_tier_config *common,
                               uint64_t block_bytes, quire_tier **tier);
extern PyObject *connector_fingerprint(PyObject *module, PyObject *identity);
extern int connector_read_u64(PyObject *dict, const char *name, uint64_t *value);
/* NULL where the dict has none; valid as long as the dict. -1 and an exception. */
extern int connector_read_text(PyObject *dict, const char *name, const char **text);

/* worker.c */
extern PyType_Spec connector_worker_spec;

#endif
