#include "traffic.h"

#include "trace/content.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES_OF_JOB = 8192, ENDED_AT_ONCE = 32, NUM_SAMPLES = 16, MOST_LAYERS = 64 };
#define JOB_BYTES (UINT64_C(32) << 20)

/* ---- opening --------------------------------------------------------------- */

static void shuffle(uint32_t *numbers, uint32_t n, uint64_t *state)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t other = (uint32_t)(content_random(state) % i);
        uint32_t kept = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = kept;
    }
}

/* Blocks and slots of a direction's half, each once, in orders that have nothing in common. */
static int plan_copies(gpu_traffic *t, int way)
{
    uint32_t n = t->num_blocks;
    uint32_t first = way == 0 ? 0 : (uint32_t)(t->rig->bytes / t->block_bytes);
    uint64_t state = (uint64_t)way + 1;
    uint32_t *order = malloc(2 * (size_t)n * sizeof *order);
    t->copies[way] = calloc(n, sizeof *t->copies[way]);
    t->jobs[way] = calloc(t->num_jobs, sizeof *t->jobs[way]);
    if (order == NULL || t->copies[way] == NULL || t->jobs[way] == NULL) {
        free(order);
        return -1;
    }
    for (uint32_t i = 0; i < 2 * n; i++)
        order[i] = i % n;
    shuffle(order, n, &state);
    shuffle(order + n, n, &state);
    for (uint32_t i = 0; i < n; i++)
        t->copies[way][i] = (quire_device_copy){first + order[i], first + order[n + i], 0};
    free(order);
    for (uint32_t i = 0; i < t->num_jobs; i++) {
        uint32_t from = (uint32_t)((uint64_t)n * i / t->num_jobs);
        uint32_t to = (uint32_t)((uint64_t)n * (i + 1) / t->num_jobs);
        t->jobs[way][i] =
            (quire_device_job){.op = way == 0 ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD,
                               .copies = t->copies[way] + from,
                               .num_copies = to - from};
    }
    return 0;
}

static int open_traffic_device(gpu_traffic *t)
{
    quire_cuda_region regions[MOST_LAYERS];
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    config.cuda = t->rig->cuda;
    config.regions = regions;
    config.num_regions = t->plan.layers;
    config.num_blocks = 2 * (uint32_t)(t->rig->bytes / t->block_bytes);
    for (uint32_t i = 0; i < t->plan.layers; i++)
        regions[i] = (quire_cuda_region){t->rig->device + i * config.num_blocks * t->plan.piece,
                                         t->plan.piece, t->plan.piece};
    config.num_slots = config.num_blocks;
    config.slots = t->rig->host;
    config.pin = QUIRE_OFF;
    config.max_jobs = 64;
    config.max_copies = MOST_COPIES_OF_JOB;
    config.method = t->plan.method;
    config.num_ctas = t->plan.ctas;
    config.engine_from = t->plan.engine_from;
    config.crc = t->plan.crc;
    if (quire_device_cuda_open(&config, NULL, &t->device) != QUIRE_OK) {
        (void)fprintf(stderr, "quire bench: %s\n", quire_refusal());
        return -1;
    }
    return 0;
}

int gpu_traffic_open(gpu_traffic *t, gpu_rig *rig, const gpu_traffic_plan *plan)
{
    *t = (gpu_traffic){.rig = rig, .plan = *plan};
    t->plan.layers = plan->layers == 0 ? 1 : plan->layers;
    t->block_bytes = plan->piece * t->plan.layers;
    uint64_t job_bytes = t->block_bytes * MOST_COPIES_OF_JOB;
    job_bytes = job_bytes < JOB_BYTES ? job_bytes : JOB_BYTES;
    t->num_blocks = (uint32_t)(plan->bytes / t->block_bytes);
    t->num_jobs = (uint32_t)((plan->bytes + job_bytes - 1) / job_bytes);
    t->num_jobs = t->num_jobs < t->num_blocks ? t->num_jobs : t->num_blocks;
    if (open_traffic_device(t) != 0)
        return -1;
    for (int way = 0; way < 2; way++)
        if ((plan->ways >> way & 1) != 0 && plan_copies(t, way) != 0) {
            (void)fprintf(stderr, "quire bench: no memory for the list of copies\n");
            gpu_traffic_close(t);
            return -1;
        }
    return 0;
}

void gpu_traffic_close(gpu_traffic *t)
{
    quire_device_close(&t->device);
    for (int way = 0; way < 2; way++) {
        free(t->jobs[way]);
        free(t->copies[way]);
    }
    *t = (gpu_traffic){0};
}

/* ---- rounds ---------------------------------------------------------------- */

