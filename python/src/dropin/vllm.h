/* vllm.h - quire.vllm's C side: vLLM's Request objects on one side, a quire_sched on the other.
 *
 *      vLLM Request ◄──────── slot ────────► quire_req        one slot for each request that lives,
 *        prompt, params        id, lists         state         found by quire_req_index
 *
 * What changes in every step (status, computed tokens, blocks) lives in the quire_sched alone. A
 * Request that was added reads it from there when it is asked (quire/vllm/request.py), and gets its
 * last values back when it ends. Token lists stay Python's, since everybody reads them: a slot has
 * both and appends to them.
 *
 * Built for one version of CPython, 3.11 or later. The functions of a core hold the GIL throughout.
 */
#ifndef QUIRE_PYTHON_VLLM_H
#define QUIRE_PYTHON_VLLM_H

#include "lists.h"
#include "numbers.h"

typedef struct vllm_slot {
    PyObject *request; /* NULL: nobody is here */
    PyObject *id;
    PyObject *all_tokens; /* Request._all_token_ids and ._output_token_ids */
    PyObject *output_tokens;
    PyObject *trace_headers; /* NULL: None */
    PyObject *kv_params;     /* of a connector, for its last output; NULL: none */
    PyObject *ec_params;     /* the same of an encoder connector */
    PyObject *aux;           /* of an update, taken before a session's next turn; else NULL */
    quire_req req;
    uint32_t num_prompt;
    uint32_t num_computed; /* after the last step that was scheduled, drafts taken as accepted */
    uint32_t num_preemptions;
    uint32_t num_nans; /* in the logits of the last step that counted them */
    uint8_t is_prefill_chunk;
    uint8_t wants_logprobs;
    uint8_t has_events;
    uint8_t has_stop_reason; /* a session that stopped once */
    uint8_t final_status;    /* of one that has finished, and whose blocks a connector keeps */
    uint8_t told_status;     /* when a connector was told of its end: the library forgets it */
    /* Only while one update runs */
    PyObject *generated;  /* borrowed: its list of sampled tokens */
    Py_ssize_t row;       /* its place in the model runner's output */
    Py_ssize_t num_taken; /* tokens of generated that are in the request's lists already */
    uint32_t num_drafted; /* drafts of the step that a grammar did not refuse */
    uint32_t num_accepted;
    uint8_t has_drafted;
    uint8_t wanted_logprobs; /* before a session's next turn */
    uint8_t has_turned;      /* its Request has that turn already */
} vllm_slot;

/* Classes and functions of vLLM's, given when a core is made: X(field, name, whether it may be
 * missing). */
