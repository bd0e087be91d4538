/* parity/parity_cache.c - Quire's cache against vLLM's KVCacheManager.
 *
 * Each seed is one workload of a small engine. Requests are numbered; digests too (cache_model.h).
 *
 *      cache full+window 40 96 16 1 0 1 1 1 4 32 0 F4 W4w12      a case: its mix, blocks, longest
 *          request, tokens of a step, caching, EAGLE, stats, dcp, pcp, hash block size (0: not
 *          said), digest bytes, encoder tokens, groups (cache_mixes.py has their letters)
 *          0.32: then the retention interval (or "all"), hundredths of blocks that the watermark
 *          is, modules of multi-module MTP
 *      refused ...          the same, of a cache that vLLM cannot make or use
 *      r3 45 0 0-6,9-10     request 3: 45 tokens, may read the cache, hashes
 *      t3 49 11             it has 49 tokens now, and one more hash
 *      g3 0                 get_computed_blocks; computed tokens
 *      c3 0 h x8 e4         can_fit_full_sequence; computed tokens; then options
 *      a3 0 16 h l2 x8 d1   allocate_slots; computed and new tokens; h: with the last lookup's hit,
 *                           l lookahead, x external, e encoder tokens, d delayed caching
 *                           0.32: f1 the whole sequence must fit, w1 the watermark applies, i
 *                           tokens in flight, r reserved blocks, z0,2 groups that need not be
 *                           zeroed; its g has a 1 where the request is admitted with what was found
 *      k3 24  cache_blocks  s3 24  remove_skipped_blocks   o3  get_num_common_prefix_blocks
 *      f3     free          p3     free, for preemption    e 5,9,2  evict_blocks
 *      z      reset         n      new_step_starts         b  take_new_block_ids
 *      m      stats         q      all blocks              u, v 5,9  touch, free in the pool
 *      y      copies, which are then made; t24 after h: the hit was cut to 24 tokens
 *      !P a3 ...            vLLM raises "Cannot get N free blocks", and the case ends
 *      !A a3 ...            vLLM raises anything else, and the case ends
 *      stop REASON          vLLM would do damage now, and the case ends before
 *
 * After each call its answer, its events, free blocks, usage and keys are compared, after every
 * fourth the whole free queue, all users and all keys. A second pass with the default profile,
 * whose decisions may differ, checks that everything stays sound and nothing is leaked.
 */
#include "base/inner.h"
#include "parity/cache_model.h"
#include "parity/cache_tally.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STATE_EVERY = 4, LOG_EVERY = 3, SOME_SEEDS = 50, LARGE_RECORDING = 500 };

static const char *path;

typedef struct cache_run {
    cache_model m;
    cache_tally tally;
    bool compares; /* false: decisions may differ from the recording's */
    uint64_t calls;
    quire_block touched[2 * CACHE_MAX_BLOCKS]; /* by nobody's request */
    uint32_t num_touched;
    uint32_t unzeroed[CACHE_MAX_GROUPS];
    uint64_t num_refused; /* caches that vLLM cannot make or use */
    text before;          /* the state before a call, which a refusal leaves as it was */
} cache_run;

static void expect_status(cache_run *c, int status, int expected)
{
    if (c->compares && status != expected)
        recording_differs(&c->m.r, "status", quire_status_name(expected),
                          quire_status_name(status));
}

/* ---- calls about a request ------------------------------------------------- */

