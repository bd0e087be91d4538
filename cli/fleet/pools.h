/* cli/fleet/pools.h - the pools of a command line.
 *
 *      --pool prefill:8 --pool decode:4:gpu=H100,tp=2
 *
 * pool    workers with the same role and the same options. Its own options differ from those of the
 *         command line, which hold for the others.
 * role    serve: prompts and answers. prefill: prompts. decode: answers. A fleet has pools that
 *         serve, or pools for prefill and for decode, at least one each.
 */
#ifndef QUIRE_CLI_FLEET_POOLS_H
#define QUIRE_CLI_FLEET_POOLS_H

#include "fleet.h"
#include "options/options.h"

enum { POOL_MAX_OPTIONS = 32 };

typedef struct pool_option {
    const char *name;
    const char *value;
} pool_option;

typedef struct pool_spec {
    const char *text; /* as it was given */
    router_role role;
    uint32_t num_workers;
    pool_option options[POOL_MAX_OPTIONS];
    uint32_t num_options;
    char *words; /* what names and values point into */
} pool_spec;

typedef struct pool_list {
    pool_spec specs[FLEET_MAX_POOLS];
    uint32_t num_specs;
    uint32_t num_workers; /* of all */
} pool_list;

extern const char *const pool_roles[]; /* router_role */

/* 0, or an exit status after a sentence. pools_free in either case. */
int pools_read(const command *cmd, const option_list *texts, pool_list *list);
void pools_free(pool_list *list);

/* It has pools for prefill and decode. */
bool pools_is_apart(const pool_list *list);

#endif
