/* cache/test_cache_exact.c - blocks predicted = blocks taken, for every kind of layer and mode.
 *
 *      free blocks    0     1     2     3
 *      allocate      no    no    no    yes, and none is free afterwards
 *
 * Before each allocation the pool is emptied, and given back block by block until the call
 * succeeds. The first success must take all there is: with one block less it was QUIRE_NO_SPACE,
 * and that must have changed nothing. (When even an empty pool will do, the window's own blocks
 * were enough.)
 *
 *      cache_exact [SEED]
 */
#include "cache/cache_kit.h"
#include "model/plain.h"

#if defined(MODEL_SLOW)
enum { LIVES = 60 };
#else
enum { LIVES = 600 };
#endif
enum { MAX_LEN = 40, NUM_BLOCKS = 80, NUM_REQUESTS = 3, CALLS = 40, TEXT = 1 << 15 };

static uint64_t dice;
static uint64_t num_exact;
static uint64_t num_refused;
static uint64_t num_for_nothing;
static uint64_t num_forks;

typedef struct stage {
    cache_kit kit;
    kit_request requests[NUM_REQUESTS];
    char texts[NUM_REQUESTS][MAX_LEN + 2];
    uint32_t num_allocated[NUM_REQUESTS];
} stage;

static uint32_t below(uint32_t n)
{
    return unit_random_below(&dice, n);
}

static void look(const stage *s, char *text)
{
    const kit_request *all[NUM_REQUESTS];
    for (uint32_t i = 0; i < NUM_REQUESTS; i++)
        all[i] = &s->requests[i];
    kit_snapshot(&s->kit, all, NUM_REQUESTS, text, TEXT);
}

/* Gives one block after the other back until the call succeeds; false when all are not enough. */
static bool allocate_exactly(stage *s, uint32_t i, const quire_allocate_params *params,
                             const quire_block *taken, uint32_t num_taken)
{
    static char before[TEXT];
    static char after[TEXT];
    kit_request *q = &s->requests[i];
    uint32_t given = 0;
    int status = QUIRE_NO_SPACE;
    while (status == QUIRE_NO_SPACE) {
        look(s, before);
        status = quire_cache_allocate_slots(s->kit.cache, &q->r, params, NULL);
        kit_check(&s->kit);
        if (status == QUIRE_OK)
            break;
        assert_int_equal(status, QUIRE_NO_SPACE);
        look(s, after);
        assert_string_equal(before, after);
        num_refused++;
        if (given == num_taken)
            return false;
        kit_unfill(&s->kit, taken + given++, 1);
    }
    if (given > 0)
        assert_int_equal(kit_num_free(&s->kit), 0);
    num_exact += given > 0;
    num_for_nothing += given == 0;
    kit_unfill(&s->kit, taken + given, num_taken - given);
    return true;
}

static void begin(stage *s, uint32_t i)
{
    static const char *const texts[] = {"aaaabbbbccccddddeeeeffffgggghhhhiiiijjjj",
                                        "aaaabbbbxxxxddddeeeeffffgggghhhhiiiijjjj"};
    kit_request *q = &s->requests[i];
    quire_block taken[NUM_BLOCKS];
    quire_block_span hit[KIT_MAX_GROUPS];
    uint32_t num_hit = 0;
    (void)snprintf(s->texts[i], sizeof s->texts[i], "%.*s", (int)(1 + below(MAX_LEN / 2)),
                   texts[below(2)]);
    kit_request_init(&s->kit, q, s->texts[i]);
    /* Not all at once: what is cached stays a while, and can be a hit. */
    uint32_t num_free = kit_num_free(&s->kit);
    uint32_t early = kit_fill(&s->kit, below(num_free + 1), taken);
    assert_int_equal(quire_cache_get_computed_blocks(s->kit.cache, &q->r, hit, &num_hit), QUIRE_OK);
    uint32_t rest = q->r.num_tokens - num_hit;
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_computed_tokens = num_hit,
                                    .new_computed_blocks = hit,
                                    .num_encoder_tokens = below(10)};
    params.num_external_computed_tokens = below(3) == 0 ? below(rest) : 0;
    params.num_new_tokens = 1 + below(rest - params.num_external_computed_tokens);
    params.num_lookahead_tokens = below(4) == 0 ? below(5) : 0;
    if (num_hit > 0) { /* emptying the pool would evict the hit: as it is, or not at all */
        int status = quire_cache_allocate_slots(s->kit.cache, &q->r, &params, NULL);
        assert_true(status == QUIRE_OK || status == QUIRE_NO_SPACE);
        kit_unfill(&s->kit, taken, early);
    } else {
        early += kit_fill(&s->kit, 0, taken + early);
        (void)allocate_exactly(s, i, &params, taken, early);
    }
    if (q->r.seq == 0)
        return;
    q->r.num_computed_tokens = num_hit + params.num_external_computed_tokens;
    s->num_allocated[i] = q->r.num_computed_tokens + params.num_new_tokens;
}

