/* quire/tier_file.h - blocks in a file, or in a directory that several engines share.
 *
 *      private   one file, reserved as a whole when it is made:
 *                | super A | super B | index A | index B | head, block | head, block | ...
 *      shared    a file for each block, found by all who use the directory:
 *                DIRECTORY/<fingerprint>/<hh>/<hash>-<group>-<rank>
 *
 * private   belongs to one process at a time (a second one is told who has it). Full, it evicts by
 *           its policy. What was stored is found again after a restart, and after a crash what was
 *           stored before the last checkpoint; every byte is checked when it comes back.
 * shared    any number of processes; the one that stores a block first has stored it for all. The
 *           oldest files go when there are more bytes than capacity_bytes.
 *
 * The file's form, recovery, sizes and all messages: docs/tiers-file.md. With liburing the private
 * file is read and written through io_uring, where the system allows it, past the page cache where
 * the file system can; else by threads. The log says which.
 *
 * Statuses of jobs (quire/tier.h), beyond the plain ones: a STORE of a key that is there already is
 * DONE without being written; one of a key that is being stored is REFUSED; NO_ROOM also when all
 * slots are in use, and while a damaged index is read again. A key that was removed may be found
 * again after a crash: what is then loaded is still what was stored. After a reset, or with another
 * identity (quire_tier_set_identity), nothing from before is found, also after a crash. A shared
 * directory cannot be reset: QUIRE_E_IDENTITY.
 */
#ifndef QUIRE_TIER_FILE_H
#define QUIRE_TIER_FILE_H

#include "slots.h"
#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to do with a file of another fingerprint, block size or capacity, or one that is damaged
 * beyond use. A file that is none of Quire's, or of a newer Quire, is never touched. */
typedef enum quire_tier_file_other {
    QUIRE_TIER_FILE_REFUSE = 0, /* an error that says what differs */
    QUIRE_TIER_FILE_ANEW = 1    /* it is emptied and used */
} quire_tier_file_other;

typedef struct quire_tier_file_config {
    size_t size;
    const char *path;        /* the file, which is made; shared: a directory, which must be there */
    uint32_t is_shared;      /* 1: shared */
    uint32_t block_bytes;    /* the most that one key has */
    uint64_t capacity_bytes; /* of the whole file, or of all files of this fingerprint */
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_file_other if_other;
    quire_slots_policy policy; /* private: who is evicted */
    quire_switch direct;    /* past the page cache. DEFAULT: private, where possible; ON: or fail */
    quire_switch uring;     /* private. DEFAULT: where possible; ON: or fail; OFF: threads */
    uint32_t threads;       /* where threads are used; 0 = 8 */
    uint32_t depth;         /* blocks that are read or written at one time; 0 = 32 */
    uint32_t checkpoint_ms; /* private: between checkpoints of the index; 0 = 30000 */
    uint32_t leftover_s;    /* shared: age at which an unfinished file is left over; 0 = 3600 */
} quire_tier_file_config;

#define QUIRE_TIER_FILE_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_file_config)

/* Opens the file or directory as a tier. common: as for quire_tier_open, with ops and self NULL;
 * NULL: all defaults. message, where given, says what is wrong and what to do. QUIRE_E_SYSTEM:
 * the system refused; QUIRE_E_CORRUPT: the file is not this tier's; QUIRE_BUSY: another has it. */
QUIRE_API int quire_tier_file_open(const quire_tier_file_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier,
                                   char *message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
