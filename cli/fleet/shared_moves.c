#include "shared_moves.h"

#include "fields.h"
#include "output/failure.h"
#include "output/grown.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* Of a shared tier: the links of all, then one of each client. Of peers: four of each client. */
enum { LOAD_LINK, STORE_LINK, FIRST_CLIENT };
enum { SEND_LINK, GET_LINK, FROM_HOST_LINK, TO_HOST_LINK, NUM_PEER_LINKS };

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
    uint32_t num_peer_blocks;
    uint32_t parts[SHARED_MAX_PARTS]; /* transfers; LINKS_NONE: has ended */
    uint32_t num_parts;
    uint32_t num_moving; /* of them */
    bool has_failed;     /* one of them */
    uint32_t next_free;
} load_job;

struct shared_moves {
    shared_spec spec;
    shared_tier **tiers;
    uint32_t num_places;
    links *links;
    worker *workers;
    uint32_t num_workers;
    uint64_t block_bytes;
    store_queue coming;  /* to the tier, in the order of come_s */
    store_queue *stores; /* by client: places are taken; the first one moves, */
    uint32_t *moving;    /* by client: as this transfer */
    load_job *loads;
    uint32_t asking;  /* the load whose parts are asked for */
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
static uint64_t user_of_load(uint32_t id, uint32_t part)
{
    return ((uint64_t)id * SHARED_MAX_PARTS + part) << 1;
}

static uint64_t user_of_store(uint32_t client)
{
    return (uint64_t)client << 1 | 1;
}

/* ---- the option ------------------------------------------------------------------ */

enum { BLOCKS, BYTES, BANDWIDTH, CLIENT, LATENCY, NUM_FIELDS };

static int read_fields(const char *name, const field *table, const char *text, double *values)
{
    if (fields_read(name, text, table, values) != 0)
        return -1;
    if ((values[BLOCKS] > 0) == (values[BYTES] > 0))
        return fail_with("%s needs blocks=N or bytes=N, and not both (1 to %d, 1 to 1e+18)", name,
                         1 << 30);
    return 0;
}

int shared_spec_read(const char *text, shared_spec *spec)
{
    static const field table[NUM_FIELDS + 1] = {
        [BLOCKS] = {"blocks", 0, 1, 1 << 30, true},
        [BYTES] = {"bytes", 0, 1, 1e18, true},
        [BANDWIDTH] = {"bandwidth", NAN, 1e-6, 1e9, false},
        [CLIENT] = {"client-bandwidth", 0, 1e-6, 1e9, false},
        [LATENCY] = {"latency", 100, 1, 1e9, false},
    };
    double values[NUM_FIELDS];
    if (read_fields("--shared-tier", table, text, values) != 0)
        return -1;
    *spec = (shared_spec){.num_blocks = (uint64_t)values[BLOCKS],
                          .bytes = (uint64_t)values[BYTES],
                          .bytes_per_s = values[BANDWIDTH] * 1e9,
                          .client_bytes_per_s = values[CLIENT] * 1e9,
                          .latency_s = values[LATENCY] * 1e-6};
    return 0;
}

int shared_spec_read_peers(const char *text, shared_spec *spec)
{
    enum { HOST = CLIENT };
    static const field table[NUM_FIELDS + 1] = {
        [BLOCKS] = {"blocks", 0, 1, 1 << 30, true},
        [BYTES] = {"bytes", 0, 1, 1e18, true},
        [BANDWIDTH] = {"bandwidth", 50, 1e-6, 1e9, false},
        [HOST] = {"host-bandwidth", 55, 1e-6, 1e9, false},
        [LATENCY] = {"latency", 100, 1, 1e9, false},
    };
    double values[NUM_FIELDS];
    if (read_fields("--peer-memory", table, text, values) != 0)
        return -1;
    *spec = (shared_spec){.is_peers = true,
                          .num_blocks = (uint64_t)values[BLOCKS],
                          .bytes = (uint64_t)values[BYTES],
                          .bytes_per_s = values[BANDWIDTH] * 1e9,
                          .host_bytes_per_s = values[HOST] * 1e9,
                          .latency_s = values[LATENCY] * 1e-6};
    return 0;
}

/* ---- made and unmade ----------------------------------------------------------- */

/* The places. False, and a sentence. */
static bool make_tiers(shared_moves *m, uint64_t bytes)
{
    const shared_spec *spec = &m->spec;
    bool has_clients = spec->client_bytes_per_s > 0;
    shared_tier_config config = {.capacity_bytes = bytes,
                                 .block_bytes = m->block_bytes,
                                 .latency_s = spec->latency_s,
                                 .load_link = LOAD_LINK,
                                 .store_link = STORE_LINK,
                                 .client_link = has_clients ? FIRST_CLIENT : LINKS_NONE,
                                 .num_clients = m->num_workers};
    for (uint32_t i = 0; i < m->num_places; i++) {
        uint32_t first = i * NUM_PEER_LINKS;
        if (spec->is_peers) {
            config.load_link = first + SEND_LINK;
            config.store_link = first + TO_HOST_LINK;
        }
        m->tiers[i] = shared_tier_create(&config);
        if (m->tiers[i] == NULL)
            return false;
    }
    return true;
}

shared_moves *shared_moves_open(const shared_spec *spec, uint64_t block_bytes, uint32_t num_workers)
{
    uint64_t bytes = spec->num_blocks > 0 ? spec->num_blocks * block_bytes : spec->bytes;
    shared_moves *m = calloc(1, sizeof *m);
    if (m == NULL) {
        fail_with("not enough memory");
        return NULL;
    }
    *m = (shared_moves){.spec = *spec,
                        .num_places = spec->is_peers ? num_workers : 1,
                        .num_workers = num_workers,
                        .block_bytes = block_bytes,
                        .first_free = NONE,
                        .asking = NONE};
    m->tiers = calloc(m->num_places, sizeof(shared_tier *));
    m->stores = calloc(num_workers, sizeof *m->stores);
    m->moving = calloc(num_workers, sizeof *m->moving);
    m->changed = calloc(num_workers, sizeof *m->changed);
    m->is_changed = calloc(num_workers, sizeof *m->is_changed);
    bool ok = m->tiers != NULL && m->stores != NULL && m->moving != NULL && m->changed != NULL &&
              m->is_changed != NULL;
    if (!ok)
        fail_with("not enough memory for %u workers", num_workers);
    if (ok && bytes / block_bytes == 0) {
        fail_with("invalid value \"%llu\" for bytes of --%s (expected %llu, one block, or more)",
                  (unsigned long long)bytes, spec->is_peers ? "peer-memory" : "shared-tier",
                  (unsigned long long)block_bytes);
        ok = false;
    }
    if (ok && make_tiers(m, bytes))
        return m;
    shared_moves_close(m);
    return NULL;
}

static void set_bandwidths(shared_moves *m)
{
    const shared_spec *spec = &m->spec;
    if (!spec->is_peers) {
        links_set_bandwidth(m->links, 0, LOAD_LINK, spec->bytes_per_s);
        links_set_bandwidth(m->links, 0, STORE_LINK, spec->bytes_per_s);
    }
    for (uint32_t i = 0; i < m->num_workers; i++) {
        uint32_t first = i * NUM_PEER_LINKS;
        if (!spec->is_peers) {
            links_set_bandwidth(m->links, 0, FIRST_CLIENT + i, spec->client_bytes_per_s);
            continue;
        }
        links_set_bandwidth(m->links, 0, first + SEND_LINK, spec->bytes_per_s);
        links_set_bandwidth(m->links, 0, first + GET_LINK, spec->bytes_per_s);
        links_set_bandwidth(m->links, 0, first + FROM_HOST_LINK, spec->host_bytes_per_s);
        links_set_bandwidth(m->links, 0, first + TO_HOST_LINK, spec->host_bytes_per_s);
    }
}

bool shared_moves_bind(shared_moves *m, worker *workers)
{
    uint32_t num_parts = m->spec.is_peers ? SHARED_MAX_PARTS : 1;
    uint32_t num_links =
        m->spec.is_peers ? m->num_workers * NUM_PEER_LINKS : FIRST_CLIENT + m->num_workers;
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->num_workers; i++) /* its loads, and a store */
        most += (uint64_t)workers[i].engine.max_requests * num_parts + 1;
    m->workers = workers;
    m->links = most < NONE ? links_create(num_links, (uint32_t)most) : NULL;
    if (m->links == NULL)
        return false;
    set_bandwidths(m);
    for (uint32_t i = 0; i < m->num_places; i++)
        shared_tier_set_links(m->tiers[i], m->links);
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
    for (uint32_t i = 0; m->tiers != NULL && i < m->num_places; i++)
        shared_tier_destroy(m->tiers[i]);
    links_destroy(m->links);
    distribution_free(&m->stats.load_ms);
    free(m->tiers);
    free(m->stores);
    free(m->moving);
    free(m->loads);
    free(m->changed);
    free(m->is_changed);
    free(m);
}

