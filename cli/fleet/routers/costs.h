/* cli/fleet/routers/costs.h - how long work takes where the fleet has no time model: constants of
 * one typical GPU with a model of 8 billion parameters. */
#ifndef QUIRE_CLI_FLEET_ROUTERS_COSTS_H
#define QUIRE_CLI_FLEET_ROUTERS_COSTS_H

#include "policy.h"

/* Sets the functions that are NULL. */
void costs_complete(router_costs *costs);

#endif
