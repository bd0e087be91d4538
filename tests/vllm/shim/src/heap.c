/* heap.c - requests that wait, the most urgent first.
 *
 *      order   (priority, arrival_time, request_id), the smallest first; then the object's address,
 *              as in vLLM, so that no two requests are equal and the order is one only
 *
 *              0            a heap: entry i is not behind entries 2i + 1 and 2i + 2
 *            1   2
 *
 * An entry has a copy of what a request is ordered by, taken when it is added: no attribute is
 * looked up and no Python code runs while entries are compared.
 */
#include "shim.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

typedef struct heap_entry {
    long long priority;
    double arrival_time;
    PyObject *id;
    PyObject *request;
} heap_entry;

typedef struct heap_object {
    PyObject_HEAD heap_entry *entries;
    size_t capacity;
    size_t count;
    uint64_t num_changes;
} heap_object;

/* ---- the order ------------------------------------------------------------- */

static int entry_compare(const void *left, const void *right)
{
    const heap_entry *a = left;
    const heap_entry *b = right;
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    if (a->arrival_time != b->arrival_time)
        return a->arrival_time < b->arrival_time ? -1 : 1;
    int order = a->id == b->id ? 0 : PyUnicode_Compare(a->id, b->id);
    if (order != 0)
        return order;
    uintptr_t address_a = (uintptr_t)a->request;
    uintptr_t address_b = (uintptr_t)b->request;
    return (address_a > address_b) - (address_a < address_b);
}

