/* cli/options/fleet_options.h - the options of routers in front of several engines: `quire fleet`,
 * `quire sweep` and `quire size`.
 *
 *      static fleet_options o = FLEET_OPTIONS_INIT;
 *      static const option table[] = {FLEET_WORKERS_OPTION(o), FLEET_ROUTER_OPTIONS(o), {0}};
 *      ...
 *      fleet_setup setup;
 *      int status = fleet_prepare(&cmd, &o, &replay, &setup);     0, or an exit status
 *      fleet_run(&setup.settings, ...);
 *      fleet_unprepare(&setup);
 */
#ifndef QUIRE_CLI_OPTIONS_FLEET_OPTIONS_H
#define QUIRE_CLI_OPTIONS_FLEET_OPTIONS_H

#include "fleet/crew.h"
#include "fleet/fleet.h"
#include "fleet/routers/router_table.h"
#include "replay_options.h"

typedef struct fleet_options {
    uint32_t num_workers;
    bool has_workers;
    const char *router;
    uint32_t num_routers;
    uint64_t seed;
    double kv_lag_ms;
    double kv_loss;
    double kv_resync_s;
    double metrics_ms;
    bool has_metrics;
} fleet_options;

#define FLEET_OPTIONS_INIT                                                                         \
    {                                                                                              \
        .num_workers = 4, .router = "round-robin", .num_routers = 1, .seed = 1                     \
    }

/* Rows of a table of options. */
/* clang-format off */
#define FLEET_WORKERS_OPTION(o)                                                                    \
    {"workers", OPTION_U32, &(o).num_workers, "N", "engines", .def = "4", .min = 1,                \
     .max = FLEET_MAX_WORKERS, .is_given = &(o).has_workers, .section = "Fleet"}

#define FLEET_ROUTER_OPTIONS(o)                                                                    \
    {"router", OPTION_TEXT, &(o).router, "NAME[:OPTION=VALUE,...]",                                \
     "which worker serves a request; or the path of a shared object", .def = "round-robin",        \
     .has_commas = true, .preset = router_name},                                                   \
    {"routers", OPTION_U32, &(o).num_routers, "N",                                                 \
     "routers, each with its own view; requests go to them in turn", .def = "1", .min = 1,         \
     .max = ROUTER_MAX_WORKERS},                                                                   \
    {"seed", OPTION_U64, &(o).seed, "N",                                                           \
     "seed of all that is random in routers; equal scores are such a case", .def = "1"},           \
    {"kv-lag", OPTION_REAL, &(o).kv_lag_ms, "MS", "KV events reach the router so much later",      \
     .def = "0", .max = 1e9},                                                                      \
    {"kv-loss", OPTION_REAL, &(o).kv_loss, "SHARE",                                                \
     "this share of batches of KV events is lost", .def = "0", .max = 1},                          \
    {"kv-resync", OPTION_REAL, &(o).kv_resync_s, "S",                                              \
     "after a gap in KV events the router reads the worker's cache again, so much later; "         \
     "0: never",                                                                                   \
     .def = "0", .max = 1e9},                                                                      \
    {"metrics-interval", OPTION_REAL, &(o).metrics_ms, "MS",                                       \
     "workers report their load so often; 0: the router always knows it", .def = "the router's",   \
     .max = 1e9, .is_given = &(o).has_metrics}
/* clang-format on */

typedef struct fleet_setup {
    router_spec router;
    fleet_settings settings; /* with one thread */
} fleet_setup;

/* replay is prepared, and stays until fleet_unprepare. */
int fleet_prepare(const command *cmd, const fleet_options *o, const replay_setup *replay,
                  fleet_setup *setup);
void fleet_unprepare(fleet_setup *setup);

#endif
