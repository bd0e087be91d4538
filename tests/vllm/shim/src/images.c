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

/* A request that Python named, and one of its images; NULL with an exception. */
static qr_request *owner_of(quire_sched *s, unsigned long long number, uint32_t input)
{
    uint32_t index = qr_sched_index_of(s, number);
    if (index == QR_NIL) {
        vllm_raise(QUIRE_E_UNKNOWN_REQ, "request");
        return NULL;
    }
    qr_request *r = &s->table.requests[index];
    if (input < r->num_features)
        return r;
    PyErr_Format(PyExc_IndexError, "the request has %u images, no number %u", r->num_features,
                 input);
    return NULL;
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
    const qr_request *r = owner_of(s, number, input);
    if (r == NULL)
        return NULL;
    int status = qr_encoder_allocate(&s->encoder, r->features, input);
    if (status != QUIRE_OK)
        return vllm_raise(status, "encoder_cache_manager.allocate");
    Py_RETURN_NONE;
}

/* image_inputs(number): the request's images that it holds */
PyObject *vllm_core_image_inputs(PyObject *self, PyObject *args)
{
    quire_sched *s = ((vllm_core *)self)->sched;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "K", &number))
        return NULL;
    const qr_request *r = owner_of(s, number, 0);
    const uint32_t *inputs = NULL;
    PyObject *made = r == NULL ? NULL : PySet_New(NULL);
    uint32_t n = made == NULL
                     ? 0
                     : qr_encoder_cached_inputs(&s->encoder, r->features, r->num_features, &inputs);
    for (uint32_t i = 0; i < n; i++) {
        PyObject *input = PyLong_FromUnsignedLong(inputs[i]);
        if (input == NULL || PySet_Add(made, input) < 0)
            Py_CLEAR(made);
        Py_XDECREF(input);
        if (made == NULL)
            return NULL;
    }
    return made;
}

/* free_images(number, computed): those that lie in its computed tokens, or all */
PyObject *vllm_core_free_images(PyObject *self, PyObject *args)
{
    quire_sched *s = ((vllm_core *)self)->sched;
    unsigned long long number;
    int is_by_tokens;
    if (!PyArg_ParseTuple(args, "Kp", &number, &is_by_tokens))
        return NULL;
    const qr_request *r = owner_of(s, number, 0);
    if (r == NULL)
        return NULL;
    if (is_by_tokens)
        qr_sched_free_encoded(s, qr_sched_index_of(s, number));
    else
        qr_encoder_free(&s->encoder, r->features, r->num_features);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* find_image(number, input): whether it is there; then the request holds it */
PyObject *vllm_core_find_image(PyObject *self, PyObject *args)
{
    quire_sched *s = ((vllm_core *)self)->sched;
    unsigned long long number;
    unsigned int input;
    if (!PyArg_ParseTuple(args, "KI", &number, &input))
        return NULL;
    const qr_request *r = owner_of(s, number, input);
    return r == NULL ? NULL
                     : PyBool_FromLong(qr_encoder_check_and_update(&s->encoder, r->features,
                                                                   r->num_features, input));
}

/* image_fits(number, input, budget, embeddings that are scheduled): evicts what is in the way */
PyObject *vllm_core_image_fits(PyObject *self, PyObject *args)
{
    quire_sched *s = ((vllm_core *)self)->sched;
    unsigned long long number;
    unsigned int input;
    unsigned int budget;
    unsigned int num_embeds;
    if (!PyArg_ParseTuple(args, "KIII", &number, &input, &budget, &num_embeds))
        return NULL;
    const qr_request *r = owner_of(s, number, input);
    return r == NULL ? NULL
                     : PyBool_FromLong(qr_encoder_can_allocate(&s->encoder, &r->features[input],
                                                               budget, num_embeds, num_embeds > 0));
}

/* set_image_room(embeddings that are free): unused ones can be freed besides */
PyObject *vllm_core_set_image_room(PyObject *self, PyObject *args)
{
    qr_encoder *encoder = &((vllm_core *)self)->sched->encoder;
    unsigned int room;
    if (!PyArg_ParseTuple(args, "I", &room))
        return NULL;
    encoder->num_freeable = encoder->num_freeable - encoder->num_free + room;
    encoder->num_free = room;
    Py_RETURN_NONE;
}
