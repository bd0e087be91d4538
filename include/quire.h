/* quire.h - the memory manager and scheduler of an LLM inference engine.
 *
 * The engine loop: create, add, schedule, update
 * ----------------------------------------------
 *
 * An engine creates a scheduler once, adds requests as they arrive, and then repeats: schedule a
 * step, compute it, update. The following program is complete; a test compiles and runs it:
 *
 *    #include <quire.h>
 *    #include <stdio.h>
 *
 *    int main(void)
 *    {
 *        // Create: one group of layers, 1,000 blocks of 16 tokens, prefix caching with SHA-256.
 *        const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL, .block_size = 16,
 *            .num_kv_heads = 8, .head_size = 128, .dtype = QUIRE_DTYPE_BFLOAT16}};
 *        quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT;
 *        quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
 *        cache.num_blocks = 1000;
 *        cache.groups = &group;
 *        cache.num_groups = 1;
 *        cache.max_model_len = 4096;
 *        quire_sched_config config = QUIRE_SCHED_CONFIG_INIT;
 *        config.cache = &cache;
 *        quire_sched *sched;
 *        if (quire_hasher_create(&hashing, NULL, &config.hasher) != QUIRE_OK ||
 *            quire_sched_create(&config, NULL, &sched) != QUIRE_OK) {
 *            puts(quire_refusal()); // such as "invalid num_blocks 0 (expected 1..2147483647)"
 *            return 1;
 *        }
 *        // Add: two requests with the same prompt of 40 tokens. The scheduler copies the prompt.
 *        const quire_token prompt[40] = {101, 102, 103};
 *        quire_request_params params = QUIRE_REQUEST_PARAMS_INIT;
 *        params.prompt = prompt;
 *        params.num_prompt_tokens = 40;
 *        params.max_tokens = 2;
 *        static char names[] = "AB";
 *        for (char *name = names; *name != 0; name++) {
 *            quire_req req;
 *            params.id = (quire_bytes){name, 1};
 *            params.user = name;
 *            if (quire_sched_add(sched, &params, &req) != QUIRE_OK)
 *                return 1;
 *        }
 *        while (quire_sched_get_num_unfinished(sched) > 0) {
 *            const quire_step *step;
 *            const quire_outputs *out;
 *            quire_token sampled[128]; // max_num_seqs: the most requests that one step has
 *            // Schedule: request reqs[i] computes num_tokens[i] tokens in this step.
 *            if (quire_sched_schedule(sched, &step) != QUIRE_OK)
 *                return 1;
 *            for (uint32_t i = 0; i < step->num_reqs; i++) {
 *                const char *name = quire_sched_get_user(sched, step->reqs[i]);
 *                printf("%c computes %u tokens\n", *name, step->num_tokens[i]);
 *                sampled[i] = 7; // here the model computes the tokens and samples the next one
 *            }
 *            // Update: appends the sampled tokens to the requests and ends finished requests.
 *            const quire_model_output output = {.size = sizeof output, .sampled = sampled};
 *            if (quire_sched_update(sched, step->step, &output, &out) != QUIRE_OK)
 *                return 1;
 *            for (const quire_output *o = out->outputs; o < out->outputs + out->num_outputs; o++)
 *                if (o->finish_reason != QUIRE_FINISH_NONE)
 *                    printf("%c ends\n", *(char *)o->user);
 *        }
 *        quire_sched_destroy(sched);
 *        quire_hasher_destroy(config.hasher);
 *        return 0;
 *    }
 *
 * Request B computes 8 tokens only: its first 32 tokens are in two full blocks of request A, which
 * the prefix cache finds. The program prints:
 *
 *    A computes 40 tokens
 *    B computes 8 tokens
 *    A computes 1 tokens
 *    B computes 1 tokens
 *    A ends
 *    B ends
 *
 * Every call that can fail returns a status: 0 is QUIRE_OK, a positive status is an expected
 * outcome (quire_sched_add returns QUIRE_FULL if a limit is reached), a negative status is an
 * error. A call that does not return QUIRE_OK has changed nothing. quire_strerror returns the
 * sentence of a status.
 *
 * The engine computes request reqs[i] in the KV blocks that step->blocks lists. examples/engine.c
 * shows preemption, examples/tiers.c a cache in host memory and on disk, examples/plan_memory.c how
 * many blocks a model has, and examples/prefix_cache.c a pool of blocks without a scheduler.
 *
 * The headers
 * -----------
 *
 * This header includes the headers of libquire. Each of them is the specification of its part:
 *
 *      quire/sched.h     the scheduler: which requests compute how many tokens in the next step
 *      quire/request.h   a request: what the caller gives, and what can be asked of it
 *      quire/step.h      what schedule returns: requests, tokens, blocks, copies
 *      quire/output.h    what update reads and returns: sampled tokens, finished requests, stats
 *      quire/connector.h callbacks of the engine: KV connectors, encoder connectors, grammars
 *      quire/image.h     the state of a scheduler as bytes: save it, restore it elsewhere
 *      quire/observe.h   callbacks that report each step and each decision
 *      quire/monitor.h   what other threads read while a scheduler runs: metrics, steps, events
 *      quire/cache.h     the KV cache: the blocks of each request, in each group of layers
 *      quire/pool.h      the pool of KV blocks with its free queue and its prefix cache
 *      quire/residency.h how long blocks stay in a pool that has no scheduler
 *      quire/table.h     from the tokens of a request to addresses in KV memory
 *      quire/hash.h      from tokens to the hashes that name KV blocks
 *      quire/layer.h     what one layer of a model stores for each token
 *      quire/model.h     from the fields of a model's config.json to its layers
 *      quire/plan.h      from layers and memory to groups, page sizes and numbers of blocks
 *      quire/cost.h      formulas: bytes, blocks and seconds
 *      quire/config.h    rules that all config structs share
 *      quire/memory.h    where a handle takes its memory from
 *      quire/error.h     the statuses that calls return
 *      quire/version.h   the version of this library
 *
 * These headers belong to other libraries and are not included here:
 *
 *      quire/offload.h   stores KV blocks in host memory and lower tiers        libquire_tier
 *      quire/device.h    copies between the engine's memory and host memory     libquire_tier
 *      quire/tier.h      the interface of a tier: files, Redis, peers, others   libquire_tier
 *      quire/tier_file.h, quire/tier_redis.h, quire/tier_object.h               libquire_tier
 *      quire/tier_peer.h, quire/slots.h                                         libquire_tier
 *      quire/device_cuda.h  the device of a CUDA GPU                            libquire_tier
 *      quire/wire.h      KV events as bytes, and the index of a router          libquire_events
 *      quire/events.h    KV events over ZeroMQ                                  libquire_events
 *      quire/http.h      metrics, steps and the live page over HTTP             libquire_http
 *      quire/record.h    records requests and decisions in files                libquire_record
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
#include "quire/request.h"
#include "quire/residency.h"
#include "quire/sched.h"
#include "quire/step.h"
#include "quire/table.h"
#include "quire/version.h"

#endif
