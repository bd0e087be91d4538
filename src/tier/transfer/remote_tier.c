/* tier/transfer/remote_tier.c - a tier that each rank has: LOAD and STORE are carried, and the
 * ranks find what they load. It runs inline: breaker, deadlines and counters are those of every
 * tier. */
#include "tier/transfer/transfer.h"

#include "base/hooks.h"
#include "tier/slots/known.h"

enum { MOST_TOUCHES = 16 }; /* in a plan: they only help the policies of tiers */

int qr_remote_tier_init(qr_remote_tier *remote, quire_transfer *transfer, uint32_t index,
                        const quire_transfer_tier *config, uint32_t num_known)
{
    *remote = (qr_remote_tier){.transfer = transfer, .index = index};
    remote->caps = (quire_tier_caps){.alignment = 1,
                                     .max_bytes = UINT32_MAX,
                                     .is_persistent = config->is_persistent != 0,
                                     .is_shared = config->is_shared != 0,
                                     .is_read_only = config->is_read_only != 0,
                                     .is_simulated = 1,
                                     .loads_unknown = 1};
    return num_known == 0 ? QUIRE_OK : qr_known_open(num_known, &transfer->hooks, &remote->known);
}

static void close_tier(void *self)
{
    qr_remote_tier *remote = self;
    quire_slots_destroy(remote->known);
    remote->known = NULL;
}

static void get_caps(void *self, quire_tier_caps *caps)
{
    const qr_remote_tier *remote = self;
    *caps = remote->caps;
}

static void end_all(quire_tier_ends *ends, quire_tier_job *job, quire_tier_status status)
{
    uint32_t num_ios = job->num_ios; /* the job is the scheduler's after the last end */
    for (uint32_t i = 0; i < num_ios; i++)
        ends->end(ends, job, i, status);
}

static void begin_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_remote_tier *remote = self;
    bool is_load = job->op == QUIRE_TIER_LOAD;
    qr_plan_job planned = {.kind = is_load ? QR_PLAN_LOAD : QR_PLAN_STORE,
                           .tier = (uint8_t)remote->index,
                           .flags = is_load && job->is_prefix != 0 ? QR_PLAN_PREFIX : 0,
                           .count = job->num_ios};
    uint64_t now_ns = qr_now_ns(&remote->transfer->hooks);
    planned.timeout_ns = job->due_ns > now_ns ? job->due_ns - now_ns : 1;
    unsigned char *items = NULL;
    bool is_carried = is_load || job->op == QUIRE_TIER_STORE;
    if (is_carried && job->num_ios <= QR_PLAN_MOST_KEYS)
        items = qr_transfer_carry(remote->transfer, &planned, job, job->num_ios);
    if (items == NULL) {
        end_all(ends, job, QUIRE_TIER_REFUSED);
        return;
    }
    for (uint32_t i = 0; i < job->num_ios; i++)
        qr_plan_put_key(items, i, &job->ios[i].key, (uint32_t)job->ios[i].place);
}

static quire_tier_status status_of(uint8_t reported)
{
    return reported == QR_REPORT_LATE ? QUIRE_TIER_FAILED : (quire_tier_status)reported;
}

static void turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    (void)wake_fd;
    (void)timeout_ms;
    qr_remote_tier *remote = self;
    for (;;) {
        const qr_carried *ended = qr_transfer_next_ended(remote->transfer, remote->index);
        if (ended == NULL)
            return;
        for (uint32_t i = 0; i < ended->count; i++)
            ends->end(ends, ended->job, i, status_of(ended->statuses[i]));
    }
}

/* The ranks end it as soon as they can; it ends here when they have reported. */
static void cancel_job(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)ends;
    qr_remote_tier *remote = self;
    uint32_t place = qr_transfer_find(remote->transfer, remote->index, job);
    if (place == UINT32_MAX)
        return;
    qr_plan_job planned = {.id = remote->transfer->carried[place].id,
                           .kind = QR_PLAN_CANCEL,
                           .tier = (uint8_t)remote->index};
    (void)qr_transfer_command(remote->transfer, &planned);
}

static void touch_keys(void *self, const quire_tier_key *keys, uint32_t n)
{
    qr_remote_tier *remote = self;
    if (remote->known != NULL)
        quire_slots_touch(remote->known, keys, n);
    while (n > 0 && remote->num_touches < MOST_TOUCHES) {
        uint32_t count = n < QR_PLAN_MOST_KEYS ? n : QR_PLAN_MOST_KEYS;
        qr_plan_job planned = {
            .kind = QR_PLAN_TOUCH, .tier = (uint8_t)remote->index, .count = count};
        unsigned char *items = qr_transfer_command(remote->transfer, &planned);
        if (items == NULL)
            return;
        for (uint32_t i = 0; i < count; i++)
            qr_plan_put_key(items, i, &keys[i], 0);
        keys += count;
        n -= count;
        remote->num_touches++;
    }
}

static void forget_known(qr_remote_tier *remote)
{
    if (remote->known != NULL)
        (void)quire_slots_reset(remote->known);
}

static int reset_tier(void *self)
{
    qr_remote_tier *remote = self;
    qr_plan_job planned = {.kind = QR_PLAN_RESET, .tier = (uint8_t)remote->index};
    forget_known(remote);
    return qr_transfer_command(remote->transfer, &planned) != NULL ? QUIRE_OK : QUIRE_E_SYSTEM;
}

static int set_identity(void *self, const unsigned char *fingerprint)
{
    qr_remote_tier *remote = self;
    qr_plan_job planned = {.kind = QR_PLAN_IDENTITY, .tier = (uint8_t)remote->index, .count = 1};
    unsigned char *items = qr_transfer_command(remote->transfer, &planned);
    if (items == NULL)
        return QUIRE_E_SYSTEM;
    memcpy(items, fingerprint, QUIRE_FINGERPRINT_BYTES);
    forget_known(remote);
    return QUIRE_OK;
}

const quire_tier_ops qr_remote_tier_ops = {.abi = 1,
                                           .size = sizeof(quire_tier_ops),
                                           .name = "tier",
                                           .caps = get_caps,
                                           .close = close_tier,
                                           .finish = qr_known_finish_job,
                                           .slots = qr_known_get_slots,
                                           .touch = touch_keys,
                                           .reset = reset_tier,
                                           .begin = begin_job,
                                           .turn = turn,
                                           .cancel = cancel_job,
                                           .set_identity = set_identity};
