/* plan.c - Plan: from a model's layers to groups and blocks (quire/plan.h). */
#include "core.h"

/* ---- plans ----------------------------------------------------------------- */

typedef struct plan_object {
    PyObject ob_base;
    quire_plan *plan;
} plan_object;

#define PLAN(name, kind)                                                                           \
    {                                                                                              \
#name, offsetof(quire_plan_params, name), kind, NULL                                       \
    }
static const py_field plan_fields[] = {
    PLAN(max_model_len, PY_FIELD_U32),      PLAN(max_num_batched_tokens, PY_FIELD_U32),
    PLAN(max_encoder_tokens, PY_FIELD_U32), PLAN(auto_fit, PY_FIELD_SWITCH),
    PLAN(hybrid, PY_FIELD_SWITCH),          PLAN(num_blocks_override, PY_FIELD_U32),
    PLAN(dcp_world_size, PY_FIELD_U32),     PLAN(pcp_world_size, PY_FIELD_U32),
    PLAN(use_eagle, PY_FIELD_SWITCH),       PLAN(block_size, PY_FIELD_U32),
    PLAN(hash_block_size, PY_FIELD_U32),    PLAN(enable_caching, PY_FIELD_SWITCH),
    PLAN(use_connector, PY_FIELD_SWITCH),   {NULL, 0, PY_FIELD_U32, NULL}};

static quire_layer_spec *get_layers(PyObject *source, uint32_t *count)
{
    PyObject *list = PySequence_List(source);
    if (list == NULL)
        return NULL;
    Py_ssize_t size = PyList_Size(list);
    quire_layer_spec *layers = PyMem_Calloc((size_t)size + 1, sizeof *layers);
    if (layers == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; layers != NULL && i < size; i++) {
        uint32_t is_eagle;
        if (py_layer_get(PyList_GetItem(list, i), &layers[i], &is_eagle) < 0) {
            PyMem_Free(layers);
            layers = NULL;
        }
    }
    Py_DECREF(list);
    *count = (uint32_t)size;
    return layers;
}

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
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < bytes->count; i++)
        (*workers)[i].memory_bytes = ((const uint64_t *)bytes->data)[i];
    return 0;
}

static PyObject *wrap_plan(PyTypeObject *type, quire_plan_params *params)
{
    const py_state *state = PyType_GetModuleState(type);
    quire_plan_shortage shortage = {0};
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
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    plan_object *self = (plan_object *)alloc(type, 0);
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
        layers = get_layers(layer_source, &params.num_layers);
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
    PyTypeObject *type = Py_TYPE(object);
    quire_plan_destroy(((plan_object *)object)->plan);
    PyObject_Free(object);
    Py_DECREF(type);
}

const quire_plan *py_plan_get(const py_state *state, PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)state->plan_type)
        return ((plan_object *)object)->plan;
    PyErr_SetString(PyExc_TypeError, "plan must be a Plan");
    return NULL;
}

/* ---- looking at plans ------------------------------------------------------ */

#define INFO(name, kind)                                                                           \
    {                                                                                              \
#name, offsetof(quire_plan_info, name), kind, NULL                                         \
    }
static const py_field info_fields[] = {
    INFO(num_groups, PY_FIELD_U32),      INFO(num_workers, PY_FIELD_U32),
    INFO(num_blocks, PY_FIELD_U32),      INFO(max_model_len, PY_FIELD_U32),
    INFO(num_tokens, PY_FIELD_U64),      INFO(block_size, PY_FIELD_U32),
    INFO(hash_block_size, PY_FIELD_U32), {NULL, 0, PY_FIELD_U32, NULL}};

#define SHARE(name, kind)                                                                          \
    {                                                                                              \
#name, offsetof(quire_plan_share, name), kind, NULL                                        \
    }
static const py_field share_fields[] = {
    SHARE(memory_bytes, PY_FIELD_U64), SHARE(needed_bytes, PY_FIELD_U64),
    SHARE(used_bytes, PY_FIELD_U64),   SHARE(max_concurrency, PY_FIELD_F64),
    SHARE(num_layers, PY_FIELD_U32),   SHARE(num_tensors, PY_FIELD_U32),
    {NULL, 0, PY_FIELD_U32, NULL}};

