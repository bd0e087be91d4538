/* router_open.c - creation of the routers: routers_open and what belongs to it, of router.h. */
#include "costs.h"
#include "router_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void routers_defaults(const router_policy *policy, routers_settings *settings)
{
    *settings = (routers_settings){.policy = policy, .num_routers = 1, .block_size = 16};
    settings->view.knowledge = policy->knowledge;
    settings->max_workers = 1;
}

static bool refuse(char why[256], const char *field, double value, const char *range)
{
    snprintf(why, 256, "invalid %s %g (expected %s)", field, value, range);
    return false;
}

static bool is_negative_or_nan(double v)
{
    return !(v >= 0);
}

static bool check_settings(const routers_settings *s, char why[256])
{
    const router_view_settings *v = &s->view;
    if (s->max_workers < 1 || s->max_workers > ROUTER_MAX_WORKERS)
        return refuse(why, "max_workers", s->max_workers, "1 to 65535");
    if (s->block_size < 1)
        return refuse(why, "block_size", s->block_size, "at least 1");
    if (s->num_routers > ROUTER_MAX_WORKERS)
        return refuse(why, "num_routers", s->num_routers, "1 to 65535");
    if (is_negative_or_nan(v->kv_lag_s))
        return refuse(why, "kv_lag_s", v->kv_lag_s, "at least 0");
    if (!(v->kv_loss >= 0 && v->kv_loss <= 1))
        return refuse(why, "kv_loss", v->kv_loss, "0 to 1");
    if (is_negative_or_nan(v->resync_s))
        return refuse(why, "resync_s", v->resync_s, "at least 0");
    if (is_negative_or_nan(v->knowledge.ttl_s))
        return refuse(why, "ttl_s", v->knowledge.ttl_s, "at least 0");
    if (is_negative_or_nan(v->knowledge.metrics_every_s))
        return refuse(why, "metrics_every_s", v->knowledge.metrics_every_s, "at least 0");
    if (!(v->metrics_lag_s >= 0 && v->metrics_lag_s <= v->knowledge.metrics_every_s))
        return refuse(why, "metrics_lag_s", v->metrics_lag_s, "0 to metrics_every_s");
    return true;
}

static bool check_values(const router_policy *policy, const double *values, char why[256])
{
    const router_option *o = policy->options;
    for (uint32_t i = 0; o != NULL && o[i].name != NULL; i++) {
        if (values[i] >= o[i].min && values[i] <= o[i].max &&
            (!o[i].is_whole || values[i] == floor(values[i])))
            continue;
        snprintf(why, 256, "invalid %s %g for router %s (expected %s%g to %g)", o[i].name,
                 values[i], policy->name, o[i].is_whole ? "a whole number from " : "", o[i].min,
                 o[i].max);
        return false;
    }
    return true;
}

static void take_values(routers *r)
{
    const router_option *o = r->policy->options;
    for (uint32_t i = 0; o != NULL && o[i].name != NULL; i++)
        r->values[i] = r->settings.values == NULL ? o[i].def : r->settings.values[i];
    r->settings.values = r->values;
}

static bool hears_events(const routers *r)
{
    router_index index = r->settings.view.knowledge.index;
    return index == ROUTER_INDEX_EVENTS || index == ROUTER_INDEX_BOTH;
}

/* Routers that hear all events at once share the exact index. */
static bool is_exact(const router_view_settings *v)
{
    return v->kv_lag_s <= 0 && v->kv_loss <= 0 && !v->has_losses;
}

