/* cache/test_fork.c - sequences that share blocks never see each other's writes.
 *
 *      beam search      step:  every beam gets one token  ->  copies  ->  writes  ->  all read
 *                              then some beams end and others are forked in their place
 *      storm            prompts with hits, forks of forks, rewrites and frees in any order, in a
 *                       pool that is too small; what fails must leave everything as it was
 *
 * See shadow.h for how a write that goes astray is seen.
 *
 *      cache_fork [SEED]
 */
#include "cache/shadow.h"

#include "model/plain.h"

#if defined(MODEL_SLOW)
enum { STEPS = 250, WIDTH_STEP = 5, STORM_STEPS = 1500 };
#else
enum { STEPS = 1000, WIDTH_STEP = 1, STORM_STEPS = 12000 };
#endif
enum { MAX_WIDTH = 16, PROMPT = 21, SNAPSHOT = 1 << 16 };

static uint64_t seed;
static shadow *shade; /* too large for a stack */

static uint32_t below(uint32_t n)
{
    return unit_random_below(&shade->random, n);
}

static quire_cache_config fork_config(const quire_group_config *groups, uint32_t num_groups,
                                      uint32_t num_blocks)
{
    quire_cache_config config = kit_config(groups, num_groups, num_blocks);
    config.max_requests = SHADOW_SEQS;
    config.max_copies = 128;
    return config;
}

/* ---- beam search -------------------------------------------------------- */

/* A random parent for each beam of the next step; parents that nobody chose end. */
static void prune_and_fork(shadow_seq **beams, uint32_t width)
{
    shadow_seq *next[MAX_WIDTH];
    bool is_kept[MAX_WIDTH] = {false};
    for (uint32_t i = 0; i < width; i++) {
        uint32_t parent = below(width);
        if (!is_kept[parent]) {
            is_kept[parent] = true;
            next[i] = beams[parent];
            continue;
        }
        next[i] = shadow_new(shade);
        assert_non_null(next[i]);
        assert_int_equal(shadow_fork(shade, beams[parent], next[i]), QUIRE_OK);
    }
    for (uint32_t i = 0; i < width; i++)
        if (!is_kept[i])
            shadow_free(shade, beams[i]);
    memcpy(beams, next, width * sizeof beams[0]);
}

static void beam_search(uint32_t width, const quire_group_config *groups, uint32_t num_groups)
{
    uint32_t block_size = groups[0].spec.block_size;
    uint32_t blocks = (SHADOW_LEN / block_size + 2) * (width + 1) * num_groups;
    quire_cache_config config = fork_config(groups, num_groups, blocks);
    shadow_seq *beams[MAX_WIDTH];
    shadow_open(shade, &config, seed + width);
    beams[0] = shadow_new(shade);
    shadow_prompt(shade, beams[0], 0, PROMPT);
    assert_int_equal(shadow_prefill(shade, beams[0]), QUIRE_OK);
    shadow_step(shade);
    for (uint32_t i = 1; i < width; i++) {
        beams[i] = shadow_new(shade);
        assert_int_equal(shadow_fork(shade, beams[0], beams[i]), QUIRE_OK);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < width; i++)
            assert_int_equal(shadow_extend(shade, beams[i], 1), QUIRE_OK);
        shadow_step(shade);
        shadow_verify(shade);
        prune_and_fork(beams, width);
        assert_int_equal(quire_cache_get_counts(shade->cache).num_seqs, width);
        if (step % 16 == 0)
            assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
    }
    printf("width %2u, block size %2u, %u groups: %llu copies, %llu reads\n", (unsigned)width,
           (unsigned)block_size, (unsigned)num_groups, (unsigned long long)shade->num_copies,
           (unsigned long long)shade->num_reads);
    assert_true(width == 1 ? shade->num_copies == 0 : shade->num_copies > STEPS / 8);
    shadow_close(shade);
}

static void beam_search_of_every_width(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {16, 4, 7, 2};
    for (uint32_t width = 1; width <= MAX_WIDTH; width += WIDTH_STEP) {
        quire_group_config full = kit_full(sizes[width % COUNT(sizes)]);
        beam_search(width, &full, 1);
    }
}

static void beam_search_with_a_window_too(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 10)};
    const quire_group_config other[] = {kit_window(8, 9), kit_full(8)};
    beam_search(5, groups, 2);
    beam_search(16, other, 2);
}

