#include "prefix_tree.h"

#include "output/grown.h"
#include "trace/content.h"

#include <stdlib.h>

enum { MAX_LISTED = 64 };

static bool add_node(prefix_tree *tree, uint64_t num_tokens, uint32_t parent)
{
    prefix_node node = {.num_tokens = num_tokens, .parent = parent};
    if (!grow(&tree->nodes, tree->num_nodes, &tree->room, PREFIX_TREE_MAX_NODES, sizeof node))
        return false;
    tree->nodes[tree->num_nodes++] = node;
    return true;
}

static void give_up(prefix_tree *tree)
{
    prefix_tree_free(tree);
    tree->gave_up = true;
}

void prefix_tree_add(prefix_tree *tree, const trace_request *request)
{
    uint64_t name = 0;
    uint32_t at = 0;
    if (tree->gave_up)
        return;
    if (tree->num_nodes == 0 && !add_node(tree, 0, 0)) {
        give_up(tree);
        return;
    }
    for (uint32_t i = 0; i < request->num_segments; i++) {
        const trace_segment *s = &request->prompt[i];
        name = content_of(name, s->content, s->num_tokens);
        uint64_t *node = number_map_at(&tree->by_name, name);
        if (node != NULL && *node == 0) {
            *node = tree->num_nodes;
            if (!add_node(tree, tree->nodes[at].num_tokens + s->num_tokens, at))
                node = NULL;
        }
        if (node == NULL) {
            give_up(tree);
            return;
        }
        at = (uint32_t)*node;
        tree->nodes[at].num_prompts++;
    }
}

/* ---- the list --------------------------------------------------------------------- */

typedef struct candidate {
    double weight;
    uint32_t node;
} candidate;

static int compare_candidates(const void *a_, const void *b_)
{
    const candidate *a = a_;
    const candidate *b = b_;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->node < b->node ? -1 : a->node > b->node;
}

/* Nodes stand behind those that they continue. */
static bool is_above(const prefix_tree *tree, uint32_t above, uint32_t below)
{
    while (below > above)
        below = tree->nodes[below].parent;
    return below == above;
}

static bool is_like_one_of(const prefix_tree *tree, const uint32_t *listed, uint32_t n,
                           uint32_t node)
{
    uint64_t count = tree->nodes[node].num_prompts;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t other = tree->nodes[listed[i]].num_prompts;
        bool is_near = 2 * count >= other && 2 * other >= count;
        if (is_near && (is_above(tree, listed[i], node) || is_above(tree, node, listed[i])))
            return true;
    }
    return false;
}

static uint32_t find_candidates(prefix_tree *tree, candidate *found)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < tree->num_nodes; i++) {
        prefix_node *parent = &tree->nodes[tree->nodes[i].parent];
        if (tree->nodes[i].num_prompts > parent->most_below)
            parent->most_below = tree->nodes[i].num_prompts;
    }
    for (uint32_t i = 1; i < tree->num_nodes; i++) {
        const prefix_node *node = &tree->nodes[i];
        if (node->num_prompts > 1 && node->most_below < node->num_prompts)
            found[n++] = (candidate){.weight = (double)node->num_tokens * (node->num_prompts - 1),
                                     .node = i};
    }
    qsort(found, n, sizeof *found, compare_candidates);
    return n;
}

uint32_t prefix_tree_largest(prefix_tree *tree, shared_prefix *list, uint32_t most)
{
    uint32_t listed[MAX_LISTED];
    uint32_t n = 0;
    candidate *found = tree->num_nodes > 0 ? malloc((size_t)tree->num_nodes * sizeof *found) : NULL;
    if (found == NULL)
        return 0;
    most = most < MAX_LISTED ? most : MAX_LISTED;
    uint32_t num_found = find_candidates(tree, found);
    for (uint32_t i = 0; i < num_found && n < most; i++) {
        const prefix_node *node = &tree->nodes[found[i].node];
        if (is_like_one_of(tree, listed, n, found[i].node))
            continue;
        listed[n] = found[i].node;
        list[n++] =
            (shared_prefix){.num_tokens = node->num_tokens, .num_prompts = node->num_prompts};
    }
    free(found);
    return n;
}

void prefix_tree_free(prefix_tree *tree)
{
    free(tree->nodes);
    number_map_free(&tree->by_name);
    *tree = (prefix_tree){.gave_up = tree->gave_up};
}
