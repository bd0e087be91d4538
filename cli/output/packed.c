#define _GNU_SOURCE /* fopencookie */
#include "packed.h"
#include "failure.h"
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { ZSTD_LEVEL = 3, GZIP_LEVEL = 6, GZIP_WINDOW_BITS = 15 + 16 /* gzip's wrapping */ };

struct packed_file {
    const char *path;
    FILE *file; /* the output */
    FILE *text; /* what is written to: the output itself, or what packs it */
    ZSTD_CCtx *zstd;
    z_stream gzip;
    bool is_gzip; /* gzip is initialised */
    char packed[1 << 16];
};

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path);
    size_t n = strlen(ending);
    return length > n && strcmp(path + length - n, ending) == 0;
}

/* ---- zstd ------------------------------------------------------------------ */

/* Text into the file, packed; at the end, what zstd still holds too. */
static bool pack_zstd(packed_file *p, const char *text, size_t num_bytes, ZSTD_EndDirective way)
{
    ZSTD_inBuffer from = {text, num_bytes, 0};
    size_t left;
    do {
        ZSTD_outBuffer to = {p->packed, sizeof p->packed, 0};
        left = ZSTD_compressStream2(p->zstd, &to, &from, way);
        if (ZSTD_isError(left) || fwrite(p->packed, 1, to.pos, p->file) != to.pos)
            return false;
    } while (way == ZSTD_e_end ? left > 0 : from.pos < from.size);
    return true;
}

static ssize_t write_zstd(void *file, const char *text, size_t num_bytes)
{
    return pack_zstd(file, text, num_bytes, ZSTD_e_continue) ? (ssize_t)num_bytes : 0;
}

static int end_zstd(void *file)
{
    return pack_zstd(file, NULL, 0, ZSTD_e_end) ? 0 : -1;
}

static bool begin_zstd(packed_file *p)
{
    p->zstd = ZSTD_createCCtx();
    if (p->zstd == NULL)
        return false;
    ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1);
    p->text = fopencookie(p, "w", (cookie_io_functions_t){.write = write_zstd, .close = end_zstd});
    return p->text != NULL;
}

/* ---- gzip ------------------------------------------------------------------ */

static bool pack_gzip(packed_file *p, const char *text, size_t num_bytes, int way)
{
    p->gzip.next_in = (Bytef *)(uintptr_t)text;
    p->gzip.avail_in = (uInt)num_bytes;
    int status;
    do {
        p->gzip.next_out = (Bytef *)p->packed;
        p->gzip.avail_out = sizeof p->packed;
        status = deflate(&p->gzip, way);
        size_t n = sizeof p->packed - p->gzip.avail_out;
        if (status == Z_STREAM_ERROR || fwrite(p->packed, 1, n, p->file) != n)
            return false;
    } while (way == Z_FINISH ? status != Z_STREAM_END : p->gzip.avail_in > 0);
    return true;
}

/* stdio hands over its buffer: far less than 4 GiB at once. */
static ssize_t write_gzip(void *file, const char *text, size_t num_bytes)
{
    return pack_gzip(file, text, num_bytes, Z_NO_FLUSH) ? (ssize_t)num_bytes : 0;
}

static int end_gzip(void *file)
{
    return pack_gzip(file, NULL, 0, Z_FINISH) ? 0 : -1;
}

static bool begin_gzip(packed_file *p)
{
    p->is_gzip = deflateInit2(&p->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
                              Z_DEFAULT_STRATEGY) == Z_OK;
    if (p->is_gzip)
        p->text =
            fopencookie(p, "w", (cookie_io_functions_t){.write = write_gzip, .close = end_gzip});
    return p->text != NULL;
}

/* ---- the file -------------------------------------------------------------- */

static void free_file(packed_file *p)
{
    ZSTD_freeCCtx(p->zstd);
    if (p->is_gzip)
        deflateEnd(&p->gzip);
    free(p);
}

static bool begin(packed_file *p)
{
    if (ends_with(p->path, ".zst"))
        return begin_zstd(p);
    if (ends_with(p->path, ".gz"))
        return begin_gzip(p);
    p->text = p->file;
    return true;
}

packed_file *packed_open(const char *path)
{
    packed_file *p = calloc(1, sizeof *p);
    fail_with("%s: not enough memory to write it", path);
    if (p == NULL)
        return NULL;
    p->path = path;
    p->file = output_open(path);
    if (p->file != NULL && begin(p))
        return p;
    free_file(p);
    outputs_discard();
    return NULL;
}

FILE *packed_text(const packed_file *file)
{
    return file->text;
}

bool packed_close(packed_file *p)
{
    bool is_packed = p->text == p->file || fclose(p->text) == 0;
    bool has_memory = is_packed || ferror(p->file);
    if (!has_memory) {
        outputs_discard();
        fail_with("%s: cannot be written: %s", p->path, strerror(ENOMEM));
    }
    bool is_written = has_memory && outputs_commit() == 0;
    free_file(p);
    return is_written;
}

void packed_discard(packed_file *file)
{
    if (file == NULL)
        return;
    if (file->text != file->file)
        fclose(file->text);
    outputs_discard();
    free_file(file);
}