shared_places shared_moves_places(const shared_moves *m, uint32_t client)
{
    if (m == NULL)
        return (shared_places){0};
    return (shared_places){
        .tiers = m->tiers, .count = m->num_places, .own = m->spec.is_peers ? client : 0};
}

/* Where the worker stores. */
static shared_tier *own_tier(const shared_moves *m, uint32_t client)
{
    return m->tiers[m->spec.is_peers ? client : 0];
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
    if (it == NULL)
        return true;
    m->moving[client] = shared_tier_start(own_tier(m, client), now_s, SHARED_TIER_STORE, client,
                                          LINKS_NONE, it->num_keys, user_of_store(client));
    return m->moving[client] != LINKS_NONE;
}

/* The first that comes to the tier: it takes places there. */
static bool begin_store(shared_moves *m)
{
    store *it = take(&m->coming);
    store_queue *q = &m->stores[it->client];
    it->num_keys =
        shared_tier_begin_store(own_tier(m, it->client), it->keys, it->num_keys, it->keys);
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
    shared_tier_end_store(own_tier(m, client), it->keys, it->num_keys, has_succeeded);
    m->stats.stores++;
    free(it);
}

/* ---- loads ------------------------------------------------------------------------- */

/* A load, to which parts are added. NONE: no memory. */
static uint32_t add_load(shared_moves *m, uint32_t client, const shared_ask *ask)
{
    uint32_t id = m->first_free;
    if (id != NONE)
        m->first_free = m->loads[id].next_free;
    else if (grow(&m->loads, m->num_all, &m->capacity, NONE - 1, sizeof *m->loads))
        id = m->num_all++;
    else
        return NONE;
    m->loads[id] = (load_job){.req = ask->req, .asked_s = ask->time_s, .client = client};
    m->num_loads++;
    m->stats.most_loads = m->num_loads > m->stats.most_loads ? m->num_loads : m->stats.most_loads;
    return id;
}

