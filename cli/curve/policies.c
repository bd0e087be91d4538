#include "policies.h"

#include "output/grown.h"

bool policy_log_add(policy_log *log, const curve_blocks *blocks)
{
    if (!reserve(&log->keys, log->num_keys + blocks->num_full, &log->keys_room,
                 sizeof *log->keys) ||
        !reserve(&log->requests, log->num_requests + 1, &log->requests_room, sizeof *log->requests))
        return false;
    log->requests[log->num_requests++] =
        (policy_request){log->num_keys, blocks->num_lookups, blocks->num_full, blocks->num_held};
    for (uint32_t i = 0; i < blocks->num_full; i++)
        log->keys[log->num_keys++] = blocks->keys[i];
    return true;
}

/* ---- one run --------------------------------------------------------------- */

typedef struct policy_run {
    const policy_log *log;
    quire_slots *slots;
    bool looks_ahead;
    bool counts_touches; /* a second touch in one request would be a second use */
    uint32_t num_slots;
    uint64_t num_expected; /* requests [.., num_expected) were told */
    quire_tier_key *keys;  /* of the request at hand */
    uint32_t *slot_ids;
    uint8_t *is_new;
} policy_run;

/* Keys of full blocks are their identities, those of other blocks belong to one request alone. */
static void fill_tier_keys(const policy_run *run, uint64_t number, uint32_t n)
{
    const policy_request *request = &run->log->requests[number];
    for (uint32_t i = 0; i < n; i++) {
        bool is_full = i < request->num_full;
        uint64_t identity = is_full ? run->log->keys[request->first_key + i] : number;
        memset(&run->keys[i], 0, sizeof run->keys[i]);
        memcpy(run->keys[i].hash, &identity, sizeof identity);
        run->keys[i].group = is_full ? 0 : 1;
        run->keys[i].rank = is_full ? 0 : i;
    }
}

/* Requests up to the end of the backlog wait now. */
static void expect_backlog(policy_run *run, uint64_t number, uint32_t backlog)
{
    uint64_t end = number + backlog + 1;
    if (end > run->log->num_requests)
        end = run->log->num_requests;
    for (; run->num_expected < end; run->num_expected++) {
        uint32_t n = run->log->requests[run->num_expected].num_lookups;
        fill_tier_keys(run, run->num_expected, n);
        (void)quire_slots_expect(run->slots, run->num_expected, run->num_expected, run->keys, n);
    }
}

static uint32_t run_request(policy_run *run, uint64_t number)
{
    const policy_request *request = &run->log->requests[number];
    uint32_t n = request->num_held < run->num_slots ? request->num_held : run->num_slots;
    fill_tier_keys(run, number, n);
    uint32_t num_lookups = request->num_lookups < n ? request->num_lookups : n;
    uint32_t found = quire_slots_lookup(run->slots, run->keys, num_lookups);
    quire_slots_touch(run->slots, run->keys, n);
    int status =
        quire_slots_prepare_store(run->slots, run->keys, n, run->slot_ids, run->is_new, NULL, NULL);
    if (status == QUIRE_OK && !run->counts_touches)
        quire_slots_touch(run->slots, run->keys, n);
    (void)quire_slots_complete_store(run->slots, run->keys, n, 1);
    for (uint32_t i = request->num_full; i < n; i++) /* nobody finds it: the next to be taken */
        (void)quire_slots_remove(run->slots, &run->keys[i]);
    if (run->looks_ahead)
        (void)quire_slots_expect(run->slots, number, 0, NULL, 0);
    return found;
}

/* The most keys that are expected at one time, and the most of one request. */
static void measure_log(const policy_log *log, uint32_t backlog, uint64_t *max_expected,
                        uint32_t *max_held)
{
    uint64_t expected = 0;
    for (uint64_t i = 0; i < log->num_requests; i++) {
        const policy_request *request = &log->requests[i];
        expected += request->num_lookups;
        if (i > backlog)
            expected -= log->requests[i - backlog - 1].num_lookups;
        *max_expected = expected > *max_expected ? expected : *max_expected;
        *max_held = request->num_held > *max_held ? request->num_held : *max_held;
    }
}

static void close_run(policy_run *run)
{
    quire_slots_destroy(run->slots);
    free(run->keys);
    free(run->slot_ids);
    free(run->is_new);
}

int policy_hits(const policy_log *log, quire_slots_policy policy, uint32_t num_slots,
                uint32_t backlog, uint64_t *hits)
{
    policy_run run = {.log = log, .num_slots = num_slots};
    run.looks_ahead = policy == QUIRE_SLOTS_LOOKAHEAD;
    run.counts_touches = policy == QUIRE_SLOTS_S3FIFO;
    uint64_t max_expected = 1;
    uint32_t max_held = 1;
    measure_log(log, backlog, &max_expected, &max_held);
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_slots;
    config.policy = policy;
    config.max_expected = max_expected < QUIRE_SLOTS_MAX ? (uint32_t)max_expected : QUIRE_SLOTS_MAX;
    int status = quire_slots_create(&config, NULL, &run.slots);
    if (status != QUIRE_OK)
        return status;
    run.keys = calloc(max_held, sizeof *run.keys);
    run.slot_ids = calloc(max_held, sizeof *run.slot_ids);
    run.is_new = calloc(max_held, sizeof *run.is_new);
    if (run.keys == NULL || run.slot_ids == NULL || run.is_new == NULL) {
        close_run(&run);
        return QUIRE_E_NOMEM;
    }
    *hits = 0;
    for (uint64_t i = 0; i < log->num_requests; i++) {
        if (run.looks_ahead)
            expect_backlog(&run, i, backlog);
        *hits += run_request(&run, i);
    }
    close_run(&run);
    return QUIRE_OK;
}
