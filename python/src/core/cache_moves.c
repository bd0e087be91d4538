/* cache_moves.c - Cache: questions that change nothing, copies on write, and requests that move to
 * host memory and back (quire/cache.h). */
#include "cache.h"

const py_name py_locations[] = {{"none", QUIRE_LOCATION_NONE},
                                {"device", QUIRE_LOCATION_DEVICE},
                                {"host", QUIRE_LOCATION_HOST},
                                {NULL, 0}};

/* True, False for want of blocks or places, or an exception. */
static PyObject *fits(PyObject *object, int status)
{
    if (status == QUIRE_OK || status == QUIRE_NO_SPACE || status == QUIRE_FULL)
        return PyBool_FromLong(status == QUIRE_OK);
    return py_fail(object, status);
}

PyObject *py_cache_copy_on_write(PyObject *object, PyObject *args)
{
    unsigned long long seq;
    unsigned int first;
    unsigned int num;
    if (!PyArg_ParseTuple(args, "KII:copy_on_write", &seq, &first, &num))
        return NULL;
    PY_OPEN(quire_cache, cache);
    return py_done(object, quire_cache_copy_on_write(cache, seq, first, num));
}

PyObject *py_cache_can_allocate(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"seq",
                            "num_tokens",
                            "num_new_tokens",
                            "num_computed_tokens",
                            "hashes",
                            "num_lookahead_tokens",
                            NULL};
    quire_cache_request request = {0};
    quire_allocate_params params = QUIRE_ALLOCATE_PARAMS_INIT;
    unsigned long long seq;
    PyObject *source = Py_None;
    py_hashes hashes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KII|$IOI:can_allocate", names, &seq,
                                     &request.num_tokens, &params.num_new_tokens,
                                     &request.num_computed_tokens, &source,
                                     &params.num_lookahead_tokens) ||
        py_cache_hashes_get(object, source, &request, &hashes) < 0)
        return NULL;
    request.seq = seq;
    params.delay_cache_blocks = source == Py_None; /* then it is not asked for hashes */
    quire_cache *cache = py_open(object);
    PyObject *answer =
        cache != NULL ? fits(object, quire_cache_can_allocate(cache, &request, &params)) : NULL;
    py_ints_release(&hashes);
    return answer;
}

/* (seq, block, slot, group of each copy, one after the other) */
static PyObject *moved(PyObject *object, int status, quire_seq seq, const quire_block_move *moves,
                       uint32_t num_moves)
{
    if (status != QUIRE_OK)
        return py_fail(object, status);
    PyObject *view = py_copied_view(object, moves, num_moves * sizeof *moves, "I");
    return view != NULL ? Py_BuildValue("(KN)", (unsigned long long)seq, view) : NULL;
}

PyObject *py_cache_move_out(PyObject *object, PyObject *args)
{
    quire_cache_request request = {.num_tokens = 1};
    const quire_block_move *moves = NULL;
    uint32_t num_moves = 0;
    unsigned long long seq;
    if (!PyArg_ParseTuple(args, "KI:move_out", &seq, &request.num_computed_tokens))
        return NULL;
    PY_OPEN(quire_cache, cache);
    request.seq = seq;
    int status = quire_cache_move_out(cache, &request, &moves, &num_moves);
    return moved(object, status, request.seq, moves, num_moves);
}

/* What move_in and can_move_in are given. */
static int get_moved_request(PyObject *object, PyObject *args, PyObject *kwargs,
                             quire_cache_request *request, py_hashes *hashes)
{
    static char *names[] = {"seq", "num_tokens", "num_computed_tokens", "hashes", NULL};
    unsigned long long seq;
    PyObject *source = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KII|O", names, &seq, &request->num_tokens,
                                     &request->num_computed_tokens, &source) ||
        py_cache_hashes_get(object, source, request, hashes) < 0)
        return -1;
    request->seq = seq;
    return 0;
}

PyObject *py_cache_move_in(PyObject *object, PyObject *args, PyObject *kwargs)
{
    quire_cache_request request = {0};
    const quire_block_move *moves = NULL;
    uint32_t num_moves = 0;
    py_hashes hashes;
    if (get_moved_request(object, args, kwargs, &request, &hashes) < 0)
        return NULL;
    quire_cache *cache = py_open(object);
    PyObject *answer = NULL;
    if (cache != NULL) {
        int status = quire_cache_move_in(cache, &request, &moves, &num_moves);
        answer = moved(object, status, request.seq, moves, num_moves);
    }
    py_ints_release(&hashes);
    return answer;
}

PyObject *py_cache_can_move_in(PyObject *object, PyObject *args, PyObject *kwargs)
{
    quire_cache_request request = {0};
    py_hashes hashes;
    if (get_moved_request(object, args, kwargs, &request, &hashes) < 0)
        return NULL;
    quire_cache *cache = py_open(object);
    PyObject *answer =
        cache != NULL ? fits(object, quire_cache_can_move_in(cache, &request)) : NULL;
    py_ints_release(&hashes);
    return answer;
}

