/* vllm_module.c - the extension quire._vllm: BlockHasher and Core, for quire.vllm. */
#include "vllm.h"

PyMODINIT_FUNC PyInit__vllm(void);

static struct PyModuleDef vllm_module = {PyModuleDef_HEAD_INIT, .m_name = "quire._vllm",
                                         .m_doc = "The C side of quire.vllm.", .m_size = -1};

PyMODINIT_FUNC PyInit__vllm(void)
{
    PyObject *module = PyModule_Create(&vllm_module);
    if (module == NULL || vllm_tokens_try() < 0)
        return NULL;
    PyObject *hasher = vllm_hasher_make_type(module);
    PyObject *core = vllm_core_make_type(module);
    int failed = hasher == NULL || core == NULL ||
                 PyModule_AddObjectRef(module, "BlockHasher", hasher) < 0 ||
                 PyModule_AddObjectRef(module, "Core", core) < 0;
    Py_XDECREF(hasher);
    Py_XDECREF(core);
    if (failed)
        Py_CLEAR(module);
    return module;
}
