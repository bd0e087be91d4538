/* lives.c - quire._vllm.Core: the lives of sampled blocks, for vLLM's kv_cache_metrics.
 *
 *      quire_pool ── a life ends ──► lives, plain memory ── take_lives ──► KVCacheEvictionEvent
 *
 * Lives end inside calls of the library, where no Python object may be made.
 */
#include "vllm.h"

#include <string.h>

struct vllm_lives {
    quire_residency *residency;
    quire_block_life *ended;
    size_t count;
    size_t room;
};

/* A life for which there is no memory is not told. */
static void note_life(void *user, const quire_block_life *life)
{
    vllm_lives *lives = user;
    if (lives->count == lives->room) {
        size_t room = lives->room > 0 ? 2 * lives->room : 64;
        quire_block_life *grown = PyMem_Realloc(lives->ended, room * sizeof *grown);
        if (grown == NULL)
            return;
        lives->ended = grown;
        lives->room = room;
    }
    lives->ended[lives->count++] = *life;
}

PyObject *vllm_core_follow(PyObject *self, PyObject *args)
{
    vllm_core *core = (vllm_core *)self;
    quire_residency_config config = QUIRE_RESIDENCY_CONFIG_INIT;
    if (!PyArg_ParseTuple(args, "d", &config.sample_rate))
        return NULL;
    vllm_lives *lives = PyMem_Calloc(1, sizeof *lives);
    if (lives == NULL)
        return PyErr_NoMemory();
    config.on_end = note_life;
    config.user = lives;
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(core->sched));
    int status = quire_residency_create(&config, pool, NULL, &lives->residency);
    if (status != QUIRE_OK) {
        PyMem_Free(lives);
        return vllm_raise(status, "kv_cache_metrics");
    }
    core->lives = lives;
    Py_RETURN_NONE;
}

static PyObject *make_life(const void *lives, uint32_t k)
{
    const quire_block_life *life = (const quire_block_life *)lives + k;
    PyObject *gaps = PyTuple_New((Py_ssize_t)life->num_gaps);
    for (uint32_t i = 0; gaps != NULL && i < life->num_gaps; i++) {
        PyObject *gap = PyFloat_FromDouble((double)life->gaps_ns[i] / 1e9);
        if (gap == NULL || PyTuple_SetItem(gaps, (Py_ssize_t)i, gap) < 0)
            Py_CLEAR(gaps);
    }
    if (gaps == NULL)
        return NULL;
    return Py_BuildValue("(ddN)", (double)life->lifetime_ns / 1e9, (double)life->idle_ns / 1e9,
                         gaps);
}

PyObject *vllm_core_take_lives(PyObject *self, PyObject *Py_UNUSED(unused))
{
    vllm_lives *lives = ((vllm_core *)self)->lives;
    if (lives == NULL)
        return PyList_New(0);
    vllm_lives taken = {.ended = lives->ended, .count = lives->count};
    lives->ended = NULL; /* making objects may run finalizers, which may end further lives */
    lives->count = lives->room = 0;
    PyObject *list = py_list_of((uint32_t)taken.count, make_life, taken.ended);
    PyMem_Free(taken.ended);
    return list;
}

void vllm_lives_forget(vllm_core *core)
{
    if (core->lives != NULL)
        core->lives->count = 0;
}

void vllm_lives_free(vllm_core *core)
{
    vllm_lives *lives = core->lives;
    core->lives = NULL;
    if (lives == NULL)
        return;
    quire_residency_destroy(lives->residency);
    PyMem_Free(lives->ended);
    PyMem_Free(lives);
}
