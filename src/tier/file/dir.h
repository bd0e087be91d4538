/* tier/file/dir.h - a directory that several processes share: a file for each block.
 *
 *      DIRECTORY/<fingerprint>/<hh>/<hash>-<group>-<rank>      head page, block
 *                              └ 256 leaves, by the hash's first byte
 *
 * A file appears whole or not at all: it is written without a name (O_TMPFILE) and linked; where
 * the file system has no such files, under a name that begins with .tmp-, and renamed. Nobody
 * locks anything: two who store the same block store the same, and one who finds a file gone has a
 * miss.
 *
 * Loading a block sets its time of change, by which a sweep finds the oldest files.
 *
 * Threads: any, but for a sweep. */
#ifndef QR_TIER_FILE_DIR_H
#define QR_TIER_FILE_DIR_H

#include "base/hooks.h"
#include "tier/file/format.h"

#include <stdatomic.h>

enum { QR_FILE_LEAVES = 256, QR_FILE_NAME = 96 };

typedef struct qr_file_aged {
    int64_t time_ns;
    uint64_t bytes;
    uint32_t leaf;
    char name[QR_FILE_NAME];
} qr_file_aged;

/* Keys of files that a sweep has removed, from its thread to the scheduler's. When there is no room
 * a key is left out: it is then known until a load misses it.
 *
 *      0 <= put - taken <= capacity;  capacity is a power of two */
typedef struct qr_file_swept {
    quire_tier_key *keys;
    uint32_t capacity;
    _Atomic uint32_t put;
    _Atomic uint32_t taken;
} qr_file_swept;

typedef struct qr_file_dir {
    int fd; /* of <fingerprint>; -1 */
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    unsigned char token[8]; /* in names of this process's unfinished files */
    _Atomic uint64_t num_made;
    _Atomic uint32_t has_tmpfile; /* 1, until it turns out not to */
    uint64_t capacity_bytes;
    uint32_t block_bytes;
    uint32_t leaves_per_group;
    uint32_t files_per_group; /* that the capacity allows */
    int64_t leftover_ns;
    qr_file_aged *aged; /* for sweep: the oldest files of a group, */
    uint32_t max_aged;  /* at most so many */
    qr_file_swept swept;
    const quire_hooks *hooks;
} qr_file_dir;

/* dir: fingerprint, hooks, capacity_bytes, block_bytes and leftover_ns are set. QUIRE_E_SYSTEM
 * with a message, QUIRE_E_NOMEM, QUIRE_E_RANDOM. */
int qr_file_dir_open(qr_file_dir *dir, const char *path);
void qr_file_dir_close(qr_file_dir *dir);
/* The folder of a fingerprint in a directory, which is made if it is not there; -1 with a message:
 * the system refused. */
int qr_file_dir_open_folder(const char *path, const unsigned char *fingerprint);

/* The key of a file of this name; false: it is no block's. */
bool qr_file_dir_read_name(const char *name, quire_tier_key *key);
bool qr_file_swept_take(qr_file_swept *swept, quire_tier_key *key);

/* LOAD sets crc, FIND sets bytes. */
quire_tier_status qr_file_dir_do(qr_file_dir *dir, quire_tier_op op, quire_tier_io *io);

uint32_t qr_file_dir_groups(const qr_file_dir *dir);
uint32_t qr_file_dir_group_of(const qr_file_dir *dir, const quire_tier_key *key);

/* Brings a group below its part of the capacity; returns the number of files that are left. Stops
 * early if no file can be removed. One thread at a time. */
uint32_t qr_file_dir_sweep(qr_file_dir *dir, uint32_t group);

#endif
