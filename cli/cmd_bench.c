/* cmd_bench.c - `quire bench`: what an operation costs on this machine. */
#include "bench.h"
#include "commands.h"

#include <stdio.h>

static struct {
    uint32_t rounds;
    const char *filter;
    bool machine;
} o = {.rounds = 15};

static const option table[] = {
    {"rounds", OPTION_U32, &o.rounds, "N", "measured rounds of each case", .def = "15", .min = 1,
     .max = 1000},
    {"filter", OPTION_TEXT, &o.filter, "WORD", "only cases whose name contains it", .def = "all"},
    {"machine", OPTION_SWITCH, &o.machine, NULL, "tab-separated: name, unit, check, each round",
     .def = "off"},
    {0}};

static command cmd = {
    .name = "bench",
    .usage = "bench [OPTION]...",
    .summary = "measures the library's operations on this machine",
    .examples = "  quire bench --filter sched/decode\n"
                "      what a step costs for each running request\n",
    .options = table,
};

const command *cmd_bench_command(void)
{
    return &cmd;
}

int cmd_bench(int argc, char **argv)
{
    int leave = command_parse(&cmd, argc, argv);
    if (leave != 0)
        return leave - 1;
    char rounds[16];
    const char *words[6] = {argv[0], "--rounds", rounds};
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
