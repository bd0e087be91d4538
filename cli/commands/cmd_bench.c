/* cmd_bench.c - `quire bench`: what an operation costs on this machine. */
#include "bench.h"
#include "commands.h"
#include "gpubench/bench.h"

#include <stdio.h>
#include <string.h>

static struct {
    uint32_t rounds;
    const char *filter;
    bool machine;
    gpu_bench_options gpu;
} o = {.rounds = 15, .gpu = {.seconds = 30, .bytes = UINT64_C(512) << 20}};

static const option table[] = {
    {"rounds", OPTION_U32, &o.rounds, "N", "measured rounds of each case", .def = "15", .min = 1,
     .max = 1000},
    {"filter", OPTION_TEXT, &o.filter, "WORD", "only cases whose name contains it", .def = "all"},
    {"machine", OPTION_SWITCH, &o.machine, NULL, "tab-separated: name, unit, check, each round",
     .def = "off"},
    {"seconds", OPTION_REAL, &o.gpu.seconds, "S", "seconds for all that is measured", .def = "30",
     .min = 0.01, .max = 3600, .section = "bench gpu"},
    {"bytes", OPTION_U64, &o.gpu.bytes, "SIZE",
     "bytes moved in a round, in each direction; twice as much is allocated on both sides",
     .def = "512Mi", .min = 64 << 10},
    {"device", OPTION_U32, &o.gpu.device, "N", "which GPU", .def = "0"},
    {"ctas", OPTION_U32, &o.gpu.ctas, "N", "thread blocks of a copy kernel", .def = "the device's",
     .max = 4096},
    {"threshold", OPTION_U64, &o.gpu.engine_from, "SIZE",
     "pieces of this size or larger use the copy engine", .def = "the device's"},
    {"driver", OPTION_TEXT, &o.gpu.driver, "FILE", "CUDA's driver library", .def = "libcuda.so.1"},
    {"scan", OPTION_SWITCH, &o.gpu.scan, NULL,
     "tables of copy methods and CTA counts by piece size", .def = "off"},
    {"json", OPTION_SWITCH, &o.gpu.json, NULL, "JSON instead of a table", .def = "off"},
    {"check", OPTION_SWITCH, &o.gpu.check, NULL, "exit with status 1 if a goal is not met",
     .def = "off"},
    {0}};

static const char *const kinds[] = {"gpu", NULL};

static int run_bench(void)
{
    if (cmd_bench.num_arguments == 1 && strcmp(cmd_bench.arguments[0], "gpu") == 0)
        return gpu_bench_run(&o.gpu);
    if (cmd_bench.num_arguments == 1)
        return command_error(&cmd_bench, "invalid argument \"%s\" (expected gpu, or none)",
                             cmd_bench.arguments[0]);
    char rounds[16];
    const char *words[6] = {cmd_bench.name, "--rounds", rounds};
    int n = 3;
    snprintf(rounds, sizeof rounds, "%u", o.rounds);
    if (o.filter != NULL) {
        words[n++] = "--filter";
        words[n++] = o.filter;
    }
    if (o.machine)
        words[n++] = "--machine";
    return bench_run(n, words);
}

command cmd_bench = {
    .name = "bench",
    .usage = "bench [gpu] [OPTION]...",
    .summary = "measures the library's operations, or copies to and from a GPU, on this machine",
    .examples = "  quire bench --filter sched/decode\n"
                "      what a step costs for each running request\n"
                "  quire bench gpu\n"
                "      copies between host and GPU, beside the machine's own limits\n",
    .options = table,
    .max_arguments = 1,
    .words = {kinds},
    .run = run_bench,
};