/* One job, so that both directions have some from the beginning. */
static void submit_next(gpu_traffic *t, int way)
{
    if (t->next[way] == t->num_jobs)
        return;
    int status = t->device.ops->submit(t->device.self, &t->jobs[way][t->next[way]]);
    if (status < 0)
        t->has_failed = true;
    if (status == QUIRE_OK)
        t->next[way]++;
}

static uint32_t take_ended(gpu_traffic *t)
{
    quire_device_job *ended[ENDED_AT_ONCE];
    uint32_t n = t->device.ops->poll(t->device.self, ended, ENDED_AT_ONCE);
    for (uint32_t i = 0; i < n; i++) {
        t->bytes_moved += ended[i]->num_copies * t->block_bytes;
        t->has_failed |= ended[i]->status != QUIRE_OK;
    }
    return n;
}

double gpu_traffic_round(gpu_traffic *t)
{
    uint32_t wanted = 0;
    uint32_t ended = 0;
    uint64_t before = t->bytes_moved;
    for (int way = 0; way < 2; way++) {
        t->next[way] = t->jobs[way] == NULL ? t->num_jobs : 0;
        wanted += t->jobs[way] == NULL ? 0 : t->num_jobs;
    }
    double start = progress_clock();
    while (ended < wanted && !t->has_failed) {
        submit_next(t, 0);
        submit_next(t, 1);
        ended += take_ended(t);
    }
    double took = progress_clock() - start;
    return t->has_failed ? 0 : (double)(t->bytes_moved - before) / took / 1e9;
}

void gpu_traffic_measure(gpu_traffic *t, gpu_rounds *rounds, gpu_rounds *plain)
{
    (void)gpu_traffic_round(t); /* warms up */
    double start = progress_clock();
    rounds->count = 0;
    plain->count = 0;
    while (!t->has_failed && gpu_wants_more(t->rig, rounds, start)) {
        rounds->values[rounds->count++] = gpu_traffic_round(t);
        double rate = gpu_rig_plain(t->rig, t->plan.ways);
        t->has_failed |= rate <= 0;
        plain->values[plain->count++] = rate;
    }
}

void gpu_traffic_turn(gpu_traffic *t)
{
    (void)take_ended(t);
    for (int way = 0; way < 2; way++)
        for (uint32_t i = 0; t->jobs[way] != NULL && i < t->num_jobs; i++) {
            quire_device_job *job = &t->jobs[way][t->next[way] % t->num_jobs];
            if (job->state != 0 || t->device.ops->submit(t->device.self, job) != QUIRE_OK)
                break;
            t->next[way]++;
        }
}

void gpu_traffic_drain(gpu_traffic *t)
{
    while (quire_device_cuda_get_stats(&t->device)->in_flight > 0)
        (void)take_ended(t);
}

/* ---- whether it is right --------------------------------------------------- */

static bool is_piece_right(gpu_traffic *t, const quire_device_copy *copy, unsigned char *memory)
{
    const gpu_rig *rig = t->rig;
    uint64_t piece = t->plan.piece;
    uint64_t layer_bytes = 2 * (rig->bytes / t->block_bytes) * piece;
    const unsigned char *slot = rig->host + copy->slot * t->block_bytes;
    /* The first bytes of its first piece, and the last of its last, read the plain way. */
    qr_cu_address first = rig->device + copy->block * piece;
    qr_cu_address last = first + (t->plan.layers - 1) * layer_bytes + piece - 16;
    for (int i = 0; i < 2; i++) {
        if (rig->calls->cuMemcpyDtoHAsync(memory, i == 0 ? first : last, 16, rig->compute) != 0 ||
            rig->calls->cuStreamSynchronize(rig->compute) != 0 ||
            memcmp(memory, i == 0 ? slot : slot + t->block_bytes - 16, 16) != 0)
            return false;
    }
    return true;
}

bool gpu_traffic_is_right(gpu_traffic *t)
{
    void *memory = NULL;
    bool is_right = quire_cuda_host_alloc(t->rig->cuda, 16, &memory) == QUIRE_OK;
    for (int way = 0; way < 2 && is_right; way++) {
        if (t->jobs[way] == NULL)
            continue;
        for (uint32_t i = 0; way == 1 && i < t->num_blocks; i++) { /* blocks that differ */
            unsigned char *slot = t->rig->host + t->copies[1][i].slot * t->block_bytes;
            memcpy(slot, &i, sizeof i);
            memcpy(slot + t->block_bytes - sizeof i, &i, sizeof i);
        }
        is_right = gpu_traffic_round(t) > 0;
        for (uint32_t i = 0; i < NUM_SAMPLES && is_right; i++)
            is_right = is_piece_right(t, &t->copies[way][(uint64_t)i * t->num_blocks / NUM_SAMPLES],
                                      memory);
    }
    quire_cuda_host_free(t->rig->cuda, memory);
    return is_right;
}
