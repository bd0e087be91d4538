/* tier/transfer/fuzz_messages.c - plans and reports against bytes that nobody wrote.
 *
 *      bytes ──► reader ── refused: a sentence
 *                    └── read: every item lies in the bytes; written again, they are the same bytes
 *
 * With libFuzzer, or as a program of its own (base/mutate.h). In half of the runs length and CRC
 * are put right, so that what is behind them is reached. */
#include "base/mutate.h"
#include "tier/transfer/plan.h"
#include "tier/transfer/report.h"

#include <quire/error.h>

#include <string.h>

enum { ROOM = 2 * MUTATE_ROOM, NUM_SAMPLES = 4 };

static uint64_t num_read;
static unsigned char again[ROOM];

static void check_job(const qr_plan_job *job, qr_plan_writer *writer)
{
    unsigned char *items = qr_plan_add(writer, job);
    quire_tier_key key;
    MUTATE_EXPECT(items != NULL);
    for (uint32_t i = 0; i < job->count; i++) {
        if (qr_plan_is_copy(job->kind)) {
            qr_plan_put_copy(items, i, qr_plan_block(job, i), qr_plan_slot(job, i));
        } else if (job->kind == QR_PLAN_IDENTITY) {
            memcpy(items, job->items, QUIRE_FINGERPRINT_BYTES);
        } else {
            qr_plan_get_key(job, i, 7, &key);
            MUTATE_EXPECT(key.rank == 7);
            qr_plan_put_key(items, i, &key, qr_plan_slot(job, i));
        }
    }
}

static void check_plan(quire_bytes bytes)
{
    qr_plan plan;
    qr_plan_job job;
    if (qr_plan_read(bytes, &plan) != QUIRE_OK) {
        MUTATE_EXPECT(quire_refusal()[0] != 0);
        return;
    }
    qr_plan_writer writer = {.bytes = again, .capacity = sizeof again};
    qr_plan_begin(&writer);
    while (qr_plan_next(&plan, &job))
        check_job(&job, &writer);
    quire_bytes same = qr_plan_finish(&writer, plan.session, plan.sequence);
    MUTATE_EXPECT(same.len == bytes.len && memcmp(same.data, bytes.data, same.len) == 0);
    num_read++;
}

static void check_report(quire_bytes bytes)
{
    qr_report report;
    qr_report_result result;
    if (qr_report_read(bytes, &report) != QUIRE_OK) {
        MUTATE_EXPECT(quire_refusal()[0] != 0);
        return;
    }
    qr_report_writer writer = {.bytes = again, .capacity = sizeof again};
    qr_report_begin(&writer);
    while (qr_report_next(&report, &result))
        MUTATE_EXPECT(qr_report_add(&writer, &result));
    uint32_t tier;
    quire_tier_key key;
    while (qr_report_next_gone(&report, &tier, &key))
        MUTATE_EXPECT(
            qr_report_add_gone(&writer, tier, key.group == QR_REPORT_ALL_GONE ? NULL : &key));
    quire_bytes same = qr_report_finish(&writer, &report.head);
    MUTATE_EXPECT(same.len == bytes.len && memcmp(same.data, bytes.data, same.len) == 0);
    num_read++;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    check_plan((quire_bytes){bytes, num_bytes});
    check_report((quire_bytes){bytes, num_bytes});
    return 0;
}

#ifndef QUIRE_LIBFUZZER

static unsigned char room[NUM_SAMPLES][ROOM];
static mutate_bytes samples[NUM_SAMPLES];

static void add(qr_plan_writer *writer, qr_plan_job job)
{
    unsigned char *items = qr_plan_add(writer, &job);
    size_t bytes = (size_t)(writer->bytes + writer->used - items);
    for (size_t i = 0; i < bytes; i++)
        items[i] = (unsigned char)(i * 7);
}