static int look_up(cache_run *c, cache_request *request)
{
    cache_hit *hit = &c->m.hit;
    quire_block_span spans[CACHE_MAX_GROUPS] = {{0}};
    request->q.num_computed_tokens = recording_u32(&c->m.r);
    int status = quire_cache_get_computed_blocks(c->m.cache, &request->q, spans, &hit->num_tokens);
    expect_status(c, status, QUIRE_OK);
    for (uint32_t g = 0; g < c->m.config.num_groups; g++) {
        recording_expect(&c->m.r, spans[g].count <= CACHE_MAX_HASHES, "hit fits");
        if (spans[g].count > 0)
            memcpy(hit->ids[g], spans[g].ids, spans[g].count * sizeof spans[g].ids[0]);
        hit->spans[g] = (quire_block_span){hit->ids[g], spans[g].count};
    }
    text_add(&c->m.r.answer, "%" PRIu32, hit->num_tokens);
    if (cache_is_0_32(&c->m.r)) {
        uint32_t boundary = quire_cache_get_counts(c->m.cache).shared_prefix_boundary;
        text_add(&c->m.r.answer, "+%" PRIu32, boundary);
        cache_tally_add(&c->tally, CACHE_shared, boundary > 0);
        if (recording_u32(&c->m.r) != 0)
            request->shared_prefix_boundary = boundary;
    }
    text_add(&c->m.r.answer, " ");
    cache_add_spans(&c->m.r.answer, &c->m, hit->spans);
    cache_tally_add(&c->tally, hit->num_tokens > 0 ? CACHE_hit : CACHE_miss, 1);
    for (uint32_t g = 0; g < c->m.config.num_groups; g++)
        cache_tally_add(&c->tally, CACHE_inside,
                        hit->num_tokens % c->m.groups[g].spec.block_size != 0);
    return status;
}

static uint32_t read_groups(cache_run *c, const char *list)
{
    uint32_t count = 0;
    char *end = NULL;
    for (const char *at = list; *at != '\0'; at = *end == ',' ? end + 1 : end) {
        recording_expect(&c->m.r, count < CACHE_MAX_GROUPS, "groups fit");
        c->unzeroed[count++] = (uint32_t)strtoul(at, &end, 10);
    }
    return count;
}

/* To whole blocks. */
static void cut_hit(cache_run *c, uint32_t num_tokens)
{
    for (uint32_t g = 0; g < c->m.config.num_groups; g++) {
        const quire_layer_spec *spec = &c->m.groups[g].spec;
        bool is_shared = spec->kind != QUIRE_LAYER_MAMBA;
        uint32_t size = spec->block_size * (is_shared ? c->m.config.dcp_world_size : 1);
        if (c->m.hit.spans[g].count > num_tokens / size)
            c->m.hit.spans[g].count = num_tokens / size;
    }
}

/* The options up to the fingerprint, which is the last word of a line with one. */
static quire_allocate_params read_params(cache_run *c, bool has_fingerprint)
{
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    while (c->m.r.cursor != NULL) {
        if (has_fingerprint && strchr(c->m.r.cursor, ' ') == NULL)
            break;
        const char *word = recording_word(&c->m.r);
        uint32_t value = (uint32_t)strtoul(word + 1, NULL, 10);
        if (word[0] == 'h') {
            params.num_new_computed_tokens = c->m.hit.num_tokens;
            params.new_computed_blocks = c->m.hit.spans;
        } else if (word[0] == 't') {
            cut_hit(c, value);
            params.num_new_computed_tokens = value;
        } else if (word[0] == 'l') {
            params.num_lookahead_tokens = value;
        } else if (word[0] == 'x') {
            params.num_external_computed_tokens = value;
        } else if (word[0] == 'e') {
            params.num_encoder_tokens = value;
        } else if (word[0] == 'f') {
            params.full_sequence_must_fit = value;
        } else if (word[0] == 'w') {
            params.has_scheduled_reqs = value;
        } else if (word[0] == 'i') {
            params.num_uncertain_tokens = value;
        } else if (word[0] == 'r') {
            params.reserved_blocks = value;
        } else if (word[0] == 'z') {
            params.skip_zeroing_group_ids = c->unzeroed;
            params.num_skip_zeroing_group_ids = read_groups(c, word + 1);
        } else {
            recording_expect(&c->m.r, word[0] == 'd', "option is known");
            params.delay_cache_blocks = value;
        }
    }
    return params;
}

