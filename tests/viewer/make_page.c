/* viewer/make_page.c - writes a page of a made-up run, and the report that goes with it.
 *
 *      viewer_make_page --steps 300 --blocks 512 --seed 1 --tiers 1 PAGE REPORT [SNAPSHOTS
 *          [REQUESTS]]
 *
 * A toy engine with a pool of blocks: requests come in bursts, are computed in chunks, give their
 * blocks back as cached ones, and the youngest is preempted when blocks run out. It is here for
 * pages of any size with all that a page can show; what the scheduler does is shown by
 * `quire replay`.
 */
#include "toy_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number_after(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return otherwise;
}

/* The n-th argument that is no option and no option's value. */
static const char *argument(int argc, char **argv, int n)
{
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0)
            i++;
        else if (n-- == 0)
            return argv[i];
    }
    return NULL;
}

int main(int argc, char **argv)
{
    toy_options options = {.num_steps = number_after(argc, argv, "--steps", 300),
                           .num_blocks = (uint32_t)number_after(argc, argv, "--blocks", 512),
                           .num_tiers = (uint32_t)number_after(argc, argv, "--tiers", 0),
                           .max_rows = (uint32_t)number_after(argc, argv, "--rows", 0),
                           .seed = number_after(argc, argv, "--seed", 1),
                           .page_path = argument(argc, argv, 0),
                           .report_path = argument(argc, argv, 1),
                           .snapshots_path = argument(argc, argv, 2),
                           .requests_path = argument(argc, argv, 3)};
    if (options.page_path == NULL || options.report_path == NULL || options.num_blocks < 64) {
        fprintf(stderr, "usage: viewer_make_page [--steps N] [--blocks N] [--tiers N] [--rows N] "
                        "[--seed N] PAGE REPORT [SNAPSHOTS [REQUESTS]]\n");
        return 2;
    }
    return toy_run(&options);
}
