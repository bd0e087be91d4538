/* module.c - the extension quire._record. */
#include "record.h"

#include <stdio.h>
#include <string.h>

PyMODINIT_FUNC PyInit__record(void);

/* ---- what the files share ------------------------------------------------------ */

quire_recorder *record_open_recorder(PyObject *self)
{
    quire_recorder *recorder = ((record_recorder *)self)->recorder;
    if (recorder == NULL)
        PyErr_SetString(PyExc_ValueError, "the recorder is closed");
    return recorder;
}

int record_push(record_list *list, uint32_t number)
{
    if (list->count == list->room) {
        uint32_t room = list->room == 0 ? 256 : 2 * list->room;
        uint32_t *items = PyMem_Realloc(list->items, room * sizeof *items);
        if (items == NULL)
            return PY_REFUSE_MEMORY();
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = number;
    return 0;
}

int record_push_pair(record_list *list, uint32_t req, uint32_t number)
{
    return record_push(list, req) < 0 || record_push(list, number) < 0 ? -1 : 0;
}

PyObject *record_result(int status, PyObject *value)
{
    if (status == QUIRE_OK || status == QUIRE_FULL || status == QUIRE_E_SYSTEM)
        return value;
    Py_XDECREF(value);
    return PyErr_Format(PyExc_ValueError, "%s (%s)", quire_strerror(status),
                        quire_status_name(status));
}

int record_read_number(PyObject *number, uint32_t *value)
{
    unsigned long long read = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred())
        return -1;
    if (read > UINT32_MAX)
        return PY_REFUSE(PyExc_OverflowError, "%llu is more than 32 bits have", read);
    *value = (uint32_t)read;
    return 0;
}

static int read_hash(PyObject *hash, Py_ssize_t expected, unsigned char *at)
{
    if (!PyBytes_Check(hash))
        return PY_REFUSE(PyExc_TypeError, "hashes must be a list of bytes");
    if (PyBytes_GET_SIZE(hash) != expected)
        return PY_REFUSE(PyExc_ValueError, "hashes have %zd and %zd bytes", expected,
                         PyBytes_GET_SIZE(hash));
    memcpy(at, PyBytes_AS_STRING(hash), (size_t)expected);
    return 0;
}

int record_read_hashes(record_recorder *self, PyObject *list, Py_ssize_t first, uint32_t *count,
                       uint32_t *hash_bytes)
{
    *count = *hash_bytes = 0;
    if (list == NULL || list == Py_None)
        return 0;
    if (!PyList_Check(list))
        return PY_REFUSE(PyExc_TypeError, "hashes must be a list of bytes");
    Py_ssize_t num = PyList_GET_SIZE(list) - first;
    if (num <= 0)
        return 0;
    PyObject *one = PyList_GET_ITEM(list, first);
    Py_ssize_t bytes = PyBytes_Check(one) ? PyBytes_GET_SIZE(one) : 1;
    if ((size_t)(num * bytes) > self->bytes_room) {
        unsigned char *room = PyMem_Realloc(self->bytes, (size_t)(2 * num * bytes));
        if (room == NULL)
            return PY_REFUSE_MEMORY();
        self->bytes = room;
        self->bytes_room = (size_t)(2 * num * bytes);
    }
    for (Py_ssize_t i = 0; i < num; i++)
        if (read_hash(PyList_GET_ITEM(list, first + i), bytes, self->bytes + i * bytes) < 0)
            return -1;
    *count = (uint32_t)num;
    *hash_bytes = (uint32_t)bytes;
    return 0;
}

void record_fill_step(const record_recorder *self, quire_recorded_step *step)
{
    const record_list *lists = self->lists;
    step->num_reqs = lists[RECORD_REQS].count;
    step->reqs = lists[RECORD_REQS].items;
    step->num_tokens = lists[RECORD_TOKENS].items;
    step->preempted = lists[RECORD_PREEMPTED].items;
    step->num_preempted = lists[RECORD_PREEMPTED].count;
    step->new_reqs = (const quire_recorded_pair *)lists[RECORD_NEW].items;
    step->num_new = lists[RECORD_NEW].count / 2;
    step->resumed = (const quire_recorded_pair *)lists[RECORD_RESUMED].items;
    step->num_resumed = lists[RECORD_RESUMED].count / 2;
    step->drafts = (const quire_recorded_pair *)lists[RECORD_DRAFTS].items;
    step->num_drafts = lists[RECORD_DRAFTS].count / 2;
    step->encoder = (const quire_recorded_pair *)lists[RECORD_ENCODER].items;
    step->num_encoder = lists[RECORD_ENCODER].count / 2;
}

