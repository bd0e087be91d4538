/* obs/metrics.h - what the scheduler counts and times, in words that any thread may read.
 *
 *      add ───► admitted ───► first token ───► token ───► ... ───► end
 *        └ queue ─┘└─ prefill ─┘            └ gap ┘                 │
 *        └───────── time to first token ──┘└──────── decode ────────┘
 *                 └─────────────── inference ───────────────────────┘
 *        └─────────────────────── end to end ───────────────────────┘
 *
 *      words   | counter | counter x labels | gauge | histogram: counts of buckets, rest, sum | ..
 *
 * One thread writes: it loads a word, adds and stores it, without a lock. Stores release and loads
 * acquire, and what is a part of something is counted after the whole and read before it, so that a
 * reader never sees more hits than queries.
 *
 * vLLM's meaning and buckets, where it has the same thing; docs/metrics.md says where they differ.
 * Nothing here is a name, a token or a salt.
 *
 *      hits <= queries;   a counter never goes back;   the last bucket counts all observations
 */
#ifndef QR_OBS_METRICS_H
#define QR_OBS_METRICS_H

#include "base/arena.h"
#include "obs/tiers.h"

#include <quire/cache.h>
#include <quire/monitor.h>
#include <quire/sched.h>

#include <stdatomic.h>

/* X(name, type, shape, Quire's name, vLLM's name, sentence). Shape: the labels of a counter or a
 * gauge, the bounds of a histogram. Counters are written with _total behind their names. A part
 * stands before its whole. */
