#include "tier/file/format.h"

#include "base/bits.h"

#include <quire/slots.h>

#include <string.h>

/* Bytes of a page, by offset; docs/tiers-file.md has the same table. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_UUID = 16,
    AT_FINGERPRINT = 32,
    AT_EPOCH = 64,
    AT_BODY = 72, /* what kinds of pages differ in */
    AT_CRC = QR_FILE_PAGE - 4
};

static const char SUPER_MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'S', 'L', 'B'};
static const char HEAD_MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'B', 'L', 'K'};
static const char INDEX_MAGIC[8] = {'Q', 'U', 'I', 'R', 'E', 'I', 'D', 'X'};

/* ---- where everything is ------------------------------------------------ */

static uint64_t to_pages(uint64_t bytes)
{
    return (bytes + QR_FILE_PAGE - 1) / QR_FILE_PAGE * QR_FILE_PAGE;
}

bool qr_file_layout_of(uint64_t num_slots, uint32_t block_bytes, qr_file_layout *layout)
{
    if (num_slots == 0 || num_slots > QUIRE_SLOTS_MAX || block_bytes == 0)
        return false;
    uint64_t slot_bytes = QR_FILE_PAGE + to_pages(block_bytes);
    uint64_t entry_bytes = to_pages(num_slots * QR_FILE_ENTRY);
    uint64_t index_bytes = QR_FILE_PAGE + entry_bytes;
    uint64_t all_slots;
    uint64_t file_bytes;
    if (__builtin_mul_overflow(num_slots, slot_bytes, &all_slots) ||
        __builtin_add_overflow(all_slots, (uint64_t)2 * QR_FILE_PAGE + 2 * index_bytes,
                               &file_bytes) ||
        file_bytes > INT64_MAX)
        return false;
    *layout = (qr_file_layout){
        .num_slots = (uint32_t)num_slots,
        .block_bytes = block_bytes,
        .slot_bytes = slot_bytes,
        .entry_bytes = entry_bytes,
        .index_at = {(uint64_t)2 * QR_FILE_PAGE, (uint64_t)2 * QR_FILE_PAGE + index_bytes},
        .slots_at = (uint64_t)2 * QR_FILE_PAGE + 2 * index_bytes,
        .file_bytes = file_bytes};
    return true;
}

bool qr_file_layout_plan(uint64_t capacity_bytes, uint32_t block_bytes, qr_file_layout *layout)
{
    uint64_t fixed =
        (uint64_t)6 * QR_FILE_PAGE; /* two supers, two index pages, what entries round up to */
    uint64_t slot_bytes = QR_FILE_PAGE + to_pages(block_bytes) + (uint64_t)2 * QR_FILE_ENTRY;
    if (capacity_bytes <= fixed)
        return false;
    return qr_file_layout_of((capacity_bytes - fixed) / slot_bytes, block_bytes, layout);
}

uint64_t qr_file_slot_at(const qr_file_layout *layout, uint32_t slot)
{
    return layout->slots_at + slot * layout->slot_bytes;
}

/* ---- pages -------------------------------------------------------------- */

typedef struct page_cursor {
    unsigned char *at;
} page_cursor;

static void put(page_cursor *cursor, const void *value, size_t bytes)
{
    memcpy(cursor->at, value, bytes);
    cursor->at += bytes;
}

static void get(page_cursor *cursor, void *value, size_t bytes)
{
    memcpy(value, cursor->at, bytes);
    cursor->at += bytes;
}

static page_cursor begin_page(void *page, const char *magic, const qr_file_owner *owner,
                              uint32_t flags)
{
    unsigned char *bytes = page;
    uint32_t version = QR_FILE_VERSION;
    memset(bytes, 0, QR_FILE_PAGE);
    memcpy(bytes + AT_MAGIC, magic, 8);
    memcpy(bytes + AT_VERSION, &version, 4);
    memcpy(bytes + AT_FLAGS, &flags, 4);
    memcpy(bytes + AT_UUID, owner->uuid, QR_FILE_UUID);
    memcpy(bytes + AT_FINGERPRINT, owner->fingerprint, QUIRE_FINGERPRINT_BYTES);
    memcpy(bytes + AT_EPOCH, &owner->epoch, 8);
    return (page_cursor){.at = bytes + AT_BODY};
}

static void end_page(void *page)
{
    uint32_t crc = quire_crc32c(0, page, AT_CRC);
    memcpy((unsigned char *)page + AT_CRC, &crc, 4);
}

static bool is_zero(const unsigned char *bytes, size_t num_bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, num_bytes - 1) == 0;
}

/* A newer page keeps magic, version and CRC where they are: only then can it be told from damage.
 * */