static void beam_search_without_caching(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = fork_config(&full, 1, 500);
    config.enable_caching = QUIRE_OFF;
    shadow_seq *beams[4];
    shadow_open(shade, &config, seed);
    beams[0] = shadow_new(shade);
    shadow_prompt(shade, beams[0], 0, 6);
    assert_int_equal(shadow_prefill(shade, beams[0]), QUIRE_OK);
    shadow_step(shade);
    for (uint32_t i = 1; i < 4; i++) {
        beams[i] = shadow_new(shade);
        assert_int_equal(shadow_fork(shade, beams[0], beams[i]), QUIRE_OK);
    }
    for (uint32_t step = 0; step < 200; step++) {
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(shadow_extend(shade, beams[i], 1 + below(3)), QUIRE_OK);
        shadow_step(shade);
        shadow_verify(shade);
        prune_and_fork(beams, 4);
    }
    assert_true(shade->num_copies > 0);
    shadow_close(shade);
}

/* ---- nothing changes when it fails -------------------------------------- */

/* All that can be seen, as text. */
static void snapshot(char *text)
{
    size_t used = 0;
    uint32_t num_free;
    static quire_block queue[4096];
    for (quire_block b = 1; b < shade->num_blocks; b++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(shade->pool, b, &info), QUIRE_OK);
        used += (size_t)snprintf(text + used, SNAPSHOT - used, "%c%u%s ", info.state,
                                 (unsigned)info.ref_cnt, info.hash.data != NULL ? "k" : "");
    }
    num_free = quire_pool_get_all_free_blocks(shade->pool, queue, COUNT(queue));
    for (uint32_t i = 0; i < num_free; i++)
        used += (size_t)snprintf(text + used, SNAPSHOT - used, "%u ", (unsigned)queue[i]);
    for (uint32_t i = 0; i < SHADOW_SEQS; i++) {
        quire_block_span spans[SHADOW_GROUPS];
        assert_int_equal(quire_cache_get_blocks(shade->cache, shade->seqs[i].r.seq, spans),
                         QUIRE_OK);
        for (uint32_t g = 0; g < shade->num_groups; g++) {
            used += (size_t)snprintf(text + used, SNAPSHOT - used, "/%u ", (unsigned)i);
            for (uint32_t k = 0; k < spans[g].count; k++)
                used += (size_t)snprintf(text + used, SNAPSHOT - used, "%u ",
                                         (unsigned)spans[g].ids[k]);
        }
        assert_true(used < SNAPSHOT);
    }
}

static char before[SNAPSHOT];
static char after[SNAPSHOT];

static void assert_unchanged(int status)
{
    assert_true(status == QUIRE_NO_SPACE || status == QUIRE_FULL);
    snapshot(after);
    assert_string_equal(before, after);
    assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
}

typedef struct weather {
    uint64_t forks;
    uint64_t rewrites;
    uint64_t copies;
    uint64_t no_space;
    uint64_t full;
} weather;

static void note_failure(weather *w, int status)
{
    if (status == QUIRE_OK)
        return;
    assert_unchanged(status);
    w->no_space += status == QUIRE_NO_SPACE;
    w->full += status == QUIRE_FULL;
}

static void storm_on(shadow_seq *q, weather *w)
{
    uint32_t dice = below(12);
    if (q->r.seq == 0) {
        memset(&q->r, 0, sizeof q->r);
        q->r.hashes = q->hashes;
        q->is_delayed = false;
        shadow_prompt(shade, q, below(3), 1 + below(24));
        snapshot(before);
        note_failure(w, shadow_prefill(shade, q));
    } else if (dice < 3) {
        shadow_seq *child = shadow_new(shade);
        if (child == NULL)
            return;
        snapshot(before);
        int status = shadow_fork(shade, q, child);
        note_failure(w, status);
        w->forks += status == QUIRE_OK;
    } else if (q->num_planned > 0) {
        return; /* what is being computed is neither freed nor written again */
    } else if (dice < 8 && q->r.num_computed_tokens < 60) {
        snapshot(before);
        note_failure(w, shadow_extend(shade, q, 1 + below(5)));
    } else if (dice == 8 && q->r.num_computed_tokens > 0 && shadow_is_idle(shade)) {
        uint32_t computed = q->r.num_computed_tokens;
        uint32_t first = below(computed);
        snapshot(before);
        int status = shadow_rewrite(shade, q, first, 1 + below(computed - first));
        note_failure(w, status);
        w->rewrites += status == QUIRE_OK;
    } else {
        shadow_free(shade, q);
    }
}