static void go_on(stage *s, uint32_t i)
{
    kit_request *q = &s->requests[i];
    quire_block taken[NUM_BLOCKS];
    uint32_t accepted = s->num_allocated[i];
    if (accepted > q->r.num_tokens) /* of drafts, some are rejected */
        accepted = q->r.num_tokens + below(accepted - q->r.num_tokens + 1);
    while (q->r.num_tokens <= accepted && q->r.num_tokens < MAX_LEN)
        kit_append(&s->kit, q, s->texts[i], (char)('a' + below(2)));
    if (accepted >= MAX_LEN) {
        kit_free(&s->kit, q);
        return;
    }
    q->r.num_computed_tokens = accepted;
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = 1 + below(q->r.num_tokens - accepted),
                                    .num_lookahead_tokens = below(3) == 0 ? below(5) : 0};
    if (accepted + params.num_new_tokens == q->r.num_tokens)
        params.num_new_tokens += below(3) == 0 ? below(4) : 0;
    if (accepted + params.num_new_tokens > MAX_LEN)
        params.num_new_tokens = MAX_LEN - accepted;
    uint32_t num_taken = kit_fill(&s->kit, 0, taken);
    if (allocate_exactly(s, i, &params, taken, num_taken))
        s->num_allocated[i] = accepted + params.num_new_tokens;
    else
        kit_free(&s->kit, q);
}

/* Copies on write are predicted too. */
static void fork_request(stage *s, uint32_t parent)
{
    const quire_block_copy *copies;
    uint32_t num_copies;
    uint32_t child = (parent + 1) % NUM_REQUESTS;
    kit_request *q = &s->requests[child];
    if (below(2) == 0)
        assert_int_equal(quire_cache_take_copies(s->kit.cache, &copies, &num_copies), QUIRE_OK);
    if (q->r.seq != 0)
        return;
    *q = s->requests[parent];
    q->r.seq = 0;
    q->r.hashes = q->hashes;
    memcpy(s->texts[child], s->texts[parent], sizeof s->texts[child]);
    s->num_allocated[child] = q->r.num_computed_tokens;
    int status = quire_cache_fork(s->kit.cache, &s->requests[parent].r, &q->r);
    kit_check(&s->kit);
    assert_true(status == QUIRE_OK || status == QUIRE_E_ARGUMENT); /* some Mamba modes */
    num_forks += status == QUIRE_OK;
}

static void exact_in_every_kind(void **state)
{
    (void)state;
    static stage s;
    for (int life = 0; life < LIVES; life++) {
        quire_group_config groups[KIT_MAX_GROUPS];
        uint32_t n = kit_draw_groups(&dice, 1 + below(4), groups);
        quire_cache_config config = kit_config(groups, n, NUM_BLOCKS);
        memset(&s, 0, sizeof s);
        config.max_model_len = MAX_LEN;
        config.max_encoder_tokens = 9;
        config.max_copies = 200;
        config.max_num_batched_tokens = below(2) == 0 ? 0 : 1 + below(12);
        kit_draw_switches(&dice, &config);
        kit_open(&s.kit, &config);
        for (int call = 0; call < CALLS; call++) {
            uint32_t i = below(NUM_REQUESTS);
            assert_int_equal(quire_cache_new_step_starts(s.kit.cache), QUIRE_OK);
            if (s.requests[i].r.seq == 0)
                begin(&s, i);
            else if (below(8) == 0)
                kit_free(&s.kit, &s.requests[i]);
            else if (below(5) == 0)
                fork_request(&s, i);
            else
                go_on(&s, i);
        }
        kit_close(&s.kit);
    }
    printf("%llu exact, %llu refused before, %llu without a block, %llu forks\n",
           (unsigned long long)num_exact, (unsigned long long)num_refused,
           (unsigned long long)num_for_nothing, (unsigned long long)num_forks);
    assert_true(num_exact > 0 && num_refused > num_exact && num_forks > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_in_every_kind),
    };
    dice = unit_seed(argc, argv, 1);
    return cmocka_run_group_tests_name("cache_exact", tests, NULL, NULL);
}
