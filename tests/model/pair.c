#include "pair.h"

#include <stdio.h>
#include <string.h>

/* splitmix64, from the seed on: the same seed gives the pool the same secret each time. */
static int seeded_bytes(void *user, void *out, size_t bytes)
{
    uint64_t state = *(const uint64_t *)user;
    unsigned char *p = out;
    for (size_t i = 0; i < bytes; i++) {
        state += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        p[i] = (unsigned char)(z >> 56);
    }
    return 0;
}

quire_pool_config pair_init(pair *both, const quire_pool_config *config, const uint64_t *seed)
{
    quire_pool_config out = *config;
    memset(both, 0, sizeof *both);
    out.on_event = event_log_add;
    out.event_user = &both->real_log;
    out.hooks.user = (void *)(uintptr_t)seed;
    out.hooks.random_bytes = seeded_bytes;
    naive_pool_init(&both->naive, config, &both->naive_log);
    return out;
}

const char *pair_apply(pair *both, const operation *op)
{
    event_log_clear(&both->real_log);
    event_log_clear(&both->naive_log);
    operation_on_naive(op, &both->naive, &both->naive_result);
    operation_on_real(op, both->real, &both->real_result);
    if (!op_result_equal(op, &both->real_result, &both->naive_result))
        return "the answers differ";
    if (!event_log_equal(&both->real_log, &both->naive_log))
        return "the events differ";
    return NULL;
}

static bool same_info(const quire_block_info *a, const quire_block_info *b)
{
    if (a->ref_cnt != b->ref_cnt || a->state != b->state)
        return false;
    if (a->hash.data == NULL || b->hash.data == NULL)
        return a->hash.data == b->hash.data;
    return a->hash.len == b->hash.len && a->group_id == b->group_id &&
           memcmp(a->hash.data, b->hash.data, a->hash.len) == 0;
}

static const char *same_numbers(const pair *both)
{
    quire_usage real = quire_pool_get_usage(both->real);
    quire_usage naive = naive_pool_usage(&both->naive);
    if (real.total != naive.total || real.empty != naive.empty || real.cached != naive.cached ||
        real.active != naive.active || real.null_blocks != naive.null_blocks)
        return "quire_pool_get_usage differs";
    if (quire_pool_get_num_free_blocks(both->real) != both->naive.num_free)
        return "quire_pool_get_num_free_blocks differs";
    double usage = quire_usage_level(quire_pool_get_usage(both->real));
    double expected = naive_pool_get_usage(&both->naive);
    if (memcmp(&usage, &expected, sizeof usage) != 0)
        return "the level differs";
    if (quire_pool_get_counts(both->real).num_keys != naive_pool_num_keys(&both->naive))
        return "num_keys differs";
    return NULL;
}

const char *pair_same_state(const pair *both)
{
    quire_block queue[NAIVE_MAX_BLOCKS];
    uint32_t n = quire_pool_get_all_free_blocks(both->real, queue, NAIVE_MAX_BLOCKS);
    if (n != both->naive.num_free || memcmp(queue, both->naive.queue, n * sizeof queue[0]) != 0)
        return "the free queues differ";
    for (quire_block b = 0; b < both->naive.num_blocks; b++) {
        quire_block_info real;
        quire_block_info naive;
        if (quire_pool_get_block(both->real, b, &real) != QUIRE_OK ||
            naive_pool_get_block(&both->naive, b, &naive) != QUIRE_OK || !same_info(&real, &naive))
            return "quire_pool_get_block differs";
    }
    return same_numbers(both);
}

static void print_block(const char *name, quire_block block, const quire_block_info *info)
{
    printf("  %s %2u %c ref_cnt=%u", name, (unsigned)block, info->state, (unsigned)info->ref_cnt);
    if (info->hash.data != NULL) {
        printf(" group=%u hash=", (unsigned)info->group_id);
        for (size_t i = 0; i < info->hash.len; i++)
            printf("%02x", (unsigned)((const unsigned char *)info->hash.data)[i]);
    }
    printf("\n");
}

static void print_queue(const char *name, const quire_block *queue, uint32_t n)
{
    printf("  %s free queue:", name);
    for (uint32_t i = 0; i < n && i < NAIVE_MAX_BLOCKS; i++)
        printf(" %u", (unsigned)queue[i]);
    printf("\n");
}

void pair_print(const pair *both, const operation *op, const char *difference)
{
    printf("DIFFERENCE: %s\n", difference);
    operation_print(op);
    op_result_print("real ", op, &both->real_result);
    op_result_print("naive", op, &both->naive_result);
    event_log_print("real ", &both->real_log);
    event_log_print("naive", &both->naive_log);
    printf("  the pools after it: num_blocks=%u hash_bytes=%u caching=%d\n",
           (unsigned)both->naive.num_blocks, (unsigned)both->naive.hash_bytes,
           (int)both->naive.enable_caching);
    quire_block queue[NAIVE_MAX_BLOCKS];
    uint32_t n = quire_pool_get_all_free_blocks(both->real, queue, NAIVE_MAX_BLOCKS);
    print_queue("real ", queue, n);
    print_queue("naive", both->naive.queue, both->naive.num_free);
    for (quire_block b = 0; b < both->naive.num_blocks; b++) {
        quire_block_info info;
        if (quire_pool_get_block(both->real, b, &info) == QUIRE_OK)
            print_block("real ", b, &info);
        if (naive_pool_get_block(&both->naive, b, &info) == QUIRE_OK)
            print_block("naive", b, &info);
    }
    printf("  quire_pool_check: %s\n", quire_status_name(quire_pool_check(both->real)));
}
