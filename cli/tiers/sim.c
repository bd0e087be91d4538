#include "sim.h"

#include "device.h"
#include "output/failure.h"

#include <stdlib.h>
#include <string.h>

enum { SIM_MAX_JOBS = 1024, SIM_MAX_KEYS = 256 };
#define SIM_NO_PLACE UINT64_MAX
/* Jobs are looked at once in a step: with fewer bytes under way than this it would stand idle. */
#define SIM_BUSY_S 0.5

struct tiers_sim {
    quire_slots *slots;
    tiers_kind kind;
    tiers_queue loads; /* and what only asks */
    tiers_queue stores;
    bool looks_ahead; /* its policy */
    bool takes_in_order;
    double failures;
    uint64_t dice;
    uint64_t capacity_bytes;
    quire_hooks hooks;
    quire_tier_key keys[SIM_MAX_KEYS]; /* for one call */
    uint32_t places[SIM_MAX_KEYS];
    uint8_t is_new[SIM_MAX_KEYS];
};

static uint64_t sim_now_ns(const tiers_sim *sim)
{
    return sim->hooks.now_ns(sim->hooks.user);
}

/* ---- the scheduler's side ---------------------------------------------------- */

/* Keys of a job's ios [first, first + n) in a row, since slots answer for many at a time. */
static const quire_tier_key *gather(tiers_sim *sim, const quire_tier_job *job, uint32_t first,
                                    uint32_t *n)
{
    uint32_t left = job->num_ios - first;
    *n = left < SIM_MAX_KEYS ? left : SIM_MAX_KEYS;
    for (uint32_t i = 0; i < *n; i++)
        sim->keys[i] = job->ios[first + i].key;
    return sim->keys;
}

/* A prefix without its head is of no use, so that should be evicted last: policies that take keys
 * as they come get the last one first. */
static void prepare_store(tiers_sim *sim, quire_tier_io *ios, uint32_t n)
{
    uint32_t num_evicted = 0;
    for (uint32_t i = 0; i < n; i++)
        sim->keys[i] = ios[sim->takes_in_order ? n - 1 - i : i].key;
    int err = quire_slots_prepare_store(sim->slots, sim->keys, n, sim->places, sim->is_new, NULL,
                                        &num_evicted);
    if (err != QUIRE_OK && n > 1) { /* not all of them: the first, as far as there is room */
        for (uint32_t i = 0; i < n; i++)
            prepare_store(sim, &ios[i], 1);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        quire_tier_io *io = &ios[sim->takes_in_order ? n - 1 - i : i];
        if (err != QUIRE_OK)
            io->status = QUIRE_TIER_NO_ROOM;
        else if (sim->is_new[i] == 0)
            io->status = QUIRE_TIER_DONE;
        else
            io->place = sim->places[i];
    }
}

static void prepare_load(tiers_sim *sim, quire_tier_io *ios, const quire_tier_key *keys, uint32_t n)
{
    int err = quire_slots_prepare_load(sim->slots, keys, n, sim->places);
    if (err != QUIRE_OK && n > 1) {
        for (uint32_t i = 0; i < n; i++)
            prepare_load(sim, &ios[i], &keys[i], 1);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (err != QUIRE_OK)
            ios[i].status = QUIRE_TIER_MISSING;
        else
            ios[i].place = sim->places[i];
    }
}

static void sim_prepare(void *self, quire_tier_job *job)
{
    tiers_sim *sim = self;
    for (uint32_t i = 0; i < job->num_ios; i++)
        job->ios[i].place = SIM_NO_PLACE;
    for (uint32_t first = 0, n = 0; first < job->num_ios; first += n) {
        const quire_tier_key *keys = gather(sim, job, first, &n);
        quire_tier_io *ios = &job->ios[first];
        if (job->op == QUIRE_TIER_STORE)
            prepare_store(sim, ios, n);
        else if (job->op == QUIRE_TIER_LOAD)
            prepare_load(sim, ios, keys, n);
        for (uint32_t i = 0; job->op == QUIRE_TIER_REMOVE && i < n; i++)
            ios[i].status = quire_slots_remove(sim->slots, &keys[i]) == QUIRE_OK
                                ? QUIRE_TIER_DONE
                                : QUIRE_TIER_MISSING;
    }
}

