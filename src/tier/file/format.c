#include "tier/file/format.h"

#include "base/bits.h"

#include <quire/slots.h>

#include <string.h>

/* Bytes of a page, by offset; docs/tiers-file.md has the same table. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_IMAGE = 16, /* owner, and from 72 on what kinds of pages differ in */
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
    uint64_t index_bytes = QR_FILE_PAGE + to_pages(num_slots * QR_FILE_ENTRY);
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

static void write_page(void *page, const char *magic, uint32_t flags, const void *image,
                       size_t image_bytes)
{
    unsigned char *bytes = page;
    memset(bytes, 0, QR_FILE_PAGE);
    memcpy(bytes + AT_MAGIC, magic, 8);
    qr_store_u32(bytes + AT_VERSION, QR_FILE_VERSION);
    qr_store_u32(bytes + AT_FLAGS, flags);
    memcpy(bytes + AT_IMAGE, image, image_bytes);
    qr_store_u32(bytes + AT_CRC, quire_crc32c(0, bytes, AT_CRC));
}

static bool is_zero(const unsigned char *bytes, size_t num_bytes)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, num_bytes - 1) == 0;
}

/* A newer page keeps magic, version and CRC where they are: only then can it be told from damage.
 * */
static qr_file_verdict read_page(const void *page, const char *magic, void *image,
                                 size_t image_bytes)
{
    const unsigned char *bytes = page;
    uint32_t version = qr_load_u32(bytes + AT_VERSION);
    memset(image, 0, image_bytes);
    if (memcmp(bytes + AT_MAGIC, magic, 8) != 0)
        return is_zero(bytes, AT_CRC) ? QR_FILE_BLANK : QR_FILE_FOREIGN; /* torn, at most */
    if (qr_load_u32(bytes + AT_CRC) != quire_crc32c(0, bytes, AT_CRC))
        return QR_FILE_DAMAGED;
    if (version != QR_FILE_VERSION)
        return version > QR_FILE_VERSION ? QR_FILE_NEWER : QR_FILE_DAMAGED;
    memcpy(image, bytes + AT_IMAGE, image_bytes);
    return QR_FILE_GOOD;
}

void qr_file_super_write(void *page, const qr_file_super *super)
{
    qr_file_super image = *super;
    image.flags = 0;
    write_page(page, SUPER_MAGIC, super->flags, &image, sizeof image);
}

qr_file_verdict qr_file_super_read(const void *page, qr_file_super *super)
{
    qr_file_layout layout;
    qr_file_verdict verdict = read_page(page, SUPER_MAGIC, super, sizeof *super);
    if (verdict != QR_FILE_GOOD)
        return verdict;
    super->flags = qr_load_u32((const unsigned char *)page + AT_FLAGS);
    bool is_sane = qr_file_layout_of(super->num_slots, super->block_bytes, &layout);
    return is_sane && (super->flags & ~(uint32_t)QR_FILE_MAKING) == 0 ? QR_FILE_GOOD
                                                                      : QR_FILE_DAMAGED;
}

void qr_file_head_write(void *page, const qr_file_head *head)
{
    write_page(page, HEAD_MAGIC, 0, head, sizeof *head);
}

qr_file_verdict qr_file_head_read(const void *page, qr_file_head *head)
{
    return read_page(page, HEAD_MAGIC, head, sizeof *head);
}

void qr_file_index_write(void *page, const qr_file_index *index)
{
    write_page(page, INDEX_MAGIC, 0, index, sizeof *index);
}

qr_file_verdict qr_file_index_read(const void *page, qr_file_index *index)
{
    return read_page(page, INDEX_MAGIC, index, sizeof *index);
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
