/* cost.c - what KV cache costs: bytes, blocks, seconds (quire/cost.h). */
#include "core.h"

static PyObject *cost_block_bytes(PyObject *Py_UNUSED(module), PyObject *source)
{
    PyObject *list = PySequence_List(source);
    Py_ssize_t size = list != NULL ? PyList_Size(list) : 0;
    quire_layer_spec *layers = list != NULL ? PyMem_Calloc((size_t)size + 1, sizeof *layers) : NULL;
    if (list != NULL && layers == NULL)
        PyErr_NoMemory();
    int err = layers != NULL ? 0 : -1;
    for (Py_ssize_t i = 0; err == 0 && i < size; i++) {
        uint32_t is_eagle;
        err = py_layer_get(PyList_GetItem(list, i), &layers[i], &is_eagle);
    }
    uint64_t bytes = err == 0 ? quire_cost_block_bytes(layers, (uint32_t)size) : 0;
    PyMem_Free(layers);
    Py_XDECREF(list);
    return err == 0 ? PyLong_FromUnsignedLongLong(bytes) : NULL;
}

/* Two whole numbers, the second of 64 or 32 bits. */
#define COST_OF_TWO(name, type)                                                                    \
    static PyObject *cost_##name(PyObject *Py_UNUSED(module), PyObject *args)                      \
    {                                                                                              \
        unsigned long long a;                                                                      \
        unsigned long long b;                                                                      \
        if (!PyArg_ParseTuple(args, "KK:" #name, &a, &b))                                          \
            return NULL;                                                                           \
        if (b != (type)b)                                                                          \
            return PyErr_Format(PyExc_OverflowError, #name ": %llu is too large", b);              \
        return PyLong_FromUnsignedLongLong(quire_cost_##name(a, (type)b));                         \
    }
COST_OF_TWO(num_blocks, uint64_t)
COST_OF_TWO(total_bytes, uint64_t)
COST_OF_TWO(blocks_for_tokens, uint32_t)
COST_OF_TWO(token_capacity, uint32_t)

static PyObject *cost_watermark_blocks(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long num_blocks;
    double watermark;
    if (!PyArg_ParseTuple(args, "Kd:watermark_blocks", &num_blocks, &watermark))
        return NULL;
    return PyLong_FromUnsignedLongLong(quire_cost_watermark_blocks(num_blocks, watermark));
}

static PyObject *cost_fragmentation(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long num_tokens;
    unsigned int block_size;
    if (!PyArg_ParseTuple(args, "KI:fragmentation", &num_tokens, &block_size))
        return NULL;
    return PyFloat_FromDouble(quire_cost_fragmentation(num_tokens, block_size));
}

static PyObject *cost_transfer_seconds(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long bytes;
    double rate;
    if (!PyArg_ParseTuple(args, "Kd:transfer_seconds", &bytes, &rate))
        return NULL;
    return PyFloat_FromDouble(quire_cost_transfer_seconds(bytes, rate));
}

static PyObject *cost_recompute_seconds(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long num_tokens;
    double rate;
    if (!PyArg_ParseTuple(args, "Kd:recompute_seconds", &num_tokens, &rate))
        return NULL;
    return PyFloat_FromDouble(quire_cost_recompute_seconds(num_tokens, rate));
}

static PyMethodDef cost_functions[] = {
    {"cost_block_bytes", cost_block_bytes, METH_O,
     "cost_block_bytes(layers, /)\n--\n\nBytes of one block in all layers, given as dicts."},
    {"cost_num_blocks", cost_num_blocks, METH_VARARGS,
     "cost_num_blocks(memory_bytes, block_bytes, /)\n--\n\nBlocks that a memory holds."},
    {"cost_total_bytes", cost_total_bytes, METH_VARARGS,
     "cost_total_bytes(num_blocks, block_bytes, /)\n--\n\nBytes that blocks take."},
    {"cost_blocks_for_tokens", cost_blocks_for_tokens, METH_VARARGS,
     "cost_blocks_for_tokens(num_tokens, block_size, /)\n--\n\nBlocks for so many tokens."},
    {"cost_token_capacity", cost_token_capacity, METH_VARARGS,
     "cost_token_capacity(num_blocks, block_size, /)\n--\n\nTokens in so many blocks."},
    {"cost_watermark_blocks", cost_watermark_blocks, METH_VARARGS,
     "cost_watermark_blocks(num_blocks, watermark, /)\n--\n\nBlocks that a watermark keeps free."},
    {"cost_fragmentation", cost_fragmentation, METH_VARARGS,
     "cost_fragmentation(num_tokens, block_size, /)\n--\n\nThe empty part of a request's blocks."},
    {"cost_transfer_seconds", cost_transfer_seconds, METH_VARARGS,
     "cost_transfer_seconds(num_bytes, bytes_per_second, /)\n--\n\nSeconds to move bytes."},
    {"cost_recompute_seconds", cost_recompute_seconds, METH_VARARGS,
     "cost_recompute_seconds(num_tokens, tokens_per_second, /)\n--\n\nSeconds to compute tokens "
     "anew."},
    {NULL, NULL, 0, NULL}};

int py_add_cost(PyObject *module)
{
    return PyModule_AddFunctions(module, cost_functions);
}