static qr_file_verdict open_page(const void *page, const char *magic, qr_file_owner *owner,
                                 uint32_t *flags, page_cursor *body)
{
    unsigned char *bytes = (unsigned char *)(uintptr_t)page;
    uint32_t version;
    uint32_t crc;
    memcpy(&crc, bytes + AT_CRC, 4);
    memcpy(&version, bytes + AT_VERSION, 4);
    if (memcmp(bytes + AT_MAGIC, magic, 8) != 0)
        return is_zero(bytes, AT_CRC) ? QR_FILE_BLANK : QR_FILE_FOREIGN; /* torn, at most */
    if (crc != quire_crc32c(0, bytes, AT_CRC))
        return QR_FILE_DAMAGED;
    if (version != QR_FILE_VERSION)
        return version > QR_FILE_VERSION ? QR_FILE_NEWER : QR_FILE_DAMAGED;
    memcpy(flags, bytes + AT_FLAGS, 4);
    memcpy(owner->uuid, bytes + AT_UUID, QR_FILE_UUID);
    memcpy(owner->fingerprint, bytes + AT_FINGERPRINT, QUIRE_FINGERPRINT_BYTES);
    memcpy(&owner->epoch, bytes + AT_EPOCH, 8);
    body->at = bytes + AT_BODY;
    return QR_FILE_GOOD;
}

void qr_file_super_write(void *page, const qr_file_super *super)
{
    page_cursor c = begin_page(page, SUPER_MAGIC, &super->owner, super->flags);
    put(&c, &super->num_slots, 8);
    put(&c, &super->block_bytes, 4);
    c.at += 4;
    put(&c, &super->opens, 8);
    put(&c, &super->seq, 8);
    put(&c, &super->pid, 8);
    end_page(page);
}

qr_file_verdict qr_file_super_read(const void *page, qr_file_super *super)
{
    page_cursor c;
    qr_file_layout layout;
    *super = (qr_file_super){0};
    qr_file_verdict verdict = open_page(page, SUPER_MAGIC, &super->owner, &super->flags, &c);
    if (verdict != QR_FILE_GOOD)
        return verdict;
    get(&c, &super->num_slots, 8);
    get(&c, &super->block_bytes, 4);
    c.at += 4;
    get(&c, &super->opens, 8);
    get(&c, &super->seq, 8);
    get(&c, &super->pid, 8);
    bool is_sane = qr_file_layout_of(super->num_slots, super->block_bytes, &layout);
    return is_sane && (super->flags & ~(uint32_t)QR_FILE_MAKING) == 0 ? QR_FILE_GOOD
                                                                      : QR_FILE_DAMAGED;
}

void qr_file_head_write(void *page, const qr_file_head *head)
{
    page_cursor c = begin_page(page, HEAD_MAGIC, &head->owner, 0);
    put(&c, &head->slot, 4);
    c.at += 4;
    put(&c, &head->entry, QR_FILE_ENTRY);
    end_page(page);
}

qr_file_verdict qr_file_head_read(const void *page, qr_file_head *head)
{
    page_cursor c;
    uint32_t flags;
    *head = (qr_file_head){0};
    qr_file_verdict verdict = open_page(page, HEAD_MAGIC, &head->owner, &flags, &c);
    if (verdict != QR_FILE_GOOD)
        return verdict;
    get(&c, &head->slot, 4);
    c.at += 4;
    get(&c, &head->entry, QR_FILE_ENTRY);
    return QR_FILE_GOOD;
}

void qr_file_index_write(void *page, const qr_file_index *index)
{
    page_cursor c = begin_page(page, INDEX_MAGIC, &index->owner, 0);
    put(&c, &index->seq, 8);
    put(&c, &index->num_entries, 8);
    put(&c, &index->crc, 4);
    end_page(page);
}

qr_file_verdict qr_file_index_read(const void *page, qr_file_index *index)
{
    page_cursor c;
    uint32_t flags;
    *index = (qr_file_index){0};
    qr_file_verdict verdict = open_page(page, INDEX_MAGIC, &index->owner, &flags, &c);
    if (verdict != QR_FILE_GOOD)
        return verdict;
    get(&c, &index->seq, 8);
    get(&c, &index->num_entries, 8);
    get(&c, &index->crc, 4);
    return QR_FILE_GOOD;
}

bool qr_file_owner_is(const qr_file_owner *a, const qr_file_owner *b)
{
    return memcmp(a->uuid, b->uuid, QR_FILE_UUID) == 0 &&
           memcmp(a->fingerprint, b->fingerprint, QUIRE_FINGERPRINT_BYTES) == 0 &&
           a->epoch == b->epoch;
}

bool qr_file_entry_is_sane(const qr_file_entry *entry, const qr_file_layout *layout)
{
    return entry->state == QR_FILE_STORED && entry->extra == 0 && entry->bytes > 0 &&
           entry->bytes <= layout->block_bytes;
}
