#include "tier/net/client.h"

#include "base/bits.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS = QR_AT_A_TIME(64, 1), NS_PER_MS = 1000000, JOBS = 256 };
enum { BLOCK_BYTES = 64 * 1024 * 1024, MOST_MS = 60000, SUM_STEP = QR_AT_A_TIME(96 * 1024, 2) };

/* ---- opening and closing --------------------------------------------------- */

const char *qr_net_check(const qr_net_options *o)
{
    bool has_files = o->tls.ca_file != NULL || o->tls.cert_file != NULL ||
                     o->tls.key_file != NULL || o->tls.server_name != NULL;
    if (o->fingerprint == NULL)
        return "fingerprint is NULL (expected the 32 bytes of quire_fingerprint)";
    if (o->event_keys > QUIRE_SLOTS_MAX)
        return "invalid event_keys (expected at most QUIRE_SLOTS_MAX)";
    if (!o->has_tls && has_files)
        return "tls is 0, but a TLS file or name is set";
    if (o->tls.trusts_any && o->tls.ca_file != NULL)
        return "tls_trust_any and tls_ca_file are both set: set one of them";
    return NULL;
}

int qr_net_check_trust(const qr_net_options *options, const qr_address *address, const char *field,
                       const char *text)
{
    if (options->has_tls || options->trusts_network || qr_address_is_local(address))
        return QUIRE_OK;
    return qr_fail(
        QUIRE_E_UNSAFE,
        "%s: \"%s\" is beyond this machine: set tls, or trust_network if the network is trusted",
        field, text);
}

static bool open_descriptors(qr_net_client *net)
{
    net->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net->name = net->epoll_fd < 0 ? NULL : qr_name_open();
    return net->name != NULL && qr_socket_watch(net->epoll_fd, qr_name_fd(net->name), net->name);
}

void qr_net_note(qr_net_target *target, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(target->why, sizeof target->why, format, values);
    va_end(values);
}

