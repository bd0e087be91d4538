#include "rank.h"

#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire/tier_file.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct rank {
    pid_t pid;
    int fd;
    unsigned char *report;
    size_t room;
};

typedef struct step_head {
    rank_faults faults;
    uint32_t num_checked;
    uint32_t num_computed;
    uint64_t plan_bytes;
} step_head;

typedef struct answer_head {
    uint64_t num_wrong;
    uint64_t num_checked;
    uint64_t report_bytes;
} answer_head;

/* ---- bytes ----------------------------------------------------------------- */

static bool send_all(int fd, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t n)
{
    unsigned char *at = bytes;
    while (n > 0) {
        ssize_t got = recv(fd, at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static void need(bool is_true, const char *what)
{
    if (is_true)
        return;
    fprintf(stderr, "rank: %s: %s\n", what, quire_refusal());
    _exit(3);
}

/* ---- the rank's process ---------------------------------------------------- */

typedef struct life {
    rank_config config;
    int fd;
    unsigned char *blocks;
    unsigned char *slots;
    quire_device device;
    faulty *faulty; /* NULL: the shared directory */
    quire_tier *tier;
    quire_worker *worker;
    _Atomic uint64_t num_wrong;
    _Atomic uint64_t num_checked;
    _Atomic uint64_t num_works;
} life;

/* Blocks to check or to compute, on the compute stream. */
typedef struct work {
    life *of;
    uint32_t n;
    bool is_check;
    rank_block blocks[];
} work;

static void pattern_of(const life *l, const rank_block *block, unsigned char *bytes)
{
    quire_tier_key key = {.group = block->group};
    memcpy(key.hash, block->hash, RANK_HASH_BYTES);
    key.rank = l->config.has_same_bytes ? 0 : l->config.rank;
    faulty_pattern(&key, bytes, RANK_BLOCK_BYTES);
}

static void do_work(void *user)
{
    work *w = user;
    life *l = w->of;
    unsigned char expected[RANK_BLOCK_BYTES];
    for (uint32_t i = 0; i < w->n; i++) {
        unsigned char *at = l->blocks + (size_t)w->blocks[i].block * RANK_BLOCK_BYTES;
        pattern_of(l, &w->blocks[i], expected);
        if (!w->is_check)
            memcpy(at, expected, sizeof expected);
        else if (memcmp(at, expected, sizeof expected) != 0)
            atomic_fetch_add(&l->num_wrong, 1);
    }
    atomic_fetch_add(&l->num_checked, w->is_check ? w->n : 0);
    atomic_fetch_sub(&l->num_works, 1);
    free(w);
}

static void compute(life *l, const rank_block *blocks, uint32_t n, bool is_check)
{
    const struct timespec a_little = {.tv_nsec = 100000};
    if (n == 0)
        return;
    work *w = malloc(sizeof *w + n * sizeof *blocks);
    *w = (work){.of = l, .n = n, .is_check = is_check};
    memcpy(w->blocks, blocks, n * sizeof *blocks);
    atomic_fetch_add(&l->num_works, 1);
    while (quire_device_host_compute(&l->device, do_work, w) == QUIRE_FULL)
        (void)nanosleep(&a_little, NULL);
}

static void open_tier(life *l)
{
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.memory = l->slots;
    common.memory_bytes = (size_t)l->config.num_slots * RANK_BLOCK_BYTES;
    common.deadline_ns = UINT64_C(10000000000);
    common.breaker_ns = 20000000;
    if (l->config.directory == NULL) {
        l->faulty = faulty_create(&(faulty_config){.max_keys = 8192,
                                                   .max_bytes = RANK_BLOCK_BYTES,
                                                   .seed = l->config.seed,
                                                   .is_shared = l->config.rank % 2 == 0});
        common.ops = faulty_ops();
        common.self = l->faulty;
        need(quire_tier_open(&common, NULL, &l->tier) == QUIRE_OK, "a tier");
        return;
    }
    quire_tier_file_config file = QUIRE_TIER_FILE_CONFIG_INIT;
    file.path = l->config.directory;
    file.is_shared = 1;
    file.capacity_bytes = UINT64_C(64) << 20;
    file.block_bytes = RANK_BLOCK_BYTES;
    memcpy(file.fingerprint, "ranks", 5);
    need(quire_tier_file_open(&file, &common, NULL, &l->tier) == QUIRE_OK, "a directory");
}

static void open_life(life *l)
{
    quire_device_host_config device = QUIRE_DEVICE_HOST_CONFIG_INIT;
    quire_worker_config config = QUIRE_WORKER_CONFIG_INIT;
    const rank_config *c = &l->config;
    l->blocks = calloc(c->num_blocks, RANK_BLOCK_BYTES);
    l->slots = aligned_alloc(4096, (size_t)c->num_slots * RANK_BLOCK_BYTES / 4096 * 4096 + 4096);
    device.blocks = l->blocks;
    device.num_blocks = c->num_blocks;
    device.num_slots = c->num_slots;
    device.slots = l->slots;
    device.block_bytes = RANK_BLOCK_BYTES;
    device.max_jobs = 16; /* fewer than a plan has */
    need(quire_device_host_open(&device, NULL, &l->device) == QUIRE_OK, "a device");
    open_tier(l);
    quire_worker_tier tier = {.tier = l->tier, .max_waiting_stores = c->has_same_bytes ? 0 : 16};
    config.rank = c->rank;
    config.num_ranks = c->num_ranks;
    config.key_rank = c->has_same_bytes ? 0 : c->rank;
    config.stores = c->has_same_bytes && c->rank > 0 ? QUIRE_OFF : QUIRE_DEFAULT;
    config.device = l->device;
    config.memory = l->slots;
    config.block_bytes = RANK_BLOCK_BYTES;
    config.num_slots = c->num_slots;
    config.tiers = &tier;
    config.num_tiers = 1;
    need(quire_worker_create(&config, NULL, &l->worker) == QUIRE_OK, "a worker");
    need(quire_worker_self_test(l->worker, 1, 2, UINT64_C(30000000000)) == QUIRE_OK, "self test");
}

static void set_faults(life *l, const rank_faults *faults)
{
    quire_device_host_faults device = {.fail_per_mille = faults->device_per_mille,
                                       .copy_delay_us = faults->copy_delay_us,
                                       .compute_delay_us = faults->copy_delay_us / 4,
                                       .ignores_marks = l->config.ignores_marks};
    quire_device_host_set_faults(&l->device, &device);
    if (l->faulty == NULL)
        return;
    faulty_set_all(l->faulty, faults->tier_per_mille);
    faulty_set(l->faulty, FAULTY_STRAY, 0);
    faulty_set(l->faulty, FAULTY_TWICE, 0);
    faulty_set_delay(l->faulty, faults->tier_per_mille > 0 ? 3 : 0);
}

static void close_life(life *l)
{
    const struct timespec a_little = {.tv_nsec = 1000000};
    quire_bytes report;
    while (quire_worker_has_pending(l->worker) || atomic_load(&l->num_works) > 0) {
        (void)quire_worker_poll(l->worker, &report);
        (void)nanosleep(&a_little, NULL);
    }
    need(quire_worker_destroy(l->worker) == QUIRE_OK, "destroy");
    need(quire_tier_close(l->tier) == QUIRE_OK, "close");
    quire_device_close(&l->device);
    free(l->blocks);
    free(l->slots);
}

static bool answer(life *l)
{
    quire_bytes report;
    need(quire_worker_poll(l->worker, &report) == QUIRE_OK, "poll");
    answer_head head = {.num_wrong = atomic_load(&l->num_wrong),
                        .num_checked = atomic_load(&l->num_checked),
                        .report_bytes = report.len};
    return send_all(l->fd, &head, sizeof head) && send_all(l->fd, report.data, report.len);
}

static void live(const rank_config *config, int fd)
{
    life l = {.config = *config, .fd = fd};
    step_head head = {0};
    open_life(&l);
    while (head.faults.must_stop == 0 && receive_all(fd, &head, sizeof head)) {
        rank_block *blocks =
            malloc(((size_t)head.num_checked + head.num_computed + 1) * sizeof *blocks);
        unsigned char *plan = malloc(head.plan_bytes + 1);
        if (!receive_all(fd, blocks,
                         ((size_t)head.num_checked + head.num_computed) * sizeof *blocks) ||
            !receive_all(fd, plan, head.plan_bytes))
            break;
        set_faults(&l, &head.faults);
        compute(&l, blocks, head.num_checked, true);
        if (head.plan_bytes > 0)
            need(quire_worker_submit(l.worker, (quire_bytes){plan, head.plan_bytes}) == QUIRE_OK,
                 "submit");
        compute(&l, blocks + head.num_checked, head.num_computed, false);
        free(blocks);
        free(plan);
        if (!answer(&l))
            break;
    }
    if (head.faults.must_stop != 0)
        close_life(&l);
    _exit(0);
}

/* ---- the engine's side ----------------------------------------------------- */

rank *rank_start(const rank_config *config)
{
    int ends[2];
    rank *r = calloc(1, sizeof *r);
    if (r == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(r);
        return NULL;
    }
    r->pid = fork();
    if (r->pid == 0) {
        (void)close(ends[0]);
        live(config, ends[1]);
    }
    (void)close(ends[1]);
    r->fd = ends[0];
    return r;
}

bool rank_send(rank *r, const rank_faults *faults, const rank_block *checked, uint32_t num_checked,
               quire_bytes plan, const rank_block *computed, uint32_t num_computed)
{
    step_head head = {.faults = *faults,
                      .num_checked = num_checked,
                      .num_computed = num_computed,
                      .plan_bytes = plan.len};
    return send_all(r->fd, &head, sizeof head) &&
           send_all(r->fd, checked, num_checked * sizeof *checked) &&
           send_all(r->fd, computed, num_computed * sizeof *computed) &&
           send_all(r->fd, plan.data, plan.len);
}

bool rank_receive(rank *r, rank_answer *answer)
{
    answer_head head;
    if (!receive_all(r->fd, &head, sizeof head))
        return false;
    if (head.report_bytes > r->room) {
        r->room = head.report_bytes;
        r->report = realloc(r->report, r->room);
    }
    *answer = (rank_answer){.num_wrong = head.num_wrong,
                            .num_checked = head.num_checked,
                            .report = {r->report, head.report_bytes}};
    return receive_all(r->fd, r->report, head.report_bytes);
}

void rank_kill(rank *r)
{
    (void)kill(r->pid, SIGKILL);
}

int rank_end(rank *r)
{
    int status = 0;
    (void)close(r->fd);
    bool has_exited = waitpid(r->pid, &status, 0) == r->pid && WIFEXITED(status);
    free(r->report);
    free(r);
    return has_exited ? WEXITSTATUS(status) : -1;
}
