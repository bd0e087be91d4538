/* cli/workload/prefix_tree.h - the prefixes that prompts of a trace have in common.
 *
 *                  ┌─► [ user 1 ]              a tree of segments: a node for each prefix, with the
 *      [ system ] ─┤                           number of prompts that begin with it
 *                  └─► [ user 2 ] ─► [ ... ]
 *
 * A prefix is worth listing if no longer one has as many prompts. Its weight is its tokens times
 * the prompts after the first: what a cache saves with it. Of two where one is the beginning of the
 * other, both are listed only if their numbers of prompts differ by more than a factor of 2.
 */
#ifndef QUIRE_CLI_WORKLOAD_PREFIX_TREE_H
#define QUIRE_CLI_WORKLOAD_PREFIX_TREE_H

#include "numbers.h"
#include "trace/trace.h"

enum { PREFIX_TREE_MAX_NODES = 1 << 26 };

typedef struct prefix_node {
    uint64_t num_tokens; /* from the beginning of the prompt on */
    uint32_t parent;     /* node 0: the empty prefix */
    uint32_t num_prompts;
    uint32_t most_below; /* prompts of the longer prefix that has most */
} prefix_node;

/* All zero is an empty tree. */
typedef struct prefix_tree {
    prefix_node *nodes;
    uint32_t num_nodes;
    uint32_t room;
    number_map by_name; /* -> node */
    bool gave_up;       /* no memory, or more than PREFIX_TREE_MAX_NODES: there is no list */
} prefix_tree;

typedef struct shared_prefix {
    uint64_t num_tokens;
    uint64_t num_prompts;
} shared_prefix;

void prefix_tree_add(prefix_tree *tree, const trace_request *request);
/* The heaviest, at most `most` of them; how many. After it nothing may be added. */
uint32_t prefix_tree_largest(prefix_tree *tree, shared_prefix *list, uint32_t most);
void prefix_tree_free(prefix_tree *tree);

#endif