/* ---- the type ------------------------------------------------------------------- */

static void say_error(void *user, quire_log_level level, const char *message)
{
    (void)user, (void)level;
    (void)fprintf(stderr, "quire: %s\n", message); /* once, on a thread without the GIL */
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path",       "engine",   "engine_version", "scheduler",
                            "model",      "config",   "inexact",        "buffer_bytes",
                            "part_bytes", "flush_ms", "level",          NULL};
    quire_recorder_config config = QUIRE_RECORDER_CONFIG_INIT;
    unsigned long long buffer_bytes = 0;
    unsigned long long part_bytes = 0;
    PyObject *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O&|$zzzzzzKKII", names, PyUnicode_FSConverter, &path, &config.engine,
            &config.engine_version, &config.scheduler, &config.model, &config.config,
            &config.inexact, &buffer_bytes, &part_bytes, &config.flush_ms, &config.level))
        return NULL;
    record_recorder *self = (record_recorder *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_DECREF(path);
        return NULL;
    }
    config.path = PyBytes_AS_STRING(path);
    config.buffer_bytes = buffer_bytes;
    config.part_bytes = part_bytes;
    config.hooks.log = say_error;
    int status = quire_recorder_create(&config, &self->recorder);
    Py_DECREF(path);
    if (status == QUIRE_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_Format(status == QUIRE_E_SYSTEM ? PyExc_OSError : PyExc_ValueError, "%s",
                        quire_refusal());
}

static PyObject *recorder_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
    quire_recorder *recorder = ((record_recorder *)self)->recorder;
    ((record_recorder *)self)->recorder = NULL;
    Py_BEGIN_ALLOW_THREADS quire_recorder_destroy(recorder);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void recorder_dealloc(PyObject *self)
{
    record_recorder *r = (record_recorder *)self;
    PyTypeObject *type = Py_TYPE(self);
    quire_recorder *recorder = r->recorder;
    r->recorder = NULL;
    Py_BEGIN_ALLOW_THREADS quire_recorder_destroy(recorder);
    Py_END_ALLOW_THREADS for (int i = 0; i < RECORD_NUM_LISTS; i++) PyMem_Free(r->lists[i].items);
    PyMem_Free(r->bytes);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *recorder_stats(PyObject *self, PyObject *Py_UNUSED(unused))
{
    quire_recorder_stats stats = QUIRE_RECORDER_STATS_INIT;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL ||
        record_result(quire_recorder_get_stats(recorder, &stats), Py_None) == NULL)
        return NULL;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "lines", stats.num_lines, "lost", stats.num_lost,
                         "bytes", stats.num_bytes, "parts", stats.num_parts, "errors",
                         stats.num_errors);
}

static PyObject *recorder_path(PyObject *self, void *Py_UNUSED(unused))
{
    quire_recorder *recorder = record_open_recorder(self);
    return recorder == NULL ? NULL : PyUnicode_DecodeFSDefault(quire_recorder_get_path(recorder));
}

static PyMethodDef own_methods[] = {
    {"close", recorder_close, METH_NOARGS, "Writes what is in the buffer, and closes the files."},
    {"stats", recorder_stats, METH_NOARGS, "Lines, lost lines, bytes, parts and errors."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef recorder_fields[] = {
    {"path", recorder_path, NULL, "The path of the first part.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

enum { MOST_METHODS = 32 };

static size_t append(PyMethodDef *all, size_t count, const PyMethodDef *methods)
{
    for (; methods->ml_name != NULL; methods++)
        all[count++] = *methods;
    return count;
}

PyMODINIT_FUNC PyInit__record(void)
{
    static PyMethodDef methods[MOST_METHODS];
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "quire._record",
                                            .m_doc = "The C side of quire.Recorder.", .m_size = -1};
    size_t count = append(methods, 0, own_methods);
    count = append(methods, count, record_line_methods);
    (void)append(methods, count, record_step_methods);
    PyType_Slot slots[] = {{Py_tp_new, recorder_new},
                           {Py_tp_dealloc, recorder_dealloc},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, recorder_fields},
                           {Py_tp_doc, "Writes a recording; see docs/recording.md."},
                           {0, NULL}};
    PyType_Spec spec = {"quire._record.Recorder", sizeof(record_recorder), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *module = PyModule_Create(&definition);
    PyObject *type = module == NULL ? NULL : PyType_FromSpec(&spec);
    if (type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
