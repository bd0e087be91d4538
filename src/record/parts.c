#include "record/parts.h"

#include "base/memory.h"
#include "base/refuse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { MAX_NAMES = 9999 };

static const char SUFFIX[] = ".jsonl.zst";

/* ---- names -------------------------------------------------------------------- */

static bool make_path(char path[PATH_MAX], const char *name, uint32_t number)
{
    int len = snprintf(path, PATH_MAX, "%s.%04u%s", name, number, SUFFIX);
    return len > 0 && len < PATH_MAX;
}

/* The name of the parts: path without its suffix; in a folder, "recording". */
static bool make_name(char name[PATH_MAX], const char *path)
{
    struct stat about;
    size_t len = strlen(path);
    size_t suffix = sizeof SUFFIX - 1;
    const char *more = "";
    if (path[len - 1] == '/')
        more = "recording";
    else if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        more = "/recording";
    else if (len > suffix && strcmp(path + len - suffix, SUFFIX) == 0)
        len -= suffix;
    int made = snprintf(name, PATH_MAX, "%.*s%s", (int)len, path, more);
    return made > 0 && made < PATH_MAX;
}

static bool exists(const char *name, uint32_t number)
{
    struct stat about;
    char path[PATH_MAX];
    return make_path(path, name, number) && lstat(path, &about) == 0;
}

/* ---- parts -------------------------------------------------------------------- */

/* 0 or an errno. */
static int open_part(qr_record_parts *parts)
{
    if (!make_path(parts->path, parts->name, parts->number))
        return ENAMETOOLONG;
    parts->fd = open(parts->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (parts->fd < 0)
        return errno;
    parts->num_bytes = 0;
    parts->number++;
    return 0;
}

/* The first name that no recording has. Another process may take it first: then the next one. */
static int open_first(qr_record_parts *parts, const char *path)
{
    char base[PATH_MAX];
    int problem = ENAMETOOLONG;
    if (!make_name(base, path))
        return problem;
    for (int i = 1; i <= MAX_NAMES; i++) {
        int len = i == 1 ? snprintf(parts->name, sizeof parts->name, "%s", base)
                         : snprintf(parts->name, sizeof parts->name, "%s-%d", base, i);
        if (len <= 0 || len >= PATH_MAX)
            return ENAMETOOLONG;
        problem = EEXIST;
        if (exists(parts->name, 0) || exists(parts->name, 1))
            continue;
        problem = open_part(parts);
        if (problem != EEXIST)
            break;
    }
    return problem;
}

int qr_record_parts_open(qr_record_parts *parts, const char *path, uint64_t part_bytes,
                         uint32_t level)
{
    memset(parts, 0, sizeof *parts);
    parts->fd = -1;
    parts->part_bytes = part_bytes;
    parts->level = level;
    if (path == NULL || path[0] == 0)
        return qr_fail(QUIRE_E_ARGUMENT, "path is %s", path == NULL ? "NULL" : "empty");
    parts->context = ZSTD_createCCtx();
    if (parts->context == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(parts->context, ZSTD_c_compressionLevel, (int)level)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(parts->context, ZSTD_c_checksumFlag, 1)))
        return qr_fail(QUIRE_E_NOMEM, "path \"%s\": out of memory", path);
    int problem = open_first(parts, path);
    if (problem != 0)
        return qr_fail(QUIRE_E_SYSTEM, "cannot create \"%s\": %s",
                       parts->path[0] != 0 ? parts->path : path, strerror(problem));
    memcpy(parts->first, parts->path, sizeof parts->first);
    return QUIRE_OK;
}

void qr_record_parts_close(qr_record_parts *parts)
{
    if (parts->fd >= 0)
        (void)close(parts->fd);
    parts->fd = -1;
    ZSTD_freeCCtx(parts->context);
    qr_free(parts->packed);
    parts->context = parts->packed = NULL;
}

bool qr_record_parts_is_new(const qr_record_parts *parts)
{
    return parts->fd < 0 || parts->num_bytes == 0;
}

/* ---- frames -------------------------------------------------------------------- */

/* The bytes of the frame; 0: no memory. */
static size_t compress(qr_record_parts *parts, const qr_record_text *lines)
{
    size_t bound = ZSTD_compressBound(lines->len);
    if (parts->packed_room < bound) {
        char *packed = qr_realloc(parts->packed, bound);
        if (packed == NULL)
            return 0;
        parts->packed = packed;
        parts->packed_room = bound;
    }
    size_t bytes = ZSTD_compress2(parts->context, parts->packed, bound, lines->bytes, lines->len);
    return ZSTD_isError(bytes) ? 0 : bytes;
}

/* 0 or an errno. */
static int write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put == 0 ? ENOSPC : errno;
        bytes += put;
        len -= (size_t)put;
    }
    return 0;
}

int qr_record_parts_write(qr_record_parts *parts, const qr_record_text *lines, uint64_t *num_bytes)
{
    int problem = 0;
    size_t bytes = lines->has_failed ? 0 : compress(parts, lines);
    if (bytes == 0)
        return ENOMEM;
    if (parts->fd < 0)
        problem = open_part(parts);
    if (problem != 0)
        return problem;
    problem = write_all(parts->fd, parts->packed, bytes);
    if (problem != 0) {
        if (ftruncate(parts->fd, (off_t)parts->num_bytes) == 0)
            (void)lseek(parts->fd, (off_t)parts->num_bytes, SEEK_SET);
        return problem;
    }
    parts->num_bytes += bytes;
    *num_bytes += bytes;
    if (parts->num_bytes >= parts->part_bytes) {
        (void)close(parts->fd);
        parts->fd = -1;
    }
    return 0;
}
