/* cuda/test_device_cuda.c - copies between a GPU's blocks and slots, of all sizes and by all ways;
 * copies between blocks; wrong calls. On the stand-in, or with --driver gpu on a real one. */
#include "kit.h"

#include <quire/tier.h>

#include <stdlib.h>

enum { BLOCKS = 12, SLOTS = 20, MOST_LAYERS = 3 };

static cuda_kit kit;
static uint64_t random_state;

/* ---- a world --------------------------------------------------------------- */

typedef struct world_plan {
    uint32_t num_layers;
    uint64_t bytes; /* of a layer's piece */
    quire_cuda_layout layout;
    quire_cuda_method method;
    quire_cuda_crc crc;
    uint32_t max_jobs;
    uint32_t num_ctas;
    uint64_t stage_bytes;
    bool is_registered; /* slots are ordinary memory, pinned by the device */
} world_plan;

typedef struct world {
    world_plan plan;
    quire_cuda_arena *arena;
    quire_cuda_arena_view view;
    size_t block_bytes;
    unsigned char *slots;
    unsigned char *expected; /* what the slots should have */
    unsigned char *blocks;   /* what the blocks should have, as slots have it */
    quire_device device;
} world;

static void open_arena(world *w)
{
    char message[256] = "";
    quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
    config.num_layers = w->plan.num_layers;
    config.num_blocks = BLOCKS;
    config.bytes = w->plan.bytes;
    config.layout = w->plan.layout;
    int status = quire_cuda_arena_open(kit.cuda, &config, &w->arena, message, sizeof message);
    assert_string_equal(message, "");
    assert_int_equal(status, QUIRE_OK);
    w->view = quire_cuda_arena_get_view(w->arena);
    w->block_bytes = (size_t)(w->plan.num_layers * w->plan.bytes);
}

static quire_device_cuda_config device_config(const world *w)
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
    return config;
}

static void open_world(world *w, const world_plan *plan)
{
    char message[256] = "";
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
    quire_device_cuda_config config = device_config(w);
    int status = quire_device_cuda_open(&config, NULL, &w->device, message, sizeof message);
    assert_string_equal(message, "");
    assert_int_equal(status, QUIRE_OK);
}

static void close_world(world *w)
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

static void fill_random(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t drawn = unit_random(&random_state);
        memcpy(memory + i, &drawn, bytes - i < sizeof drawn ? bytes - i : sizeof drawn);
    }
}

static void fill_block(world *w, quire_block block)
{
    unsigned char *all = w->blocks + block * w->block_bytes;
    fill_random(all, w->block_bytes);
    for (uint32_t r = 0; r < w->view.num_regions; r++)
        kit_write(&kit, w->view.regions[r].base + block * w->view.regions[r].stride,
                  all + r * w->plan.bytes, (size_t)w->plan.bytes);
}

static void check_blocks(world *w)
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

static void check_slots(const world *w)
{
    assert_memory_equal(w->slots, w->expected, SLOTS * w->block_bytes);
}

/* ---- there and back -------------------------------------------------------- */

/* Copies with blocks and slots of which none stands in it twice. */
static uint32_t draw_copies(quire_device_copy *copies)
{
    uint32_t order[SLOTS];
    uint32_t n = 1 + unit_random_below(&random_state, BLOCKS - 1);
    for (uint32_t i = 0; i < SLOTS; i++)
        order[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = i + unit_random_below(&random_state, SLOTS - i);
        uint32_t slot = order[other];
        order[other] = order[i];
        copies[i] = (quire_device_copy){(i * 5 + 3) % BLOCKS, slot, 77};
    }
    return n;
}

