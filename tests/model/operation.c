/* See operation.h. The two operation_on_ functions are one text, operation_calls.h, read with two
 * sets of names: both pools get the very same arguments. */
#include "operation.h"

#include <stdio.h>
#include <string.h>

#define PATTERN 0xa5

static const char *const kind_names[OP_NUM_KINDS] = {
#define MODEL_X(name, text) [OP_##name] = (text),
    OP_KIND_MAP(MODEL_X)
#undef MODEL_X
};

const char *op_kind_name(op_kind kind)
{
    return kind_names[kind];
}

bool op_kind_changes(op_kind kind)
{
    return kind <= OP_RESET;
}

void op_hash(uint32_t id, uint32_t len, unsigned char *out)
{
    if (len == 0)
        return;
    memset(out, (int)(id / 2 + 1), len);
    out[len - 1] = (unsigned char)(out[len - 1] + (id % 2) * 128);
}

/* The arrays of a call, made from its numbers. */
typedef struct arguments {
    const quire_block *blocks;
    const unsigned char *hashes;
    const uint32_t *groups;
    unsigned char hash_bytes[OP_MAX_HASHES * (NAIVE_MAX_HASH + 16)];
} arguments;

static void make_arguments(const operation *op, arguments *args)
{
    args->blocks = op->nulls & NULL_BLOCKS ? NULL : op->blocks;
    args->hashes = op->nulls & NULL_HASHES ? NULL : args->hash_bytes;
    args->groups = op->nulls & NULL_GROUPS ? NULL : op->groups;
    uint32_t count = op->num_hashes < OP_MAX_HASHES ? op->num_hashes : OP_MAX_HASHES;
    for (uint32_t i = 0; i < count; i++)
        op_hash(op->hash_ids[i], op->hash_stride, args->hash_bytes + (size_t)i * op->hash_stride);
}

static quire_cache_full_params cache_params(const operation *op, const arguments *args)
{
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = args->blocks,
                                      .num_cached_blocks = op->num_cached,
                                      .num_full_blocks = op->num_full,
                                      .hashes = args->hashes,
                                      .hash_len = op->hash_len,
                                      .num_hashes = op->num_hashes,
                                      .group_id = op->groups[0],
                                      .block_size = 16 + op->num_full,
                                      .request = (void *)(uintptr_t)(op->num_cached + 1)};
    return params;
}

/* A block's info points into its pool; what it says is copied out. */
static void info_to_result(const quire_block_info *info, op_result *result)
{
    result->blocks[0] = info->ref_cnt;
    result->blocks[1] = (uint32_t)info->state;
    result->blocks[2] = info->hash.data != NULL ? (uint32_t)info->hash.len : 0;
    if (result->blocks[2] == 0)
        return;
    result->blocks[3] = info->group_id;
    memcpy(&result->blocks[4], info->hash.data, info->hash.len);
}

#define POOL       quire_pool
#define CALL(name) quire_pool_##name
#define ON_POOL    operation_on_real
#include "operation_calls.h"
#undef POOL
#undef CALL
#undef ON_POOL

#define POOL       naive_pool
#define CALL(name) naive_pool_##name
#define ON_POOL    operation_on_naive
#include "operation_calls.h"
#undef POOL
#undef CALL
#undef ON_POOL

bool op_result_equal(const operation *op, const op_result *a, const op_result *b)
{
    if (a->status != b->status || a->count != b->count)
        return false;
    /* What lies past the hits of a run is nobody's business. */
    size_t compared = OP_MAX_BLOCKS;
    if (op->kind == OP_GET_PREFIX && a->status == QUIRE_OK)
        compared = (size_t)a->count * op->num_groups;
    return memcmp(a->blocks, b->blocks, compared * sizeof a->blocks[0]) == 0 &&
           memcmp(a->text, b->text, sizeof a->text) == 0;
}

static void print_list(const char *name, const uint32_t *list, uint32_t count)
{
    printf(" %s=[", name);
    for (uint32_t i = 0; i < count && i < OP_MAX_BLOCKS; i++)
        printf("%s%u", i > 0 ? " " : "", (unsigned)list[i]);
    printf("]");
}

void operation_print(const operation *op)
{
    printf("  operation: %s num=%u nulls=%u", op_kind_name(op->kind), (unsigned)op->num,
           (unsigned)op->nulls);
    if (op->kind == OP_DRAW)
        printf(" first=%u", (unsigned)op->first);
    if (op->kind == OP_CACHE)
        printf(" num_cached=%u num_full=%u", (unsigned)op->num_cached, (unsigned)op->num_full);
    print_list("blocks", op->blocks, op->kind == OP_CACHE ? op->num_full : op->num);
    if (op->kind == OP_CACHE || op->kind == OP_GET_CACHED || op->kind == OP_GET_PREFIX) {
        uint32_t ids[OP_MAX_HASHES];
        uint32_t count = op->num_hashes < OP_MAX_HASHES ? op->num_hashes : OP_MAX_HASHES;
        for (uint32_t i = 0; i < count; i++)
            ids[i] = op->hash_ids[i];
        printf(" hash_len=%u num_hashes=%u", (unsigned)op->hash_len, (unsigned)op->num_hashes);
        print_list("hashes", ids, count);
        print_list("groups", op->groups, op->kind == OP_CACHE ? 1 : op->num_groups);
    }
    printf("\n");
}

void op_result_print(const char *name, const operation *op, const op_result *result)
{
    printf("  %s: %s count=%x", name, quire_status_name(result->status), (unsigned)result->count);
    print_list("blocks", result->blocks, op->num < 8 ? 8 : op->num);
    printf(" text=%.*s\n", op->kind == OP_DRAW ? NAIVE_MAX_BLOCKS : 0, result->text);
}
