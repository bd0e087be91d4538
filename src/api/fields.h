/* api/fields.h - the range of every field that a caller fills in: one table.
 *
 *      NUMBER(field, least, most)   an integer or an enum
 *      REAL(field, least, most)     a double; NaN is in no range
 *      FLAG(field)                  0 or not 0; every value is fine
 *      ANY(field)                   pointers, callbacks, tokens; and what the comment says
 *
 * The checks of fields.c and the tests (tests/api/fields_kit.c) are both made from it. A field that
 * has no row here is found by tests/style/public_fields.py. What relates two fields, or follows
 * from the state of a handle beyond `limits`, is checked by the room that the struct belongs to.
 *
 * Configs: 0 stands for a default where `least` is 0. `size` is checked by base/config.h.
 */
#ifndef QR_API_FIELDS_H
#define QR_API_FIELDS_H

#include "base/refuse.h"
#include "sched/sched.h"

#include <quire/model.h>
#include <quire/plan.h>
#include <quire/table.h>

#include <float.h>

/* What a handle says about the numbers given to it. */
typedef struct qr_field_limits {
    uint32_t max_model_len;
    uint32_t max_prompt_tokens;
    uint32_t max_encoder_tokens;
    uint32_t first_hash;      /* the most that a request's first_hash may be */
    uint32_t longest_feature; /* tokens */
    uint32_t max_hashes;      /* of a prompt */
    uint32_t max_features;    /* of a request */
    uint32_t max_stop_tokens;
} qr_field_limits;

/* ---- pool and table ---- */

#define QR_FIELDS_quire_pool_config(NUMBER, REAL, FLAG, ANY)                                       \
    ANY(size)                                                                                      \
    NUMBER(num_blocks, 1, QUIRE_MAX_BLOCKS)                                                        \
    NUMBER(enable_caching, QUIRE_DEFAULT, QUIRE_OFF)                                               \
    NUMBER(hash_bytes, 0, QR_MAX_HASH_BYTES)                                                       \
    ANY(on_event)                                                                                  \
    ANY(event_user)                                                                                \
    ANY(hooks)                                                                                     \
    NUMBER(profile, QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32)

#define QR_FIELDS_quire_cache_full_params(NUMBER, REAL, FLAG, ANY)                                 \
    ANY(size)                                                                                      \
    ANY(blocks)                                                                                    \
    NUMBER(num_cached_blocks, 0, UINT32_MAX)                                                       \
    NUMBER(num_full_blocks, 0, UINT32_MAX)                                                         \
    ANY(hashes)                                                                                    \
    NUMBER(hash_len, 0, QR_MAX_HASH_BYTES)                                                         \
    NUMBER(num_hashes, 0, UINT32_MAX)                                                              \
    NUMBER(group_id, 0, QR_MAX_GROUP_ID)                                                           \
    FLAG(block_size)                                                                               \
    ANY(request)                                                                                   \
    NUMBER(first_hash, 0, UINT32_MAX)

#define QR_FIELDS_quire_table_config(NUMBER, REAL, FLAG, ANY)                                      \
    ANY(size)                                                                                      \
    NUMBER(max_num_reqs, 1, UINT32_MAX)                                                            \
    NUMBER(max_num_blocks_per_req, 1, INT32_MAX)                                                   \
    NUMBER(max_num_batched_tokens, 1, UINT32_MAX)                                                  \
    NUMBER(block_size, 0, INT32_MAX)                                                               \
    NUMBER(kernel_block_size, 0, INT32_MAX)                                                        \
    NUMBER(pcp_world_size, 0, INT32_MAX)                                                           \
    NUMBER(pcp_rank, 0, INT32_MAX)                                                                 \
    NUMBER(dcp_world_size, 0, INT32_MAX)                                                           \
    NUMBER(dcp_rank, 0, INT32_MAX)                                                                 \
    NUMBER(cp_kv_cache_interleave_size, 0, INT32_MAX)

/* ---- hashes ---- */

