#include "engine/proof.h"

#include "engine/peer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_EPISODE = 120, MAX_STEPS = 200000, MAX_JOBS = 64 };

/* What went wrong, of one thread. */
typedef struct verdict {
    char message[384];
    bool is_disabled;
} verdict;

static bool is_broken(const engine_proof *proof)
{
    return proof->broken != ENGINE_WHOLE || proof->quirks != 0;
}

/* It is broken, and that was found. */
static bool is_enough(const engine_proof *proof, const engine_counts *counts)
{
    return is_broken(proof) && counts->tokens_differ > proof->enough;
}

/* ---- one family of engines ------------------------------------------------- */

typedef struct episode {
    engine_proof *proof;
    engine_setup setup;
    engine_model *model;
    engine_texts *texts;
    engine_tiers *tiers;
    engine_counts *counts;
    engine engine;
    engine_peer peer;
    uint64_t random;
    uint32_t num_requests;
    uint32_t num_added;
    uint32_t restart_at; /* when so many were added; 0: never */
    uint32_t num_restarts;
    engine_request requests[MAX_EPISODE];
    verdict *verdict;
} episode;

static int complain(episode *p, const char *what)
{
    (void)snprintf(p->verdict->message, sizeof p->verdict->message, "engine of seed %llu: %s",
                   (unsigned long long)p->setup.seed, what);
    return 1;
}

static int open_engine(episode *p)
{
    p->engine.is_verbose = p->proof->is_verbose;
    if (engine_open(&p->engine, &p->setup, p->model, p->proof->ops, p->tiers, p->counts) == 0)
        return 0;
    p->verdict->is_disabled = p->engine.is_disabled;
    return complain(p, p->engine.message);
}

static int make_requests(episode *p)
{
    bool wants_prompt = p->proof->switches.prompt && p->setup.seed % 4 == 3;
    for (uint32_t i = 0; i < p->num_requests; i++)
        if (engine_request_create(p->texts, p->proof->ops, p->engine.backend, wants_prompt,
                                  &p->requests[i]) != 0)
            return complain(p, "no reference");
    return 0;
}

static int open_peer(episode *p)
{
    p->peer.engine.is_verbose = p->proof->is_verbose;
    if (engine_peer_open(&p->peer, &p->setup, p->model, p->proof->ops, p->tiers, p->counts) == 0)
        return 0;
    p->verdict->is_disabled = p->peer.engine.is_disabled;
    return complain(p, p->peer.engine.message);
}

/* Requests that had not ended on an engine that is gone begin from their prompts. */
static void begin_again(episode *p, bool is_peers)
{
    for (uint32_t i = 0; i < p->num_requests; i++)
        if (p->requests[i].state == ENGINE_LIVE && p->requests[i].is_peers == is_peers)
            p->requests[i].state = ENGINE_NEW;
    p->num_added = 0;
}

static int restart(episode *p)
{
    bool is_crash = p->setup.is_crashing;
    if (!is_crash) {
        for (uint32_t n = 0; !engine_is_idle(&p->engine) && n < MAX_STEPS; n++)
            if (engine_step(&p->engine) != 0)
                return complain(p, p->engine.message);
    }
    engine_close(&p->engine, is_crash);
    p->counts->restarts++;
    p->counts->crashes += is_crash;
    p->num_restarts++;
    p->restart_at = 0;
    begin_again(p, false);
    if (open_engine(p) != 0)
        return 1;
    p->engine.was_restarted = true;
    return 0;
}

/* As many as there is room for, a few at a time. */
static void add_requests(episode *p)
{
    for (uint32_t most = 1 + engine_draw(&p->random, 3); most > 0; most--) {
        while (p->num_added < p->num_requests && p->requests[p->num_added].state != ENGINE_NEW)
            p->num_added++;
        if (p->num_added == p->num_requests)
            return;
        engine_request *r = &p->requests[p->num_added];
        r->is_peers = p->peer.is_there && engine_chance(&p->random, 50);
        if (engine_add(r->is_peers ? &p->peer.engine : &p->engine, r) != 0)
            return;
        p->num_added++;
    }
}

