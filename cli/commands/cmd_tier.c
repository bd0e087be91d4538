/* cmd_tier.c - `quire tier`: what tiers need around them; for now a Redis cluster to try. */
#include "commands.h"
#include "live/tier_cluster.h"
#include "options/nearest.h"

#include <string.h>

static cluster_plan o = {.dir = "quire-redis", .port = 7000, .nodes = 3, .maxmemory = "1gb"};

static const option table[] = {
    {"dir", OPTION_TEXT, &o.dir, "DIR", "directory of the cluster's files; down removes it",
     .def = "quire-redis", .section = "The cluster"},
    {"port", OPTION_U32, &o.port, "PORT",
     "port of the first node; the others follow; the cluster bus of each node is its port + 10,000",
     .def = "7000", .min = 1024, .max = 55000},
    {"nodes", OPTION_U32, &o.nodes, "N", "number of servers, each with its part of the slots",
     .def = "3", .min = 1, .max = CLUSTER_MAX_NODES},
    {"maxmemory", OPTION_TEXT, &o.maxmemory, "SIZE",
     "memory of each node, as Redis writes it: 512mb, 1gb", .def = "1gb"},
    {0}};

static const char *const what[] = {"redis-cluster", NULL};
static const char *const verbs[] = {"up", "down", "status", NULL};

/* Digits, then k, m or g with or without a b: nothing else gets into a server's config. */
static bool is_size(const char *text)
{
    static const char *const units[] = {"", "k", "kb", "m", "mb", "g", "gb", NULL};
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 12 && is_one_of(text + digits, units);
}

static int run_tier(void)
{
    if (cmd_tier.num_arguments < 2 || strcmp(cmd_tier.arguments[0], "redis-cluster") != 0)
        return command_error(&cmd_tier, "expected redis-cluster, then up, down or status");
    if (!is_size(o.maxmemory))
        return command_error(&cmd_tier,
                             "invalid value \"%s\" for --maxmemory (expected a size such as 512mb "
                             "or 1gb)",
                             o.maxmemory);
    if (strcmp(cmd_tier.arguments[1], "up") == 0)
        return cluster_up(&cmd_tier, &o);
    if (strcmp(cmd_tier.arguments[1], "down") == 0)
        return cluster_down(&cmd_tier, &o);
    if (strcmp(cmd_tier.arguments[1], "status") == 0)
        return cluster_status(&cmd_tier, &o);
    return command_error(&cmd_tier, "invalid argument \"%s\" (expected up, down or status)",
                         cmd_tier.arguments[1]);
}

command cmd_tier = {
    .name = "tier",
    .usage = "tier redis-cluster up|down|status [OPTION]...",
    .summary = "a Redis cluster on this machine, to try the network tier",
    .examples = "  quire tier redis-cluster up\n"
                "      three nodes on 127.0.0.1:7000 to 7002, as docs/tiers-redis.md says\n"
                "  quire tier redis-cluster status\n"
                "      which nodes are up, with their keys and memory\n"
                "  quire tier redis-cluster down\n"
                "      stops them and removes their files\n",
    .options = table,
    .max_arguments = 2,
    .words = {what, verbs},
    .run = run_tier,
};
