/* stats.c - counters as dicts of whole numbers. */
#include "connector.h"

static int put(PyObject *dict, const char *name, uint64_t value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int failed = number == NULL || PyDict_SetItemString(dict, name, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

#define PUT(dict, stats, field) put(dict, #field, (uint64_t)(stats)->field)

static PyObject *tier_counts(const quire_offload_stats *stats, uint32_t i)
{
    PyObject *dict = PyDict_New();
    if (dict != NULL && (PUT(dict, &stats->tiers[i], hit_tokens) < 0 ||
                         PUT(dict, &stats->tiers[i], promoted_blocks) < 0 ||
                         PUT(dict, &stats->tiers[i], stored_blocks) < 0 ||
                         PUT(dict, &stats->tiers[i], failed_blocks) < 0 ||
                         PUT(dict, &stats->tiers[i], late_blocks) < 0 ||
                         PUT(dict, &stats->tiers[i], skipped_tokens) < 0 ||
                         PUT(dict, &stats->tiers[i], not_admitted) < 0 ||
                         PUT(dict, &stats->tiers[i], dropped_blocks) < 0))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *make_tier_counts(const void *user, uint32_t i)
{
    return tier_counts(user, i);
}

PyObject *planner_stats(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const quire_planner *p = ((planner *)self)->planner;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    quire_transfer_stats sent = QUIRE_TRANSFER_STATS_INIT;
    if (quire_planner_get_stats(p, &stats) != QUIRE_OK ||
        quire_planner_get_transfer_stats(p, &sent) != QUIRE_OK)
        return PyErr_Format(PyExc_RuntimeError, "no stats");
    PyObject *dict = PyDict_New();
    PyObject *tiers = py_list_of(QUIRE_TRANSFER_MAX_TIERS, make_tier_counts, &stats);
    if (dict == NULL || tiers == NULL || PyDict_SetItemString(dict, "tiers", tiers) < 0 ||
        PUT(dict, &stats, stored_blocks) < 0 || PUT(dict, &stats, loaded_blocks) < 0 ||
        PUT(dict, &stats, failed_loads) < 0 || PUT(dict, &stats, failed_stores) < 0 ||
        PUT(dict, &stats, no_room) < 0 || PUT(dict, &stats, hit_tokens) < 0 ||
        PUT(dict, &stats, stores_in_flight) < 0 || PUT(dict, &stats, loads_in_flight) < 0 ||
        put(dict, "cached_blocks", stats.cpu.cached) < 0 || PUT(dict, &sent, plans) < 0 ||
        PUT(dict, &sent, plan_bytes) < 0 || PUT(dict, &sent, rank_failures) < 0 ||
        PUT(dict, &sent, lost_workers) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(tiers);
    return dict;
}

/* Counters only grow: so does their sum. */
static uint64_t sum_of(const quire_offload_stats *stats)
{
    uint64_t sum = stats->stored_blocks + stats->loaded_blocks + stats->failed_loads +
                   stats->failed_stores + stats->no_room + stats->hit_tokens;
    for (uint32_t i = 0; i < QUIRE_TRANSFER_MAX_TIERS; i++)
        sum += stats->tiers[i].hit_tokens + stats->tiers[i].promoted_blocks +
               stats->tiers[i].stored_blocks + stats->tiers[i].failed_blocks +
               stats->tiers[i].late_blocks + stats->tiers[i].skipped_tokens +
               stats->tiers[i].not_admitted + stats->tiers[i].dropped_blocks;
    return sum;
}

PyObject *planner_has_counted(PyObject *self, PyObject *Py_UNUSED(unused))
{
    planner *p = (planner *)self;
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    if (quire_planner_get_stats(p->planner, &stats) != QUIRE_OK)
        return PyErr_Format(PyExc_RuntimeError, "no stats");
    uint64_t before = p->counted;
    p->counted = sum_of(&stats);
    return PyBool_FromLong(p->counted != before);
}

static PyObject *one_tier(quire_tier *tier)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    PyObject *dict = PyDict_New();
    if (quire_tier_get_stats(tier, &stats) != QUIRE_OK)
        Py_CLEAR(dict);
    if (dict != NULL &&
        (put(dict, "health", (uint64_t)stats.health) < 0 || PUT(dict, &stats, bytes_loaded) < 0 ||
         PUT(dict, &stats, bytes_stored) < 0 || PUT(dict, &stats, late) < 0 ||
         PUT(dict, &stats, breaker_opened) < 0 ||
         put(dict, "used_bytes", stats.space.used_bytes) < 0 ||
         put(dict, "capacity_bytes", stats.space.capacity_bytes) < 0))
        Py_CLEAR(dict);
    return dict;
}

static PyObject *make_tier(const void *tiers, uint32_t i)
{
    return one_tier(((quire_tier *const *)tiers)[i]);
}

PyObject *connector_worker_stats(const quire_worker *worker, quire_tier *const *tiers,
                                 uint32_t num_tiers)
{
    quire_worker_stats stats = QUIRE_WORKER_STATS_INIT;
    if (quire_worker_get_stats(worker, &stats) != QUIRE_OK)
        return PyErr_Format(PyExc_RuntimeError, "no stats");
    PyObject *dict = PyDict_New();
    PyObject *list = py_list_of(num_tiers, make_tier, tiers);
    if (dict == NULL || list == NULL || PyDict_SetItemString(dict, "tiers", list) < 0 ||
        PUT(dict, &stats, copies_in) < 0 || PUT(dict, &stats, copies_out) < 0 ||
        PUT(dict, &stats, failed_copies) < 0 || PUT(dict, &stats, loaded_keys) < 0 ||
        PUT(dict, &stats, stored_keys) < 0 || PUT(dict, &stats, missing_keys) < 0 ||
        PUT(dict, &stats, corrupt_keys) < 0 || PUT(dict, &stats, late_keys) < 0 ||
        PUT(dict, &stats, failed_keys) < 0 || PUT(dict, &stats, dropped_keys) < 0 ||
        PUT(dict, &stats, jobs_in_flight) < 0)
        Py_CLEAR(dict);
    Py_XDECREF(list);
    return dict;
}

/* Of what QuireStats has of a worker. */
PyObject *connector_worker_has_counted(const quire_worker *worker, quire_tier *const *tiers,
                                       uint32_t num_tiers, uint64_t *counted)
{
    quire_worker_stats stats = QUIRE_WORKER_STATS_INIT;
    int status = quire_worker_get_stats(worker, &stats);
    uint64_t before = *counted;
    *counted = stats.corrupt_keys;
    for (uint32_t i = 0; i < num_tiers && status == QUIRE_OK; i++) {
        quire_tier_stats tier = QUIRE_TIER_STATS_INIT;
        status = quire_tier_get_stats(tiers[i], &tier);
        *counted += tier.bytes_loaded + tier.bytes_stored + tier.breaker_opened;
    }
    if (status != QUIRE_OK)
        return PyErr_Format(PyExc_RuntimeError, "no stats");
    return PyBool_FromLong(*counted != before);
}
