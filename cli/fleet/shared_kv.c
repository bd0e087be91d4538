#include "shared_kv.h"

#include "output/grown.h"
#include "worker.h"

#include <stdlib.h>

static void append(shared_kv *s, key_list *list, uint64_t key)
{
    if (grow(&list->keys, list->count, &list->capacity, UINT32_MAX, sizeof *list->keys))
        list->keys[list->count++] = key;
    else
        s->no_memory = true;
}

/* The keys of the list are those of the ask. */
static void ask(shared_kv *s, shared_ask it, const key_list *list)
{
    if (list->count == 0)
        return;
    if (!grow(&s->asks, s->num_asks, &s->asks_capacity, UINT32_MAX, sizeof *s->asks)) {
        s->no_memory = true;
        return;
    }
    it.first = s->asked.count;
    it.count = list->count;
    it.time_s = s->engine->now_s;
    s->asks[s->num_asks++] = it;
    for (uint32_t i = 0; i < list->count; i++)
        append(s, &s->asked, list->keys[i]);
}

static remote_part *part_of(const live *l)
{
    return &((fleet_request *)l->from->note)->remote;
}

/* ---- the connector ------------------------------------------------------------- */

static bool has_key(const shared_kv *s, uint32_t place, uint64_t key)
{
    return shared_tier_find(s->places.tiers[place], &key, 1) > 0;
}

/* The part of the load that the block joins: of a place that has parts already, or of the first
 * place that has it, from the worker's own one on. SHARED_MAX_PARTS: none. */
static uint32_t part_with(shared_kv *s, uint64_t key)
{
    uint32_t n = s->places.count;
    for (uint32_t i = 0; i < s->num_parts; i++)
        if (has_key(s, s->found_at[i], key))
            return i;
    for (uint32_t i = 0; i < n && s->num_parts < SHARED_MAX_PARTS; i++) {
        uint32_t place = (s->places.own + i) % n;
        if (!has_key(s, place, key))
            continue;
        s->found_at[s->num_parts] = place;
        s->found[s->num_parts].count = 0;
        return s->num_parts++;
    }
    return SHARED_MAX_PARTS;
}

/* Keys of the request's blocks from the first missing one on, as far as there are places that have
 * them, into `found`. At least one token is left to be computed. */
static void find_blocks(shared_kv *s, quire_req req, uint32_t num_local)
{
    const engine *e = s->engine;
    uint32_t block_size = e->settings->block_size;
    uint32_t hashes_of_block = block_size / e->settings->hash_block_size;
    size_t digest_bytes = quire_hash_digest_bytes(e->settings->hash_algo);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    const void *hashes = NULL;
    uint32_t num_hashes = 0;
    s->num_parts = 0;
    s->num_found = 0;
    if (quire_sched_get_req_info(e->sched, req, &info) != QUIRE_OK || info.num_tokens == 0 ||
        quire_sched_get_hashes(e->sched, req, UINT32_MAX, &hashes, &num_hashes) != QUIRE_OK)
        return;
    uint32_t num_blocks = (info.num_tokens - 1) / block_size;
    if (num_hashes / hashes_of_block < num_blocks)
        num_blocks = num_hashes / hashes_of_block;
    for (uint32_t i = num_local / block_size; i < num_blocks; i++) {
        const unsigned char *hash = hashes;
        uint64_t key;
        memcpy(&key, hash + ((size_t)(i + 1) * hashes_of_block - 1) * digest_bytes, sizeof key);
        uint32_t part = part_with(s, key);
        if (part == SHARED_MAX_PARTS)
            break;
        append(s, &s->found[part], key);
        s->num_found++;
    }
}

static int find_tokens(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    shared_kv *s = user;
    *num_external = 0;
    *is_async = 0;
    if (num_local % s->engine->settings->block_size != 0)
        return QUIRE_OK;
    find_blocks(s, req, num_local);
    *num_external = s->num_found * s->engine->settings->block_size;
    *is_async = s->num_found > 0;
    return QUIRE_OK;
}

static void note_blocks(void *user, quire_req req, const quire_block_span *blocks,
                        uint32_t num_external)
{
    shared_kv *s = user;
    const live *l = engine_live(s->engine, req);
    uint32_t block_size = s->engine->settings->block_size;
    uint32_t own_blocks = 0;
    (void)blocks;
    if (num_external == 0)
        return;
    for (uint32_t i = 0; i < s->num_parts; i++)
        own_blocks += s->found_at[i] == s->places.own ? s->found[i].count : 0;
    if (l->scheduled_s < 0) { /* what it loads counts as a hit; later loads bring it back */
        remote_part *p = part_of(l);
        p->has_failed = false;
        p->loaded_tokens = num_external;
        p->peer_tokens = num_external - own_blocks * block_size;
    }
    s->remote->num_loading++;
    for (uint32_t i = 0; i < s->num_parts; i++)
        ask(s,
            (shared_ask){.way = SHARED_TIER_LOAD,
                         .req = req,
                         .place = s->found_at[i],
                         .num_more = s->num_parts - 1 - i},
            &s->found[i]);
}

void shared_kv_open(shared_kv *s, const shared_places *places, engine *e, remote_kv *r,
                    quire_connector *connector)
{
    *s = (shared_kv){.places = *places, .engine = e, .remote = r};
    *r = (remote_kv){.engine = e};
    *connector = (quire_connector)QUIRE_CONNECTOR_INIT;
    connector->user = s;
    connector->get_num_new_matched_tokens = find_tokens;
    connector->update_state_after_alloc = note_blocks;
    connector->is_kv_consumer = 1;
}

void shared_kv_close(shared_kv *s)
{
    for (uint32_t i = 0; i < SHARED_MAX_PARTS; i++)
        free(s->found[i].keys);
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++)
        free(s->filling[i].keys);
    free(s->filled.keys);
    free(s->asks);
    free(s->asked.keys);
}

/* ---- steps ------------------------------------------------------------------------ */

void shared_kv_cached(shared_kv *s, uint64_t key)
{
    const engine *e = s->engine;
    uint32_t next = (e->first_flight + e->num_flights) % REPLAY_BATCHES;
    append(s, s->is_scheduling ? &s->filling[next] : &s->filled, key);
}

void shared_kv_begin(shared_kv *s)
{
    s->is_scheduling = true;
}

void shared_kv_began(shared_kv *s)
{
    s->is_scheduling = false;
}

void shared_kv_ended(shared_kv *s, uint32_t ended)
{
    ask(s, (shared_ask){.way = SHARED_TIER_STORE}, &s->filling[ended]);
    ask(s, (shared_ask){.way = SHARED_TIER_STORE}, &s->filled);
    s->filling[ended].count = 0;
    s->filled.count = 0;
}

void shared_kv_crashed(shared_kv *s)
{
    for (uint32_t i = 0; i < REPLAY_BATCHES; i++)
        s->filling[i].count = 0;
    s->filled.count = 0;
}

void shared_kv_taken(shared_kv *s)
{
    s->num_asks = 0;
    s->asked.count = 0;
}

bool shared_kv_received(shared_kv *s, quire_req req, bool has_failed)
{
    const live *l = engine_live(s->engine, req);
    if (has_failed && l->from != NULL && l->scheduled_s < 0)
        part_of(l)->has_failed = true;
    return remote_kv_received(s->remote, req, has_failed);
}
