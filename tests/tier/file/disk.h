/* tier/file/disk.h - a disk in memory that does what disks do, on demand.
 *
 *      the private tier ──► qr_file_io ──► image[bytes]         one seed, one run: nothing is timed
 *                              │   └ ends in any order, later, or never until it is let go
 *                              └ a fault for one op in so many
 *
 * It keeps a record of all writes, from which the image after a power loss can be made:
 * what was synced is there; what was not may be, in part too, and in any order.
 */
#ifndef FILE_DISK_H
#define FILE_DISK_H

#include "tier/file/private.h"

/* X(name) */
#define DISK_FAULT_MAP(X)                                                                          \
    X(NONE)                                                                                        \
    X(EIO) /* an error, nothing done */                                                            \
    X(ENOSPC)                                                                                      \
    X(EDQUOT)                                                                                      \
    X(EROFS)                                                                                       \
    X(EAGAIN)                                                                                      \
    X(EINTR)                                                                                       \
    X(SHORT_ONE) /* fewer bytes: 1, half, 0 */                                                     \
    X(SHORT_HALF)                                                                                  \
    X(SHORT_ZERO)                                                                                  \
    X(TORN_512) /* says all is well; only the first bytes are */                                   \
    X(TORN_4096)                                                                                   \
    X(FLIP)        /* one bit */                                                                   \
    X(MISDIRECTED) /* at another place, a page or more away */                                     \
    X(STALE)       /* a write that is lost, a read of what was there before */                     \
    X(DELAYED)                                                                                     \
    X(NEVER)

typedef enum disk_fault {
#define DISK_X(name) DISK_##name,
    DISK_FAULT_MAP(DISK_X)
#undef DISK_X
        DISK_FAULTS
} disk_fault;

extern const char *const DISK_FAULT_NAMES[DISK_FAULTS];

enum { DISK_OPS = 512 };

typedef struct disk_record {
    uint64_t offset;
    uint32_t bytes;
    bool is_synced;
    unsigned char *data;
} disk_record;

typedef struct file_disk {
    qr_file_io io;
    qr_file_disk disk;
    unsigned char *image;
    uint64_t capacity;
    uint64_t random;
    disk_fault fault;
    uint32_t one_in; /* ops with the fault; 0: none */
    uint32_t reads;  /* 1: only reads have it; 2: only writes */
    uint64_t num_faults;
    bool is_let_go; /* what never ends does now */
    uint32_t num_waiting;
    struct {
        qr_file_op *op;
        disk_fault fault;
        uint32_t delay;
    } waiting[DISK_OPS];
    bool is_recording;
    disk_record *records;
    uint64_t num_records;
    uint64_t max_records;
} file_disk;

/* An empty one. */
void disk_init(file_disk *disk, uint64_t capacity, uint64_t seed);
void disk_free(file_disk *disk);
void disk_record_all(file_disk *disk);
uint64_t disk_random(file_disk *disk, uint64_t below);

/* The image after a power loss when num_records were done, into another disk. */
void disk_lose_power(file_disk *disk, uint64_t num_records, file_disk *after);

/* A private tier on it, without a thread; the disk itself stays when the tier is closed. */
int disk_open(file_disk *disk, const quire_tier_file_config *config,
              const quire_tier_config *common, quire_tier **tier);

#endif
