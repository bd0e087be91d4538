#include "shared_moves.h"

#include "fields.h"
#include "output/failure.h"
#include "output/grown.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

enum { LOAD_LINK, STORE_LINK, FIRST_CLIENT };

/* A store, from the question to the end of its bytes. */
typedef struct store {
    struct store *next; /* of those that come to the tier, or that wait for the worker's link */
    double come_s;
    uint32_t client;
    uint32_t num_keys;
    uint64_t keys[];
} store;

typedef struct store_queue {
    store *first;
    store *last;
} store_queue;

typedef struct load_job {
    quire_req req;
    double asked_s;
    uint32_t client;
    uint32_t num_blocks;
    uint32_t next_free;
} load_job;

struct shared_moves {
    shared_spec spec;
    shared_tier *tier;
    links *links;
    worker *workers;
    uint32_t num_workers;
    uint64_t block_bytes;
    store_queue coming;  /* to the tier, in the order of come_s */
    store_queue *stores; /* by client: places are taken; the first one moves */
    load_job *loads;
    uint32_t num_all; /* places of loads that were used */
    uint32_t capacity;
    uint32_t first_free;
    uint32_t num_loads;
    uint32_t *changed;
    uint32_t num_changed;
    bool *is_changed;
    bool is_down;
    shared_stats stats;
};

/* Of links.h: which transfer has ended. */
static uint64_t user_of_load(uint32_t id)
{
    return (uint64_t)id << 1;
}

static uint64_t user_of_store(uint32_t client)
{
    return (uint64_t)client << 1 | 1;
}

/* ---- the option ------------------------------------------------------------------ */

int shared_spec_read(const char *text, shared_spec *spec)
{
    enum { BLOCKS, BYTES, BANDWIDTH, CLIENT, LATENCY, NUM_FIELDS };
    static const field table[NUM_FIELDS + 1] = {
        [BLOCKS] = {"blocks", 0, 1, 1 << 30, true},
        [BYTES] = {"bytes", 0, 1, 1e18, true},
        [BANDWIDTH] = {"bandwidth", NAN, 1e-6, 1e9, false},
        [CLIENT] = {"client-bandwidth", 0, 1e-6, 1e9, false},
        [LATENCY] = {"latency", 100, 1, 1e9, false},
    };
    double values[NUM_FIELDS];
    if (fields_read("--shared-tier", text, table, values) != 0)
        return -1;
    if ((values[BLOCKS] > 0) == (values[BYTES] > 0))
        return fail_with("--shared-tier needs blocks=N or bytes=N, and not both (1 to %d, 1 to "
                         "1e+18)",
                         1 << 30);
    *spec = (shared_spec){.num_blocks = (uint64_t)values[BLOCKS],
                          .bytes = (uint64_t)values[BYTES],
                          .bytes_per_s = values[BANDWIDTH] * 1e9,
                          .client_bytes_per_s = values[CLIENT] * 1e9,
                          .latency_s = values[LATENCY] * 1e-6};
    return 0;
}

/* ---- made and unmade ----------------------------------------------------------- */

shared_moves *shared_moves_open(const shared_spec *spec, uint64_t block_bytes, uint32_t num_workers)
{
    uint64_t bytes = spec->num_blocks > 0 ? spec->num_blocks * block_bytes : spec->bytes;
    shared_moves *m = calloc(1, sizeof *m);
    if (m == NULL) {
        fail_with("not enough memory");
        return NULL;
    }
    *m = (shared_moves){
        .spec = *spec, .num_workers = num_workers, .block_bytes = block_bytes, .first_free = NONE};
    if (bytes / block_bytes == 0) {
        fail_with("invalid value \"%llu\" for bytes of --shared-tier (expected %llu, one block, "
                  "or more)",
                  (unsigned long long)bytes, (unsigned long long)block_bytes);
        shared_moves_close(m);
        return NULL;
    }
    bool has_clients = spec->client_bytes_per_s > 0;
    shared_tier_config config = {.capacity_bytes = bytes,
                                 .block_bytes = block_bytes,
                                 .latency_s = spec->latency_s,
                                 .load_link = LOAD_LINK,
                                 .store_link = STORE_LINK,
                                 .client_link = has_clients ? FIRST_CLIENT : LINKS_NONE,
                                 .num_clients = num_workers};
    m->stores = calloc(num_workers, sizeof *m->stores);
    m->changed = calloc(num_workers, sizeof *m->changed);
    m->is_changed = calloc(num_workers, sizeof *m->is_changed);
    bool ok = m->stores != NULL && m->changed != NULL && m->is_changed != NULL;
    if (!ok)
        fail_with("not enough memory for %u workers", num_workers);
    m->tier = ok ? shared_tier_create(&config) : NULL;
    if (m->tier != NULL)
        return m;
    shared_moves_close(m);
    return NULL;
}