#define QR_METRIC_MAP(X)                                                                           \
    X(PREFIX_HITS, COUNTER, ONE, "quire_prefix_cache_hits", "vllm:prefix_cache_hits",              \
      "Tokens of new requests that were found in the prefix cache.")                               \
    X(PREFIX_QUERIES, COUNTER, ONE, "quire_prefix_cache_queries", "vllm:prefix_cache_queries",     \
      "Tokens of new requests that were looked up in the prefix cache.")                           \
    X(PREEMPTED_HITS, COUNTER, ONE, "quire_prefix_cache_preempted_hits", NULL,                     \
      "Tokens of requests that had been preempted, found in the prefix cache.")                    \
    X(PREEMPTED_QUERIES, COUNTER, ONE, "quire_prefix_cache_preempted_queries", NULL,               \
      "Tokens of requests that had been preempted, looked up in the prefix cache.")                \
    X(EXTERNAL_HITS, COUNTER, ONE, "quire_external_prefix_cache_hits",                             \
      "vllm:external_prefix_cache_hits", "Tokens that the connector had.")                         \
    X(EXTERNAL_QUERIES, COUNTER, ONE, "quire_external_prefix_cache_queries",                       \
      "vllm:external_prefix_cache_queries", "Tokens that the connector was asked for.")            \
    X(USAGE, RATIO, ONE, "quire_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc",                 \
      "Part of the blocks that is in use, 0 to 1.")                                                \
    X(RUNNING, GAUGE, ONE, "quire_requests_running", "vllm:num_requests_running",                  \
      "Running requests.")                                                                         \
    X(WAITING_BY_REASON, GAUGE, WAITING, "quire_requests_waiting_by_reason",                       \
      "vllm:num_requests_waiting_by_reason",                                                       \
      "Waiting requests, by reason: capacity, or a grammar, a load, an adapter.")                  \
    X(WAITING, GAUGE, ONE, "quire_requests_waiting", "vllm:num_requests_waiting",                  \
      "Waiting requests.")                                                                         \
    X(ADDED, COUNTER, ONE, "quire_requests_added", NULL, "Requests added.")                        \
    X(PREEMPTIONS, COUNTER, ONE, "quire_preemptions", "vllm:num_preemptions",                      \
      "Preemptions: a request lost its blocks and waits again.")                                   \
    X(EVICTIONS, COUNTER, ONE, "quire_blocks_evicted", NULL, "Cached blocks that were evicted.")   \
    X(ALLOCATIONS, COUNTER, ONE, "quire_blocks_allocated", NULL, "Blocks allocated.")              \
    X(STEPS, COUNTER, ONE, "quire_steps", NULL, "Steps scheduled.")                                \
    X(SCHEDULED, COUNTER, SCHEDULED, "quire_scheduled_tokens", NULL, "Tokens scheduled.")          \
    X(PROMPT_BY_SOURCE, COUNTER, SOURCES, "quire_prompt_tokens_by_source",                         \
      "vllm:prompt_tokens_by_source", "Prompt tokens, by the source of their keys and values.")    \
    X(PROMPT_CACHED, COUNTER, ONE, "quire_prompt_tokens_cached", "vllm:prompt_tokens_cached",      \
      "Prompt tokens that were not computed.")                                                     \
    X(PROMPT, COUNTER, ONE, "quire_prompt_tokens", "vllm:prompt_tokens",                           \
      "Prompt tokens of requests that have their first token.")                                    \
    X(GENERATION, COUNTER, ONE, "quire_generation_tokens", "vllm:generation_tokens",               \
      "Tokens generated.")                                                                         \
    X(FINISHED, COUNTER, FINISHED, "quire_requests_finished", "vllm:request_success",              \
      "Finished requests, by reason.")                                                             \
    X(SPEC_ACCEPTED, COUNTER, SPEC, "quire_spec_decode_accepted_tokens",                           \
      "vllm:spec_decode_num_accepted_tokens", "Draft tokens that were accepted.")                  \
    X(SPEC_POSITIONS, COUNTER, POSITIONS, "quire_spec_decode_accepted_tokens_per_position",        \
      "vllm:spec_decode_num_accepted_tokens_per_pos",                                              \
      "Draft tokens that were accepted, by position among the drafts.")                            \
    X(SPEC_DRAFT_TOKENS, COUNTER, SPEC, "quire_spec_decode_draft_tokens",                          \
      "vllm:spec_decode_num_draft_tokens", "Draft tokens.")                                        \
    X(SPEC_DRAFTS, COUNTER, SPEC, "quire_spec_decode_drafts", "vllm:spec_decode_num_drafts",       \
      "Drafts: a request had draft tokens in a step.")                                             \
    X(EVENTS, COUNTER, EVENTS, "quire_events", NULL, "Events of the prefix cache.")                \
    X(EVENTS_LOST, COUNTER, ONE, "quire_events_lost", NULL,                                        \
      "Events that did not fit in the event ring.")                                                \
    X(READERS_LATE, COUNTER, ONE, "quire_events_readers_late", NULL,                               \
      "Times that an event reader was overtaken: the event ring is too small.")                    \
    X(SAMPLED, COUNTER, RESIDENCY, "quire_residency_sampled_blocks", NULL,                         \
      "Allocated blocks whose life is followed.")                                                  \
    X(UNSAMPLED, COUNTER, RESIDENCY, "quire_residency_unsampled_blocks", NULL,                     \
      "Sampled blocks that are not followed, because too many are followed.")                      \
    X(SCHEDULE_TIME, SECONDS, CALLS, "quire_schedule_duration_seconds", NULL,                      \
      "Duration of schedule.")                                                                     \
    X(UPDATE_TIME, SECONDS, CALLS, "quire_update_duration_seconds", NULL, "Duration of update.")   \
    X(ITERATION_TOKENS, TOKENS, ITERATIONS, "quire_iteration_tokens",                              \
      "vllm:iteration_tokens_total", "Prompt and generated tokens of an update with output.")      \
    X(FIRST_TOKEN, SECONDS, FIRST_TOKENS, "quire_time_to_first_token_seconds",                     \
      "vllm:time_to_first_token_seconds",                                                          \
      "Time from the arrival of a request to its first token.")                                    \
    X(TOKEN_GAP, SECONDS, TOKEN_GAPS, "quire_inter_token_latency_seconds",                         \
      "vllm:inter_token_latency_seconds", "Time from one output of a request to its next output.") \
    X(TOKEN_TIME, SECONDS, TOKEN_GAPS, "quire_request_time_per_output_token_seconds",              \
      "vllm:request_time_per_output_token_seconds",                                                \
      "Finished requests: decode time for each token after the first.")                            \
    X(END_TO_END, SECONDS, REQUESTS, "quire_e2e_request_latency_seconds",                          \
      "vllm:e2e_request_latency_seconds", "Time from the arrival of a request to its end.")        \
    X(QUEUE_TIME, SECONDS, REQUESTS, "quire_request_queue_time_seconds",                           \
      "vllm:request_queue_time_seconds", "Time from the arrival of a request to its first step.")  \
    X(INFERENCE_TIME, SECONDS, REQUESTS, "quire_request_inference_time_seconds",                   \
      "vllm:request_inference_time_seconds",                                                       \
      "Time from the first step of a request to its last token.")                                  \
    X(PREFILL_TIME, SECONDS, REQUESTS, "quire_request_prefill_time_seconds",                       \
      "vllm:request_prefill_time_seconds",                                                         \
      "Time from the first step of a request to its first token.")                                 \
    X(DECODE_TIME, SECONDS, REQUESTS, "quire_request_decode_time_seconds",                         \
      "vllm:request_decode_time_seconds",                                                          \
      "Time from the first token of a request to its last token.")                                 \
    X(PREFILL_COMPUTED, TOKENS, LENGTHS, "quire_request_prefill_kv_computed_tokens",               \
      "vllm:request_prefill_kv_computed_tokens",                                                   \
      "Finished requests: prompt tokens that were computed.")                                      \
    X(PROMPT_LENGTH, TOKENS, LENGTHS, "quire_request_prompt_tokens", "vllm:request_prompt_tokens", \
      "Finished requests: prompt tokens.")                                                         \
    X(GENERATION_LENGTH, TOKENS, LENGTHS, "quire_request_generation_tokens",                       \
      "vllm:request_generation_tokens", "Finished requests: generated tokens.")                    \
    X(MOST_GENERATED, TOKENS, LENGTHS, "quire_request_max_num_generation_tokens",                  \
      "vllm:request_max_num_generation_tokens",                                                    \
      "Finished requests: generated tokens of the longest sample.")                                \
    X(MAX_TOKENS, TOKENS, LENGTHS, "quire_request_params_max_tokens",                              \
      "vllm:request_params_max_tokens", "Finished requests: max_tokens.")                          \
    X(BLOCK_LIFETIME, SECONDS, BLOCK_LIVES, "quire_kv_block_lifetime_seconds",                     \
      "vllm:kv_block_lifetime_seconds", "Sampled blocks: time from one allocation to the next.")   \
    X(BLOCK_IDLE, SECONDS, BLOCK_LIVES, "quire_kv_block_idle_before_evict_seconds",                \
      "vllm:kv_block_idle_before_evict_seconds",                                                   \
      "Sampled blocks: time from the last hit, or the allocation, to the end.")                    \
    X(BLOCK_REUSE_GAP, SECONDS, BLOCK_LIVES, "quire_kv_block_reuse_gap_seconds",                   \
      "vllm:kv_block_reuse_gap_seconds", "Sampled blocks: time between the last four hits.")