/* Blocks of one place. The own host memory is not behind the network. The transfer, or LINKS_NONE.
 */
static uint32_t move_part(shared_moves *m, uint32_t client, const shared_ask *ask, uint64_t user)
{
    const shared_spec *spec = &m->spec;
    uint32_t links_of = client * NUM_PEER_LINKS;
    uint32_t from_host = links_of + FROM_HOST_LINK;
    uint32_t card = spec->is_peers ? links_of + GET_LINK : LINKS_NONE;
    double bytes = (double)ask->count * (double)m->block_bytes;
    if (spec->is_peers && ask->place == client)
        return links_start(m->links, ask->time_s, spec->latency_s, bytes, &from_host, 1, user);
    return shared_tier_start(m->tiers[ask->place], ask->time_s, SHARED_TIER_LOAD, client, card,
                             ask->count, user);
}

/* The parts of a load are asked for one after the other. */
static bool ask_to_load(shared_moves *m, uint32_t client, const shared_ask *ask)
{
    uint32_t id = m->asking != NONE ? m->asking : add_load(m, client, ask);
    if (id == NONE)
        return false;
    load_job *it = &m->loads[id];
    it->num_blocks += ask->count;
    it->num_peer_blocks += m->spec.is_peers && ask->place != client ? ask->count : 0;
    it->num_moving++;
    m->asking = ask->num_more > 0 ? id : NONE;
    shared_tier_use(m->tiers[ask->place], m->workers[client].shared.asked.keys + ask->first,
                    ask->count);
    uint32_t part = it->num_parts++;
    it->parts[part] = move_part(m, client, ask, user_of_load(id, part));
    return it->parts[part] != LINKS_NONE;
}