#define VLLM_TYPES(X)                                                                              \
    X(scheduler_output, "SchedulerOutput", 0)                                                      \
    X(new_request_data, "NewRequestData", 0)                                                       \
    X(cached_request_data, "CachedRequestData", 0)                                                 \
    X(engine_core_output, "EngineCoreOutput", 0)                                                   \
    X(prefill_stats, "PrefillStats", 0)                                                            \
    X(finish_reasons, "finish_reasons", 0) /* by quire_finish_reason */                            \
    X(ended, "ended", 0)   /* (request, status, computed, preemptions, is prefill chunk) */        \
    X(turn, "turn", 0)     /* (session): its next input is used; whether it wants logprobs */      \
    X(record, "record", 0) /* (request, event type, timestamp) */                                  \
    X(should_advance, "should_advance", 1) /* of the StructuredOutputManager, in 0.20 */           \
    X(is_ready, "is_ready", 1) /* (request): 1, 0, or -1: never. In 0.32, as are the next two */   \
    X(accept_tokens, "accept_tokens", 1) /* (request, tokens) */                                   \
    X(validate_tokens, "validate_tokens", 1)                                                       \
    X(block_copy, "block_copy", 1) /* KVCacheBlockCopy, in 0.32 */                                 \
    X(requests, "requests", 0)     /* id: Request, shared with the Scheduler */                    \
    X(match, "match", 1)           /* of a connector, from here on; NULL: there is none */         \
    X(alloc, "alloc", 1)                                                                           \
    X(meta, "meta", 1)                                                                             \
    X(finished, "finished", 1)                                                                     \
    X(states_finished, "states_finished", 1) /* (request, blocks, states), in 0.32 */              \
    X(reset, "reset", 1)                                                                           \
    X(told, "told", 1) /* (): what the workers report; the requests received, or None */           \
    X(pending_frees, "pending_frees", 1) /* (): blocks will be free soon, in 0.32; NULL: never */  \
    X(has_image, "has_image", 1) /* of an encoder connector: (request, input); NULL: none */       \
    X(image_finished, "image_finished", 1) /* (request), in 0.32, as are the next three */         \
    X(image_ready, "image_ready", 1)       /* (request, computed tokens); NULL: always */          \
    X(image_freed, "image_freed", 1)       /* (request, input); NULL: not told */                  \
    X(image_lost, "image_lost", 1)         /* (): numbers of requests that end; NULL: none */      \
    X(image_alloc, "image_alloc", 1)                                                               \
    X(image_meta, "image_meta", 1)                                                                 \
    X(event, "event", 1) /* (kind, request, hashes, group, first block, parent, block size) */     \
    X(aux_taken, "aux_taken",                                                                      \
      1) /* (request): what an output has besides, in 0.32; NULL: nothing */                       \
    X(aux_ended, "aux_ended", 1) /* (request): it has ended, or was preempted */                   \
    X(observed, "observed",                                                                        \
      1) /* (request, drafts, accepted ones), in 0.32; NULL: not asked for */                      \
    X(finished_by_client, "finished_by_client", 1) /* client: set of ids; NULL: not asked for */
typedef struct vllm_types {
#define X(field, name, may_be_missing) PyObject *field;
    VLLM_TYPES(X)
#undef X
} vllm_types;

enum {
    VLLM_NAME_SAMPLED,
    VLLM_NAME_INDEX,
    VLLM_NAME_SCHEDULED,
    VLLM_NAME_DRAFTS,
    VLLM_NAME_LOGPROBS,
    VLLM_NAME_STEP,
    VLLM_NUM_NAMES
};

enum { VLLM_MAX_FLIGHT = 64, VLLM_MOST_GROUPS = 64 };

typedef struct vllm_lives vllm_lives;
typedef struct vllm_reports vllm_reports; /* update.c */

typedef struct vllm_core {
    PyObject_HEAD quire_sched *sched;
    quire_hasher *hasher;
    uint32_t num_groups;
    uint32_t max_requests;
    uint32_t max_rows; /* requests in one step */
    uint32_t num_spec_tokens;
    vllm_slot *slots;
    quire_token *sampled; /* max_rows x stride */
    uint32_t stride;      /* num_spec_tokens + 1, or the longest row that ever came */
    uint32_t *num_sampled;
    uint8_t *has_pooled;
    PyObject *finished;              /* ids that ended since the last step */
    PyObject *preempted;             /* ids that a reset preempted since the last step */
    PyObject *names[VLLM_NUM_NAMES]; /* attributes that are asked for often; see core.c */
    PyObject *output;   /* the SchedulerOutput of a connector's meta data, until schedule ends */
    PyObject *error[3]; /* raised by Python inside a call of the library's */
    uint32_t *num_invalid;
    uint32_t *row_slots; /* by row: the slot that was there in the last update, a guess */
    uint64_t flight[VLLM_MAX_FLIGHT]; /* steps without their update, oldest first */
    uint32_t num_flight;
    uint32_t max_flight;
    uint64_t num_foreign;  /* steps that were made by hand */
    vllm_reports *reports; /* of a connector's workers, while update runs */
    int is_updating;
    int is_busy;   /* inside a call that changes it: see guard.c */
    int is_closed; /* an exception left it half done */
    int log_stats;
    uint32_t tells_tokens; /* pipelines: new tokens go back to the first stage */
    uint32_t is_v2;        /* the V2 model runner: resumed requests are told as new ones */
    uint32_t digest_bytes;
    quire_profile profile;
    uint32_t requires_kv_delivery; /* of the connector */
    uint32_t returns_masks;        /* outputs have their sampling masks, in 0.32 */
    uint32_t defers_frees;         /* it loads, and steps overlap: blocks are free after them */
    uint32_t diverges;             /* it supports_divergent_local_hybrid_hits */
    int is_async_load;             /* what the connector answered last */
    int has_sync_loads;            /* in the step that is being made */
    int is_throttled;              /* prompts wait: what schedule was told last */
    vllm_lives *lives;             /* of sampled blocks; NULL: not followed */
    vllm_types types;
} vllm_core;

