/* fields.c - structs of the library from and to dicts, by tables.
 *
 * A table has one row for each field: its name, where it lies, and what it is. Keywords are taken
 * out of a private dict, table by table; what nobody took is a keyword that does not exist.
 */
#include "core.h"

#include <string.h>

const py_name py_profiles[] = {{"default", QUIRE_PROFILE_DEFAULT},
                               {"vllm-0.20", QUIRE_PROFILE_VLLM_0_20},
                               {"vllm-0.32", QUIRE_PROFILE_VLLM_0_32},
                               {NULL, 0}};

/* ---- names ---------------------------------------------------------------- */

int py_name_value(const py_name *names, PyObject *text, const char *what, int *value)
{
    const char *wanted = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    if (wanted == NULL) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s must be a str", what);
        return -1;
    }
    for (const py_name *n = names; n->text != NULL; n++)
        if (strcmp(n->text, wanted) == 0) {
            *value = n->value;
            return 0;
        }
    return PY_REFUSE(PyExc_ValueError, "%s: there is no \"%U\"", what, text);
}

const char *py_name_text(const py_name *names, int value)
{
    for (const py_name *n = names; n->text != NULL; n++)
        if (n->value == value)
            return n->text;
    return "none";
}

/* ---- from dicts ----------------------------------------------------------- */

PyObject *py_take(PyObject *dict, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    if (key == NULL)
        return NULL;
    PyObject *value = PyDict_GetItemWithError(dict, key);
    Py_XINCREF(value);
    if (value != NULL && PyDict_DelItem(dict, key) < 0)
        Py_CLEAR(value);
    Py_DECREF(key);
    return value;
}

int py_nothing_left(PyObject *dict, const char *what)
{
    PyObject *key;
    Py_ssize_t position = 0;
    if (!PyDict_Next(dict, &position, &key, NULL))
        return 0;
    return PY_REFUSE(PyExc_TypeError, "%s has no \"%S\"", what, key);
}

static int whole_number(const char *name, PyObject *value, uint64_t most, uint64_t *out)
{
    PyObject *number = PyNumber_Index(value);
    if (number == NULL)
        return PY_REFUSE(PyExc_TypeError, "%s must be a whole number", name);
    *out = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    if (PyErr_Occurred() || *out > most)
        return PY_REFUSE(PyExc_OverflowError, "%s must be from 0 to %llu", name,
                         (unsigned long long)most);
    return 0;
}

static int set_number(const py_field *field, char *at, PyObject *value)
{
    uint64_t number;
    if (whole_number(field->name, value, field->kind == PY_FIELD_U64 ? UINT64_MAX : UINT32_MAX,
                     &number) < 0)
        return -1;
    uint32_t narrow = (uint32_t)number;
    if (field->kind == PY_FIELD_U64)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &narrow, sizeof narrow);
    return 0;
}

static int set_signed(const py_field *field, char *at, PyObject *value)
{
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < INT32_MIN || number > INT32_MAX)
        return PY_REFUSE(PyExc_OverflowError, "%s must fit 32 bits", field->name);
    int32_t narrow = (int32_t)number;
    memcpy(at, &narrow, sizeof narrow);
    return 0;
}

static int set_field(const py_field *field, char *at, PyObject *value)
{
    int number;
    double real;
    switch (field->kind) {
    case PY_FIELD_F64:
        real = PyFloat_AsDouble(value);
        memcpy(at, &real, sizeof real);
        return PyErr_Occurred() ? -1 : 0;
    case PY_FIELD_I32:
        return set_signed(field, at, value);
    case PY_FIELD_BOOL:
    case PY_FIELD_SWITCH:
        number = PyObject_IsTrue(value);
        if (number < 0)
            return -1;
        if (field->kind == PY_FIELD_SWITCH)
            number = number ? QUIRE_ON : QUIRE_OFF;
        memcpy(at, &number, sizeof number);
        return 0;
    case PY_FIELD_NAME:
        if (py_name_value(field->names, value, field->name, &number) < 0)
            return -1;
        memcpy(at, &number, sizeof number);
        return 0;
    default:
        return set_number(field, at, value);
    }
}

int py_fields_take(const py_field *table, void *out, PyObject *dict)
{
    for (const py_field *field = table; field->name != NULL; field++) {
        PyObject *value = py_take(dict, field->name);
        if (value == NULL && PyErr_Occurred())
            return -1;
        int err = 0;
        if (value != NULL && value != Py_None)
            err = set_field(field, (char *)out + field->offset, value);
        Py_XDECREF(value);
        if (err < 0)
            return -1;
    }
    return 0;
}

/* ---- to dicts ------------------------------------------------------------- */

int py_put(PyObject *dict, const char *name, PyObject *value)
{
    PyObject *key = value != NULL ? PyUnicode_FromString(name) : NULL; /* interning costs more */
    int err = key != NULL ? PyDict_SetItem(dict, key, value) : -1;
    Py_XDECREF(key);
    Py_XDECREF(value);
    return err;
}

static PyObject *field_value(const py_field *field, const char *at)
{
    uint64_t wide;
    uint32_t narrow;
    int number;
    double real;
    switch (field->kind) {
    case PY_FIELD_F64:
        memcpy(&real, at, sizeof real);
        return PyFloat_FromDouble(real);
    case PY_FIELD_U64:
        memcpy(&wide, at, sizeof wide);
        return PyLong_FromUnsignedLongLong(wide);
    case PY_FIELD_U32:
        memcpy(&narrow, at, sizeof narrow);
        return PyLong_FromUnsignedLong(narrow);
    default:
        memcpy(&number, at, sizeof number);
    }
    if (field->kind == PY_FIELD_I32)
        return PyLong_FromLong(number);
    if (field->kind == PY_FIELD_NAME)
        return PyUnicode_FromString(py_name_text(field->names, number));
    return PyBool_FromLong(number == 1);
}

PyObject *py_fields_dict(const py_field *table, const void *in)
{
    PyObject *dict = PyDict_New();
    for (const py_field *field = table; dict != NULL && field->name != NULL; field++)
        if (py_put(dict, field->name, field_value(field, (const char *)in + field->offset)) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyObject *py_usage_dict(quire_usage usage)
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "total", usage.total, "empty", usage.empty,
                         "cached", usage.cached, "active", usage.active, "null_blocks",
                         usage.null_blocks);
}
