/* lists.c - long lists of ints, hashes and blocks, read and filled in place.
 *
 *      list    | head | length | items ──► [o][o][o] ...
 *      int     | head | tag    | digit |                  tag: the same for all of 1 .. 2^30 - 1
 *      bytes   | head | length | hash  | data ...
 *
 * The stable ABI takes two calls for a token, and hashing a block of 16 tokens costs little more
 * than those; it takes three for each of the 4,096 hashes and blocks of a long prompt, half of the
 * time of a lookup. So where the interpreter's objects have the shapes above, which is so in
 * CPython 3.11 to 3.14 and is tried out when the module is imported, they are touched directly.
 * Whatever is not a plain int of one digit, and every object of another interpreter, goes through
 * the ABI's own functions.
 */
#include "cache.h"

#include <string.h>

enum { INTS_AHEAD = 64, OBJECTS_AHEAD = 16, NEWEST_KNOWN = 14, LINE = 64 };

typedef struct list_shape {
    PyObject head;
    Py_ssize_t length;
    PyObject **items;
} list_shape;

typedef struct int_shape {
    PyObject head;
    uintptr_t tag;
    uint32_t digit;
} int_shape;

typedef struct bytes_shape {
    PyObject head;
    Py_ssize_t length;
    Py_ssize_t hash;
    char data[1];
} bytes_shape;

static uintptr_t small_tag; /* of ints of one digit; 0: the shapes are not known */

static PyObject **items_of(PyObject *list)
{
    return ((list_shape *)(void *)list)->items;
}

/* ---- trying out ------------------------------------------------------------ */

static int size_is(PyTypeObject *type, const char *name, size_t expected)
{
    PyObject *size = PyObject_GetAttrString((PyObject *)type, name);
    int is_so = size != NULL && PyLong_AsSize_t(size) == expected;
    Py_XDECREF(size);
    PyErr_Clear();
    return is_so;
}

static int sizes_are_right(void)
{
    return Py_Version >> 24 == 3 && (Py_Version >> 16 & 0xff) <= NEWEST_KNOWN &&
           size_is(&PyList_Type, "__basicsize__", sizeof(list_shape) + sizeof(Py_ssize_t)) &&
           size_is(&PyLong_Type, "__basicsize__", offsetof(int_shape, digit)) &&
           size_is(&PyLong_Type, "__itemsize__", sizeof(uint32_t)) &&
           size_is(&PyBytes_Type, "__basicsize__", offsetof(bytes_shape, data) + 1);
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

static int bytes_are_right(void)
{
    PyObject *bytes = PyBytes_FromString("thirty-two bytes, as a hash has.");
    const bytes_shape *shape = (const bytes_shape *)(const void *)bytes;
    int are_right = bytes != NULL && shape->length == PyBytes_Size(bytes) &&
                    shape->data == PyBytes_AsString(bytes);
    Py_XDECREF(bytes);
    PyErr_Clear();
    return are_right;
}

int vllm_lists_try(void)
{
    static const long samples[] = {1, 255, 32767,   65536,    128000,  (1L << 30) - 1,
                                   0, -1,  -128000, 1L << 30, 1L << 31};
    Py_ssize_t count = (Py_ssize_t)(sizeof(samples) / sizeof(samples[0]));
    if (!sizes_are_right() || !bytes_are_right())
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

/* ---- ints ------------------------------------------------------------------ */

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
        __builtin_prefetch(items[i + INTS_AHEAD < count ? i + INTS_AHEAD : i]);
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
    return read_in_place(items_of(list) + first, count, tokens);
}

/* ---- hashes and blocks ----------------------------------------------------- */

uint32_t vllm_copy_hashes(PyObject *list, uint32_t first, uint32_t end, uint32_t len,
                          unsigned char *to)
{
    if (small_tag == 0)
        return 0;
    PyObject *const *items = items_of(list);
    uint32_t i = first;
    for (; i < end; i++) {
        if (i + OBJECTS_AHEAD < end) { /* the objects lie anywhere */
            qr_prefetch(items[i + OBJECTS_AHEAD]);
            qr_prefetch((const char *)items[i + OBJECTS_AHEAD] + LINE);
        }
        const bytes_shape *hash = (const bytes_shape *)(const void *)items[i];
        if (Py_TYPE(items[i]) != &PyBytes_Type || (size_t)hash->length != len)
            break;
        memcpy(to, hash->data, len == 32 ? 32 : len);
        to += len;
    }
    return i - first;
}

PyObject *vllm_pick_list(PyObject *const *objects, const quire_block *places, uint32_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    if (list == NULL)
        return NULL;
    PyObject **items = small_tag != 0 ? items_of(list) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *object = objects[places[i]];
        if (i + OBJECTS_AHEAD < n)
            qr_prefetch_write(objects[places[i + OBJECTS_AHEAD]]);
        Py_INCREF(object);
        if (items != NULL)
            items[i] = object;
        else
            PyList_SetItem(list, (Py_ssize_t)i, object);
    }
    return list;
}
