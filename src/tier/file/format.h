/* tier/file/format.h - the file's form, version 1: pages of 4 KiB, and what they say.
 *
 *      0        4096     8192
 *      | super  | super  | index A: page, entries | index B: page, entries | slot | slot | ...
 *      | A      | B      |                                                   └ head page, block
 *
 * super     whose file it is, and how large its parts are
 * index     what lay in each slot at some time: an entry of 64 bytes for each
 * head      what lies in this slot; written when its block is
 *
 * A page ends with the CRC32C of all before it; the newest valid one of two counts. All integers
 * are little-endian. Everything here comes from a disk and is not to be believed: the readers take
 * any bytes, and nothing they accept leads outside the file. */
#ifndef QR_TIER_FILE_FORMAT_H
#define QR_TIER_FILE_FORMAT_H

#include <quire/tier.h>

#include <stdbool.h>

enum {
    QR_FILE_PAGE = 4096,
    QR_FILE_VERSION = 1,
    QR_FILE_UUID = 16,
    QR_FILE_ENTRY = 64,
    QR_FILE_MAKING = 1, /* flag of a super: the file was not finished */
    QR_FILE_STORED = 1  /* state of an entry */
};

typedef enum qr_file_verdict {
    QR_FILE_GOOD = 0,
    QR_FILE_BLANK = 1,   /* zeros */
    QR_FILE_DAMAGED = 2, /* Quire's, but its CRC is wrong or its numbers are impossible */
    QR_FILE_FOREIGN = 3, /* not Quire's */
    QR_FILE_NEWER = 4    /* of a version that is not known here */
} qr_file_verdict;

/* Where everything is. */
typedef struct qr_file_layout {
    uint32_t num_slots;
    uint32_t block_bytes;
    uint64_t slot_bytes; /* head and block, whole pages */
    uint64_t index_at[2];
    uint64_t slots_at;
    uint64_t file_bytes;
} qr_file_layout;

/* What a page says begins with its owner, and lies in the page as it does in memory. */
typedef struct qr_file_owner {
    unsigned char uuid[QR_FILE_UUID]; /* of the file: new when it is emptied */
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    uint64_t epoch; /* how often it was reset: what was stored before is gone */
} qr_file_owner;

typedef struct qr_file_super {
    qr_file_owner owner;
    uint64_t num_slots;
    uint32_t block_bytes;
    uint32_t flags; /* on disk: with the magic, and 0 here */
    uint64_t opens; /* how often it was opened; the high part of sequence numbers */
    uint64_t seq;   /* of this page */
    uint64_t pid;   /* who opened it last */
} qr_file_super;

/* What lies in a slot: in the tier's memory, and in an index as it is. */
typedef struct qr_file_entry {
    quire_tier_key key;
    uint64_t seq;
    uint32_t bytes;
    uint32_t crc;
    uint32_t state; /* 0, or QR_FILE_STORED */
    uint32_t extra; /* 0 on disk */
} qr_file_entry;
_Static_assert(sizeof(qr_file_entry) == QR_FILE_ENTRY, "an entry is its own image");

typedef struct qr_file_head {
    qr_file_owner owner;
    uint32_t slot;
    uint32_t unused; /* 0 */
    qr_file_entry entry;
} qr_file_head;

typedef struct qr_file_index {
    qr_file_owner owner;
    uint64_t seq;
    uint64_t num_entries;
    uint32_t crc;    /* of all entries */
    uint32_t unused; /* 0 */
} qr_file_index;
_Static_assert(sizeof(qr_file_owner) == 56 && sizeof(qr_file_super) == 96 &&
                   sizeof(qr_file_head) == 128 && sizeof(qr_file_index) == 80,
               "each is its own image: there is no padding");

/* The largest file of at most capacity bytes; false when not one block fits, or too many do. */
bool qr_file_layout_plan(uint64_t capacity_bytes, uint32_t block_bytes, qr_file_layout *layout);
/* Of that many slots; false when the numbers are impossible. */
bool qr_file_layout_of(uint64_t num_slots, uint32_t block_bytes, qr_file_layout *layout);
uint64_t qr_file_slot_at(const qr_file_layout *layout, uint32_t slot);

/* page: 4096 bytes. */
void qr_file_super_write(void *page, const qr_file_super *super);
qr_file_verdict qr_file_super_read(const void *page, qr_file_super *super);
void qr_file_head_write(void *page, const qr_file_head *head);
qr_file_verdict qr_file_head_read(const void *page, qr_file_head *head);
void qr_file_index_write(void *page, const qr_file_index *index);
qr_file_verdict qr_file_index_read(const void *page, qr_file_index *index);

bool qr_file_owner_is(const qr_file_owner *a, const qr_file_owner *b);
/* An entry that can be of a file with this layout. */
bool qr_file_entry_is_sane(const qr_file_entry *entry, const qr_file_layout *layout);

#endif
