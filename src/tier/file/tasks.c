#include "tier/file/tasks.h"

#include "tier/core/key.h"
#include "tier/file/slot_map.h"

#include <errno.h>
#include <string.h>

enum { MAX_TRIES = 4, SPARE_TASKS = QR_AT_A_TIME(16, 1) };

/* ---- tasks -------------------------------------------------------------- */

uint32_t qr_file_tasks_count(uint32_t depth)
{
    return 2 * depth + SPARE_TASKS;
}

void qr_file_tasks_init(qr_file_tasks *tasks, qr_file_slab *slab, uint32_t depth,
                        qr_file_task *memory, unsigned char *pages)
{
    *tasks = (qr_file_tasks){.slab = slab,
                             .depth = depth,
                             .stamp = 1,
                             .num_tasks = qr_file_tasks_count(depth),
                             .tasks = memory};
    for (uint32_t i = tasks->num_tasks; i-- > 0;) {
        qr_file_task *task = &memory[i];
        task->ops[0].tag = QR_FILE_TAG_TASK + 2 * i;
        task->ops[1].tag = QR_FILE_TAG_TASK + 2 * i + 1;
        task->page = pages + (size_t)i * QR_FILE_PAGE;
        task->next = tasks->free;
        tasks->free = task;
    }
}

static quire_tier_io *io_of(const qr_file_task *task)
{
    return &task->job->ios[task->io];
}

static void end_task(qr_file_tasks *tasks, quire_tier_ends *ends, qr_file_task *task,
                     quire_tier_status status)
{
    quire_tier_job *job = task->job;
    task->job = NULL;
    task->next = tasks->free;
    tasks->free = task;
    ends->end(ends, job, task->io, status);
}

static void submit_op(qr_file_tasks *tasks, qr_file_task *task, int which, qr_file_op_kind kind,
                      void *memory, uint32_t bytes)
{
    qr_file_op *op = &task->ops[which];
    uint64_t slot_at = qr_file_slot_at(&tasks->slab->layout, task->slot);
    op->kind = kind;
    op->memory = memory;
    op->bytes = bytes;
    op->offset = slot_at + (which == 0 ? QR_FILE_PAGE : 0);
    task->num_left++;
    tasks->slab->io->submit(tasks->slab->io, op);
}

/* ---- beginning ---------------------------------------------------------- */

static void set_entry(qr_file_slab *slab, uint32_t slot, const qr_file_entry *entry)
{
    slab->entries[slot] = *entry;
    slab->num_changes++;
}

static void clear_entry(qr_file_slab *slab, uint32_t slot)
{
    set_entry(slab, slot, &(qr_file_entry){0});
}

static void start_store(qr_file_tasks *tasks, qr_file_task *task)
{
    qr_file_slab *slab = tasks->slab;
    const quire_tier_io *io = io_of(task);
    task->entry = (qr_file_entry){.key = io->key,
                                  .seq = slab->next_seq++,
                                  .bytes = io->bytes,
                                  .crc = io->crc,
                                  .state = QR_FILE_STORED};
    clear_entry(slab, task->slot);
    submit_op(tasks, task, 0, QR_FILE_WRITE, io->memory, io->bytes);
    tasks->num_writing++;
}

static void start_remove(qr_file_tasks *tasks, qr_file_task *task)
{
    clear_entry(tasks->slab, task->slot);
    memset(task->page, 0, QR_FILE_PAGE);
    submit_op(tasks, task, 1, QR_FILE_WRITE, task->page, QR_FILE_PAGE);
    tasks->num_writing++;
}

/* PENDING: it is on its way. */
static quire_tier_status start_load(qr_file_tasks *tasks, qr_file_task *task)
{
    const quire_tier_io *io = io_of(task);
    task->entry = tasks->slab->entries[task->slot];
    if (task->entry.state != QR_FILE_STORED || !qr_key_is_equal(&task->entry.key, &io->key))
        return QUIRE_TIER_MISSING;
    if (task->entry.bytes != io->bytes)
        return QUIRE_TIER_WRONG;
    if ((task->entry.extra & QR_FILE_CHECKED) == 0)
        submit_op(tasks, task, 1, QR_FILE_READ, task->page, QR_FILE_PAGE);
    submit_op(tasks, task, 0, QR_FILE_READ, io->memory, io->bytes);
    tasks->num_reading++;
    return QUIRE_TIER_PENDING;
}

static void start_io(qr_file_tasks *tasks, quire_tier_ends *ends, quire_tier_job *job, uint32_t io)
{
    qr_file_task *task = tasks->free;
    tasks->free = task->next;
    task->job = job;
    task->io = io;
    task->slot = (uint32_t)job->ios[io].place;
    task->epoch = tasks->slab->super.owner.epoch;
    task->num_left = 0;
    task->num_tries = 0;
    task->error = 0;
    task->is_heading = false;
    quire_tier_status status = QUIRE_TIER_PENDING;
    if (task->slot >= tasks->slab->layout.num_slots)
        status = QUIRE_TIER_FAILED;
    else if (job->ios[io].generation != tasks->stamp)
        status = job->op == QUIRE_TIER_LOAD ? QUIRE_TIER_MISSING : QUIRE_TIER_REFUSED;
    else if (job->op == QUIRE_TIER_STORE)
        start_store(tasks, task);
    else if (job->op == QUIRE_TIER_REMOVE)
        start_remove(tasks, task);
    else
        status = start_load(tasks, task);
    if (status != QUIRE_TIER_PENDING)
        end_task(tasks, ends, task, status);
}

/* ---- queues ------------------------------------------------------------- */

void qr_file_tasks_begin(qr_file_tasks *tasks, quire_tier_job *job)
{
    qr_file_queue_add(job->op == QUIRE_TIER_LOAD ? &tasks->reads : &tasks->writes, job);
}