#define QR_FIELDS_quire_hasher_config(NUMBER, REAL, FLAG, ANY)                                     \
    ANY(size)                                                                                      \
    NUMBER(algo, QUIRE_HASH_SHA256, QUIRE_HASH_QUIRE128)                                           \
    NUMBER(block_size, 0, QR_HASH_MAX_BLOCK)                                                       \
    NUMBER(profile, QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32)                                \
    NUMBER(seed.len, 0, QR_HASH_MAX_SEED)                                                          \
    NUMBER(none_hash.len, 0, QR_HASH_MAX_PARENT)                                                   \
    NUMBER(max_extra_bytes, 0, QR_HASH_MAX_EXTRA)                                                  \
    ANY(hooks)

#define QR_FIELDS_quire_mm_feature(NUMBER, REAL, FLAG, ANY)                                        \
    NUMBER(identifier.len, 0, QR_MAX_IDENTIFIER_BYTES)                                             \
    NUMBER(offset, 0, limits->max_model_len)                                                       \
    NUMBER(length, 0, limits->longest_feature)

#define QR_FIELDS_quire_extra_key(NUMBER, REAL, FLAG, ANY)                                         \
    NUMBER(kind, QUIRE_KEY_LORA_NAME, QUIRE_KEY_LORA_PATH)                                         \
    ANY(value)                                                                                     \
    ANY(offset)

/* ---- cache ---- */

#define QR_FIELDS_quire_group_config(NUMBER, REAL, FLAG, ANY)                                      \
    ANY(spec) /* qr_spec_check: the ranges follow from the kind */                                 \
    NUMBER(is_eagle, 0, 1)

#define QR_FIELDS_quire_cache_config(NUMBER, REAL, FLAG, ANY)                                      \
    ANY(size)                                                                                      \
    NUMBER(num_blocks, 1, QUIRE_MAX_BLOCKS)                                                        \
    ANY(groups)                                                                                    \
    NUMBER(num_groups, 0, 4096)                                                                    \
    NUMBER(max_model_len, 1, QR_MAX_TOKENS)                                                        \
    NUMBER(max_num_batched_tokens, 0, QR_MAX_TOKENS)                                               \
    NUMBER(max_encoder_tokens, 0, QR_MAX_TOKENS)                                                   \
    NUMBER(max_requests, 0, QR_MAX_TOKENS)                                                         \
    NUMBER(hash_block_size, 0, QR_MAX_TOKENS)                                                      \
    NUMBER(digest_bytes, 0, QR_MAX_HASH_BYTES)                                                     \
    NUMBER(enable_caching, QUIRE_DEFAULT, QUIRE_OFF)                                               \
    NUMBER(use_eagle, QUIRE_DEFAULT, QUIRE_OFF)                                                    \
    NUMBER(log_stats, QUIRE_DEFAULT, QUIRE_OFF)                                                    \
    NUMBER(track_new_blocks, QUIRE_DEFAULT, QUIRE_OFF)                                             \
    NUMBER(dcp_world_size, 0, 1024)                                                                \
    NUMBER(pcp_world_size, 0, 1024)                                                                \
    NUMBER(profile, QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32)                                \
    REAL(watermark, 0, 1)                                                                          \
    REAL(admit_below, 0, 1)                                                                        \
    REAL(preempt_above, 0, 1)                                                                      \
    NUMBER(mamba_shared_prefix_checkpoint, QUIRE_DEFAULT, QUIRE_OFF)                               \
    NUMBER(max_copies, 0, UINT32_MAX)                                                              \
    NUMBER(event_log_bytes, 0, UINT32_MAX)                                                         \
    ANY(on_event)                                                                                  \
    ANY(event_user)                                                                                \
    ANY(hooks)                                                                                     \
    NUMBER(num_host_blocks, 0, QR_MAX_HOST_SLOTS)                                                  \
    NUMBER(prefix_cache_retention_interval, 0, QUIRE_RETAIN_ALL)                                   \
    NUMBER(num_prefill_lookahead, 0, QR_MAX_TOKENS)                                                \
    NUMBER(max_in_flight_tokens, 0, QR_MAX_TOKENS)

#define QR_FIELDS_quire_cache_request(NUMBER, REAL, FLAG, ANY)                                     \
    ANY(seq)                                                                                       \
    NUMBER(num_tokens, 0, UINT32_MAX) /* of which max_model_len count */                           \
    NUMBER(num_computed_tokens, 0, limits->max_model_len)                                          \
    ANY(hashes)                                                                                    \
    NUMBER(num_hashes, 0, UINT32_MAX)                                                              \
    NUMBER(first_hash, 0, limits->first_hash)                                                      \
    FLAG(was_preempted)                                                                            \
    FLAG(skip_reading_prefix)                                                                      \
    ANY(user)

