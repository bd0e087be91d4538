/* cli/trace/generate_writer.c - see generate_writer.h. */
#include "generate_writer.h"
#include "output/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { BUFFER_BYTES = 1 << 16, LINE_BYTES = 1 << 10, LEVEL = 3 };

struct generate_writer {
    char *path;
    FILE *file;
    ZSTD_CCtx *zstd; /* NULL: plain */
    size_t used;
    char text[BUFFER_BYTES];
    char packed[BUFFER_BYTES];
    bool has_failed;
    int why; /* errno */
};

static bool is_packed_name(const char *path)
{
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".zst") == 0;
}

generate_writer *generate_writer_open(const char *path, char message[GENERATE_MESSAGE_BYTES])
{
    bool is_standard = strcmp(path, "-") == 0;
    generate_writer *writer = calloc(1, sizeof *writer);
    if (writer != NULL)
        writer->path = strdup(is_standard ? "standard output" : path);
    if (writer != NULL && is_packed_name(path))
        writer->zstd = ZSTD_createCCtx();
    bool is_ready =
        writer != NULL && writer->path != NULL && (writer->zstd != NULL || !is_packed_name(path));
    if (!is_ready)
        snprintf(message, GENERATE_MESSAGE_BYTES, "%s: no memory to write it", path);
    if (is_ready) {
        if (writer->zstd != NULL) {
            ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, LEVEL);
            ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 1);
        }
        writer->file = output_open(path, message);
        if (writer->file != NULL)
            return writer;
    }
    if (writer != NULL) {
        ZSTD_freeCCtx(writer->zstd);
        free(writer->path);
    }
    free(writer);
    return NULL;
}

static void put(generate_writer *writer, const char *bytes, size_t num_bytes)
{
    if (!writer->has_failed && fwrite(bytes, 1, num_bytes, writer->file) != num_bytes) {
        writer->has_failed = true;
        writer->why = errno;
    }
}

/* Empties the buffer into the file; at the end, what zstd still holds too. */
static void flush(generate_writer *writer, bool is_end)
{
    if (writer->zstd == NULL) {
        put(writer, writer->text, writer->used);
        writer->used = 0;
        return;
    }
    ZSTD_inBuffer from = {writer->text, writer->used, 0};
    size_t left;
    do {
        ZSTD_outBuffer to = {writer->packed, sizeof writer->packed, 0};
        left =
            ZSTD_compressStream2(writer->zstd, &to, &from, is_end ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left)) {
            writer->has_failed = true;
            writer->why = ENOMEM;
            break;
        }
        put(writer, writer->packed, to.pos);
    } while (is_end ? left > 0 : from.pos < from.size);
    writer->used = 0;
}

void generate_write(generate_writer *writer, const char *format, ...)
{
    if (sizeof writer->text - writer->used < LINE_BYTES)
        flush(writer, false);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(writer->text + writer->used, LINE_BYTES, format, arguments);
    va_end(arguments);
    if (n < 0 || n >= LINE_BYTES) {
        writer->has_failed = true;
        writer->why = EOVERFLOW;
        return;
    }
    writer->used += (size_t)n;
}

bool generate_writer_close(generate_writer *writer, char message[GENERATE_MESSAGE_BYTES])
{
    flush(writer, true);
    bool is_written = !writer->has_failed && outputs_commit(message) == 0;
    if (writer->has_failed) {
        outputs_discard();
        snprintf(message, GENERATE_MESSAGE_BYTES, "%s: cannot be written: %s", writer->path,
                 strerror(writer->why));
    }
    ZSTD_freeCCtx(writer->zstd);
    free(writer->path);
    free(writer);
    return is_written;
}