typedef enum qr_metric {
#define QR_X(name, type, shape, quire_name, vllm_name, sentence) QR_METRIC_##name,
    QR_METRIC_MAP(QR_X)
#undef QR_X
        QR_NUM_METRICS
} qr_metric;

typedef enum qr_metric_type {
    QR_METRIC_TYPE_COUNTER,
    QR_METRIC_TYPE_GAUGE,
    QR_METRIC_TYPE_RATIO,   /* a gauge, in parts of 10^9 */
    QR_METRIC_TYPE_SECONDS, /* a histogram of nanoseconds, told in seconds */
    QR_METRIC_TYPE_TOKENS   /* a histogram of numbers */
} qr_metric_type;

/* Labels, then bounds. */
typedef enum qr_metric_shape {
    QR_SHAPE_ONE,       /* no label */
    QR_SHAPE_SPEC,      /* the same, with drafts alone */
    QR_SHAPE_RESIDENCY, /* the same, where residency is followed */
    QR_SHAPE_WAITING,
    QR_SHAPE_SCHEDULED,
    QR_SHAPE_SOURCES,
    QR_SHAPE_FINISHED,
    QR_SHAPE_EVENTS,
    QR_SHAPE_POSITIONS,
    QR_SHAPE_CALLS,
    QR_SHAPE_ITERATIONS,
    QR_SHAPE_FIRST_TOKENS,
    QR_SHAPE_TOKEN_GAPS,
    QR_SHAPE_REQUESTS,
    QR_SHAPE_BLOCK_LIVES,
    QR_SHAPE_LENGTHS /* 1, 2, 5, 10, ... up to max_model_len */
} qr_metric_shape;