#define QR_FIELDS_quire_allocate_params(NUMBER, REAL, FLAG, ANY)                                   \
    ANY(size)                                                                                      \
    NUMBER(num_new_tokens, 0, limits->max_model_len)                                               \
    NUMBER(num_new_computed_tokens, 0, limits->max_model_len)                                      \
    ANY(new_computed_blocks)                                                                       \
    NUMBER(num_lookahead_tokens, 0, UINT32_MAX) /* cut at max_model_len */                         \
    NUMBER(num_external_computed_tokens, 0, limits->max_model_len)                                 \
    NUMBER(num_encoder_tokens, 0, limits->max_encoder_tokens)                                      \
    FLAG(delay_cache_blocks)                                                                       \
    NUMBER(num_uncertain_tokens, 0, UINT32_MAX) /* cut at the computed ones */                     \
    FLAG(full_sequence_must_fit)                                                                   \
    NUMBER(reserved_blocks, 0, UINT32_MAX)                                                         \
    FLAG(has_scheduled_reqs)                                                                       \
    ANY(skip_zeroing_group_ids)                                                                    \
    NUMBER(num_skip_zeroing_group_ids, 0, 4096)                                                    \
    NUMBER(num_prompt_tokens, 0, UINT32_MAX)                                                       \
    NUMBER(shared_prefix_boundary, 0, UINT32_MAX)

/* ---- scheduler ---- */

#define QR_FIELDS_quire_sched_config(NUMBER, REAL, FLAG, ANY)                                      \
    ANY(size)                                                                                      \
    ANY(cache) /* a config of its own */                                                           \
    ANY(hasher)                                                                                    \
    NUMBER(policy, QUIRE_POLICY_FCFS, QUIRE_POLICY_PRIORITY)                                       \
    NUMBER(max_num_seqs, 0, 1u << 24)                                                              \
    NUMBER(max_num_batched_tokens, 0, QR_MAX_TOKENS)                                               \
    NUMBER(max_num_scheduled_tokens, 0, QR_MAX_TOKENS)                                             \
    NUMBER(long_prefill_token_threshold, 0, UINT32_MAX)                                            \
    NUMBER(enable_chunked_prefill, QUIRE_DEFAULT, QUIRE_OFF)                                       \
    NUMBER(reserve_full_sequence, QUIRE_DEFAULT, QUIRE_OFF)                                        \
    NUMBER(async_scheduling, QUIRE_DEFAULT, QUIRE_OFF)                                             \
    NUMBER(max_batches, 0, 64)                                                                     \
    NUMBER(num_spec_tokens, 0, 1024)                                                               \
    NUMBER(num_lookahead_tokens, 0, QR_MAX_TOKENS)                                                 \
    NUMBER(max_loras, 0, 65536)                                                                    \
    NUMBER(is_encoder_decoder, QUIRE_DEFAULT, QUIRE_OFF)                                           \
    NUMBER(disable_chunked_mm_input, QUIRE_DEFAULT, QUIRE_OFF)                                     \
    NUMBER(encoder_compute_budget, 0, QR_MAX_TOKENS)                                               \
    NUMBER(encoder_cache_size, 0, QR_MAX_TOKENS)                                                   \
    NUMBER(mamba_block_size, 0, QR_MAX_TOKENS)                                                     \
    NUMBER(include_finished_set, QUIRE_DEFAULT, QUIRE_OFF)                                         \
    NUMBER(fail_on_load_error, QUIRE_DEFAULT, QUIRE_OFF)                                           \
    NUMBER(log_stats, QUIRE_DEFAULT, QUIRE_OFF)                                                    \
    NUMBER(max_requests, 0, 1u << 24)                                                              \
    NUMBER(max_loading, 0, 1u << 24)                                                               \
    NUMBER(max_text_tokens, 0, UINT64_C(1) << 40)                                                  \
    NUMBER(max_request_bytes, 0, 1u << 20)                                                         \
    NUMBER(max_encoder_items, 0, 1u << 20)                                                         \
    ANY(on_snapshot)                                                                               \
    ANY(on_decision)                                                                               \
    ANY(observer)                                                                                  \
    NUMBER(max_ghosts, 0, 1u << 28)                                                                \
    ANY(connector)                                                                                 \
    ANY(grammar)                                                                                   \
    NUMBER(profile, QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32)                                \
    ANY(hooks)                                                                                     \
    NUMBER(num_swap_blocks, 0, 1u << 28)                                                           \
    NUMBER(swap_block_ns, 0, UINT32_MAX)                                                           \
    NUMBER(recompute_token_ns, 0, UINT32_MAX)                                                      \
    NUMBER(swap_setup_ns, 0, UINT32_MAX)                                                           \
    ANY(encoder_connector)                                                                         \
    ANY(monitor) /* a config of its own */                                                         \
    NUMBER(max_pins, 0, 1u << 20)                                                                  \
    NUMBER(lookahead, 0, 4096)                                                                     \
    NUMBER(prefix_window, 0, 1024)                                                                 \
    NUMBER(prefix_patience, 0, 1000)                                                               \
    NUMBER(use_pressure, QUIRE_DEFAULT, QUIRE_OFF)                                                 \
    NUMBER(victim, QUIRE_VICTIM_DEFAULT, QUIRE_VICTIM_LRU)                                         \
    ANY(choose_victim)                                                                             \
    ANY(victim_user)                                                                               \
    NUMBER(max_num_active_seqs, 0, 1u << 24)                                                       \
    NUMBER(long_prefill_token_threshold_adaptive, QUIRE_DEFAULT, QUIRE_OFF)                        \
    NUMBER(num_draft_slots, 0, 1024)                                                               \
    NUMBER(num_prefill_lookahead_tokens, 0, 1024)                                                  \
    NUMBER(is_pooling_model, QUIRE_DEFAULT, QUIRE_OFF)                                             \
    NUMBER(decode_interval, 0, 1024)                                                               \
    ANY(num_spec_tokens_by_batch)                                                                  \
    NUMBER(num_batch_sizes, 0, 1u << 24)                                                           \
    NUMBER(is_encoder_only, QUIRE_DEFAULT, QUIRE_OFF)

