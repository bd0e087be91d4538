/* sched/requests/request.h - one request: what a step needs of it, its text, its names.
 *
 *      slots      requests[i], waiters[i], pages[i], blobs[i], drafts[i]: one index for all
 *      quire_req  generation << 32 | (index + 1)
 *
 * What a request brings that has no fixed size (names, stop tokens, features) is copied into its
 * blob, max_request_bytes at a fixed place. Tokens and hashes are in pages (sched/requests/text.h).
 *
 *      status                      in
 *      WAITING, PREEMPTED          `waiting`, or `skipped` when something held it up
 *      WAITING_FOR_*               `skipped`
 *      RUNNING                     `running`
 *      FINISHED_*                  nothing; its blocks are being sent, or loads still arrive
 *
 *      num_computed <= num_tokens + num_placeholders (+ drafts of the step in flight)
 */
#ifndef QR_SCHED_REQUESTS_REQUEST_H
#define QR_SCHED_REQUESTS_REQUEST_H

#include "sched/encoder/encoder.h"
#include "sched/requests/text.h"

#include <quire/sched.h>

typedef struct qr_session_input qr_session_input;

/* When a request ends by itself, beside max_tokens. */
typedef struct qr_stop_rules {
    const quire_token *tokens;
    uint32_t num_tokens;
    uint32_t min_tokens;
    uint32_t repetition_max_pattern; /* 0: repetition does not end it */
    uint32_t repetition_min_pattern;
    uint32_t repetition_min_count;
    quire_token eos_token_id;
    bool has_eos;
} qr_stop_rules;

/* What has stopped a request, where that is told beside the reason. */
enum qr_stopper { QR_STOPPED_BY_NOTHING, QR_STOPPED_BY_TOKEN, QR_STOPPED_BY_REPETITION };

/* A load into the blocks of a request that waits for it, as far as the engine has told. */
enum qr_load {
    QR_LOAD_OPEN,    /* there is none, or nothing was told yet */
    QR_LOAD_FAILING, /* blocks of it have failed; the rest still arrives */
    QR_LOAD_DONE,
    QR_LOAD_FAILED, /* done, but for the blocks that have failed */
    QR_LOAD_LEFT    /* the request has ended, the load has not */
};

/* Whether a request that does not run has blocks; an idle one is a session that waits for input. */
enum qr_holder { QR_HOLDS_NOTHING, QR_HOLDS_BLOCKS, QR_HOLDS_IDLE };

typedef struct qr_request {
    /* Of every step: two cache lines */
    _Alignas(64) quire_cache_request kv; /* seq, num_tokens, num_computed_tokens, ... */
    uint32_t num_prompt_tokens;
    uint32_t num_placeholders;
    uint32_t num_drafts; /* for its next step; the tokens are in sched->drafts */
    uint32_t max_tokens;

    uint8_t status;
    bool is_in_use;
    bool is_prefill_chunk;
    bool discards_async; /* the next output is of a step that a reset made void */
    bool use_grammar;
    bool is_pooling;
    bool is_resumable;
    bool has_eos;
    bool has_more_stops;    /* than EOS and length: see stops */
    bool is_plain;          /* no features, no grammar, not pooling, no step of it made void */
    bool has_prefill_stats; /* not yet told */
    uint8_t stopped_by;     /* qr_stopper; kept from turn to turn of a session */
    uint32_t generation;
    uint32_t client_index;
    uint32_t num_preemptions;
    uint32_t last_step; /* the last one that it was scheduled in, 32 bits of it; 0: none */
    quire_token eos_token_id;
    qr_text text;

    /* Of some steps */
    uint32_t num_features;
    qr_stop_rules stops;
    qr_feature *features;
    qr_flag_chain flags;     /* of the features */
    quire_extra_keys extra;  /* with the features, as the hasher wants them */
    quire_bytes embeds_tail; /* see hashes.c; absent without embeddings */
    bool has_extra;
    uint8_t load;         /* qr_load */
    bool ends_session;    /* no more inputs follow */
    bool has_failed_load; /* the connector is not asked again (the default) */
    bool awaits_sending;  /* ended, but the connector still reads its blocks */
    bool is_offloaded;    /* until quire_sched_resume it is not admitted */
    bool has_promise;     /* of pages, see num_promised_pages */
    uint8_t holder;       /* qr_holder: as what sched->num_holders counts it */
    uint32_t num_local_cached;
    uint32_t num_external_cached;
    uint32_t lora_id;
    quire_token stop_reason;
    uint32_t first_input; /* of a session: inputs that wait, QR_NIL: none */
    uint32_t last_input;
    uint32_t blob_used;
    uint32_t load_end;           /* in tokens */
    uint32_t num_promised_pages; /* that it may still take, once it has run */
    uint32_t num_saved;          /* swapped out: tokens whose KV is in host slots; 0: none */
    uint32_t first_saved;        /* the first of those slots */
    uint32_t
        num_hosted;    /* tokens that the connector had, or was to have, when it lost its blocks */
    uint32_t num_kept; /* of a session that stopped: tokens that its next input follows */
    uint64_t gave_way_in;      /* the round in which it released its blocks, see deadlock.h */
    uint64_t first_valid_step; /* outputs of steps before it were made void */
    uint64_t pin_ns;           /* when it ends, its blocks are kept for so long; 0: not */
    uint64_t load_step; /* began to load into its blocks, and how that went is not known; 0: none */
    uint64_t last_fence;    /* fences: the last of its steps, as they are counted there */
    uint64_t next_decode;   /* pace: the first step in which it may decode again */
    uint32_t shared_prefix; /* tokens that other requests have in common with it; 0: not known */
    uint32_t num_in_flight; /* counts_in_flight: tokens of steps that were not updated yet */
    uint32_t num_stale;     /* delivers_stale: of them, those scheduled before it was preempted */
    bool drops_stale;       /* and their outputs do not count */
    bool is_doomed;         /* the next update ends it with an error, see step.h */
    bool reports_hits;      /* each lookup tells of the blocks that it found */
    bool is_prefilling;     /* counts_in_flight: it loads, or has computed a part of its prompt */
} qr_request;

