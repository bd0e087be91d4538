/* ring.c - requests that wait, first come, first served.
 *
 *      slots   [ C | D | . | . | A | B ]      a power of two of them; it doubles when it is full
 *                        ^       head
 *                   head + count
 *
 * vLLM's FCFS queue is a deque of Python's, and what others call on it is here under both names.
 * A request is found by what it is, not by what it equals.
 */
#include "shim.h"

#include <string.h>

#define FIRST_CAPACITY 16

typedef struct ring_object {
    PyObject_HEAD PyObject **slots;
    size_t capacity; /* 0, or a power of two */
    size_t head;
    size_t count;
} ring_object;

static PyObject **ring_slot(const ring_object *self, size_t i)
{
    return &self->slots[(self->head + i) & (self->capacity - 1)];
}

/* Room for one more. */
static int ring_grow(ring_object *self)
{
    if (self->count < self->capacity)
        return 0;
    size_t capacity = self->capacity == 0 ? FIRST_CAPACITY : 2 * self->capacity;
    PyObject **slots = PyMem_Malloc(capacity * sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < self->count; i++)
        slots[i] = *ring_slot(self, i);
    PyMem_Free(self->slots);
    self->slots = slots;
    self->capacity = capacity;
    self->head = 0;
    return 0;
}

static int ring_add(ring_object *self, PyObject *request, int is_at_head)
{
    if (ring_grow(self) < 0)
        return -1;
    if (is_at_head)
        self->head = (self->head - 1) & (self->capacity - 1);
    self->count++;
    *ring_slot(self, is_at_head ? 0 : self->count - 1) = Py_NewRef(request);
    return 0;
}

static PyObject *ring_append(PyObject *self, PyObject *request)
{
    return ring_add((ring_object *)self, request, 0) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *ring_append_left(PyObject *self, PyObject *request)
{
    return ring_add((ring_object *)self, request, 1) < 0 ? NULL : Py_NewRef(Py_None);
}

/* All of an iterable, which may be the ring itself; to the head one by one, so the last comes to
 * stand first. */
static PyObject *ring_add_all(PyObject *object, PyObject *requests, int is_at_head)
{
    PyObject *list = PySequence_List(requests);
    if (list == NULL)
        return NULL;
    Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n; i++)
        if (ring_add((ring_object *)object, PyList_GetItem(list, i), is_at_head) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    Py_DECREF(list);
    Py_RETURN_NONE;
}

static PyObject *ring_extend(PyObject *self, PyObject *requests)
{
    return ring_add_all(self, requests, 0);
}

static PyObject *ring_extend_left(PyObject *self, PyObject *requests)
{
    return ring_add_all(self, requests, 1);
}

static PyObject *ring_peek(PyObject *object, PyObject *unused)
{
    (void)unused;
    ring_object *self = (ring_object *)object;
    if (self->count == 0) {
        PyErr_SetString(PyExc_IndexError, "peek from an empty queue");
        return NULL;
    }
    return Py_NewRef(*ring_slot(self, 0));
}

static PyObject *ring_pop_left(PyObject *object, PyObject *unused)
{
    (void)unused;
    ring_object *self = (ring_object *)object;
    if (self->count == 0) {
        PyErr_SetString(PyExc_IndexError, "pop from an empty queue");
        return NULL;
    }
    PyObject *request = *ring_slot(self, 0);
    self->head = (self->head + 1) & (self->capacity - 1);
    self->count--;
    return request;
}

static PyObject *ring_remove(PyObject *object, PyObject *request)
{
    ring_object *self = (ring_object *)object;
    size_t at = 0;
    while (at < self->count && *ring_slot(self, at) != request)
        at++;
    if (at == self->count) {
        PyErr_Format(PyExc_ValueError, "%R is not in the queue", request);
        return NULL;
    }
    for (; at + 1 < self->count; at++)
        *ring_slot(self, at) = *ring_slot(self, at + 1);
    self->count--;
    Py_DECREF(request); /* the ring's own; the caller has another */
    Py_RETURN_NONE;
}

static int ring_clear_all(PyObject *object)
{
    ring_object *self = (ring_object *)object;
    PyObject **slots = self->slots;
    size_t capacity = self->capacity;
    size_t head = self->head;
    size_t count = self->count;
    self->slots = NULL; /* what is given up may ask the ring */
    self->capacity = 0;
    self->head = 0;
    self->count = 0;
    for (size_t i = 0; i < count; i++)
        Py_DECREF(slots[(head + i) & (capacity - 1)]);
    PyMem_Free(slots);
    return 0;
}

static PyObject *ring_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    ring_clear_all(self);
    Py_RETURN_NONE;
}

/* The requests of this moment. Its making may set off the garbage collector, and so change the
 * ring; filling it cannot. */
static PyObject *ring_list(const ring_object *self)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < self->count; i++)
        if (PyList_Append(list, *ring_slot(self, i)) < 0)
            Py_CLEAR(list);
    return list;
}

