/* events/fuzz_wire.c - the decoder of events against bytes that nobody meant as events.
 *
 *      bytes ──► read ──► events ──► written in both forms ──► read ──► written: the same bytes
 *                            └──► index, which ends where it began when the workers are cleared
 *
 * Whatever the bytes, they are events that hold together or QUIRE_E_CORRUPT. Two ways to run it:
 * with libFuzzer (target fuzz_wire_libfuzzer of a build with clang), or as a program of its own
 * that changes recorded batches at random, the same way for the same seed:
 *
 *      events_fuzz_wire [--runs N] [--seed N]
 */
#include "base/mutate.h"

#include <quire/wire.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 2, MAX_BLOCKS = 200 };

/* ---- what must hold -------------------------------------------------------- */

/* Reads every byte that an event points to, so that a sanitizer sees each of them. */
static uint64_t touch(quire_bytes bytes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes.len; i++)
        sum += ((const unsigned char *)bytes.data)[i];
    return sum;
}

static uint64_t look_at(const quire_wire_event *e)
{
    uint64_t sum = touch(e->parent.bytes) + touch(e->lora_name) + touch(e->medium);
    for (uint32_t i = 0; i < e->num_hashes; i++)
        sum += e->hashes[i].number + touch(e->hashes[i].bytes);
    for (uint32_t i = 0; i < e->num_tokens; i++)
        sum += (uint64_t)e->tokens[i];
    for (uint32_t i = 0; e->key_start != NULL && i < e->num_hashes; i++) {
        MUTATE_EXPECT(e->key_start[0] == 0 && e->key_start[i] <= e->key_start[i + 1]);
        for (uint32_t k = e->key_start[i]; k < e->key_start[i + 1]; k++) {
            MUTATE_EXPECT(e->keys[k].kind >= QUIRE_WIRE_TEXT && e->keys[k].kind <= QUIRE_WIRE_RAW);
            sum += (uint64_t)e->keys[k].number + touch(e->keys[k].value);
        }
    }
    return sum;
}

/* All events but those of unknown kinds; returns how many. */
static uint32_t write_all(quire_wire_writer *writer, const quire_wire_reader *reader,
                          const quire_wire_batch *batch, quire_bytes *bytes)
{
    uint32_t num_written = 0;
    int64_t rank = batch->has_rank != 0 && batch->rank >= 0 ? batch->rank : -1;
    MUTATE_EXPECT(quire_wire_begin(writer) == QUIRE_OK);
    for (uint32_t i = 0; i < batch->num_events; i++) {
        const quire_wire_event *e = quire_wire_get(reader, i);
        if (e->kind == QUIRE_WIRE_OTHER)
            continue;
        MUTATE_EXPECT(quire_wire_add(writer, e) == QUIRE_OK);
        num_written++;
    }
    MUTATE_EXPECT(quire_wire_end(writer, batch->time, rank, bytes) == QUIRE_OK);
    return num_written;
}