static bool start_next(qr_file_tasks *tasks, quire_tier_ends *ends, qr_file_queue *queue)
{
    quire_tier_job *job;
    uint32_t io;
    if (tasks->free == NULL || !qr_file_queue_take(queue, &job, &io))
        return false;
    start_io(tasks, ends, job, io);
    return true;
}

void qr_file_tasks_pump(qr_file_tasks *tasks, quire_tier_ends *ends)
{
    while (tasks->num_reading < tasks->depth && start_next(tasks, ends, &tasks->reads))
        continue;
    /* Somebody waits for what is read; nobody for what is written. */
    bool is_reading = tasks->reads.first != NULL || tasks->num_reading > 0;
    uint32_t most = is_reading ? (tasks->depth + 3) / 4 : tasks->depth;
    while (tasks->num_writing < most && start_next(tasks, ends, &tasks->writes))
        continue;
}

void qr_file_tasks_cancel(qr_file_tasks *tasks, quire_tier_ends *ends, quire_tier_job *job)
{
    if (!qr_file_queue_cancel(&tasks->reads, ends, job))
        (void)qr_file_queue_cancel(&tasks->writes, ends, job);
}

/* ---- ending ------------------------------------------------------------- */

void qr_file_tasks_ended(qr_file_tasks *tasks, qr_file_op *op)
{
    qr_file_task *task = &tasks->tasks[(op->tag - QR_FILE_TAG_TASK) / 2];
    if ((op->result == -EINTR || op->result == -EAGAIN) && task->num_tries < MAX_TRIES) {
        task->num_tries++;
        tasks->slab->io->submit(tasks->slab->io, op);
        return;
    }
    int if_short = op->kind == QR_FILE_READ ? EIO : ENOSPC; /* a full disk takes a part */
    if (op->result != (int64_t)op->bytes)
        task->error = op->result < 0 ? (int)-op->result : if_short;
    if (--task->num_left > 0)
        return;
    if (task->job->op == QUIRE_TIER_LOAD)
        tasks->num_reading--;
    else if (!task->is_heading)
        tasks->num_writing--;
    task->next = NULL;
    if (tasks->ended == NULL)
        tasks->ended = task;
    else
        tasks->ended_last->next = task;
    tasks->ended_last = task;
}

static quire_tier_status failure_of(int error)
{
    return error == ENOSPC || error == EDQUOT ? QUIRE_TIER_NO_ROOM : QUIRE_TIER_FAILED;
}

/* PENDING: its head is on its way. */
static quire_tier_status check_store(qr_file_tasks *tasks, qr_file_task *task)
{
    qr_file_slab *slab = tasks->slab;
    if (task->error != 0)
        return failure_of(task->error);
    if (!task->is_heading) {
        qr_file_head head = {.owner = slab->super.owner, .slot = task->slot, .entry = task->entry};
        head.owner.epoch = task->epoch;
        qr_file_head_write(task->page, &head);
        task->is_heading = true;
        submit_op(tasks, task, 1, QR_FILE_WRITE, task->page, QR_FILE_PAGE);
        return QUIRE_TIER_PENDING;
    }
    if (task->epoch == slab->super.owner.epoch) { /* else it was reset meanwhile */
        task->entry.extra = QR_FILE_CHECKED;
        set_entry(slab, task->slot, &task->entry);
    }
    return QUIRE_TIER_DONE;
}

static quire_tier_status judge_load(qr_file_tasks *tasks, qr_file_task *task)
{
    quire_tier_io *io = io_of(task);
    qr_file_entry *entry = &task->entry;
    if (task->error != 0) {
        io->place |= QR_FILE_FORGET;
        return QUIRE_TIER_FAILED;
    }
    /* The slot was written again after the index was: the key is not there any more. */
    if ((entry->extra & QR_FILE_CHECKED) == 0 &&
        (!qr_file_slab_judge(tasks->slab, task->page, task->slot, &io->key, entry) ||
         entry->bytes != io->bytes))
        return QUIRE_TIER_MISSING;
    io->crc = entry->crc;
    return quire_crc32c(0, io->memory, io->bytes) == entry->crc ? QUIRE_TIER_DONE
                                                                : QUIRE_TIER_WRONG;
}

static quire_tier_status check_load(qr_file_tasks *tasks, qr_file_task *task)
{
    qr_file_slab *slab = tasks->slab;
    quire_tier_status status = judge_load(tasks, task);
    qr_file_entry *now = &slab->entries[task->slot];
    bool is_same = now->state == QR_FILE_STORED && qr_key_is_equal(&now->key, &io_of(task)->key);
    if (task->epoch != slab->super.owner.epoch)
        return status == QUIRE_TIER_DONE ? QUIRE_TIER_MISSING : status;
    if (status == QUIRE_TIER_DONE && is_same && (now->extra & QR_FILE_CHECKED) == 0) {
        task->entry.extra = QR_FILE_CHECKED;
        *now = task->entry;
    } else if (status != QUIRE_TIER_DONE && is_same) {
        clear_entry(slab, task->slot);
    }
    return status;
}

void qr_file_tasks_check(qr_file_tasks *tasks, quire_tier_ends *ends)
{
    while (tasks->ended != NULL) {
        qr_file_task *task = tasks->ended;
        quire_tier_status status;
        tasks->ended = task->next;
        if (task->job->op == QUIRE_TIER_LOAD)
            status = check_load(tasks, task);
        else if (task->job->op == QUIRE_TIER_STORE)
            status = check_store(tasks, task);
        else
            status = task->error == 0 ? QUIRE_TIER_DONE : failure_of(task->error);
        if (status != QUIRE_TIER_PENDING)
            end_task(tasks, ends, task, status);
    }
}
