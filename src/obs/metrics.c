#include "obs/metrics.h"

/* ---- the table ------------------------------------------------------------- */

const qr_metric_info *qr_metrics_info(qr_metric metric)
{
    static const qr_metric_info all[QR_NUM_METRICS] = {
#define QR_X(name, type, shape, quire_name, vllm_name, sentence)                                   \
    {QR_METRIC_TYPE_##type, QR_SHAPE_##shape, quire_name, vllm_name, sentence},
        QR_METRIC_MAP(QR_X)
#undef QR_X
    };
    return &all[metric];
}

bool qr_metrics_is_histogram(qr_metric metric)
{
    return qr_metrics_info(metric)->type >= QR_METRIC_TYPE_SECONDS;
}

/* In nanoseconds. All but the first are vLLM's. */
#define US(n) (UINT64_C(1000) * (n))
#define MS(n) (UINT64_C(1000000) * (n))
#define S(n)  (UINT64_C(1000000000) * (n))
static const uint64_t call_bounds[] = {US(1),   US(2),   US(5),   US(10), US(20), US(50),
                                       US(100), US(200), US(500), MS(1),  MS(2),  MS(5),
                                       MS(10),  MS(20),  MS(50),  MS(100)};
static const uint64_t first_token_bounds[] = {
    MS(1), MS(5),    MS(10), MS(20),   MS(40), MS(60), MS(80), MS(100), MS(250), MS(500), MS(750),
    S(1),  MS(2500), S(5),   MS(7500), S(10),  S(20),  S(40),  S(80),   S(160),  S(640),  S(2560)};
static const uint64_t token_gap_bounds[] = {
    MS(10),  MS(25), MS(50),   MS(75), MS(100),  MS(150), MS(200), MS(300), MS(400), MS(500),
    MS(750), S(1),   MS(2500), S(5),   MS(7500), S(10),   S(20),   S(40),   S(80)};
static const uint64_t request_bounds[] = {
    MS(300), MS(500), MS(800), S(1),  MS(1500), S(2),   MS(2500), S(5),   S(10),   S(15),  S(20),
    S(30),   S(40),   S(50),   S(60), S(120),   S(240), S(480),   S(960), S(1920), S(7680)};
static const uint64_t block_life_bounds[] = {
    MS(1), MS(2), MS(5), MS(10), MS(20), MS(50), MS(100), MS(200), MS(500), S(1),   S(2),
    S(5),  S(10), S(20), S(30),  S(60),  S(120), S(300),  S(600),  S(1200), S(1800)};
#undef US
#undef MS
#undef S
static const uint64_t iteration_bounds[] = {1,   8,    16,   32,   64,   128,  256,
                                            512, 1024, 2048, 4096, 8192, 16384};

/* vLLM's build_1_2_5_buckets. */
static uint32_t make_length_bounds(uint32_t most, uint64_t *bounds)
{
    static const uint64_t digits[] = {1, 2, 5};
    uint32_t n = 0;
    for (uint64_t power = 1;; power *= 10) {
        for (uint32_t i = 0; i < 3; i++) {
            if (digits[i] * power > most)
                return n;
            bounds[n++] = digits[i] * power;
        }
    }
}

/* Of each shape: the bounds of a histogram, and how many, or how many labels there are. */
#define BOUNDS(table)                                                                              \
    {                                                                                              \
        (table), sizeof(table) / sizeof *(table)                                                   \
    }
#define LABELS(count)                                                                              \
    {                                                                                              \
        NULL, (count)                                                                              \
    }
static const struct {
    const uint64_t *bounds;
    uint32_t count;
} SHAPES[] = {
    [QR_SHAPE_ONE] = LABELS(1),
    [QR_SHAPE_WAITING] = LABELS(2),
    [QR_SHAPE_SCHEDULED] = LABELS(3),
    [QR_SHAPE_SOURCES] = LABELS(3),
    [QR_SHAPE_FINISHED] = LABELS(QUIRE_FINISH_REPETITION),
    [QR_SHAPE_EVENTS] = LABELS(3),
    [QR_SHAPE_CALLS] = BOUNDS(call_bounds),
    [QR_SHAPE_ITERATIONS] = BOUNDS(iteration_bounds),
    [QR_SHAPE_FIRST_TOKENS] = BOUNDS(first_token_bounds),
    [QR_SHAPE_TOKEN_GAPS] = BOUNDS(token_gap_bounds),
    [QR_SHAPE_REQUESTS] = BOUNDS(request_bounds),
    [QR_SHAPE_BLOCK_LIVES] = BOUNDS(block_life_bounds),
};

const uint64_t *qr_metrics_bounds(const qr_metrics *m, qr_metric metric)
{
    qr_metric_shape shape = qr_metrics_info(metric)->shape;
    return shape == QR_SHAPE_LENGTHS ? m->length_bounds : SHAPES[shape].bounds;
}

/* Labels or bounds; 0: it is not told. */
static uint32_t count_of(const qr_metrics *m, qr_metric_shape shape)
{
    switch (shape) {
    case QR_SHAPE_SPEC:
        return m->shape.num_spec_tokens > 0;
    case QR_SHAPE_POSITIONS:
        return m->shape.num_spec_tokens;
    case QR_SHAPE_RESIDENCY:
        return m->shape.has_residency;
    case QR_SHAPE_BLOCK_LIVES:
        return m->shape.has_residency ? SHAPES[shape].count : 0;
    case QR_SHAPE_LENGTHS:
        return m->num_length_bounds;
    default:
        return SHAPES[shape].count;
    }
}

/* ---- making ---------------------------------------------------------------- */

static bool is_of_pool(qr_metric metric)
{
    qr_metric_shape shape = qr_metrics_info(metric)->shape;
    return metric == QR_METRIC_USAGE || metric == QR_METRIC_EVICTIONS ||
           metric == QR_METRIC_ALLOCATIONS || shape == QR_SHAPE_RESIDENCY ||
           shape == QR_SHAPE_BLOCK_LIVES;
}

void qr_metrics_carve(qr_metrics *m, qr_arena *arena, const qr_metrics_shape *shape)
{
    *m = (qr_metrics){.shape = *shape};
    m->num_length_bounds = make_length_bounds(shape->max_model_len, m->length_bounds);
    for (uint32_t i = 0; i < QR_NUM_METRICS; i++) {
        if (!shape->is_pool || is_of_pool((qr_metric)i))
            m->count[i] = count_of(m, qr_metrics_info((qr_metric)i)->shape);
        bool has_sum = qr_metrics_is_histogram((qr_metric)i) && m->count[i] > 0;
        m->first[i] = m->num_words;
        m->num_words += m->count[i] + (has_sum ? 2 : 0);
    }
    m->words = qr_arena_take(arena, m->num_words, sizeof *m->words);
    m->clocks = qr_arena_take(arena, shape->max_requests, sizeof *m->clocks);
    m->lives = qr_arena_take(arena, shape->max_requests, sizeof *m->lives);
}

static const qr_request_life UNSEEN = {
    .queued_ns = QR_TIME_UNKNOWN, .scheduled_ns = QR_TIME_UNKNOWN, .first_ns = QR_TIME_UNKNOWN};

void qr_metrics_init(qr_metrics *m)
{
    for (uint32_t i = 0; i < m->num_words; i++)
        atomic_init(&m->words[i], 0);
    qr_tiers_init(&m->tiers);
    for (uint32_t i = 0; i < m->shape.max_requests; i++) {
        m->clocks[i] = (qr_request_clock){.last_ns = QR_TIME_UNKNOWN};
        m->lives[i] = UNSEEN;
    }
}

/* ---- histograms ------------------------------------------------------------ */

/* The sum is a double: in nanoseconds, of a thousand requests at a time, an integer would be full
 * after some months. */
static void add_to_sum(_Atomic uint64_t *word, double n)
{
    double sum;
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    memcpy(&sum, &bits, sizeof sum);
    sum += n;
    memcpy(&bits, &sum, sizeof bits);
    atomic_store_explicit(word, bits, memory_order_release);
}

void qr_metrics_observe(qr_metrics *m, qr_metric metric, uint64_t value, uint64_t times)
{
    const uint64_t *bounds = qr_metrics_bounds(m, metric);
    uint32_t n = m->count[metric];
    uint32_t bucket = 0;
    while (bucket < n && value > bounds[bucket])
        bucket++;
    qr_metrics_add(m, metric, bucket, times);
    add_to_sum(&m->words[m->first[metric] + n + 1], (double)value * (double)times);
}

double qr_metrics_sum(const qr_metrics *m, qr_metric metric)
{
    double sum;
    uint64_t bits = qr_metrics_get(m, metric, m->count[metric] + 1);
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* ---- requests -------------------------------------------------------------- */

static bool is_moment(uint64_t time)
{
    return time < QR_TIME_ENDED;
}

/* Where both moments are known. A clock that goes back counts as one that stands still. */
static void observe_span(qr_metrics *m, qr_metric metric, uint64_t from, uint64_t to)
{
    if (is_moment(from) && is_moment(to))
        qr_metrics_observe(m, metric, to > from ? to - from : 0, 1);
}

void qr_metrics_add_request(qr_metrics *m, uint32_t index, uint32_t num_prompt, uint32_t max_tokens)
{
    m->clocks[index] = (qr_request_clock){.last_ns = QR_TIME_PREFILL};
    m->lives[index] = UNSEEN;
    m->lives[index].queued_ns = m->now_ns;
    m->lives[index].num_prompt = num_prompt;
    m->lives[index].max_tokens = max_tokens;
    qr_metrics_add(m, QR_METRIC_ADDED, 0, 1);
}

/* What it was before counts for its tokens alone. Its last output may still be on the way: that it
 * waits for a first token again is noted when that is taken. */
void qr_metrics_continue_request(qr_metrics *m, uint32_t index, uint32_t num_prompt)
{
    m->lives[index].queued_ns = m->now_ns;
    m->lives[index].scheduled_ns = QR_TIME_UNKNOWN;
    m->lives[index].num_prompt = num_prompt;
}

static void observe_token_time(qr_metrics *m, const qr_request_clock *clock, uint64_t first_ns)
{
    if (!is_moment(first_ns) || !is_moment(clock->last_ns))
        return;
    uint64_t decode_ns = clock->last_ns > first_ns ? clock->last_ns - first_ns : 0;
    uint64_t num_after = clock->num_generated > 1 ? clock->num_generated - 1 : 0;
    qr_metrics_observe(m, QR_METRIC_TOKEN_TIME, num_after > 0 ? decode_ns / num_after : 0, 1);
}

static void tell_request(qr_metrics *m, uint32_t index, quire_finish_reason reason)
{
    qr_request_clock *clock = &m->clocks[index];
    const qr_request_life *life = &m->lives[index];
    qr_metrics_add(m, QR_METRIC_FINISHED, (uint32_t)reason - 1, 1);
    observe_span(m, QR_METRIC_END_TO_END, life->queued_ns, m->now_ns);
    observe_span(m, QR_METRIC_QUEUE_TIME, life->queued_ns, life->scheduled_ns);
    observe_span(m, QR_METRIC_PREFILL_TIME, life->scheduled_ns, life->first_ns);
    observe_span(m, QR_METRIC_INFERENCE_TIME, life->scheduled_ns, clock->last_ns);
    observe_span(m, QR_METRIC_DECODE_TIME, life->first_ns, clock->last_ns);
    observe_token_time(m, clock, life->first_ns);
    if (life->queued_ns == QR_TIME_UNKNOWN)
        return; /* nor is known how long it is */
    uint32_t cached = life->num_cached < life->num_prompt ? life->num_cached : life->num_prompt;
    qr_metrics_observe(m, QR_METRIC_PREFILL_COMPUTED, life->num_prompt - cached, 1);
    qr_metrics_observe(m, QR_METRIC_PROMPT_LENGTH, life->num_prompt, 1);
    qr_metrics_observe(m, QR_METRIC_GENERATION_LENGTH, clock->num_generated, 1);
    qr_metrics_observe(m, QR_METRIC_MOST_GENERATED, clock->num_generated, 1);
    if (life->max_tokens > 0)
        qr_metrics_observe(m, QR_METRIC_MAX_TOKENS, life->max_tokens, 1);
}

static quire_finish_reason reason_of_status(quire_req_status status)
{
    switch (status) {
    case QUIRE_REQ_FINISHED_LENGTH:
    case QUIRE_REQ_FINISHED_IGNORED: /* its prompt was too long */
        return QUIRE_FINISH_LENGTH;
    case QUIRE_REQ_FINISHED_ABORTED:
        return QUIRE_FINISH_ABORT;
    case QUIRE_REQ_FINISHED_ERROR:
        return QUIRE_FINISH_ERROR;
    case QUIRE_REQ_FINISHED_REPETITION:
        return QUIRE_FINISH_REPETITION;
    default:
        return QUIRE_FINISH_STOP;
    }
}

void qr_metrics_end_request(qr_metrics *m, uint32_t index, quire_req_status status)
{
    quire_finish_reason reason = reason_of_status(status);
    if (reason == QUIRE_FINISH_ABORT) /* as vLLM: how long it took says nothing */
        qr_metrics_add(m, QR_METRIC_FINISHED, (uint32_t)reason - 1, 1);
    else
        tell_request(m, index, reason);
    m->clocks[index].last_ns = QR_TIME_ENDED;
}

/* ---- steps ----------------------------------------------------------------- */

void qr_metrics_set_pool(qr_metrics *m, const quire_tier_usage *tiers, uint32_t num_tiers,
                         uint64_t num_allocated, uint64_t num_evicted)
{
    const quire_usage *blocks = &tiers[0].blocks;
    uint64_t usable = blocks->total - blocks->null_blocks;
    uint64_t billion = UINT64_C(1000000000);
    qr_metrics_set(m, QR_METRIC_USAGE, 0, usable > 0 ? blocks->active * billion / usable : 0);
    qr_tiers_set(&m->tiers, tiers, num_tiers);
    qr_metrics_set(m, QR_METRIC_ALLOCATIONS, 0, num_allocated);
    qr_metrics_set(m, QR_METRIC_EVICTIONS, 0, num_evicted);
}

void qr_metrics_set_levels(qr_metrics *m, const qr_metrics_levels *l)
{
    qr_metrics_set(m, QR_METRIC_RUNNING, 0, l->num_running);
    qr_metrics_set(m, QR_METRIC_WAITING_BY_REASON, QR_WAITING_CAPACITY, l->num_waiting);
    qr_metrics_set(m, QR_METRIC_WAITING_BY_REASON, QR_WAITING_DEFERRED, l->num_skipped);
    qr_metrics_set(m, QR_METRIC_WAITING, 0, (uint64_t)l->num_waiting + l->num_skipped);
    qr_metrics_set_pool(m, l->tiers, l->num_tiers, l->num_allocated, l->num_evicted);
}

void qr_metrics_end_schedule(qr_metrics *m, const quire_monitor_step *step)
{
    uint32_t prefill = step->num_prefill_tokens;
    uint32_t rest = step->num_tokens > prefill ? step->num_tokens - prefill : 0;
    uint32_t drafts = step->num_draft_tokens < rest ? step->num_draft_tokens : rest;
    qr_metrics_add(m, QR_METRIC_STEPS, 0, 1);
    qr_metrics_add(m, QR_METRIC_SCHEDULED, QR_SCHEDULED_PREFILL, prefill);
    qr_metrics_add(m, QR_METRIC_SCHEDULED, QR_SCHEDULED_DECODE, rest - drafts);
    qr_metrics_add(m, QR_METRIC_SCHEDULED, QR_SCHEDULED_DRAFT, drafts);
    qr_metrics_observe(m, QR_METRIC_SCHEDULE_TIME, step->schedule_ns, 1);
}

/* ---- outputs --------------------------------------------------------------- */

/* Outputs of requests that got their last token in the same update: their gaps are one. */
typedef struct qr_gap_run {
    uint64_t last_ns;
    uint64_t count;
    uint32_t num_prompt; /* tokens of the update */
} qr_gap_run;

static void end_run(qr_metrics *m, qr_gap_run *run)
{
    if (run->count > 0)
        qr_metrics_observe(m, QR_METRIC_TOKEN_GAP,
                           m->now_ns > run->last_ns ? m->now_ns - run->last_ns : 0, run->count);
    run->count = 0;
}

static void take_prompt(qr_metrics *m, const quire_output *out, qr_request_life *life,
                        qr_gap_run *run)
{
    uint32_t local = out->num_local_cached;
    uint32_t external = out->num_external_cached;
    uint32_t total = out->num_prompt_tokens;
    local = local < total ? local : total;
    external = external < total - local ? external : total - local;
    life->num_cached = local + external;
    life->num_prompt = total;
    run->num_prompt += total;
    qr_metrics_add(m, QR_METRIC_PROMPT, 0, total);
    qr_metrics_add(m, QR_METRIC_PROMPT_CACHED, 0, local + external);
    qr_metrics_add(m, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_COMPUTE, total - local - external);
    qr_metrics_add(m, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_CACHE, local);
    qr_metrics_add(m, QR_METRIC_PROMPT_BY_SOURCE, QR_SOURCE_EXTERNAL, external);
}

/* A first token, the first of a run, or a last one. */
static QR_NOINLINE void take_rare_output(qr_metrics *m, const quire_output *out, qr_gap_run *run)
{
    uint32_t index = quire_req_index(out->req);
    qr_request_clock *clock = &m->clocks[index];
    qr_request_life *life = &m->lives[index];
    if (clock->last_ns == QR_TIME_ENDED)
        return;
    if (clock->last_ns == QR_TIME_PREFILL) {
        observe_span(m, QR_METRIC_FIRST_TOKEN, life->queued_ns, m->now_ns);
        life->first_ns = m->now_ns;
        if (out->has_prefill_stats)
            take_prompt(m, out, life, run);
    } else if (clock->last_ns != QR_TIME_UNKNOWN) {
        if (clock->last_ns != run->last_ns)
            end_run(m, run);
        run->last_ns = clock->last_ns;
        run->count++;
    }
    clock->last_ns = m->now_ns;
    if (out->finish_reason == QUIRE_FINISH_NONE)
        return;
    if (life->has_ended)
        tell_request(m, index, out->finish_reason);
    clock->last_ns = life->has_ended ? QR_TIME_ENDED : QR_TIME_PREFILL;
}

void qr_metrics_take_outputs(qr_metrics *m, const quire_output *outputs, uint32_t first,
                             uint32_t num_outputs)
{
    qr_gap_run run = {.last_ns = QR_TIME_UNKNOWN};
    uint64_t num_tokens = 0;
    uint64_t now_ns = m->now_ns;
    qr_request_clock *clocks = m->clocks;
    for (uint32_t i = first; i < num_outputs; i++) {
        const quire_output *out = &outputs[i];
        qr_request_clock *clock = &clocks[quire_req_index(out->req)];
        num_tokens += out->num_new_tokens;
        clock->num_generated += out->num_new_tokens;
        bool is_common = run.count > 0 && clock->last_ns == run.last_ns &&
                         out->finish_reason == QUIRE_FINISH_NONE;
        if (QR_LIKELY(is_common)) {
            clock->last_ns = now_ns;
            run.count++;
        } else {
            take_rare_output(m, out, &run);
        }
    }
    end_run(m, &run);
    qr_metrics_add(m, QR_METRIC_GENERATION, 0, num_tokens);
    if (num_outputs > 0)
        qr_metrics_observe(m, QR_METRIC_ITERATION_TOKENS, run.num_prompt + num_tokens, 1);
}

void qr_metrics_take_stats(qr_metrics *m, const quire_sched_stats *stats)
{
    const quire_prefix_stats *local = &stats->prefix;
    const quire_prefix_stats *external = &stats->connector_prefix;
    qr_metrics_add(m, QR_METRIC_PREFIX_QUERIES, 0, local->queries);
    qr_metrics_add(m, QR_METRIC_PREFIX_HITS, 0, local->hits);
    qr_metrics_add(m, QR_METRIC_PREEMPTED_QUERIES, 0, local->preempted_queries);
    qr_metrics_add(m, QR_METRIC_PREEMPTED_HITS, 0, local->preempted_hits);
    qr_metrics_add(m, QR_METRIC_EXTERNAL_QUERIES, 0, external->queries);
    qr_metrics_add(m, QR_METRIC_EXTERNAL_HITS, 0, external->hits);
    if (m->shape.num_spec_tokens == 0 || stats->spec.num_drafts == 0)
        return;
    qr_metrics_add(m, QR_METRIC_SPEC_DRAFTS, 0, stats->spec.num_drafts);
    qr_metrics_add(m, QR_METRIC_SPEC_DRAFT_TOKENS, 0, stats->spec.num_draft_tokens);
    for (uint32_t i = 0; i < m->shape.num_spec_tokens; i++)
        qr_metrics_add(m, QR_METRIC_SPEC_POSITIONS, i, stats->spec.accepted_per_pos[i]);
    qr_metrics_add(m, QR_METRIC_SPEC_ACCEPTED, 0, stats->spec.num_accepted_tokens);
}

void qr_metrics_end_update(qr_metrics *m, uint64_t update_ns)
{
    qr_metrics_observe(m, QR_METRIC_UPDATE_TIME, update_ns, 1);
}
