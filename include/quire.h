/* quire.h - the memory manager of an LLM inference engine.
 *
 * This header includes all others. Each of them is the specification of its part:
 *
 *      quire/version.h   which Quire this is
 *      quire/error.h     what a call can answer
 *      quire/memory.h    where a handle's memory comes from
 *      quire/config.h    what all configs have in common
 *      quire/hash.h      from tokens to the names of KV blocks
 *      quire/pool.h      the pool of KV blocks, and its prefix cache
 *      quire/table.h     from a request's tokens to places in KV memory
 *      quire/layer.h     what one layer of a model keeps for each token
 *      quire/model.h     from the fields of a model's config.json to its layers
 *      quire/plan.h      from layers and memory to groups, page sizes and numbers of blocks
 *      quire/cost.h      bytes and seconds, with a pencil: blocks of a memory, copies, swaps
 *      quire/cache.h     the KV cache: which blocks each request has, group by group
 *      quire/sched.h     the scheduler: who computes how many tokens in the next step
 *      quire/connector.h what an engine brings to the scheduler: connectors, grammars
 *      quire/output.h    what comes out of a step
 *      quire/image.h     the whole state as one piece of bytes, to go on from elsewhere
 *      quire/step.h      what a step lists: requests, tokens, blocks, copies
 *      quire/observe.h   what it tells of its steps
 *      quire/connector.h what others bring into it
 *      quire/monitor.h   what other threads see of a scheduler while it runs
 *      quire/residency.h how long blocks stay in a pool that has no scheduler
 *
 * The others are of libraries beside this one, and not included here:
 *
 *      quire/offload.h   which KV blocks outlive the engine's memory            libquire_tier
 *      quire/device.h    copies between the engine's memory and host memory     libquire_tier
 *      quire/tier.h      where blocks go: files, Redis, peers, one's own        libquire_tier
 *      quire/tier_file.h, quire/tier_redis.h, quire/tier_peer.h, quire/slots.h  libquire_tier
 *      quire/wire.h      KV events as bytes, and the index of a router          libquire_events
 *      quire/events.h    KV events over ZeroMQ                                  libquire_events
 *      quire/http.h      metrics, steps and the live page over HTTP             libquire_http
 *
 * The life of a prompt, on one page
 * ---------------------------------
 *
 * 1. Once, at start: a hasher that says how blocks are named, and a pool that knows every block of
 *    KV memory. Both take all their memory here, and none later.
 *
 *        quire_hasher_config hash_config = QUIRE_HASHER_CONFIG_INIT;    (sha256, 16 tokens a block)
 *        quire_pool_config pool_config = QUIRE_POOL_CONFIG_INIT;
 *        pool_config.num_blocks = 1000;
 *        quire_hasher_create(&hash_config, NULL, &hasher);
 *        quire_pool_create(&pool_config, NULL, &pool);
 *
 * 2. A prompt comes in. Its full blocks get hashes. Blocks that an earlier prompt has left under
 *    these hashes are found and kept from being evicted.
 *
 *        quire_chain_init(hasher, memory, bytes, &chain);
 *        quire_chain_append(hasher, chain, tokens, n, NULL, hashes, capacity, &num_hashes);
 *        quire_pool_get_cached_prefix(pool, hashes, 32, max_hits, &group, 1, blocks, &num_hit);
 *        quire_pool_touch(pool, blocks, num_hit);
 *
 *    At least one token must be computed, so an engine looks up at most (n - 1) / 16 hashes.
 *
 * 3. The rest needs new blocks. QUIRE_NO_SPACE means: preempt a request, or wait.
 *
 *        quire_pool_get_new_blocks(pool, num_needed, blocks + num_hit);
 *
 * 4. The engine computes. Tokens find their place through a table.
 *
 *        quire_table_add_row(table, row, blocks, num_blocks);
 *        quire_table_compute_slot_mapping(table, ...);
 *
 * 5. Full blocks get their names in the pool, so that the next prompt finds them.
 *
 *        quire_pool_cache_full_blocks(pool, &params);
 *
 * 6. The request ends: its blocks go back, last to first. They stay in the cache until their
 *    memory is needed, and the tail of a prompt goes before its head.
 *
 *        quire_pool_free_blocks(pool, blocks_last_to_first, num_blocks);
 *
 * examples/prefix_cache.c is this page as a program.
 */
#ifndef QUIRE_H
#define QUIRE_H

#include "quire/cache.h"
#include "quire/config.h"
#include "quire/connector.h"
#include "quire/cost.h"
#include "quire/error.h"
#include "quire/hash.h"
#include "quire/image.h"
#include "quire/layer.h"
#include "quire/memory.h"
#include "quire/model.h"
#include "quire/monitor.h"
#include "quire/observe.h"
#include "quire/output.h"
#include "quire/plan.h"
#include "quire/pool.h"
#include "quire/residency.h"
#include "quire/sched.h"
#include "quire/step.h"
#include "quire/table.h"
#include "quire/version.h"

#endif