static int open_batches(qr_net_client *net)
{
    net->batches = qr_alloc(net->max_jobs, sizeof *net->batches);
    for (uint32_t i = 0; net->batches != NULL && i < net->max_jobs; i++) {
        net->batches[i].next = net->free_batches;
        net->free_batches = &net->batches[i];
    }
    return net->batches == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

int qr_net_open(qr_net_client *net, const qr_net_ops *ops, const qr_net_options *o,
                const quire_hooks *hooks)
{
    net->ops = ops;
    net->epoll_fd = net->wake_fd = -1;
    if (hooks != NULL)
        net->hooks = *hooks;
    net->max_jobs = (uint32_t)qr_or_default(o->max_jobs, JOBS);
    net->max_block_bytes = (uint32_t)qr_or_default(o->max_block_bytes, BLOCK_BYTES);
    net->connect_ns = qr_or_default(o->connect_ns, QR_NET_SECOND);
    net->late_ns = qr_or_default(o->late_ns, QR_NET_SECOND);
    net->wait_ns = o->wait_ns;
    int status = open_batches(net);
    if (status == QUIRE_OK && o->event_keys > 0)
        status = qr_known_open(o->event_keys, &net->hooks, &net->known);
    if (status == QUIRE_OK && !open_descriptors(net))
        status = QUIRE_E_SYSTEM;
    if (status == QUIRE_OK)
        status = qr_secret_open(&net->secret, &o->secret);
    if (status == QUIRE_OK && o->has_tls)
        status = qr_tls_open(&o->tls, &net->tls);
    return status;
}

void qr_net_close(qr_net_client *net)
{
    qr_name_close(net->name);
    if (net->epoll_fd >= 0)
        close(net->epoll_fd);
    quire_slots_destroy(net->known);
    qr_tls_close(net->tls);
    qr_secret_close(&net->secret);
    qr_free(net->batches);
}

/* ---- jobs ------------------------------------------------------------------ */

static void refuse_job(qr_net_client *net, quire_tier_job *job, uint32_t open)
{
    quire_tier_io *ios = job->ios;
    qr_net_count(net, QR_NET_REFUSED, open);
    for (uint32_t i = 0; open > 0; i++)
        if (ios[i].status == QUIRE_TIER_PENDING) {
            open--;
            net->ends->end(net->ends, job, i, QUIRE_TIER_REFUSED);
        }
}

void qr_net_begin(qr_net_client *net, quire_tier_job *job)
{
    bool can_begin = net->ops->can_begin == NULL || net->ops->can_begin(net, job);
    uint32_t open = 0;
    for (uint32_t i = 0; i < job->num_ios; i++)
        open += job->ios[i].status == QUIRE_TIER_PENDING;
    qr_net_batch *batch = net->free_batches;
    if (open == 0 || batch == NULL || !can_begin) {
        refuse_job(net, job, open);
        return;
    }
    net->free_batches = batch->next;
    *batch = (qr_net_batch){.job = job,
                            .ios = job->ios,
                            .num_ios = job->num_ios,
                            .open = open,
                            .op = job->op,
                            .deadline_ns = job->due_ns,
                            .prev = net->active_last};
    if (net->active_last != NULL)
        net->active_last->next = batch;
    else
        net->active = batch;
    net->active_last = batch;
    net->num_jobs++;
    qr_net_count(net, QR_NET_JOBS, 1);
}

void qr_net_release(qr_net_client *net, qr_net_batch *batch)
{
    if (--batch->open > 0)
        return;
    if (batch->prev != NULL)
        batch->prev->next = batch->next;
    else
        net->active = batch->next;
    if (batch->next != NULL)
        batch->next->prev = batch->prev;
    else
        net->active_last = batch->prev;
    batch->next = net->free_batches;
    net->free_batches = batch;
    net->num_jobs--;
    qr_net_count(net, QR_NET_JOBS, (uint64_t)-1);
}

void qr_net_end_io(qr_net_client *net, qr_net_batch *batch, uint32_t io, quire_tier_status status)
{
    quire_tier_job *job = batch->job;
    if (status == QUIRE_TIER_REFUSED)
        qr_net_count(net, QR_NET_REFUSED, 1);
    qr_net_release(net, batch);
    net->ends->end(net->ends, job, io, status);
}

void qr_net_end_waiting(qr_net_client *net, qr_net_batch *batch, quire_tier_status status)
{
    uint32_t next = batch->next_io;
    uint32_t num_ios = batch->num_ios;
    quire_tier_io *ios = batch->ios;
    uint32_t left = 0;
    batch->next_io = num_ios;
    for (uint32_t i = next; i < num_ios; i++)
        left += qr_net_waits(&ios[i]);
    for (uint32_t i = next; left > 0; i++)
        if (qr_net_waits(&ios[i])) {
            left--;
            qr_net_end_io(net, batch, i, status);
        }
}

qr_net_batch *qr_net_find(qr_net_client *net, const quire_tier_job *job)
{
    qr_net_batch *batch = net->active;
    while (batch != NULL && batch->job != job)
        batch = batch->next;
    return batch;
}

void qr_net_leave(qr_net_client *net, qr_net_batch *batch)
{
    bool is_late = net->now_ns >= batch->deadline_ns;
    qr_net_count(net, QR_NET_LATE, is_late);
    net->ops->leave(net, batch, is_late);
}

void qr_net_expire(qr_net_client *net)
{
    qr_net_batch *batch = net->active;
    while (batch != NULL) {
        if (net->now_ns < batch->deadline_ns) {
            batch = batch->next;
            continue;
        }
        qr_net_leave(net, batch);
        batch = net->active; /* a connection that was closed may have ended others */
    }
}

/* ---- a block that comes ----------------------------------------------------- */

/* Summed while they are in the cache, but not in small pieces, which take longer. */
void qr_net_block_note(qr_net_block *block, uint64_t n)
{
    block->at += n;
    uint64_t more = block->at - block->summed;
    if (block->at < block->bytes)
        more -= more % SUM_STEP;
    if (block->memory != NULL)
        block->crc = quire_crc32c(block->crc, block->memory + block->summed, more);
    block->summed += more;
}

uint32_t qr_net_block_take(qr_net_block *block, const unsigned char *input, uint32_t bytes)
{
    uint64_t left = block->bytes - block->at;
    uint32_t n = bytes < left ? bytes : (uint32_t)left;
    if (block->memory != NULL)
        memcpy(block->memory + block->at, input, n);
    qr_net_block_note(block, n);
    return n;
}

/* ---- names ----------------------------------------------------------------- */

bool qr_net_find_endpoints(qr_net_client *net, qr_net_target *target)
{
    target->at_endpoint = 0;
    target->num_endpoints = 1;
    if (qr_address_to_endpoint(&target->address, &target->endpoints[0]))
        return true;
    target->num_endpoints = 0;
    if (net->looking == NULL && qr_name_ask(net->name, &target->address)) {
        net->looking = target;
        target->is_looking = true;
        target->until_ns = net->now_ns + net->connect_ns;
    }
    return false;
}

/* An answer for a server that no longer waits for it is dropped. */
static void take_name(qr_net_client *net)
{
    const qr_address *asked;
    const qr_endpoint *endpoints;
    int count = qr_name_answer(net->name, &asked, &endpoints);
    qr_net_target *target = net->looking;
    if (count < 0 || target == NULL)
        return;
    net->looking = NULL;
    if (!target->is_looking || !qr_address_is_equal(&target->address, asked))
        return;
    target->is_looking = false;
    target->at_endpoint = 0;
    target->num_endpoints = (uint32_t)count;
    memcpy(target->endpoints, endpoints, (size_t)count * sizeof *endpoints);
    net->ops->name_found(net, target);
}

bool qr_net_connect(qr_net_client *net, qr_net_target *target, qr_socket *socket)
{
    for (; target->at_endpoint < target->num_endpoints; target->at_endpoint++) {
        if (qr_socket_connect(socket, &target->endpoints[target->at_endpoint], net->tls,
                              target->address.host, net->epoll_fd, socket) == 0)
            return true;
        qr_net_note(target, "%s", strerror(errno));
    }
    return false;
}

/* ---- a turn ---------------------------------------------------------------- */

static int wait_ms(qr_net_client *net, int timeout_ms)
{
    uint64_t when = net->ops->next_time(net);
    for (const qr_net_batch *batch = net->active; batch != NULL; batch = batch->next)
        qr_earlier(&when, batch->deadline_ns);
    if (net->has_more || when <= net->now_ns)
        return 0;
    if (when == UINT64_MAX)
        return timeout_ms;
    uint64_t ms = (when - net->now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return timeout_ms >= 0 && (uint64_t)timeout_ms < ms ? timeout_ms
                                                        : (int)(ms < MOST_MS ? ms : MOST_MS);
}

static void watch_wake(qr_net_client *net, int wake_fd)
{
    if (wake_fd == net->wake_fd)
        return;
    if (net->wake_fd >= 0)
        (void)epoll_ctl(net->epoll_fd, EPOLL_CTL_DEL, net->wake_fd, NULL);
    net->wake_fd = wake_fd;
    if (wake_fd >= 0 && !qr_socket_watch(net->epoll_fd, wake_fd, &net->wake_fd))
        net->wake_fd = -1; /* tried again in the next turn */
}

static void take_events(qr_net_client *net, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        void *data = events[i].data.ptr;
        if (data == net->name) {
            take_name(net);
        } else if (data != &net->wake_fd) {
            qr_socket *socket = data;
            socket->can_read = true;
            socket->can_write = true;
        }
    }
}

static qr_net_client *enter(void *self, quire_tier_ends *ends)
{
    qr_net_client *net = self;
    net->ends = ends;
    net->now_ns = qr_now_ns(&net->hooks);
    return net;
}

void qr_net_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    qr_net_client *net = enter(self, ends);
    watch_wake(net, wake_fd);
    uint32_t num_jobs = net->num_jobs;
    net->has_more = false;
    net->ops->work(net);
    /* What ended is told at once. */
    int timeout = net->num_jobs < num_jobs ? 0 : wait_ms(net, timeout_ms);
    int n = epoll_wait(net->epoll_fd, events, EVENTS, timeout);
    net->now_ns = qr_now_ns(&net->hooks);
    if (n > 0) {
        take_events(net, events, n);
        net->has_more = false;
        net->ops->work(net);
    }
}

