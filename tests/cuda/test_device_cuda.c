/* cuda/test_device_cuda.c - copies between a GPU's blocks and slots, of all sizes and by all ways;
 * copies between blocks. On the stand-in, or with --driver gpu on a real one. */
#include "tier/device/cuda/device_cuda.h"
#include "world.h"

#include <quire/tier.h>

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
        world_fill_block(w, copies[i].block);
        memcpy(w->expected + copies[i].slot * w->block_bytes,
               w->blocks + copies[i].block * w->block_bytes, w->block_bytes);
    }
    kit_submit(&w->device, &job, QUIRE_DEVICE_STORE, copies, n);
    assert_ptr_equal(kit_wait_for_job(&w->device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    assert_int_equal(job.state, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t crc = quire_crc32c(0, w->slots + copies[i].slot * w->block_bytes, w->block_bytes);
        assert_int_equal(copies[i].crc, w->has_crc ? crc : 0);
    }
}

static void load_some(world *w)
{
    quire_device_copy copies[SLOTS];
    quire_device_job job;
    uint32_t n = draw_copies(copies);
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *slot = w->slots + copies[i].slot * w->block_bytes;
        world_fill_random(slot, w->block_bytes);
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
    world_open(&w, plan);
    world_check_blocks(&w); /* zeroed */
    for (int round = 0; round < 2; round++) {
        store_some(&w);
        world_check_slots(&w);
        load_some(&w);
        world_check_blocks(&w);
    }
    world_check_slots(&w);
    kit_submit(&w.device, &job, QUIRE_DEVICE_LOAD, NULL, 0); /* nothing to do */
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    const quire_device_cuda_stats *stats = quire_device_cuda_get_stats(&w.device);
    assert_int_equal(stats->jobs, 5);
    assert_int_equal(stats->failed_jobs, 0);
    assert_int_equal(stats->in_flight, 0);
    assert_true(stats->bytes_stored > 0 && stats->bytes_stored % w.block_bytes == 0);
    assert_true(stats->bytes_loaded > 0 && stats->bytes_loaded % w.block_bytes == 0);
    assert_int_equal(stats->pieces_in_block,
                     plan->layout == QUIRE_CUDA_BLOCK_OUTER ? 1 : plan->num_layers);
    world_close(&w);
}

/* The last makes CRCs of several parts. */
static void all_sizes_by_kernel(void **state)
{
    static const uint64_t SIZES[] = {16, 4112, 9216, 48, 496, 512, 4096, 65536 + 16, 262144 + 48};
    size_t num_sizes = KIT_IS_SLOW || kit.is_few ? 2 : sizeof SIZES / sizeof *SIZES;
    (void)state;
    for (size_t i = 0; i < num_sizes; i++)
        for (int layout = 0; layout < (SIZES[i] < 100000 && !kit.is_few ? 2 : 1); layout++) {
            world_plan plan = {.num_layers = layout == 0 ? 1 : 3,
                               .bytes = SIZES[i],
                               .layout = (quire_cuda_layout)layout,
                               .method = QUIRE_CUDA_KERNEL,
                               .crc = QUIRE_CUDA_CRC_GPU,
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
    static const quire_cuda_method METHODS[] = {QUIRE_CUDA_BATCH, QUIRE_CUDA_LOOP, QUIRE_CUDA_ROWS};
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (size_t m = 0; m < COUNT(METHODS); m++) {
            const quire_cuda_method method = METHODS[m];
            world_plan plan = {
                .num_layers = 2, .bytes = SIZES[i], .method = method, .is_registered = i % 2 == 0};
            if (kit.is_few && SIZES[i] != 4096)
                continue;
            if (SIZES[i] == 4096)
                plan.crc = method == QUIRE_CUDA_BATCH ? QUIRE_CUDA_CRC_GPU : QUIRE_CUDA_CRC_NONE;
            else
                plan.crc = SIZES[i] == 1 ? QUIRE_CUDA_CRC_DEFAULT : QUIRE_CUDA_CRC_HOST;
            go_there_and_back(&plan);
        }
    world_plan many = {.num_layers = 60, .bytes = 16, .method = QUIRE_CUDA_BATCH};
    if (!KIT_IS_SLOW)
        go_there_and_back(&many); /* several batches */
}

static void way_by_size(void **state)
{
    static const struct {
        uint64_t bytes;
        uint32_t num_layers;
        quire_cuda_method method;
        quire_cuda_method store_method;
    } CASES[] = {{4096, 3, QUIRE_CUDA_KERNEL, QUIRE_CUDA_KERNEL},
                 {32768, 3, QUIRE_CUDA_KERNEL, QUIRE_CUDA_KERNEL},
                 {32768, 4, QUIRE_CUDA_STAGED, QUIRE_CUDA_STAGED},
                 {65536, 1, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH},
                 {65536, 3, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH},
                 {65536, 4, QUIRE_CUDA_ROWS, QUIRE_CUDA_ROWS},
                 {1 << 20, 1, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH},
                 {1001, 3, QUIRE_CUDA_BATCH, QUIRE_CUDA_BATCH}};
    (void)state;
    const world_plan limits[] = {
        {.num_layers = 3, .bytes = 4096, .engine_from = 4096},                  /* BATCH */
        {.num_layers = 3, .bytes = 4096, .staged_from = 4096, .max_pieces = 2}, /* STAGED */
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        world w;
        world_open(&w, &limits[i]);
        assert_int_equal(quire_device_cuda_get_stats(&w.device)->method,
                         i == 0 ? QUIRE_CUDA_BATCH : QUIRE_CUDA_STAGED);
        world_close(&w);
        go_there_and_back(&limits[i]);
    }
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        world w;
        world_plan plan = {.num_layers = CASES[i].num_layers, .bytes = CASES[i].bytes};
        world_open(&w, &plan);
        const quire_device_cuda_stats *stats = quire_device_cuda_get_stats(&w.device);
        assert_int_equal(stats->method, CASES[i].method);
        assert_int_equal(stats->store_method, CASES[i].store_method);
        world_close(&w);
        if (plan.bytes < (KIT_IS_SLOW ? 10000 : 100000) && !kit.is_few)
            go_there_and_back(&plan);
    }
}

/* Regions at equal distances are rows of one call; others are not: one that is further away, one
 * that lies before. */
static void rows_and_what_is_none(void **state)
{
    enum { PIECE = 512, ALL = 24 };
    static const uint32_t PLACES[] = {0, 1, 2, 5, 7, 9, 8, 12, 15, 20};
    static const uint32_t NUM_RUNS[] = {1, 1, 1, 2, 2, 2, 3, 3, 4, 4};
    (void)state;
    for (uint32_t n = 1; n <= COUNT(PLACES); n++) {
        world w;
        world_plan plan = {.num_layers = ALL, .bytes = PIECE};
        quire_cuda_region regions[COUNT(PLACES)];
        quire_device device = {0};
        quire_device_copy copy = {3, 4, 0};
        quire_device_job job;
        world_open(&w, &plan);
        quire_device_cuda_config config = world_device_config(&w);
        for (uint32_t i = 0; i < n; i++)
            regions[i] = w.view.regions[PLACES[i]];
        config.regions = regions;
        config.num_regions = n;
        config.method = QUIRE_CUDA_ROWS;
        assert_int_equal(quire_device_cuda_open(&config, NULL, &device), QUIRE_OK);
        assert_int_equal(qr_cuda_device_of(&device)->map.num_runs, NUM_RUNS[n - 1]);
        world_fill_block(&w, 3);
        kit_submit(&device, &job, QUIRE_DEVICE_STORE, &copy, 1);
        (void)kit_wait_for_job(&device);
        for (uint32_t i = 0; i < n; i++) {
            unsigned char *slot = w.slots + (4 * (size_t)n + i) * PIECE;
            unsigned char *block = w.blocks + (3 * (size_t)ALL + PLACES[i]) * PIECE;
            assert_memory_equal(slot, block, PIECE);
            world_fill_random(slot, PIECE);
            memcpy(block, slot, PIECE);
        }
        kit_submit(&device, &job, QUIRE_DEVICE_LOAD, &copy, 1);
        (void)kit_wait_for_job(&device);
        world_check_blocks(&w);
        quire_device_close(&device);
        world_close(&w);
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
    world_open(&w, &plan);
    quire_cuda_region regions[3] = {{w.view.base + 512, STRIDE, A},
                                    {w.view.base + 512 + A, STRIDE, B},
                                    {w.view.base + 8192, STRIDE, C}};
    quire_device_cuda_config config = world_device_config(&w);
    config.regions = regions;
    config.num_regions = 3;
    config.crc = QUIRE_CUDA_CRC_GPU;
    assert_int_equal(quire_device_cuda_open(&config, NULL, &device), QUIRE_OK);
    assert_int_equal(quire_device_cuda_get_stats(&device)->pieces_in_block, 2);
    world_fill_random(all[0], sizeof all);
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
    world_close(&w);
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
        world_open(&w, &plan);
        for (quire_block block = 0; block < BLOCKS; block++)
            world_fill_block(&w, block);
        assert_int_equal(quire_device_cuda_copy_blocks(&w.device, pairs, 3), QUIRE_OK);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, zeroed, 2), QUIRE_OK);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, zeroed, 0), QUIRE_OK);
        for (int i = 0; i < 3; i++)
            memcpy(w.blocks + pairs[i].to * w.block_bytes, w.blocks + pairs[i].from * w.block_bytes,
                   w.block_bytes);
        for (int i = 0; i < 2; i++)
            memset(w.blocks + zeroed[i] * w.block_bytes, 0, w.block_bytes);
        world_check_blocks(&w);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, out, 1), QUIRE_E_RANGE);
        assert_int_equal(quire_device_cuda_zero_blocks(&w.device, NULL, 1), QUIRE_E_ARGUMENT);
        assert_int_equal(quire_device_cuda_copy_blocks(NULL, pairs, 1), QUIRE_E_ARGUMENT);
        world_close(&w);
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
    world_open(&w, &plan);
    kit_compute(&kit, &step);
    while (status == QUIRE_OK && count < 1000) {
        status = quire_device_cuda_copy_blocks(&w.device, &pair, 1);
        count += status == QUIRE_OK ? 1 : 0;
    }
    assert_int_equal(status, QUIRE_FULL);
    assert_int_equal(count, 32);
    (void)kit_surprises(&kit);
    assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_OK);
    world_close(&w);
}

