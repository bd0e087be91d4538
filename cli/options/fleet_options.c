#include "fleet_options.h"

/* What a fleet cannot do, or one with several workers. */
static int check(const command *cmd, const fleet_options *o, const replay_settings *replay)
{
    if (replay->max_steps > 0)
        return command_error(cmd, "--max-steps cannot be used: each worker counts its steps "
                                  "(--max-requests ends a fleet early)");
    if (o->num_workers > 1 && replay->tiers.is_real)
        return command_error(cmd, "--real-tiers needs --workers 1");
    return 0;
}

static void describe_routers(const fleet_options *o, const router_spec *spec, routers_settings *s)
{
    routers_defaults(spec->policy, s);
    s->values = spec->values;
    s->num_routers = o->num_routers;
    s->seed = o->seed;
    s->view.kv_lag_s = o->kv_lag_ms * 1e-3;
    s->view.kv_loss = o->kv_loss;
    s->view.resync_s = o->kv_resync_s;
    if (o->has_metrics)
        s->view.knowledge.metrics_every_s = o->metrics_ms * 1e-3;
}

int fleet_prepare(const command *cmd, const fleet_options *o, const replay_setup *replay,
                  fleet_setup *setup)
{
    char why[ROUTER_WHY_BYTES] = "";
    *setup = (fleet_setup){0};
    int status = check(cmd, o, &replay->settings);
    if (status != 0)
        return status;
    if (!router_spec_read(o->router, &setup->router, why))
        return command_error(cmd, "--router: %s", why);
    setup->settings = (fleet_settings){.replay = &replay->settings,
                                       .num_workers = o->num_workers,
                                       .num_threads = 1,
                                       .gpus_per_worker = replay->engine.tp};
    describe_routers(o, &setup->router, &setup->settings.routers);
    return 0;
}

void fleet_unprepare(fleet_setup *setup)
{
    router_spec_free(&setup->router);
}
