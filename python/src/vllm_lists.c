/* vllm_lists.c - long lists of hashes and blocks, read and filled in place.
 *
 *      list    | head | length | items ──► [o][o][o] ...
 *      bytes   | head | length | hash  | data ...
 *
 * A lookup of a prompt of 65,536 tokens reads 4,096 hashes and makes a list of 4,096 blocks. The
 * stable ABI takes three calls for each, half of all the time. So where lists and bytes have the
 * shape above, which is so in CPython 3.11 to 3.14 and is tried out at the first use, they are
 * touched directly; else through the ABI's own functions.
 */
#include "vllm_cache.h"

#include <string.h>

enum { AHEAD = 16, NEWEST_KNOWN = 14, LINE = 64 };

typedef struct list_shape {
    PyObject head;
    Py_ssize_t length;
    PyObject **items;
} list_shape;

typedef struct bytes_shape {
    PyObject head;
    Py_ssize_t length;
    Py_ssize_t hash;
    char data[1];
} bytes_shape;

static int has_shapes(PyObject *list, PyObject *bytes)
{
    const list_shape *l = (const list_shape *)(const void *)list;
    const bytes_shape *b = (const bytes_shape *)(const void *)bytes;
    return l->length == 2 && l->items[0] == PyList_GetItem(list, 0) && l->items[1] == bytes &&
           b->length == PyBytes_Size(bytes) && b->data == PyBytes_AsString(bytes);
}

static int size_is(PyTypeObject *type, long expected)
{
    PyObject *size = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    int is_so = size != NULL && PyLong_AsLong(size) == expected;
    Py_XDECREF(size);
    PyErr_Clear();
    return is_so;
}

/* Whether objects have the shapes above; found out once. */
static int is_known(void)
{
    static int known = -1;
    if (known >= 0)
        return known;
    PyObject *list = Py_BuildValue("[iy]", 300, "thirty-two bytes, as a hash has.");
    known = list != NULL && Py_Version >> 24 == 3 && (Py_Version >> 16 & 0xff) <= NEWEST_KNOWN &&
            size_is(&PyList_Type, (long)(sizeof(list_shape) + sizeof(Py_ssize_t))) &&
            size_is(&PyBytes_Type, (long)offsetof(bytes_shape, data) + 1) &&
            has_shapes(list, PyList_GetItem(list, 1));
    Py_XDECREF(list);
    PyErr_Clear();
    return known;
}

uint32_t vllm_copy_hashes(PyObject *list, uint32_t first, uint32_t end, uint32_t len,
                          unsigned char *to)
{
    if (!is_known())
        return 0;
    PyObject *const *items = ((const list_shape *)(const void *)list)->items;
    uint32_t i = first;
    for (; i < end; i++) {
        if (i + AHEAD < end) { /* the objects lie anywhere */
            qr_prefetch(items[i + AHEAD]);
            qr_prefetch((const char *)items[i + AHEAD] + LINE);
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
    PyObject **items = is_known() ? ((list_shape *)(void *)list)->items : NULL;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *object = objects[places[i]];
        if (i + AHEAD < n)
            qr_prefetch_write(objects[places[i + AHEAD]]);
        Py_INCREF(object);
        if (items != NULL)
            items[i] = object;
        else
            PyList_SetItem(list, (Py_ssize_t)i, object);
    }
    return list;
}
