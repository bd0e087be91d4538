/* Two pools: quire_pool_take_same is what find_same, get_new_blocks, cache_full_blocks and hold are
 * together, whichever way it goes inside; quire_pool_leave_same what free_blocks and let_go are.
 *
 *      near ──► far[0]   one call; nobody watches, tags are shared: the quick way
 *      near ──► far[1]   one call; its events are told: block by block
 *      near ──► far[2]   the calls that it stands for, one block at a time
 *
 * After every one all three far pools, and the three near ones, show the same.
 */
#include "base/inner.h"
#include "base/unit.h"

#include <quire/pool.h>

#include <stdlib.h>

enum { WAYS = 3, NEAR = 64, FAR = 40, KEYS = 96, HASH_BYTES = 32, ROUNDS = 4000, MOST = 80 };

typedef struct world {
    uint64_t dice;
    quire_pool *near[WAYS];
    quire_pool *far[WAYS];
    quire_block held[WAYS][1024]; /* near */
    quire_block used[WAYS][1024]; /* far */
    uint32_t num_held;
    quire_block held_much; /* near */
    uint32_t num_much;
    uint32_t num_events;
} world;

static uint32_t roll(world *w, uint32_t n)
{
    w->dice = w->dice * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((w->dice >> 33) % n);
}

static void count_event(void *user, const quire_event *event)
{
    world *w = user;
    w->num_events += event->num_blocks;
}

static quire_pool *open_pool(world *w, uint32_t num_blocks, bool is_watched)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = num_blocks;
    config.hash_bytes = HASH_BYTES;
    config.on_event = is_watched ? count_event : NULL;
    config.event_user = w;
    quire_pool *pool = NULL;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_OK);
    return pool;
}

static void open_world(world *w, uint64_t seed)
{
    *w = (world){.dice = seed};
    for (uint32_t i = 0; i < WAYS; i++) {
        w->near[i] = open_pool(w, NEAR, false);
        w->far[i] = open_pool(w, FAR, i == 1);
    }
}

static void close_world(world *w)
{
    for (uint32_t i = 0; i < WAYS; i++) {
        quire_pool_destroy(w->near[i]);
        quire_pool_destroy(w->far[i]);
    }
}

static void assert_alike(quire_pool *const pools[WAYS], uint32_t num_blocks)
{
    quire_block queue[WAYS][NEAR];
    for (uint32_t i = 0; i < WAYS; i++) {
        assert_int_equal(quire_pool_check(pools[i]), QUIRE_OK);
        uint32_t n = quire_pool_get_all_free_blocks(pools[i], queue[i], NEAR);
        assert_int_equal(n, quire_pool_get_num_free_blocks(pools[0]));
        assert_memory_equal(queue[i], queue[0], n * sizeof queue[0][0]);
        assert_int_equal(quire_pool_get_counts(pools[i]).num_keys,
                         quire_pool_get_counts(pools[0]).num_keys);
        for (quire_block b = 1; b < num_blocks; b++) {
            quire_block_info one;
            quire_block_info other;
            quire_pool_get_block(pools[0], b, &one);
            quire_pool_get_block(pools[i], b, &other);
            assert_int_equal(one.ref_cnt, other.ref_cnt);
            assert_int_equal(one.state, other.state);
            assert_int_equal(one.hash.data == NULL, other.hash.data == NULL);
            if (one.hash.data != NULL)
                assert_memory_equal(one.hash.data, other.hash.data, one.hash.len);
        }
    }
}

/* Near blocks come and go; most have a key, several the same. */
static void change_near(world *w)
{
    quire_block blocks[8];
    uint32_t n = 1 + roll(w, 8);
    uint32_t first_key = roll(w, KEYS);
    bool has_keys = roll(w, 5) > 0;
    uint32_t length = roll(w, 4) == 0 ? 16 : HASH_BYTES;
    unsigned char hashes[8 * HASH_BYTES];
    for (uint32_t i = 0; i < n; i++)
        memset(hashes + (size_t)i * length, (int)(1 + (first_key + i) % KEYS), length);
    if (quire_pool_get_num_free_blocks(w->near[0]) < n)
        return;
    for (uint32_t i = 0; i < WAYS; i++) {
        assert_int_equal(quire_pool_get_new_blocks(w->near[i], n, blocks), QUIRE_OK);
        quire_cache_full_params p = {.size = sizeof(quire_cache_full_params),
                                     .blocks = blocks,
                                     .num_full_blocks = n,
                                     .hashes = hashes,
                                     .hash_len = length,
                                     .num_hashes = n,
                                     .group_id = first_key % 2};
        if (has_keys)
            assert_int_equal(quire_pool_cache_full_blocks(w->near[i], &p), QUIRE_OK);
        assert_int_equal(quire_pool_free_blocks(w->near[i], blocks, n), QUIRE_OK);
    }
}

