/* module.c - quire._core: the extension module, its state and its parts. */
#include "core.h"

py_state *py_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

PyObject *py_add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return type;
}

/* ---- constants ------------------------------------------------------------- */

static PyObject *hash_algorithms(void)
{
    PyObject *dict = PyDict_New();
#define ENTRY(value, name, text, bytes)                                                            \
    if (dict != NULL && py_put(dict, text, PyLong_FromLong(bytes)) < 0)                            \
        Py_CLEAR(dict);
    QUIRE_HASH_ALGO_MAP(ENTRY)
#undef ENTRY
    return dict;
}

static PyObject *quirks(void)
{
    PyObject *dict = PyDict_New();
#define ENTRY(bit, name, sentence)                                                                 \
    if (dict != NULL && py_put(dict, #name, PyLong_FromUnsignedLongLong(QUIRE_QUIRK(name))) < 0)   \
        Py_CLEAR(dict);
    QUIRE_QUIRK_MAP(ENTRY)
#undef ENTRY
    return dict;
}

static int add_constant(PyObject *module, const char *name, PyObject *value)
{
    int err = value != NULL ? PyModule_AddObjectRef(module, name, value) : -1;
    Py_XDECREF(value);
    return err;
}

static int add_constants(PyObject *module, py_state *state)
{
    PyObject *array = PyImport_ImportModule("array");
    if (array == NULL)
        return -1;
    state->empty_array = PyObject_GetAttrString(array, "array");
    Py_DECREF(array);
    if (state->empty_array == NULL ||
        PyModule_AddStringConstant(module, "__version__", quire_version_string()) < 0 ||
        add_constant(module, "HASH_ALGORITHMS", hash_algorithms()) < 0)
        return -1;
    return add_constant(module, "QUIRKS", quirks());
}

/* ---- the module ------------------------------------------------------------ */

static int module_exec(PyObject *module)
{
    py_state *state = PyModule_GetState(module);
    if (py_add_errors(module, state) < 0 || add_constants(module, state) < 0 ||
        py_add_hashing(module, state) < 0 || py_add_pool(module, state) < 0 ||
        py_add_plan(module, state) < 0 || py_add_presets(module) < 0 || py_add_cost(module) < 0 ||
        py_add_cache(module, state) < 0 || py_add_step(module, state) < 0)
        return -1;
    return py_add_sched(module, state);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    py_state *state = PyModule_GetState(module);
    Py_VISIT(state->error);
    Py_VISIT(state->closed);
    Py_VISIT(state->statuses);
    Py_VISIT(state->empty_array);
    Py_VISIT(state->chain_type);
    Py_VISIT(state->plan_type);
    Py_VISIT(state->step_type);
    Py_VISIT(state->outputs_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    py_state *state = PyModule_GetState(module);
    Py_CLEAR(state->error);
    Py_CLEAR(state->closed);
    Py_CLEAR(state->statuses);
    Py_CLEAR(state->empty_array);
    Py_CLEAR(state->chain_type);
    Py_CLEAR(state->plan_type);
    Py_CLEAR(state->step_type);
    Py_CLEAR(state->outputs_type);
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "quire._core",
    .m_doc = "The library libquire: pool, cache, scheduler, hashes and plan of an LLM engine.",
    .m_size = sizeof(py_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
