/* cli/live/tier_cluster.h - a Redis cluster on this machine, for trying out the network tier.
 *
 *      DIR/cluster         port, nodes: what is here
 *      DIR/7000/ ...       each node's redis.conf, nodes.conf, log
 *
 * Only servers that run in DIR are ever stopped: they are asked where they are first. */
#ifndef QUIRE_CLI_LIVE_TIER_CLUSTER_H
#define QUIRE_CLI_LIVE_TIER_CLUSTER_H

#include "options/options.h"

typedef struct cluster_plan {
    const char *dir;
    uint32_t port; /* of the first node; its bus is 10,000 above */
    uint32_t nodes;
    const char *maxmemory; /* of each, as Redis writes it: "1gb" */
} cluster_plan;

enum { CLUSTER_MAX_NODES = 16 };

/* All answer with an exit status, after a sentence where it is not 0. */
int cluster_up(const command *cmd, const cluster_plan *plan);
int cluster_down(const command *cmd, const cluster_plan *plan);
int cluster_status(const command *cmd, const cluster_plan *plan);

#endif