#define QR_FIELDS_quire_mm_input(NUMBER, REAL, FLAG, ANY)                                          \
    ANY(feature)                                                                                   \
    NUMBER(num_embeds, 0, UINT32_MAX) /* cut at the feature's length */                            \
    ANY(is_embed)

#define QR_FIELDS_quire_request_params(NUMBER, REAL, FLAG, ANY)                                    \
    ANY(size)                                                                                      \
    NUMBER(id.len, 0, QR_MAX_ID_BYTES)                                                             \
    ANY(prompt)                                                                                    \
    NUMBER(num_prompt_tokens, 1, limits->max_prompt_tokens)                                        \
    NUMBER(max_tokens, 0, UINT32_MAX)                                                              \
    NUMBER(min_tokens, 0, UINT32_MAX)                                                              \
    FLAG(has_eos)                                                                                  \
    ANY(eos_token_id)                                                                              \
    ANY(stop_token_ids)                                                                            \
    NUMBER(num_stop_token_ids, 0, limits->max_stop_tokens)                                         \
    NUMBER(repetition_max_pattern, 0, UINT32_MAX)                                                  \
    NUMBER(repetition_min_pattern, 0, UINT32_MAX)                                                  \
    NUMBER(repetition_min_count, 0, UINT32_MAX)                                                    \
    ANY(priority)                                                                                  \
    REAL(arrival_time, -DBL_MAX, DBL_MAX)                                                          \
    NUMBER(client_index, 0, UINT32_MAX)                                                            \
    NUMBER(lora_name.len, 0, 1u << 20)                                                             \
    NUMBER(lora_id, 0, UINT32_MAX)                                                                 \
    NUMBER(cache_salt.len, 0, 1u << 20)                                                            \
    ANY(mm_inputs)                                                                                 \
    NUMBER(num_mm_inputs, 0, limits->max_features)                                                 \
    FLAG(use_grammar)                                                                              \
    FLAG(is_pooling)                                                                               \
    FLAG(is_resumable)                                                                             \
    FLAG(skip_reading_prefix)                                                                      \
    ANY(user)                                                                                      \
    ANY(hashes)                                                                                    \
    NUMBER(num_hashes, 0, limits->max_hashes)                                                      \
    ANY(prompt_embeds)                                                                             \
    NUMBER(prompt_embed_bytes, 0, UINT32_MAX)                                                      \
    NUMBER(lora_path.len, 0, 1u << 20)                                                             \
    FLAG(kv_cache_report_full)                                                                     \
    NUMBER(num_hidden_tokens, 0, limits->max_model_len)

