/* obs/test_residency.c - the life of some blocks, against lives that are simply written down. */
#include "metrics_box.h"

enum { BLOCKS = 300, MAX_ALL_HITS = 64 };

/* What there is to know of a block, without a limit. */
typedef struct naive_life {
    bool is_followed;
    uint64_t birth_ns;
    uint64_t hits_ns[MAX_ALL_HITS];
    uint32_t num_hits;
} naive_life;

typedef struct naive {
    naive_life lives[BLOCKS];
    uint64_t random;
    double rate;
    uint64_t now_ns;
    uint64_t counts[3];
    double sums[3];
} naive;

static void naive_observe(naive *n, uint32_t which, uint64_t ns)
{
    n->counts[which]++;
    n->sums[which] += (double)ns;
}

static void naive_end(naive *n, uint32_t block)
{
    naive_life *life = &n->lives[block];
    if (!life->is_followed)
        return;
    uint32_t hits = life->num_hits;
    naive_observe(n, 0, n->now_ns - life->birth_ns);
    naive_observe(n, 1, n->now_ns - (hits > 0 ? life->hits_ns[hits - 1] : life->birth_ns));
    for (uint32_t i = hits > 4 ? hits - 3 : 1; i < hits; i++)
        naive_observe(n, 2, life->hits_ns[i] - life->hits_ns[i - 1]);
    life->is_followed = false;
}

static void naive_take(naive *n, uint32_t block, bool is_evicting)
{
    if (is_evicting)
        naive_end(n, block);
    if ((double)(unit_random(&n->random) >> 11) * 0x1p-53 < n->rate)
        n->lives[block] = (naive_life){.is_followed = true, .birth_ns = n->now_ns};
}

static void naive_touch(naive *n, uint32_t block)
{
    naive_life *life = &n->lives[block];
    if (life->is_followed && life->num_hits < MAX_ALL_HITS)
        life->hits_ns[life->num_hits++] = n->now_ns;
}

static void compare(const metrics_box *box, const naive *n)
{
    static const qr_metric metrics[] = {QR_METRIC_BLOCK_LIFETIME, QR_METRIC_BLOCK_IDLE,
                                        QR_METRIC_BLOCK_REUSE_GAP};
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t count = 0;
        for (uint32_t k = 0; k <= box->metrics.count[metrics[i]]; k++)
            count += qr_metrics_get(&box->metrics, metrics[i], k);
        assert_int_equal(count, n->counts[i]);
        assert_true(qr_metrics_sum(&box->metrics, metrics[i]) == n->sums[i]);
    }
    for (uint32_t b = 0; b < BLOCKS; b++)
        assert_int_equal(box->residency.is_sampled[b / 64] >> b % 64 & 1, n->lives[b].is_followed);
    uint64_t sum_passed;
    assert_true(qr_buckets_is_valid(&box->residency.index, &sum_passed));
}

static void run_random(double rate, bool is_evicting, uint64_t seed)
{
    metrics_box box;
    naive n = {.random = seed, .rate = rate};
    qr_metrics_shape shape = {
        .max_requests = 1, .max_model_len = 100, .num_blocks = BLOCKS, .has_residency = true};
    box_open(&box, &shape, rate, seed);
    uint64_t random = seed + 1;
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t blocks[5];
        uint32_t count = 1 + unit_random_below(&random, 5);
        uint32_t op = unit_random_below(&random, 100);
        n.now_ns += unit_random_below(&random, 1000000);
        box.metrics.now_ns = n.now_ns;
        uint32_t first = unit_random_below(&random, BLOCKS); /* different ones */
        for (uint32_t k = 0; k < count; k++)
            blocks[k] = (first + k * 7) % BLOCKS;
        if (op < 50)
            qr_residency_take(&box.residency, blocks, count, is_evicting);
        else if (op < 90)
            qr_residency_touch(&box.residency, blocks, count);
        else
            qr_residency_evict(&box.residency, blocks, count);
        for (uint32_t k = 0; k < count; k++) {
            if (op < 50)
                naive_take(&n, blocks[k], is_evicting);
            else if (op < 90)
                naive_touch(&n, blocks[k]);
            else
                naive_end(&n, blocks[k]);
        }
        if (i % 5000 == 4999) {
            qr_residency_reset(&box.residency);
            memset(n.lives, 0, sizeof n.lives);
        }
        if (i % 500 == 0)
            compare(&box, &n);
    }
    compare(&box, &n);
    assert_true(n.counts[0] > 0);
    box_close(&box);
}

static void lives_are_as_written_down(void **state)
{
    (void)state;
    run_random(1.0, true, 1);
    run_random(0.3, true, 2);
    run_random(0.01, true, 3);
    run_random(1.0, false, 4);
    run_random(0.3, false, 5);
}

/* With more drawn than there is room for, the rest is counted and nothing else happens. */
static void too_many_are_counted(void **state)
{
    (void)state;
    enum { MANY = 4096 };
    metrics_box box;
    qr_metrics_shape shape = {
        .max_requests = 1, .max_model_len = 100, .num_blocks = MANY, .has_residency = true};
    box_open(&box, &shape, 0.01, 1);
    uint32_t room = box.residency.max_lives;
    assert_true(room < MANY);
    box.residency.threshold = UINT64_C(1) << 53; /* all are drawn */
    for (uint32_t block = 0; block < MANY; block++)
        qr_residency_take(&box.residency, &block, 1, true);
    assert_int_equal(qr_metrics_get(&box.metrics, QR_METRIC_SAMPLED, 0), room);
    assert_int_equal(qr_metrics_get(&box.metrics, QR_METRIC_UNSAMPLED, 0), MANY - room);
    for (uint32_t block = 0; block < MANY; block++)
        qr_residency_evict(&box.residency, &block, 1);
    assert_true(qr_metrics_sum(&box.metrics, QR_METRIC_BLOCK_LIFETIME) == 0);
    assert_int_equal(qr_metrics_get(&box.metrics, QR_METRIC_BLOCK_LIFETIME, 0), room);
    box_close(&box);
}

/* Far more than are ever drawn at once, and not more than there are blocks. */
static void room_follows_from_the_rate(void **state)
{
    (void)state;
    assert_int_equal(qr_residency_max_lives(1000, 1.0), 1000);
    assert_int_equal(qr_residency_max_lives(100, 0.01), 100);
    assert_int_equal(qr_residency_max_lives(1000000, 0.01), 12756);
    assert_int_equal(qr_residency_max_lives(1, 0.5), 1);
}

static void rates_are_kept(void **state)
{
    (void)state;
    static const double rates[] = {1.0, 0.5, 0.3, 0.01};
    for (uint32_t i = 0; i < COUNT(rates); i++) {
        metrics_box box;
        enum { DRAWS = 100000 };
        qr_metrics_shape shape = {
            .max_requests = 1, .max_model_len = 100, .num_blocks = 2, .has_residency = true};
        box_open(&box, &shape, rates[i], 7);
        uint32_t block = 1;
        for (uint32_t k = 0; k < DRAWS; k++)
            qr_residency_take(&box.residency, &block, 1, true);
        double share = (double)qr_metrics_get(&box.metrics, QR_METRIC_SAMPLED, 0) / DRAWS;
        assert_true(share > rates[i] * 0.9 && share < rates[i] * 1.1);
        if (rates[i] == 1.0)
            assert_true(share == 1.0);
        box_close(&box);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_are_as_written_down),
        cmocka_unit_test(too_many_are_counted),
        cmocka_unit_test(room_follows_from_the_rate),
        cmocka_unit_test(rates_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
