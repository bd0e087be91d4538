/* tier/file/tasks.h - what is being read and written in the private file, on the tier's thread.
 *
 *      jobs ──► reads  ─┐   at most depth at one time each, reads first
 *           └─► writes ─┴─► task: block ─► (store) head ─► checked ─► the io ends
 *
 * STORE     the entry is taken off the slot, then the block is written, and when that has ended the
 *           head; only then the slot has its new entry. A crash at any point leaves a slot whose
 *           head and block do not fit together, which is a miss.
 * LOAD      the block; its head too, where the entry comes from an index and was not checked yet.
 * REMOVE    an empty head.
 *
 * The room of a read or write is free for the next as soon as its op has ended; checking the bytes
 * comes after that, so that the device does not wait for it. */
#ifndef QR_TIER_FILE_TASKS_H
#define QR_TIER_FILE_TASKS_H

#include "tier/file/queue.h"
#include "tier/file/slab.h"

typedef struct qr_file_task {
    qr_file_op ops[2]; /* block, head */
    quire_tier_job *job;
    uint32_t io;
    uint32_t slot;
    qr_file_entry entry; /* that it writes, or believes to read */
    uint64_t epoch;
    uint32_t num_left; /* ops in flight */
    uint32_t num_tries;
    int error;
    bool is_heading; /* STORE: the block is written */
    unsigned char *page;
    struct qr_file_task *next; /* in a list: free, or ended */
} qr_file_task;

typedef struct qr_file_tasks {
    qr_file_slab *slab;
    uint32_t depth;
    uint32_t stamp; /* generation of ios that may begin: those of before a reset may not */
    uint32_t num_tasks;
    qr_file_task *tasks;
    qr_file_task *free;
    qr_file_task *ended; /* all ops have; not yet checked */
    qr_file_task *ended_last;
    qr_file_queue reads;
    qr_file_queue writes;
    uint32_t num_reading;
    uint32_t num_writing;
} qr_file_tasks;

uint32_t qr_file_tasks_count(uint32_t depth);
/* tasks: qr_file_tasks_count of them, zeroed; pages: one for each. */
void qr_file_tasks_init(qr_file_tasks *tasks, qr_file_slab *slab, uint32_t depth,
                        qr_file_task *memory, unsigned char *pages);

void qr_file_tasks_begin(qr_file_tasks *tasks, quire_tier_job *job);
/* What of the job was not begun ends as cancelled. */
void qr_file_tasks_cancel(qr_file_tasks *tasks, quire_tier_ends *ends, quire_tier_job *job);
/* Submits what there is room for. */
void qr_file_tasks_pump(qr_file_tasks *tasks, quire_tier_ends *ends);
/* An op of a task has ended. */
void qr_file_tasks_ended(qr_file_tasks *tasks, qr_file_op *op);
/* Checks what has ended; ends its ios. */
void qr_file_tasks_check(qr_file_tasks *tasks, quire_tier_ends *ends);

#endif