static int check_engine(episode *p, const engine *e)
{
    if (quire_sched_check(e->sched) != QUIRE_OK)
        return complain(p, "quire_sched_check fails");
    if (e->offload != NULL && quire_offload_check(e->offload) != QUIRE_OK)
        return complain(p, "quire_offload_check fails");
    return 0;
}

static int turn_peer(episode *p)
{
    bool is_stopped = false;
    if (!p->setup.has_peer || engine_chance(&p->random, 30))
        return 0;
    if (engine_peer_turn(&p->peer, &p->random, &is_stopped) != 0)
        return complain(p, p->peer.engine.message);
    if (is_stopped)
        begin_again(p, true);
    return 0;
}

static int end_engines(episode *p)
{
    if (p->peer.is_there && check_engine(p, &p->peer.engine) != 0)
        return 1;
    return check_engine(p, &p->engine);
}

static int run_requests(episode *p)
{
    for (uint32_t n = 0; n < MAX_STEPS; n++) {
        if (engine_chance(&p->random, 60))
            add_requests(p);
        if (p->num_added == p->num_requests && engine_is_idle(&p->engine) &&
            engine_peer_is_idle(&p->peer))
            return end_engines(p);
        if (engine_step(&p->engine) != 0)
            return complain(p, p->engine.message);
        if (turn_peer(p) != 0)
            return 1;
        if (p->restart_at > 0 && p->num_added >= p->restart_at && restart(p) != 0)
            return 1;
        if (is_enough(p->proof, p->counts))
            return 0;
    }
    return complain(p, "requests do not end");
}

static int run_episode(episode *p)
{
    if (p->setup.has_peer && open_peer(p) != 0)
        return 1;
    int failed = open_engine(p);
    if (!failed)
        failed = make_requests(p) || run_requests(p);
    engine_close(&p->engine, failed || is_broken(p->proof));
    engine_peer_close(&p->peer);
    engine_tiers_forget(p->tiers);
    return failed;
}

static int prove_one(engine_proof *proof, uint64_t seed, uint32_t most, engine_tiers *tiers,
                     engine_counts *counts, verdict *result)
{
    episode *p = calloc(1, sizeof *p);
    if (p == NULL)
        return 1;
    p->proof = proof;
    p->tiers = tiers;
    p->counts = counts;
    p->verdict = result;
    p->random = seed ^ 77;
    engine_switches on = proof->switches;
    on.redis = on.redis && tiers->redis != 0;
    engine_setup_draw(&p->setup, &on, seed);
    p->setup.broken = proof->broken;
    p->setup.quirks = proof->quirks;
    p->setup.has_worker = proof->has_worker;
    if (proof->is_verbose)
        engine_setup_print(&p->setup);
    uint32_t per_engine =
        proof->per_engine == 0 || proof->per_engine > MAX_EPISODE ? MAX_EPISODE : proof->per_engine;
    p->num_requests = engine_between(&p->random, (per_engine + 2) / 3, per_engine);
    p->num_requests = p->num_requests < most ? p->num_requests : most;
    if (p->setup.is_restarting)
        p->restart_at = engine_between(&p->random, 1, p->num_requests);
    p->model = engine_model_create(&p->setup.model);
    p->texts = engine_texts_create(p->model, p->setup.max_model_len, seed);
    int failed = p->model == NULL || p->texts == NULL || run_episode(p);
    for (uint32_t i = 0; i < MAX_EPISODE; i++)
        engine_request_destroy(&p->requests[i]);
    engine_texts_destroy(p->texts);
    engine_model_destroy(p->model);
    free(p);
    return failed;
}

/* ---- all of them ----------------------------------------------------------- */

typedef struct job {
    engine_proof *proof;
    uint32_t number;
    uint64_t num_requests;
    engine_counts counts;
    engine_tiers tiers;
    uint64_t num_engines;
    int failed;
    verdict result;
} job;

static void *run_job(void *user)
{
    job *j = user;
    uint64_t random = j->proof->seed * UINT64_C(1000003) + j->number;
    uint32_t n = j->proof->num_jobs;
    while (!j->failed && j->counts.requests < j->num_requests && !is_enough(j->proof, &j->counts)) {
        uint64_t left = j->num_requests - j->counts.requests;
        uint32_t most = left < MAX_EPISODE ? (uint32_t)left : MAX_EPISODE;
        uint64_t seed = engine_random(&random);
        seed += (j->num_engines++ * n + j->number) % ENGINE_NUM_TURNS - seed % ENGINE_NUM_TURNS;
        j->failed = prove_one(j->proof, seed, most, &j->tiers, &j->counts, &j->result);
    }
    return NULL;
}

