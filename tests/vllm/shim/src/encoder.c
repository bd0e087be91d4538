/* encoder.c - vLLM's EncoderCacheManager and EncoderDecoderCacheManager on sched/encoder/encoder.h.
 *
 *      cached      identifier ──► request ids      who uses an item: a dict of sets
 *      qr_encoder  identifier ──► item             room, number of users, order of eviction
 *
 * The encoder marks a user in the feature through which a request came to an item. Here features
 * are made for one call, and the sets say whether the mark is there:
 *
 *      users of the item in the encoder = members of its set
 *
 * What was evicted is asked for at once and kept in a list, so that there may be any number of it.
 */
#include "encoder.h"

#define FIRST_ITEMS      64
#define FIRST_NAME_BYTES 64

typedef struct encoder_object {
    PyObject_HEAD qr_encoder encoder;
    void *memory;     /* the encoder's; NULL: __init__ did not run */
    PyObject *cached; /* empty for encoder-decoder models */
    PyObject *freed;  /* identifiers that were evicted, and not told yet */
} encoder_object;

/* One input of a request. */
typedef struct encoder_input {
    PyObject *id;
    PyObject *name;
    PyObject *users; /* of its item; NULL: there is none */
    qr_feature feature;
    int is_user; /* of them */
} encoder_input;

/* ---- what was evicted ------------------------------------------------------ */

static PyObject *text_of(quire_bytes name)
{
    return PyUnicode_DecodeUTF8(name.data, (Py_ssize_t)name.len, NULL);
}

/* What was evicted leaves the dict and comes into the list. */
static int encoder_note_evicted(encoder_object *self)
{
    const quire_bytes *names;
    uint32_t n = qr_encoder_take_freed(&self->encoder, &names);
    int failed = 0;
    for (uint32_t i = 0; i < n && !failed; i++) {
        PyObject *name = text_of(names[i]);
        failed = name == NULL || PyDict_DelItem(self->cached, name) < 0 ||
                 PyList_Append(self->freed, name) < 0;
        Py_XDECREF(name);
    }
    return failed ? -1 : 0;
}

/* ---- one input of a request ------------------------------------------------ */

static void input_release(encoder_input *input)
{
    Py_CLEAR(input->id);
    Py_CLEAR(input->name);
    Py_CLEAR(input->users);
}

/* Nothing but str, so that no look into a dict or set runs Python code. */
static PyObject *text_attribute(PyObject *object, const char *attribute)
{
    PyObject *text = PyObject_GetAttrString(object, attribute);
    if (text != NULL && !PyUnicode_CheckExact(text)) {
        PyErr_Format(PyExc_TypeError, "%s must be a str, not %R", attribute, text);
        Py_CLEAR(text);
    }
    return text;
}

static PyObject *name_of_input(PyObject *request, PyObject *index)
{
    PyObject *features = PyObject_GetAttrString(request, "mm_features");
    PyObject *feature = features == NULL ? NULL : PyObject_GetItem(features, index);
    PyObject *name = feature == NULL ? NULL : text_attribute(feature, "identifier");
    Py_XDECREF(features);
    Py_XDECREF(feature);
    return name;
}

/* Who uses its item now. */
static void input_look(encoder_object *self, encoder_input *input)
{
    Py_XDECREF(input->users);
    input->users = Py_XNewRef(PyDict_GetItemWithError(self->cached, input->name));
    input->is_user = input->users != NULL && PySet_Contains(input->users, input->id) > 0;
    input->feature.holds = input->is_user ? self->encoder.epoch : 0;
}

static int input_read(encoder_object *self, PyObject *request, PyObject *index,
                      encoder_input *input)
{
    *input = (encoder_input){.id = NULL};
    if (self->memory == NULL) {
        PyErr_SetString(PyExc_ValueError, "the encoder cache was not initialised");
        return -1;
    }
    input->id = text_attribute(request, "request_id");
    input->name = input->id == NULL ? NULL : name_of_input(request, index);
    Py_ssize_t len = 0;
    const char *text = input->name == NULL ? NULL : PyUnicode_AsUTF8AndSize(input->name, &len);
    if (text == NULL) {
        input_release(input);
        return -1;
    }
    input->feature.identifier = (quire_bytes){text, (size_t)len};
    input_look(self, input);
    return 0;
}