/* Places among the labels of one metric. */
enum { QR_WAITING_CAPACITY, QR_WAITING_DEFERRED };
enum { QR_SCHEDULED_PREFILL, QR_SCHEDULED_DECODE, QR_SCHEDULED_DRAFT };
enum { QR_SOURCE_COMPUTE, QR_SOURCE_CACHE, QR_SOURCE_EXTERNAL };

typedef struct qr_metric_info {
    qr_metric_type type;
    qr_metric_shape shape;
    const char *quire_name;
    const char *vllm_name; /* NULL: vLLM has no such thing */
    const char *sentence;
} qr_metric_info;

/* What decides how many words there are. */
typedef struct qr_metrics_shape {
    uint32_t max_requests;
    uint32_t max_model_len;
    uint32_t num_spec_tokens;
    uint32_t num_blocks; /* the null block included */
    uint32_t block_size;
    bool enable_caching;
    bool has_residency;
    bool is_pool; /* of a pool alone: nothing is told of requests and steps */
} qr_metrics_shape;

/* When a request got its last token, or one of these. */
#define QR_TIME_PREFILL UINT64_MAX       /* it waits for its first */
#define QR_TIME_UNKNOWN (UINT64_MAX - 1) /* it was not seen coming */
#define QR_TIME_ENDED   (UINT64_MAX - 2) /* it has been counted */

/* Of every update: apart from the rest, so that four are in a cache line. */
typedef struct qr_request_clock {
    uint64_t last_ns;
    uint64_t num_generated;
} qr_request_clock;

typedef struct qr_request_life {
    uint64_t queued_ns; /* QR_TIME_UNKNOWN where it is not known, so all three */
    uint64_t scheduled_ns;
    uint64_t first_ns;
    uint32_t num_prompt;
    uint32_t num_cached;
    uint32_t max_tokens; /* 0: not told */
    bool has_ended;      /* its last output is on the way */
} qr_request_life;

enum { QR_MAX_LENGTH_BOUNDS = 32 };

typedef struct qr_metrics {
    _Atomic uint64_t *words;
    uint32_t first[QR_NUM_METRICS]; /* of its words */
    uint32_t count[QR_NUM_METRICS]; /* series, or bounds of a histogram; 0: is not told */
    uint32_t num_words;
    uint64_t length_bounds[QR_MAX_LENGTH_BOUNDS];
    uint32_t num_length_bounds;
    uint64_t now_ns; /* of the scheduler's clock: when the call that is under way began, or ended */
    qr_request_clock *clocks;
    qr_request_life *lives;
    qr_metrics_shape shape;
    qr_tiers tiers;
} qr_metrics;

