/* module.c - the extension _quire_shim: the types that quire_shim builds on, and the functions that
 * change a core of quire._vllm from outside.
 *
 * The drop-in's own files are linked into it: it works on cores that quire._vllm has made, so both
 * must come from one build.
 */
#include "cache.h"
#include "shim.h"

PyMODINIT_FUNC PyInit__quire_shim(void);

static PyObject *core_type;

static const struct {
    const char *name;
    PyObject *(*make)(PyObject *module);
} types[] = {
    {"RequestRing", vllm_ring_make_type},
    {"RequestHeap", vllm_heap_make_type},
    {"EncoderCache", vllm_encoder_make_type},
    {"KVCacheBlock", vllm_block_make_type},
    {"FreeKVCacheBlockQueue", vllm_queue_make_type},
    {"BlockHashToBlockMap", vllm_map_make_type},
    {"Pool", vllm_pool_make_type},
    {"Cache", vllm_cache_make_type},
};

int shim_is_core(PyObject *object)
{
    int is_core = PyObject_IsInstance(object, core_type);
    if (is_core == 0)
        PyErr_Format(PyExc_TypeError, "%R is not a quire._vllm.Core", object);
    return is_core > 0;
}

/* call(core, ...): the core's method of the same name, one call at a time. */
static PyObject *of_core(PyObject *args, PyCFunction method)
{
    PyObject *core = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    if (!shim_is_core(core))
        return NULL;
    PyObject *rest = PyTuple_GetSlice(args, 1, PyTuple_Size(args));
    PyObject *answer = rest == NULL ? NULL : vllm_guarded(core, rest, method);
    Py_XDECREF(rest);
    return answer;
}

#define OF_CORE(name)                                                                              \
    static PyObject *name(PyObject *module, PyObject *args)                                        \
    {                                                                                              \
        (void)module;                                                                              \
        return of_core(args, vllm_core_##name);                                                    \
    }

OF_CORE(edit)
OF_CORE(leave)
OF_CORE(cache_blocks)
OF_CORE(enqueue)
OF_CORE(take_image)
OF_CORE(image_inputs)
OF_CORE(free_images)
OF_CORE(find_image)
OF_CORE(image_fits)
OF_CORE(set_image_room)
OF_CORE(seed)
OF_CORE(unseed)
OF_CORE(evict)
OF_CORE(hits_alone)

static PyObject *flags(PyObject *module, PyObject *args)
{
    PyObject *core;
    PyObject *number;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &core, &number) || !shim_is_core(core))
        return NULL;
    return vllm_core_flags(core, number);
}

static PyObject *images(PyObject *module, PyObject *core)
{
    (void)module;
    return shim_is_core(core) ? vllm_core_images(core) : NULL;
}

static PyObject *fences(PyObject *module, PyObject *core)
{
    (void)module;
    return shim_is_core(core) ? shim_fences((vllm_core *)core) : NULL;
}

static PyObject *peek_stats(PyObject *module, PyObject *core)
{
    (void)module;
    return shim_is_core(core) ? shim_peek_stats((vllm_core *)core) : NULL;
}

static PyObject *peek_step(PyObject *module, PyObject *core)
{
    (void)module;
    return shim_is_core(core) ? shim_peek_step((vllm_core *)core) : NULL;
}

static PyObject *align(PyObject *module, PyObject *args)
{
    PyObject *core;
    unsigned int num_tokens;
    (void)module;
    if (!PyArg_ParseTuple(args, "OI", &core, &num_tokens) || !shim_is_core(core))
        return NULL;
    return shim_align((vllm_core *)core, num_tokens);
}

static PyObject *drop_skipped(PyObject *module, PyObject *args)
{
    PyObject *core;
    unsigned long long number;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK", &core, &number) || !shim_is_core(core))
        return NULL;
    return shim_drop_skipped((vllm_core *)core, number);
}

static PyObject *preempt(PyObject *module, PyObject *args)
{
    PyObject *core;
    unsigned long long number;
    int drops;
    (void)module;
    if (!PyArg_ParseTuple(args, "OKp", &core, &number, &drops) || !shim_is_core(core))
        return NULL;
    return shim_preempt((vllm_core *)core, number, drops);
}

static PyMethodDef functions[] = {
    {"edit", edit, METH_VARARGS, "edit(core, number, which value, value)"},
    {"flags", flags, METH_VARARGS, "flags(core, number): load has come, load has failed"},
    {"cache_blocks", cache_blocks, METH_VARARGS, "cache_blocks(core, number, tokens)"},
    {"leave", leave, METH_VARARGS, "leave(core, number): its queue"},
    {"enqueue", enqueue, METH_VARARGS, "enqueue(core, number, which queue, in front)"},
    {"images", images, METH_O, "images(core): the encoder cache"},
    {"fences", fences, METH_O,
     "fences(core): steps scheduled, updated, and rows that wait for them"},
    {"peek_stats", peek_stats, METH_O, "peek_stats(core): of the prefix cache, which keeps them"},
    {"peek_step", peek_step, METH_O, "peek_step(core): what the last step left"},
    {"align", align, METH_VARARGS, "align(core, tokens): where chunks end"},
    {"drop_skipped", drop_skipped, METH_VARARGS, "drop_skipped(core, number)"},
    {"preempt", preempt, METH_VARARGS, "preempt(core, number, drops its outputs)"},
    {"take_image", take_image, METH_VARARGS, "take_image(core, number, input)"},
    {"image_inputs", image_inputs, METH_VARARGS, "image_inputs(core, number)"},
    {"free_images", free_images, METH_VARARGS, "free_images(core, number, computed ones)"},
    {"find_image", find_image, METH_VARARGS, "find_image(core, number, input)"},
    {"image_fits", image_fits, METH_VARARGS, "image_fits(core, number, input, budget, embeddings)"},
    {"set_image_room", set_image_room, METH_VARARGS, "set_image_room(core, embeddings)"},
    {"seed", seed, METH_VARARGS, "seed(core, seq, hashes, their number, tokens, computed, new)"},
    {"unseed", unseed, METH_VARARGS, "unseed(core, seq)"},
    {"evict", evict, METH_VARARGS, "evict(core, block)"},
    {"hits_alone", hits_alone, METH_VARARGS, "hits_alone(core, hashes, their number, most tokens)"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef shim_module = {PyModuleDef_HEAD_INIT, .m_name = "_quire_shim",
                                         .m_doc = "The C side of quire_shim.", .m_size = -1,
                                         .m_methods = functions};

static int find_core_type(void)
{
    PyObject *module = PyImport_ImportModule("quire._vllm");
    core_type = module == NULL ? NULL : PyObject_GetAttrString(module, "Core");
    Py_XDECREF(module);
    return core_type == NULL ? -1 : 0;
}

static int add_types(PyObject *module)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        PyObject *type = types[i].make(module);
        int failed = type == NULL || PyModule_AddObjectRef(module, types[i].name, type) < 0;
        Py_XDECREF(type);
        if (failed)
            return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__quire_shim(void)
{
    PyObject *module = PyModule_Create(&shim_module);
    if (module != NULL && (find_core_type() < 0 || add_types(module) < 0))
        Py_CLEAR(module);
    return module;
}
