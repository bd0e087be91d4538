/* tier/file/fuzz_file.c - bytes of a file against those who read them: its pages, and the tier as a
 * whole.
 *
 *      pages, and now and then a whole file of four slots ──► changed ──► page readers
 *                                        │                       └ the whole file: opened, read
 *                                        └ half the time with the CRCs of its pages set right
 *
 * Whatever the bytes, opening says yes or no, and nothing is read or written outside. Where no CRC
 * was forged, what is loaded was stored.
 *
 *      tier_fuzz_file [--runs N] [--seed N]
 */
#include "base/mutate.h"

#include "tier/file/crowd.h"

#include <string.h>

enum { SLOTS = 4, PAGE_SAMPLES = 60 };

static bool is_forged;
static uint64_t num_files;
static uint64_t num_opened;
static uint64_t num_loaded;

/* ---- pages -------------------------------------------------------------- */

static void check_super(const uint8_t *page)
{
    qr_file_super super;
    qr_file_super again;
    qr_file_layout layout;
    unsigned char copy[QR_FILE_PAGE];
    if (qr_file_super_read(page, &super) != QR_FILE_GOOD)
        return;
    MUTATE_EXPECT(qr_file_layout_of(super.num_slots, super.block_bytes, &layout));
    MUTATE_EXPECT(layout.index_at[0] < layout.index_at[1] && layout.index_at[1] < layout.slots_at);
    MUTATE_EXPECT(qr_file_slot_at(&layout, layout.num_slots - 1) + layout.slot_bytes ==
                  layout.file_bytes);
    MUTATE_EXPECT(layout.slot_bytes >= (uint64_t)QR_FILE_PAGE + layout.block_bytes);
    qr_file_super_write(copy, &super);
    MUTATE_EXPECT(qr_file_super_read(copy, &again) == QR_FILE_GOOD);
    MUTATE_EXPECT(memcmp(&super, &again, sizeof super) == 0);
}

static void check_head(const uint8_t *page, const qr_file_layout *layout)
{
    qr_file_head head;
    qr_file_head again;
    unsigned char copy[QR_FILE_PAGE];
    if (qr_file_head_read(page, &head) != QR_FILE_GOOD)
        return;
    if (qr_file_entry_is_sane(&head.entry, layout))
        MUTATE_EXPECT(head.entry.bytes > 0 && head.entry.bytes <= layout->block_bytes);
    qr_file_head_write(copy, &head);
    MUTATE_EXPECT(qr_file_head_read(copy, &again) == QR_FILE_GOOD);
    MUTATE_EXPECT(memcmp(&head.entry, &again.entry, sizeof head.entry) == 0);
}

static void check_index(const uint8_t *page)
{
    qr_file_index index;
    qr_file_index again;
    unsigned char copy[QR_FILE_PAGE];
    if (qr_file_index_read(page, &index) != QR_FILE_GOOD)
        return;
    qr_file_index_write(copy, &index);
    MUTATE_EXPECT(qr_file_index_read(copy, &again) == QR_FILE_GOOD);
    MUTATE_EXPECT(index.seq == again.seq && index.crc == again.crc);
}

/* ---- the whole file ----------------------------------------------------- */

static void load_one(crowd *c, uint32_t key)
{
    quire_tier_job *ended[4];
    crowd_job *job = &c->jobs[0];
    uint32_t n = 0;
    job->job = (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = 1, .ios = job->ios};
    job->ios[0] = (quire_tier_io){.key = kit_key(key), .memory = job->memory, .bytes = CROWD_BLOCK};
    MUTATE_EXPECT(quire_tier_submit(c->tier, &job->job) == QUIRE_OK);
    for (int turns = 0; turns < 100 && n == 0; turns++)
        n = quire_tier_poll(c->tier, ended, 4);
    MUTATE_EXPECT(n == 1 && ended[0] == &job->job);
    if (job->ios[0].status != QUIRE_TIER_DONE)
        return;
    num_loaded++;
    if (!is_forged)
        MUTATE_EXPECT(kit_is_filled(job->memory, CROWD_BLOCK, key));
}

static void store_some(crowd *c, uint32_t first, uint32_t n)
{
    quire_tier_job *ended[4];
    for (uint32_t i = 0; i < n; i++) {
        crowd_job *job = &c->jobs[0];
        kit_fill(job->memory, CROWD_BLOCK, first + i);
        job->job = (quire_tier_job){.op = QUIRE_TIER_STORE, .num_ios = 1, .ios = job->ios};
        job->ios[0] =
            (quire_tier_io){.key = kit_key(first + i), .memory = job->memory, .bytes = CROWD_BLOCK};
        MUTATE_EXPECT(quire_tier_submit(c->tier, &job->job) == QUIRE_OK);
        for (int turns = 0; turns < 100 && quire_tier_poll(c->tier, ended, 4) == 0; turns++)
            continue;
    }
}

