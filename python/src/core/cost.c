/* cost.c - what KV cache costs: bytes, blocks, seconds (quire/cost.h). */
#include "core.h"

static PyObject *cost_block_bytes(PyObject *Py_UNUSED(module), PyObject *source)
{
    uint32_t count;
    quire_layer_spec *layers = py_layers_get(source, &count);
    if (layers == NULL)
        return NULL;
    uint64_t bytes = quire_cost_block_bytes(layers, count);
    PyMem_Free(layers);
    return PyLong_FromUnsignedLongLong(bytes);
}

/* A function of a number of 64 bits and a second number. */
#define COST(name, type, letter, make)                                                             \
    static PyObject *cost_##name(PyObject *Py_UNUSED(module), PyObject *args)                      \
    {                                                                                              \
        unsigned long long a;                                                                      \
        type b;                                                                                    \
        if (!PyArg_ParseTuple(args, "K" letter ":" #name, &a, &b))                                 \
            return NULL;                                                                           \
        return make(quire_cost_##name(a, b));                                                      \
    }
/* The same with a second whole number of 32 bits, which is not cut. */
#define COST_U32(name)                                                                             \
    static PyObject *cost_##name(PyObject *Py_UNUSED(module), PyObject *args)                      \
    {                                                                                              \
        unsigned long long a;                                                                      \
        unsigned long long b;                                                                      \
        if (!PyArg_ParseTuple(args, "KK:" #name, &a, &b))                                          \
            return NULL;                                                                           \
        if (b > UINT32_MAX)                                                                        \
            return PyErr_Format(PyExc_OverflowError, #name ": %llu is too large", b);              \
        return PyLong_FromUnsignedLongLong(quire_cost_##name(a, (uint32_t)b));                     \
    }
COST(num_blocks, unsigned long long, "K", PyLong_FromUnsignedLongLong)
COST(total_bytes, unsigned long long, "K", PyLong_FromUnsignedLongLong)
COST_U32(blocks_for_tokens)
COST_U32(token_capacity)
COST(watermark_blocks, double, "d", PyLong_FromUnsignedLongLong)
COST(fragmentation, unsigned int, "I", PyFloat_FromDouble)
COST(transfer_seconds, double, "d", PyFloat_FromDouble)
COST(recompute_seconds, double, "d", PyFloat_FromDouble)

PyMethodDef py_cost_functions[] = {
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
