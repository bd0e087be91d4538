/* sched/settings.h - what a scheduler was created with: limits, choices and callbacks. */
#ifndef QR_SCHED_SETTINGS_H
#define QR_SCHED_SETTINGS_H

#include "base/quirks.h"
#include "base/rules.h"

#include <quire/sched.h>

/* Written once, when the scheduler is created. */
typedef struct qr_settings {
    quire_policy policy;
    uint32_t max_num_seqs;
    uint32_t max_scheduled;
    uint32_t max_model_len;
    uint32_t long_prefill_threshold;
    uint32_t num_spec_tokens;
    uint32_t num_lookahead;
    uint32_t max_loras;
    uint32_t encoder_budget;
    uint32_t mamba_block_size;     /* of align mode; 0: steps are not aligned */
    uint32_t checkpoint_alignment; /* of states inside a chunk; 0: all layers write none */
    uint32_t hash_block_size;
    uint32_t max_requests;
    uint32_t max_request_bytes;
    uint32_t max_features; /* of one request */
    uint32_t max_batches;
    uint32_t max_finished;
    uint32_t max_loading;
    uint64_t quirks;
    qr_rules rules;
    uint32_t max_active;        /* requests that may run, with sessions that wait for input */
    uint32_t max_input;         /* tokens of a step with the slots for drafts */
    uint32_t draft_slots;       /* of each request in a step */
    uint32_t prefill_lookahead; /* tokens behind a chunk that the draft model reads */
    uint32_t num_sampled;       /* tokens that a step adds beside drafts: 0 for pooling models */
    bool adaptive_threshold;
    bool chunked_prefill;
    bool reserve_full_sequence;
    bool is_async;
    bool is_encoder_decoder;
    bool is_encoder_only; /* a request ends with its prompt */
    bool disable_chunked_mm;
    bool use_eagle;
    bool keeps_tails; /* the Mamba state at the prompt's last hash is kept: hits may end there */
    bool keeps_junctions; /* and the one at the end of what requests have in common */
    bool zeroes_blocks;
    bool log_stats;
    bool counts_stats; /* log_stats is on, or there is a monitor */
    bool lists_finished;
    bool fails_on_load_error;
    bool uses_pressure;
    bool can_unschedule; /* the victim may be in the step: not LIFO, or choose_victim */
    quire_victim victim; /* as resolved: LIFO, PRIORITY or LRU */
    uint32_t (*choose_victim)(void *user, const quire_req *candidates, uint32_t num);
    void *victim_user;
} qr_settings;

/* The callbacks, and whether one of them runs now. */
typedef struct qr_partners {
    bool has_connector;
    bool has_encoder_connector;
    bool has_grammar;
    bool is_inside; /* a call runs that may run callbacks: these must not change the scheduler */
    quire_req asked_req; /* the connector is asked about it, and may cut its prompt; 0: none */
    uint32_t asked_part; /* of it: tokens of its hit that the connector is not told of */
    quire_connector connector;
    quire_encoder_connector encoder_connector;
    quire_grammar grammar;
    quire_prefix_stats connector_stats; /* tokens found by the connector, since the last update */
} qr_partners;

#endif