static void storm(const quire_group_config *groups, uint32_t num_groups, uint32_t num_blocks,
                  uint32_t max_copies, weather *w)
{
    quire_cache_config config = fork_config(groups, num_groups, num_blocks);
    config.max_copies = max_copies;
    config.max_requests = 12;
    shadow_open(shade, &config, seed + num_blocks);
    shade->has_delays = true;
    for (uint32_t step = 0; step < STORM_STEPS; step++) {
        for (uint32_t i = below(6); i > 0; i--)
            storm_on(&shade->seqs[below(14)], w);
        shadow_step(shade);
        shadow_verify(shade);
        assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
        if (step % 500 == 499)
            for (uint32_t i = 0; i < SHADOW_SEQS; i++)
                if (shade->seqs[i].r.seq != 0)
                    shadow_free(shade, &shade->seqs[i]);
    }
    w->copies += shade->num_copies;
    shadow_close(shade);
}

static void storms(void **state)
{
    (void)state;
    const quire_group_config full[] = {kit_full(4)};
    const quire_group_config mixed[] = {kit_full(4), kit_window(4, 6)};
    const quire_group_config window[] = {kit_window(2, 5)};
    weather w = {0};
    storm(full, 1, 40, 64, &w);
    storm(full, 1, 100, 2, &w);
    storm(mixed, 2, 60, 64, &w);
    storm(window, 1, 50, 3, &w);
    printf("storms: %llu forks, %llu rewrites, %llu copies, %llu no space, %llu full\n",
           (unsigned long long)w.forks, (unsigned long long)w.rewrites,
           (unsigned long long)w.copies, (unsigned long long)w.no_space,
           (unsigned long long)w.full);
    assert_true(w.forks > 0 && w.rewrites > 0 && w.copies > 0 && w.no_space > 0 && w.full > 0);
}

/* ---- single cases ------------------------------------------------------- */

/* Parent and child, both with 6 tokens in blocks of 4: the second block is shared and not full. */
static void open_family(shadow_seq **parent, shadow_seq **child, uint32_t num_blocks,
                        uint32_t max_copies)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = fork_config(&full, 1, num_blocks);
    config.max_copies = max_copies;
    config.max_requests = 3;
    shadow_open(shade, &config, seed);
    *parent = shadow_new(shade);
    shadow_prompt(shade, *parent, 0, 6);
    assert_int_equal(shadow_prefill(shade, *parent), QUIRE_OK);
    shadow_step(shade);
    *child = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, *parent, *child), QUIRE_OK);
}

static quire_block block_at(const shadow_seq *q, uint32_t index)
{
    quire_block_span span;
    assert_int_equal(quire_cache_get_blocks(shade->cache, q->r.seq, &span), QUIRE_OK);
    assert_true(index < span.count);
    return span.ids[index];
}

static uint32_t users(quire_block block)
{
    quire_block_info info;
    assert_int_equal(quire_pool_get_block(shade->pool, block, &info), QUIRE_OK);
    return info.ref_cnt;
}

static void fork_shares_and_copies_nothing(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 10, 4);
    assert_true(child->r.seq != 0 && child->r.seq != parent->r.seq);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(block_at(parent, i), block_at(child, i));
        assert_int_equal(users(block_at(parent, i)), 2);
    }
    const quire_block_copy *copies = NULL;
    uint32_t num_copies = 7;
    assert_int_equal(quire_cache_take_copies(shade->cache, &copies, &num_copies), QUIRE_OK);
    assert_int_equal(num_copies, 0);
    assert_int_equal(quire_cache_get_usage(shade->cache).active, 2); /* shared blocks count once */
    shadow_free(shade, parent);
    assert_int_equal(users(block_at(child, 0)), 1);
    shadow_verify(shade);
    shadow_close(shade);
}

static void first_writer_gets_the_copy(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 10, 4);
    quire_block shared = block_at(parent, 1);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    assert_int_not_equal(block_at(child, 1), shared);
    assert_int_equal(block_at(parent, 1), shared);
    assert_int_equal(block_at(child, 0), block_at(parent, 0));
    assert_int_equal(shadow_extend(shade, parent, 1), QUIRE_OK);
    assert_int_equal(block_at(parent, 1), shared); /* its own by now: nothing to copy */
    shadow_step(shade);
    assert_int_equal(shade->num_copies, 1);
    shadow_verify(shade);
    shadow_close(shade);
}