/* The copy engine has at most max_bytes each way: stores do not keep loads away. */
static void bytes_in_flight(void **state)
{
    (void)state;
    world w;
    world_plan plan = {
        .num_layers = 1, .bytes = 4096, .method = QUIRE_CUDA_BATCH, .max_bytes = 2 * 4096};
    kit_step step = {.spin_us = 100000};
    quire_device_copy copies[4][2] = {
        {{0, 0, 0}, {1, 1, 0}}, {{2, 2, 0}}, {{3, 3, 0}, {4, 4, 0}}, {{5, 5, 0}}};
    quire_device_job jobs[4];
    int expected[4] = {QUIRE_OK, QUIRE_FULL, QUIRE_OK, QUIRE_FULL};
    uint64_t mark;
    world_open(&w, &plan);
    kit_compute(&kit, &step);
    assert_int_equal(w.device.ops->mark(w.device.self, &mark), QUIRE_OK);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (quire_device_job){.id = (uint32_t)i,
                                     .op = i < 2 ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD,
                                     .after = mark,
                                     .num_copies = i % 2 == 0 ? 2 : 1,
                                     .copies = copies[i]};
        assert_int_equal(w.device.ops->submit(w.device.self, &jobs[i]), expected[i]);
    }
    (void)kit_wait_for_job(&w.device);
    (void)kit_wait_for_job(&w.device);
    for (int i = 1; i < 4; i += 2)
        assert_int_equal(w.device.ops->submit(w.device.self, &jobs[i]), QUIRE_OK);
    (void)kit_wait_for_job(&w.device);
    (void)kit_wait_for_job(&w.device);
    world_close(&w);
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sizes_by_kernel),       cmocka_unit_test(all_sizes_by_engine),
        cmocka_unit_test(rows_and_what_is_none),     cmocka_unit_test(way_by_size),
        cmocka_unit_test(tensors_of_an_engine),      cmocka_unit_test(copies_between_blocks),
        cmocka_unit_test(many_calls_between_blocks), cmocka_unit_test(bytes_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
