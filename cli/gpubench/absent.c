/* cli/gpubench/absent.c - without libquire_tier there is no GPU. */
#include "bench.h"

int gpu_bench_run(const gpu_bench_options *options)
{
    (void)options;
    (void)fprintf(stderr, "quire bench: built without libquire_tier; -DQUIRE_BUILD_TIER=ON adds "
                          "it\n");
    return 1;
}