bool shared_moves_bind(shared_moves *m, worker *workers)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->num_workers; i++)
        most += workers[i].engine.max_requests + 1; /* its loads, and a store */
    m->workers = workers;
    m->links = most < NONE ? links_create(FIRST_CLIENT + m->num_workers, (uint32_t)most) : NULL;
    if (m->links == NULL)
        return false;
    links_set_bandwidth(m->links, 0, LOAD_LINK, m->spec.bytes_per_s);
    links_set_bandwidth(m->links, 0, STORE_LINK, m->spec.bytes_per_s);
    for (uint32_t i = 0; i < m->num_workers; i++)
        links_set_bandwidth(m->links, 0, FIRST_CLIENT + i, m->spec.client_bytes_per_s);
    shared_tier_set_links(m->tier, m->links);
    return true;
}

static void free_stores(store_queue *q)
{
    for (store *it; (it = q->first) != NULL;) {
        q->first = it->next;
        free(it);
    }
}

void shared_moves_close(shared_moves *m)
{
    if (m == NULL)
        return;
    free_stores(&m->coming);
    for (uint32_t i = 0; m->stores != NULL && i < m->num_workers; i++)
        free_stores(&m->stores[i]);
    shared_tier_destroy(m->tier);
    links_destroy(m->links);
    distribution_free(&m->stats.load_ms);
    free(m->stores);
    free(m->loads);
    free(m->changed);
    free(m->is_changed);
    free(m);
}

const shared_tier *shared_moves_tier(const shared_moves *m)
{
    return m != NULL ? m->tier : NULL;
}

/* ---- stores ------------------------------------------------------------------------ */

static void put(store_queue *q, store *it)
{
    it->next = NULL;
    *(q->first == NULL ? &q->first : &q->last->next) = it;
    q->last = it;
}

static store *take(store_queue *q)
{
    store *it = q->first;
    q->first = it->next;
    return it;
}

static bool ask_to_store(shared_moves *m, uint32_t client, const shared_ask *ask)
{
    const uint64_t *keys = m->workers[client].shared.asked.keys + ask->first;
    store *it = malloc(sizeof *it + ask->count * sizeof *it->keys);
    if (it == NULL)
        return false;
    it->come_s = ask->time_s + m->spec.latency_s;
    it->client = client;
    it->num_keys = ask->count;
    memcpy(it->keys, keys, ask->count * sizeof *keys);
    put(&m->coming, it);
    return true;
}

/* The first of the worker's stores. */
static bool move_next(shared_moves *m, uint32_t client, double now_s)
{
    const store *it = m->stores[client].first;
    return it == NULL || shared_tier_start(m->tier, now_s, SHARED_TIER_STORE, client, LINKS_NONE,
                                           it->num_keys, user_of_store(client)) != LINKS_NONE;
}

/* The first that comes to the tier: it takes places there. */
static bool begin_store(shared_moves *m)
{
    store *it = take(&m->coming);
    store_queue *q = &m->stores[it->client];
    it->num_keys = shared_tier_begin_store(m->tier, it->keys, it->num_keys, it->keys);
    if (it->num_keys == 0) {
        free(it);
        return true;
    }
    bool is_first = q->first == NULL;
    put(q, it);
    return !is_first || move_next(m, it->client, it->come_s);
}

static void end_store(shared_moves *m, uint32_t client, bool has_succeeded)
{
    store *it = take(&m->stores[client]);
    shared_tier_end_store(m->tier, it->keys, it->num_keys, has_succeeded);
    m->stats.stores++;
    free(it);
}

/* ---- loads ------------------------------------------------------------------------- */