static void make_samples(void)
{
    for (size_t s = 0; s < 2; s++) {
        qr_plan_writer plan = {.bytes = room[s], .capacity = ROOM};
        qr_plan_begin(&plan);
        for (uint32_t i = 0; s > 0 && i < 4; i++) {
            uint8_t tier = (uint8_t)i;
            add(&plan, (qr_plan_job){.id = 1 << 16 | i, .kind = QR_PLAN_COPY_OUT, .count = i + 1});
            add(&plan, (qr_plan_job){.id = 9, .kind = QR_PLAN_COPY_IN, .count = 256});
            add(&plan,
                (qr_plan_job){
                    .id = 70, .kind = QR_PLAN_LOAD, .tier = tier, .flags = i & 1, .count = i + 1});
            add(&plan, (qr_plan_job){.id = 90, .kind = QR_PLAN_STORE, .tier = tier, .count = 64});
            add(&plan, (qr_plan_job){.id = 90, .kind = QR_PLAN_CANCEL, .tier = tier});
            add(&plan, (qr_plan_job){.kind = QR_PLAN_TOUCH, .tier = tier, .count = 2});
            add(&plan, (qr_plan_job){.kind = QR_PLAN_RESET, .tier = tier});
            add(&plan, (qr_plan_job){.kind = QR_PLAN_IDENTITY, .tier = tier, .count = 1});
        }
        quire_bytes bytes = qr_plan_finish(&plan, 5, 6);
        samples[s] = (mutate_bytes){bytes.data, bytes.len};
        qr_report_writer report = {.bytes = room[2 + s], .capacity = ROOM};
        unsigned char statuses[QR_REPORT_MOST_STATUSES];
        qr_report_begin(&report);
        for (uint32_t i = 0; s > 0 && i < QR_REPORT_MOST_STATUSES; i++) {
            statuses[i] = (unsigned char)(1 + i % QR_REPORT_LATE);
            qr_report_result result = {
                .id = i + 1, .count = i + 1, .ns = i * 1000, .statuses = statuses};
            MUTATE_EXPECT(qr_report_add(&report, &result));
        }
        for (uint32_t i = 0; s > 0 && i < 5; i++) {
            quire_tier_key key = {.hash = {(unsigned char)i}, .group = i};
            MUTATE_EXPECT(
                qr_report_add_gone(&report, i % QUIRE_TRANSFER_MAX_TIERS, i == 2 ? NULL : &key));
        }
        bytes = qr_report_finish(&report, &(qr_report_head){1, 2, 3, 4, 5, 6});
        samples[2 + s] = (mutate_bytes){bytes.data, bytes.len};
    }
}

/* Half of them have a right length and CRC. */
static void seal(mutate_text *text, size_t sample)
{
    if (text->n >= QR_MESSAGE_HEAD && mutate_below(2) == 0)
        qr_message_seal(text->bytes, sample < 2 ? QR_PLAN_MAGIC : QR_REPORT_MAGIC,
                        (uint32_t)text->n);
}

int main(int argc, char **argv)
{
    static const mutate_bytes words[] = {
        {"QPLN", 4},           {"QRPT", 4},
        {"\0\0\0\0\0\0\0", 8}, {"\377\377\377\377", 4},
        {"\0\1\0", 4},         {"\100\0\0", 4},
        {"\101\0\0", 4},       {"\1\0\0\0\0\0\0", 8},
        {"\3\1\1\0\2\0\0", 8}, {"\10\0\0\0\1\0\0", 8},
    };
    make_samples();
    for (size_t i = 0; i < NUM_SAMPLES; i++)
        mutate_run(samples[i].bytes, samples[i].n);
    MUTATE_EXPECT(num_read == NUM_SAMPLES); /* the samples are what they are meant to be */
    mutate_plan plan = {.runs = 20000,
                        .samples = samples,
                        .num_samples = NUM_SAMPLES,
                        .words = words,
                        .num_words = sizeof words / sizeof words[0],
                        .seal = seal};
    int status = mutate_main(argc, argv, &plan);
    printf("%llu messages were read\n", (unsigned long long)num_read);
    return status;
}

#endif
