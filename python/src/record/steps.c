/* steps.c - lines of what vLLM's scheduler returns and reads; it runs in every step. */
#include "record.h"

#include <stdlib.h>

/* The number of a request id: 0 where it has none. */
static uint32_t number_of(PyObject *numbers, PyObject *id)
{
    PyObject *number = PyDict_GetItemWithError(numbers, id);
    return number == NULL ? 0 : (uint32_t)PyLong_AsUnsignedLong(number);
}

/* A list of what an attribute has; NULL and an exception. */
static PyObject *list_attribute(PyObject *object, const char *name)
{
    PyObject *list = PyObject_GetAttrString(object, name);
    if (list != NULL && !PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "%s is not a list", name);
        Py_CLEAR(list);
    }
    return list;
}

static PyObject *dict_attribute(PyObject *object, const char *name)
{
    PyObject *dict = PyObject_GetAttrString(object, name);
    if (dict != NULL && !PyDict_Check(dict)) {
        PyErr_Format(PyExc_TypeError, "%s is not a dict", name);
        Py_CLEAR(dict);
    }
    return dict;
}

static int read_tokens(PyObject *output, PyObject *numbers, record_list *lists)
{
    PyObject *scheduled = dict_attribute(output, "num_scheduled_tokens");
    PyObject *id;
    PyObject *tokens;
    Py_ssize_t at = 0;
    if (scheduled == NULL)
        return -1;
    while (PyDict_Next(scheduled, &at, &id, &tokens))
        if (record_push(&lists[RECORD_REQS], number_of(numbers, id)) < 0 ||
            record_push(&lists[RECORD_TOKENS], (uint32_t)PyLong_AsUnsignedLong(tokens)) < 0)
            break;
    Py_DECREF(scheduled);
    return PyErr_Occurred() ? -1 : 0;
}

static int push_hit(PyObject *request, PyObject *numbers, record_list *list)
{
    PyObject *id = PyObject_GetAttrString(request, "req_id");
    PyObject *computed = PyObject_GetAttrString(request, "num_computed_tokens");
    if (id != NULL && computed != NULL)
        (void)record_push_pair(list, number_of(numbers, id),
                               (uint32_t)PyLong_AsUnsignedLong(computed));
    Py_XDECREF(id);
    Py_XDECREF(computed);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_new(PyObject *output, PyObject *numbers, record_list *lists)
{
    PyObject *requests = list_attribute(output, "scheduled_new_reqs");
    int failed = requests == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(requests); i++)
        failed = push_hit(PyList_GET_ITEM(requests, i), numbers, &lists[RECORD_NEW]) < 0;
    Py_XDECREF(requests);
    return failed ? -1 : 0;
}

/* Requests that were preempted and are scheduled again are among the cached ones. */
static int push_resumed(PyObject *cached, PyObject *resumed, PyObject *numbers, record_list *list)
{
    PyObject *ids = list_attribute(cached, "req_ids");
    PyObject *computed = ids == NULL ? NULL : list_attribute(cached, "num_computed_tokens");
    int failed = computed == NULL || PyList_GET_SIZE(computed) < PyList_GET_SIZE(ids);
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(ids); i++) {
        int is_resumed = PySet_Contains(resumed, PyList_GET_ITEM(ids, i));
        if (is_resumed == 1)
            (void)record_push_pair(list, number_of(numbers, PyList_GET_ITEM(ids, i)),
                                   (uint32_t)PyLong_AsUnsignedLong(PyList_GET_ITEM(computed, i)));
        failed = PyErr_Occurred() != NULL;
    }
    Py_XDECREF(ids);
    Py_XDECREF(computed);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_resumed(PyObject *output, PyObject *numbers, record_list *lists)
{
    PyObject *cached = PyObject_GetAttrString(output, "scheduled_cached_reqs");
    PyObject *resumed = cached == NULL ? NULL : PyObject_GetAttrString(cached, "resumed_req_ids");
    int failed = resumed == NULL;
    if (!failed && PySet_Check(resumed) && PySet_GET_SIZE(resumed) > 0)
        failed = push_resumed(cached, resumed, numbers, &lists[RECORD_RESUMED]) < 0;
    Py_XDECREF(cached);
    Py_XDECREF(resumed);
    return failed ? -1 : 0;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A set, which has no order: by number. */
static int read_preempted(PyObject *output, PyObject *numbers, record_list *lists)
{
    record_list *list = &lists[RECORD_PREEMPTED];
    PyObject *preempted = PyObject_GetAttrString(output, "preempted_req_ids");
    PyObject *ids = NULL;
    if (preempted != NULL && preempted != Py_None)
        ids = PySequence_List(preempted);
    Py_XDECREF(preempted);
    for (Py_ssize_t i = 0; ids != NULL && i < PyList_GET_SIZE(ids); i++)
        (void)record_push(list, number_of(numbers, PyList_GET_ITEM(ids, i)));
    Py_XDECREF(ids);
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, compare);
    return PyErr_Occurred() ? -1 : 0;
}