static bool open_router(routers *r, uint32_t i, char why[256])
{
    one_router *one = &r->each[i];
    const router_view_settings *knows = &r->settings.view;
    bool has_feed = true;
    one->random = r->settings.seed + i * UINT64_C(0x9e3779b97f4a7c15);
    if (hears_events(r) && !is_exact(knows)) {
        kv_feed_settings feed = {r->settings.max_workers, knows->kv_lag_s, knows->kv_loss,
                                 knows->resync_s,         r->truth,        r->settings.seed + i};
        one->feed = kv_feed_open(&feed);
        has_feed = one->feed != NULL;
    }
    view_settings settings = {
        .policy = r->policy,
        .knows = *knows,
        .max_workers = r->settings.max_workers,
        .block_size = r->settings.block_size,
        .feed = one->feed != NULL ? one->feed : r->truth,
        .exact_hits = hears_events(r) && is_exact(knows) ? r->settings.exact_hits : NULL,
        .exact_context = r->settings.exact_context};
    r->asks_caches = r->asks_caches || settings.exact_hits != NULL;
    if (!view_open(&one->view, &settings) || !has_feed) {
        snprintf(why, 256, "out of memory for the view of router %u", i);
        view_close(&one->view);
        kv_feed_close(one->feed);
        return false;
    }
    if (r->policy->open != NULL &&
        !r->policy->open(r->values, r->settings.max_workers, &one->state, why)) {
        view_close(&one->view);
        kv_feed_close(one->feed);
        return false;
    }
    r->num_open = i + 1;
    return true;
}

static bool open_all(routers *r, char why[256])
{
    uint32_t max_workers = r->settings.max_workers;
    bool is_exact_index = is_exact(&r->settings.view);
    bool needs_truth = hears_events(r) && (is_exact_index ? r->settings.exact_hits == NULL
                                                          : r->settings.view.resync_s > 0);
    if (needs_truth)
        r->truth = kv_feed_open(&(kv_feed_settings){.max_workers = max_workers});
    r->each = calloc(r->settings.num_routers, sizeof *r->each);
    bool has_candidates = true;
    for (uint32_t role = 0; role < 3; role++) {
        r->candidates[role] = calloc(max_workers, sizeof *r->candidates[role]);
        has_candidates = has_candidates && r->candidates[role] != NULL;
    }
    if ((needs_truth && r->truth == NULL) || r->each == NULL || !has_candidates) {
        snprintf(why, 256, "out of memory for %u routers", r->settings.num_routers);
        return false;
    }
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        if (!open_router(r, i, why))
            return false;
    return true;
}

void routers_begin_reports(routers *r, double now_s)
{
    double every_s = r->settings.view.knowledge.metrics_every_s;
    if (every_s > 0 && isinf(r->next_tick_s))
        r->next_tick_s = now_s + every_s;
}

bool routers_open(const routers_settings *settings, routers **out, char why[256])
{
    routers *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        snprintf(why, 256, "out of memory for routers");
        return false;
    }
    r->settings = *settings;
    r->policy = settings->policy;
    r->settings.num_routers = settings->num_routers == 0 ? 1 : settings->num_routers;
    r->free_flight = PAIR_MAP_NONE;
    if (r->policy->needs & ROUTER_IS_ORACLE)
        r->settings.view = (router_view_settings){.knowledge = r->policy->knowledge};
    costs_complete(&r->settings.costs);
    r->next_tick_s = INFINITY;
    if (r->policy->needs & ROUTER_NEEDS_REPORTS)
        routers_begin_reports(r, 0);
    take_values(r);
    if (!check_settings(&r->settings, why) || !check_values(r->policy, r->values, why) ||
        !open_all(r, why)) {
        routers_close(r);
        return false;
    }
    *out = r;
    return true;
}

void routers_close(routers *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->num_open; i++) {
        if (r->policy->close != NULL)
            r->policy->close(r->each[i].state);
        view_close(&r->each[i].view);
        kv_feed_close(r->each[i].feed);
    }
    kv_feed_close(r->truth);
    pair_map_free(&r->numbers);
    wait_queue_free(&r->queue);
    free(r->each);
    for (uint32_t role = 0; role < 3; role++)
        free(r->candidates[role]);
    free(r->flights);
    free(r);
}