/* The copy's source has no user of its own any more, and must wait for the copy all the same. */
static void source_is_kept_until_the_copies_are_taken(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 10, 4);
    quire_block shared = block_at(parent, 1);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    shadow_free(shade, parent);
    assert_true(users(shared) > 0);
    quire_block rest[8];
    uint32_t num_free = quire_pool_get_num_free_blocks(shade->pool);
    assert_int_equal(quire_pool_get_new_blocks(shade->pool, num_free, rest), QUIRE_OK);
    for (uint32_t i = 0; i < num_free; i++)
        assert_int_not_equal(rest[i], shared);
    assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
    shadow_step(shade);
    assert_int_equal(users(shared), 0);
    assert_int_equal(quire_pool_free_blocks(shade->pool, rest, num_free), QUIRE_OK);
    shadow_verify(shade);
    shadow_close(shade);
}

static void a_copy_goes_with_its_request(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 10, 4);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    quire_block target = block_at(child, 1);
    shadow_free(shade, child);
    assert_int_equal(users(target), 0);
    shadow_step(shade);
    assert_int_equal(shade->num_copies, 0);
    shadow_verify(shade);
    shadow_close(shade);
}

static void a_copy_stays_for_a_child(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 12, 4);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    shadow_seq *grandchild = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, child, grandchild), QUIRE_OK);
    shadow_free(shade, child);
    shadow_step(shade);
    assert_int_equal(shade->num_copies, 1);
    shadow_verify(shade);
    shadow_close(shade);
}

/* child's block waits for its copy when grandchild is forked: both copies start from the first. */
static void fork_of_a_fork_before_the_copies(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 12, 4);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    shadow_seq *grandchild = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, child, grandchild), QUIRE_OK);
    assert_int_equal(block_at(grandchild, 1), block_at(child, 1));
    assert_int_equal(shadow_extend(shade, grandchild, 2), QUIRE_OK);
    assert_int_not_equal(block_at(grandchild, 1), block_at(child, 1));
    shadow_step(shade); /* checks that no block is source and target */
    assert_int_equal(shade->num_copies, 2);
    shadow_verify(shade);
    shadow_close(shade);
}

static void no_space_for_a_copy_changes_nothing(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 3, 4); /* null, and the two that are shared */
    snapshot(before);
    assert_unchanged(shadow_extend(shade, child, 1));
    assert_unchanged(quire_cache_copy_on_write(shade->cache, child->r.seq, 0, 1));
    assert_int_equal(quire_cache_copy_on_write(shade->cache, child->r.seq, 0, 6), QUIRE_NO_SPACE);
    assert_unchanged(QUIRE_NO_SPACE);
    shadow_free(shade, parent);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK); /* nothing is shared any more */
    shadow_step(shade);
    shadow_verify(shade);
    shadow_close(shade);
}

static void too_many_copies_change_nothing(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 20, 1);
    snapshot(before);
    assert_int_equal(quire_cache_copy_on_write(shade->cache, child->r.seq, 0, 6), QUIRE_FULL);
    assert_unchanged(QUIRE_FULL);
    assert_int_equal(shadow_extend(shade, child, 1), QUIRE_OK);
    shadow_seq *other = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, parent, other), QUIRE_OK);
    snapshot(before);
    assert_int_equal(shadow_extend(shade, other, 1), QUIRE_FULL);
    assert_unchanged(QUIRE_FULL);
    shadow_step(shade);
    assert_int_equal(shadow_extend(shade, other, 1), QUIRE_OK);
    shadow_step(shade);
    shadow_verify(shade);
    shadow_close(shade);
}

static void too_many_sequences_change_nothing(void **state)
{
    (void)state;
    shadow_seq *parent;
    shadow_seq *child;
    open_family(&parent, &child, 20, 4);
    shadow_seq *third = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, child, third), QUIRE_OK);
    shadow_seq *fourth = shadow_new(shade);
    snapshot(before);
    assert_int_equal(shadow_fork(shade, child, fourth), QUIRE_FULL);
    assert_unchanged(QUIRE_FULL);
    assert_true(fourth->r.seq == 0);
    shadow_close(shade);
}

/* What the prefix cache can find keeps its content: rewriting gets a private copy, though nobody
 * else uses the block. */
