/* arrays.c - numbers and hashes in and out, in bulk.
 *
 *      list, tuple, iterable ──► converted, item by item ──┐
 *      buffer of another type ──► converted ───────────────┼──► one C array for the call
 *      buffer of the wanted type ──► used where it is ─────┘
 */
#include "core.h"

#include <string.h>

/* ---- lists ---------------------------------------------------------------- */

/* The whole numbers that calls take: their letters are those of Python's module array. */
typedef struct int_kind {
    char type;
    size_t bytes;
    long long least;
    unsigned long long most;
    const char *name;
} int_kind;

static const int_kind *kind_of(char type)
{
    static const int_kind kinds[] = {{'i', 4, INT32_MIN, INT32_MAX, "int32"},
                                     {'I', 4, 0, UINT32_MAX, "uint32"},
                                     {'q', 8, INT64_MIN, INT64_MAX, "int64"},
                                     {'Q', 8, 0, UINT64_MAX, "uint64"},
                                     {'B', 1, 0, UINT8_MAX, "uint8"}};
    const int_kind *kind = kinds;
    while (kind->type != type)
        kind++;
    return kind;
}

static int out_of_range(const char *what, char type)
{
    return PY_REFUSE(PyExc_OverflowError, "%s: a number does not fit %s", what,
                     kind_of(type)->name);
}

static int store(char type, void *items, size_t i, long long value, const char *what)
{
    const int_kind *kind = kind_of(type);
    if (value < kind->least || (value > 0 && (unsigned long long)value > kind->most))
        return out_of_range(what, type);
    memcpy((char *)items + i * kind->bytes, &value, kind->bytes); /* little-endian, as in load */
    return 0;
}

/* The item is held while it is looked at: its own code may take it out of the list. */
static int store_object(char type, void *items, size_t i, PyObject *item, const char *what)
{
    PyObject *number = PyNumber_Index(item);
    if (number == NULL)
        return PY_REFUSE(PyExc_TypeError, "%s must be whole numbers", what);
    int err = 0;
    if (type == 'Q') {
        ((uint64_t *)items)[i] = PyLong_AsUnsignedLongLong(number);
        if (PyErr_Occurred())
            err = out_of_range(what, type);
    } else {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
        err = overflow ? out_of_range(what, type) : store(type, items, i, value, what);
    }
    Py_DECREF(number);
    return err;
}

/* Plain ints are by far the most frequent, and run no code. How many from the start of a list are
 * plain and fit int32; the rest is for convert_list. */
static uint32_t convert_plain(PyObject *list, int32_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (item == NULL || !PyLong_CheckExact(item)) {
            PyErr_Clear();
            return i;
        }
        long value = PyLong_AsLong(item);
        if (value < INT32_MIN || value > INT32_MAX || value == -1) {
            PyErr_Clear();
            return i;
        }
        out[i] = (int32_t)value;
    }
    return count;
}

static int convert_list(PyObject *list, char type, const char *what, py_ints *out)
{
    uint32_t first = type == 'i' ? convert_plain(list, out->owned, out->count) : 0;
    for (uint32_t i = first; i < out->count; i++) {
        PyObject *item = Py_XNewRef(PyList_GetItem(list, i));
        int err = item != NULL ? store_object(type, out->owned, i, item, what) : -1;
        Py_XDECREF(item);
        if (err < 0)
            return -1;
    }
    return 0;
}

static int reserve_items(py_ints *out, Py_ssize_t count, char type, const char *what)
{
    if (count > INT32_MAX)
        return PY_REFUSE(PyExc_OverflowError, "%s: too many", what);
    out->count = (uint32_t)count;
    if (count == 0)
        return 0;
    out->owned = PyMem_Malloc((size_t)count * kind_of(type)->bytes);
    if (out->owned == NULL)
        return PY_REFUSE_MEMORY();
    out->data = out->owned;
    return 0;
}

/* ---- buffers -------------------------------------------------------------- */

static long long load(const char *at, char format, size_t bytes)
{
    bool is_signed =
        format == 'b' || format == 'h' || format == 'i' || format == 'l' || format == 'q';
    uint64_t bits = 0;
    memcpy(&bits, at, bytes); /* little-endian, as both machines are */
    unsigned shift = 64 - 8 * (unsigned)bytes;
    return is_signed ? (long long)((int64_t)(bits << shift) >> shift) : (long long)bits;
}