static void store_some(world *w)
{
    quire_device_copy copies[SLOTS];
    quire_device_job job;
    uint32_t n = draw_copies(copies);
    for (uint32_t i = 0; i < n; i++) {
        fill_block(w, copies[i].block);
        memcpy(w->expected + copies[i].slot * w->block_bytes,
               w->blocks + copies[i].block * w->block_bytes, w->block_bytes);
    }
    kit_submit(&w->device, &job, QUIRE_DEVICE_STORE, copies, n);
    assert_ptr_equal(kit_wait_for_job(&w->device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    assert_int_equal(job.state, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t crc = quire_crc32c(0, w->slots + copies[i].slot * w->block_bytes, w->block_bytes);
        assert_int_equal(copies[i].crc, w->plan.crc == QUIRE_CUDA_CRC_NONE ? 0 : crc);
    }
}

static void load_some(world *w)
{
    quire_device_copy copies[SLOTS];
    quire_device_job job;
    uint32_t n = draw_copies(copies);
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *slot = w->slots + copies[i].slot * w->block_bytes;
        fill_random(slot, w->block_bytes);
        memcpy(w->expected + copies[i].slot * w->block_bytes, slot, w->block_bytes);
        memcpy(w->blocks + copies[i].block * w->block_bytes, slot, w->block_bytes);
    }
    kit_submit(&w->device, &job, QUIRE_DEVICE_LOAD, copies, n);
    assert_ptr_equal(kit_wait_for_job(&w->device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(copies[i].crc, 0);
}

static void go_there_and_back(const world_plan *plan)
{
    world w;
    quire_device_job job;
    open_world(&w, plan);
    check_blocks(&w); /* zeroed */
    for (int round = 0; round < 2; round++) {
        store_some(&w);
        check_slots(&w);
        load_some(&w);
        check_blocks(&w);
    }
    check_slots(&w);
    kit_submit(&w.device, &job, QUIRE_DEVICE_LOAD, NULL, 0); /* nothing to do */
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    quire_device_cuda_stats stats = quire_device_cuda_get_stats(&w.device);
    assert_int_equal(stats.jobs, 5);
    assert_int_equal(stats.failed_jobs, 0);
    assert_int_equal(stats.in_flight, 0);
    assert_int_equal(stats.pieces_in_block,
                     plan->layout == QUIRE_CUDA_BLOCK_OUTER ? 1 : plan->num_layers);
    close_world(&w);
}

/* The last makes CRCs of several parts. TSan has nothing more to see in the large ones. */
static void all_sizes_by_kernel(void **state)
{
#if defined(__SANITIZE_THREAD__)
    static const uint64_t SIZES[] = {16, 4096, 9216};
#else
    static const uint64_t SIZES[] = {16, 48, 496, 512, 4096, 4112, 9216, 65536 + 16, 262144 + 48};
#endif
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int layout = 0; layout < (SIZES[i] < 100000 ? 2 : 1); layout++) {
            world_plan plan = {.num_layers = layout == 0 ? 1 : 3,
                               .bytes = SIZES[i],
                               .layout = (quire_cuda_layout)layout,
                               .method = QUIRE_CUDA_KERNEL,
                               .num_ctas = i % 2 == 0 ? 1 : 7};
            go_there_and_back(&plan);
            plan.layout = QUIRE_CUDA_LAYER_OUTER;
            plan.num_layers = 2;
            plan.is_registered = true;
            go_there_and_back(&plan);
            plan.method = QUIRE_CUDA_STAGED;
            plan.stage_bytes = layout == 0 ? 1 : 6 * SIZES[i]; /* a block, three blocks */
            go_there_and_back(&plan);
        }
}

static void all_sizes_by_engine(void **state)
{
    static const uint64_t SIZES[] = {1, 1000, 4096, 70000};
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int method = QUIRE_CUDA_BATCH; method <= QUIRE_CUDA_LOOP; method++) {
            world_plan plan = {.num_layers = 2,
                               .bytes = SIZES[i],
                               .method = (quire_cuda_method)method,
                               .is_registered = i % 2 == 0};
            if (SIZES[i] == 4096)
                plan.crc = method == QUIRE_CUDA_BATCH ? QUIRE_CUDA_CRC_GPU : QUIRE_CUDA_CRC_NONE;
            go_there_and_back(&plan);
        }
}

static void way_by_size(void **state)
{
    static const struct {
        uint64_t bytes;
        uint32_t num_layers;
        quire_cuda_method method;
        quire_cuda_method store_method;
    } CASES[] = {{4096, 3, QUIRE_CUDA_KERNEL, QUIRE_CUDA_KERNEL},
                 {65536, 2, QUIRE_CUDA_STAGED, QUIRE_CUDA_KERNEL},
                 {65536, 4, QUIRE_CUDA_STAGED, QUIRE_CUDA_STAGED},
                 {1 << 20, 1, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH},
                 {1001, 3, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH}};
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        world w;
        world_plan plan = {.num_layers = CASES[i].num_layers, .bytes = CASES[i].bytes};
        open_world(&w, &plan);
        quire_device_cuda_stats stats = quire_device_cuda_get_stats(&w.device);
        assert_int_equal(stats.method, CASES[i].method);
        assert_int_equal(stats.store_method, CASES[i].store_method);
        close_world(&w);
        if (plan.bytes < 100000)
            go_there_and_back(&plan);
    }
}