/* Another far block gets the key of a near one: then several may have it. */
static void double_far(world *w)
{
    quire_block block = 1 + roll(w, NEAR - 1);
    for (uint32_t i = 0; i < WAYS; i++) {
        quire_block mine;
        if (quire_pool_get_new_blocks(w->far[i], 1, &mine) != QUIRE_OK)
            return;
        assert_int_equal(inner_cache_same(w->far[i], &mine, w->near[i], &block, 1), QUIRE_OK);
        assert_int_equal(quire_pool_free_blocks(w->far[i], &mine, 1), QUIRE_OK);
    }
}

/* A near block is held as often as it can be, or no longer. */
static void hold_much(world *w)
{
    bool is_first = w->num_much == 0;
    if (is_first)
        w->held_much = 1 + roll(w, NEAR - 1);
    for (uint32_t i = 0; is_first && i < WAYS; i++)
        for (w->num_much = 0; quire_pool_hold(w->near[i], &w->held_much, 1) == QUIRE_OK;)
            w->num_much++;
    for (uint32_t i = 0; !is_first && i < WAYS; i++)
        for (uint32_t k = 0; k < w->num_much; k++)
            assert_int_equal(quire_pool_let_go(w->near[i], &w->held_much, 1, 0), QUIRE_OK);
    w->num_much = is_first ? w->num_much : 0;
}

/* The same in small steps. */
static quire_same take_slowly(quire_pool *far, quire_pool *near, const quire_block *others,
                              uint32_t n, quire_block *from, quire_block *to)
{
    quire_same same = {.num_with_key = UINT32_MAX};
    for (; same.num_done < n; same.num_done++) {
        quire_block block = others[same.num_done];
        quire_block found;
        quire_block mine;
        assert_int_equal(quire_pool_find_same(far, near, &block, 1, &found), QUIRE_OK);
        if (found == UINT32_MAX && same.num_with_key == UINT32_MAX)
            same.num_with_key = same.num_done;
        if (found != QUIRE_NULL_BLOCK)
            continue;
        same.is_full = quire_pool_get_num_free_blocks(far) == 0;
        if (same.is_full)
            break;
        if (quire_pool_hold(near, &block, 1) != QUIRE_OK)
            continue;
        assert_int_equal(quire_pool_get_new_blocks(far, 1, &mine), QUIRE_OK);
        assert_int_equal(inner_cache_same(far, &mine, near, &block, 1), QUIRE_OK);
        assert_int_equal(quire_pool_hold(far, &mine, 1), QUIRE_OK);
        assert_int_equal(quire_pool_free_blocks(far, &mine, 1), QUIRE_OK);
        from[same.num_taken] = block;
        to[same.num_taken++] = mine;
    }
    if (same.num_with_key > same.num_done)
        same.num_with_key = same.num_done;
    return same;
}

static void take(world *w)
{
    quire_block others[MOST] = {0};
    quire_block from[WAYS][MOST];
    quire_block to[WAYS][MOST];
    quire_same same[WAYS];
    uint32_t n = roll(w, MOST + 1);
    for (uint32_t i = 0; i < n; i++)
        others[i] = 1 + roll(w, NEAR - 1);
    assert_int_equal(
        quire_pool_take_same(w->far[0], w->near[0], others, n, from[0], to[0], &same[0]), QUIRE_OK);
    same[1] = qr_pool_take_same(w->far[1], w->near[1], others, n, from[1], to[1]); /* own secret */
    same[2] = take_slowly(w->far[2], w->near[2], others, n, from[2], to[2]);
    for (uint32_t i = 0; i < WAYS; i++) {
        assert_int_equal(same[i].num_done, same[0].num_done);
        assert_int_equal(same[i].num_taken, same[0].num_taken);
        assert_int_equal(same[i].is_full, same[0].is_full);
        assert_int_equal(same[i].num_with_key, same[0].num_with_key);
        assert_memory_equal(from[i], from[0], same[0].num_taken * sizeof from[0][0]);
        assert_memory_equal(to[i], to[0], same[0].num_taken * sizeof to[0][0]);
        memcpy(w->held[i] + w->num_held, from[i], same[0].num_taken * sizeof from[0][0]);
        memcpy(w->used[i] + w->num_held, to[i], same[0].num_taken * sizeof to[0][0]);
    }
    w->num_held += same[0].num_taken;
}

