/* worker.c - quire._connector.Worker: one quire_worker with its slab, its device and its tiers.
 *
 *      slab (host memory) ─ device (pages of host tensors, or a GPU) ─ tiers ─ quire_worker
 *
 * Opened in this order, closed in the other one. What cannot be closed because a copy or a tier
 * still uses the memory stays, with its memory, until the process ends.
 */
#include "connector.h"

#include <quire/device_cuda.h>

#include <string.h>
#include <time.h>

typedef struct worker {
    PyObject_HEAD quire_worker *worker;
    quire_host_memory *slab;
    quire_cuda *cuda; /* NULL: host tensors */
    quire_device device;
    int has_device;
    quire_tier *tiers[QUIRE_TRANSFER_MAX_TIERS];
    uint32_t num_tiers;
    uint32_t num_slots;
    uint32_t num_blocks;
    uint64_t block_bytes;
    uint64_t counted; /* see connector_worker_has_counted */
} worker;

/* ---- regions --------------------------------------------------------------- */

/* (base, stride, bytes) each; the caller frees them. */
static quire_page_region *read_regions(PyObject *given, uint32_t *count, uint64_t *block_bytes)
{
    PyObject *list = PyDict_GetItemString(given, "regions");
    if (list == NULL || !PyList_Check(list) || PyList_GET_SIZE(list) == 0) {
        PyErr_SetString(PyExc_ValueError, "regions must be a list of (base, stride, bytes)");
        return NULL;
    }
    *count = (uint32_t)PyList_GET_SIZE(list);
    quire_page_region *made = PyMem_Calloc(*count, sizeof *made);
    *block_bytes = 0;
    for (uint32_t i = 0; made != NULL && i < *count; i++) {
        unsigned long long base;
        unsigned long long stride;
        unsigned long long bytes;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, (Py_ssize_t)i), "KKK", &base, &stride,
                              &bytes)) {
            PyMem_Free(made);
            return NULL;
        }
        made[i] = (quire_page_region){(void *)(uintptr_t)base, stride, bytes};
        *block_bytes += bytes;
    }
    if (made == NULL)
        PyErr_NoMemory();
    return made;
}

/* ---- opening --------------------------------------------------------------- */

static int open_slab(worker *w, PyObject *given)
{
    quire_host_memory_config config = QUIRE_HOST_MEMORY_CONFIG_INIT;
    config.bytes = w->block_bytes * w->num_slots;
    if (vllm_read_u32(given, "hugepages", (uint32_t *)(void *)&config.hugepages) < 0)
        return -1;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_host_memory_open(&config, &w->slab);
    Py_END_ALLOW_THREADS return status == QUIRE_OK ? 0 : connector_refuse(status, "host memory");
}

static int open_pages(worker *w, const quire_page_region *regions, uint32_t count)
{
    quire_device_pages_config config = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    config.regions = regions;
    config.num_regions = count;
    config.num_blocks = w->num_blocks;
    config.num_slots = w->num_slots;
    config.slots = quire_host_memory_get_info(w->slab)->data;
    int status = quire_device_pages_open(&config, NULL, &w->device);
    return status == QUIRE_OK ? 0 : connector_refuse(status, "device");
}

static int open_gpu(worker *w, PyObject *given, const quire_page_region *regions, uint32_t count)
{
    quire_cuda_config gpu = QUIRE_CUDA_CONFIG_INIT;
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    uint64_t stream = 0;
    if (vllm_read_u32(given, "cuda_device", &gpu.device) < 0 ||
        connector_read_u64(given, "cuda_stream", &stream) < 0)
        return -1;
    gpu.stream = (void *)(uintptr_t)stream;
    quire_cuda_region *parts = PyMem_Calloc(count, sizeof *parts);
    if (parts == NULL)
        return PY_REFUSE_MEMORY();
    for (uint32_t i = 0; i < count; i++)
        parts[i] = (quire_cuda_region){(uint64_t)(uintptr_t)regions[i].base, regions[i].stride,
                                       regions[i].bytes};
    config.regions = parts;
    config.num_regions = count;
    config.num_blocks = w->num_blocks;
    config.num_slots = w->num_slots;
    config.slots = quire_host_memory_get_info(w->slab)->data;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_cuda_open(&gpu, NULL, &w->cuda);
    config.cuda = w->cuda;
    if (status == QUIRE_OK)
        status = quire_device_cuda_open(&config, NULL, &w->device);
    Py_END_ALLOW_THREADS PyMem_Free(parts);
    return status == QUIRE_OK ? 0 : connector_refuse(status, "GPU");
}

static int open_device(worker *w, PyObject *given, const quire_page_region *regions, uint32_t count)
{
    int is_gpu = PyDict_GetItemString(given, "cuda_device") != NULL;
    if ((is_gpu ? open_gpu(w, given, regions, count) : open_pages(w, regions, count)) < 0)
        return -1;
    w->has_device = 1;
    return 0;
}