/* Whether a core makes the objects of vLLM 0.32. */
static inline int vllm_is_0_32(const vllm_core *core)
{
    return core->profile == QUIRE_PROFILE_VLLM_0_32;
}

/* core.c */
extern PyType_Spec vllm_core_spec;
/* An exception for a status that is not QUIRE_OK; always NULL. */
extern PyObject *vllm_raise(int status, const char *what);
/* The same, always -1; and None for QUIRE_OK. */
extern int vllm_refuse(int status, const char *what);
extern PyObject *vllm_done(int status, const char *what);
/* Clears a struct that is nothing but references. */
extern void vllm_clear_all(void *objects, size_t bytes);
/* Sets dict[key], and appends to a list; both give the reference up. value NULL: -1. */
extern int vllm_dict_put(PyObject *dict, PyObject *key, PyObject *value);
extern int vllm_list_put(PyObject *list, PyObject *value);
extern PyObject *vllm_prefix_stats(const quire_prefix_stats *stats);
extern vllm_slot *vllm_slot_of(vllm_core *core, quire_req req);
/* Gives back what a slot holds. */
extern void vllm_slot_clear(vllm_slot *slot);
/* The request has finished: its id is noted. Unless a connector keeps its blocks it is gone from
 * the quire_sched: its last values, its slot. */
extern int vllm_slot_finish(vllm_core *core, vllm_slot *slot, long status, uint32_t client);
/* A request whose blocks were kept is gone now, if it is. */
extern int vllm_slot_end_kept(vllm_core *core, quire_req req);
/* Auxiliary outputs of a request begin again, or end. */
extern int vllm_slot_end_aux(const vllm_core *core, const vllm_slot *slot);

/* guard.c */
/* Makes the call, unless one is under way or the core is closed: then a RuntimeError. */
extern PyObject *vllm_guarded(PyObject *self, PyObject *args, PyCFunction call);

/* config.c */
extern int vllm_read_config(PyObject *given, quire_sched_config *config,
                            quire_hasher_config *hasher, quire_group_config *groups,
                            uint32_t max_groups);
/* A list of numbers in new memory, which the caller frees; NULL and 0 where the dict has none. */
extern int vllm_read_list(PyObject *dict, const char *name, uint32_t **numbers, uint32_t *count);
/* An attribute that is a whole number. */
extern int vllm_read_attribute(PyObject *object, const char *name, uint64_t *value);

/* request.c */
extern PyObject *vllm_core_add(PyObject *self, PyObject *args);
extern PyObject *vllm_core_go_on(PyObject *self, PyObject *args);

/* step.c */
/* The SchedulerOutput of a step. */
extern PyObject *vllm_make_output(vllm_core *core, const quire_step *step);
/* A tuple of lists, one for each group; None where there is no block, if that may be. */
extern PyObject *vllm_block_ids(const quire_block_span *spans, uint32_t num_groups,
                                int may_be_none);
extern PyObject *vllm_core_schedule(PyObject *self, PyObject *args);

/* update.c */
extern void vllm_flight_end(vllm_core *core, uint64_t step);
/* NULL without an exception: the request has ended. */
extern vllm_slot *vllm_slot_of_id(vllm_core *core, PyObject *id);
extern PyObject *vllm_core_update(PyObject *self, PyObject *args);
/* Numbers of requests that were received, instead of those that the workers told. */
extern int vllm_take_received(vllm_core *core, PyObject *list);