static void rewriting_a_cached_block_leaves_it_cached(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = fork_config(&full, 1, 12);
    shadow_open(shade, &config, seed);
    shadow_seq *first = shadow_new(shade);
    shadow_prompt(shade, first, 1, 9);
    assert_int_equal(shadow_prefill(shade, first), QUIRE_OK);
    shadow_step(shade);
    quire_block old = block_at(first, 0);
    assert_int_equal(shadow_rewrite(shade, first, 1, 2), QUIRE_OK);
    assert_int_not_equal(block_at(first, 0), old);
    assert_int_equal(users(old), 0);
    shadow_seq *again = shadow_new(shade);
    shadow_prompt(shade, again, 1, 9);
    assert_int_equal(shadow_prefill(shade, again), QUIRE_OK);
    assert_int_equal(again->r.num_computed_tokens, 8);
    assert_int_equal(block_at(again, 0), old);
    shadow_step(shade);
    shadow_verify(shade);
    shadow_close(shade);
}

/* Parent and child share two full blocks without keys; then the parent gives them theirs. */
static void open_delayed(cache_kit *kit, kit_request *parent, kit_request *child)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = fork_config(&full, 1, 12);
    kit_open(kit, &config);
    kit_request_init(kit, parent, "aaaabbbbc");
    kit_request_init(kit, child, "aaaabbbbc");
    quire_allocate_params params = {sizeof params, .num_new_tokens = 9, .delay_cache_blocks = 1};
    assert_int_equal(quire_cache_allocate_slots(kit->cache, &parent->r, &params, NULL), QUIRE_OK);
    assert_int_equal(quire_cache_fork(kit->cache, &parent->r, &child->r), QUIRE_OK);
    assert_int_equal(quire_cache_cache_blocks(kit->cache, &parent->r, 8), QUIRE_OK);
}

static void close_delayed(cache_kit *kit, kit_request *parent, kit_request *child)
{
    const quire_block_copy *copies;
    uint32_t num_copies;
    kit_check(kit);
    assert_int_equal(quire_pool_get_counts(kit->pool).num_keys, 2);
    kit_free(kit, parent);
    kit_free(kit, child);
    assert_int_equal(quire_cache_take_copies(kit->cache, &copies, &num_copies), QUIRE_OK);
    assert_int_equal(kit_prefill(kit, parent), 8);
    kit_close(kit);
}

static void keys_given_after_the_fork(void **state)
{
    (void)state;
    cache_kit kit;
    kit_request parent;
    kit_request child;
    open_delayed(&kit, &parent, &child);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &child.r, 8), QUIRE_OK);
    close_delayed(&kit, &parent, &child);
}

static void keys_with_holes_after_the_fork(void **state)
{
    (void)state;
    cache_kit kit;
    kit_request parent;
    kit_request child;
    const quire_block first = 1;
    open_delayed(&kit, &parent, &child);
    assert_int_equal(quire_pool_evict_blocks(kit.pool, &first, 1), QUIRE_OK);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &child.r, 8), QUIRE_OK);
    close_delayed(&kit, &parent, &child);
    open_delayed(&kit, &parent, &child);
    assert_int_equal(quire_cache_copy_on_write(kit.cache, child.r.seq, 0, 1), QUIRE_OK);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &child.r, 8), QUIRE_OK);
    close_delayed(&kit, &parent, &child);
}

static int setup(void **state)
{
    (void)state;
    shade = calloc(1, sizeof *shade);
    return shade == NULL;
}

static int teardown(void **state)
{
    (void)state;
    free(shade);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_shares_and_copies_nothing),
        cmocka_unit_test(first_writer_gets_the_copy),
        cmocka_unit_test(source_is_kept_until_the_copies_are_taken),
        cmocka_unit_test(a_copy_goes_with_its_request),
        cmocka_unit_test(a_copy_stays_for_a_child),
        cmocka_unit_test(fork_of_a_fork_before_the_copies),
        cmocka_unit_test(no_space_for_a_copy_changes_nothing),
        cmocka_unit_test(too_many_copies_change_nothing),
        cmocka_unit_test(too_many_sequences_change_nothing),
        cmocka_unit_test(rewriting_a_cached_block_leaves_it_cached),
        cmocka_unit_test(keys_given_after_the_fork),
        cmocka_unit_test(keys_with_holes_after_the_fork),
        cmocka_unit_test(beam_search_of_every_width),
        cmocka_unit_test(beam_search_with_a_window_too),
        cmocka_unit_test(beam_search_without_caching),
        cmocka_unit_test(storms),
    };
    seed = unit_seed(argc, argv, 1);
    return cmocka_run_group_tests_name("cache_fork", tests, setup, teardown);
}
