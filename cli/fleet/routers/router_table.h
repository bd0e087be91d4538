/* cli/fleet/routers/router_table.h - the policies by name, their options, and policies in shared
 * objects.
 *
 *      "dynamo-kv"                                 a name
 *      "llm-d:prefix=3,queue=2,kv=2"               with options
 *      "./mine.so:weight=2"                        a file: its name has a slash or ends in .so
 */
#ifndef QUIRE_CLI_FLEET_ROUTERS_ROUTER_TABLE_H
#define QUIRE_CLI_FLEET_ROUTERS_ROUTER_TABLE_H

#include "policy.h"

enum { ROUTER_WHY_BYTES = 1024 }; /* with a path */

/* Policy i; NULL behind the last one. In the order of --help. */
const router_policy *router_table(uint32_t i);
const router_policy *router_find(const char *name);

typedef struct router_spec {
    const router_policy *policy;
    double values[ROUTER_MAX_OPTIONS];
    void *library; /* of a shared object; NULL: none */
} router_spec;

/* False, and a sentence in why that names the option, its value and its range. */
bool router_spec_read(const char *text, router_spec *spec, char why[ROUTER_WHY_BYTES]);
/* After the routers that use it are closed. */
void router_spec_free(router_spec *spec);

/* Names for completion; NULL behind the last one. */
const char *router_name(uint32_t i);
/* The policy with its options, defaults and ranges: for --help. Returns the length. */
size_t router_describe(const router_policy *policy, char *out, size_t capacity);

#endif