/* ---- of quire_tier_ops ------------------------------------------------------ */

int qr_net_await(void *self, const void *memory, size_t bytes)
{
    enum { AT_ONCE_MS = 20 }; /* a server that is down is tried again */
    qr_net_client *net = self;
    const qr_net_target *missing;
    (void)memory; /* sockets need no memory to be registered */
    (void)bytes;
    uint64_t end = qr_now_ns(NULL) + net->wait_ns; /* a clock of the caller's may stand still */
    while (net->wait_ns > 0 && (missing = net->ops->find_missing(net)) != NULL) {
        if (qr_now_ns(NULL) >= end)
            return qr_fail(QUIRE_E_SYSTEM, "%s %s:%u: %s", net->ops->name, missing->address.host,
                           missing->address.port, missing->why[0] != 0 ? missing->why : "no reply");
        qr_net_turn(net, NULL, -1, AT_ONCE_MS);
    }
    return QUIRE_OK;
}

void qr_net_get_caps(void *self, quire_tier_caps *caps)
{
    const qr_net_client *net = self;
    *caps = (quire_tier_caps){.alignment = 1,
                              .max_bytes = net->max_block_bytes,
                              .is_persistent = 1, /* as far as this engine can tell */
                              .is_shared = 1,
                              .checks_crc = 1};
}

void qr_net_prepare_job(void *self, quire_tier_job *job)
{
    (void)self;
    for (uint32_t i = 0; i < job->num_ios; i++)
        job->ios[i].generation = 0;
}

void qr_net_begin_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_net_begin(enter(self, ends), job);
}

void qr_net_cancel_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_net_client *net = enter(self, ends);
    qr_net_batch *batch = qr_net_find(net, job);
    if (batch != NULL)
        qr_net_leave(net, batch);
}