/* The number of embeddings, as the request tells it: Python code, which may change the cache. */
static int input_read_size(encoder_object *self, PyObject *request, PyObject *index,
                           encoder_input *input)
{
    PyObject *count = PyObject_CallMethod(request, "get_num_encoder_embeds", "O", index);
    unsigned long long value = count == NULL ? 0 : PyLong_AsUnsignedLongLong(count);
    Py_XDECREF(count);
    if (PyErr_Occurred())
        return -1;
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "an input of %llu embeddings", value);
        return -1;
    }
    input->feature.num_embeds = (uint32_t)value;
    input_look(self, input);
    return 0;
}

static char *input_keywords[] = {"request", "input_id", NULL};

static int read_arguments(PyObject *args, PyObject *kwargs, PyObject **request, PyObject **index)
{
    return PyArg_ParseTupleAndKeywords(args, kwargs, "OO", input_keywords, request, index) ? 0 : -1;
}

static PyObject *encoder_check(PyObject *object, PyObject *args, PyObject *kwargs)
{
    encoder_object *self = (encoder_object *)object;
    PyObject *request;
    PyObject *index;
    encoder_input input;
    if (read_arguments(args, kwargs, &request, &index) < 0 ||
        input_read(self, request, index, &input) < 0)
        return NULL;
    PyObject *result = NULL;
    if (input.users == NULL) {
        result = Py_NewRef(Py_False);
    } else if (PySet_Add(input.users, input.id) == 0) {
        (void)qr_encoder_check_and_update(&self->encoder, &input.feature, 1, 0);
        result = Py_NewRef(Py_True);
    }
    input_release(&input);
    return result;
}

static PyObject *encoder_can_allocate(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"request", "input_id", "encoder_compute_budget",
                               "num_embeds_to_schedule", NULL};
    encoder_object *self = (encoder_object *)object;
    PyObject *request;
    PyObject *index;
    long long budget;
    long long scheduled;
    encoder_input input;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOLL", keywords, &request, &index, &budget,
                                     &scheduled))
        return NULL;
    if (scheduled < 0) {
        PyErr_Format(PyExc_ValueError, "num_embeds_to_schedule is %lld", scheduled);
        return NULL;
    }
    if (input_read(self, request, index, &input) < 0)
        return NULL;
    int failed = input_read_size(self, request, index, &input) < 0 ||
                 vllm_encoder_reserve(&self->encoder, &self->memory, 0) < 0;
    int is_possible = 0;
    if (!failed && budget >= 0) {
        uint32_t limit = budget > UINT32_MAX ? UINT32_MAX : (uint32_t)budget;
        is_possible =
            qr_encoder_can_allocate(&self->encoder, &input.feature, limit, (uint64_t)scheduled, 0);
        failed = !self->encoder.config.is_encoder_decoder && encoder_note_evicted(self) < 0;
    }
    input_release(&input);
    return failed ? NULL : PyBool_FromLong(is_possible);
}

/* The request becomes the one user of a new item. */
static int input_allocate(encoder_object *self, encoder_input *input)
{
    if (vllm_encoder_reserve(&self->encoder, &self->memory, input->feature.identifier.len) < 0)
        return -1;
    int is_shared = !self->encoder.config.is_encoder_decoder;
    PyObject *users = is_shared ? PySet_New(NULL) : NULL;
    if (is_shared && (users == NULL || PySet_Add(users, input->id) < 0 ||
                      PyDict_SetItem(self->cached, input->name, users) < 0)) {
        Py_XDECREF(users);
        return -1;
    }
    Py_XDECREF(users);
    input->feature.holds = 0;
    int status = qr_encoder_allocate(&self->encoder, &input->feature, 0);
    if (status == QUIRE_OK)
        return 0;
    if (is_shared)
        (void)PyDict_DelItem(self->cached, input->name);
    if (status == QUIRE_FULL)
        PyErr_Format(PyExc_AssertionError,
                     "no room for %u embeddings of %R: %llu are free; ask can_allocate() first",
                     input->feature.num_embeds, input->name,
                     (unsigned long long)self->encoder.num_free);
    else
        vllm_raise(status, "allocate");
    return -1;
}

