/* module.c - quire._core: the extension module, its state and its parts. */
#include "core.h"

#include <string.h>

py_state *py_state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

void *py_new(PyTypeObject *type)
{
    return type->tp_alloc(type, 0);
}

void py_delete(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

void *py_open(PyObject *object)
{
    void *handle = ((py_handle *)object)->handle;
    if (handle == NULL)
        PyErr_Format(py_state_of(object)->closed, "the %s is closed",
                     strrchr(Py_TYPE(object)->tp_name, '.') + 1);
    return handle;
}

PyObject *py_get_u32(PyObject *object, void *offset)
{
    uint32_t value;
    memcpy(&value, (char *)object + (uintptr_t)offset, sizeof value);
    return PyLong_FromUnsignedLong(value);
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
        PyModule_AddStringConstant(module, "__version__", quire_version_string()) < 0)
        return -1;
    return add_constant(module, "HASH_ALGORITHMS", hash_algorithms());
}

/* ---- the module ------------------------------------------------------------ */

/* Adds a type to the module under its own name, and keeps it where that is asked for. */
static int add_type(PyObject *module, PyType_Spec *spec, PyObject **kept)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int err = type != NULL ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    if (err == 0 && kept != NULL)
        *kept = type;
    else
        Py_XDECREF(type);
    return err;
}

static int module_exec(PyObject *module)
{
    py_state *state = PyModule_GetState(module);
    if (py_add_errors(module, state) < 0 || add_constants(module, state) < 0 ||
        PyModule_AddFunctions(module, py_plan_functions) < 0 ||
        PyModule_AddFunctions(module, py_preset_functions) < 0 ||
        PyModule_AddFunctions(module, py_cost_functions) < 0)
        return -1;
    if (add_type(module, &py_hasher_spec, NULL) < 0 ||
        add_type(module, &py_chain_spec, &state->chain_type) < 0 ||
        add_type(module, &py_pool_spec, NULL) < 0 ||
        add_type(module, &py_plan_spec, &state->plan_type) < 0 ||
        add_type(module, &py_cache_spec, NULL) < 0 ||
        add_type(module, &py_step_spec, &state->step_type) < 0 ||
        add_type(module, &py_outputs_spec, &state->outputs_type) < 0)
        return -1;
    return add_type(module, &py_sched_spec, NULL);
}

/* The state is nothing but objects. */
enum { NUM_OBJECTS = sizeof(py_state) / sizeof(PyObject *) };

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    PyObject **objects = PyModule_GetState(module);
    for (int i = 0; i < NUM_OBJECTS; i++)
        Py_VISIT(objects[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    PyObject **objects = PyModule_GetState(module);
    for (int i = 0; i < NUM_OBJECTS; i++)
        Py_CLEAR(objects[i]);
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
