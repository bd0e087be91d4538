#include "tier/file/disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const DISK_FAULT_NAMES[DISK_FAULTS] = {
#define DISK_X(name) #name,
    DISK_FAULT_MAP(DISK_X)
#undef DISK_X
};

uint64_t disk_random(file_disk *disk, uint64_t below)
{
    disk->random ^= disk->random << 13;
    disk->random ^= disk->random >> 7;
    disk->random ^= disk->random << 17;
    return (disk->random >> 11) % below;
}

/* ---- what an op does to the image --------------------------------------- */

static void note(file_disk *disk, const qr_file_op *op, uint64_t offset, uint32_t bytes)
{
    if (!disk->is_recording)
        return;
    if (disk->num_records == disk->max_records) {
        disk->max_records = disk->max_records * 2 + 64;
        disk->records = realloc(disk->records, disk->max_records * sizeof(disk_record));
    }
    disk_record *record = &disk->records[disk->num_records++];
    *record =
        (disk_record){.offset = offset, .bytes = bytes, .is_synced = op->kind == QR_FILE_SYNCED};
    record->data = malloc(bytes);
    memcpy(record->data, op->memory, bytes);
}

static uint32_t within(const file_disk *disk, uint64_t offset, uint32_t bytes)
{
    if (offset >= disk->disk.bytes)
        return 0;
    uint64_t left = disk->disk.bytes - offset;
    return left < bytes ? (uint32_t)left : bytes;
}

static void write_image(file_disk *disk, const qr_file_op *op, uint64_t offset, uint32_t bytes)
{
    if (offset + bytes > disk->capacity)
        return;
    memcpy(disk->image + offset, op->memory, bytes);
    if (offset + bytes > disk->disk.bytes)
        disk->disk.bytes = offset + bytes;
    note(disk, op, offset, bytes);
}

static uint64_t elsewhere(file_disk *disk, const qr_file_op *op)
{
    uint64_t pages = disk->disk.bytes / 4096 + 1;
    uint64_t at = disk_random(disk, pages) * 4096;
    return at == op->offset || at + op->bytes > disk->disk.bytes ? op->offset : at;
}