/* outputs.c */
/* What the workers give a request besides tokens: a new reference. */
extern PyObject *vllm_slot_take_aux(const vllm_core *core, vllm_slot *slot);
/* A session takes its next input, in its Request. */
extern int vllm_slot_turn(vllm_core *core, vllm_slot *slot, uint32_t num_prompt);
/* What makes vLLM's SchedulerStats; None for NULL. */
extern PyObject *vllm_stats(const vllm_core *core, const quire_sched_stats *stats);

/* connector.c */
extern quire_connector vllm_connector(vllm_core *core);
extern quire_encoder_connector vllm_encoder_connector(vllm_core *core);

/* lives.c */
extern PyObject *vllm_core_follow(PyObject *self, PyObject *args);
extern PyObject *vllm_core_take_lives(PyObject *self, PyObject *unused);
/* What was not taken, and all of it. */
extern void vllm_lives_forget(vllm_core *core);
extern void vllm_lives_free(vllm_core *core);

/* events.c */
extern void vllm_listen(vllm_core *core, quire_cache_config *config);

/* outside.c */
extern PyObject *vllm_core_drafts(PyObject *self, PyObject *args);
extern PyObject *vllm_core_further_hashes(PyObject *self, PyObject *args);
extern PyObject *vllm_core_other_sizes(PyObject *self, PyObject *unused);
/* A SchedulerOutput that the scheduler did not make, as a step in flight. */
extern int vllm_note_step(vllm_core *core, PyObject *output, uint64_t *number);
/* Tokens of the request's hit behind those that the connector is told of.
 * A load must bring more. */
extern uint32_t vllm_asked_part(const vllm_core *core);
/* A connector may have cut the tokens of a request that was never scheduled. */
extern int vllm_slot_cut(vllm_core *core, vllm_slot *slot);

/* blocks.c */
/* A block_hash of vLLM's: the hash, then its group in four bytes. None without a hash. */
extern PyObject *vllm_hash_with_group(quire_bytes hash, uint32_t group);
extern PyObject *vllm_core_block(PyObject *self, PyObject *args);
extern PyObject *vllm_core_cached_block(PyObject *self, PyObject *args);
extern PyObject *vllm_core_next_free(PyObject *self, PyObject *args);
extern PyObject *vllm_core_num_free(PyObject *self, PyObject *unused);
extern PyObject *vllm_core_touch(PyObject *self, PyObject *args);
extern PyObject *vllm_core_free_blocks(PyObject *self, PyObject *args);

/* calls.c */
extern quire_grammar vllm_grammar(vllm_core *core);
extern void vllm_keep_error(vllm_core *core);
/* What a callback answered is given up; where it raised, that is kept. The second: its truth, or
 * `usual` where it raised. */
extern void vllm_drop_or_keep(vllm_core *core, PyObject *answer);
extern int vllm_truth_or_keep(vllm_core *core, PyObject *answer, int usual);
/* Raises what Python raised inside a call of the library's: -1; 0 when nothing. */
extern int vllm_raise_kept(vllm_core *core);
/* The first count tokens of generated belong to the request now. */
extern int vllm_slot_take(vllm_slot *slot, Py_ssize_t count);
extern int vllm_slot_sync(vllm_core *core, vllm_slot *slot);
extern PyObject *vllm_core_update_drafts(PyObject *self, PyObject *args);

/* lists.c */
/* A number of 32 bits of any kind; -1 and an exception. */
extern int vllm_read_token(PyObject *number, quire_token *token);
/* Tokens [first, first + count) of a list, which has them. -1 and an exception where one is no int
 * of 32 bits. */
extern int vllm_read_tokens(PyObject *list, Py_ssize_t first, Py_ssize_t count,
                            quire_token *tokens);

/* hasher.c */
extern PyType_Spec vllm_hasher_spec;

#endif