_Static_assert(offsetof(qr_request, status) == 64, "the first line");
_Static_assert(offsetof(qr_request, num_features) == 128, "and the second");

/* EOS stands with what every step looks at. */
static inline void qr_request_set_stops(qr_request *r, const qr_stop_rules *stops)
{
    r->stops = *stops;
    r->has_eos = stops->has_eos;
    r->eos_token_id = stops->eos_token_id;
    r->has_more_stops =
        stops->num_tokens > 0 || stops->min_tokens > 0 || stops->repetition_max_pattern > 0;
}

/* Outputs of steps up to `step` do not count. */
static inline void qr_request_void_steps(qr_request *r, uint64_t step)
{
    r->first_valid_step = step + 1;
    r->is_plain = false;
}

/* Waits for a load that is still writing to its blocks. */
static inline bool qr_request_is_loading(const qr_request *r)
{
    return r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS && r->load < QR_LOAD_DONE;
}

static inline bool qr_request_is_finished(const qr_request *r)
{
    return r->status > QUIRE_REQ_PREEMPTED;
}

/* Waits for something else than room. */
static inline bool qr_request_is_held(const qr_request *r)
{
    return r->status == QUIRE_REQ_WAITING_FOR_GRAMMAR ||
           r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS ||
           r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
}

/* Computed tokens whose values are known: none where vLLM's stale placeholders are more. */
static inline uint32_t qr_request_certain_tokens(const qr_request *r)
{
    uint32_t computed = r->kv.num_computed_tokens;
    return computed > r->num_placeholders ? computed - r->num_placeholders : 0;
}

/* Computed tokens of steps that were updated; all where nobody counts steps in flight. */
static inline uint32_t qr_request_processed_tokens(const qr_request *r)
{
    uint32_t computed = r->kv.num_computed_tokens;
    return computed > r->num_in_flight ? computed - r->num_in_flight : 0;
}

/* Tokens of a step are in flight no longer. True: the step is older than the request's last
 * preemption, or than the end of a session's turn. */
static inline bool qr_request_drain(qr_request *r, uint32_t num_tokens)
{
    r->num_in_flight -= num_tokens < r->num_in_flight ? num_tokens : r->num_in_flight;
    bool is_stale = r->num_stale > 0;
    r->num_stale -= num_tokens < r->num_stale ? num_tokens : r->num_stale;
    return is_stale;
}

/* A request that runs or was preempted, and was in no step yet: a fork (fork.c). */
static inline bool qr_request_is_untold(const qr_request *r)
{
    return r->last_step == 0;
}

static inline uint32_t qr_request_num_outputs(const qr_request *r)
{
    return r->kv.num_tokens - r->num_prompt_tokens;
}

#endif
