#include "tier/file/checkpoint.h"

#include "base/hooks.h"

#include <errno.h>
#include <string.h>

static uint64_t all_entry_bytes(const qr_file_slab *slab)
{
    return (uint64_t)slab->layout.num_slots * QR_FILE_ENTRY;
}

static uint64_t index_place(const qr_file_slab *slab)
{
    return slab->layout.index_at[(slab->index_seq + 1) % 2];
}

/* What is known of a slot in memory alone does not belong on the disk. */
static void stage_entries(qr_file_slab *slab, uint64_t at, uint32_t bytes)
{
    memcpy(slab->staging, (unsigned char *)slab->entries + at, bytes);
    for (uint32_t i = 0; i < bytes; i += QR_FILE_ENTRY) {
        uint32_t none = 0;
        memcpy(slab->staging + i + offsetof(qr_file_entry, extra), &none, sizeof none);
    }
}

static void write_piece(qr_file_checkpoint *checkpoint, qr_file_slab *slab)
{
    uint64_t left = all_entry_bytes(slab) - checkpoint->at;
    uint32_t bytes = left < QR_FILE_STAGING ? (uint32_t)left : QR_FILE_STAGING;
    uint32_t pages = (bytes + QR_FILE_PAGE - 1) / QR_FILE_PAGE * QR_FILE_PAGE;
    stage_entries(slab, checkpoint->at, bytes);
    memset(slab->staging + bytes, 0, pages - bytes);
    checkpoint->crc = quire_crc32c(checkpoint->crc, slab->staging, bytes);
    qr_file_slab_put_op(slab, QR_FILE_SYNCED, index_place(slab) + QR_FILE_PAGE + checkpoint->at,
                        pages);
    checkpoint->at += bytes;
}

static void write_page(qr_file_checkpoint *checkpoint, qr_file_slab *slab)
{
    qr_file_index index = {.owner = slab->super.owner,
                           .seq = slab->index_seq + 1,
                           .num_entries = slab->layout.num_slots,
                           .crc = checkpoint->crc};
    index.owner.epoch = checkpoint->epoch; /* of its entries, whatever was reset meanwhile */
    qr_file_index_write(slab->staging, &index);
    qr_file_slab_put_op(slab, QR_FILE_SYNCED, index_place(slab), QR_FILE_PAGE);
}

static void submit_stage(qr_file_checkpoint *checkpoint, qr_file_slab *slab, qr_file_stage stage)
{
    checkpoint->stage = stage;
    switch (stage) {
    case QR_FILE_SUPER:
        checkpoint->epoch = slab->super.owner.epoch;
        qr_file_slab_put_super(slab);
        break;
    case QR_FILE_ENTRIES:
        write_piece(checkpoint, slab);
        break;
    default:
        write_page(checkpoint, slab);
        break;
    }
    slab->io->submit(slab->io, &slab->op);
}

bool qr_file_checkpoint_is_needed(const qr_file_checkpoint *checkpoint, const qr_file_slab *slab)
{
    return slab->super.owner.epoch != checkpoint->epoch_saved ||
           slab->num_changes != checkpoint->num_saved;
}

void qr_file_checkpoint_turn(qr_file_checkpoint *checkpoint, qr_file_slab *slab, uint64_t now_ns)
{
    if (checkpoint->stage != QR_FILE_IDLE || now_ns < checkpoint->due_ns ||
        !qr_file_checkpoint_is_needed(checkpoint, slab))
        return;
    checkpoint->due_ns = now_ns + checkpoint->interval_ns;
    checkpoint->num_changes = slab->num_changes;
    checkpoint->at = 0;
    checkpoint->crc = 0;
    checkpoint->num_supers = 0;
    checkpoint->epoch = slab->super.owner.epoch;
    bool is_reset = slab->super.owner.epoch != checkpoint->epoch_saved;
    submit_stage(checkpoint, slab, is_reset ? QR_FILE_SUPER : QR_FILE_ENTRIES);
}

/* The index that counts still does; the next time is another try. */
static void give_up(qr_file_checkpoint *checkpoint, const qr_file_slab *slab)
{
    int64_t result = slab->op.result;
    if (!checkpoint->has_failed)
        qr_log(slab->hooks, QUIRE_LOG_WARNING,
               "file tier: cannot write the index of %s: %s; blocks stored from now on are lost at "
               "a restart",
               slab->path, result < 0 ? strerror((int)-result) : "short write");
    checkpoint->has_failed = true;
    checkpoint->num_failed++;
    checkpoint->stage = QR_FILE_IDLE;
}

/* Both supers say the same, so that one is enough. A reset meanwhile is for the next time. */
static qr_file_stage next_stage(qr_file_checkpoint *checkpoint, const qr_file_slab *slab)
{
    if (checkpoint->stage == QR_FILE_ENTRIES && checkpoint->at < all_entry_bytes(slab))
        return QR_FILE_ENTRIES;
    if (checkpoint->stage == QR_FILE_SUPER) {
        bool is_same = checkpoint->epoch == slab->super.owner.epoch;
        checkpoint->num_supers = is_same ? checkpoint->num_supers + 1 : 0;
        if (checkpoint->num_supers < 2)
            return QR_FILE_SUPER;
        checkpoint->epoch_saved = checkpoint->epoch;
    }
    return (qr_file_stage)(checkpoint->stage + 1);
}

void qr_file_checkpoint_ended(qr_file_checkpoint *checkpoint, qr_file_slab *slab)
{
    if (slab->op.result != (int64_t)slab->op.bytes) {
        give_up(checkpoint, slab);
        return;
    }
    if (checkpoint->stage != QR_FILE_INDEX) {
        submit_stage(checkpoint, slab, next_stage(checkpoint, slab));
        return;
    }
    slab->index_seq++;
    checkpoint->num_saved = checkpoint->num_changes;
    checkpoint->num_done++;
    checkpoint->has_failed = false;
    checkpoint->stage = QR_FILE_IDLE;
}