static int64_t do_write(file_disk *disk, const qr_file_op *op, disk_fault fault)
{
    uint32_t part = fault == DISK_SHORT_ONE    ? 1
                    : fault == DISK_SHORT_HALF ? op->bytes / 2
                    : fault == DISK_SHORT_ZERO ? 0
                    : fault == DISK_TORN_512   ? 512
                    : fault == DISK_TORN_4096  ? (op->bytes > 4096 ? 4096 : 2048)
                                               : op->bytes;
    uint64_t offset = fault == DISK_MISDIRECTED ? elsewhere(disk, op) : op->offset;
    if (fault == DISK_STALE)
        return op->bytes;
    write_image(disk, op, offset, part);
    if (fault == DISK_FLIP) {
        uint64_t bit = disk_random(disk, (uint64_t)op->bytes * 8);
        disk->image[op->offset + bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    return fault == DISK_TORN_512 || fault == DISK_TORN_4096 ? op->bytes : part;
}

static int64_t do_read(file_disk *disk, const qr_file_op *op, disk_fault fault)
{
    unsigned char *memory = op->memory;
    uint32_t bytes = within(disk, op->offset, op->bytes);
    uint64_t offset = fault == DISK_MISDIRECTED ? elsewhere(disk, op) : op->offset;
    if (fault == DISK_SHORT_ONE || fault == DISK_SHORT_HALF || fault == DISK_SHORT_ZERO)
        bytes = fault == DISK_SHORT_ONE ? (bytes > 0) : fault == DISK_SHORT_HALF ? bytes / 2 : 0;
    uint32_t good = bytes;
    if (fault == DISK_TORN_512 || fault == DISK_TORN_4096 || fault == DISK_STALE)
        good = fault == DISK_TORN_512 ? 512 : fault == DISK_TORN_4096 ? 4096 : 0;
    memcpy(memory, disk->image + offset, good < bytes ? good : bytes);
    if (fault == DISK_FLIP && bytes > 0) {
        uint64_t bit = disk_random(disk, (uint64_t)bytes * 8);
        memory[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    return bytes;
}

static int64_t do_op(file_disk *disk, const qr_file_op *op, disk_fault fault)
{
    static const int ERRORS[DISK_FAULTS] = {
        [DISK_EIO] = EIO,     [DISK_ENOSPC] = ENOSPC, [DISK_EDQUOT] = EDQUOT,
        [DISK_EROFS] = EROFS, [DISK_EAGAIN] = EAGAIN, [DISK_EINTR] = EINTR};
    if (ERRORS[fault] != 0)
        return -ERRORS[fault];
    return op->kind == QR_FILE_READ ? do_read(disk, op, fault) : do_write(disk, op, fault);
}

/* ---- as an io ----------------------------------------------------------- */

static void disk_submit(qr_file_io *io, qr_file_op *op)
{
    file_disk *disk = (file_disk *)(void *)io;
    disk_fault fault = DISK_NONE;
    bool is_meant = disk->reads == 0 || (disk->reads == 1) == (op->kind == QR_FILE_READ);
    if (disk->one_in > 0 && is_meant && disk_random(disk, disk->one_in) == 0) {
        fault = disk->fault;
        disk->num_faults++;
    }
    op->generation++;
    io->num_in_flight++;
    if (disk->num_waiting == DISK_OPS)
        abort();
    disk->waiting[disk->num_waiting].op = op;
    disk->waiting[disk->num_waiting].fault = fault;
    disk->waiting[disk->num_waiting].delay =
        fault == DISK_DELAYED ? (uint32_t)disk_random(disk, 200) : 0;
    disk->num_waiting++;
}

static uint32_t disk_wait(qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                          uint32_t capacity)
{
    file_disk *disk = (file_disk *)(void *)io;
    uint32_t n = 0;
    (void)wake_fd;
    (void)timeout_ms;
    for (uint32_t tries = disk->num_waiting; tries > 0 && n < capacity; tries--) {
        uint32_t i = (uint32_t)disk_random(disk, disk->num_waiting);
        disk_fault fault = disk->waiting[i].fault;
        if (fault == DISK_NEVER && !disk->is_let_go)
            continue;
        if (disk->waiting[i].delay > 0) {
            disk->waiting[i].delay--;
            continue;
        }
        qr_file_op *op = disk->waiting[i].op;
        op->result = do_op(disk, op, fault);
        io->num_in_flight--;
        disk->waiting[i] = disk->waiting[--disk->num_waiting];
        ended[n++] = op;
    }
    return n;
}

/* The disk outlives its tiers. */
static bool disk_close(qr_file_io *io, int timeout_ms)
{
    (void)timeout_ms;
    return io->num_in_flight == 0;
}

static int disk_empty(void *user)
{
    file_disk *disk = user;
    memset(disk->image, 0, disk->capacity);
    disk->disk.bytes = 0;
    return QUIRE_OK;
}

static int disk_reserve(void *user, uint64_t bytes)
{
    file_disk *disk = user;
    if (bytes > disk->capacity)
        return QUIRE_E_SYSTEM;
    if (bytes > disk->disk.bytes)
        disk->disk.bytes = bytes;
    return QUIRE_OK;
}

void disk_init(file_disk *disk, uint64_t capacity, uint64_t seed)
{
    *disk = (file_disk){
        .io = {.name = "test", .submit = disk_submit, .wait = disk_wait, .close = disk_close},
        .capacity = capacity,
        .random = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252,
        .image = calloc(1, capacity)};
    disk->disk = (qr_file_disk){.user = disk, .empty = disk_empty, .reserve = disk_reserve};
}

void disk_free(file_disk *disk)
{
    for (uint64_t i = 0; i < disk->num_records; i++)
        free(disk->records[i].data);
    free(disk->records);
    free(disk->image);
}

void disk_record_all(file_disk *disk)
{
    disk->is_recording = true;
}

int disk_open(file_disk *disk, const quire_tier_file_config *config,
              const quire_tier_config *common, quire_tier **tier)
{
    quire_tier_config with = *common;
    qr_file_private *file = calloc(1, sizeof *file);
    if (file == NULL || qr_file_private_init(file, config, 0, &common->hooks) != QUIRE_OK) {
        free(file);
        return QUIRE_E_NOMEM;
    }
    file->io = &disk->io;
    file->given_disk = &disk->disk;
    file->open_ms = 5000;
    file->close_ms = 5000;
    with.ops = &qr_file_private_ops;
    with.self = file;
    with.run_inline = QUIRE_ON;
    return quire_tier_open(&with, NULL, tier);
}

/* ---- power loss --------------------------------------------------------- */

static void apply(file_disk *after, const disk_record *record, uint32_t from, uint32_t bytes)
{
    memcpy(after->image + record->offset + from, record->data + from, bytes);
    if (record->offset + from + bytes > after->disk.bytes)
        after->disk.bytes = record->offset + from + bytes;
}

/* A write that no sync covered: all of it, nothing, its beginning, or some of its sectors. */
static void apply_some(file_disk *after, const disk_record *record)
{
    uint32_t sectors = record->bytes / 512;
    switch (disk_random(after, 4)) {
    case 0:
        break;
    case 1:
        apply(after, record, 0, 512 * (uint32_t)disk_random(after, sectors + 1));
        break;
    case 2:
        for (uint32_t i = 0; i < sectors; i++)
            if (disk_random(after, 2) == 0)
                apply(after, record, i * 512, 512);
        break;
    default:
        apply(after, record, 0, record->bytes);
        break;
    }
}

/* The write that was under way. */
static void lose_next(file_disk *disk, uint64_t num_records, file_disk *after)
{
    if (num_records < disk->num_records)
        apply_some(after, &disk->records[num_records]);
}

void disk_lose_power(file_disk *disk, uint64_t num_records, file_disk *after)
{
    static uint32_t order[1 << 16];
    uint32_t n = 0;
    memset(after->image, 0, after->capacity);
    after->disk.bytes = num_records == 0 ? 0 : disk->disk.bytes; /* reserved after the first */
    for (uint64_t i = 0; i < num_records; i++) {
        if (disk->records[i].is_synced)
            apply(after, &disk->records[i], 0, disk->records[i].bytes);
        else if (n < 1 << 16)
            order[n++] = (uint32_t)i;
    }
    /* The system has written most of the old ones by now, in order; of the last some, in any. */
    uint32_t num_lately = 1 + (uint32_t)disk_random(after, 200);
    uint32_t first = n > num_lately ? n - num_lately : 0;
    for (uint32_t i = 0; i < first; i++)
        if (disk_random(after, 200) == 0)
            apply_some(after, &disk->records[order[i]]);
        else
            apply(after, &disk->records[order[i]], 0, disk->records[order[i]].bytes);
    for (; n > first; n--) {
        uint32_t i = first + (uint32_t)disk_random(after, n - first);
        apply_some(after, &disk->records[order[i]]);
        order[i] = order[n - 1];
    }
    if (num_records > 0)
        lose_next(disk, num_records, after);
}
