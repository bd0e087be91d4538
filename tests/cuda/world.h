/* cuda/world.h - an arena, slots and a device for tests, with what both sides should have. */
#ifndef QUIRE_TESTS_CUDA_WORLD_H
#define QUIRE_TESTS_CUDA_WORLD_H

#include "kit.h"

enum { BLOCKS = 12, SLOTS = 20 };

extern cuda_kit kit;
extern uint64_t random_state;

typedef struct world_plan {
    uint32_t num_layers;
    uint64_t bytes; /* of a layer's piece */
    quire_cuda_layout layout;
    quire_cuda_method method;
    quire_cuda_crc crc;
    uint32_t max_jobs;
    uint32_t num_ctas;
    uint64_t stage_bytes;
    uint64_t engine_from;
    uint64_t staged_from;
    uint32_t max_pieces;
    uint64_t max_bytes;
    bool is_registered; /* slots are ordinary memory, pinned by the device */
} world_plan;

typedef struct world {
    world_plan plan;
    quire_cuda_arena *arena;
    quire_cuda_arena_view view;
    size_t block_bytes;
    bool has_crc;
    unsigned char *slots;
    unsigned char *expected; /* what the slots should have */
    unsigned char *blocks;   /* what the blocks should have, as slots have it */
    quire_device device;
} world;

/* Opens the kit, too. */
void world_open(world *w, const world_plan *plan);
void world_close(world *w);
quire_device_cuda_config world_device_config(const world *w);

void world_fill_random(unsigned char *memory, size_t bytes);
void world_fill_block(world *w, quire_block block);
void world_check_blocks(world *w);
void world_check_slots(const world *w);

#endif
