/* quire/tier_file.h - blocks in a file, or in a directory that several engines share.
 *
 *      private   one file, reserved as a whole at creation:
 *                | super A | super B | index A | index B | head, block | head, block | ...
 *      shared    one file for each block, for all engines that use the directory:
 *                DIRECTORY/<fingerprint>/<hh>/<hash>-<group>-<rank>
 *
 * private   belongs to one process at a time (a second process gets an error that names the first).
 *           A full file evicts by its policy. Stored blocks are found again after a restart; after
 *           a crash, the blocks stored before the last checkpoint are found. Every byte is checked
 *           when it is loaded.
 * shared    any number of processes. A block that one process has stored is stored for all. The
 *           oldest files are deleted when the files exceed capacity_bytes.
 *
 * docs/tiers-file.md has the file format, recovery, sizes and all messages. With liburing the
 * private file is read and written through io_uring if the system allows it, and bypasses the page
 * cache if the file system allows it; otherwise threads do the I/O. The log says which.
 *
 * Statuses of jobs (quire/tier.h): a STORE of a key that is already stored is DONE and writes
 * nothing. A STORE of a key that is being stored is REFUSED. NO_ROOM also if all slots are in use,
 * and while a damaged index is rebuilt. A removed key may be found again after a crash: the loaded
 * bytes are still the stored bytes. After a reset, or with another identity
 * (quire_tier_set_identity), no older block is found, also after a crash. A shared directory cannot
 * be reset: QUIRE_E_IDENTITY.
 */
#ifndef QUIRE_TIER_FILE_H
#define QUIRE_TIER_FILE_H

#include "slots.h"
#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to do with a file of another fingerprint, block size or capacity, or with a corrupt file. A
 * file that does not belong to Quire, or belongs to a newer Quire, is never touched. */
typedef enum quire_tier_file_other {
    QUIRE_TIER_FILE_REFUSE = 0, /* fail with an error that says what differs */
    QUIRE_TIER_FILE_ANEW = 1    /* recreate: empty the file and use it */
} quire_tier_file_other;

typedef struct quire_tier_file_config {
    size_t size;
    /* Private: a file, which is created; shared: a directory, which must exist. */
    const char *path;
    uint32_t is_shared;      /* 1: shared */
    uint32_t block_bytes;    /* the most bytes of one key */
    uint64_t capacity_bytes; /* of the whole file, or of all files of this fingerprint */
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_file_other if_other;
    quire_slots_policy policy; /* private: the eviction policy */
    /* Bypass the page cache. DEFAULT: private and if possible; ON: or fail. */
    quire_switch direct;
    /* Private: use io_uring. DEFAULT: if possible; ON: or fail; OFF: threads. */
    quire_switch uring;
    uint32_t threads;       /* number of threads, if threads do the I/O; 0 = 8 */
    uint32_t depth;         /* blocks read or written at a time; 0 = 32 */
    uint32_t checkpoint_ms; /* private: time between checkpoints of the index; 0 = 30000 */
    uint32_t leftover_s;    /* shared: age at which an unfinished file is deleted; 0 = 3600 */
} quire_tier_file_config;

#define QUIRE_TIER_FILE_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_file_config)

/* Opens the file or directory as a tier. common: as for quire_tier_open, with ops and self NULL;
 * NULL: all defaults. If it fails, quire_refusal says why and what to do. QUIRE_E_CONFIG: a
 * field is invalid. QUIRE_E_SYSTEM: a system call failed. QUIRE_E_CORRUPT: the file is corrupt or
 * does not belong to this tier. QUIRE_BUSY: another process uses the file. */
QUIRE_API int quire_tier_file_open(const quire_tier_file_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier);

#ifdef __cplusplus
}
#endif
#endif