static int open_tiers(worker *w, PyObject *given)
{
    PyObject *list = PyDict_GetItemString(given, "tiers");
    const quire_host_memory_info *slab = quire_host_memory_get_info(w->slab);
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.memory = slab->data;
    common.memory_bytes = slab->bytes;
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);
    if (count < 0 || count > QUIRE_TRANSFER_MAX_TIERS)
        return PyErr_Occurred() ? -1 : PY_REFUSE(PyExc_ValueError, "too many tiers");
    for (Py_ssize_t i = 0; i < count; i++) {
        if (connector_open_tier(PyList_GET_ITEM(list, i), &common, w->block_bytes,
                                &w->tiers[w->num_tiers]) < 0)
            return -1;
        w->num_tiers++;
    }
    return 0;
}

static int create(worker *w, PyObject *given)
{
    quire_worker_config config = QUIRE_WORKER_CONFIG_INIT;
    quire_worker_tier tiers[QUIRE_TRANSFER_MAX_TIERS];
    memset(tiers, 0, sizeof tiers);
    if (vllm_read_u32(given, "rank", &config.rank) < 0 ||
        vllm_read_u32(given, "num_ranks", &config.num_ranks) < 0 ||
        vllm_read_u32(given, "key_rank", &config.key_rank) < 0 ||
        vllm_read_u32(given, "stores", (uint32_t *)(void *)&config.stores) < 0 ||
        vllm_read_u32(given, "tells_gone", (uint32_t *)(void *)&config.tells_gone) < 0)
        return -1;
    for (uint32_t i = 0; i < w->num_tiers; i++)
        tiers[i].tier = w->tiers[i];
    config.device = w->device;
    config.memory = quire_host_memory_get_info(w->slab)->data;
    config.block_bytes = w->block_bytes;
    config.num_slots = w->num_slots;
    config.num_tiers = w->num_tiers;
    config.tiers = tiers;
    int status = quire_worker_create(&config, NULL, &w->worker);
    return status == QUIRE_OK ? 0 : connector_refuse(status, "worker");
}

static int make_worker(worker *w, PyObject *given)
{
    uint32_t count;
    quire_page_region *regions = read_regions(given, &count, &w->block_bytes);
    int failed = regions == NULL || vllm_read_u32(given, "num_slots", &w->num_slots) < 0 ||
                 vllm_read_u32(given, "num_blocks", &w->num_blocks) < 0 ||
                 open_slab(w, given) < 0 || open_device(w, given, regions, count) < 0 ||
                 open_tiers(w, given) < 0 || create(w, given) < 0;
    PyMem_Free(regions);
    return failed ? -1 : 0;
}

/* ---- closing --------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Until nothing is in flight, or the time is over. */
static void drain(worker *w, uint64_t timeout_ns)
{
    uint64_t until = now_ns() + timeout_ns;
    quire_bytes report;
    while (quire_worker_has_pending(w->worker) && now_ns() < until &&
           quire_worker_poll(w->worker, &report) == QUIRE_OK)
        nap();
}

/* Returns 0 if all is closed. */
static int close_all(worker *w, uint64_t timeout_ns)
{
    int is_open = 0;
    if (w->worker != NULL)
        drain(w, timeout_ns);
    if (w->worker != NULL && quire_worker_destroy(w->worker) == QUIRE_OK)
        w->worker = NULL;
    if (w->worker != NULL) /* jobs are left: its thread ends before the tiers do */
        quire_worker_abandon(w->worker);
    for (uint32_t i = 0; i < w->num_tiers; i++) {
        if (w->tiers[i] != NULL && quire_tier_close(w->tiers[i]) == QUIRE_OK)
            w->tiers[i] = NULL;
        is_open |= w->tiers[i] != NULL;
    }
    if (w->has_device && w->device.ops->close != NULL)
        w->device.ops->close(w->device.self);
    w->has_device = 0;
    if (w->worker != NULL && quire_worker_destroy(w->worker) == QUIRE_OK)
        w->worker = NULL;
    if (!is_open && w->worker == NULL) {
        quire_cuda_close(w->cuda);
        quire_host_memory_close(w->slab);
        w->cuda = NULL;
        w->slab = NULL;
    }
    return is_open;
}

static void worker_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS(void) close_all((worker *)self, 0);
    Py_END_ALLOW_THREADS type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *worker_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &given))
        return NULL;
    worker *w = (worker *)type->tp_alloc(type, 0);
    if (w != NULL && make_worker(w, given) < 0)
        Py_CLEAR(w);
    return (PyObject *)w;
}

/* ---- calls ----------------------------------------------------------------- */

static int is_closed(const worker *w)
{
    if (w->worker == NULL)
        PyErr_SetString(PyExc_RuntimeError, "the worker is closed");
    return w->worker == NULL;
}

