/* tier/file/test_power.c - the power goes, at any time.
 *
 *      a run ──► record of writes ──► image: synced writes, and of the others some, torn, in any
 *                                     order, and the one under way ──► opened, read, opened again
 *
 * What is found was stored, whole; the second time the same is found.
 *
 *      tier_file_power [--images N] [--seed N]
 */
#include "tier/file/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 40, LIVES = 3, STEPS = 40, IMAGES_OF_A_RUN = 50 };

static uint32_t num_images = 200;
static uint64_t first_seed = 1;

typedef struct counts {
    uint64_t images;
    uint64_t empty;
    uint64_t blocks;
} counts;

/* Several lives of one file: checkpoints, resets, evictions and clean ends among them. */
static void record_run(crowd *c, file_disk *disk, uint64_t seed)
{
    crowd_init(c, SLOTS, seed);
    disk_init(disk, c->config.capacity_bytes + 4096, seed);
    disk_record_all(disk);
    c->store_percent = 1 + (uint32_t)(seed % 3) * 4;
    for (uint32_t life = 0; life < LIVES; life++) {
        assert_int_equal(crowd_open(c, disk), QUIRE_OK);
        for (uint32_t i = 0; i < STEPS; i++)
            crowd_step(c, seed % 4 == 0);
        assert_int_equal(crowd_wait(c, 20000), 0);
        assert_int_equal(quire_tier_close(c->tier), QUIRE_OK);
    }
}

static uint64_t open_and_load(crowd *c, file_disk *image)
{
    int status = crowd_open(c, image);
    if (status != QUIRE_OK)
        fail_msg("not opened: %s", quire_refusal());
    uint64_t found = crowd_load_all(c);
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    quire_tier_get_stats(c->tier, &stats);
    assert_int_equal(stats.bad_ends, 0);
    assert_int_equal(stats.usage.active, 0);
    assert_int_equal(stats.usage.cached, (uint64_t)__builtin_popcountll(found));
    assert_int_equal(quire_tier_close(c->tier), QUIRE_OK);
    return found;
}

static void check_image(crowd *c, file_disk *disk, file_disk *image, counts *all)
{
    uint64_t at = disk_random(image, disk->num_records + 1);
    disk_lose_power(disk, at, image);
    uint64_t first = open_and_load(c, image);
    uint64_t second = open_and_load(c, image);
    assert_true(first == second);
    all->images++;
    all->empty += first == 0;
    all->blocks += (uint64_t)__builtin_popcountll(first);
}

static void test_power(void **state)
{
    static crowd c;
    static file_disk disk;
    static file_disk image;
    counts all = {0};
    (void)state;
    for (uint64_t seed = first_seed; all.images < num_images; seed++) {
        record_run(&c, &disk, seed);
        disk_init(&image, disk.capacity, seed + 1000000);
        for (uint32_t i = 0; i < IMAGES_OF_A_RUN && all.images < num_images; i++)
            check_image(&c, &disk, &image, &all);
        disk_free(&image);
        disk_free(&disk);
        crowd_free(&c);
    }
    print_message("%llu images, %llu of them empty; %.1f blocks found in one, of %d slots\n",
                  (unsigned long long)all.images, (unsigned long long)all.empty,
                  (double)all.blocks / (double)all.images, SLOTS);
    assert_true(all.blocks > 2 * all.images); /* else it shows nothing */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_power)};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--images") == 0)
            num_images = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "--seed") == 0)
            first_seed = strtoull(argv[i + 1], NULL, 0);
    }
    return cmocka_run_group_tests_name("power loss", tests, NULL, NULL);
}
