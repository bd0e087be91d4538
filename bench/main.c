/* main.c - quire_bench. */
#include "bench.h"

int main(int argc, char **argv)
{
    return bench_run(argc, (const char *const *)argv);
}