/* What each element of its arrays may be depends on the step: sched/step/update.c. */
#define QR_FIELDS_quire_model_output(NUMBER, REAL, FLAG, ANY)                                      \
    ANY(size)                                                                                      \
    ANY(sampled)                                                                                   \
    NUMBER(stride, 0, UINT32_MAX)                                                                  \
    ANY(num_sampled)                                                                               \
    ANY(has_pooled)                                                                                \
    ANY(num_invalid_drafts)                                                                        \
    ANY(finished_sending)                                                                          \
    NUMBER(num_finished_sending, 0, UINT32_MAX)                                                    \
    ANY(finished_recving)                                                                          \
    NUMBER(num_finished_recving, 0, UINT32_MAX)                                                    \
    ANY(invalid_blocks)                                                                            \
    NUMBER(num_invalid_blocks, 0, UINT32_MAX)                                                      \
    ANY(failed_recving)                                                                            \
    NUMBER(num_failed_recving, 0, UINT32_MAX)

/* ---- monitor ---- */

#define QR_FIELDS_quire_monitor_config(NUMBER, REAL, FLAG, ANY)                                    \
    ANY(size)                                                                                      \
    NUMBER(event_bytes, 0, 1u << 30)                                                               \
    NUMBER(token_ids, QUIRE_DEFAULT, QUIRE_OFF)                                                    \
    NUMBER(num_steps, 0, 1u << 20)                                                                 \
    NUMBER(residency, QUIRE_DEFAULT, QUIRE_OFF)                                                    \
    REAL(sample_rate, 0, 1)                                                                        \
    ANY(wall_time)                                                                                 \
    ANY(wall_user)                                                                                 \
    ANY(hooks)                                                                                     \
    NUMBER(num_names, 0, 256)                                                                      \
    NUMBER(map_ms, 0, 3600000)

#define QR_FIELDS_quire_residency_config(NUMBER, REAL, FLAG, ANY)                                  \
    ANY(size)                                                                                      \
    REAL(sample_rate, 0, 1)                                                                        \
    ANY(on_end)                                                                                    \
    ANY(user)                                                                                      \
    ANY(hooks)

#define QR_FIELDS_quire_metrics_format(NUMBER, REAL, FLAG, ANY)                                    \
    ANY(size)                                                                                      \
    NUMBER(names, QUIRE_NAMES_BOTH, QUIRE_NAMES_VLLM)                                              \
    FLAG(is_openmetrics)                                                                           \
    ANY(model_name)                                                                                \
    ANY(engine)

/* ---- the checks ---- */

/* Reads the caller's config into *p: QUIRE_OK, or QUIRE_E_ARGUMENT, QUIRE_E_CONFIG and the
 * sentence of quire_refusal for a wrong struct or a field out of its range. */
int qr_check_pool_config(quire_pool_config *p, const quire_pool_config *callers);
int qr_check_table_config(quire_table_config *p, const quire_table_config *callers);
int qr_check_hasher_config(quire_hasher_config *p, const quire_hasher_config *callers);
int qr_check_residency_config(quire_residency_config *p, const quire_residency_config *callers);
/* The groups too. */
int qr_check_cache_config(quire_cache_config *p, const quire_cache_config *callers);
/* The cache's config and the monitor's too. */
int qr_check_sched_config(quire_sched_config *p, const quire_sched_config *callers);
/* Of a format that has been read. */
int qr_check_metrics_format(const quire_metrics_format *p);

/* QUIRE_OK, or QUIRE_E_RANGE for a field out of its range. */
int qr_check_cache_full_params(const quire_cache_full_params *p);
bool qr_is_extra_key(const quire_extra_key *p);
int qr_check_cache_request(const quire_cache_request *p, const qr_field_limits *limits);
int qr_check_allocate_params(const quire_allocate_params *p, const qr_field_limits *limits);
/* The features too. */
int qr_check_request_params(const quire_request_params *p, const qr_field_limits *limits);

#endif
