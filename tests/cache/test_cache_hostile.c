/* cache/test_cache_hostile.c - calls that make no sense, on caches of every kind: whatever the
 * answer, the cache stays sound.
 *
 *      numbers     0, 1, around a block, around max_model_len, 2^31, 2^32 - 1
 *      hits        a real one, somebody else's, cut, repeated, ids that do not exist, no array
 *      sequences   its own, another's, one that is gone, one that never was
 *
 * After every call quire_cache_check must be fine, and when the call did not succeed, all that can
 * be seen must be as before. At the end all is freed, and then nothing but sinks is in use.
 *
 *      cache_hostile [SEED]
 */
#include "base/inner.h"
#include "base/quirks_kit.h"
#include "cache/cache_kit.h"
#include "model/plain.h"

#if defined(MODEL_SLOW)
enum { CALLS = 400, LIVES = 40 };
#else
enum { CALLS = 1000, LIVES = 120 };
#endif
enum { MAX_LIVE = 6, MAX_LEN = 40, TEXT = 1 << 15 };

static uint64_t dice;
static uint64_t num_succeeded;
static uint64_t num_refused;

typedef struct victim {
    cache_kit kit;
    uint32_t num_blocks;
    uint32_t block_size;
    kit_request live[MAX_LIVE]; /* requests that have blocks, seq 0: a free place */
    quire_seq gone;
    quire_profile profile;
    quire_block ids[KIT_MAX_GROUPS][KIT_MAX_TOKENS];
    quire_block_span hit[KIT_MAX_GROUPS];
} victim;

static uint32_t below(uint32_t n)
{
    return unit_random_below(&dice, n);
}

static uint32_t odd_number(const victim *v)
{
    switch (below(12)) {
    case 0:
        return UINT32_MAX - below(3);
    case 1:
        return (UINT32_C(1) << 31) - 1 + below(3);
    case 2:
        return MAX_LEN - 1 + below(3);
    case 3:
        return v->block_size * below(6);
    case 4:
    case 5:
        return 0;
    default:
        return below(MAX_LEN);
    }
}

static uint32_t mostly_zero(const victim *v)
{
    return below(3) == 0 ? odd_number(v) : 0;
}

/* ---- caches ------------------------------------------------------------------ */

static void open_victim(victim *v)
{
    quire_group_config groups[KIT_MAX_GROUPS];
    memset(v, 0, sizeof *v);
    v->block_size = 1 + below(4);
    v->num_blocks = 4 + below(36);
    uint32_t n = kit_draw_groups(&dice, v->block_size, groups);
    quire_cache_config config = kit_config(groups, n, v->num_blocks);
    config.max_model_len = MAX_LEN;
    config.max_requests = 1 + below(MAX_LIVE);
    config.max_num_batched_tokens = below(2) == 0 ? 0 : 1 + below(12);
    config.max_encoder_tokens = 9;
    config.max_copies = below(2) == 0 ? 0 : 1 + below(8);
    config.event_log_bytes = below(2) * 300;
    config.log_stats = below(2) == 0 ? QUIRE_ON : QUIRE_OFF;
    config.track_new_blocks = below(2) == 0 ? QUIRE_ON : QUIRE_OFF;
    config.profile = v->profile = (quire_profile)below(2);
    kit_draw_switches(&dice, &config);
    quirks_change(0, QR_QUIRK(TRIM_ON_FAILURE)); /* it changes things when a call fails */
    kit_open(&v->kit, &config);
}

/* ---- arguments ---------------------------------------------------------------- */