/* submit(plan): False: jobs of another planner are in flight; poll, then retry */
static PyObject *worker_submit(PyObject *self, PyObject *plan)
{
    worker *w = (worker *)self;
    char *data;
    Py_ssize_t len;
    if (is_closed(w) || PyBytes_AsStringAndSize(plan, &data, &len) < 0)
        return NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS status =
        quire_worker_submit(w->worker, (quire_bytes){data, (size_t)len});
    Py_END_ALLOW_THREADS if (status < 0) return connector_raise(status, "plan");
    return PyBool_FromLong(status == QUIRE_OK);
}

/* poll(wait_ns): a report; empty if nothing has ended. Waits at most wait_ns for one. */
static PyObject *worker_poll(PyObject *self, PyObject *args)
{
    worker *w = (worker *)self;
    unsigned long long wait_ns = 0;
    quire_bytes report = {NULL, 0};
    if (!PyArg_ParseTuple(args, "|K", &wait_ns) || is_closed(w))
        return NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_worker_poll(w->worker, &report);
    uint64_t until = wait_ns > 0 ? now_ns() + wait_ns : 0;
    while (status == QUIRE_OK && report.len == 0 && wait_ns > 0 && now_ns() < until &&
           quire_worker_has_pending(w->worker)) {
        nap();
        status = quire_worker_poll(w->worker, &report);
    }
    Py_END_ALLOW_THREADS if (status < 0) return connector_raise(status, "poll");
    return PyBytes_FromStringAndSize(report.data, (Py_ssize_t)report.len);
}

static PyObject *worker_has_pending(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const worker *w = (worker *)self;
    return PyBool_FromLong(w->worker != NULL && quire_worker_has_pending(w->worker));
}

/* self_test(first, second, timeout_ns) */
static PyObject *worker_self_test(PyObject *self, PyObject *args)
{
    worker *w = (worker *)self;
    unsigned int first;
    unsigned int second;
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(args, "IIK", &first, &second, &timeout_ns) || is_closed(w))
        return NULL;
    int status;
    Py_BEGIN_ALLOW_THREADS status = quire_worker_self_test(w->worker, first, second, timeout_ns);
    Py_END_ALLOW_THREADS if (status != QUIRE_OK) return connector_raise(status, "self test");
    Py_RETURN_NONE;
}

/* close(timeout_ns): False: a tier does not end, and keeps its memory */
static PyObject *worker_close(PyObject *self, PyObject *args)
{
    unsigned long long timeout_ns;
    if (!PyArg_ParseTuple(args, "K", &timeout_ns))
        return NULL;
    int is_open;
    Py_BEGIN_ALLOW_THREADS is_open = close_all((worker *)self, timeout_ns);
    Py_END_ALLOW_THREADS return PyBool_FromLong(!is_open);
}

static PyObject *worker_stats(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const worker *w = (worker *)self;
    if (is_closed(w))
        return NULL;
    return connector_worker_stats(w->worker, w->tiers, w->num_tiers);
}

static PyObject *worker_has_counted(PyObject *self, PyObject *Py_UNUSED(unused))
{
    worker *w = (worker *)self;
    if (is_closed(w))
        return NULL;
    return connector_worker_has_counted(w->worker, w->tiers, w->num_tiers, &w->counted);
}

/* slab(): (bytes, page bytes, whether they are reserved huge pages) */
static PyObject *worker_slab(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const worker *w = (worker *)self;
    if (is_closed(w))
        return NULL;
    const quire_host_memory_info *info = quire_host_memory_get_info(w->slab);
    return Py_BuildValue("(KKI)", (unsigned long long)info->bytes,
                         (unsigned long long)info->page_bytes, info->is_huge);
}

static PyMethodDef worker_methods[] = {
    {"submit", worker_submit, METH_O, "Takes a plan, and marks the compute stream."},
    {"poll", worker_poll, METH_VARARGS, "What has ended, as a report."},
    {"has_pending", worker_has_pending, METH_NOARGS, "Whether jobs are in flight."},
    {"self_test", worker_self_test, METH_VARARGS, "Moves a pattern along the way of the bytes."},
    {"close", worker_close, METH_VARARGS, "Ends what is in flight, and closes all."},
    {"stats", worker_stats, METH_NOARGS, "Counters, as a dict."},
    {"has_counted", worker_has_counted, METH_NOARGS, "Whether counters have grown since."},
    {"slab", worker_slab, METH_NOARGS, "The host memory."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot worker_slots[] = {{Py_tp_new, worker_new},
                                     {Py_tp_dealloc, worker_dealloc},
                                     {Py_tp_methods, worker_methods},
                                     {Py_tp_doc, "A quire_worker."},
                                     {0, NULL}};

PyType_Spec connector_worker_spec = {.name = "quire._connector.Worker",
                                     .basicsize = sizeof(worker),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = worker_slots};