void qr_metrics_carve(qr_metrics *metrics, qr_arena *arena, const qr_metrics_shape *shape);
void qr_metrics_init(qr_metrics *metrics);

const qr_metric_info *qr_metrics_info(qr_metric metric);
bool qr_metrics_is_histogram(qr_metric metric);
/* Bounds of a histogram, count[metric] of them, in nanoseconds or tokens. */
const uint64_t *qr_metrics_bounds(const qr_metrics *metrics, qr_metric metric);

/* ---- words ----------------------------------------------------------------- */

static inline uint64_t qr_metrics_get(const qr_metrics *m, qr_metric metric, uint32_t place)
{
    return atomic_load_explicit(&m->words[m->first[metric] + place], memory_order_acquire);
}

static inline void qr_metrics_set(qr_metrics *m, qr_metric metric, uint32_t place, uint64_t value)
{
    atomic_store_explicit(&m->words[m->first[metric] + place], value, memory_order_release);
}

static inline void qr_metrics_add(qr_metrics *m, qr_metric metric, uint32_t place, uint64_t n)
{
    _Atomic uint64_t *word = &m->words[m->first[metric] + place];
    uint64_t value = atomic_load_explicit(word, memory_order_relaxed);
    atomic_store_explicit(word, value + n, memory_order_release);
}

/* The same value, several times. */
void qr_metrics_observe(qr_metrics *m, qr_metric metric, uint64_t value, uint64_t times);
/* All observations together; a number of the kind that was observed. */
double qr_metrics_sum(const qr_metrics *m, qr_metric metric);

/* ---- requests -------------------------------------------------------------- */

/* now_ns must be set. max_tokens 0: not told. */
void qr_metrics_add_request(qr_metrics *m, uint32_t index, uint32_t num_prompt,
                            uint32_t max_tokens);
/* A session goes on with its next input. */
void qr_metrics_continue_request(qr_metrics *m, uint32_t index, uint32_t num_prompt);
/* Enters a step; the first time counts. */
static inline void qr_metrics_admit(qr_metrics *m, uint32_t index)
{
    if (m->lives[index].scheduled_ns == QR_TIME_UNKNOWN)
        m->lives[index].scheduled_ns = m->now_ns;
}
/* Its next output is its last. */
static inline void qr_metrics_mark_end(qr_metrics *m, uint32_t index)
{
    m->lives[index].has_ended = true;
}
/* Ended from outside, or with an output that is not among those of take_outputs. */
void qr_metrics_end_request(qr_metrics *m, uint32_t index, quire_req_status status);

/* ---- steps ----------------------------------------------------------------- */

/* How things stand, at the end of schedule and of update. */
typedef struct qr_metrics_levels {
    uint32_t num_running;
    uint32_t num_waiting;
    uint32_t num_skipped;
    const quire_tier_usage *tiers; /* the first is the GPU's */
    uint32_t num_tiers;
    uint64_t num_allocated; /* blocks, since the start */
    uint64_t num_evicted;
} qr_metrics_levels;

void qr_metrics_set_levels(qr_metrics *m, const qr_metrics_levels *levels);
/* Of these the pool's alone. */
void qr_metrics_set_pool(qr_metrics *m, const quire_tier_usage *tiers, uint32_t num_tiers,
                         uint64_t num_allocated, uint64_t num_evicted);
void qr_metrics_end_schedule(qr_metrics *m, const quire_monitor_step *step);
/* Outputs of one update, at now_ns, after all requests that end in it are marked. Those before
 * `first` are of requests that ended earlier. */
void qr_metrics_take_outputs(qr_metrics *m, const quire_output *outputs, uint32_t first,
                             uint32_t num_outputs);
void qr_metrics_take_stats(qr_metrics *m, const quire_sched_stats *stats);
void qr_metrics_end_update(qr_metrics *m, uint64_t update_ns);

#endif
