#include "own_blocks.h"

#include "output/grown.h"
#include "pair_map.h"

#include <math.h>

#define NONE PAIR_MAP_NONE

enum { LOOK_AHEAD = 8 }; /* blocks whose memory is fetched before it is needed */

typedef struct node {
    uint64_t name;
    double touched_s;
    uint32_t older; /* of the same worker; of a free node: the next free one */
    uint32_t newer;
} node;

typedef struct worker_list {
    uint32_t oldest;
    uint32_t newest;
} worker_list;

struct own_blocks {
    block_index *index;
    pair_map numbers; /* of nodes */
    node *nodes;
    uint32_t num_nodes;
    uint32_t nodes_room;
    uint32_t free_node;
    worker_list *lists;
    double *oldest_s; /* by worker: when its oldest block was touched; infinite: it has none */
    uint32_t max_workers;
    double ttl_s;
    uint64_t max_blocks;
};

own_blocks *own_blocks_open(uint32_t max_workers, double ttl_s, uint64_t max_blocks)
{
    own_blocks *own = calloc(1, sizeof *own);
    if (own == NULL)
        return NULL;
    own->max_workers = max_workers;
    own->ttl_s = ttl_s;
    own->max_blocks = max_blocks;
    own->free_node = NONE;
    own->index = block_index_open(max_workers);
    own->lists = calloc(max_workers, sizeof *own->lists);
    own->oldest_s = calloc(max_workers, sizeof *own->oldest_s);
    if (own->index == NULL || own->lists == NULL || own->oldest_s == NULL) {
        own_blocks_close(own);
        return NULL;
    }
    for (uint32_t w = 0; w < max_workers; w++) {
        own->lists[w] = (worker_list){NONE, NONE};
        own->oldest_s[w] = INFINITY;
    }
    return own;
}

void own_blocks_close(own_blocks *own)
{
    if (own == NULL)
        return;
    block_index_close(own->index);
    pair_map_free(&own->numbers);
    free(own->nodes);
    free(own->lists);
    free(own->oldest_s);
    free(own);
}

/* ---- the list of a worker -------------------------------------------------- */

static void unlink_node(own_blocks *own, uint32_t worker, uint32_t id)
{
    worker_list *list = &own->lists[worker];
    const node *n = &own->nodes[id];
    if (n->older == NONE)
        list->oldest = n->newer;
    else
        own->nodes[n->older].newer = n->newer;
    if (n->newer == NONE)
        list->newest = n->older;
    else
        own->nodes[n->newer].older = n->older;
    own->oldest_s[worker] = list->oldest == NONE ? INFINITY : own->nodes[list->oldest].touched_s;
}

static void link_newest(own_blocks *own, uint32_t worker, uint32_t id, double now_s)
{
    worker_list *list = &own->lists[worker];
    own->nodes[id].touched_s = now_s;
    own->nodes[id].older = list->newest;
    own->nodes[id].newer = NONE;
    if (list->newest == NONE)
        list->oldest = id;
    else
        own->nodes[list->newest].newer = id;
    list->newest = id;
    own->oldest_s[worker] = own->nodes[list->oldest].touched_s;
}

static void forget_oldest(own_blocks *own, uint32_t worker)
{
    uint32_t id = own->lists[worker].oldest;
    uint64_t name = own->nodes[id].name;
    unlink_node(own, worker, id);
    own->nodes[id].older = own->free_node;
    own->free_node = id;
    pair_map_remove(&own->numbers, name, worker);
    (void)block_index_remove(own->index, name, worker);
}

static uint32_t take_node(own_blocks *own)
{
    uint32_t id = own->free_node;
    if (id != NONE) {
        own->free_node = own->nodes[id].older;
        return id;
    }
    if (!grow(&own->nodes, own->num_nodes, &own->nodes_room, NONE - 1, sizeof *own->nodes))
        return NONE;
    return own->num_nodes++;
}

static bool touch_block(own_blocks *own, double now_s, uint32_t worker, uint64_t name)
{
    uint32_t id = pair_map_get(&own->numbers, name, worker);
    if (id != NONE) {
        unlink_node(own, worker, id);
        link_newest(own, worker, id, now_s);
        return true;
    }
    id = take_node(own);
    if (id == NONE)
        return false;
    own->nodes[id].name = name;
    if (block_index_add(own->index, name, worker) == BLOCK_NO_MEMORY ||
        !pair_map_set(&own->numbers, name, worker, id)) {
        (void)block_index_remove(own->index, name, worker);
        own->nodes[id].older = own->free_node;
        own->free_node = id;
        return false;
    }
    link_newest(own, worker, id, now_s);
    if (own->max_blocks > 0 && block_index_pairs_of(own->index, worker) > own->max_blocks)
        forget_oldest(own, worker);
    return true;
}

bool own_blocks_touch(own_blocks *own, double now_s, uint32_t worker, const uint64_t *names,
                      uint32_t n, uint32_t stride)
{
    for (uint32_t i = n; i-- > 0;) {
        if (i >= LOOK_AHEAD) {
            uint64_t soon = names[(size_t)(i - LOOK_AHEAD) * stride];
            pair_map_fetch(&own->numbers, soon, worker);
            block_index_fetch(own->index, soon);
        }
        if (!touch_block(own, now_s, worker, names[(size_t)i * stride]))
            return false;
    }
    return true;
}

void own_blocks_expire(own_blocks *own, double now_s)
{
    if (own->ttl_s <= 0)
        return;
    for (uint32_t w = 0; w < own->max_workers; w++)
        while (own->oldest_s[w] + own->ttl_s <= now_s)
            forget_oldest(own, w);
}

void own_blocks_drop_worker(own_blocks *own, uint32_t worker)
{
    while (own->lists[worker].oldest != NONE)
        forget_oldest(own, worker);
}

const block_index *own_blocks_index(const own_blocks *own)
{
    return own->index;
}

uint64_t own_blocks_bytes(const own_blocks *own)
{
    return block_index_bytes(own->index) + own->numbers.num_slots * sizeof *own->numbers.slots +
           (uint64_t)own->nodes_room * sizeof *own->nodes;
}
