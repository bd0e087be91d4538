/* lists.c - long lists of token ids, read with the interpreter's own macros.
 *
 * A prompt comes as a list of ints. Through the stable ABI each token takes two calls, a quarter of
 * the time that hashing a block takes. So the extension is built for one version of CPython, whose
 * headers know how a small int lies in memory (docs/decisions/012).
 */
#include "vllm.h"

enum { INTS_AHEAD = 64 };

/* An int of one digit or none; 0 for everything else. */
static int read_small(PyObject *number, quire_token *token)
{
    if (!PyLong_CheckExact(number))
        return 0;
    const PyLongObject *value = (const PyLongObject *)number;
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact(value))
        return 0;
    *token = (quire_token)PyUnstable_Long_CompactValue(value);
#else
    if (Py_SIZE(value) != 1)
        return 0;
    *token = (quire_token)value->ob_digit[0];
#endif
    return 1;
}

int vllm_read_token(PyObject *number, quire_token *token)
{
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < INT32_MIN || value > INT32_MAX)
        return PY_REFUSE(PyExc_OverflowError, "token id %ld is beyond 32 bits", value);
    *token = (quire_token)value;
    return 0;
}

/* Reads a number of any kind. One that is no plain int may run Python code, which may change the
 * list. */
static int read_rare(PyObject *list, Py_ssize_t place, Py_ssize_t end, quire_token *token)
{
    PyObject *number = PyList_GET_ITEM(list, place);
    Py_INCREF(number);
    int status = vllm_read_token(number, token);
    Py_DECREF(number);
    if (status == 0 && end > PyList_GET_SIZE(list))
        return PY_REFUSE(PyExc_RuntimeError, "the list of tokens became shorter meanwhile");
    return status;
}

/* The numbers may lie all over the heap, so they are fetched some time before. */
int vllm_read_tokens(PyObject *list, Py_ssize_t first, Py_ssize_t count, quire_token *tokens)
{
    Py_ssize_t end = first + count;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t ahead = i + INTS_AHEAD < count ? i + INTS_AHEAD : i;
        __builtin_prefetch(PyList_GET_ITEM(list, first + ahead));
        if (!read_small(PyList_GET_ITEM(list, first + i), &tokens[i]) &&
            read_rare(list, first + i, end, &tokens[i]) < 0)
            return -1;
    }
    return 0;
}