/* A plan never changes and lives as long as its object, so its memory may be read in place. */
static PyObject *group_dict(const quire_plan_group *group)
{
    PyObject *dict = Py_BuildValue(
        "{s:K,s:N,s:N,s:N,s:N}", "page_bytes", (unsigned long long)group->page_bytes,
        "layers_differ", PyBool_FromLong((long)group->layers_differ), "is_eagle",
        PyBool_FromLong((long)group->is_eagle), "layers",
        py_list_u32(group->layers, group->num_layers), "spec", py_layer_dict(&group->spec));
    return dict;
}

static PyObject *plan_groups(PyObject *object, void *Py_UNUSED(closure))
{
    const quire_plan *plan = ((plan_object *)object)->plan;
    quire_plan_group group;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && quire_plan_get_group(plan, i, &group) == QUIRE_OK; i++) {
        PyObject *dict = group_dict(&group);
        if (dict == NULL || PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

static PyObject *plan_workers(PyObject *object, void *Py_UNUSED(closure))
{
    const quire_plan *plan = ((plan_object *)object)->plan;
    quire_plan_share share;
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && quire_plan_get_worker(plan, i, &share) == QUIRE_OK; i++) {
        PyObject *dict = py_fields_dict(share_fields, &share);
        if (dict == NULL || PyList_Append(list, dict) < 0)
            Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

static PyObject *plan_info(PyObject *object, void *Py_UNUSED(closure))
{
    quire_plan_info info;
    quire_plan_get_info(((plan_object *)object)->plan, &info);
    return py_fields_dict(info_fields, &info);
}

static PyObject *plan_num_blocks(PyObject *object, void *Py_UNUSED(closure))
{
    quire_plan_info info;
    quire_plan_get_info(((plan_object *)object)->plan, &info);
    return PyLong_FromUnsignedLong(info.num_blocks);
}

static PyObject *plan_tensors(PyObject *object, PyObject *argument)
{
    const quire_plan *plan = ((plan_object *)object)->plan;
    unsigned long worker = PyLong_AsUnsignedLong(argument);
    quire_plan_tensor tensor;
    quire_plan_share share;
    if (PyErr_Occurred())
        return NULL;
    int err =
        quire_plan_get_worker(plan, worker < UINT32_MAX ? (uint32_t)worker : UINT32_MAX, &share);
    if (err != QUIRE_OK)
        return py_raise(py_state_of(object), err);
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < share.num_tensors; i++) {
        PyObject *pair = NULL;
        if (quire_plan_get_tensor(plan, (uint32_t)worker, i, &tensor) == QUIRE_OK)
            pair = Py_BuildValue("(KN)", (unsigned long long)tensor.bytes,
                                 py_list_u32(tensor.layers, tensor.num_layers));
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
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

static PyType_Slot plan_slots[] = {
    {Py_tp_doc,
     "Plan(layers, memory_bytes, /, *, max_model_len=0, max_num_batched_tokens=0, "
     "max_encoder_tokens=0, auto_fit=False, hybrid=True, num_blocks_override=0, dcp_world_size=1, "
     "pcp_world_size=1, use_eagle=False, block_size=0, hash_block_size=0, enable_caching=True, "
     "use_connector=False)\n--\n\n"
     "From a model's layers (dicts) and the memory of its workers to groups and blocks.\n\n"
     "memory_bytes: one number, or a list with one for each worker. max_model_len is needed. "
     "include/quire/plan.h explains each setting."},
    {Py_tp_new, (void *)plan_new},
    {Py_tp_dealloc, (void *)plan_dealloc},
    {Py_tp_methods, plan_methods},
    {Py_tp_getset, plan_getset},
    {0, NULL}};

static PyType_Spec plan_spec = {"quire.Plan", sizeof(plan_object), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, plan_slots};

static PyMethodDef plan_functions[] = {
    {"model_layers", py_model_layers, METH_O,
     "model_layers(model, /)\n--\n\nThe layers of a model, from fields as in quire/model.h."},
    {NULL, NULL, 0, NULL}};

int py_add_plan(PyObject *module, py_state *state)
{
    state->plan_type = py_add_type(module, &plan_spec);
    return state->plan_type != NULL ? PyModule_AddFunctions(module, plan_functions) : -1;
}
