/* plan.c - Plan: from a model's layers to groups and blocks (quire/plan.h). */
#include "core.h"

/* ---- plans ----------------------------------------------------------------- */

typedef struct plan_object {
    PyObject ob_base;
    quire_plan *plan;
} plan_object;

#define U32(name)    PY_FIELD(quire_plan_params, name, PY_FIELD_U32)
#define SWITCH(name) PY_FIELD(quire_plan_params, name, PY_FIELD_SWITCH)
static const py_field plan_fields[] = {U32(max_model_len),      U32(max_num_batched_tokens),
                                       U32(max_encoder_tokens), SWITCH(auto_fit),
                                       SWITCH(hybrid),          U32(num_blocks_override),
                                       U32(dcp_world_size),     U32(pcp_world_size),
                                       SWITCH(use_eagle),       U32(block_size),
                                       U32(hash_block_size),    SWITCH(enable_caching),
                                       SWITCH(use_connector),   PY_FIELDS_END};

/* One number is one worker with all layers; a list has one for each worker. */
static int get_workers(PyObject *memory, py_ints *bytes, quire_plan_worker **workers)
{
    int err;
    if (PyLong_Check(memory)) {
        PyObject *list = Py_BuildValue("[O]", memory);
        err = list != NULL ? py_ints_get(list, 'Q', "memory_bytes", bytes) : -1;
        Py_XDECREF(list);
    } else {
        err = py_ints_get(memory, 'Q', "memory_bytes", bytes);
    }
    if (err < 0)
        return -1;
    *workers = PyMem_Calloc((size_t)bytes->count + 1, sizeof **workers);
    if (*workers == NULL) {
        py_ints_release(bytes);
        return PY_REFUSE_MEMORY();
    }
    for (uint32_t i = 0; i < bytes->count; i++)
        (*workers)[i].memory_bytes = ((const uint64_t *)bytes->data)[i];
    return 0;
}

static PyObject *wrap_plan(PyTypeObject *type, quire_plan_params *params)
{
    const py_state *state = PyType_GetModuleState(type);
    quire_plan_shortage shortage = QUIRE_PLAN_SHORTAGE_INIT;
    params->shortage = &shortage;
    quire_plan *made = NULL;
    int err = quire_plan_create(params, NULL, &made);
    if (err != QUIRE_OK && err != QUIRE_E_MEMORY_LIMIT)
        return py_raise_refused(state, err, false);
    if (err == QUIRE_E_MEMORY_LIMIT) {
        py_raise(state, err);
        PyObject *kind = PyErr_Occurred();
        return PyErr_Format(kind,
                            "%s: worker %u has %llu bytes, one request of %u tokens needs %llu; "
                            "%u tokens would fit",
                            quire_strerror(err), shortage.worker,
                            (unsigned long long)shortage.memory_bytes, shortage.max_model_len,
                            (unsigned long long)shortage.needed_bytes, shortage.fitting_max_len);
    }
    plan_object *self = py_new(type);
    if (self == NULL)
        quire_plan_destroy(made);
    else
        self->plan = made;
    return (PyObject *)self;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *layer_source;
    PyObject *memory;
    quire_plan_params params = QUIRE_PLAN_PARAMS_INIT;
    quire_plan_worker *workers = NULL;
    py_ints bytes;
    if (!PyArg_ParseTuple(args, "OO:Plan", &layer_source, &memory))
        return NULL;
    PyObject *rest = kwargs != NULL ? PyDict_Copy(kwargs) : PyDict_New();
    quire_layer_spec *layers = NULL;
    PyObject *self = NULL;
    if (rest != NULL && py_fields_take(plan_fields, &params, rest) == 0 &&
        py_nothing_left(rest, "Plan") == 0)
        layers = py_layers_get(layer_source, &params.num_layers);
    if (layers != NULL && get_workers(memory, &bytes, &workers) == 0) {
        params.layers = layers;
        params.workers = workers;
        params.num_workers = bytes.count;
        self = wrap_plan(type, &params);
        py_ints_release(&bytes);
    }
    PyMem_Free(workers);
    PyMem_Free(layers);
    Py_XDECREF(rest);
    return self;
}

static void plan_dealloc(PyObject *object)
{
    quire_plan_destroy(((plan_object *)object)->plan);
    py_delete(object);
}

const quire_plan *py_plan_get(const py_state *state, PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)state->plan_type)
        return ((plan_object *)object)->plan;
    return (void *)PyErr_Format(PyExc_TypeError, "plan must be a Plan");
}

/* ---- looking at plans ------------------------------------------------------ */

static const py_field info_fields[] = {PY_FIELD(quire_plan_info, num_groups, PY_FIELD_U32),
                                       PY_FIELD(quire_plan_info, num_workers, PY_FIELD_U32),
                                       PY_FIELD(quire_plan_info, num_blocks, PY_FIELD_U32),
                                       PY_FIELD(quire_plan_info, max_model_len, PY_FIELD_U32),
                                       PY_FIELD(quire_plan_info, num_tokens, PY_FIELD_U64),
                                       PY_FIELD(quire_plan_info, block_size, PY_FIELD_U32),
                                       PY_FIELD(quire_plan_info, hash_block_size, PY_FIELD_U32),
                                       PY_FIELDS_END};

