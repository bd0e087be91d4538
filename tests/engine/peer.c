#include "engine/peer.h"

/* The same model, groups and hashes: else the blocks would not be the same. The rest may differ. */
static void make_setup(engine_peer *p, const engine_setup *setup)
{
    p->setup = *setup;
    p->setup.has_peer = false;
    p->setup.is_serving = true;
    p->setup.has_worker = false; /* it serves its own host memory */
    p->setup.has_file = false;
    p->setup.has_redis = false;
    p->setup.is_restarting = false;
    p->setup.is_resetting = false;
    p->setup.has_forks = false;
    p->setup.has_branches = false;
    p->setup.num_cpu_blocks = setup->num_blocks * (setup->seed % 3 == 0 ? 1 : 3);
}

static int open_engine(engine_peer *p, const engine_model *model, const engine_backend_ops *ops,
                       engine_counts *counts)
{
    p->is_there = engine_open(&p->engine, &p->setup, model, ops, &p->tiers, counts) == 0;
    if (!p->is_there)
        engine_close(&p->engine, true);
    return p->is_there ? 0 : 1;
}

int engine_peer_open(engine_peer *p, const engine_setup *setup, const engine_model *model,
                     const engine_backend_ops *ops, engine_tiers *tiers, engine_counts *counts)
{
    make_setup(p, setup);
    p->tiers = (engine_tiers){.number = tiers->number};
    if (setup->broken == ENGINE_BREAK_PEER) {
        engine_model_config config = model->config;
        config.seed++;
        p->other = engine_model_create(&config);
        if (p->other == NULL)
            return 1;
    }
    int failed = p->other != NULL ? open_engine(p, p->other, ops, &p->lies)
                                  : open_engine(p, model, ops, counts);
    tiers->port = p->tiers.port;
    return failed;
}

static void stop(engine_peer *p)
{
    if (p->is_there)
        engine_close(&p->engine, true);
    p->is_there = false;
}

void engine_peer_close(engine_peer *p)
{
    stop(p);
    engine_model_destroy(p->other);
    p->other = NULL;
}

static int come_back(engine_peer *p)
{
    const engine_model *model = p->engine.model;
    const engine_backend_ops *ops = p->engine.ops;
    engine_counts *counts = p->engine.counts;
    return --p->rest > 0 ? 0 : open_engine(p, model, ops, counts);
}

int engine_peer_turn(engine_peer *p, uint64_t *random, bool *is_stopped)
{
    *is_stopped = false;
    if (!p->is_there)
        return come_back(p);
    if (engine_draw(random, 300) == 0) {
        stop(p);
        p->rest = engine_between(random, 1, 40);
        p->engine.counts->peer_stops++;
        *is_stopped = true;
        return 0;
    }
    if (engine_draw(random, 150) == 0) {
        int status = quire_sched_reset_prefix_cache(p->engine.sched, 1, 1);
        if (status < 0)
            return engine_fail(&p->engine, "reset of the peer", status);
        p->engine.counts->peer_resets += status == QUIRE_OK;
    }
    return engine_step(&p->engine);
}

bool engine_peer_is_idle(const engine_peer *p)
{
    return !p->is_there || engine_is_idle(&p->engine);
}
