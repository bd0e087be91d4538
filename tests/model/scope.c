#include "scope.h"

#include <stdlib.h>
#include <string.h>

static const scope scopes[] = {
    {.name = "small",
     .num_blocks = 4,
     .max_ref_cnt = 2,
     .keys = {.num_hashes = 2, .num_groups = 1},
     .min_transitions = 300000,
     .num_secrets = 8},
    {.name = "medium",
     .num_blocks = 5,
     .max_ref_cnt = 2,
     .keys = {.num_hashes = 2, .num_groups = 1},
     .min_transitions = 5000000,
     .num_secrets = 1},
    {.name = "groups",
     .num_blocks = 5,
     .max_ref_cnt = 2,
     .keys = {.num_hashes = 2, .num_groups = 2},
     .min_transitions = 50000000,
     .num_secrets = 1},
    {.name = "large",
     .num_blocks = 6,
     .max_ref_cnt = 2,
     .keys = {.num_hashes = 2, .num_groups = 1},
     .min_transitions = 400000000,
     .num_secrets = 1},
};

/* ---- how many states there must be -------------------------------------- */

static uint64_t choose(uint64_t n, uint64_t k)
{
    uint64_t result = 1;
    for (uint64_t i = 1; i <= k; i++)
        result = result * (n - k + i) / i;
    return result;
}

static uint64_t factorial(uint64_t n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* With u usable blocks, r the highest ref_cnt and k keys:
 *
 *      queues   sum over f free blocks of  C(u, f) x f! x r^(u - f)
 *      keys     sum over j blocks with a key of  C(u, j) x j! x C(j + k - 1, k - 1)
 *               (j blocks in a row, cut into k lists)
 *
 * Any queue can occur with any keys, because a block may get or lose its key while it is free. */
static uint64_t count_states(const scope *s)
{
    uint64_t u = s->num_blocks - 1;
    uint64_t k = (uint64_t)s->keys.num_hashes * s->keys.num_groups;
    uint64_t queues = 0;
    uint64_t lists = 0;
    for (uint64_t i = 0; i <= u; i++) {
        uint64_t refs = 1;
        for (uint64_t j = i; j < u; j++)
            refs *= s->max_ref_cnt;
        queues += choose(u, i) * factorial(i) * refs;
        lists += choose(u, i) * factorial(i) * choose(i + k - 1, k - 1);
    }
    return queues * lists;
}

/* ---- the operations ----------------------------------------------------- */

static bool add(scope *s, const operation *op)
{
    if (s->num_operations == s->capacity) {
        size_t capacity = s->capacity > 0 ? s->capacity * 2 : 256;
        operation *operations = realloc(s->operations, capacity * sizeof *operations);
        if (operations == NULL)
            return false;
        s->operations = operations;
        s->capacity = capacity;
    }
    s->operations[s->num_operations++] = *op;
    return true;
}

static bool add_get_new(scope *s)
{
    bool ok = true;
    for (uint32_t n = 0; n <= s->num_blocks + 1; n++)
        ok = ok && add(s, &(operation){.kind = OP_GET_NEW, .num = n});
    return ok;
}

static bool add_lists(scope *s, op_kind kind)
{
    bool ok = true;
    for (quire_block a = 0; a <= s->num_blocks; a++)
        ok = ok && add(s, &(operation){.kind = kind, .num = 1, .blocks = {a}});
    for (quire_block a = 0; a < s->num_blocks; a++)
        for (quire_block b = 0; b < s->num_blocks; b++)
            ok = ok && add(s, &(operation){.kind = kind, .num = 2, .blocks = {a, b}});
    /* Three mentions of two blocks: the place in the queue of one that is listed twice. */
    for (quire_block a = 1; a < s->num_blocks; a++)
        for (quire_block b = 1; b < s->num_blocks && kind == OP_FREE; b++)
            ok = ok && add(s, &(operation){.kind = kind, .num = 3, .blocks = {a, b, a}});
    return ok;
}

static operation cache_of(uint32_t group, uint32_t num_full)
{
    return (operation){.kind = OP_CACHE,
                       .num_full = num_full,
                       .num_hashes = num_full,
                       .hash_len = 16,
                       .hash_stride = 16,
                       .groups = {group}};
}

static bool add_cache_pair(scope *s, uint32_t group, quire_block a, quire_block b)
{
    bool ok = true;
    for (uint32_t h = 0; h < s->keys.num_hashes * s->keys.num_hashes; h++) {
        operation op = cache_of(group, 2);
        op.blocks[0] = a;
        op.blocks[1] = b;
        op.hash_ids[0] = (uint8_t)(h / s->keys.num_hashes);
        op.hash_ids[1] = (uint8_t)(h % s->keys.num_hashes);
        ok = ok && add(s, &op);
    }
    return ok;
}

static bool add_cache(scope *s)
{
    bool ok = true;
    for (uint32_t group = 0; group < s->keys.num_groups; group++) {
        for (quire_block a = 0; a <= s->num_blocks; a++)
            for (uint32_t h = 0; h < s->keys.num_hashes; h++) {
                operation op = cache_of(group, 1);
                op.blocks[0] = a;
                op.hash_ids[0] = (uint8_t)h;
                ok = ok && add(s, &op);
                /* The same as second block of a request whose first has its key already. */
                op.num_cached = 1;
                op.num_full = op.num_hashes = 2;
                op.blocks[1] = a;
                op.hash_ids[1] = (uint8_t)h;
                op.hash_ids[0] = (uint8_t)((h + 1) % s->keys.num_hashes);
                ok = ok && add(s, &op);
            }
        for (quire_block a = 0; a < s->num_blocks; a++)
            for (quire_block b = 0; b < s->num_blocks; b++)
                ok = ok && add_cache_pair(s, group, a, b);
    }
    return ok;
}

static bool add_lookups(scope *s)
{
    bool ok = true;
    for (uint32_t h = 0; h < s->keys.num_hashes; h++)
        for (uint32_t g = 0; g < s->keys.num_groups * s->keys.num_groups; g++) {
            operation op = {.kind = OP_GET_CACHED,
                            .num_hashes = 1,
                            .hash_len = 16,
                            .hash_stride = 16,
                            .num_groups = 2,
                            .groups = {g / s->keys.num_groups, g % s->keys.num_groups}};
            op.hash_ids[0] = (uint8_t)h;
            ok = ok && add(s, &op);
            op.num_groups = 1;
            ok = ok && add(s, &op);
            op.kind = OP_GET_PREFIX;
            op.num_hashes = 3;
            op.hash_ids[1] = (uint8_t)((h + 1) % s->keys.num_hashes);
            op.num_groups = s->keys.num_groups;
            ok = ok && add(s, &op);
        }
    return ok;
}

bool scope_init(scope *s, const char *name)
{
    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        if (strcmp(scopes[i].name, name) != 0)
            continue;
        *s = scopes[i];
        s->expected_states = count_states(s);
        return add_get_new(s) && add_lists(s, OP_TOUCH) && add_lists(s, OP_FREE) &&
               add_lists(s, OP_EVICT) && add_cache(s) && add_lookups(s) &&
               add(s, &(operation){.kind = OP_RESET}) &&
               add(s, &(operation){.kind = OP_DRAW, .num = s->num_blocks});
    }
    return false;
}

void scope_destroy(scope *s)
{
    free(s->operations);
}