static quire_block find_unused(const quire_pool *pool)
{
    return quire_pool_get_next_free(pool, QUIRE_NULL_BLOCK);
}

/* With one block that is none, on either side: refused, and nothing has changed. */
static void assert_refused(world *w, uint32_t n)
{
    const quire_block wrong[2][3] = {{QUIRE_NULL_BLOCK, FAR, find_unused(w->far[0])},
                                     {QUIRE_NULL_BLOCK, NEAR, find_unused(w->near[0])}};
    const int errors[] = {QUIRE_E_NULL_BLOCK, QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_DOUBLE_FREE};
    uint32_t bad = w->num_held + roll(w, n);
    for (uint32_t kind = 0; kind < 6; kind++) {
        quire_block *place = kind < 3 ? &w->used[0][bad] : &w->held[0][bad];
        quire_block right = *place;
        *place = wrong[kind / 3][kind % 3];
        if (kind % 3 == 0 || *place != QUIRE_NULL_BLOCK) /* all may be in use */
            assert_int_equal(quire_pool_leave_same(w->far[0], w->near[0], w->held[0] + w->num_held,
                                                   w->used[0] + w->num_held, n),
                             errors[kind % 3]);
        *place = right;
    }
    assert_alike(w->near, NEAR);
    assert_alike(w->far, FAR);
}

/* Some copies have ended. */
static void end_copies(world *w)
{
    uint32_t n = roll(w, w->num_held + 1);
    w->num_held -= n;
    if (n > 0)
        assert_refused(w, n);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(quire_pool_leave_same(w->far[i], w->near[i], w->held[i] + w->num_held,
                                               w->used[i] + w->num_held, n),
                         QUIRE_OK);
    for (uint32_t i = w->num_held + n; i-- > w->num_held;) {
        assert_int_equal(quire_pool_let_go(w->far[2], &w->used[2][i], 1, 0), QUIRE_OK);
        assert_int_equal(quire_pool_let_go(w->near[2], &w->held[2][i], 1, 0), QUIRE_OK);
    }
}

static void one_call_is_what_it_stands_for(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world w;
        open_world(&w, seed);
        for (uint32_t round = 0; round < ROUNDS / 8; round++) {
            change_near(&w);
            if (roll(&w, 8) == 0)
                double_far(&w);
            if (roll(&w, 16) == 0)
                hold_much(&w);
            take(&w);
            if (w.num_held > 0 && roll(&w, 2) == 0)
                end_copies(&w);
            assert_alike(w.near, NEAR);
            assert_alike(w.far, FAR);
        }
        assert_true(w.num_events > ROUNDS / 8);
        close_world(&w);
    }
}

static void bad_arguments_change_nothing(void **state)
{
    (void)state;
    world w;
    quire_block from[2];
    quire_block to[2];
    quire_same same;
    const quire_block null_block[] = {1, 0};
    const quire_block unknown[] = {1, NEAR};
    open_world(&w, 1);
    for (uint32_t i = 0; i < 20; i++)
        change_near(&w);
    quire_pool *far = w.far[0];
    quire_pool *near = w.near[0];
    assert_int_equal(quire_pool_take_same(far, near, null_block, 2, from, to, &same),
                     QUIRE_E_NULL_BLOCK);
    assert_int_equal(quire_pool_take_same(far, near, unknown, 2, from, to, &same),
                     QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(quire_pool_take_same(far, far, unknown, 1, from, to, &same), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_take_same(far, near, NULL, 1, from, to, &same), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_take_same(far, near, unknown, 1, NULL, to, &same),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_take_same(far, near, unknown, 1, from, to, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_take_same(NULL, near, unknown, 1, from, to, &same),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_leave_same(far, NULL, unknown, unknown, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_leave_same(far, near, NULL, unknown, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_leave_same(far, far, unknown, unknown, 1), QUIRE_E_ARGUMENT);
    assert_alike(w.near, NEAR);
    assert_alike(w.far, FAR);
    while (quire_pool_get_counts(far).num_keys == 0) {
        change_near(&w);
        take(&w);
    }
    size_t bytes = sizeof far->map.index.secret;
    assert_memory_equal(far->map.index.secret, near->map.index.secret, bytes);
    assert_int_equal(quire_pool_take_same(far, w.near[1], NULL, 0, NULL, NULL, &same), QUIRE_OK);
    assert_memory_equal(far->map.index.secret, near->map.index.secret, bytes); /* has keys */
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_call_is_what_it_stands_for),
        cmocka_unit_test(bad_arguments_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
