#include "world.h"

#include <stdlib.h>

cuda_kit kit;
uint64_t random_state;

/* Nothing that is logged may be empty. */
static void world_log(void *user, quire_log_level level, const char *message)
{
    (void)user;
    assert_true(level <= QUIRE_LOG_INFO && message[0] != 0);
}

static void open_arena(world *w)
{
    quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
    config.num_layers = w->plan.num_layers;
    config.num_blocks = BLOCKS;
    config.bytes = w->plan.bytes;
    config.layout = w->plan.layout;
    int status = quire_cuda_arena_open(kit.cuda, &config, &w->arena);
    assert_string_equal(quire_refusal(), "");
    assert_int_equal(status, QUIRE_OK);
    w->view = quire_cuda_arena_get_view(w->arena);
    w->block_bytes = (size_t)(w->plan.num_layers * w->plan.bytes);
    w->has_crc = w->plan.crc == QUIRE_CUDA_CRC_GPU || w->plan.crc == QUIRE_CUDA_CRC_HOST;
}

quire_device_cuda_config world_device_config(const world *w)
{
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    config.cuda = kit.cuda;
    config.regions = w->view.regions;
    config.num_regions = w->view.num_regions;
    config.num_blocks = BLOCKS;
    config.num_slots = SLOTS;
    config.slots = w->slots;
    config.pin = w->plan.is_registered ? QUIRE_DEFAULT : QUIRE_OFF;
    config.method = w->plan.method;
    config.crc = w->plan.crc;
    config.max_jobs = w->plan.max_jobs;
    config.num_ctas = w->plan.num_ctas;
    config.stage_bytes = w->plan.stage_bytes;
    config.engine_from = w->plan.engine_from;
    config.staged_from = w->plan.staged_from;
    config.max_pieces = w->plan.max_pieces;
    config.max_bytes = w->plan.max_bytes;
    config.hooks.log = world_log;
    return config;
}

void world_open(world *w, const world_plan *plan)
{
    *w = (world){.plan = *plan};
    kit_open(&kit);
    open_arena(w);
    size_t bytes = SLOTS * w->block_bytes;
    void *slots = NULL;
    if (plan->is_registered)
        slots = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    else
        assert_int_equal(quire_cuda_host_alloc(kit.cuda, bytes, &slots), QUIRE_OK);
    w->slots = slots;
    w->expected = malloc(bytes);
    w->blocks = calloc(BLOCKS, w->block_bytes);
    memset(w->slots, 0, bytes);
    memset(w->expected, 0, bytes);
    quire_device_cuda_config config = world_device_config(w);
    int status = quire_device_cuda_open(&config, NULL, &w->device);
    assert_string_equal(quire_refusal(), "");
    assert_int_equal(status, QUIRE_OK);
}

void world_close(world *w)
{
    quire_device_close(&w->device);
    if (w->plan.is_registered)
        free(w->slots);
    else
        quire_cuda_host_free(kit.cuda, w->slots);
    quire_cuda_arena_close(w->arena);
    free(w->expected);
    free(w->blocks);
    kit_close(&kit);
}

void world_fill_random(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t drawn = unit_random(&random_state);
        memcpy(memory + i, &drawn, bytes - i < sizeof drawn ? bytes - i : sizeof drawn);
    }
}

void world_fill_block(world *w, quire_block block)
{
    unsigned char *all = w->blocks + block * w->block_bytes;
    world_fill_random(all, w->block_bytes);
    for (uint32_t r = 0; r < w->view.num_regions; r++)
        kit_write(&kit, w->view.regions[r].base + block * w->view.regions[r].stride,
                  all + r * w->plan.bytes, (size_t)w->plan.bytes);
}

void world_check_blocks(world *w)
{
    unsigned char *piece = malloc((size_t)w->plan.bytes);
    for (quire_block block = 0; block < BLOCKS; block++)
        for (uint32_t r = 0; r < w->view.num_regions; r++) {
            const quire_cuda_region *region = &w->view.regions[r];
            kit_read(&kit, piece, region->base + block * region->stride, (size_t)region->bytes);
            assert_memory_equal(piece, w->blocks + block * w->block_bytes + r * w->plan.bytes,
                                (size_t)w->plan.bytes);
        }
    free(piece);
}

void world_check_slots(const world *w)
{
    assert_memory_equal(w->slots, w->expected, SLOTS * w->block_bytes);
}
