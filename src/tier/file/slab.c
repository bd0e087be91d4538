#include "tier/file/slab.h"

#include "base/hooks.h"
#include "base/refuse.h"
#include "tier/core/key.h"

#include <errno.h>
#include <string.h>

#define SEQ_SHIFT 40 /* a file may be opened 16 million times, and store 10^12 blocks each time */

/* ---- one op at a time --------------------------------------------------- */

/* Nothing else is in flight. The op's result; -ETIMEDOUT: it still is, and the io can only be
 * closed. */
static int64_t run_op(qr_file_slab *slab, int timeout_ms)
{
    uint64_t until_ns = qr_now_ns(NULL) + (uint64_t)timeout_ms * 1000000;
    qr_file_op *ended = NULL;
    slab->io->submit(slab->io, &slab->op);
    while (slab->io->wait(slab->io, -1, timeout_ms, &ended, 1) == 0) {
        uint64_t now_ns = qr_now_ns(NULL);
        if (now_ns >= until_ns)
            return -ETIMEDOUT;
        timeout_ms = (int)((until_ns - now_ns) / 1000000) + 1;
    }
    return ended == &slab->op ? slab->op.result : -EIO;
}

/* Readies op: staging to or from the file. */
static void put_op(qr_file_slab *slab, qr_file_op_kind kind, uint64_t offset, uint32_t bytes)
{
    slab->op.kind = kind;
    slab->op.memory = slab->staging;
    slab->op.bytes = bytes;
    slab->op.offset = offset;
}

/* Up to the end of the file; the rest of memory is zeros. */
static int read_some(qr_file_slab *slab, uint64_t offset, uint32_t bytes, int timeout_ms)
{
    memset(slab->staging, 0, bytes);
    put_op(slab, QR_FILE_READ, offset, bytes);
    int64_t done = run_op(slab, timeout_ms);
    return done < 0 ? (int)-done : 0;
}

/* Readies op for the next super page. */
static void put_super(qr_file_slab *slab)
{
    slab->super.seq++;
    qr_file_super_write(slab->staging, &slab->super);
    put_op(slab, QR_FILE_SYNCED, slab->super.seq % 2 * QR_FILE_PAGE, QR_FILE_PAGE);
}

static int write_super(qr_file_slab *slab, int timeout_ms)
{
    put_super(slab);
    int64_t done = run_op(slab, timeout_ms);
    return done == QR_FILE_PAGE ? 0 : done < 0 ? (int)-done : EIO;
}

int qr_file_fail(const char *path, const char *what, int error)
{
    return qr_fail(QUIRE_E_SYSTEM, "%s: cannot %s: %s", path, what, strerror(error));
}

/* ---- whose file it is --------------------------------------------------- */

typedef enum file_kind {
    KIND_OURS = 0,
    KIND_NEW,     /* empty, or not finished */
    KIND_OTHER,   /* Quire's, but of other contents or sizes */
    KIND_DAMAGED, /* Quire's, beyond use */
    KIND_FOREIGN, /* not Quire's */
    KIND_NEWER    /* of a newer Quire */
} file_kind;

static file_kind judge_supers(const unsigned char *pages, uint64_t file_bytes, qr_file_super *super)
{
    qr_file_super read[2];
    qr_file_verdict verdicts[2];
    uint32_t seen[QR_FILE_NEWER + 1] = {0};
    for (int i = 0; i < 2; i++) {
        verdicts[i] = qr_file_super_read(pages + (size_t)i * QR_FILE_PAGE, &read[i]);
        seen[verdicts[i]]++;
    }
    if (seen[QR_FILE_NEWER] > 0)
        return KIND_NEWER;
    if (seen[QR_FILE_GOOD] > 0) {
        int newest = verdicts[0] != QR_FILE_GOOD ||
                     (verdicts[1] == QR_FILE_GOOD && read[1].seq > read[0].seq);
        *super = read[newest];
        return (super->flags & QR_FILE_MAKING) != 0 ? KIND_NEW : KIND_OURS;
    }
    bool is_small =
        file_bytes <= (uint64_t)2 * QR_FILE_PAGE; /* cut short before anything was reserved */
    if (seen[QR_FILE_DAMAGED] > 0)
        return is_small ? KIND_NEW : KIND_DAMAGED;
    return seen[QR_FILE_FOREIGN] > 0 || !is_small ? KIND_FOREIGN : KIND_NEW;
}

