/* model/scope.h - how far an exploration goes: the size of the pool, its keys, and the list of all
 * operations that are tried from every state.
 *
 * In a pool of n blocks: take 0 to n + 1; touch, free and evict each block, the null block, one
 * that does not exist, and each ordered pair of blocks (twice the same included); give each block
 * and each ordered pair (null blocks among them) every key and pair of keys; reset; look up every
 * hash under every list of groups, and runs of hashes.
 */
#ifndef MODEL_SCOPE_H
#define MODEL_SCOPE_H

#include "operation.h"
#include "state.h"

typedef struct scope {
    const char *name;
    uint32_t num_blocks;
    uint32_t max_ref_cnt;
    key_space keys;
    uint64_t expected_states; /* worked out on paper, not by exploring */
    uint64_t min_transitions;
    uint32_t num_secrets; /* how often it is explored, each time with other places in the index */
    operation *operations;
    size_t num_operations;
    size_t capacity;
} scope;

/* By name: small, default, large. False for another name, or without memory. */
bool scope_init(scope *s, const char *name);
void scope_destroy(scope *s);

#endif