static void add_counts(engine_counts *sum, const engine_counts *more)
{
#define ENGINE_X(name, text) sum->name += more->name;
    ENGINE_COUNT_MAP(ENGINE_X)
#undef ENGINE_X
}

static int run_jobs(engine_proof *proof, job *jobs, uint32_t n)
{
    pthread_t threads[MAX_JOBS];
    uint32_t num_started = 0;
    if (n == 1) {
        (void)run_job(&jobs[0]);
        return 0;
    }
    while (num_started < n &&
           pthread_create(&threads[num_started], NULL, run_job, &jobs[num_started]) == 0)
        num_started++;
    for (uint32_t i = 0; i < num_started; i++)
        (void)pthread_join(threads[i], NULL);
    if (num_started == n)
        return 0;
    (void)snprintf(proof->message, sizeof proof->message, "no threads");
    return 1;
}

static void take_verdict(engine_proof *proof, const verdict *result)
{
    (void)snprintf(proof->message, sizeof proof->message, "%s", result->message);
    proof->is_disabled = proof->is_disabled || result->is_disabled;
}

int engine_prove(engine_proof *proof, engine_counts *counts)
{
    uint32_t n = proof->num_jobs == 0 ? 1 : proof->num_jobs;
    n = n > MAX_JOBS ? MAX_JOBS : n;
    proof->num_jobs = n;
    job *jobs = calloc(n, sizeof *jobs);
    if (jobs == NULL)
        return 1;
    int failed = 0;
    proof->has_redis = proof->switches.redis;
    for (uint32_t i = 0; i < n; i++) {
        jobs[i].proof = proof;
        jobs[i].number = i;
        jobs[i].num_requests = (proof->num_requests + n - 1) / n;
        failed = engine_tiers_create(&jobs[i].tiers, proof->switches.redis) || failed;
        proof->has_redis = proof->has_redis && jobs[i].tiers.redis != 0;
    }
    failed = failed || run_jobs(proof, jobs, n);
    for (uint32_t i = 0; i < n; i++) {
        add_counts(counts, &jobs[i].counts);
        engine_tiers_destroy(&jobs[i].tiers);
        if (jobs[i].failed)
            take_verdict(proof, &jobs[i].result);
        failed = failed || jobs[i].failed;
    }
    free(jobs);
    return failed;
}

int engine_prove_one(engine_proof *proof, uint64_t seed, engine_counts *counts)
{
    engine_tiers tiers;
    if (engine_tiers_create(&tiers, proof->switches.redis) != 0)
        return 1;
    verdict result = {0};
    int failed = prove_one(proof, seed, MAX_EPISODE, &tiers, counts, &result);
    take_verdict(proof, &result);
    engine_tiers_destroy(&tiers);
    return failed;
}

/* ---- what came out --------------------------------------------------------- */

void engine_proof_print(const engine_counts *counts)
{
#define ENGINE_X(name, text) printf("  %-36s %12llu\n", text, (unsigned long long)counts->name);
    ENGINE_COUNT_MAP(ENGINE_X)
#undef ENGINE_X
}

int engine_proof_judge(const engine_proof *proof, const engine_counts *counts)
{
    int is_bad = counts->tokens_differ > 0 || counts->outputs_differ > 0 || counts->confused > 0;
    if (is_bad)
        printf("the engine and the reference differ\n");
    if (proof->switches.redis && !proof->has_redis)
        printf("no redis-server: Redis was left out\n");
#define ENGINE_X(name, count, text)                                                                \
    if (proof->switches.name && counts->count == 0 &&                                              \
        !(strcmp(#name, "redis") == 0 && !proof->has_redis)) {                                     \
        printf("never at work: %s (%s)\n", #name, text);                                           \
        is_bad = is_bad || !proof->is_part;                                                        \
    }
    ENGINE_SWITCH_MAP(ENGINE_X)
#undef ENGINE_X
    return is_bad;
}
