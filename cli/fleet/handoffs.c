/* cli/fleet/handoffs.c - how handoffs go on; crash_apart.c ends them where a worker crashes. */
#include "handoffs_inner.h"
#include "output/grown.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* ---- made and unmade ----------------------------------------------------------- */

/* Links, with their bandwidths. */
static bool make_links(handoffs *h, uint32_t num_prefills, uint32_t max_transfers)
{
    const transfer_settings *s = &h->settings;
    uint32_t num_pairs = s->pair_bytes_per_s > 0 ? num_prefills * h->num_decodes : 0;
    h->first_pair = h->num_nodes;
    h->fabric = h->num_nodes + num_pairs;
    h->links = links_create(h->fabric + 1, max_transfers);
    if (h->links == NULL)
        return false;
    for (uint32_t i = 0; i < h->num_nodes; i++)
        links_set_bandwidth(h->links, 0, i, h->nodes[i].bytes_per_s);
    for (uint32_t i = 0; i < num_pairs; i++)
        links_set_bandwidth(h->links, 0, h->first_pair + i, s->pair_bytes_per_s);
    links_set_bandwidth(h->links, 0, h->fabric, s->fabric_bytes_per_s);
    return true;
}

handoffs *handoffs_open(const transfer_settings *settings, const handoff_node *nodes,
                        uint32_t num_nodes)
{
    handoffs *h = calloc(1, sizeof *h);
    uint32_t num_prefills = 0;
    uint32_t max_transfers = 0;
    if (h == NULL)
        return NULL;
    *h = (handoffs){.settings = *settings,
                    .num_nodes = num_nodes,
                    .first_free = NONE,
                    .first_leased = NONE,
                    .last_leased = NONE};
    h->nodes = calloc(num_nodes, sizeof *h->nodes);
    h->ranks = calloc(num_nodes, sizeof *h->ranks);
    for (uint32_t i = 0; h->nodes != NULL && h->ranks != NULL && i < num_nodes; i++) {
        h->nodes[i] = nodes[i];
        bool is_decode = nodes[i].role == ROUTER_DECODE;
        h->ranks[i] = is_decode ? h->num_decodes++ : num_prefills++;
        max_transfers += is_decode ? nodes[i].worker->engine.max_requests : 0;
    }
    if (h->nodes == NULL || h->ranks == NULL || !make_links(h, num_prefills, max_transfers)) {
        handoffs_close(h);
        return NULL;
    }
    return h;
}

void handoffs_close(handoffs *h)
{
    if (h == NULL)
        return;
    for (uint32_t i = 0; i < h->num_all; i++)
        if (h->all[i].is_open && !h->all[i].is_given) /* or NULL */
            fleet_request_free(h->all[i].it);
    links_destroy(h->links);
    distribution_free(&h->stats.wait_ms);
    distribution_free(&h->stats.move_ms);
    free(h->all);
    free(h->nodes);
    free(h->ranks);
    free(h);
}

/* ---- one handoff --------------------------------------------------------------- */

static void begin_lease(handoffs *h, handoff *x, double now_s)
{
    uint32_t id = (uint32_t)(x - h->all);
    x->is_leased = true;
    x->lease_end_s = now_s + h->settings.lease_s;
    x->next_leased = NONE;
    x->prev_leased = h->last_leased;
    *(h->last_leased == NONE ? &h->first_leased : &h->all[h->last_leased].next_leased) = id;
    h->last_leased = id;
}

static void end_lease(handoffs *h, handoff *x)
{
    if (!x->is_leased)
        return;
    x->is_leased = false;
    *(x->prev_leased == NONE ? &h->first_leased : &h->all[x->prev_leased].next_leased) =
        x->next_leased;
    *(x->next_leased == NONE ? &h->last_leased : &h->all[x->next_leased].prev_leased) =
        x->prev_leased;
}

void handoff_end(handoffs *h, handoff *x)
{
    end_lease(h, x);
    *x = (handoff){.next_free = h->first_free};
    h->first_free = (uint32_t)(x - h->all);
    h->num_open--;
}