static void open_file(const uint8_t *bytes, size_t num_bytes)
{
    static crowd c;
    static file_disk disk;
    num_files++;
    crowd_init(&c, SLOTS, 1);
    disk_init(&disk, c.config.capacity_bytes + 65536, 1);
    memcpy(disk.image, bytes, num_bytes < disk.capacity ? num_bytes : disk.capacity);
    disk.disk.bytes = num_bytes;
    if (crowd_open(&c, &disk) == QUIRE_OK) {
        num_opened++;
        for (uint32_t key = 0; key < 6; key++)
            load_one(&c, key);
        store_some(&c, 10, 2);
        load_one(&c, 10);
        MUTATE_EXPECT(quire_tier_close(c.tier) == QUIRE_OK);
    }
    disk_free(&disk);
    crowd_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    qr_file_layout layout;
    MUTATE_EXPECT(qr_file_layout_of(SLOTS, CROWD_BLOCK, &layout));
    for (size_t at = 0; at + QR_FILE_PAGE <= num_bytes; at += QR_FILE_PAGE) {
        check_super(bytes + at);
        check_head(bytes + at, &layout);
        check_index(bytes + at);
    }
    if (num_bytes > 4 * QR_FILE_PAGE)
        open_file(bytes, num_bytes);
    return 0;
}

/* ---- as a program of its own -------------------------------------------- */

/* Half the inputs have pages whose CRC is right again, so that what comes after it is reached. */
static void seal_pages(mutate_text *text, size_t sample)
{
    (void)sample;
    is_forged = mutate_below(2) == 0;
    if (!is_forged)
        return;
    for (size_t at = 0; at + QR_FILE_PAGE <= text->n; at += QR_FILE_PAGE) {
        uint32_t crc = quire_crc32c(0, text->bytes + at, QR_FILE_PAGE - 4);
        memcpy(text->bytes + at + QR_FILE_PAGE - 4, &crc, 4);
    }
}

/* A change where it matters: in the first bytes of a page. */
static void change_field(mutate_text *text, size_t at)
{
    size_t page = at / QR_FILE_PAGE * QR_FILE_PAGE;
    size_t field = page + mutate_below(160);
    if (field + 8 <= text->n)
        memset(text->bytes + field, mutate_below(2) == 0 ? 0xff : (int)mutate_below(256),
               1 + mutate_below(8));
}

static size_t make_sample(uint8_t *room)
{
    static crowd c;
    static file_disk disk;
    crowd_init(&c, SLOTS, 1);
    disk_init(&disk, c.config.capacity_bytes, 1);
    MUTATE_EXPECT(crowd_open(&c, &disk) == QUIRE_OK);
    store_some(&c, 0, SLOTS);
    MUTATE_EXPECT(quire_tier_close(c.tier) == QUIRE_OK);
    MUTATE_EXPECT(disk.disk.bytes <= MUTATE_ROOM);
    memcpy(room, disk.image, disk.disk.bytes);
    size_t n = disk.disk.bytes;
    disk_free(&disk);
    crowd_free(&c);
    return n;
}

/* Super, index and head, again and again, and one whole file. */
static void cut_samples(const uint8_t *file, size_t n, mutate_bytes *samples)
{
    qr_file_layout layout;
    MUTATE_EXPECT(qr_file_layout_of(SLOTS, CROWD_BLOCK, &layout));
    for (size_t i = 0; i < PAGE_SAMPLES; i += 3) {
        samples[i] = (mutate_bytes){file, QR_FILE_PAGE};
        samples[i + 1] = (mutate_bytes){file + layout.index_at[1], QR_FILE_PAGE};
        samples[i + 2] = (mutate_bytes){file + layout.slots_at, QR_FILE_PAGE};
    }
    samples[PAGE_SAMPLES] = (mutate_bytes){file, n};
}

int main(int argc, char **argv)
{
    static uint8_t room[MUTATE_ROOM];
    static mutate_bytes samples[PAGE_SAMPLES + 1];
    static const uint32_t BIG[] = {UINT32_MAX, INT32_MAX, 0x40000000, 4097, 0};
    mutate_bytes words[5];
    cut_samples(room, make_sample(room), samples);
    for (size_t i = 0; i < 5; i++)
        words[i] = (mutate_bytes){&BIG[i], sizeof BIG[i]};
    mutate_run(samples[PAGE_SAMPLES].bytes, samples[PAGE_SAMPLES].n);
    MUTATE_EXPECT(num_opened == 1 && num_loaded == SLOTS + 1);
    mutate_plan plan = {.runs = 100000,
                        .samples = samples,
                        .num_samples = PAGE_SAMPLES + 1,
                        .words = words,
                        .num_words = 5,
                        .change = change_field,
                        .seal = seal_pages};
    int status = mutate_main(argc, argv, &plan);
    printf("%llu files, %llu of which could be opened; %llu blocks loaded\n",
           (unsigned long long)num_files, (unsigned long long)num_opened,
           (unsigned long long)num_loaded);
    return status;
}