static void draw_request(const victim *v, kit_request *q)
{
    static const char *const texts[] = {"aaaabbbbccccddddeeeeffffgggghhhhiiiijjjj",
                                        "aaaabbbbxxxxddddeeeeffffgggghhhhiiiijjjj",
                                        "xxxxbbbbccccddddeeeeffffgggghhhhiiiijjjj"};
    char text[MAX_LEN + 1];
    (void)snprintf(text, sizeof text, "%.*s", (int)(1 + below(MAX_LEN)), texts[below(3)]);
    kit_request_init(&v->kit, q, text);
    q->r.skip_reading_prefix = below(8) == 0;
    q->r.was_preempted = below(2);
    const kit_request *other = &v->live[below(MAX_LIVE)];
    switch (below(6)) {
    case 0:
        q->r.seq = below(2) == 0 ? v->gone : unit_random(&dice);
        break;
    case 1:
    case 2:
    case 3:
        *q = *other; /* nobody's, where there is none */
        q->r.hashes = q->hashes;
        break;
    default:
        break;
    }
    if (q->r.num_tokens == 0)
        q->r.num_tokens = 1;
    if (below(5) == 0)
        q->r.num_computed_tokens = odd_number(v);
    if (below(12) == 0)
        q->r.num_tokens = odd_number(v);
    if (below(8) == 0)
        q->r.num_hashes = below(MAX_LEN);
}

/* A hit for the request, and then perhaps something done to it. */
static void draw_hit(victim *v, const kit_request *q, quire_allocate_params *params)
{
    uint32_t num_hit = 0;
    for (uint32_t g = 0; g < KIT_MAX_GROUPS; g++)
        v->hit[g] = (quire_block_span){v->ids[g], 0};
    if (quire_cache_get_computed_blocks(v->kit.cache, &q->r, v->hit, &num_hit) != QUIRE_OK)
        num_hit = 0;
    params->new_computed_blocks = below(4) == 0 ? NULL : v->hit;
    params->num_new_computed_tokens = below(5) == 0 ? odd_number(v) : num_hit;
    if (below(3) > 0)
        return;
    uint32_t g = below(v->kit.num_groups);
    uint32_t n = v->hit[g].count < KIT_MAX_TOKENS ? v->hit[g].count : 0;
    if (n > 0)
        memcpy(v->ids[g], v->hit[g].ids, n * sizeof v->ids[g][0]);
    for (uint32_t i = below(20); i > 0 && n < KIT_MAX_TOKENS; i--)
        v->ids[g][n++] = below(3) == 0 ? 0 : below(v->num_blocks + 2);
    if (n > 1 && below(2) == 0)
        v->ids[g][below(n)] = v->ids[g][below(n)];
    v->hit[g] = (quire_block_span){v->ids[g], below(2) == 0 ? n : below(n + 1)};
    if (below(10) == 0)
        v->hit[g].ids = NULL;
    if (below(20) == 0)
        v->hit[g] = (quire_block_span){v->ids[g], KIT_MAX_TOKENS};
}

/* ---- calls --------------------------------------------------------------------- */

static kit_request *place_of(victim *v, quire_seq seq)
{
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        if (v->live[i].r.seq == seq)
            return &v->live[i];
    return NULL;
}

static int hostile_allocate(victim *v, kit_request *q)
{
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = odd_number(v),
                                    .num_lookahead_tokens = mostly_zero(v),
                                    .num_external_computed_tokens = mostly_zero(v),
                                    .num_encoder_tokens = below(3) == 0 ? odd_number(v) : 5,
                                    .delay_cache_blocks = below(3) == 0};
    quire_block_span got[KIT_MAX_GROUPS];
    quire_seq before = q->r.seq;
    if (before == 0 || below(4) == 0)
        draw_hit(v, q, &params);
    if (below(3) == 0)
        (void)quire_cache_can_fit_full_sequence(v->kit.cache, &q->r, &params);
    int status =
        quire_cache_allocate_slots(v->kit.cache, &q->r, &params, below(2) == 0 ? got : NULL);
    assert_true(status == QUIRE_OK || q->r.seq == before);
    if (status != QUIRE_OK)
        return status;
    kit_request *place = place_of(v, before);
    assert_non_null(place);
    *place = *q;
    place->r.hashes = place->hashes;
    place->r.num_computed_tokens += params.num_new_computed_tokens + params.num_new_tokens +
                                    params.num_external_computed_tokens;
    return QUIRE_OK;
}

static int hostile_free(victim *v, kit_request *q)
{
    quire_seq seq = q->r.seq;
    int status = quire_cache_free(v->kit.cache, &q->r);
    if (status == QUIRE_OK && seq != 0) {
        kit_request *place = place_of(v, seq);
        assert_non_null(place);
        v->gone = seq;
        memset(place, 0, sizeof *place);
    }
    return status;
}