/* A part has ended. */
static bool end_load(shared_moves *m, uint32_t id, bool has_succeeded, double now_s)
{
    load_job *it = &m->loads[id];
    shared_stats *s = &m->stats;
    it->has_failed |= !has_succeeded;
    if (--it->num_moving > 0)
        return true;
    s->loads++;
    s->failed_loads += it->has_failed;
    *(it->has_failed ? &s->failed_blocks : &s->loaded_blocks) += it->num_blocks;
    s->peer_blocks += it->has_failed ? 0 : it->num_peer_blocks;
    distribution_add(&s->load_ms, (now_s - it->asked_s) * 1e3);
    if (!m->is_changed[it->client])
        m->changed[m->num_changed++] = it->client;
    m->is_changed[it->client] = true;
    m->num_loads--;
    it->next_free = m->first_free;
    m->first_free = id;
    return worker_received(&m->workers[it->client], it->req, it->has_failed, now_s);
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
        uint64_t user = ended.user >> 1;
        uint32_t i = (uint32_t)user;
        bool has_succeeded = ended.outcome == LINKS_DONE;
        if ((ended.user & 1) == 0) {
            i = (uint32_t)(user / SHARED_MAX_PARTS);
            m->loads[i].parts[user % SHARED_MAX_PARTS] = LINKS_NONE;
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
        uint32_t num_links = m->spec.is_peers ? m->num_workers * NUM_PEER_LINKS : FIRST_CLIENT;
        m->stats.outages++;
        for (uint32_t i = 0; i < num_links; i++)
            links_fail(m->links, now_s, i);
        ok = take_ended(m);
        for (uint32_t i = 0; i < m->num_workers; i++)
            while (m->stores[i].first != NULL) /* that have not begun to move */
                end_store(m, i, false);
    }
    m->is_down = is_down;
    for (uint32_t i = 0; i < m->num_places; i++) {
        if (is_down && loses)
            shared_tier_clear(m->tiers[i]);
        shared_tier_set_down(m->tiers[i], is_down);
    }
    return ok;
}

/* ---- a worker crashes ------------------------------------------------------------------ */

static bool cancel_load(shared_moves *m, uint32_t id, double now_s)
{
    load_job *it = &m->loads[id];
    for (uint32_t i = 0; i < it->num_parts; i++)
        if (it->parts[i] != LINKS_NONE)
            (void)links_cancel(m->links, now_s, it->parts[i]);
    it->num_moving = 1;
    return end_load(m, id, false, now_s);
}

static void cancel_stores(shared_moves *m, uint32_t client, double now_s)
{
    store_queue others = {0};
    while (m->coming.first != NULL) {
        store *it = take(&m->coming);
        if (it->client != client)
            put(&others, it);
        else
            free(it);
    }
    m->coming = others;
    if (m->stores[client].first != NULL)
        (void)links_cancel(m->links, now_s, m->moving[client]);
    while (m->stores[client].first != NULL)
        end_store(m, client, false);
}

bool shared_moves_crash(shared_moves *m, double now_s, uint32_t client)
{
    links_advance(m->links, now_s);
    bool ok = take_ended(m);
    for (uint32_t i = 0; ok && i < m->num_all; i++)
        if (m->loads[i].client == client && m->loads[i].num_moving > 0)
            ok = cancel_load(m, i, now_s);
    cancel_stores(m, client, now_s);
    if (!ok || !m->spec.is_peers)
        return ok;
    shared_tier_clear(m->tiers[client]);
    links_fail(m->links, now_s, client * NUM_PEER_LINKS + SEND_LINK);
    return take_ended(m);
}

static void add_counts(shared_tier_counts *sum, const shared_tier_counts *part)
{
    sum->places += part->places;
    sum->stored += part->stored;
    sum->coming += part->coming;
    sum->stores += part->stores;
    sum->used += part->used;
    sum->evicted += part->evicted;
    sum->refused += part->refused;
    sum->failed += part->failed;
    sum->lost += part->lost;
}

shared_stats shared_moves_finish(shared_moves *m)
{
    shared_stats stats = m->stats;
    stats.is_peers = m->spec.is_peers;
    stats.block_bytes = m->block_bytes;
    for (uint32_t i = 0; i < m->num_places; i++) {
        shared_tier_counts counts = shared_tier_get_counts(m->tiers[i]);
        add_counts(&stats.tier, &counts);
    }
    if (!m->spec.is_peers) {
        stats.load_bytes = links_moved(m->links, LOAD_LINK);
        stats.store_bytes = links_moved(m->links, STORE_LINK);
    }
    for (uint32_t i = 0; m->spec.is_peers && i < m->num_workers; i++) {
        uint32_t first = i * NUM_PEER_LINKS;
        stats.load_bytes +=
            links_moved(m->links, first + GET_LINK) + links_moved(m->links, first + FROM_HOST_LINK);
        stats.store_bytes += links_moved(m->links, first + TO_HOST_LINK);
    }
    m->stats.load_ms = (distribution){0};
    return stats;
}