static void check_form(const quire_wire_reader *reader, const quire_wire_batch *batch,
                       uint32_t as_maps)
{
    quire_wire_writer *writers[2];
    quire_wire_reader *again;
    quire_wire_options options = QUIRE_WIRE_OPTIONS_INIT;
    quire_wire_batch reread;
    quire_bytes first;
    quire_bytes second;
    options.as_maps = as_maps;
    MUTATE_EXPECT(quire_wire_writer_create(&options, &writers[0]) == QUIRE_OK);
    MUTATE_EXPECT(quire_wire_writer_create(&options, &writers[1]) == QUIRE_OK);
    MUTATE_EXPECT(quire_wire_reader_create(&again) == QUIRE_OK);
    uint32_t num_written = write_all(writers[0], reader, batch, &first);
    MUTATE_EXPECT(quire_wire_read(again, first, &reread) == QUIRE_OK);
    MUTATE_EXPECT(reread.num_events == num_written);
    MUTATE_EXPECT(write_all(writers[1], again, &reread, &second) == num_written);
    MUTATE_EXPECT(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    quire_wire_reader_destroy(again);
    quire_wire_writer_destroy(writers[0]);
    quire_wire_writer_destroy(writers[1]);
}

static void check_index(const quire_wire_reader *reader, const quire_wire_batch *batch)
{
    quire_index *index;
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    uint32_t num_blocks[WORKERS];
    config.max_workers = WORKERS;
    config.max_blocks = MAX_BLOCKS;
    config.count_copies = batch->num_events % 2;
    MUTATE_EXPECT(quire_index_create(&config, &index) == QUIRE_OK);
    for (uint32_t i = 0; i < batch->num_events; i++) {
        const quire_wire_event *e = quire_wire_get(reader, i);
        MUTATE_EXPECT(quire_index_apply(index, i % WORKERS, e) == QUIRE_OK);
        MUTATE_EXPECT(quire_index_match(index, e->hashes, e->num_hashes, e->group, e->medium,
                                        num_blocks) == QUIRE_OK);
        MUTATE_EXPECT(num_blocks[0] <= e->num_hashes && num_blocks[1] <= e->num_hashes);
        MUTATE_EXPECT(quire_index_get_stats(index)->num_blocks <= MAX_BLOCKS);
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        MUTATE_EXPECT(quire_index_clear(index, worker) == QUIRE_OK);
    MUTATE_EXPECT(quire_index_get_stats(index)->num_blocks == 0);
    quire_index_destroy(index);
}

static uint64_t num_good; /* inputs that were batches */
static uint64_t looked_sum;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    quire_wire_reader *reader;
    quire_wire_batch batch;
    MUTATE_EXPECT(quire_wire_reader_create(&reader) == QUIRE_OK);
    int status = quire_wire_read(reader, (quire_bytes){bytes, num_bytes}, &batch);
    MUTATE_EXPECT(status == QUIRE_OK || status == QUIRE_E_CORRUPT);
    if (status == QUIRE_OK) {
        num_good++;
        for (uint32_t i = 0; i < batch.num_events; i++)
            looked_sum += look_at(quire_wire_get(reader, i));
        MUTATE_EXPECT(quire_wire_get(reader, batch.num_events) == NULL);
        check_form(reader, &batch, 0);
        check_form(reader, &batch, 1);
        check_index(reader, &batch);
    }
    quire_wire_reader_destroy(reader);
    return 0;
}

#ifndef QUIRE_LIBFUZZER

/* ---- without libFuzzer ----------------------------------------------------- */

enum { MAX_SAMPLES = 1000, SAMPLE_ROOM = 4096 };

/* Values and lengths at which something could go wrong. */
static const mutate_bytes pieces[] = {
    {"\xc0", 1},
    {"\xc1", 1},
    {"\x90", 1},
    {"\x80", 1},
    {"\xa0", 1},
    {"\xff", 1},
    {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9},
    {"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", 9},
    {"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", 9},
    {"\xdd\xff\xff\xff\xff", 5},
    {"\xdf\xff\xff\xff\xff", 5},
    {"\xdc\x00\x01", 3},
    {"\xc6\xff\xff\xff\xff", 5},
    {"\xc4\x00", 2},
    {"\xdb\xff\xff\xff\xff", 5},
    {"\xc9\xff\xff\xff\xff\x01", 6},
    {"\xd4\x01\x02", 3},
    {"\x92\xa1x\x05", 4},
    {"\xab"
     "BlockStored",
     12},
    {"\xac"
     "BlockRemoved",
     13},
    {"\xb0"
     "AllBlocksCleared",
     17},
    {"\xa4type", 5},
    {"\xac"
     "block_hashes",
     13},
    {"\xaa"
     "extra_keys",
     11},
};

/* The bytes of a line's word, where it has them all. */
static bool parse_sample(const char *word, uint8_t *room, mutate_bytes *sample)
{
    size_t num_digits = strspn(word, "0123456789abcdef");
    if (num_digits < 2 || num_digits / 2 > SAMPLE_ROOM ||
        (word[num_digits] != ' ' && word[num_digits] != '\n'))
        return false;
    *sample = (mutate_bytes){room, num_digits / 2};
    for (size_t i = 0; i < sample->n; i++) {
        const char pair[3] = {word[2 * i], word[2 * i + 1], 0};
        room[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return true;
}

/* Batches that vLLM's encoder made, in both forms. */
static size_t read_samples(mutate_bytes *samples)
{
    static uint8_t room[MAX_SAMPLES][SAMPLE_ROOM];
    size_t count = 0;
    char *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen(QUIRE_EVENTS_DATA "/wire.txt", "r");
    MUTATE_EXPECT(file != NULL);
    while (getline(&line, &capacity, file) > 0) {
        const char *word = strstr(line, " = ");
        word = word == NULL ? NULL : word + 3;
        for (int form = 0; form < 2 && word != NULL; form++) {
            MUTATE_EXPECT(count < MAX_SAMPLES);
            count += parse_sample(word, room[count], &samples[count]);
            word = strchr(word, ' ');
            word = word == NULL ? NULL : word + 1;
        }
    }
    free(line);
    fclose(file);
    return count;
}

int main(int argc, char **argv)
{
    static mutate_bytes samples[MAX_SAMPLES];
    size_t num_samples = read_samples(samples);
    for (size_t i = 0; i < num_samples; i++)
        mutate_run(samples[i].bytes, samples[i].n);
    MUTATE_EXPECT(num_good == num_samples && num_samples > 100);
    mutate_plan plan = {.runs = 300000,
                        .samples = samples,
                        .num_samples = num_samples,
                        .words = pieces,
                        .num_words = sizeof pieces / sizeof pieces[0]};
    int status = mutate_main(argc, argv, &plan);
    printf("%zu samples, %llu of the executions were batches\n", num_samples,
           (unsigned long long)(num_good - num_samples));
    return status;
}

#endif
