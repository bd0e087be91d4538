/* worker.c - planner and workers beside plain copies and plain reads.
 *
 *      quire_bench_tier_worker gpu  [--rounds 15] [--mib 512] [--ranks 2] [--kib 16] [--ctas N]
 *      quire_bench_tier_worker file --folder DIR [--rounds 3] [--seconds 3] [--requests 8]
 *                                   [--prefix-mib 128] [--depth N] [--kib 256]
 *
 * Ends with 1 if a median is below its target, and with 77 if there is no GPU. */
#include "worker.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(int status)
{
    printf("usage: quire_bench_tier_worker gpu [--rounds N] [--mib N] [--ranks N] [--kib N] "
           "[--ctas N]\n"
           "       quire_bench_tier_worker file --folder DIR [--rounds N] [--seconds N] "
           "[--requests N] [--prefix-mib N] [--depth N] [--kib N]\n");
    return status;
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {{"rounds", required_argument, NULL, 'r'},
                                            {"mib", required_argument, NULL, 'm'},
                                            {"ranks", required_argument, NULL, 'k'},
                                            {"folder", required_argument, NULL, 'f'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"requests", required_argument, NULL, 'q'},
                                            {"prefix-mib", required_argument, NULL, 'p'},
                                            {"depth", required_argument, NULL, 'd'},
                                            {"kib", required_argument, NULL, 'b'},
                                            {"ctas", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    worker_options o = {.mib = 512, .num_ranks = 2, .seconds = 3, .requests = 8, .prefix_mib = 128};
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        uint32_t number = optarg == NULL ? 0 : (uint32_t)strtoul(optarg, NULL, 10);
        if (c == 'f') {
            o.folder = optarg;
            continue;
        }
        if (c == 'h' || number == 0)
            return usage(c == 'h' ? 0 : 2);
        o.rounds = c == 'r' ? number : o.rounds;
        o.mib = c == 'm' ? number : o.mib;
        o.num_ranks = c == 'k' ? number : o.num_ranks;
        o.seconds = c == 's' ? number : o.seconds;
        o.requests = c == 'q' ? number : o.requests;
        o.prefix_mib = c == 'p' ? number : o.prefix_mib;
        o.depth = c == 'd' ? number : o.depth;
        o.kib = c == 'b' ? number : o.kib;
        o.num_ctas = c == 'c' ? number : o.num_ctas;
    }
    bool is_gpu = optind + 1 == argc && strcmp(argv[optind], "gpu") == 0;
    bool is_file = optind + 1 == argc && strcmp(argv[optind], "file") == 0 && o.folder != NULL;
    if ((!is_gpu && !is_file) || o.rounds > WORKER_MOST_ROUNDS || o.num_ranks > WORKER_RANKS ||
        o.mib < 16 || o.mib > 65536)
        return usage(2);
    if (o.rounds == 0)
        o.rounds = is_gpu ? 15 : 3;
    return is_gpu ? worker_bench_gpu(&o) : worker_bench_file(&o);
}
