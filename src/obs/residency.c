#include "obs/residency.h"

#include "base/hooks.h"

/* A quarter more than will be drawn on average: with many blocks far more than ever are at once,
 * and with few there is room for all that the constant covers. */
uint32_t qr_residency_max_lives(uint32_t num_blocks, double sample_rate)
{
    enum { FEW = 256 };
    double expected = (double)num_blocks * sample_rate * 1.25 + FEW;
    return expected < (double)num_blocks ? (uint32_t)expected : num_blocks;
}

void qr_residency_carve(qr_residency *r, qr_arena *arena, uint32_t num_blocks, double sample_rate)
{
    *r = (qr_residency){.num_blocks = num_blocks,
                        .max_lives = qr_residency_max_lives(num_blocks, sample_rate)};
    r->is_sampled = qr_arena_take(arena, qr_bit_words(num_blocks), sizeof *r->is_sampled);
    r->lives = qr_arena_take(arena, (size_t)r->max_lives + 1, sizeof *r->lives);
    qr_buckets_carve(&r->index, arena, r->max_lives);
}

void qr_residency_init(qr_residency *r, qr_metrics *metrics, double sample_rate,
                       const uint64_t random[3])
{
    double bits = sample_rate * (double)(UINT64_C(1) << 53);
    r->metrics = metrics;
    r->threshold = (uint64_t)bits;
    r->threshold += (double)r->threshold < bits;
    r->random = random[0];
    qr_buckets_init(&r->index, r->max_lives, &random[1]);
    qr_residency_reset(r);
}

void qr_residency_reset(qr_residency *r)
{
    memset(r->is_sampled, 0, qr_bit_words(r->num_blocks) * sizeof *r->is_sampled);
    qr_buckets_clear(&r->index);
    for (uint32_t i = 1; i <= r->max_lives; i++)
        r->lives[i].next_free = i < r->max_lives ? i + 1 : 0;
    r->first_free = r->max_lives > 0 ? 1 : 0;
}

/* ---- one block ------------------------------------------------------------- */

/* splitmix64: a counter, mixed. */
static inline bool draw_sample(qr_residency *r)
{
    uint64_t x = r->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) >> 11 < r->threshold;
}

static uint32_t life_tag(const qr_residency *r, uint32_t block)
{
    return qr_buckets_tag(&r->index, block, ~(uint64_t)block);
}

/* The life of a block that is followed. */
static uint32_t life_of(const qr_residency *r, uint32_t block)
{
    qr_buckets_search search = qr_buckets_search_begin(&r->index, life_tag(r, block));
    for (;;) {
        uint32_t id = qr_buckets_search_next(&search);
        qr_assert(id != 0);
        if (r->lives[id].block == block)
            return id;
    }
}

static void begin_life(qr_residency *r, uint32_t block)
{
    uint32_t id = r->first_free;
    if (qr_bit_get(r->is_sampled, block)) { /* nothing ends without caching: it begins again */
        id = life_of(r, block);
    } else if (id == 0) {
        qr_metrics_add(r->metrics, QR_METRIC_UNSAMPLED, 0, 1);
        return;
    } else {
        r->first_free = r->lives[id].next_free;
        r->lives[id].block = block;
        qr_buckets_insert(&r->index, life_tag(r, block), id);
        qr_bit_set(r->is_sampled, block);
    }
    qr_metrics_add(r->metrics, QR_METRIC_SAMPLED, 0, 1);
    qr_block_life *life = &r->lives[id];
    life->birth_ns = r->metrics->now_ns;
    life->last_ns = life->birth_ns;
    life->num_hits = 0;
}

/* A clock that goes back is the caller's; no time is negative for that. */
static uint64_t elapsed_ns(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

static void tell_life(qr_residency *r, const qr_block_life *life)
{
    qr_metrics *m = r->metrics;
    quire_block_life ended = {.block = life->block,
                              .lifetime_ns = elapsed_ns(life->birth_ns, m->now_ns),
                              .idle_ns = elapsed_ns(life->last_ns, m->now_ns)};
    qr_metrics_observe(m, QR_METRIC_BLOCK_LIFETIME, ended.lifetime_ns, 1);
    qr_metrics_observe(m, QR_METRIC_BLOCK_IDLE, ended.idle_ns, 1);
    uint64_t kept = life->num_hits < QR_RESIDENCY_HITS ? life->num_hits : QR_RESIDENCY_HITS;
    for (uint64_t hit = life->num_hits - kept + 1; hit < life->num_hits; hit++) {
        uint64_t gap = elapsed_ns(life->hits_ns[(hit - 1) % QR_RESIDENCY_HITS],
                                  life->hits_ns[hit % QR_RESIDENCY_HITS]);
        qr_metrics_observe(m, QR_METRIC_BLOCK_REUSE_GAP, gap, 1);
        ended.gaps_ns[ended.num_gaps++] = gap;
    }
    if (r->on_end != NULL)
        r->on_end(r->user, &ended);
}

static inline void read_residency_clock(qr_residency *r)
{
    if (r->clock != NULL)
        r->metrics->now_ns = qr_now_ns(r->clock);
}

static void end_life(qr_residency *r, uint32_t block)
{
    uint32_t id = life_of(r, block);
    tell_life(r, &r->lives[id]);
    qr_buckets_remove(&r->index, life_tag(r, block), id);
    r->lives[id].next_free = r->first_free;
    r->first_free = id;
    qr_bit_clear(r->is_sampled, block);
}

/* ---- blocks ---------------------------------------------------------------- */

void qr_residency_take(qr_residency *r, const uint32_t *blocks, uint32_t n, bool is_evicting)
{
    read_residency_clock(r);
    for (uint32_t i = 0; i < n; i++) {
        if (is_evicting && QR_UNLIKELY(qr_bit_get(r->is_sampled, blocks[i])))
            end_life(r, blocks[i]);
        if (QR_UNLIKELY(draw_sample(r)))
            begin_life(r, blocks[i]);
    }
}

void qr_residency_touch(qr_residency *r, const uint32_t *blocks, uint32_t n)
{
    read_residency_clock(r);
    for (uint32_t i = 0; i < n; i++) {
        if (QR_LIKELY(!qr_bit_get(r->is_sampled, blocks[i])))
            continue;
        qr_block_life *life = &r->lives[life_of(r, blocks[i])];
        life->last_ns = r->metrics->now_ns;
        life->hits_ns[life->num_hits++ % QR_RESIDENCY_HITS] = life->last_ns;
    }
}

void qr_residency_evict(qr_residency *r, const uint32_t *blocks, uint32_t n)
{
    read_residency_clock(r);
    for (uint32_t i = 0; i < n; i++)
        if (qr_bit_get(r->is_sampled, blocks[i]))
            end_life(r, blocks[i]);
}