static int fits(cache_run *c, cache_request *request, bool has_fingerprint)
{
    request->q.num_computed_tokens = recording_u32(&c->m.r);
    quire_allocate_params params = read_params(c, has_fingerprint);
    int status = quire_cache_can_fit_full_sequence(c->m.cache, &request->q, &params);
    expect_status(c, status, status == QUIRE_NO_SPACE ? QUIRE_NO_SPACE : QUIRE_OK);
    text_add(&c->m.r.answer, "%d", status == QUIRE_OK);
    cache_tally_add(&c->tally, status == QUIRE_OK ? CACHE_fits : CACHE_no_fit, 1);
    return status;
}

static int allocate(cache_run *c, cache_request *request, bool has_fingerprint)
{
    quire_block_span spans[CACHE_MAX_GROUPS] = {{0}};
    request->q.num_computed_tokens = recording_u32(&c->m.r);
    uint32_t num_new = recording_u32(&c->m.r);
    quire_allocate_params params = read_params(c, has_fingerprint);
    params.num_new_tokens = num_new;
    params.num_prompt_tokens = request->num_prompt_tokens;
    params.shared_prefix_boundary = request->shared_prefix_boundary;
    int status = quire_cache_allocate_slots(c->m.cache, &request->q, &params, spans);
    if (status == QUIRE_OK)
        cache_add_spans(&c->m.r.answer, &c->m, spans);
    else
        text_add(&c->m.r.answer, "!");
    text_add(&c->m.r.answer, " ");
    cache_add_request(&c->m.r.answer, &c->m, request);
    cache_tally_add(&c->tally, status == QUIRE_OK ? CACHE_alloc : CACHE_no_space, status >= 0);
    cache_tally_add(&c->tally, CACHE_lookahd, params.num_lookahead_tokens > 0);
    cache_tally_add(&c->tally, CACHE_external, params.num_external_computed_tokens > 0);
    cache_tally_add(&c->tally, CACHE_delayed, params.delay_cache_blocks);
    if (params.full_sequence_must_fit != 0)
        cache_tally_add(&c->tally, status == QUIRE_OK ? CACHE_fits : CACHE_no_fit, 1);
    return status;
}

static int free_request(cache_run *c, cache_request *request, bool preempted)
{
    int status = quire_cache_free(c->m.cache, &request->q);
    expect_status(c, status, QUIRE_OK);
    recording_expect(&c->m.r, request->q.seq == 0, "request has no seq after free");
    if (preempted)
        request->q.was_preempted = 1;
    cache_add_request(&c->m.r.answer, &c->m, request);
    cache_tally_add(&c->tally, preempted ? CACHE_preempt : CACHE_free, 1);
    return status;
}

static int count_common(cache_run *c, const cache_request *request)
{
    uint32_t counts[CACHE_MAX_GROUPS] = {0};
    int status = quire_cache_get_num_common_prefix_blocks(c->m.cache, request->q.seq, counts);
    expect_status(c, status, QUIRE_OK);
    text_add_ids(&c->m.r.answer, counts, c->m.config.num_groups);
    cache_tally_add(&c->tally, CACHE_common, 1);
    return status;
}

static int request_call(cache_run *c, char op, cache_request *request, bool has_fingerprint)
{
    if (op == 'g')
        return look_up(c, request);
    if (op == 'c')
        return fits(c, request, has_fingerprint);
    if (op == 'a')
        return allocate(c, request, has_fingerprint);
    if (op == 'f' || op == 'p')
        return free_request(c, request, op == 'p');
    if (op == 'o')
        return count_common(c, request);
    recording_expect(&c->m.r, op == 'k' || op == 's', "operation is known");
    uint32_t computed = recording_u32(&c->m.r);
    int status = op == 'k' ? quire_cache_cache_blocks(c->m.cache, &request->q, computed)
                           : inner_remove_skipped(c->m.cache, request->q.seq, computed);
    cache_add_request(&c->m.r.answer, &c->m, request);
    cache_tally_add(&c->tally, op == 'k' ? CACHE_cache : CACHE_skip, 1);
    return status;
}