static int convert_buffer(const Py_buffer *view, char format, char type, const char *what,
                          py_ints *out)
{
    size_t bytes = (size_t)view->itemsize;
    for (uint32_t i = 0; i < out->count; i++) {
        long long value = load((const char *)view->buf + i * bytes, format, bytes);
        if (bytes == 8 && (format == 'Q' || format == 'L') && value < 0)
            return out_of_range(what, type);
        if (store(type, out->owned, i, value, what) < 0)
            return -1;
    }
    return 0;
}

static int use_buffer(char type, const char *what, py_ints *out)
{
    const Py_buffer *view = &out->view;
    const char *text = view->format != NULL ? view->format : "B";
    text += *text == '@' || *text == '=' || *text == '<';
    char format = *text;
    bool is_whole = format != '\0' && text[1] == '\0' && strchr("bBhHiIlLqQ", format) != NULL;
    if (view->ndim > 1 || !is_whole || view->itemsize > 8)
        return PY_REFUSE(PyExc_TypeError,
                         "%s must be a flat buffer of whole numbers, not of \"%s\"", what, text);
    Py_ssize_t count = view->len / view->itemsize;
    size_t bytes = kind_of(type)->bytes;
    bool is_wanted =
        (size_t)view->itemsize == bytes && (uintptr_t)view->buf % bytes == 0 &&
        (format == type || (type == 'Q' && format == 'L') || (type == 'q' && format == 'l'));
    if (!is_wanted || count > INT32_MAX) {
        if (reserve_items(out, count, type, what) < 0)
            return -1;
        return convert_buffer(view, format, type, what, out);
    }
    out->count = (uint32_t)count;
    out->data = count > 0 ? view->buf : NULL;
    return 0;
}

/* ---- numbers -------------------------------------------------------------- */

static int get_sequence(PyObject *source, char type, const char *what, py_ints *out)
{
    bool is_list = PyList_Check(source);
    PyObject *list = is_list ? Py_NewRef(source) : PySequence_List(source);
    if (list == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s must be a list or a buffer of whole numbers", what);
        return -1;
    }
    int err = reserve_items(out, PyList_Size(list), type, what);
    if (err == 0)
        err = convert_list(list, type, what, out);
    Py_DECREF(list);
    return err;
}