static bool ask_to_load(shared_moves *m, uint32_t client, const shared_ask *ask)
{
    const uint64_t *keys = m->workers[client].shared.asked.keys + ask->first;
    uint32_t id = m->first_free;
    if (id != NONE)
        m->first_free = m->loads[id].next_free;
    else if (grow(&m->loads, m->num_all, &m->capacity, NONE - 1, sizeof *m->loads))
        id = m->num_all++;
    else
        return false;
    m->loads[id] = (load_job){
        .req = ask->req, .asked_s = ask->time_s, .client = client, .num_blocks = ask->count};
    m->num_loads++;
    m->stats.most_loads = m->num_loads > m->stats.most_loads ? m->num_loads : m->stats.most_loads;
    shared_tier_use(m->tier, keys, ask->count);
    return shared_tier_start(m->tier, ask->time_s, SHARED_TIER_LOAD, client, LINKS_NONE, ask->count,
                             user_of_load(id)) != LINKS_NONE;
}

static bool end_load(shared_moves *m, uint32_t id, bool has_succeeded, double now_s)
{
    load_job *it = &m->loads[id];
    shared_stats *s = &m->stats;
    s->loads++;
    s->failed_loads += !has_succeeded;
    *(has_succeeded ? &s->loaded_blocks : &s->failed_blocks) += it->num_blocks;
    distribution_add(&s->load_ms, (now_s - it->asked_s) * 1e3);
    if (!m->is_changed[it->client])
        m->changed[m->num_changed++] = it->client;
    m->is_changed[it->client] = true;
    m->num_loads--;
    it->next_free = m->first_free;
    m->first_free = id;
    return worker_received(&m->workers[it->client], it->req, !has_succeeded, now_s);
}

/* ---- time -------------------------------------------------------------------------- */

bool shared_moves_ask(shared_moves *m, uint32_t client, const shared_ask *ask)
{
    return ask->way == SHARED_TIER_LOAD ? ask_to_load(m, client, ask)
                                        : ask_to_store(m, client, ask);
}

double shared_moves_next_s(const shared_moves *m)
{
    if (m == NULL)
        return HUGE_VAL;
    double next_s = links_next_s(m->links);
    return m->coming.first != NULL ? fmin(next_s, m->coming.first->come_s) : next_s;
}

/* Transfers that have ended. */
static bool take_ended(shared_moves *m)
{
    links_ended ended;
    bool ok = true;
    while (ok && links_take(m->links, &ended)) {
        uint32_t i = (uint32_t)(ended.user >> 1);
        bool has_succeeded = ended.outcome == LINKS_DONE;
        if ((ended.user & 1) == 0) {
            ok = end_load(m, i, has_succeeded, ended.time_s);
            continue;
        }
        end_store(m, i, has_succeeded);
        if (has_succeeded)
            ok = move_next(m, i, ended.time_s);
    }
    return ok;
}

/* At the same time blocks become stored first, then places are taken. */
bool shared_moves_advance(shared_moves *m, double now_s)
{
    bool ok = true;
    for (double next_s; ok && (next_s = shared_moves_next_s(m)) <= now_s;) {
        links_advance(m->links, next_s);
        ok = take_ended(m);
        while (ok && m->coming.first != NULL && m->coming.first->come_s <= next_s)
            ok = begin_store(m);
    }
    return ok;
}

uint32_t shared_moves_take_changed(shared_moves *m)
{
    if (m->num_changed == 0)
        return NONE;
    uint32_t client = m->changed[--m->num_changed];
    m->is_changed[client] = false;
    return client;
}

uint32_t shared_moves_num_loads(const shared_moves *m)
{
    return m != NULL ? m->num_loads : 0;
}

bool shared_moves_set_down(shared_moves *m, double now_s, bool is_down, bool loses)
{
    bool ok = true;
    if (is_down && !m->is_down) {
        m->stats.outages++;
        links_fail(m->links, now_s, LOAD_LINK);
        links_fail(m->links, now_s, STORE_LINK);
        ok = take_ended(m);
        for (uint32_t i = 0; i < m->num_workers; i++)
            while (m->stores[i].first != NULL) /* that have not begun to move */
                end_store(m, i, false);
    }
    if (is_down && loses)
        shared_tier_clear(m->tier);
    m->is_down = is_down;
    shared_tier_set_down(m->tier, is_down);
    return ok;
}

shared_stats shared_moves_finish(shared_moves *m)
{
    shared_stats stats = m->stats;
    stats.tier = shared_tier_get_counts(m->tier);
    stats.block_bytes = m->block_bytes;
    stats.load_bytes = links_moved(m->links, LOAD_LINK);
    stats.store_bytes = links_moved(m->links, STORE_LINK);
    m->stats.load_ms = (distribution){0};
    return stats;
}
