/* module.c - the extension quire._vllm: the types that quire.vllm builds on. */
#include "vllm.h"

PyMODINIT_FUNC PyInit__vllm(void);

static struct PyModuleDef vllm_module = {PyModuleDef_HEAD_INIT, .m_name = "quire._vllm",
                                         .m_doc = "The C side of quire.vllm.", .m_size = -1};

static const struct {
    const char *name;
    PyObject *(*make)(PyObject *module);
} types[] = {
    {"BlockHasher", vllm_hasher_make_type},
    {"Core", vllm_core_make_type},
};

static int add_types(PyObject *module)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        PyObject *type = types[i].make(module);
        int failed = type == NULL || PyModule_AddObjectRef(module, types[i].name, type) < 0;
        Py_XDECREF(type);
        if (failed)
            return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__vllm(void)
{
    PyObject *module = PyModule_Create(&vllm_module);
    if (module != NULL && add_types(module) < 0)
        Py_CLEAR(module);
    return module;
}
