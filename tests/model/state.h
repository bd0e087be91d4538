/* model/state.h - what a pool remembers, as 16 bytes, and a set of such states.
 *
 *      byte  0 .. 7    the free queue from head to tail, then zeros
 *      byte  8 .. 15   for each block from 1 on:  rank rrr | key kkk | ref_cnt cc
 *
 *      key    0 = none, else 1 + group x num_hashes + hash
 *      rank   how many blocks got the same key before this one and still have it
 *
 * Two pools with equal bytes answer every later call alike, so a search need expand only one of
 * them. Good for pools of up to 9 blocks, 7 keys and a ref_cnt of up to 3.
 */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "naive_pool.h"

#define STATE_MAX_BLOCKS 9

typedef struct state {
    unsigned char bytes[16];
} state;

/* The keys that a pool can have: hashes 0 .. num_hashes of operation.h, under groups 0 ..
 * num_groups, all of the pool's hash_bytes. */
typedef struct key_space {
    uint32_t num_hashes;
    uint32_t num_groups;
} key_space;

state state_of_pool(const naive_pool *pool, const key_space *keys);
/* The reverse, into a pool that was made with naive_pool_init. */
void state_to_pool(const state *from, const key_space *keys, naive_pool *pool);

typedef struct state_set {
    state *slots; /* all zero: empty; every real state has a block in its queue or in use */
    size_t capacity;
    size_t used;
} state_set;

/* False when there is no memory. */
bool state_set_init(state_set *set);
/* 1: added, 0: was there already, -1: no memory. */
int state_set_add(state_set *set, const state *added);
void state_set_destroy(state_set *set);

#endif
