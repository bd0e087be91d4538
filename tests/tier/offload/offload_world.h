/* tier/offload/offload_world.h - an engine of numbers: what is in a block is known from its tokens.
 *
 *      scheduler + offload ──► steps ──► computed in order, some time later
 *                        └──► copies ──► made some time later, behind what they must wait for
 *
 * A block's content is one number, made of all tokens up to its end. Before a step computes, every
 * block that its requests rely on must have the number of their tokens: a hit, a load or a store
 * that was early, late, mixed up or of a failed copy shows there. Copies are made at the last
 * moment, and failed ones leave rubbish behind.
 *
 * Everything is drawn from one seed.
 */
#ifndef OFFLOAD_WORLD_H
#define OFFLOAD_WORLD_H

#include "base/unit.h"

#include <quire.h>
#include <quire/offload.h>

enum {
    WORLD_MAX_REQUESTS = 64, /* at one time */
    WORLD_MAX_PEOPLE = 4096, /* in all */
    WORLD_LEN = 96,
    WORLD_MAX_ROW = 128, /* blocks of a request */
    WORLD_MAX_GROUPS = 2,
    WORLD_MAX_JOBS = 512,
    WORLD_MAX_BLOCKS = 256,
    WORLD_MAX_FLIGHT = 3
};

typedef struct world_setup {
    uint64_t seed;
    uint32_t num_gpu;
    uint32_t num_cpu;
    quire_offload_mode mode;
    bool is_hybrid;  /* a second group, with a window */
    bool is_chunked; /* or with chunks */
    bool is_async;
    bool is_piped; /* two steps on their way, each with requests of its own */
    bool has_device;
    bool has_priority;
    uint32_t num_workers;
    uint32_t fail_percent; /* of copies */
    uint32_t pace_percent; /* of copies that end in a step */
    uint32_t max_events;
    uint32_t stick_percent; /* of a device's jobs: they take longer than anybody waits */
    bool stores_hang;       /* the device's, until world_drain */
    bool has_no_mark;       /* the device cannot tell where its compute is */
    bool saves_nothing;     /* the connector is not told of preemptions */
    bool is_parallel;       /* context parallelism: a block has positions of several ranks */
    bool promises_more;     /* the scheduler is told of two blocks that the CPU pool has not */
    uint32_t max_pins;      /* of the scheduler */
    uint32_t block_tokens;  /* 0: four */
} world_setup;

typedef struct world_request {
    quire_req req;
    bool has_ended;
    uint32_t epoch; /* grows whenever the engine learns its tokens anew */
    uint32_t num_tokens;
    quire_token tokens[WORLD_LEN + 8];
} world_request;

/* A request in a step, with the blocks that it had then. */
typedef struct world_part {
    world_request *request;
    uint32_t epoch;
    uint32_t num_computed;
    uint32_t num_new;
    uint32_t num_sampled;
    quire_token token;
    uint32_t counts[WORLD_MAX_GROUPS];
    quire_block rows[WORLD_MAX_GROUPS][WORLD_MAX_ROW];
} world_part;

typedef struct world_step {
    uint64_t step;
    uint32_t num_parts;
    bool is_computed;
    world_part parts[WORLD_MAX_REQUESTS];
} world_step;

/* A copy on its way: of the device, or of workers that read the meta. */
typedef struct world_job {
    quire_device_job *job; /* NULL: of workers */
    bool is_store;
    uint64_t after; /* steps */
    uint64_t sticks_until;
    uint64_t event;
    uint32_t num_left; /* workers */
    bool has_failed;
    uint32_t num_reqs;
    quire_req reqs[WORLD_MAX_REQUESTS];
    uint32_t count;
    quire_block gpu[WORLD_MAX_BLOCKS];
    quire_block cpu[WORLD_MAX_BLOCKS];
} world_job;

typedef struct world {
    world_setup setup;
    uint64_t random;
    quire_group_config groups[WORLD_MAX_GROUPS];
    quire_cache_config cache_config;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_offload *offload;
    quire_device device;
    world_request people[WORLD_MAX_PEOPLE];
    uint32_t num_people;
    world_step flight[WORLD_MAX_FLIGHT]; /* oldest first */
    uint32_t num_flight;
    uint64_t clock; /* turns */
    uint64_t num_late;
    uint64_t num_scheduled;
    uint64_t num_computed; /* steps */
    uint64_t gpu[WORLD_MAX_BLOCKS];
    uint64_t cpu[WORLD_MAX_BLOCKS];
    world_job jobs[WORLD_MAX_JOBS];
    uint32_t num_jobs;
    uint64_t num_loads; /* of blocks */
    uint64_t num_stores;
    uint64_t num_failures;
    uint64_t num_moves;
    uint64_t num_tokens; /* scheduled */
    uint64_t num_preempted;
    uint64_t num_finished;
    uint64_t num_outputs;
} world;

uint64_t world_draw(world *w, uint64_t below);
bool world_chance(world *w, uint32_t percent);

/* The scheduler's config without a connector; the hasher is there after world_open. */
quire_sched_config world_sched_config(world *w);
void world_open(world *w, const world_setup *setup);
/* Until all requests have ended and nothing is on the way; then nothing may be in use. */
void world_drain(world *w);
void world_close(world *w);

/* A prompt that branches off from earlier ones. */
void world_add(world *w);
/* A prompt of n tokens, first, first + 1, ... */
world_request *world_ask(world *w, uint32_t first, uint32_t n, uint32_t max_tokens);
void world_abort(world *w);
/* Preempts a request in one of the modes, offloads it, or lets it come back. */
void world_move(world *w);
/* All that were offloaded may come back. */
void world_resume(world *w);
void world_reset(world *w, bool reset_running);
/* One step forward: schedule, or compute and update what is oldest. */
void world_turn(world *w);

/* Nothing fails, copies end at once. */
world_setup world_quiet(quire_offload_mode mode, bool has_device);
uint32_t world_num_cpu_keys(const world *w);
quire_offload_stats world_stats(const world *w);

#endif