/* What differs, as a message; false: nothing does. */
static bool say_difference(const qr_file_slab *slab, const qr_file_super *super,
                           const qr_file_want *want)
{
    static const char REMEDY[] = "use another path, remove the file, or recreate it (if_other)";
    if (memcmp(super->owner.fingerprint, want->fingerprint, QUIRE_FINGERPRINT_BYTES) != 0)
        qr_say("%s holds blocks of another model or layout (its fingerprint differs); %s",
               slab->path, REMEDY);
    else if (super->block_bytes != want->layout.block_bytes)
        qr_say("%s has blocks of %u bytes, not of %u; %s", slab->path, super->block_bytes,
               want->layout.block_bytes, REMEDY);
    else if (super->num_slots != want->layout.num_slots)
        qr_say("%s has room for %llu blocks, not for %u; %s", slab->path,
               (unsigned long long)super->num_slots, want->layout.num_slots, REMEDY);
    else
        return false;
    return true;
}

/* QUIRE_OK: it may be used, or made. */
static int settle_kind(const qr_file_slab *slab, file_kind kind, const qr_file_want *want)
{
    switch (kind) {
    case KIND_FOREIGN:
        return qr_fail(QUIRE_E_CORRUPT,
                       "%s is not a file of this tier and is not touched; use another path",
                       slab->path);
    case KIND_NEWER:
        return qr_fail(QUIRE_E_CORRUPT,
                       "%s was made by a newer version; use that version, or another path",
                       slab->path);
    case KIND_DAMAGED:
        qr_say("%s is corrupt: neither of its first two pages can be read; remove the file, or "
               "recreate it (if_other)",
               slab->path);
        break;
    default:
        break;
    }
    bool is_refused =
        (kind == KIND_DAMAGED || kind == KIND_OTHER) && want->if_other == QUIRE_TIER_FILE_REFUSE;
    return is_refused ? QUIRE_E_CORRUPT : QUIRE_OK;
}

/* The first page says that the file is being made before anything else is there, so that one whose
 * making was cut short is known as ours. */
static int make_file(qr_file_slab *slab, const qr_file_want *want, qr_file_disk *disk)
{
    int status = disk->empty(disk->user);
    if (status != QUIRE_OK)
        return status;
    slab->super = (qr_file_super){.num_slots = want->layout.num_slots,
                                  .block_bytes = want->layout.block_bytes,
                                  .flags = QR_FILE_MAKING,
                                  .pid = want->pid};
    memcpy(slab->super.owner.fingerprint, want->fingerprint, QUIRE_FINGERPRINT_BYTES);
    if (qr_random_bytes(slab->hooks, slab->super.owner.uuid, QR_FILE_UUID) != 0)
        return QUIRE_E_RANDOM;
    int error = write_super(slab, want->timeout_ms);
    if (error != 0)
        return qr_file_fail(slab->path, "be written", error);
    return disk->reserve(disk->user, want->layout.file_bytes);
}

/* ---- its index ---------------------------------------------------------- */

/* The entries of one index, if they are what its page says. */
static bool read_entries(qr_file_slab *slab, uint64_t at, const qr_file_index *index,
                         int timeout_ms)
{
    unsigned char *entries = (unsigned char *)slab->entries;
    uint64_t bytes = (uint64_t)slab->layout.num_slots * QR_FILE_ENTRY;
    uint32_t crc = 0;
    for (uint64_t done = 0; done < bytes; done += QR_FILE_STAGING) {
        uint64_t left = bytes - done;
        uint32_t now = left < QR_FILE_STAGING ? (uint32_t)left : QR_FILE_STAGING;
        uint32_t pages = (now + QR_FILE_PAGE - 1) / QR_FILE_PAGE * QR_FILE_PAGE;
        if (read_some(slab, at + QR_FILE_PAGE + done, pages, timeout_ms) != 0)
            return false;
        crc = quire_crc32c(crc, slab->staging, now);
        memcpy(entries + done, slab->staging, now);
    }
    return crc == index->crc;
}

static void read_index(qr_file_slab *slab, int timeout_ms)
{
    qr_file_index index[2];
    bool is_good[2];
    for (int i = 0; i < 2; i++) {
        int error = read_some(slab, slab->layout.index_at[i], QR_FILE_PAGE, timeout_ms);
        is_good[i] = error == 0 && qr_file_index_read(slab->staging, &index[i]) == QR_FILE_GOOD &&
                     qr_file_owner_is(&index[i].owner, &slab->super.owner) &&
                     index[i].num_entries == slab->layout.num_slots;
        if (is_good[i] && index[i].seq > slab->index_seq)
            slab->index_seq = index[i].seq; /* a newer one must be newer than both */
    }
    int first = !is_good[0] || (is_good[1] && index[1].seq > index[0].seq);
    for (int k = 0; k < 2; k++) {
        int i = k == 0 ? first : !first;
        if (!is_good[i] || !read_entries(slab, slab->layout.index_at[i], &index[i], timeout_ms))
            continue;
        if (slab->index_seq % 2 != (uint64_t)i) /* the next one goes to the other place */
            slab->index_seq++;
        return;
    }
    memset(slab->entries, 0, (size_t)slab->layout.num_slots * QR_FILE_ENTRY);
    slab->must_scan = true;
}

