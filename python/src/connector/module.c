/* module.c - the extension quire._connector. */
#include "connector.h"

PyMODINIT_FUNC PyInit__connector(void);

PyTypeObject *connector_known_type;

PyObject *connector_raise(int status, const char *what)
{
    PyObject *kind = PyExc_RuntimeError;
    const char *sentence = quire_refusal();
    if (status == QUIRE_E_NOMEM)
        kind = PyExc_MemoryError;
    if (status == QUIRE_E_ARGUMENT || status == QUIRE_E_CONFIG || status == QUIRE_E_RANGE ||
        status == QUIRE_E_UNSAFE)
        kind = PyExc_ValueError;
    if (status == QUIRE_E_UNKNOWN_REQ)
        kind = PyExc_LookupError;
    if (sentence[0] == '\0')
        return PyErr_Format(kind, "%s: %s (%s)", what, quire_strerror(status),
                            quire_status_name(status));
    return PyErr_Format(kind, "%s: %s (%s)", what, sentence, quire_status_name(status));
}

int connector_refuse(int status, const char *what)
{
    connector_raise(status, what);
    return -1;
}

static PyMethodDef connector_functions[] = {
    {"fingerprint", connector_fingerprint, METH_O,
     "The 32 bytes of an identity: a dict of what decides the meaning of a block's bytes."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef connector_module = {PyModuleDef_HEAD_INIT, .m_name = "quire._connector",
                                              .m_doc = "The C side of quire.vllm.QuireConnector.",
                                              .m_size = -1, .m_methods = connector_functions};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__connector(void)
{
    PyObject *module = PyModule_Create(&connector_module);
    if (module == NULL)
        return NULL;
    connector_known_type = add_type(module, &connector_known_spec);
    PyTypeObject *others[] = {add_type(module, &connector_planner_spec),
                              add_type(module, &connector_worker_spec)};
    if (connector_known_type == NULL || others[0] == NULL || others[1] == NULL)
        Py_CLEAR(module);
    Py_XDECREF(others[0]);
    Py_XDECREF(others[1]);
    return module;
}