/* Tensors with a gap behind each piece, of different sizes, and two that lie one behind the other:
 * what is not a piece is not touched. */
static void tensors_of_an_engine(void **state)
{
    enum { STRIDE = 16384, A = 4096, B = 528, C = 1040 };
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = STRIDE};
    static unsigned char all[BLOCKS][STRIDE];
    static unsigned char now[BLOCKS][STRIDE];
    quire_device device = {0};
    quire_device_job job;
    quire_device_copy copies[2] = {{2, 5, 0}, {7, 6, 0}};
    open_world(&w, &plan);
    quire_cuda_region regions[3] = {{w.view.base + 512, STRIDE, A},
                                    {w.view.base + 512 + A, STRIDE, B},
                                    {w.view.base + 8192, STRIDE, C}};
    quire_device_cuda_config config = device_config(&w);
    config.regions = regions;
    config.num_regions = 3;
    assert_int_equal(quire_device_cuda_open(&config, NULL, &device, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_device_cuda_get_stats(&device).pieces_in_block, 2);
    fill_random(all[0], sizeof all);
    kit_write(&kit, w.view.base, all, sizeof all);
    kit_submit(&device, &job, QUIRE_DEVICE_STORE, copies, 2);
    (void)kit_wait_for_job(&device);
    for (int i = 0; i < 2; i++) {
        unsigned char *slot = w.slots + copies[i].slot * (size_t)(A + B + C);
        assert_memory_equal(slot, &all[copies[i].block][512], A + B);
        assert_memory_equal(slot + A + B, &all[copies[i].block][8192], C);
        assert_int_equal(copies[i].crc, quire_crc32c(0, slot, A + B + C));
        for (size_t k = 0; k < A + B + C; k++)
            slot[k] ^= 0x55;
        memcpy(&all[copies[i].block][512], slot, A + B);
        memcpy(&all[copies[i].block][8192], slot + A + B, C);
    }
    kit_submit(&device, &job, QUIRE_DEVICE_LOAD, copies, 2);
    (void)kit_wait_for_job(&device);
    kit_read(&kit, now, w.view.base, sizeof now);
    assert_memory_equal(now, all, sizeof all);
    quire_device_close(&device);
    close_world(&w);
}

/* A context that the engine made: it is used, and still there afterwards. */
static void context_of_an_engine(void **state)
{
    (void)state;
    quire_cuda *other = NULL;
    void *memory = NULL;
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    kit_open(&kit);
    config.library = kit.library;
    config.context = kit.cuda->context;
    assert_int_equal(quire_cuda_open(&config, NULL, &other, NULL, 0), QUIRE_OK);
    assert_string_equal(quire_cuda_get_info(other).name, quire_cuda_get_info(kit.cuda).name);
    assert_int_equal(quire_cuda_host_alloc(other, 100, &memory), QUIRE_OK);
    quire_cuda_host_free(other, memory);
    quire_cuda_close(other);
    assert_int_equal(kit_surprises(&kit), 0);
    kit_close(&kit);
}

/* ---- in the engine's stream ------------------------------------------------ */

static void copies_between_blocks(void **state)
{
    (void)state;
    for (uint64_t bytes = 1000; bytes <= 65536; bytes = bytes == 1000 ? 4096 : bytes * 16) {
        world w;
        world_plan plan = {.num_layers = 2, .bytes = bytes};
        const quire_cuda_pair pairs[] = {{1, 7}, {2, 8}, {1, 9}};
        const quire_block zeroed[] = {3, 11};
        const quire_block out[] = {BLOCKS};
        open_world(&w, &plan);
        for (quire_block block = 0; block < BLOCKS; block++)
            fill_block(&w, block);
        assert_int_equal(quire_device_cuda_copy_blocks(&w.device, pairs, 3), QUIRE_OK);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, zeroed, 2), QUIRE_OK);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, zeroed, 0), QUIRE_OK);
        for (int i = 0; i < 3; i++)
            memcpy(w.blocks + pairs[i].to * w.block_bytes, w.blocks + pairs[i].from * w.block_bytes,
                   w.block_bytes);
        for (int i = 0; i < 2; i++)
            memset(w.blocks + zeroed[i] * w.block_bytes, 0, w.block_bytes);
        check_blocks(&w);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, out, 1), QUIRE_E_RANGE);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, NULL, 1), QUIRE_E_ARGUMENT);
        assert_int_equal(quire_device_cuda_copy_blocks(NULL, pairs, 1), QUIRE_E_ARGUMENT);
        close_world(&w);
    }
}