/* ---- calls about the cache ------------------------------------------------- */

static int take_stats(cache_run *c)
{
    quire_prefix_stats stats = {0};
    int status = quire_cache_take_prefix_stats(c->m.cache, &stats);
    bool logs = c->m.config.log_stats == QUIRE_ON;
    recording_expect(&c->m.r, status == (logs ? QUIRE_OK : QUIRE_E_DISABLED), "stats are kept");
    if (!logs)
        text_add(&c->m.r.answer, "-");
    else
        text_add(&c->m.r.answer,
                 "%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
                 stats.was_reset, stats.requests, stats.queries, stats.hits,
                 stats.preempted_requests, stats.preempted_queries, stats.preempted_hits);
    cache_tally_add(&c->tally, CACHE_stats, 1);
    return QUIRE_OK;
}

static int take_new_ids(cache_run *c)
{
    quire_block_span span = {0};
    int status = quire_cache_take_new_block_ids(c->m.cache, &span);
    expect_status(c, status, QUIRE_OK);
    text_add_ids(&c->m.r.answer, span.ids, span.count);
    cache_tally_add(&c->tally, CACHE_newids, span.count > 0);
    return status;
}

static int take_copies(cache_run *c)
{
    const quire_block_copy *copies = NULL;
    uint32_t count = 0;
    int status = quire_cache_take_copies(c->m.cache, &copies, &count);
    expect_status(c, status, QUIRE_OK);
    for (uint32_t i = 0; i < count; i++)
        text_add(&c->m.r.answer, "%s%" PRIu32 ">%" PRIu32, i == 0 ? "" : " ", copies[i].from,
                 copies[i].to);
    cache_tally_add(&c->tally, CACHE_copies, count);
    return status;
}

static int reset(cache_run *c)
{
    int status = quire_cache_reset_prefix_cache(c->m.cache);
    expect_status(c, status, status == QUIRE_BUSY ? QUIRE_BUSY : QUIRE_OK);
    text_add(&c->m.r.answer, "%d", status == QUIRE_OK);
    cache_tally_add(&c->tally, status == QUIRE_OK ? CACHE_reset : CACHE_busy, 1);
    return status;
}

static int block_call(cache_run *c, char op)
{
    quire_block blocks[CACHE_MAX_BLOCKS];
    uint32_t count = recording_ids(&c->m.r, blocks, CACHE_MAX_BLOCKS);
    cache_tally_add(&c->tally, op == 'e' ? CACHE_evict : CACHE_touch, 1);
    if (op == 'e')
        return inner_evict(c->m.cache, blocks, count);
    if (op == 'u') {
        recording_expect(&c->m.r, c->num_touched + count <= 2 * CACHE_MAX_BLOCKS, "blocks fit");
        memcpy(c->touched + c->num_touched, blocks, count * sizeof blocks[0]);
        c->num_touched += count;
        return quire_pool_touch(quire_cache_get_pool(c->m.cache), blocks, count);
    }
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < count && status == QUIRE_OK; i++)
        status = quire_pool_free_blocks(quire_cache_get_pool(c->m.cache), &blocks[i], 1);
    c->num_touched = 0;
    return status;
}

static int cache_call(cache_run *c, char op)
{
    switch (op) {
    case 'm':
        return take_stats(c);
    case 'b':
        return take_new_ids(c);
    case 'y':
        return take_copies(c);
    case 'z':
        return reset(c);
    case 'e':
    case 'u':
    case 'v':
        return block_call(c, op);
    case 'n':
        return quire_cache_new_step_starts(c->m.cache);
    default:
        recording_expect(&c->m.r, op == 'q', "operation is known");
        return QUIRE_OK;
    }
}

/* ---- one call -------------------------------------------------------------- */

