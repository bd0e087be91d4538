#include "events/wire_recording.h"

#include "base/unit.h"

#include <zstd.h>

static const char magic[] = "quire-events 1\n";
static const size_t MOST_BYTES = (size_t)1 << 28;
static const size_t MOST_UNPACKED = (size_t)1 << 25;

/* ---- the file -------------------------------------------------------------- */

static unsigned char *read_whole(const char *path, size_t *num_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size > 0 && (size_t)size < MOST_BYTES);
    rewind(file);
    unsigned char *bytes = malloc((size_t)size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
    fclose(file);
    *num_bytes = (size_t)size;
    return bytes;
}

/* Frees what it is given. Bytes that are not compressed stay as they are. */
static unsigned char *unpack(unsigned char *bytes, size_t *num_bytes)
{
    if (*num_bytes > sizeof magic - 1 && memcmp(bytes, magic, sizeof magic - 1) == 0)
        return bytes;
    unsigned char *whole = malloc(MOST_UNPACKED);
    assert_non_null(whole);
    size_t size = ZSTD_decompress(whole, MOST_UNPACKED, bytes, *num_bytes);
    free(bytes);
    if (ZSTD_isError(size))
        fail_msg("recording: %s", ZSTD_getErrorName(size));
    *num_bytes = size;
    return whole;
}

/* ---- its parts ------------------------------------------------------------- */

static uint64_t take(wire_recording *r, size_t size)
{
    uint64_t value = 0;
    assert_true((size_t)(r->end - r->at) >= size);
    memcpy(&value, r->at, size);
    r->at += size;
    return value;
}

void wire_recording_open(wire_recording *r, const char *path)
{
    size_t num_bytes;
    *r = (wire_recording){0};
    r->memory = unpack(read_whole(path, &num_bytes), &num_bytes);
    r->at = r->memory;
    r->end = r->memory + num_bytes;
    assert_true(num_bytes > sizeof magic && memcmp(r->at, magic, sizeof magic - 1) == 0);
    r->at += sizeof magic - 1;
    r->first_seed = (uint32_t)take(r, 4);
    r->runs_left = (uint32_t)take(r, 4);
    r->limit = (uint32_t)take(r, 4);
}

void wire_recording_close(wire_recording *r)
{
    free(r->memory);
    r->memory = NULL;
}

bool wire_recording_next_seed(wire_recording *r)
{
    if (r->runs_left == 0)
        return false;
    r->runs_left--;
    r->num_batches = (uint32_t)take(r, 4);
    r->num_events = (uint32_t)take(r, 4);
    r->is_numbers = take(r, 4) != 0;
    r->fingerprint = take(r, 8);
    r->has_bytes = r->num_bytes < r->limit;
    return true;
}

quire_bytes wire_recording_next_batch(wire_recording *r)
{
    size_t len = (size_t)take(r, 4);
    assert_true((size_t)(r->end - r->at) >= len);
    quire_bytes bytes = {r->at, len};
    r->at += len;
    r->num_bytes += len;
    return bytes;
}