/* To ask the set runs Python code, so a list is filtered, and takes the place of all. */
static PyObject *ring_remove_all(PyObject *object, PyObject *requests)
{
    PyObject *gone = PySet_New(requests);
    PyObject *list = gone == NULL ? NULL : ring_list((ring_object *)object);
    PyObject *kept = list == NULL ? NULL : PyList_New(0);
    PyObject *result = NULL;
    if (kept == NULL)
        goto end;
    Py_ssize_t n = PyList_Size(list);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *request = PyList_GetItem(list, i);
        int is_gone = PySet_Contains(gone, request);
        if (is_gone < 0 || (!is_gone && PyList_Append(kept, request) < 0))
            goto end;
    }
    ring_clear_all(object);
    result = ring_add_all(object, kept, 0);
end:
    Py_XDECREF(kept);
    Py_XDECREF(list);
    Py_XDECREF(gone);
    return result;
}

/* ---- as a sequence --------------------------------------------------------- */

static Py_ssize_t ring_length(PyObject *self)
{
    return (Py_ssize_t)((ring_object *)self)->count;
}

static int ring_bool(PyObject *self)
{
    return ((ring_object *)self)->count > 0;
}

/* The interpreter has added the length to a negative place. */
static PyObject *ring_item(PyObject *object, Py_ssize_t i)
{
    ring_object *self = (ring_object *)object;
    if (i < 0 || (size_t)i >= self->count) {
        PyErr_SetString(PyExc_IndexError, "the queue is not that long");
        return NULL;
    }
    return Py_NewRef(*ring_slot(self, (size_t)i));
}

static int ring_contains(PyObject *object, PyObject *request)
{
    ring_object *self = (ring_object *)object;
    for (size_t i = 0; i < self->count; i++)
        if (*ring_slot(self, i) == request)
            return 1;
    return 0;
}

static PyObject *ring_iter(PyObject *self)
{
    PyObject *list = ring_list((ring_object *)self);
    PyObject *iter = list == NULL ? NULL : PyObject_GetIter(list);
    Py_XDECREF(list);
    return iter;
}

/* ---- the type -------------------------------------------------------------- */

static int ring_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *requests = NULL;
    if (kwargs != NULL && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a request queue takes no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "|O", &requests))
        return -1;
    ring_clear_all(self);
    PyObject *added = requests == NULL ? Py_NewRef(Py_None) : ring_extend(self, requests);
    Py_XDECREF(added);
    return added == NULL ? -1 : 0;
}

static int ring_traverse(PyObject *object, visitproc visit, void *arg)
{
    ring_object *self = (ring_object *)object;
    for (size_t i = 0; i < self->count; i++)
        Py_VISIT(*ring_slot(self, i));
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void ring_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    ring_clear_all(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef ring_methods[] = {
    {"add_request", ring_append, METH_O, "Puts a request at the end."},
    {"append", ring_append, METH_O, "Puts a request at the end."},
    {"prepend_request", ring_append_left, METH_O, "Puts a request before all others."},
    {"appendleft", ring_append_left, METH_O, "Puts a request before all others."},
    {"extend", ring_extend, METH_O, "Puts requests at the end."},
    {"prepend_requests", ring_extend_left, METH_O, "Puts requests to the front, one by one."},
    {"extendleft", ring_extend_left, METH_O, "Puts requests to the front, one by one."},
    {"peek_request", ring_peek, METH_NOARGS, "The first request."},
    {"pop_request", ring_pop_left, METH_NOARGS, "Takes the first request out."},
    {"popleft", ring_pop_left, METH_NOARGS, "Takes the first request out."},
    {"remove_request", ring_remove, METH_O, "Takes this request out."},
    {"remove", ring_remove, METH_O, "Takes this request out."},
    {"remove_requests", ring_remove_all, METH_O, "Takes these requests out, if they are there."},
    {"clear", ring_clear, METH_NOARGS, "Takes all out."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_doc, "Requests in the order in which they came."},
    {Py_tp_init, (void *)ring_init},
    {Py_tp_dealloc, (void *)ring_dealloc},
    {Py_tp_traverse, (void *)ring_traverse},
    {Py_tp_clear, (void *)ring_clear_all},
    {Py_tp_iter, (void *)ring_iter},
    {Py_tp_methods, ring_methods},
    {Py_sq_length, (void *)ring_length},
    {Py_sq_item, (void *)ring_item},
    {Py_sq_contains, (void *)ring_contains},
    {Py_nb_bool, (void *)ring_bool},
    {0, NULL},
};

static PyType_Spec ring_spec = {
    .name = "_quire_shim.RequestRing",
    .basicsize = (int)sizeof(ring_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = ring_slots,
};

PyObject *vllm_ring_make_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &ring_spec, NULL);
}
