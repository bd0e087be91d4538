#include "active_blocks.h"

#include "output/grown.h"
#include "pair_map.h"

#define NONE ACTIVE_NONE

enum { LOOK_AHEAD = 8 }; /* blocks whose memory is fetched before it is needed */

typedef struct node {
    uint64_t name;
    uint32_t parent; /* of a free node: the next free one */
    uint32_t holds;
} node;

struct active_blocks {
    block_index *index;
    pair_map numbers; /* of nodes */
    node *nodes;
    uint32_t num_nodes;
    uint32_t nodes_room;
    uint32_t free_node;
};

active_blocks *active_blocks_open(uint32_t max_workers)
{
    active_blocks *active = calloc(1, sizeof *active);
    if (active == NULL)
        return NULL;
    active->free_node = NONE;
    active->index = block_index_open(max_workers);
    if (active->index == NULL) {
        free(active);
        return NULL;
    }
    return active;
}

void active_blocks_close(active_blocks *active)
{
    if (active == NULL)
        return;
    block_index_close(active->index);
    pair_map_free(&active->numbers);
    free(active->nodes);
    free(active);
}

void active_blocks_leading(const active_blocks *active, const uint64_t *names, uint32_t n,
                           uint32_t *leading)
{
    block_index_leading(active->index, names, n, 1, leading);
}

static void free_node(active_blocks *active, uint32_t worker, uint32_t id)
{
    uint64_t name = active->nodes[id].name;
    pair_map_remove(&active->numbers, name, worker);
    (void)block_index_remove(active->index, name, worker);
    active->nodes[id].parent = active->free_node;
    active->free_node = id;
}

static uint32_t add_node(active_blocks *active, uint32_t worker, uint64_t name, uint32_t parent)
{
    uint32_t id = active->free_node;
    if (id != NONE)
        active->free_node = active->nodes[id].parent;
    else if (grow(&active->nodes, active->num_nodes, &active->nodes_room, NONE - 1,
                  sizeof *active->nodes))
        id = active->num_nodes++;
    else
        return NONE;
    active->nodes[id] = (node){name, parent, 0};
    if (block_index_add(active->index, name, worker) == BLOCK_NO_MEMORY ||
        !pair_map_set(&active->numbers, name, worker, id)) {
        free_node(active, worker, id);
        return NONE;
    }
    if (parent != NONE)
        active->nodes[parent].holds++;
    return id;
}

/* A block without holds ends, and its hold of its parent. */
static void end_from(active_blocks *active, uint32_t worker, uint32_t id)
{
    while (id != NONE && active->nodes[id].holds == 0) {
        uint32_t parent = active->nodes[id].parent;
        free_node(active, worker, id);
        if (parent != NONE)
            active->nodes[parent].holds--;
        id = parent;
    }
}

uint32_t active_blocks_begin(active_blocks *active, uint32_t worker, const uint64_t *names,
                             uint32_t n, uint32_t num_known)
{
    uint32_t last = NONE;
    if (num_known > 0)
        last = pair_map_get(&active->numbers, names[num_known - 1], worker);
    for (uint32_t i = num_known; i < n; i++) {
        if (i + LOOK_AHEAD < n) {
            pair_map_fetch(&active->numbers, names[i + LOOK_AHEAD], worker);
            block_index_fetch(active->index, names[i + LOOK_AHEAD]);
        }
        uint32_t id = add_node(active, worker, names[i], last);
        if (id == NONE) {
            end_from(active, worker, last);
            return NONE;
        }
        last = id;
    }
    if (last != NONE)
        active->nodes[last].holds++;
    return last;
}

void active_blocks_end(active_blocks *active, uint32_t worker, uint32_t last)
{
    if (last == NONE)
        return;
    active->nodes[last].holds--;
    end_from(active, worker, last);
}

uint64_t active_blocks_of(const active_blocks *active, uint32_t worker)
{
    return block_index_pairs_of(active->index, worker);
}

uint64_t active_blocks_bytes(const active_blocks *active)
{
    return block_index_bytes(active->index) +
           active->numbers.num_slots * sizeof *active->numbers.slots +
           (uint64_t)active->nodes_room * sizeof *active->nodes;
}