static int hostile_fork(victim *v, const kit_request *q)
{
    kit_request *place = place_of(v, 0);
    kit_request child = *q;
    if (place == NULL)
        return QUIRE_FULL;
    child.r.seq = below(8) == 0 ? q->r.seq : 0;
    int status = quire_cache_fork(v->kit.cache, &q->r, &child.r);
    if (status == QUIRE_OK) {
        *place = child;
        place->r.hashes = place->hashes;
    }
    return status;
}

static int hostile_evict(victim *v)
{
    quire_block blocks[8];
    uint32_t n = below(9);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = below(v->num_blocks + (below(5) == 0));
    return inner_evict(v->kit.cache, blocks, n);
}

static int hostile_take(const victim *v)
{
    const quire_block_copy *copies;
    quire_block_span ids;
    uint32_t n;
    (void)quire_cache_take_new_block_ids(v->kit.cache, &ids);
    return quire_cache_take_copies(v->kit.cache, &copies, &n);
}

static int hostile_call(victim *v, kit_request *q)
{
    quire_cache *cache = v->kit.cache;
    switch (below(16)) {
    case 0:
        return hostile_free(v, q);
    case 1:
        return hostile_fork(v, q);
    case 2:
        return hostile_evict(v);
    case 3:
        return hostile_take(v);
    case 4:
        return quire_cache_reset_prefix_cache(cache);
    case 5:
        return quire_cache_new_step_starts(cache);
    case 6:
        return quire_cache_cache_blocks(cache, &q->r, odd_number(v));
    case 7:
        return inner_remove_skipped(cache, q->r.seq, odd_number(v));
    case 8:
        return quire_cache_copy_on_write(cache, q->r.seq, odd_number(v), odd_number(v));
    default:
        return hostile_allocate(v, q);
    }
}

/* ---- lives --------------------------------------------------------------------- */

static void look(const victim *v, char *text)
{
    const kit_request *all[MAX_LIVE];
    for (uint32_t i = 0; i < MAX_LIVE; i++)
        all[i] = &v->live[i];
    kit_snapshot(&v->kit, all, MAX_LIVE, text, TEXT);
}

static void end_life(victim *v)
{
    uint32_t num_sinks = 0;
    for (uint32_t i = 0; i < MAX_LIVE; i++) {
        assert_int_equal(quire_cache_free(v->kit.cache, &v->live[i].r), QUIRE_OK);
        kit_check(&v->kit);
    }
    assert_int_equal(hostile_take(v), QUIRE_OK);
    for (uint32_t g = 0; g < v->kit.num_groups; g++) {
        quire_block_span sinks;
        sinks = inner_sinks(v->kit.cache, g);
        num_sinks += sinks.count;
    }
    assert_int_equal(quire_cache_get_counts(v->kit.cache).num_seqs, 0);
    assert_int_equal(quire_cache_get_usage(v->kit.cache).active, num_sinks);
    kit_close(&v->kit);
}

static void hostile_lives(void **state)
{
    (void)state;
    static victim v;
    static kit_request q;
    static char before[TEXT];
    static char after[TEXT];
    for (int life = 0; life < LIVES; life++) {
        open_victim(&v);
        for (int call = 0; call < CALLS; call++) {
            draw_request(&v, &q);
            look(&v, before);
            int status = hostile_call(&v, &q);
            kit_check(&v.kit);
            num_succeeded += status == QUIRE_OK;
            num_refused += status != QUIRE_OK;
            assert_true(status >= QUIRE_E_STALE_HIT && status <= QUIRE_BUSY);
            assert_int_not_equal(status, QUIRE_E_CORRUPT);
            assert_true(status != QUIRE_E_PREDICTION || v.profile == QUIRE_PROFILE_VLLM_0_20);
            if (status == QUIRE_OK)
                continue;
            look(&v, after);
            assert_string_equal(before, after);
        }
        end_life(&v);
    }
    printf("%llu calls succeeded, %llu were refused\n", (unsigned long long)num_succeeded,
           (unsigned long long)num_refused);
    assert_true(num_succeeded > 0 && num_refused > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_lives),
    };
    dice = unit_seed(argc, argv, 1);
    return cmocka_run_group_tests_name("cache_hostile", tests, NULL, NULL);
}