/* More such calls than can be on their way: the next says so, and goes when one has ended. */
static void many_calls_between_blocks(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    kit_step step = {.spin_us = 200000};
    const quire_cuda_pair pair = {1, 2};
    uint32_t count = 0;
    int status = QUIRE_OK;
    open_world(&w, &plan);
    kit_compute(&kit, &step);
    while (status == QUIRE_OK && count < 1000) {
        status = quire_device_cuda_copy_blocks(&w.device, &pair, 1);
        count += status == QUIRE_OK ? 1 : 0;
    }
    assert_int_equal(status, QUIRE_FULL);
    assert_int_equal(count, 32);
    (void)kit_surprises(&kit);
    assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_OK);
    close_world(&w);
}

/* ---- wrong calls ----------------------------------------------------------- */

static void wrong_jobs(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    quire_device_job job = {.op = QUIRE_DEVICE_STORE};
    quire_device_copy copy = {BLOCKS, 0, 0};
    uint64_t mark = 0;
    open_world(&w, &plan);
    const quire_device_ops *ops = w.device.ops;
    void *self = w.device.self;
    assert_int_equal(ops->mark(self, NULL), QUIRE_E_ARGUMENT);
    job.num_copies = 1;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT);
    job.copies = &copy;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    copy = (quire_device_copy){0, SLOTS, 0};
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    copy.slot = 0;
    job.after = 1; /* no such mark yet */
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    assert_int_equal(ops->mark(self, &mark), QUIRE_OK);
    assert_int_equal(mark, 1);
    job.op = (quire_device_op)3;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT);
    assert_int_equal(ops->submit(self, NULL), QUIRE_E_ARGUMENT);
    job.op = QUIRE_DEVICE_LOAD;
    job.num_copies = 257;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    job.num_copies = 1;
    assert_int_equal(ops->submit(self, &job), QUIRE_OK);
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT); /* in flight */
    assert_int_equal(ops->poll(self, NULL, 4), 0);
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    close_world(&w);
    assert_int_equal(quire_device_cuda_get_stats(&w.device).jobs, 0);
    assert_int_equal(quire_device_cuda_ignore_marks(&w.device, 1), QUIRE_E_ARGUMENT);
}

static void wrong_devices(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 2, .bytes = 4096};
    open_world(&w, &plan);
    for (int wrong = 0; wrong < 16; wrong++) {
        char message[256] = "";
        quire_device device = {0};
        quire_allocator half = {0};
        quire_cuda_region regions[2] = {w.view.regions[0], w.view.regions[1]};
        quire_device_cuda_config config = device_config(&w);
        config.cuda = wrong == 0 ? NULL : config.cuda;
        config.regions = wrong == 1 ? NULL : regions;
        config.num_regions = wrong == 2 ? 0 : 2;
        config.num_blocks = wrong == 3 ? 0 : BLOCKS;
        config.num_slots = wrong == 4 ? 0 : wrong == 5 ? UINT32_MAX : SLOTS;
        config.slots = wrong == 6 ? NULL : w.slots;
        config.max_jobs = wrong == 7 ? 65537 : 0;
        config.num_ctas = wrong == 8 ? 5000 : 0;
        config.method = wrong == 9 ? (quire_cuda_method)5 : QUIRE_CUDA_BY_SIZE;
        config.crc = wrong == 10 ? (quire_cuda_crc)4 : QUIRE_CUDA_CRC_DEFAULT;
        regions[1].base = wrong == 11 ? 0 : regions[1].base;
        regions[1].stride = wrong == 12 ? 100 : regions[1].stride;
        regions[0].bytes = wrong == 5 ? UINT64_C(1) << 40 : regions[0].bytes;
        regions[0].stride = wrong == 5 ? UINT64_C(1) << 40 : regions[0].stride;
        config.size = wrong == 13 ? 1 : config.size;
        if (wrong == 14) { /* not at multiples of 16, and it must be a kernel */
            regions[0].base += 8;
            config.method = QUIRE_CUDA_KERNEL;
        }
        int status = quire_device_cuda_open(&config, wrong == 15 ? &half : NULL, &device, message,
                                            sizeof message);
        assert_int_equal(status, wrong == 15 ? QUIRE_E_ARGUMENT : QUIRE_E_CONFIG);
        assert_null(device.ops);
        assert_true(strlen(message) > 10);
    }
    assert_int_equal(quire_device_cuda_open(NULL, NULL, &w.device, NULL, 0), QUIRE_E_ARGUMENT);
    close_world(&w);
}