PyObject *py_cache_location(PyObject *object, PyObject *argument)
{
    quire_seq seq = PyLong_AsUnsignedLongLong(argument);
    PY_OPEN(quire_cache, cache);
    return PyUnicode_FromString(
        py_name_text(py_locations, (int)quire_cache_get_location(cache, seq)));
}

PyObject *py_cache_find_token(PyObject *object, PyObject *args)
{
    unsigned long long seq;
    unsigned int token;
    unsigned int group = 0;
    quire_token_place place;
    if (!PyArg_ParseTuple(args, "KI|I:find_token", &seq, &token, &group))
        return NULL;
    PY_OPEN(quire_cache, cache);
    PY_CALL(quire_cache_find_token(cache, seq, group, token, &place));
    return Py_BuildValue("(III)", place.block, place.index, place.offset);
}

static const py_field block_fields[] = {
    PY_FIELD_NAMED(quire_cache_block, "location", location, PY_FIELD_NAME, py_locations),
    PY_FIELD(quire_cache_block, ref_cnt, PY_FIELD_U32),
    PY_FIELD(quire_cache_block, num_holds, PY_FIELD_U32),
    PY_FIELD(quire_cache_block, has_key, PY_FIELD_BOOL),
    PY_FIELD(quire_cache_block, num_tokens, PY_FIELD_U32),
    PY_FIELD(quire_cache_block, block_size, PY_FIELD_U32),
    PY_FIELDS_END};

/* None where there is none. */
static PyObject *id_or_none(uint32_t id)
{
    return id == UINT32_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(id);
}

PyObject *py_cache_block(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"seq", "index", "group", "num_computed_tokens", NULL};
    quire_cache_request request = {.num_tokens = 1};
    quire_cache_block block;
    unsigned long long seq;
    unsigned int index;
    unsigned int group = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KI|I$I:block", names, &seq, &index, &group,
                                     &request.num_computed_tokens))
        return NULL;
    PY_OPEN(quire_cache, cache);
    request.seq = seq;
    PY_CALL(quire_cache_get_block(cache, &request, group, index, &block));
    PyObject *dict = py_fields_dict(block_fields, &block);
    if (dict != NULL && (py_put(dict, "block", id_or_none(block.block)) < 0 ||
                         py_put(dict, "prev", id_or_none(block.prev)) < 0))
        Py_CLEAR(dict);
    return dict;
}

static const py_field total_fields[] = {
    PY_FIELD(quire_cache_totals, num_seqs, PY_FIELD_U32),
    PY_FIELD(quire_cache_totals, num_table_blocks, PY_FIELD_U64),
    PY_FIELD(quire_cache_totals, num_moved_out, PY_FIELD_U32),
    PY_FIELD(quire_cache_totals, num_host_blocks, PY_FIELD_U32),
    PY_FIELD(quire_cache_totals, num_free_host_blocks, PY_FIELD_U32),
    PY_FIELD(quire_cache_totals, num_copies, PY_FIELD_U32),
    PY_FIELD(quire_cache_totals, watermark_blocks, PY_FIELD_U32),
    PY_FIELDS_END};

PyObject *py_cache_totals(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    quire_cache_totals totals = QUIRE_CACHE_TOTALS_INIT;
    PY_OPEN(quire_cache, cache);
    PY_CALL(quire_cache_get_totals(cache, &totals));
    return py_fields_dict(total_fields, &totals);
}

static const py_field pressure_fields[] = {PY_FIELD(quire_pressure, level, PY_FIELD_F64),
                                           PY_FIELD(quire_pressure, should_admit, PY_FIELD_BOOL),
                                           PY_FIELD(quire_pressure, should_preempt, PY_FIELD_BOOL),
                                           PY_FIELDS_END};

PyObject *py_pressure_dict(PyObject *object, quire_cache *cache)
{
    quire_pressure pressure;
    PY_CALL(quire_cache_get_pressure(cache, &pressure));
    return py_fields_dict(pressure_fields, &pressure);
}

PyObject *py_cache_pressure(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    PY_OPEN(quire_cache, cache);
    return py_pressure_dict(object, cache);
}

PyObject *py_evict_cached(PyObject *object, quire_pool *pool, uint32_t num_blocks)
{
    uint32_t num_evicted;
    PY_CALL(quire_pool_evict_cached(pool, num_blocks, &num_evicted));
    return PyLong_FromUnsignedLong(num_evicted);
}

PyObject *py_take_events(PyObject *object, quire_cache *cache)
{
    py_event_log *events = &((py_handle *)object)->events;
    PY_CALL(quire_cache_take_events(cache, py_event_record, events, NULL));
    return py_event_list(events);
}

PyObject *py_cache_evict_cached(PyObject *object, PyObject *argument)
{
    uint32_t num_blocks = py_u32(argument);
    PY_OPEN(quire_cache, cache);
    return py_evict_cached(object, quire_cache_get_pool(cache), num_blocks);
}
