/* module.c - the extension quire._vllm: the types that quire.vllm builds on. */
#include "vllm.h"

PyMODINIT_FUNC PyInit__vllm(void);

static struct PyModuleDef vllm_module = {PyModuleDef_HEAD_INIT, .m_name = "quire._vllm",
                                         .m_doc = "The C side of quire.vllm.", .m_size = -1};

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

PyMODINIT_FUNC PyInit__vllm(void)
{
    PyObject *module = PyModule_Create(&vllm_module);
    if (module != NULL &&
        (add_type(module, &vllm_hasher_spec) < 0 || add_type(module, &vllm_core_spec) < 0))
        Py_CLEAR(module);
    return module;
}