bool handoff_release(handoffs *h, handoff *x, double now_s)
{
    bool ok = worker_sent(h->nodes[x->prefill].worker, x->prefill_req, now_s);
    h->has_changed = true;
    handoff_end(h, x);
    return ok;
}

/* The same number for the same request and seed, 0 to 1. */
static double chance_of(const handoffs *h, const handoff *x)
{
    uint64_t z = h->settings.seed + (x->it->number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

bool handoff_tell_received(handoffs *h, handoff *x, bool has_failed, double now_s)
{
    ((fleet_request *)x->it->note)->remote.has_failed = has_failed;
    h->has_changed = true;
    return worker_received(h->nodes[x->decode].worker, x->decode_req, has_failed, now_s);
}

static bool end_transfer(handoffs *h, handoff *x, double now_s)
{
    handoff_stats *s = &h->stats;
    bool has_failed = chance_of(h, x) < h->settings.failures;
    fleet_request *request = x->it->note;
    h->num_moving--;
    s->transfers++;
    s->failed += has_failed;
    if (!has_failed) {
        s->moved_blocks += x->num_blocks;
        s->moved_bytes += x->num_blocks * h->nodes[x->prefill].block_bytes;
    }
    if (x->it->first_token_s == 0) { /* else it has those that led to the first token */
        request->transfer_start_s = x->start_s;
        request->transfer_end_s = now_s;
        request->moved_blocks = x->num_blocks;
    }
    distribution_add(&s->wait_ms, (now_s - x->blocks_s) * 1e3);
    distribution_add(&s->move_ms, (now_s - x->start_s) * 1e3);
    return handoff_tell_received(h, x, has_failed, now_s) && handoff_release(h, x, now_s);
}

void handoff_cancel(handoffs *h, handoff *x, double now_s)
{
    if (!x->is_moving)
        return;
    if (x->transfer != LINKS_NONE)
        (void)links_cancel(h->links, now_s, x->transfer);
    x->is_moving = false;
    x->transfer = LINKS_NONE;
    h->num_moving--;
    h->stats.cancelled++;
}

static bool start(handoffs *h, handoff *x, double now_s, double latency_s, double bytes)
{
    const transfer_settings *s = &h->settings;
    uint32_t route[LINKS_MAX_ROUTE] = {x->prefill, x->decode};
    uint32_t n = 2;
    if (s->pair_bytes_per_s > 0)
        route[n++] = h->first_pair + h->ranks[x->prefill] * h->num_decodes + h->ranks[x->decode];
    if (s->fabric_bytes_per_s > 0)
        route[n++] = h->fabric;
    x->transfer = links_start(h->links, now_s, latency_s, bytes, route, n, (uint64_t)(x - h->all));
    return x->transfer != LINKS_NONE;
}

/* Its transfer begins, if both sides are there. */
static bool try_to_move(handoffs *h, handoff *x, double now_s)
{
    const handoff_node *from = &h->nodes[x->prefill];
    double bytes = x->num_blocks * from->block_bytes;
    if (!x->has_blocks || x->is_moving || !(x->is_computed || x->is_begun))
        return true;
    double start_s = x->blocks_s > now_s ? x->blocks_s : now_s;
    if (!x->is_computed) { /* once its first layer is computed */
        double layer_s = (x->ended_s - x->begun_s) / from->num_layers;
        start_s = x->begun_s + layer_s > start_s ? x->begun_s + layer_s : start_s;
        x->last_bytes = bytes / from->num_layers;
    }
    x->is_moving = true;
    end_lease(h, x);
    x->start_s = start_s;
    h->num_moving++;
    h->stats.most_open = h->num_moving > h->stats.most_open ? h->num_moving : h->stats.most_open;
    return start(h, x, now_s, start_s - now_s + h->settings.latency_s, bytes - x->last_bytes);
}

/* ---- what happens to a request -------------------------------------------------- */

static handoff *add(handoffs *h)
{
    uint32_t id = h->first_free;
    if (id == NONE) {
        if (!grow(&h->all, h->num_all, &h->capacity, NONE - 1, sizeof *h->all))
            return NULL;
        id = h->num_all++;
    } else {
        h->first_free = h->all[id].next_free;
    }
    h->all[id] = (handoff){.is_open = true, .transfer = LINKS_NONE};
    h->num_open++;
    return &h->all[id];
}

/* The copy for the prefill worker, which generates one token. NULL: no memory. */
static arrival *prefill_of(const arrival *it, uint32_t prefill)
{
    const fleet_request *request = it->note;
    size_t num_bytes = (size_t)request->num_hashes * request->hash_bytes;
    arrival *copy = arrival_copy(it);
    fleet_request *note = calloc(1, sizeof *note);
    unsigned char *hashes = request->hashes != NULL ? malloc(num_bytes + 1) : NULL;
    if (copy == NULL || note == NULL || (request->hashes != NULL && hashes == NULL)) {
        free(hashes);
        free(note);
        arrival_free(copy);
        return NULL;
    }
    *note = *request;
    note->worker = prefill;
    note->has_follower = true; /* the decode worker's part */
    note->hashes = hashes;
    if (hashes != NULL)
        memcpy(hashes, request->hashes, num_bytes);
    copy->note = note;
    copy->part = ARRIVAL_PREFILL;
    copy->request.num_output_tokens = 1;
    return copy;
}

static bool give_rest(handoffs *h, handoff *x, double now_s)
{
    x->is_given = true;
    h->has_changed = true;
    return worker_give(h->nodes[x->decode].worker, x->it, now_s);
}

bool handoffs_begin(handoffs *h, arrival *it, uint32_t prefill, uint32_t decode, double now_s)
{
    fleet_request *request = it->note;
    handoff *x = add(h);
    if (x == NULL) {
        fleet_request_free(it);
        return false;
    }
    request->remote.handoff = (uint32_t)(x - h->all);
    if (it->first_token_s == 0)
        request->prefill_worker = prefill;
    it->part = ARRIVAL_DECODE;
    x->it = it;
    x->prefill = prefill;
    x->decode = decode;
    x->copy = prefill_of(it, prefill);
    request->lost_tokens = 0; /* the copy has them */
    h->has_changed = true;
    if (x->copy == NULL || !worker_give(h->nodes[prefill].worker, x->copy, now_s))
        return false;
    return h->settings.mode == TRANSFER_PULL || give_rest(h, x, now_s);
}

uint32_t handoffs_decode_of(const handoffs *h, const arrival *it)
{
    return handoff_of(h, it)->decode;
}

bool handoffs_computing(handoffs *h, const arrival *it, double now_s)
{
    const remote_part *p = &((const fleet_request *)it->note)->remote;
    handoff *x = handoff_of(h, it);
    x->is_begun = true;
    x->begun_s = p->start_s;
    x->ended_s = p->end_s;
    return x->it == NULL || try_to_move(h, x, now_s);
}

bool handoffs_computed(handoffs *h, const arrival *it, double now_s)
{
    const fleet_request *prefill = it->note;
    handoff *x = handoff_of(h, it);
    h->stats.prefills++;
    x->is_computed = true;
    x->copy = NULL;
    x->prefill_req = prefill->remote.req;
    if (x->it == NULL)
        return handoff_release(h, x, now_s);
    fleet_request *request = x->it->note;
    x->it->is_counted = true;
    request->is_begun = true;
    if (x->it->first_token_s == 0) {
        request->scheduled_s = prefill->scheduled_s;
        request->computed_s = now_s;
    }
    request->hit_tokens = prefill->hit_tokens;
    if (!x->is_moving)
        begin_lease(h, x, now_s);
    if (!x->is_given)
        return give_rest(h, x, now_s);
    if (x->waits_for_last) {
        double bytes = x->last_bytes;
        x->last_bytes = 0;
        return start(h, x, now_s, 0, bytes);
    }
    return try_to_move(h, x, now_s);
}

bool handoffs_loading(handoffs *h, const arrival *it, uint32_t num_tokens, double now_s)
{
    const fleet_request *request = it->note;
    handoff *x = handoff_of(h, it);
    uint32_t block_size = h->nodes[x->prefill].block_size;
    uint32_t num_blocks = (it->request.num_prompt_tokens + block_size - 1) / block_size;
    uint32_t num_local = request->remote.local_tokens / block_size;
    x->has_blocks = true;
    x->decode_req = request->remote.req;
    x->blocks_s = request->remote.start_s;
    h->stats.local_tokens += request->remote.local_tokens;
    if (num_tokens == 0) {
        h->stats.needless++;
        x->it = NULL; /* it may end before its prefill does */
        return x->is_computed ? handoff_release(h, x, now_s) : true;
    }
    if (x->has_no_prefill) {
        bool ok = handoff_tell_received(h, x, true, now_s);
        handoff_end(h, x);
        return ok;
    }
    x->num_blocks = h->settings.part == TRANSFER_ALL ? num_blocks : num_blocks - num_local;
    return try_to_move(h, x, now_s);
}

bool handoffs_left_out(handoffs *h, const arrival *it, double now_s, arrival **rest)
{
    handoff *x = handoff_of(h, it);
    bool ok = true;
    *rest = NULL;
    if (it->part == ARRIVAL_DECODE) {
        x->it = NULL;
        if (x->has_no_prefill)
            handoff_end(h, x);
        else if (x->is_computed)
            ok = handoff_release(h, x, now_s);
        return ok;
    }
    x->has_no_prefill = true;
    x->copy = NULL;
    if (!x->is_given) {
        *rest = x->it;
        handoff_end(h, x);
    } else if (x->it == NULL) {
        handoff_end(h, x);
    } else if (x->has_blocks) {
        ok = handoff_tell_received(h, x, true, now_s);
        handoff_end(h, x);
    }
    return ok;
}

void handoffs_recomputed(handoffs *h, const arrival *it, uint32_t num_cached)
{
    if (((const fleet_request *)it->note)->remote.has_failed)
        h->stats.recomputed_tokens += it->request.num_prompt_tokens - num_cached;
}

/* ---- time ------------------------------------------------------------------------- */

double handoffs_next_s(const handoffs *h)
{
    if (h == NULL)
        return HUGE_VAL;
    double next_s = links_next_s(h->links);
    double lease_s = h->first_leased == NONE ? HUGE_VAL : h->all[h->first_leased].lease_end_s;
    return lease_s < next_s ? lease_s : next_s;
}

/* Its KV is lost before it was asked for. */
static bool expire(handoffs *h, handoff *x, double now_s)
{
    end_lease(h, x);
    x->has_no_prefill = true;
    h->has_changed = true;
    h->stats.expired++;
    return worker_sent(h->nodes[x->prefill].worker, x->prefill_req, now_s);
}

bool handoffs_advance(handoffs *h, double now_s)
{
    links_ended ended;
    bool ok = true;
    links_advance(h->links, now_s);
    while (ok && links_take(h->links, &ended)) {
        handoff *x = &h->all[ended.user];
        x->transfer = LINKS_NONE;
        if (x->last_bytes == 0) {
            ok = end_transfer(h, x, ended.time_s);
            continue;
        }
        x->waits_for_last = !x->is_computed;
        if (x->is_computed) {
            double bytes = x->last_bytes;
            x->last_bytes = 0;
            ok = start(h, x, ended.time_s, 0, bytes);
            links_advance(h->links, now_s);
        }
    }
    while (ok && h->first_leased != NONE && h->all[h->first_leased].lease_end_s <= now_s)
        ok = expire(h, &h->all[h->first_leased], now_s);
    return ok;
}

bool handoffs_take_changes(handoffs *h)
{
    bool has_changed = h->has_changed;
    h->has_changed = false;
    return has_changed;
}

uint32_t handoffs_num_open(const handoffs *h)
{
    return h == NULL ? 0 : h->num_open;
}

handoff_stats *handoffs_stats(handoffs *h)
{
    return &h->stats;
}

double handoffs_node_bytes(const handoffs *h, uint32_t node)
{
    return links_moved(h->links, node);
}
