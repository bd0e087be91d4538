#include "generate.h"

#include <string.h>

/* splitmix64. */
uint64_t rng_next(rng *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t rng_below(rng *random, uint32_t limit)
{
    return (uint32_t)(((rng_next(random) >> 32) * limit) >> 32);
}

static bool one_in(rng *random, uint32_t n)
{
    return rng_below(random, n) == 0;
}

/* ---- a pool's life ------------------------------------------------------ */

static const uint32_t hash_sizes[] = {16, 32, 64};
static const uint32_t odd_group_ids[] = {0, 1, 256, 32768, NAIVE_MAX_GROUP_ID};

void generate_config(rng *random, quire_pool_config *config, generator *gen)
{
    *config = (quire_pool_config)QUIRE_POOL_CONFIG_INIT;
    config->num_blocks = 1 + rng_below(random, NAIVE_MAX_BLOCKS);
    config->hash_bytes = hash_sizes[rng_below(random, 3)];
    config->enable_caching = one_in(random, 12)  ? QUIRE_OFF
                             : one_in(random, 2) ? QUIRE_ON
                                                 : QUIRE_DEFAULT;
    memset(gen, 0, sizeof *gen);
    gen->num_hashes = 2 + rng_below(random, 12);
    gen->num_groups = 1 + rng_below(random, 3);
    uint32_t first = rng_below(random, 3);
    for (uint32_t g = 0; g < gen->num_groups; g++)
        gen->group_ids[g] = odd_group_ids[first + g];
    /* Lives differ in what is done much: a pool that is mostly full meets other cases than one that
     * is mostly empty. */
    for (uint32_t kind = 0; kind < OP_NUM_KINDS; kind++) {
        gen->weights[kind] =
            kind <= OP_CACHE ? 6 + rng_below(random, 30) : 1 + rng_below(random, 8);
        gen->sum_of_weights += gen->weights[kind];
    }
}

/* ---- lists of blocks ---------------------------------------------------- */

static uint32_t small_count(rng *random)
{
    return one_in(random, 20) ? 0 : 1 + rng_below(random, one_in(random, 4) ? 8 : 3);
}

static quire_block any_block(rng *random, const naive_pool *pool)
{
    return pool->num_blocks < 2 ? 1 : 1 + rng_below(random, pool->num_blocks - 1);
}

static void list_any(rng *random, const naive_pool *pool, operation *op)
{
    op->num = pool->num_blocks < 2 ? 0 : small_count(random);
    for (uint32_t i = 0; i < op->num; i++)
        op->blocks[i] = any_block(random, pool);
}

/* Some, or all, of the references there are, in random order. */
static void list_used(rng *random, const naive_pool *pool, operation *op)
{
    uint32_t n = 0;
    for (quire_block b = 1; b < pool->num_blocks; b++) {
        const naive_block *block = &pool->blocks[b];
        uint32_t users = op->kind == OP_LET_GO ? block->held : block->ref_cnt - block->held;
        for (uint32_t r = 0; r < users && n < OP_MAX_BLOCKS - 1; r++)
            op->blocks[n++] = b;
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rng_below(random, i);
        quire_block swapped = op->blocks[i - 1];
        op->blocks[i - 1] = op->blocks[j];
        op->blocks[j] = swapped;
    }
    uint32_t wanted = one_in(random, 6) ? n : small_count(random);
    op->num = wanted < n ? wanted : n;
}

static void spoil_list(rng *random, const naive_pool *pool, operation *op)
{
    if (op->num == 0 || one_in(random, 5)) {
        op->nulls |= one_in(random, 2) ? NULL_POOL : NULL_BLOCKS;
        op->num = op->num == 0 ? rng_below(random, 2) : op->num;
        op->blocks[0] = op->nulls & NULL_BLOCKS ? 0 : any_block(random, pool);
        return;
    }
    quire_block *entry = &op->blocks[rng_below(random, op->num)];
    switch (rng_below(random, 4)) {
    case 0:
        *entry = QUIRE_NULL_BLOCK;
        break;
    case 1:
        *entry = one_in(random, 2) ? pool->num_blocks : UINT32_MAX - rng_below(random, 3);
        break;
    case 2: /* one mention more, which may or may not be one too many */
        op->blocks[op->num] = op->blocks[rng_below(random, op->num)];
        op->num++;
        break;
    default:
        *entry = any_block(random, pool);
        break;
    }
}

/* ---- keys --------------------------------------------------------------- */

static void choose_hashes(rng *random, const generator *gen, const naive_pool *pool, operation *op)
{
    op->hash_len = pool->hash_bytes;
    if (one_in(random, 6)) /* a shorter one */
        op->hash_len = 16 * (1 + rng_below(random, pool->hash_bytes / 16));
    op->hash_stride = op->hash_len;
    for (uint32_t i = 0; i < OP_MAX_HASHES; i++)
        op->hash_ids[i] = (uint8_t)rng_below(random, gen->num_hashes);
}

/* Too long, or no multiple of 16. */
static void spoil_hash_len(rng *random, const naive_pool *pool, operation *op)
{
    op->hash_len = one_in(random, 2) ? pool->hash_bytes + 1 + rng_below(random, 16)
                                     : 1 + rng_below(random, pool->hash_bytes - 1);
    op->hash_stride = op->hash_len;
}

static void choose_groups(rng *random, const generator *gen, operation *op)
{
    op->num_groups = one_in(random, 16) ? 0 : 1 + rng_below(random, gen->num_groups);
    for (uint32_t g = 0; g < OP_MAX_GROUPS; g++)
        op->groups[g] = gen->group_ids[rng_below(random, gen->num_groups)];
}

static void make_cache(rng *random, const generator *gen, const naive_pool *pool, operation *op)
{
    choose_hashes(random, gen, pool, op);
    choose_groups(random, gen, op);
    if (op->hash_len == pool->hash_bytes && one_in(random, 32))
        op->hash_len = 0;
    op->num_cached = one_in(random, 2) ? 0 : rng_below(random, 4);
    op->num_full = op->num_cached;
    for (uint32_t i = 0; i < op->num_cached; i++) /* these are not looked at */
        op->blocks[i] = one_in(random, 2) ? UINT32_MAX : any_block(random, pool);
    uint32_t wanted = small_count(random);
    quire_block b = any_block(random, pool);
    for (uint32_t i = 0; i < pool->num_blocks && wanted > 0; i++, wanted--) {
        for (uint32_t j = 0; j < pool->num_blocks && pool->blocks[b].hash_len != 0; j++)
            b = b + 1 < pool->num_blocks ? b + 1 : 1;
        op->blocks[op->num_full++] = one_in(random, 10) || pool->num_blocks < 2 ? 0 : b;
        b = b + 1 < pool->num_blocks ? b + 1 : 1;
    }
    op->num_hashes = op->num_full + rng_below(random, 2);
    op->num = op->num_full;
}

static void spoil_cache(rng *random, const naive_pool *pool, operation *op)
{
    uint32_t last = op->num_full > 0 ? op->num_full - 1 : 0;
    switch (rng_below(random, 8)) {
    case 0:
        op->nulls |= one_in(random, 2) ? NULL_POOL : NULL_OUT;
        break;
    case 1:
        if (op->num_full > op->num_cached)
            op->nulls |= one_in(random, 2) ? NULL_BLOCKS : NULL_HASHES;
        break;
    case 2:
        op->num_hashes = last;
        break;
    case 3:
        spoil_hash_len(random, pool, op);
        break;
    case 4:
        op->blocks[last] = one_in(random, 2) ? pool->num_blocks : UINT32_MAX;
        break;
    case 5: /* looks like a good one in 16 bits */
        op->groups[0] += NAIVE_MAX_GROUP_ID + 1;
        break;
    case 6: /* fewer full than cached: nothing to do */
        op->num_full = rng_below(random, op->num_cached + 1);
        break;
    default:
        op->blocks[last] = op->blocks[op->num_cached];
        break;
    }
}

static void make_lookup(rng *random, const generator *gen, const naive_pool *pool, operation *op)
{
    choose_hashes(random, gen, pool, op);
    choose_groups(random, gen, op);
    op->num_hashes = op->kind == OP_GET_CACHED ? 1 : rng_below(random, 9);
    /* Runs of one hash are found more often than runs of different ones. */
    if (one_in(random, 2))
        memset(op->hash_ids, op->hash_ids[0], sizeof op->hash_ids);
}

static void spoil_lookup(rng *random, const naive_pool *pool, operation *op)
{
    switch (rng_below(random, 6)) {
    case 0:
        spoil_hash_len(random, pool, op);
        break;
    case 1:
        op->hash_len = 0;
        break;
    case 2: /* a group that no block can be in: a miss, also where 16 bits of it look good */
        op->groups[0] += NAIVE_MAX_GROUP_ID + 1;
        break;
    case 3:
        op->nulls |= NULL_POOL;
        break;
    case 4:
        op->nulls |= op->num_hashes > 0 ? NULL_HASHES : 0;
        break;
    default:
        op->nulls |= op->num_hashes > 0 && op->num_groups > 0
                         ? (one_in(random, 2) ? NULL_GROUPS : NULL_OUT)
                         : 0;
        break;
    }
}

/* ---- operations --------------------------------------------------------- */

static op_kind choose_kind(rng *random, const generator *gen)
{
    uint32_t ticket = rng_below(random, gen->sum_of_weights);
    uint32_t kind = 0;
    while (ticket >= gen->weights[kind])
        ticket -= gen->weights[kind++];
    return (op_kind)kind;
}

static void make_looking(rng *random, const naive_pool *pool, bool wrong, operation *op)
{
    uint32_t n = pool->num_blocks;
    if (op->kind == OP_INFO)
        op->num = wrong ? n + rng_below(random, 2) * (UINT32_MAX - n) : rng_below(random, n);
    if (op->kind == OP_FREE_LIST || op->kind == OP_NEXT_FREE)
        op->num = rng_below(random, n + 3);
    if (op->kind == OP_DRAW) {
        op->first = rng_below(random, n + 1);
        op->num = rng_below(random, n - op->first + 1);
        if (wrong && one_in(random, 2))
            op->num = one_in(random, 2) ? n - op->first + 1 : UINT32_MAX - rng_below(random, n);
        else if (wrong)
            op->first = one_in(random, 2) ? n + 1 : UINT32_MAX;
    }
    if (wrong && one_in(random, 3))
        op->nulls |= op->kind == OP_FREE_LIST || op->kind == OP_NEXT_FREE || one_in(random, 2)
                         ? NULL_POOL
                         : NULL_OUT;
}

static void make_listing(rng *random, const naive_pool *pool, bool wrong, operation *op)
{
    /* References beyond a handful teach nothing, and lists of them no longer fit. */
    bool used =
        op->kind == OP_FREE || op->kind == OP_LET_GO || (op->kind == OP_EVICT && one_in(random, 3));
    if (used)
        list_used(random, pool, op);
    else
        list_any(random, pool, op);
    for (uint32_t i = 0; (op->kind == OP_TOUCH || op->kind == OP_HOLD) && i < op->num; i++)
        if (pool->blocks[op->blocks[i]].ref_cnt > 3)
            op->num = i;
    op->first = op->kind == OP_LET_GO && one_in(random, 2);
    if (wrong)
        spoil_list(random, pool, op);
}

void generate_operation(rng *random, const generator *gen, const naive_pool *pool, operation *op)
{
    bool wrong = one_in(random, 8);
    memset(op, 0, sizeof *op);
    op->kind = choose_kind(random, gen);
    switch (op->kind) {
    case OP_GET_NEW:
        op->num = wrong ? rng_below(random, pool->num_blocks + 3) : small_count(random);
        if (wrong && op->num > 0 && one_in(random, 4))
            op->nulls |= one_in(random, 2) ? NULL_POOL : NULL_OUT;
        break;
    case OP_TOUCH:
    case OP_FREE:
    case OP_HOLD:
    case OP_LET_GO:
    case OP_EVICT:
        make_listing(random, pool, wrong, op);
        break;
    case OP_CACHE:
        make_cache(random, gen, pool, op);
        if (wrong)
            spoil_cache(random, pool, op);
        break;
    case OP_RESET:
        op->nulls |= wrong ? NULL_POOL : 0;
        break;
    case OP_GET_CACHED:
    case OP_GET_PREFIX:
        make_lookup(random, gen, pool, op);
        if (wrong)
            spoil_lookup(random, pool, op);
        break;
    default:
        make_looking(random, pool, wrong, op);
        break;
    }
}