/* A dict of lists: the lists' lengths, or with `has_items` a pair for each item. */
static int read_lists(PyObject *output, const char *name, PyObject *numbers, record_list *list,
                      int has_items)
{
    PyObject *dict = dict_attribute(output, name);
    PyObject *id;
    PyObject *items;
    Py_ssize_t at = 0;
    while (dict != NULL && PyDict_Next(dict, &at, &id, &items) && PyList_Check(items)) {
        uint32_t number = number_of(numbers, id);
        if (!has_items)
            (void)record_push_pair(list, number, (uint32_t)PyList_GET_SIZE(items));
        for (Py_ssize_t i = 0; has_items && i < PyList_GET_SIZE(items); i++)
            (void)record_push_pair(list, number,
                                   (uint32_t)PyLong_AsUnsignedLong(PyList_GET_ITEM(items, i)));
    }
    Py_XDECREF(dict);
    return PyErr_Occurred() ? -1 : 0;
}

/* (SchedulerOutput, {id: number}, running, waiting, free blocks, throttle): the step's number. */
static PyObject *schedule_output(PyObject *self, PyObject *args)
{
    quire_recorded_step step = QUIRE_RECORDED_STEP_INIT;
    record_list *lists = ((record_recorder *)self)->lists;
    PyObject *output;
    PyObject *numbers;
    uint64_t number = 0;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL ||
        !PyArg_ParseTuple(args, "OO!IIIp", &output, &PyDict_Type, &numbers, &step.num_running,
                          &step.num_waiting, &step.num_free_blocks, &step.throttle_prefills))
        return NULL;
    for (int i = 0; i < RECORD_NUM_LISTS; i++)
        lists[i].count = 0;
    if (read_tokens(output, numbers, lists) < 0 || read_new(output, numbers, lists) < 0 ||
        read_resumed(output, numbers, lists) < 0 || read_preempted(output, numbers, lists) < 0 ||
        read_lists(output, "scheduled_spec_decode_tokens", numbers, &lists[RECORD_DRAFTS], 0) < 0 ||
        read_lists(output, "scheduled_encoder_inputs", numbers, &lists[RECORD_ENCODER], 1) < 0)
        return NULL;
    record_fill_step((record_recorder *)self, &step);
    int status = quire_recorder_schedule(recorder, &step, &number);
    return record_result(status, PyLong_FromUnsignedLongLong(number));
}

/* The number of sampled tokens of each request of the step, in its order. */
static int read_sampled(PyObject *output, PyObject *computed, record_list *list)
{
    PyObject *scheduled = dict_attribute(output, "num_scheduled_tokens");
    PyObject *places = scheduled == NULL ? NULL : dict_attribute(computed, "req_id_to_index");
    PyObject *sampled = places == NULL ? NULL : list_attribute(computed, "sampled_token_ids");
    PyObject *id;
    PyObject *tokens;
    Py_ssize_t at = 0;
    list->count = 0;
    while (sampled != NULL && PyDict_Next(scheduled, &at, &id, &tokens)) {
        PyObject *place = PyDict_GetItemWithError(places, id);
        Py_ssize_t row = place == NULL ? -1 : PyLong_AsSsize_t(place);
        Py_ssize_t count = 0;
        if (row >= 0 && row < PyList_GET_SIZE(sampled))
            count = PyObject_Length(PyList_GET_ITEM(sampled, row));
        if (count < 0 || record_push(list, (uint32_t)count) < 0)
            break;
    }
    Py_XDECREF(scheduled);
    Py_XDECREF(places);
    Py_XDECREF(sampled);
    return PyErr_Occurred() ? -1 : 0;
}

/* (the step's number, SchedulerOutput, ModelRunnerOutput) */
static PyObject *update_output(PyObject *self, PyObject *args)
{
    record_list *sampled = &((record_recorder *)self)->lists[RECORD_TOKENS];
    PyObject *output;
    PyObject *computed;
    unsigned long long step;
    quire_recorder *recorder = record_open_recorder(self);
    if (recorder == NULL || !PyArg_ParseTuple(args, "KOO", &step, &output, &computed) ||
        read_sampled(output, computed, sampled) < 0)
        return NULL;
    int status = quire_recorder_update(recorder, step, sampled->items, sampled->count);
    return record_result(status, Py_NewRef(Py_None));
}

PyMethodDef record_step_methods[] = {
    {"_schedule_output", schedule_output, METH_VARARGS, "A SchedulerOutput; the step's number."},
    {"_update_output", update_output, METH_VARARGS, "A ModelRunnerOutput."},
    {NULL, NULL, 0, NULL}};