static const py_field share_fields[] = {PY_FIELD(quire_plan_share, memory_bytes, PY_FIELD_U64),
                                        PY_FIELD(quire_plan_share, needed_bytes, PY_FIELD_U64),
                                        PY_FIELD(quire_plan_share, used_bytes, PY_FIELD_U64),
                                        PY_FIELD(quire_plan_share, max_concurrency, PY_FIELD_F64),
                                        PY_FIELD(quire_plan_share, num_layers, PY_FIELD_U32),
                                        PY_FIELD(quire_plan_share, num_tensors, PY_FIELD_U32),
                                        PY_FIELDS_END};

/* A plan never changes and lives as long as its object, so its memory may be read in place. */
static PyObject *make_group(const void *plan, uint32_t i)
{
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    quire_plan_get_group(plan, i, &group);
    return Py_BuildValue(
        "{s:K,s:N,s:N,s:N,s:N}", "page_bytes", (unsigned long long)group.page_bytes,
        "layers_differ", PyBool_FromLong((long)group.layers_differ), "is_eagle",
        PyBool_FromLong((long)group.is_eagle), "layers",
        py_list_u32(group.layers, group.num_layers), "spec", py_layer_dict(&group.spec));
}

static PyObject *make_worker(const void *plan, uint32_t i)
{
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    quire_plan_get_worker(plan, i, &share);
    return py_fields_dict(share_fields, &share);
}

static quire_plan_info info_of(PyObject *object)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_get_info(((plan_object *)object)->plan, &info);
    return info;
}

static PyObject *plan_groups(PyObject *object, void *Py_UNUSED(closure))
{
    return py_list_of(info_of(object).num_groups, make_group, ((plan_object *)object)->plan);
}

static PyObject *plan_workers(PyObject *object, void *Py_UNUSED(closure))
{
    return py_list_of(info_of(object).num_workers, make_worker, ((plan_object *)object)->plan);
}

static PyObject *plan_info(PyObject *object, void *Py_UNUSED(closure))
{
    quire_plan_info info = info_of(object);
    return py_fields_dict(info_fields, &info);
}

static PyObject *plan_num_blocks(PyObject *object, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(info_of(object).num_blocks);
}

typedef struct worker_plan {
    const quire_plan *plan;
    uint32_t worker;
} worker_plan;

static PyObject *make_tensor(const void *of, uint32_t i)
{
    const worker_plan *w = of;
    quire_plan_tensor tensor;
    quire_plan_get_tensor(w->plan, w->worker, i, &tensor);
    return Py_BuildValue("(KN)", (unsigned long long)tensor.bytes,
                         py_list_u32(tensor.layers, tensor.num_layers));
}

static PyObject *plan_tensors(PyObject *object, PyObject *argument)
{
    worker_plan w = {((plan_object *)object)->plan, py_u32(argument)};
    quire_plan_share share = QUIRE_PLAN_SHARE_INIT;
    if (PyErr_Occurred())
        return NULL;
    PY_CALL(quire_plan_get_worker(w.plan, w.worker, &share));
    return py_list_of(share.num_tensors, make_tensor, &w);
}

/* ---- the type -------------------------------------------------------------- */

static PyMethodDef plan_methods[] = {
    {"tensors", plan_tensors, METH_O,
     "tensors(worker, /)\n--\n\nOf a worker: (bytes, layers that share it) of each tensor."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef plan_getset[] = {
    {"num_blocks", plan_num_blocks, NULL, "Blocks of the pool, the null block included.", NULL},
    {"groups", plan_groups, NULL, "The groups, as dicts.", NULL},
    {"workers", plan_workers, NULL, "What each worker has and needs, as dicts.", NULL},
    {"info", plan_info, NULL, "The numbers of the whole plan, as a dict.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

PY_TYPE(
    plan, "quire.Plan",
    "Plan(layers, memory_bytes, /, *, max_model_len=0, max_num_batched_tokens=0, "
    "max_encoder_tokens=0, auto_fit=False, hybrid=True, num_blocks_override=0, dcp_world_size=1, "
    "pcp_world_size=1, use_eagle=False, block_size=0, hash_block_size=0, enable_caching=True, "
    "use_connector=False)\n--\n\n"
    "From a model's layers (dicts) and the memory of its workers to groups and blocks.\n\n"
    "memory_bytes: one number, or a list with one for each worker. max_model_len is needed. "
    "include/quire/plan.h explains each setting.")

PyMethodDef py_plan_functions[] = {
    {"model_layers", py_model_layers, METH_O,
     "model_layers(model, /)\n--\n\nThe layers of a model, from fields as in quire/model.h."},
    {NULL, NULL, 0, NULL}};
