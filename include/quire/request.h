/* quire/request.h - a request of the scheduler: what its caller gives, and what can be asked of it.
 *
 *      quire_request_params ──► quire_sched_add ──► quire_req ──► quire_req_info
 */
#ifndef QUIRE_REQUEST_H
#define QUIRE_REQUEST_H

#include "cache.h"
#include "config.h"
#include "hash.h"
#include "observe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_req_status {
    QUIRE_REQ_WAITING = 1,
    QUIRE_REQ_WAITING_FOR_GRAMMAR = 2,
    QUIRE_REQ_WAITING_FOR_REMOTE_KVS = 3,
    QUIRE_REQ_WAITING_FOR_STREAMING = 4,
    QUIRE_REQ_RUNNING = 5,
    QUIRE_REQ_PREEMPTED = 6,
    QUIRE_REQ_FINISHED_STOPPED = 7, /* finished, from here on */
    QUIRE_REQ_FINISHED_LENGTH = 8,
    QUIRE_REQ_FINISHED_ABORTED = 9,
    QUIRE_REQ_FINISHED_IGNORED = 10,
    QUIRE_REQ_FINISHED_ERROR = 11,
    QUIRE_REQ_FINISHED_REPETITION = 12
} quire_req_status;

/* An image, sound or video: its placeholder tokens, and the embeddings that the encoder makes of
 * it. With is_encoder_decoder it is not in the prompt: its offset is 0, and it may be longer. */
typedef struct quire_mm_input { /* final */
    quire_mm_feature feature;
    uint32_t num_embeds; /* 0 = one for each placeholder token */
    /* One flag for each placeholder: not 0 where an embedding goes; copied. NULL: all placeholders,
     * required with is_encoder_decoder. */
    const uint8_t *is_embed;
} quire_mm_input;

typedef struct quire_request_params {
    size_t size;
    quire_bytes id;            /* 1 to 256 bytes, unique; PRIORITY breaks ties by it */
    const quire_token *prompt; /* copied */
    uint32_t num_prompt_tokens;
    uint32_t max_tokens; /* output tokens; 0 = as many as fit in max_model_len */
    uint32_t min_tokens;
    uint32_t has_eos;
    quire_token eos_token_id;
    const quire_token *stop_token_ids;
    uint32_t num_stop_token_ids;
    uint32_t repetition_max_pattern; /* 0: no repetition rule */
    uint32_t repetition_min_pattern;
    uint32_t repetition_min_count;
    int32_t priority;    /* the smallest runs first */
    double arrival_time; /* finite */
    uint32_t client_index;
    quire_bytes lora_name;
    uint32_t lora_id; /* 0: no adapter */
    quire_bytes cache_salt;
    const quire_mm_input *mm_inputs;
    uint32_t num_mm_inputs;
    uint32_t use_grammar;
    uint32_t is_pooling;   /* ends with its first output; max_tokens is 1 */
    uint32_t is_resumable; /* 1: a session: more inputs follow, see quire_sched_continue */
    uint32_t skip_reading_prefix;
    void *user; /* returned by quire_sched_get_user, in outputs and in events */

    /* Hashes of the prompt's first num_hashes blocks of hash_block_size tokens, one after the
     * other, made with the scheduler's hasher. The scheduler does not check them; it computes the
     * missing hashes. Not read without prefix caching. */
    const unsigned char *hashes;
    uint32_t num_hashes;
    /* A prompt of embeddings: num_prompt_tokens rows of prompt_embed_bytes bytes, read during the
     * call to hash the blocks after num_hashes and the block that output will fill. prompt may be
     * NULL: its tokens are then zeros. Not for sessions. */
    const void *prompt_embeds;
    size_t prompt_embed_bytes;
    quire_bytes lora_path; /* of the adapter; hashed in QUIRE_PROFILE_VLLM_0_32 alone */
    /* 1: each lookup that finds blocks of the request tells so, with QUIRE_EVENT_REPORTED (vLLM:
     * kv_cache_report_mode "full"). */
    uint32_t kv_cache_report_full;
    /* The first num_hidden_tokens tokens of the prompt are not given to the scheduler, and are
     * zeros for all calls that read them. prompt begins behind them, and may be NULL if nothing is
     * left. With prefix caching, hashes has all their blocks: QUIRE_E_RANGE if num_hidden_tokens is
     * above num_hashes * hash_block_size. QUIRE_E_ARGUMENT for sessions and with prompt_embeds. A
     * simulator, which does not use tokens, saves most of a request's memory. */
    uint32_t num_hidden_tokens;
} quire_request_params;

#define QUIRE_REQUEST_PARAMS_INIT QUIRE_SIZED_INIT(quire_request_params)

typedef struct quire_req_info {
    size_t size;
    quire_req_status status;
    uint32_t num_tokens;
    uint32_t num_prompt_tokens;
    uint32_t num_computed_tokens;
    uint32_t num_output_placeholders;
    uint32_t num_spec_tokens;
    uint32_t num_preemptions;
    uint32_t client_index;
    uint32_t lora_id;
    int32_t priority;
    double arrival_time;
    quire_bytes id;
    quire_seq seq;
    /* Tokens whose KV is kept in host slots while the request waits, or was saved by the connector
     * at the preemption. What the connector has evicted since is computed again. */
    uint32_t num_swapped_tokens;
    quire_location location;
    uint32_t is_offloaded; /* 1: it waits for quire_sched_resume */
    void *user;            /* of its params */
    /* QUIRE_PROFILE_VLLM_0_32, otherwise 0: tokens of steps that were not updated yet; of these,
     * the tokens of steps before the last preemption; 1: outputs of these steps are dropped. */
    uint32_t num_in_flight_tokens;
    uint32_t num_stale_tokens;
    uint32_t drops_stale;
} quire_req_info;

#define QUIRE_REQ_INFO_INIT QUIRE_SIZED_INIT(quire_req_info)

#ifdef __cplusplus
}
#endif
#endif