static void finish_ios(tiers_sim *sim, quire_tier_op op, uint32_t n, bool is_done)
{
    if (op == QUIRE_TIER_STORE)
        quire_slots_end_store(sim->slots, sim->places, n, is_done);
    else
        quire_slots_end_load(sim->slots, sim->places, n);
}

static void sim_finish(void *self, quire_tier_job *job)
{
    tiers_sim *sim = self;
    uint32_t num = 0;
    bool are_done = true; /* those that wait for their turn */
    for (uint32_t i = 0; i < job->num_ios; i++) {
        const quire_tier_io *io = &job->ios[i];
        bool is_done = io->status == QUIRE_TIER_DONE;
        if (io->place == SIM_NO_PLACE)
            continue;
        if (num == SIM_MAX_KEYS || (num > 0 && is_done != are_done)) {
            finish_ios(sim, job->op, num, are_done);
            num = 0;
        }
        are_done = is_done;
        sim->places[num++] = (uint32_t)io->place;
    }
    finish_ios(sim, job->op, num, are_done);
}

static void sim_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    const tiers_sim *sim = self;
    if (sim->kind == TIERS_REDIS) /* others may have stored it there: that has to be asked */
        memset(found, 2, n);
    else
        quire_slots_lookup_each(sim->slots, keys, n, found);
}

static void sim_touch(void *self, const quire_tier_key *keys, uint32_t n)
{
    tiers_sim *sim = self;
    quire_slots_touch(sim->slots, keys, n);
}

static void sim_expect(void *self, uint64_t request, uint64_t order, const quire_tier_key *keys,
                       uint32_t n)
{
    tiers_sim *sim = self;
    quire_slots_expect(sim->slots, request, order, keys,
                       n); /* what it has no room for is not kept */
}

static int sim_reset(void *self)
{
    tiers_sim *sim = self;
    quire_slots_reset(sim->slots);
    return QUIRE_OK;
}

static quire_usage sim_usage(void *self)
{
    const tiers_sim *sim = self;
    return quire_slots_usage(sim->slots);
}

static void sim_caps(void *self, quire_tier_caps *caps)
{
    const tiers_sim *sim = self;
    *caps = (quire_tier_caps){.alignment = 1,
                              .max_bytes = UINT32_MAX,
                              .is_persistent = 0, /* it ends with the replay, and can be emptied */
                              .is_shared = sim->kind == TIERS_REDIS,
                              .checks_crc = 1,
                              .is_simulated = 1,
                              .looks_ahead = sim->looks_ahead,
                              .capacity_bytes = sim->capacity_bytes};
}

/* ---- the tier's side --------------------------------------------------------- */

static void sim_close(void *self)
{
    tiers_sim *sim = self;
    quire_slots_destroy(sim->slots);
    tiers_queue_free(&sim->loads);
    tiers_queue_free(&sim->stores);
    free(sim);
}

static void sim_begin(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    tiers_sim *sim = self;
    tiers_queue *q = job->op == QUIRE_TIER_STORE ? &sim->stores : &sim->loads;
    uint64_t now_ns = sim_now_ns(sim);
    bool is_failed = sim->failures > 0 && tiers_dice(&sim->dice) < sim->failures;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        if (job->ios[i].status != QUIRE_TIER_PENDING)
            continue;
        if (is_failed || tiers_queue_is_full(q))
            ends->end(ends, job, i, QUIRE_TIER_FAILED);
        else if (job->op != QUIRE_TIER_FIND)
            bytes += job->ios[i].bytes;
    }
    if (is_failed || tiers_queue_is_full(q))
        return;
    if (job->op == QUIRE_TIER_LOAD) /* the disk is busy with it: stores go on behind */
        tiers_queue_delay(&sim->stores, now_ns, bytes);
    tiers_queue_put(q, job, now_ns, bytes);
}