static cache_request *request_of(cache_run *c, const char *word)
{
    if (word[1] == '\0')
        return NULL;
    unsigned long index = strtoul(word + 1, NULL, 10);
    recording_expect(&c->m.r, index < CACHE_MAX_REQUESTS, "request fits");
    return &c->m.requests[index];
}

static int make_call(cache_run *c, const char *word, bool has_fingerprint)
{
    cache_request *request = request_of(c, word);
    c->m.caller = request;
    text_clear(&c->m.events);
    text_clear(&c->before);
    if (!c->compares)
        cache_add_state(&c->before, &c->m, true);
    c->calls++;
    cache_tally_add(&c->tally, CACHE_calls, 1);
    int status = request != NULL ? request_call(c, word[0], request, has_fingerprint)
                                 : cache_call(c, word[0]);
    recording_expect(&c->m.r, quire_cache_check(c->m.cache) == QUIRE_OK, "cache is sound");
    if (c->calls % LOG_EVERY == 0)
        cache_check_log(&c->m);
    return status;
}

/* A call that was not done has changed nothing: in the default profile without exception. */
static void check_nothing_changed(cache_run *c)
{
    text_clear(&c->m.r.answer);
    cache_add_state(&c->m.r.answer, &c->m, true);
    if (strcmp(c->before.data, c->m.r.answer.data) != 0)
        recording_differs(&c->m.r, "state after a call that was not done", c->before.data,
                          c->m.r.answer.data);
}

static void compared_call(cache_run *c, const char *word)
{
    text_add(&c->m.r.answer, "%c=", word[0]);
    int status = make_call(c, word, true);
    if (!c->compares) {
        if (status != QUIRE_OK)
            check_nothing_changed(c);
        text_clear(&c->m.r.answer);
        c->m.r.compared++;
        return;
    }
    if (status < 0)
        recording_differs(&c->m.r, "status", "no error", quire_status_name(status));
    text_add(&c->m.r.answer, "|%s", c->m.events.len == 0 ? "" : c->m.events.data);
    cache_add_state(&c->m.r.answer, &c->m, c->calls % STATE_EVERY == 0 || word[0] == 'q');
    recording_check_answer(&c->m.r);
}

/* What vLLM raises in the middle of, Quire refuses. */
static void refused_call(cache_run *c, bool predicted)
{
    const char *word = recording_word(&c->m.r);
    int status = make_call(c, word, false);
    if (c->compares && predicted)
        expect_status(c, status, QUIRE_E_PREDICTION);
    else if (c->compares && status >= 0)
        recording_differs(&c->m.r, "status", "an error", quire_status_name(status));
    else if (!c->compares && status != QUIRE_OK)
        check_nothing_changed(c);
    cache_tally_add(&c->tally, predicted ? CACHE_predict : CACHE_refused, 1);
    text_clear(&c->m.r.answer);
    c->m.r.compared++;
}

/* ---- a workload ------------------------------------------------------------ */

static void add_request(cache_run *c, cache_request *request)
{
    request->q = (quire_cache_request){
        .num_tokens = recording_u32(&c->m.r), .hashes = request->hashes, .user = request};
    request->q.skip_reading_prefix = recording_u32(&c->m.r);
    cache_read_hashes(&c->m, request);
    request->num_prompt_tokens = request->q.num_tokens;
    request->shared_prefix_boundary = 0;
}

static void start_case(cache_run *c)
{
    cache_model_start(&c->m);
    cache_tally_start(&c->tally, c->m.mix);
    c->m.num_stored = c->m.num_removed = c->m.num_cleared = 0;
    c->m.num_partial = c->m.num_keyless = 0;
    c->calls = 0;
    c->num_touched = 0;
}

