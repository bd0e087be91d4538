/* tier/transfer/remote_device.c - a device whose copies all ranks make. The ranks take the
 * marks. */
#include "tier/transfer/transfer.h"

static int take_mark(void *self, uint64_t *mark)
{
    (void)self;
    *mark = 0;
    return QUIRE_OK;
}

static int submit_copies(void *self, quire_device_job *job)
{
    quire_transfer *t = self;
    if (job == NULL || job->state != 0 || job->copies == NULL ||
        (job->op != QUIRE_DEVICE_STORE && job->op != QUIRE_DEVICE_LOAD))
        return QUIRE_E_ARGUMENT;
    if (job->num_copies == 0 || job->num_copies > QR_PLAN_MOST_COPIES)
        return QUIRE_E_RANGE;
    uint8_t kind = job->op == QUIRE_DEVICE_STORE ? QR_PLAN_COPY_OUT : QR_PLAN_COPY_IN;
    qr_plan_job planned = {.kind = kind, .count = job->num_copies};
    unsigned char *items = qr_transfer_carry(t, &planned, job, 1);
    if (items == NULL)
        return QUIRE_FULL;
    for (uint32_t i = 0; i < job->num_copies; i++) {
        qr_plan_put_copy(items, i, job->copies[i].block, job->copies[i].slot);
        job->copies[i].crc = 0;
    }
    job->state = 1;
    return QUIRE_OK;
}

static uint32_t poll_copies(void *self, quire_device_job **jobs, uint32_t capacity)
{
    quire_transfer *t = self;
    uint32_t n = 0;
    while (n < capacity) {
        const qr_carried *ended = qr_transfer_next_ended(t, QR_TRANSFER_COPIES);
        if (ended == NULL)
            break;
        quire_device_job *job = ended->job;
        job->status = ended->statuses[0] == QUIRE_TIER_DONE ? QUIRE_OK : QUIRE_E_SYSTEM;
        job->state = 0;
        jobs[n++] = job;
    }
    return n;
}

static void close_device(void *self)
{
    (void)self; /* the transfer owns all of it */
}

const quire_device_ops qr_remote_device_ops = {.abi = 1,
                                               .size = sizeof(quire_device_ops),
                                               .name = "ranks",
                                               .mark = take_mark,
                                               .submit = submit_copies,
                                               .poll = poll_copies,
                                               .close = close_device};