static PyObject *encoder_allocate(PyObject *object, PyObject *args, PyObject *kwargs)
{
    encoder_object *self = (encoder_object *)object;
    PyObject *request;
    PyObject *index;
    encoder_input input;
    if (read_arguments(args, kwargs, &request, &index) < 0 ||
        input_read(self, request, index, &input) < 0)
        return NULL;
    int failed = input_read_size(self, request, index, &input) < 0;
    if (!failed && input.users != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "%R is in the encoder cache: check_and_update_cache() shares it", input.name);
        failed = 1;
    }
    failed = failed || input_allocate(self, &input) < 0;
    input_release(&input);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int input_free(encoder_object *self, PyObject *request, PyObject *index)
{
    encoder_input input;
    if (input_read(self, request, index, &input) < 0)
        return -1;
    int failed = 0;
    if (self->encoder.config.is_encoder_decoder || input.is_user) {
        failed = input_read_size(self, request, index, &input) < 0 ||
                 (input.is_user && PySet_Discard(input.users, input.id) < 0);
        if (!failed) /* of one that is no user, nothing */
            qr_encoder_free_input(&self->encoder, &input.feature, 1, 0);
    }
    input_release(&input);
    return failed ? -1 : 0;
}

static PyObject *encoder_free_input(PyObject *object, PyObject *args, PyObject *kwargs)
{
    PyObject *request;
    PyObject *index;
    if (read_arguments(args, kwargs, &request, &index) < 0 ||
        input_free((encoder_object *)object, request, index) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- all inputs of a request ----------------------------------------------- */

/* A set, as in vLLM: the order in which its numbers are walked decides what is evicted first. */
static PyObject *encoder_cached_inputs(PyObject *object, PyObject *request)
{
    encoder_object *self = (encoder_object *)object;
    PyObject *features = PyObject_GetAttrString(request, "mm_features");
    Py_ssize_t n = features == NULL ? -1 : PyObject_Size(features);
    Py_XDECREF(features);
    PyObject *found = n < 0 ? NULL : PySet_New(NULL);
    int failed = found == NULL;
    for (Py_ssize_t i = 0; i < n && !failed; i++) {
        PyObject *index = PyLong_FromSsize_t(i);
        encoder_input input;
        failed = index == NULL || input_read(self, request, index, &input) < 0;
        if (!failed) {
            int is_there = self->encoder.config.is_encoder_decoder || input.users != NULL;
            failed = is_there && PySet_Add(found, index) < 0;
            input_release(&input);
        }
        Py_XDECREF(index);
    }
    if (failed)
        Py_CLEAR(found);
    return found;
}

static PyObject *encoder_free(PyObject *object, PyObject *request)
{
    PyObject *inputs = encoder_cached_inputs(object, request);
    PyObject *iter = inputs == NULL ? NULL : PyObject_GetIter(inputs);
    PyObject *index;
    while (iter != NULL && (index = PyIter_Next(iter)) != NULL) {
        int failed = input_free((encoder_object *)object, request, index) < 0;
        Py_DECREF(index);
        if (failed)
            break;
    }
    Py_XDECREF(iter);
    Py_XDECREF(inputs);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- looking --------------------------------------------------------------- */

static PyObject *names_of_slots(const qr_encoder *encoder, const uint32_t *slots, uint32_t n)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; i < n && list != NULL; i++) {
        PyObject *name = text_of(vllm_encoder_feature(encoder, slots[i]).identifier);
        if (name == NULL || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *encoder_take_freed(PyObject *object, PyObject *unused)
{
    (void)unused;
    encoder_object *self = (encoder_object *)object;
    PyObject *fresh = PyList_New(0);
    if (fresh == NULL)
        return NULL;
    if (self->memory == NULL || !self->encoder.config.is_encoder_decoder) {
        PyObject *freed = self->freed;
        self->freed = fresh;
        return freed;
    }
    Py_DECREF(fresh);
    PyObject *names = names_of_slots(&self->encoder, self->encoder.gone, self->encoder.num_gone);
    const quire_bytes *told;
    if (names != NULL)
        (void)qr_encoder_take_freed(&self->encoder, &told);
    return names;
}

static PyObject *encoder_reset(PyObject *object, PyObject *unused)
{
    (void)unused;
    encoder_object *self = (encoder_object *)object;
    if (self->memory != NULL)
        qr_encoder_reset(&self->encoder);
    PyDict_Clear(self->cached);
    if (PyList_SetSlice(self->freed, 0, PyList_Size(self->freed), NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Copies: who changes them changes nothing here. */
static PyObject *encoder_get_cached(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *copy = PyDict_Copy(((encoder_object *)object)->cached);
    PyObject *name;
    PyObject *users;
    Py_ssize_t at = 0;
    while (copy != NULL && PyDict_Next(copy, &at, &name, &users)) {
        PyObject *same = PySet_New(users);
        if (same == NULL || PyDict_SetItem(copy, name, same) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(same);
    }
    return copy;
}

/* Only to nothing: all items are forgotten, and the room that they took stays taken. */
static int encoder_set_cached(PyObject *object, PyObject *value, void *unused)
{
    (void)unused;
    encoder_object *self = (encoder_object *)object;
    if (value == NULL || !PyDict_Check(value) || PyDict_Size(value) != 0) {
        PyErr_SetString(PyExc_AttributeError,
                        "cached can be set to {} only; allocate() makes an item");
        return -1;
    }
    uint64_t num_free = self->encoder.num_free;
    if (self->memory != NULL)
        qr_encoder_reset(&self->encoder);
    self->encoder.num_free = num_free;
    self->encoder.num_freeable = num_free;
    PyDict_Clear(self->cached);
    return 0;
}

static PyObject *encoder_get_freeable(PyObject *object, void *unused)
{
    (void)unused;
    const encoder_object *self = (encoder_object *)object;
    const qr_encoder *encoder = &self->encoder;
    PyObject *made = PyDict_New();
    uint32_t end = encoder->num_slots;
    uint32_t slot = self->memory == NULL ? end : encoder->items[end].link.next;
    for (; made != NULL && slot != end; slot = encoder->items[slot].link.next) {
        PyObject *name = text_of(vllm_encoder_feature(encoder, slot).identifier);
        PyObject *size = PyLong_FromUnsignedLong(encoder->items[slot].num_embeds);
        if (name == NULL || size == NULL || PyDict_SetItem(made, name, size) < 0)
            Py_CLEAR(made);
        Py_XDECREF(name);
        Py_XDECREF(size);
    }
    return made;
}

static PyObject *encoder_get_freed(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *freed = ((encoder_object *)object)->freed;
    return PyList_GetSlice(freed, 0, PyList_Size(freed));
}

static PyObject *encoder_get_allocated(PyObject *object, void *unused)
{
    (void)unused;
    const qr_encoder *encoder = &((encoder_object *)object)->encoder;
    return names_of_slots(encoder, encoder->fresh, encoder->num_fresh);
}

static PyObject *encoder_get_to_free(PyObject *object, void *unused)
{
    (void)unused;
    const qr_encoder *encoder = &((encoder_object *)object)->encoder;
    return names_of_slots(encoder, encoder->gone, encoder->num_gone);
}

static PyObject *encoder_get_size(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(((encoder_object *)object)->encoder.config.cache_size);
}

static PyObject *encoder_get_num_free(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((encoder_object *)object)->encoder.num_free);
}

static PyObject *encoder_get_num_freeable(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((encoder_object *)object)->encoder.num_freeable);
}

/* ---- the type -------------------------------------------------------------- */

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    encoder_object *self = (encoder_object *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->cached = PyDict_New();
    self->freed = PyList_New(0);
    if (self->cached == NULL || self->freed == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int encoder_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"cache_size", "is_encoder_decoder", NULL};
    encoder_object *self = (encoder_object *)object;
    long long cache_size;
    int is_encoder_decoder = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|p", keywords, &cache_size,
                                     &is_encoder_decoder))
        return -1;
    if (cache_size < 0 || cache_size > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "a cache of %lld embeddings; it has 0 to %u", cache_size,
                     UINT32_MAX);
        return -1;
    }
    if (self->memory != NULL) {
        PyErr_SetString(PyExc_ValueError, "the encoder cache was initialised before");
        return -1;
    }
    qr_encoder_config config = {.cache_size = (uint32_t)cache_size,
                                .max_items = FIRST_ITEMS,
                                .max_identifier_bytes = FIRST_NAME_BYTES,
                                .max_features = 1,
                                .is_encoder_decoder = is_encoder_decoder != 0,
                                .frees_again = true,
                                .sizes_by_user = true};
    void *memory;
    if (vllm_encoder_make(&config, &self->encoder, &memory) < 0)
        return -1;
    self->memory = memory;
    return 0;
}

static void encoder_dealloc(PyObject *object)
{
    encoder_object *self = (encoder_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->cached);
    Py_XDECREF(self->freed);
    vllm_encoder_free(self->memory);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free); /* a subclass may have its own */
    release(object);
    Py_DECREF(type);
}

#define WITH_KEYWORDS(name, method, doc)                                                           \
    {                                                                                              \
        name, (PyCFunction)(void (*)(void))(method), METH_VARARGS | METH_KEYWORDS, doc             \
    }

static PyMethodDef encoder_methods[] = {
    WITH_KEYWORDS("check_and_update_cache", encoder_check,
                  "Whether the input's output is there; then the request is one of its users."),
    WITH_KEYWORDS("can_allocate", encoder_can_allocate,
                  "Whether there is budget and room for the input. Evicts to make room."),
    WITH_KEYWORDS("allocate", encoder_allocate, "Takes the room for the input."),
    WITH_KEYWORDS("free_encoder_input", encoder_free_input, "The request needs it no longer."),
    {"get_cached_input_ids", encoder_cached_inputs, METH_O,
     "The set of the request's inputs whose outputs are there."},
    {"free", encoder_free, METH_O, "The request needs none of its inputs."},
    {"get_freed_mm_hashes", encoder_take_freed, METH_NOARGS,
     "The identifiers that were evicted since the last call."},
    {"reset", encoder_reset, METH_NOARGS, "Forgets everything."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef encoder_getset[] = {
    {"cache_size", encoder_get_size, NULL, "Embeddings that are kept.", NULL},
    {"num_free_slots", encoder_get_num_free, NULL, "Embeddings that still fit.", NULL},
    {"num_freeable_slots", encoder_get_num_freeable, NULL,
     "Embeddings that fit when all that is not used is evicted.", NULL},
    {"cached", encoder_get_cached, encoder_set_cached, "{identifier: ids of requests}", NULL},
    {"freeable", encoder_get_freeable, NULL, "{identifier: embeddings}, next to go first.", NULL},
    {"freed", encoder_get_freed, NULL, "Identifiers that were evicted, and not told yet.", NULL},
    {"allocated", encoder_get_allocated, NULL, "Encoder-decoder: since the last step.", NULL},
    {"to_free", encoder_get_to_free, NULL, "Encoder-decoder: of the last step.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot encoder_slots[] = {
    {Py_tp_doc, "EncoderCache(cache_size, is_encoder_decoder=False)"},
    {Py_tp_new, (void *)encoder_new},
    {Py_tp_init, (void *)encoder_init},
    {Py_tp_dealloc, (void *)encoder_dealloc},
    {Py_tp_methods, encoder_methods},
    {Py_tp_getset, encoder_getset},
    {0, NULL},
};

static PyType_Spec encoder_spec = {
    .name = "_quire_shim.EncoderCache",
    .basicsize = (int)sizeof(encoder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = encoder_slots,
};

PyObject *vllm_encoder_make_type(PyObject *module)
{
    return PyType_FromModuleAndSpec(module, &encoder_spec, NULL);
}