int py_ints_get(PyObject *source, char type, const char *what, py_ints *out)
{
    memset(out, 0, sizeof *out);
    if (source == NULL || source == Py_None)
        return 0;
    int err;
    if (PyUnicode_Check(source))
        return PY_REFUSE(PyExc_TypeError, "%s must be whole numbers, not a str", what);
    if (!PyList_Check(source) && PyObject_CheckBuffer(source)) {
        if (PyObject_GetBuffer(source, &out->view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
            return -1;
        err = use_buffer(type, what, out);
    } else {
        err = get_sequence(source, type, what, out);
    }
    if (err < 0)
        py_ints_release(out);
    return err;
}

void py_ints_release(py_ints *ints)
{
    PyMem_Free(ints->owned);
    PyBuffer_Release(&ints->view);
    memset(ints, 0, sizeof *ints);
}

/* ---- rows ----------------------------------------------------------------- */

static bool is_list_of_lists(PyObject *source)
{
    if (!PyList_Check(source) || PyList_Size(source) == 0)
        return false;
    PyObject *first = PyList_GetItem(source, 0);
    return first != NULL && (PyList_Check(first) || PyTuple_Check(first));
}

/* Rows are mostly short lists of plain ints, which are written in place. */
static int convert_row(py_rows *rows, uint32_t i, PyObject *source, const char *what)
{
    quire_token *at = (quire_token *)rows->flat.owned + (size_t)i * rows->stride;
    py_ints row;
    if (PyList_CheckExact(source)) {
        uint32_t length = (uint32_t)PyList_Size(source);
        if (length <= rows->stride && convert_plain(source, at, length) == length) {
            rows->counts[i] = length;
            return 0;
        }
    }
    if (py_ints_get(source, 'i', what, &row) < 0)
        return -1;
    bool fits = row.count <= rows->stride;
    rows->counts[i] = row.count;
    if (fits && row.count > 0)
        memcpy(at, row.data, row.count * sizeof(quire_token));
    py_ints_release(&row);
    if (!fits)
        PyErr_Format(PyExc_RuntimeError, "%s changed while it was read", what);
    return fits ? 0 : -1;
}

/* The longest row; -1 and an exception when one has no length. */
static Py_ssize_t longest_row(PyObject *source, Py_ssize_t num_rows)
{
    Py_ssize_t most = 1;
    for (Py_ssize_t i = 0; i < num_rows; i++) {
        PyObject *row = Py_XNewRef(PyList_GetItem(source, i));
        Py_ssize_t length = row != NULL ? PyObject_Length(row) : -1;
        Py_XDECREF(row);
        if (length < 0)
            return -1;
        most = length > most ? length : most;
    }
    return most;
}

static int get_rows(PyObject *source, const char *what, py_rows *out)
{
    Py_ssize_t num_rows = PyList_Size(source);
    Py_ssize_t longest = longest_row(source, num_rows);
    if (longest < 0)
        return -1;
    if (longest > INT32_MAX / num_rows)
        return out_of_range(what, 'i');
    out->num_rows = (uint32_t)num_rows;
    out->stride = (uint32_t)longest;
    out->counts = PyMem_Calloc((size_t)num_rows, sizeof(uint32_t));
    if (out->counts == NULL || reserve_items(&out->flat, num_rows * longest, 'i', what) < 0)
        return -1;
    memset(out->flat.owned, 0, (size_t)(num_rows * longest) * sizeof(quire_token));
    for (uint32_t i = 0; i < out->num_rows; i++) {
        PyObject *item = Py_XNewRef(PyList_GetItem(source, i));
        int err = item != NULL ? convert_row(out, i, item, what) : -1;
        Py_XDECREF(item);
        if (err < 0)
            return -1;
    }
    return 0;
}

int py_rows_get(PyObject *source, uint32_t stride, const char *what, py_rows *out)
{
    memset(out, 0, sizeof *out);
    int err;
    if (is_list_of_lists(source)) {
        err = get_rows(source, what, out);
    } else {
        out->stride = stride > 0 ? stride : 1;
        err = py_ints_get(source, 'i', what, &out->flat);
        out->num_rows = out->flat.count / out->stride;
        if (err == 0 && out->flat.count % out->stride != 0) {
            PyErr_Format(PyExc_ValueError, "%s is no multiple of stride", what);
            err = -1;
        }
    }
    if (err < 0) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        py_rows_release(out);
    }
    return err;
}

void py_rows_release(py_rows *rows)
{
    py_ints_release(&rows->flat);
    PyMem_Free(rows->counts);
    rows->counts = NULL;
}

uint32_t py_u32(PyObject *number)
{
    unsigned long value = PyLong_AsUnsignedLong(number);
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* ---- other items ------------------------------------------------------------ */

void *py_items_get(PyObject *source, size_t bytes, py_get_item *get, void *user, uint32_t *count)
{
    PyObject *list = PySequence_List(source);
    if (list == NULL)
        return NULL;
    Py_ssize_t size = PyList_Size(list);
    char *items = PyMem_Calloc((size_t)size + 1, bytes);
    if (items == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; items != NULL && i < size; i++)
        if (get(user, PyList_GetItem(list, i), items + (size_t)i * bytes) < 0) {
            PyMem_Free(items);
            items = NULL;
        }
    Py_DECREF(list);
    *count = (uint32_t)size;
    return items;
}

/* ---- hashes --------------------------------------------------------------- */

static int join_hash(PyObject *item, uint32_t i, py_hashes *out)
{
    char *data;
    Py_ssize_t length;
    if (!PyBytes_Check(item))
        return PY_REFUSE(PyExc_TypeError, "hashes must be bytes");
    if (PyBytes_AsStringAndSize(item, &data, &length) < 0)
        return -1;
    if ((size_t)length != out->hash_len)
        return PY_REFUSE(PyExc_ValueError, "a hash of %zd bytes, where others have %zu", length,
                         out->hash_len);
    memcpy((char *)out->owned + (size_t)i * out->hash_len, data, out->hash_len);
    return 0;
}

static int join_hashes(PyObject *source, py_hashes *out)
{
    PyObject *list = PySequence_List(source);
    Py_ssize_t count = list != NULL ? PyList_Size(list) : -1;
    int err = count < 0 || count > INT32_MAX ? -1 : 0;
    if (err == 0 && count > 0) {
        PyObject *first = PyList_GetItem(list, 0);
        if (out->hash_len == 0 && PyBytes_Check(first))
            out->hash_len = (size_t)PyBytes_Size(first);
        out->count = (uint32_t)count;
        out->owned = PyMem_Malloc((size_t)count * (out->hash_len > 0 ? out->hash_len : 1));
        out->data = out->owned;
        if (out->owned == NULL)
            err = -1;
        for (uint32_t i = 0; err == 0 && i < out->count; i++)
            err = join_hash(PyList_GetItem(list, i), i, out);
    }
    Py_XDECREF(list);
    if (err < 0 && !PyErr_Occurred())
        PyErr_NoMemory();
    return err;
}

static int split_hashes(PyObject *source, py_hashes *out)
{
    if (PyObject_GetBuffer(source, &out->view, PyBUF_SIMPLE) < 0)
        return -1;
    size_t bytes = (size_t)out->view.len;
    if (out->hash_len == 0 || bytes % out->hash_len != 0 || bytes / out->hash_len > INT32_MAX)
        return PY_REFUSE(PyExc_ValueError, "a buffer of hashes needs whole ones: give hash_len");
    out->count = (uint32_t)(bytes / out->hash_len);
    out->data = out->view.buf;
    return 0;
}

int py_hashes_get(PyObject *source, size_t hash_len, py_hashes *out)
{
    memset(out, 0, sizeof *out);
    out->hash_len = hash_len;
    if (source == NULL || source == Py_None)
        return 0;
    int err = PyObject_CheckBuffer(source) ? split_hashes(source, out) : join_hashes(source, out);
    if (err < 0)
        py_ints_release(out);
    return err;
}

int py_bytes_get(PyObject *source, const char *what, quire_bytes *out)
{
    Py_ssize_t length = 0;
    *out = (quire_bytes){NULL, 0};
    if (source == NULL || source == Py_None)
        return 0;
    if (PyUnicode_Check(source)) {
        out->data = PyUnicode_AsUTF8AndSize(source, &length);
    } else if (PyBytes_Check(source)) {
        char *data = NULL;
        PyBytes_AsStringAndSize(source, &data, &length);
        out->data = data;
    } else {
        PyErr_Format(PyExc_TypeError, "%s must be a str or bytes", what);
    }
    out->len = (size_t)length;
    return out->data != NULL ? 0 : -1;
}

int py_bytes_keep(PyObject *keep, PyObject *source, const char *what, quire_bytes *out)
{
    if (py_bytes_get(source, what, out) < 0)
        return -1;
    return out->data != NULL ? PyList_Append(keep, source) : 0;
}

/* ---- out ------------------------------------------------------------------ */

PyObject *py_array_view(const py_state *state, PyObject *bytes, const char *format)
{
    bool is_empty = PyBytes_Size(bytes) == 0; /* a view of nothing cannot be cast */
    PyObject *items = is_empty ? PyObject_CallFunction(state->empty_array, "s", format)
                               : PyMemoryView_FromObject(bytes);
    PyObject *view = items == NULL ? NULL
                     : is_empty    ? PyMemoryView_FromObject(items)
                                   : PyObject_CallMethod(items, "cast", "s", format);
    Py_XDECREF(items);
    return view;
}

PyObject *py_taken_view(PyObject *object, PyObject *bytes, const char *format)
{
    PyObject *view = bytes != NULL ? py_array_view(py_state_of(object), bytes, format) : NULL;
    Py_XDECREF(bytes);
    return view;
}

PyObject *py_copied_view(PyObject *object, const void *data, size_t bytes, const char *format)
{
    return py_taken_view(object, PyBytes_FromStringAndSize(data, (Py_ssize_t)bytes), format);
}