static void end_job(tiers_sim *sim, quire_tier_ends *ends, quire_tier_job *job)
{
    uint8_t found[SIM_MAX_KEYS];
    for (uint32_t first = 0, n = 0; first < job->num_ios; first += n) {
        const quire_tier_key *keys = gather(sim, job, first, &n);
        memset(found, 1, sizeof found);
        if (job->op == QUIRE_TIER_FIND)
            quire_slots_lookup_each(sim->slots, keys, n, found);
        for (uint32_t i = 0; i < n; i++)
            if (job->ios[first + i].status == QUIRE_TIER_PENDING)
                ends->end(ends, job, first + i, found[i] ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
    }
}

static quire_slots *sim_slots(void *self)
{
    const tiers_sim *sim = self;
    return sim->slots;
}

static void sim_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    tiers_sim *sim = self;
    uint64_t now_ns = sim_now_ns(sim);
    (void)wake_fd;
    (void)timeout_ms;
    for (;;) {
        quire_tier_job *job = tiers_queue_take(&sim->loads, now_ns);
        if (job == NULL)
            job = tiers_queue_take(&sim->stores, now_ns);
        if (job == NULL)
            return;
        end_job(sim, ends, job);
    }
}

/* ---- making it --------------------------------------------------------------- */

static tiers_sim *make_sim(const tiers_sim_config *c)
{
    tiers_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL)
        return NULL;
    *sim = (tiers_sim){.kind = c->lower->kind,
                       .failures = c->failures,
                       .capacity_bytes = c->num_slots * c->block_bytes,
                       .hooks = c->hooks};
    quire_slots_config slots = QUIRE_SLOTS_CONFIG_INIT;
    slots.num_slots = c->num_slots;
    slots.policy = c->policy;
    sim->looks_ahead = c->policy == QUIRE_SLOTS_LOOKAHEAD;
    sim->takes_in_order = c->policy == QUIRE_SLOTS_LRU || c->policy == QUIRE_SLOTS_ARC;
    slots.hooks = c->hooks;
    const tiers_lower *l = c->lower;
    bool ok = tiers_queue_init(&sim->loads, SIM_MAX_JOBS, l->bytes_per_s, l->latency_s);
    ok = tiers_queue_init(&sim->stores, SIM_MAX_JOBS, l->bytes_per_s, l->latency_s) && ok;
    if (ok && quire_slots_create(&slots, NULL, &sim->slots) == QUIRE_OK)
        return sim;
    sim_close(sim);
    return NULL;
}

int tiers_sim_open(const tiers_sim_config *config, quire_tier **tier, tiers_sim **sim)
{
    static const char *const MEDIUMS[] = {[TIERS_FILE] = "DISK", [TIERS_REDIS] = "REDIS"};
    quire_tier_ops ops = {.abi = 1,
                          .size = sizeof ops,
                          .name = "simulated",
                          .medium = MEDIUMS[config->lower->kind],
                          .close = sim_close,
                          .caps = sim_caps,
                          .prepare = sim_prepare,
                          .finish = sim_finish,
                          .lookup = sim_lookup,
                          .touch = sim_touch,
                          .expect = sim_expect,
                          .reset = sim_reset,
                          .usage = sim_usage,
                          .slots = sim_slots,
                          .begin = sim_begin,
                          .turn = sim_turn};
    *sim = make_sim(config);
    if (*sim == NULL) {
        fail_with("not enough memory for %u slots", config->num_slots);
        return QUIRE_E_NOMEM;
    }
    quire_tier_config c = QUIRE_TIER_CONFIG_INIT;
    c.ops = &ops;
    c.label = tiers_label(config->lower->kind);
    c.self = *sim;
    c.max_jobs = SIM_MAX_JOBS;
    c.max_bytes_in_flight = (uint64_t)(config->lower->bytes_per_s * SIM_BUSY_S);
    c.run_inline = QUIRE_ON;
    c.hooks = config->hooks;
    int status = quire_tier_open(&c, NULL, tier);
    if (status != QUIRE_OK)
        fail_with("%s", quire_refusal());
    return status;
}

static uint64_t next_of(const tiers_queue *q, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    if (q->num == 0)
        return next_ns;
    next_ns = tiers_queue_next_ns(q);
    const quire_tier_job *job = q->entries[q->first].job;
    bool is_late_before = job->due_ns > now_ns && job->due_ns < next_ns;
    return is_late_before ? job->due_ns : next_ns;
}

uint64_t tiers_sim_next_ns(const tiers_sim *sim)
{
    uint64_t now_ns = sim_now_ns(sim);
    uint64_t load_ns = next_of(&sim->loads, now_ns);
    uint64_t store_ns = next_of(&sim->stores, now_ns);
    return load_ns < store_ns ? load_ns : store_ns;
}