static uint32_t keep_sane(qr_file_slab *slab)
{
    uint32_t num_kept = 0;
    for (uint32_t i = 0; i < slab->layout.num_slots; i++) {
        qr_file_entry *entry = &slab->entries[i];
        if (qr_file_entry_is_sane(entry, &slab->layout))
            num_kept++;
        else
            *entry = (qr_file_entry){0};
    }
    return num_kept;
}

static int use_file(qr_file_slab *slab, const qr_file_want *want, qr_file_disk *disk)
{
    if (disk->bytes < slab->layout.file_bytes) {
        qr_log(slab->hooks, QUIRE_LOG_WARNING,
               "file tier: %s is truncated (%llu of %llu bytes); the missing blocks are lost",
               slab->path, (unsigned long long)disk->bytes,
               (unsigned long long)slab->layout.file_bytes);
        int status = disk->reserve(disk->user, slab->layout.file_bytes);
        if (status != QUIRE_OK)
            return status;
    }
    read_index(slab, want->timeout_ms);
    uint32_t num_kept = keep_sane(slab);
    if (slab->must_scan)
        qr_log(slab->hooks, QUIRE_LOG_WARNING,
               "file tier: %s has no valid index; its %u slots are being read", slab->path,
               slab->layout.num_slots);
    else
        qr_log(slab->hooks, QUIRE_LOG_INFO, "file tier: %s holds %u of %u blocks", slab->path,
               num_kept, slab->layout.num_slots);
    return QUIRE_OK;
}

/* ---- opening ------------------------------------------------------------ */

int qr_file_slab_open(qr_file_slab *slab, const qr_file_want *want, qr_file_disk *disk)
{
    slab->layout = want->layout;
    slab->op.tag = QR_FILE_TAG_SLAB;
    int error = read_some(slab, 0, 2 * QR_FILE_PAGE, want->timeout_ms);
    if (error != 0)
        return qr_file_fail(slab->path, "be read", error);
    file_kind kind = judge_supers(slab->staging, disk->bytes, &slab->super);
    if (kind == KIND_OURS && say_difference(slab, &slab->super, want))
        kind = KIND_OTHER;
    int status = settle_kind(slab, kind, want);
    if (status != QUIRE_OK)
        return status;
    if (kind == KIND_OURS) {
        status = use_file(slab, want, disk);
    } else {
        if (kind != KIND_NEW)
            qr_log(slab->hooks, QUIRE_LOG_WARNING, "file tier: %s is recreated", slab->path);
        status = make_file(slab, want, disk);
    }
    if (status != QUIRE_OK)
        return status;
    slab->super.flags = 0;
    slab->super.opens++;
    slab->super.pid = want->pid;
    for (int i = 0; i < 2 && error == 0; i++) /* both, so that one is enough */
        error = write_super(slab, want->timeout_ms);
    if (error != 0)
        return qr_file_fail(slab->path, "be written", error);
    slab->next_seq = slab->super.opens << SEQ_SHIFT;
    return QUIRE_OK;
}

bool qr_file_slab_judge(const qr_file_slab *slab, const void *page, uint32_t slot,
                        const quire_tier_key *key, qr_file_entry *entry)
{
    qr_file_head head;
    if (qr_file_head_read(page, &head) != QR_FILE_GOOD || head.slot != slot ||
        !qr_file_owner_is(&head.owner, &slab->super.owner) ||
        !qr_file_entry_is_sane(&head.entry, &slab->layout))
        return false;
    *entry = head.entry;
    return key == NULL || qr_key_is_equal(key, &head.entry.key);
}

/* ---- the index, brought up to date -------------------------------------- */

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
    put_op(slab, QR_FILE_SYNCED, index_place(slab) + QR_FILE_PAGE + checkpoint->at, pages);
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
    put_op(slab, QR_FILE_SYNCED, index_place(slab), QR_FILE_PAGE);
}

static void submit_stage(qr_file_checkpoint *checkpoint, qr_file_slab *slab, qr_file_stage stage)
{
    checkpoint->stage = stage;
    switch (stage) {
    case QR_FILE_SUPER:
        checkpoint->epoch = slab->super.owner.epoch;
        put_super(slab);
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
    checkpoint->has_failed = false;
    checkpoint->stage = QR_FILE_IDLE;
}
