/* tier/promote/test_chunks.c - chunked local attention below the CPU pool: which blocks of a chunk
 * are fetched. */
#include "promote_world.h"

/* Of chunks before the end of a hit nothing is needed: 42 blocks, of which the last two begin a
 * chunk that nobody has. */
static void test_only_the_last_chunk_is_needed(void **state)
{
    (void)state;
    world *w = world_make((world_config){.groups = WORLD_CHUNKED});
    world_request prompt = world_draw(w, 42);
    world_admit(w, world_add(w, &prompt), 0); /* blocks of the full group alone */
    world_drain(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    world_request *r = world_add(w, &prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 40 * WORLD_TOKENS);
    world_close(w);
}

/* The engine's hit ends inside the chunk: what is left of the chunk is fetched for both groups. */
static void test_the_rest_of_a_chunk(void **state)
{
    (void)state;
    world *w = world_make((world_config){.groups = WORLD_CHUNKED});
    world_request prompt = world_draw(w, 42);
    world_put_below(w, &prompt);
    prompt.num_local = 2 * WORLD_TOKENS;
    prompt.num_tokens = 4 * WORLD_TOKENS + 1;
    world_request *r = world_add(w, &prompt);
    assert_true(world_ask(w, r));
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 2 * WORLD_TOKENS);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_last_chunk_is_needed),
        cmocka_unit_test(test_the_rest_of_a_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
