/* images.c - a scheduler's encoder cache, looked at and written to from outside.
 *
 *      scheduler.encoder_cache_manager.cached      {identifier: ids of requests that use it}
 *
 * The library counts an item's users; whose uses they are is found in the requests' features.
 */
#include "shim.h"

#include "sched/sched.h"

/* Adds an identifier, and a user of it where slot is not NULL. */
static int note_use(PyObject *cached, quire_bytes identifier, const vllm_slot *slot)
{
    PyObject *name = PyUnicode_FromStringAndSize(identifier.data, (Py_ssize_t)identifier.len);
    PyObject *users = name == NULL ? NULL : PyDict_GetItemWithError(cached, name);
    int failed = PyErr_Occurred() != NULL;
    if (!failed && users == NULL) {
        users = PySet_New(NULL);
        failed = users == NULL || PyDict_SetItem(cached, name, users) < 0;
        Py_XDECREF(users); /* the dict has it */
    }
    failed = failed || (slot != NULL && PySet_Add(users, slot->id) < 0);
    Py_XDECREF(name);
    return failed ? -1 : 0;
}

static int note_uses(vllm_core *core, const vllm_slot *slot, PyObject *cached)
{
    const quire_sched *s = core->sched;
    uint32_t index = qr_sched_index_of(s, slot->req);
    for (uint32_t i = 0; index != QR_NIL && i < s->table.requests[index].num_features; i++) {
        const qr_feature *feature = &s->table.requests[index].features[i];
        if (qr_encoder_holds(&s->encoder, feature) &&
            note_use(cached, feature->identifier, slot) < 0)
            return -1;
    }
    return 0;
}

/* Items without users, those that will be evicted first at the front. */
static PyObject *unused_items(const qr_encoder *encoder, PyObject *cached)
{
    PyObject *freeable = PyDict_New();
    uint32_t sentinel = encoder->num_slots;
    uint32_t at = encoder->items[sentinel].link.next;
    for (; freeable != NULL && at != sentinel; at = encoder->items[at].link.next) {
        const qr_encoder_item *item = &encoder->items[at];
        const char *name =
            (const char *)encoder->names + (size_t)at * encoder->config.max_identifier_bytes;
        PyObject *key = PyUnicode_FromStringAndSize(name, (Py_ssize_t)item->len);
        PyObject *size = PyLong_FromUnsignedLong(item->num_embeds);
        int failed = key == NULL || size == NULL || PyDict_SetItem(freeable, key, size) < 0 ||
                     note_use(cached, (quire_bytes){name, item->len}, NULL) < 0;
        Py_XDECREF(key);
        Py_XDECREF(size);
        if (failed)
            Py_CLEAR(freeable);
    }
    return freeable;
}

static PyObject *gone_items(const qr_encoder *encoder)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < encoder->num_gone; i++) {
        uint32_t at = encoder->gone[i];
        const char *name =
            (const char *)encoder->names + (size_t)at * encoder->config.max_identifier_bytes;
        PyObject *text = PyUnicode_FromStringAndSize(name, (Py_ssize_t)encoder->items[at].len);
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

/* images(): (cached, freeable, freed, free slots, freeable slots), as vLLM's manager has them */
PyObject *vllm_core_images(PyObject *self)
{
    vllm_core *core = (vllm_core *)self;
    const qr_encoder *encoder = &core->sched->encoder;
    PyObject *cached = PyDict_New();
    for (uint32_t i = 0; cached != NULL && i < core->max_requests; i++) {
        if (core->slots[i].request != NULL && note_uses(core, &core->slots[i], cached) < 0)
            Py_CLEAR(cached);
    }
    PyObject *freeable = cached == NULL ? NULL : unused_items(encoder, cached);
    PyObject *freed = freeable == NULL ? NULL : gone_items(encoder);
    if (freed == NULL) {
        Py_XDECREF(cached);
        Py_XDECREF(freeable);
        return NULL;
    }
    return Py_BuildValue("(NNNKK)", cached, freeable, freed, encoder->num_free,
                         encoder->num_freeable);
}

/* take_image(number, input): the request's image gets its room, as if it had been scheduled */
PyObject *vllm_core_take_image(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    quire_sched *s = core->sched;
    unsigned long long number;
    unsigned int input;
    if (!PyArg_ParseTuple(args, "KI", &number, &input))
        return NULL;
    uint32_t index = qr_sched_index_of(s, number);
    if (index == QR_NIL)
        return vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
    if (input >= s->table.requests[index].num_features) {
        PyErr_Format(PyExc_IndexError, "the request has %u images, no number %u",
                     s->table.requests[index].num_features, input);
        return NULL;
    }
    int status = qr_encoder_allocate(&s->encoder, s->table.requests[index].features, input);
    if (status != QUIRE_OK)
        return vllm_raise(status, "encoder_cache_manager.allocate");
    Py_RETURN_NONE;
}
