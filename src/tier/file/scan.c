#include "tier/file/scan.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "tier/core/key.h"

int qr_file_scan_open(qr_file_scan *scan, const qr_file_slab *slab)
{
    uint32_t num_slots = slab->layout.num_slots;
    scan->table_size = 2 * (uint32_t)qr_round_up_pow2((uint64_t)num_slots + 1);
    scan->table = qr_alloc(scan->table_size, sizeof(uint32_t));
    scan->found = qr_alloc(num_slots, sizeof(qr_file_entry));
    if (scan->table == NULL || scan->found == NULL)
        return QUIRE_E_NOMEM;
    if (qr_random_bytes(slab->hooks, &scan->seed, sizeof scan->seed) != 0)
        return QUIRE_E_RANDOM;
    for (uint32_t i = 0; i < QR_FILE_SCAN_OPS; i++)
        scan->ops[i] = (qr_file_op){.kind = QR_FILE_READ,
                                    .bytes = QR_FILE_PAGE,
                                    .memory = scan->pages + (size_t)i * QR_FILE_PAGE,
                                    .tag = QR_FILE_TAG_SCAN + i};
    return QUIRE_OK;
}

void qr_file_scan_close(qr_file_scan *scan)
{
    qr_free(scan->table);
    qr_free(scan->found);
    scan->table = NULL;
    scan->found = NULL;
}

bool qr_file_scan_is_over(const qr_file_scan *scan, const qr_file_slab *slab)
{
    return scan->found == NULL || scan->is_stopped || scan->next >= slab->layout.num_slots;
}

void qr_file_scan_turn(qr_file_scan *scan, qr_file_slab *slab)
{
    if (qr_file_scan_is_over(scan, slab) || scan->num_left > 0)
        return;
    for (uint32_t i = 0; i < QR_FILE_SCAN_OPS && scan->next + i < slab->layout.num_slots; i++) {
        scan->ops[i].offset = qr_file_slot_at(&slab->layout, scan->next + i);
        slab->io->submit(slab->io, &scan->ops[i]);
        scan->num_left++;
    }
}

static void tell_progress(qr_file_scan *scan, const qr_file_slab *slab)
{
    uint32_t quarters = (uint32_t)((uint64_t)scan->next * 4 / slab->layout.num_slots);
    if (quarters == scan->num_told)
        return;
    scan->num_told = quarters;
    qr_log(slab->hooks, QUIRE_LOG_INFO, "file tier: %s: %u of %u slots read, %u blocks found",
           slab->path, scan->next, slab->layout.num_slots, scan->num_blocks);
}

/* What was published of an older one stays published: the scheduler's thread takes the newer. */
static void take_head(qr_file_scan *scan, qr_file_slab *slab, uint32_t slot,
                      const qr_file_entry *entry)
{
    uint32_t at = (uint32_t)qr_key_place(&entry->key, scan->seed) & (scan->table_size - 1);
    while (scan->table[at] != 0 &&
           !qr_key_is_equal(&scan->found[scan->table[at] - 1].key, &entry->key))
        at = (at + 1) & (scan->table_size - 1);
    if (scan->table[at] != 0) {
        uint32_t before = scan->table[at] - 1;
        if (scan->found[before].seq >= entry->seq)
            return;
        slab->entries[before] = (qr_file_entry){0};
        scan->num_blocks--;
    }
    scan->table[at] = slot + 1;
    scan->found[slot] = *entry;
    slab->entries[slot] = *entry;
    slab->num_changes++;
    scan->num_blocks++;
}

void qr_file_scan_ended(qr_file_scan *scan, qr_file_slab *slab, qr_file_op *op)
{
    uint32_t i = op->tag - QR_FILE_TAG_SCAN;
    uint32_t slot = scan->next + i;
    qr_file_entry entry;
    if (scan->is_stopped) {
        scan->num_left--;
        return;
    }
    if (op->result == QR_FILE_PAGE && qr_file_slab_judge(slab, op->memory, slot, NULL, &entry))
        take_head(scan, slab, slot, &entry);
    if (--scan->num_left > 0)
        return;
    uint32_t left = slab->layout.num_slots - scan->next;
    scan->next += left < QR_FILE_SCAN_OPS ? left : QR_FILE_SCAN_OPS;
    atomic_store_explicit(&scan->num_found, scan->next, memory_order_release);
    tell_progress(scan, slab);
}