static void heap_sift_up(heap_object *self, size_t at)
{
    heap_entry moved = self->entries[at];
    while (at > 0 && entry_compare(&moved, &self->entries[(at - 1) / 2]) < 0) {
        self->entries[at] = self->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    self->entries[at] = moved;
}

static void heap_sift_down(heap_object *self, size_t at)
{
    heap_entry moved = self->entries[at];
    for (size_t child; (child = 2 * at + 1) < self->count; at = child) {
        if (child + 1 < self->count &&
            entry_compare(&self->entries[child + 1], &self->entries[child]) < 0)
            child++;
        if (entry_compare(&moved, &self->entries[child]) <= 0)
            break;
        self->entries[at] = self->entries[child];
    }
    self->entries[at] = moved;
}

/* Takes an entry out; its references become the caller's. */
static heap_entry heap_take(heap_object *self, size_t at)
{
    heap_entry taken = self->entries[at];
    self->num_changes++;
    self->count--;
    if (at < self->count) {
        self->entries[at] = self->entries[self->count];
        heap_sift_down(self, at);
        heap_sift_up(self, at);
    }
    return taken;
}

static void entry_release(heap_entry *entry)
{
    Py_DECREF(entry->id);
    Py_DECREF(entry->request);
}

/* ---- adding ---------------------------------------------------------------- */

/* Names of attributes, made once for the process. */
static struct {
    PyObject *priority;
    PyObject *arrival_time;
    PyObject *request_id;
} names;

static int entry_read(PyObject *request, heap_entry *entry)
{
    PyObject *priority = PyObject_GetAttr(request, names.priority);
    PyObject *time = priority == NULL ? NULL : PyObject_GetAttr(request, names.arrival_time);
    PyObject *id = time == NULL ? NULL : PyObject_GetAttr(request, names.request_id);
    int failed = 1;
    if (id != NULL && !PyUnicode_Check(id)) {
        PyErr_Format(PyExc_TypeError, "request_id must be a str, not %R", id);
    } else if (id != NULL) {
        entry->priority = PyLong_AsLongLong(priority);
        entry->arrival_time = PyErr_Occurred() ? 0 : PyFloat_AsDouble(time);
        failed = PyErr_Occurred() != NULL;
    }
    if (!failed && entry->arrival_time != entry->arrival_time) {
        PyErr_SetString(PyExc_ValueError, "arrival_time is not a number");
        failed = 1;
    }
    Py_XDECREF(priority);
    Py_XDECREF(time);
    if (failed) {
        Py_XDECREF(id);
        return -1;
    }
    entry->id = id;
    entry->request = Py_NewRef(request);
    return 0;
}

static int heap_add_one(heap_object *self, PyObject *request)
{
    heap_entry entry;
    if (entry_read(request, &entry) < 0)
        return -1;
    if (self->count == self->capacity) {
        size_t capacity = self->capacity == 0 ? FIRST_CAPACITY : 2 * self->capacity;
        heap_entry *entries = PyMem_Realloc(self->entries, capacity * sizeof *entries);
        if (entries == NULL) {
            entry_release(&entry);
            PyErr_NoMemory();
            return -1;
        }
        self->entries = entries;
        self->capacity = capacity;
    }
    self->entries[self->count++] = entry;
    self->num_changes++;
    heap_sift_up(self, self->count - 1);
    return 0;
}

static PyObject *heap_add(PyObject *self, PyObject *request)
{
    return heap_add_one((heap_object *)self, request) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *heap_add_all(PyObject *self, PyObject *requests)
{
    PyObject *list = PySequence_List(requests);
    if (list == NULL)
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    int failed = 0;
    for (Py_ssize_t i = 0; i < n && !failed; i++)
        failed = heap_add_one((heap_object *)self, PyList_GetItem(list, i)) < 0;
    Py_DECREF(list);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- taking ---------------------------------------------------------------- */

static PyObject *heap_peek(PyObject *object, PyObject *unused)
{
    (void)unused;
    heap_object *self = (heap_object *)object;
    if (self->count == 0) {
        PyErr_SetString(PyExc_IndexError, "peek from an empty queue");
        return NULL;
    }
    return Py_NewRef(self->entries[0].request);
}

static PyObject *heap_pop(PyObject *object, PyObject *unused)
{
    (void)unused;
    heap_object *self = (heap_object *)object;
    if (self->count == 0) {
        PyErr_SetString(PyExc_IndexError, "pop from an empty queue");
        return NULL;
    }
    heap_entry taken = heap_take(self, 0);
    Py_DECREF(taken.id);
    return taken.request;
}

static PyObject *heap_remove(PyObject *object, PyObject *request)
{
    heap_object *self = (heap_object *)object;
    size_t at = 0;
    while (at < self->count && self->entries[at].request != request)
        at++;
    if (at == self->count) {
        PyErr_Format(PyExc_ValueError, "%R is not in the queue", request);
        return NULL;
    }
    heap_entry taken = heap_take(self, at);
    entry_release(&taken);
    Py_RETURN_NONE;
}

/* The requests of this moment, as the heap has them, or in order of service. The list is made
 * first: that may set off the garbage collector, and so change the queue. */
static PyObject *heap_list(const heap_object *self, int is_sorted)
{
    PyObject *list = PyList_New(0);
    heap_entry *entries = PyMem_Malloc((self->count + 1) * sizeof *entries);
    int failed = list == NULL || entries == NULL;
    if (entries == NULL)
        PyErr_NoMemory();
    if (!failed && self->count > 0) {
        memcpy(entries, self->entries, self->count * sizeof *entries);
        if (is_sorted)
            qsort(entries, self->count, sizeof *entries, entry_compare);
    }
    for (size_t i = 0; !failed && i < self->count; i++)
        failed = PyList_Append(list, entries[i].request) < 0;
    PyMem_Free(entries);
    if (failed)
        Py_CLEAR(list);
    return list;
}

/* Marks those of all that are in the set. To ask it may run Python code: -1 if that changed the
 * queue. */
static int heap_mark(const heap_object *self, PyObject *all, PyObject *gone, char *marks)
{
    uint64_t num_changes = self->num_changes;
    Py_ssize_t n = PyList_Size(all);
    int is_gone = 0;
    for (Py_ssize_t i = 0; i < n && is_gone >= 0; i++) {
        is_gone = PySet_Contains(gone, PyList_GetItem(all, i));
        marks[i] = is_gone > 0;
    }
    if (is_gone >= 0 && num_changes != self->num_changes) {
        PyErr_SetString(PyExc_RuntimeError, "the queue changed while requests were removed");
        return -1;
    }
    return is_gone < 0 ? -1 : 0;
}

static PyObject *heap_remove_all(PyObject *object, PyObject *requests)
{
    heap_object *self = (heap_object *)object;
    PyObject *gone = PySet_New(requests);
    PyObject *all = gone == NULL ? NULL : heap_list(self, 0);
    char *marks = all == NULL ? NULL : PyMem_Calloc((size_t)PyList_Size(all) + 1, 1);
    PyObject *result = NULL;
    if (all != NULL && marks == NULL)
        PyErr_NoMemory();
    if (marks == NULL || heap_mark(self, all, gone, marks) < 0)
        goto end;
    size_t num_gone = 0;
    for (size_t i = 0; i < self->count; i++) {
        heap_entry entry = self->entries[i];
        if (!marks[i]) {
            self->entries[i - num_gone] = entry;
            continue;
        }
        num_gone++;
        entry_release(&entry); /* in the list too, so nothing ends here and runs Python code */
    }
    self->count -= num_gone;
    self->num_changes++;
    for (size_t at = self->count / 2; at-- > 0;)
        heap_sift_down(self, at);
    result = Py_NewRef(Py_None);
end:
    PyMem_Free(marks);
    Py_XDECREF(all);
    Py_XDECREF(gone);
    return result;
}

static int heap_clear_all(PyObject *object)
{
    heap_object *self = (heap_object *)object;
    heap_entry *entries = self->entries;
    size_t count = self->count;
    self->entries = NULL; /* what is given up may ask the heap */
    self->capacity = 0;
    self->count = 0;
    self->num_changes++;
    for (size_t i = 0; i < count; i++)
        entry_release(&entries[i]);
    PyMem_Free(entries);
    return 0;
}

/* ---- looking --------------------------------------------------------------- */

static Py_ssize_t heap_length(PyObject *self)
{
    return (Py_ssize_t)((heap_object *)self)->count;
}

static int heap_bool(PyObject *self)
{
    return ((heap_object *)self)->count > 0;
}

static int heap_contains(PyObject *object, PyObject *request)
{
    heap_object *self = (heap_object *)object;
    for (size_t i = 0; i < self->count; i++)
        if (self->entries[i].request == request)
            return 1;
    return 0;
}

static PyObject *heap_iter(PyObject *self)
{
    PyObject *list = heap_list((heap_object *)self, 1);
    PyObject *iter = list == NULL ? NULL : PyObject_GetIter(list);
    Py_XDECREF(list);
    return iter;
}

static PyObject *heap_get_heap(PyObject *object, void *unused)
{
    (void)unused;
    return heap_list((heap_object *)object, 0);
}

/* ---- the type -------------------------------------------------------------- */

static int heap_traverse(PyObject *object, visitproc visit, void *arg)
{
    heap_object *self = (heap_object *)object;
    for (size_t i = 0; i < self->count; i++)
        Py_VISIT(self->entries[i].request);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void heap_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    heap_clear_all(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef heap_methods[] = {
    {"add_request", heap_add, METH_O, "Adds a request."},
    {"prepend_request", heap_add, METH_O, "Adds a request: urgency alone decides its place."},
    {"prepend_requests", heap_add_all, METH_O, "Adds requests."},
    {"peek_request", heap_peek, METH_NOARGS, "The most urgent request."},
    {"pop_request", heap_pop, METH_NOARGS, "Takes the most urgent request out."},
    {"remove_request", heap_remove, METH_O, "Takes this request out."},
    {"remove_requests", heap_remove_all, METH_O, "Takes these requests out, if they are there."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef heap_getset[] = {
    {"_heap", heap_get_heap, NULL, "The requests of this moment, the most urgent first.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot heap_slots[] = {
    {Py_tp_doc, "Requests by (priority, arrival_time, request_id)."},
    {Py_tp_dealloc, (void *)heap_dealloc},
    {Py_tp_traverse, (void *)heap_traverse},
    {Py_tp_clear, (void *)heap_clear_all},
    {Py_tp_iter, (void *)heap_iter},
    {Py_tp_methods, heap_methods},
    {Py_tp_getset, heap_getset},
    {Py_sq_length, (void *)heap_length},
    {Py_sq_contains, (void *)heap_contains},
    {Py_nb_bool, (void *)heap_bool},
    {0, NULL},
};

static PyType_Spec heap_spec = {
    .name = "_quire_shim.RequestHeap",
    .basicsize = (int)sizeof(heap_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = heap_slots,
};

PyObject *vllm_heap_make_type(PyObject *module)
{
    names.priority = PyUnicode_InternFromString("priority");
    names.arrival_time = PyUnicode_InternFromString("arrival_time");
    names.request_id = PyUnicode_InternFromString("request_id");
    if (names.priority == NULL || names.arrival_time == NULL || names.request_id == NULL)
        return NULL;
    return PyType_FromModuleAndSpec(module, &heap_spec, NULL);
}