static void wrong_arenas(void **state)
{
    (void)state;
    quire_cuda *none = NULL;
    kit_open(&kit);
    for (int wrong = 0; wrong < 7; wrong++) {
        char message[256] = "";
        quire_cuda_arena *arena = NULL;
        quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
        config.num_layers = wrong == 0 ? 0 : wrong == 1 ? 5000 : 2;
        config.num_blocks = wrong == 2 ? 0 : 4;
        config.bytes = wrong == 3 ? 0 : wrong == 4 ? UINT64_MAX / 2 : 4096;
        config.layout = wrong == 5 ? (quire_cuda_layout)2 : QUIRE_CUDA_LAYER_OUTER;
        config.size = wrong == 6 ? 4 : config.size;
        assert_int_equal(quire_cuda_arena_open(kit.cuda, &config, &arena, message, sizeof message),
                         QUIRE_E_CONFIG);
        assert_null(arena);
        assert_true(strlen(message) > 10);
    }
    assert_int_equal(quire_cuda_arena_open(NULL, NULL, NULL, NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_open(NULL, NULL, &none, NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_host_alloc(kit.cuda, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_arena_get_view(NULL).num_regions, 0);
    assert_int_equal(quire_cuda_get_info(NULL).capability, 0);
    quire_cuda_arena_close(NULL);
    quire_cuda_close(NULL);
    kit_close(&kit);
}

/* Jobs of a direction end in order, and one more than there may be is not taken. */
static void jobs_end_in_order(void **state)
{
    enum { JOBS = 5 };
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096, .max_jobs = JOBS};
    quire_device_job jobs[JOBS];
    quire_device_copy copies[JOBS];
    quire_device_job one_more = {.op = QUIRE_DEVICE_STORE};
    quire_device_job *ended[1];
    kit_step step = {.spin_us = 50000};
    open_world(&w, &plan);
    kit_compute(&kit, &step);
    for (uint32_t i = 0; i < JOBS; i++) {
        copies[i] = (quire_device_copy){i, i, 0};
        kit_submit(&w.device, &jobs[i], QUIRE_DEVICE_STORE, &copies[i], 1);
    }
    assert_int_equal(w.device.ops->submit(w.device.self, &one_more), QUIRE_FULL);
    assert_int_equal(one_more.state, 0);
    assert_int_equal(w.device.ops->poll(w.device.self, ended, 1), 0);
    for (uint32_t i = 0; i < JOBS; i++)
        assert_ptr_equal(kit_wait_for_job(&w.device), &jobs[i]);
    assert_int_equal(w.device.ops->submit(w.device.self, &one_more), QUIRE_OK);
    (void)kit_wait_for_job(&w.device);
    kit_compute(&kit, &step);
    kit_submit(&w.device, &jobs[0], QUIRE_DEVICE_LOAD, copies, 1);
    close_world(&w); /* with one in flight: waits for it */
    assert_true(jobs[0].state != 0);
}

/* Marks are used again: an old one waits for more than it must, never for less. */
static void old_marks(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    quire_device_copy copy = {1, 1, 0};
    uint64_t first = 0;
    uint64_t mark = 0;
    open_world(&w, &plan);
    assert_int_equal(w.device.ops->mark(w.device.self, &first), QUIRE_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(w.device.ops->mark(w.device.self, &mark), QUIRE_OK);
    assert_int_equal(mark, first + 1000);
    quire_device_job job = {
        .op = QUIRE_DEVICE_STORE, .copies = &copy, .num_copies = 1, .after = first};
    assert_int_equal(w.device.ops->submit(w.device.self, &job), QUIRE_OK);
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    close_world(&w);
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_by_kernel),
        cmocka_unit_test(all_sizes_by_engine),
        cmocka_unit_test(way_by_size),
        cmocka_unit_test(copies_between_blocks),
        cmocka_unit_test(many_calls_between_blocks),
        cmocka_unit_test(tensors_of_an_engine),
        cmocka_unit_test(context_of_an_engine),
        cmocka_unit_test(wrong_jobs),
        cmocka_unit_test(wrong_devices),
        cmocka_unit_test(wrong_arenas),
        cmocka_unit_test(jobs_end_in_order),
        cmocka_unit_test(old_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
