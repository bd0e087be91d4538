/* vllm_tokens.c - token ids out of a Python list.
 *
 *      list   | head | length | items ──► [o][o][o] ...
 *      int    | head | tag    | digit |                  tag: the same for all of 1 .. 2^30 - 1
 *
 * The stable ABI takes two calls for a token, 6 ns; hashing a block of 16 takes 150. So where the
 * interpreter's lists and ints have the shape above, which is so in CPython 3.11 to 3.14 and is
 * tried out when the module is imported, they are read in place. Whatever is not a plain int of one
 * digit, and every int of another interpreter, goes through the ABI's own functions.
 */
#include "vllm.h"

enum { READ_AHEAD = 64, NEWEST_KNOWN = 14 };

typedef struct list_shape {
    PyObject head;
    Py_ssize_t length;
    PyObject *const *items;
} list_shape;

typedef struct int_shape {
    PyObject head;
    uintptr_t tag;
    uint32_t digit;
} int_shape;

static uintptr_t small_tag; /* 0: the shapes are not known */

/* ---- trying out ------------------------------------------------------------ */

static int size_is(PyTypeObject *type, const char *name, long expected)
{
    PyObject *size = PyObject_GetAttrString((PyObject *)type, name);
    int is_so = size != NULL && PyLong_AsLong(size) == expected;
    Py_XDECREF(size);
    PyErr_Clear();
    return is_so;
}

/* The tag of the ints of a list that was made for this; 0 when one is not where it should be. */
static uintptr_t tag_of_samples(PyObject *list, const long *samples, Py_ssize_t count)
{
    const list_shape *shape = (const list_shape *)(const void *)list;
    if (shape->length != count)
        return 0;
    uintptr_t tag = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (shape->items[i] != PyList_GetItem(list, i))
            return 0;
        const int_shape *number = (const int_shape *)(const void *)shape->items[i];
        int is_small = samples[i] > 0 && samples[i] < 1L << 30;
        if (is_small && (number->digit != (uint32_t)samples[i] || (tag && number->tag != tag)))
            return 0;
        if (!is_small && number->tag == tag)
            return 0;
        tag = is_small ? number->tag : tag;
    }
    return tag;
}

int vllm_tokens_try(void)
{
    static const long samples[] = {1, 255, 32767,   65536,    128000,  (1L << 30) - 1,
                                   0, -1,  -128000, 1L << 30, 1L << 31};
    Py_ssize_t count = (Py_ssize_t)(sizeof(samples) / sizeof(samples[0]));
    unsigned long minor = Py_Version >> 16 & 0xff;
    if (Py_Version >> 24 != 3 || minor > NEWEST_KNOWN)
        return 0;
    if (!size_is(&PyList_Type, "__basicsize__",
                 (long)sizeof(list_shape) + (long)sizeof(Py_ssize_t)) ||
        !size_is(&PyLong_Type, "__basicsize__", (long)offsetof(int_shape, digit)) ||
        !size_is(&PyLong_Type, "__itemsize__", (long)sizeof(uint32_t)))
        return 0;
    PyObject *list = PyList_New(count);
    if (list == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PyLong_FromLong(samples[i]);
        if (number == NULL) {
            Py_DECREF(list);
            return -1;
        }
        PyList_SetItem(list, i, number);
    }
    small_tag = tag_of_samples(list, samples, count);
    Py_DECREF(list);
    return 0;
}

/* ---- reading --------------------------------------------------------------- */

static int token_of(PyObject *number, quire_token *token)
{
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "token id %ld is beyond 32 bits", value);
        return -1;
    }
    *token = (quire_token)value;
    return 0;
}

static int read_slowly(PyObject *list, Py_ssize_t first, Py_ssize_t count, quire_token *tokens)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (token_of(PyList_GetItem(list, first + i), &tokens[i]) < 0)
            return -1;
    }
    return 0;
}

/* The numbers may lie all over the heap, so they are fetched some time before. */
static int read_in_place(PyObject *const *items, Py_ssize_t count, quire_token *tokens)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        __builtin_prefetch(items[i + READ_AHEAD < count ? i + READ_AHEAD : i]);
        const int_shape *number = (const int_shape *)(const void *)items[i];
        if (Py_TYPE(items[i]) == &PyLong_Type && number->tag == small_tag)
            tokens[i] = (quire_token)number->digit;
        else if (token_of(items[i], &tokens[i]) < 0)
            return -1;
    }
    return 0;
}

int vllm_read_tokens(PyObject *list, Py_ssize_t first, Py_ssize_t count, quire_token *tokens)
{
    if (small_tag == 0)
        return read_slowly(list, first, count, tokens);
    const list_shape *shape = (const list_shape *)(const void *)list;
    return read_in_place(shape->items + first, count, tokens);
}