/* Whatever still has blocks gives them back, and then nothing is in use but sinks. */
static void end_case(cache_run *c)
{
    if (c->compares)
        recording_check_case(&c->m.r);
    cache_tally_add(&c->tally, CACHE_stored, c->m.num_stored);
    cache_tally_add(&c->tally, CACHE_removed, c->m.num_removed);
    cache_tally_add(&c->tally, CACHE_cleared, c->m.num_cleared);
    cache_tally_add(&c->tally, CACHE_partial, c->m.num_partial);
    cache_tally_add(&c->tally, CACHE_keyless, c->m.num_keyless);
    for (uint32_t i = 0; i < CACHE_MAX_REQUESTS; i++)
        assert_int_equal(quire_cache_free(c->m.cache, &c->m.requests[i].q), QUIRE_OK);
    for (uint32_t i = 0; i < c->num_touched; i++)
        assert_int_equal(
            quire_pool_free_blocks(quire_cache_get_pool(c->m.cache), &c->touched[i], 1), QUIRE_OK);
    assert_int_equal(take_copies(c), QUIRE_OK);
    text_clear(&c->m.r.answer);
    recording_expect(&c->m.r, quire_cache_get_counts(c->m.cache).num_seqs == 0,
                     "no sequence is left");
    recording_expect(&c->m.r,
                     quire_cache_get_usage(c->m.cache).active == cache_num_sink_blocks(&c->m),
                     "nothing is leaked");
    recording_expect(&c->m.r, quire_cache_check(c->m.cache) == QUIRE_OK, "cache is sound");
    cache_check_log(&c->m);
}

static void run_line(cache_run *c)
{
    const char *word = recording_word(&c->m.r);
    if (c->m.is_passed_over && strcmp(word, "cache") != 0 && strcmp(word, "refused") != 0) {
        bool is_call = strchr("rt", word[0]) == NULL && strcmp(word, "stop") != 0;
        c->m.r.compared += is_call && strcmp(word, "end") != 0;
    } else if (strcmp(word, "cache") == 0) {
        start_case(c);
    } else if (strcmp(word, "refused") == 0) {
        cache_model_refuse(&c->m);
        c->num_refused++;
    } else if (strcmp(word, "end") == 0) {
        end_case(c);
    } else if (strcmp(word, "stop") == 0) {
        cache_tally_add(&c->tally, CACHE_stop, 1);
    } else if (word[0] == '!') {
        refused_call(c, word[1] == 'P');
    } else if (word[0] == 'r') {
        add_request(c, request_of(c, word));
    } else if (word[0] == 't') {
        cache_request *request = request_of(c, word);
        request->q.num_tokens = recording_u32(&c->m.r);
        cache_read_hashes(&c->m, request);
    } else {
        compared_call(c, word);
    }
}

/* With the profile of the recording, or with the default one. */
static void replay(bool compares)
{
    static cache_run c;
    memset(&c, 0, sizeof c);
    c.compares = compares;
    recording_open(&c.m.r, path, "cache");
    c.m.profile = compares ? c.m.r.profile : QUIRE_PROFILE_DEFAULT;
    while (recording_next(&c.m.r))
        run_line(&c);
    bool is_large = c.m.r.runs >= LARGE_RECORDING;
    bool is_0_32 = cache_is_0_32(&c.m.r);
    bool has_parts = strncmp(c.m.mix, "parts", strlen("parts")) == 0 && c.m.r.runs >= SOME_SEEDS;
    recording_close(&c.m.r);
    if (compares) {
        cache_tally_print(&c.tally);
        assert_true(!has_parts || cache_tally_has(&c.tally, CACHE_copies));
        print_message("%" PRIu64 " caches that vLLM refuses, refused\n", c.num_refused);
        assert_true(c.num_refused > 0 || !is_large);
        assert_true(cache_tally_is_complete(&c.tally, is_0_32) || !is_large);
    }
    cache_model_free(&c.m);
    text_free(&c.before);
}

static void cache_answers_as_vllm(void **state)
{
    (void)state;
    replay(true);
}

static void default_profile_stays_sound(void **state)
{
    (void)state;
    replay(false);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/cache.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(cache_answers_as_vllm),
                                       cmocka_unit_test(default_profile_stays_sound)};
    return cmocka_run_group_tests_name("parity_cache", tests, NULL, NULL);
}
