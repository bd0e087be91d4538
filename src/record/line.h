/* record/line.h - the lines in the ring, as the engine's thread writes them.
 *
 *      | qr_line | fields of the kind | arrays, one after the other |
 */
#ifndef QR_RECORD_LINE_H
#define QR_RECORD_LINE_H

#include "record/ring.h"

typedef enum qr_line_kind {
    QR_LINE_REQUEST = 1, /* 0 is a pad */
    QR_LINE_SCHEDULE,
    QR_LINE_UPDATE,
    QR_LINE_DRAFTS,
    QR_LINE_END,
    QR_LINE_FINISH,
    QR_LINE_RESET,
    QR_LINE_SET,
    QR_LINE_LOST
} qr_line_kind;

enum {
    QR_REQUEST_HAS_EOS = 1,
    QR_REQUEST_GRAMMAR = 2,
    QR_REQUEST_POOLING = 4,
    QR_REQUEST_RESUMABLE = 8,
    QR_REQUEST_SKIPS_PREFIX = 16
};

enum { QR_NUM_NAMES = 3 }; /* adapter, salt, session */

/* Then hashes, the names, the inputs, and the inputs' identifiers. */
typedef struct qr_line_request {
    qr_line line;
    double arrival_time;
    uint32_t req;
    uint32_t num_prompt_tokens;
    uint32_t max_tokens;
    uint32_t min_tokens;
    uint32_t num_stop_tokens;
    int32_t priority;
    uint32_t client_index;
    uint32_t flags;
    uint32_t num_hashes;
    uint32_t hash_bytes;
    uint32_t name_bytes[QR_NUM_NAMES];
    uint32_t num_inputs;
} qr_line_request;

typedef struct qr_line_input {
    uint32_t offset;
    uint32_t length;
    uint32_t num_embeds;
    uint32_t identifier_bytes;
} qr_line_input;

/* Then reqs, num_tokens, preempted, and the pairs: new, resumed, drafts, encoder. */
typedef struct qr_line_schedule {
    qr_line line;
    uint64_t step;
    uint32_t num_reqs;
    uint32_t num_preempted;
    uint32_t num_new;
    uint32_t num_resumed;
    uint32_t num_drafts;
    uint32_t num_encoder;
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_free_blocks;
    uint32_t throttle_prefills;
} qr_line_schedule;

/* Then num_sampled. */
typedef struct qr_line_update {
    qr_line line;
    uint64_t step;
    uint64_t num_reqs; /* 0: one token for each */
} qr_line_update;

/* DRAFTS: then pairs. FINISH: then reqs. LOST: number lines. RESET: flags. SET: a pause. */
typedef struct qr_line_list {
    qr_line line;
    uint32_t number;
    uint32_t reason;
} qr_line_list;

/* Then hashes. */
typedef struct qr_line_end {
    qr_line line;
    uint32_t req;
    uint32_t reason;
    uint32_t num_output_tokens;
    uint32_t num_hashes;
    uint32_t hash_bytes;
    uint32_t zero;
} qr_line_end;

#endif
