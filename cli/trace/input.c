/* cli/trace/input.c - bytes from a file or memory, unpacked on the way into one buffer. */
#include "input.h"
#include "output/failure.h"
#include "output/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
    FIRST_BYTES = 1 << 12, /* of the buffer: a small file stays cheap */
    STEP_BYTES = 1 << 17,  /* read or unpacked at once, later */
    MAX_WINDOW_LOG = 30,   /* zstd --long: up to 1 GiB is looked back */
    MAGIC_BYTES = 5,
    LOOK_MS = 200,              /* for a signal, while there is nothing to read */
    GZIP_WINDOW_BITS = 15 + 16, /* zlib: the largest window, in gzip's wrapping */
};

typedef enum packing { PLAIN, ZSTD, GZIP } packing;

struct input {
    int fd;                     /* -1: from memory */
    const unsigned char *bytes; /* from memory: what is left */
    size_t num_bytes;
    char *name;
    packing packing;
    bool can_wait;        /* a pipe or a terminal, which may have nothing for now */
    bool is_at_end;       /* of the file */
    bool is_inside_frame; /* packed: the end of the file would be too early here */
    bool is_truncated;
    char *buffer; /* at <= end < capacity, buffer[end] = 0 */
    size_t at;
    size_t end;
    size_t capacity;
    unsigned char *raw; /* packed: what was read and not unpacked yet */
    size_t raw_at;
    size_t raw_end;
    ZSTD_DCtx *zstd;
    z_stream gzip;
    uint64_t position; /* bytes that were read */
    uint64_t unpacked; /* bytes that came of them */
    uint64_t size;
    uint64_t line_number;
    char message[INPUT_MESSAGE_BYTES]; /* "": no error */
};

static void fail(input *in, const char *what, const char *why)
{
    if (in->message[0] == 0)
        snprintf(in->message, sizeof in->message, "%s: %s%s%s", in->name, what, why[0] ? ": " : "",
                 why);
}

/* Until there is something to read. False: Ctrl-C or SIGTERM came; it may come just before poll. */
static bool wait_for_bytes(const input *in)
{
    struct pollfd at = {.fd = in->fd, .events = POLLIN};
    while (poll(&at, 1, LOOK_MS) <= 0)
        if (interrupt_came())
            return false;
    return true;
}

/* Bytes of the file itself; 0 at its end and after an error. */
static size_t read_raw(input *in, void *into, size_t room)
{
    if (in->fd < 0) {
        size_t n = in->num_bytes < room ? in->num_bytes : room;
        if (n > 0)
            memcpy(into, in->bytes, n);
        in->bytes += n;
        in->num_bytes -= n;
        in->position += n;
        return n;
    }
    ssize_t n;
    if (in->can_wait && !wait_for_bytes(in)) {
        fail(in, "interrupted", "");
        return 0;
    }
    do {
        n = read(in->fd, into, room);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        fail(in, "cannot be read", strerror(errno));
        return 0;
    }
    in->position += (size_t)n;
    return (size_t)n;
}

/* More packed bytes; false at the end. */
static bool refill_raw(input *in)
{
    if (in->raw_at < in->raw_end)
        return true;
    in->raw_at = 0;
    in->raw_end = read_raw(in, in->raw, STEP_BYTES);
    return in->raw_end > 0;
}

static size_t unpack_zstd(input *in, char *into, size_t room)
{
    ZSTD_outBuffer out = {into, room, 0};
    while (out.pos == 0 && refill_raw(in)) {
        ZSTD_inBuffer from = {in->raw, in->raw_end, in->raw_at};
        size_t left = ZSTD_decompressStream(in->zstd, &out, &from);
        in->raw_at = from.pos;
        if (ZSTD_isError(left)) {
            fail(in, "is a corrupt zstd file", ZSTD_getErrorName(left));
            return 0;
        }
        in->is_inside_frame = left != 0;
    }
    return out.pos;
}

/* Behind a member stands another one, or zeros that a tape was filled up with. */
static bool next_member(input *in)
{
    while (refill_raw(in) && in->raw[in->raw_at] == 0)
        in->raw_at++;
    if (in->raw_at == in->raw_end)
        return false;
    if (inflateReset(&in->gzip) != Z_OK)
        return false;
    in->is_inside_frame = true;
    return true;
}

static size_t unpack_gzip(input *in, char *into, size_t room)
{
    size_t done = 0;
    while (done == 0 && (in->is_inside_frame || next_member(in))) {
        if (!refill_raw(in))
            break;
        in->gzip.next_in = in->raw + in->raw_at;
        in->gzip.avail_in = (uInt)(in->raw_end - in->raw_at);
        in->gzip.next_out = (Bytef *)into;
        in->gzip.avail_out = (uInt)room;
        int status = inflate(&in->gzip, Z_NO_FLUSH);
        in->raw_at = in->raw_end - in->gzip.avail_in;
        done = room - in->gzip.avail_out;
        if (status == Z_STREAM_END)
            in->is_inside_frame = false;
        else if (status != Z_OK && status != Z_BUF_ERROR) {
            fail(in, "is a corrupt gzip file", in->gzip.msg != NULL ? in->gzip.msg : "");
            return 0;
        }
    }
    return done;
}

/* Room for num_bytes behind `at`, and the 0 byte. */
static bool make_room(input *in, size_t num_bytes)
{
    if (in->at > 0 && in->at + num_bytes >= in->capacity) {
        memmove(in->buffer, in->buffer + in->at, in->end - in->at + 1);
        in->end -= in->at;
        in->at = 0;
    }
    if (num_bytes < in->capacity)
        return true;
    size_t capacity = in->capacity;
    while (capacity <= num_bytes)
        capacity *= 2;
    char *buffer = realloc(in->buffer, capacity);
    if (buffer == NULL) {
        fail(in, "no memory for its lines", "");
        return false;
    }
    in->buffer = buffer;
    in->capacity = capacity;
    return true;
}

/* Some bytes more; false at the end and after an error. */
static bool fill(input *in)
{
    if (in->is_at_end || in->message[0] != 0)
        return false;
    size_t step = in->end - in->at < STEP_BYTES ? in->end - in->at : STEP_BYTES;
    if (step < FIRST_BYTES / 2)
        step = in->fd < 0 ? FIRST_BYTES / 2 : STEP_BYTES;
    if (!make_room(in, in->end - in->at + step))
        return false;
    char *into = in->buffer + in->end;
    size_t room = in->capacity - in->end - 1;
    size_t n;
    if (in->packing == ZSTD)
        n = unpack_zstd(in, into, room);
    else if (in->packing == GZIP)
        n = unpack_gzip(in, into, room);
    else
        n = read_raw(in, into, room);
    in->end += n;
    in->unpacked += n;
    in->buffer[in->end] = 0;
    if (n > 0)
        return true;
    in->is_at_end = true;
    if (in->is_inside_frame) {
        in->is_truncated = in->message[0] == 0;
        fail(in, "is truncated: its compressed data ends too early", "");
    }
    return false;
}

/* ---- opening --------------------------------------------------------------- */

static packing packing_of(const unsigned char *head, size_t n)
{
    if (n >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        return GZIP;
    if (n < 4)
        return PLAIN;
    bool is_frame = head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd;
    bool is_skippable =
        (head[0] & 0xf0) == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18;
    return is_frame || is_skippable ? ZSTD : PLAIN;
}

/* A program that packed the file and that cannot be undone here; NULL: none. */
static const char *foreign_packing(const unsigned char *head, size_t n)
{
    static const struct {
        const char *magic;
        const char *name;
    } known[] = {{"\xfd"
                  "7zXZ",
                  "xz"},
                 {"BZh", "bzip2"},
                 {"PK\x03\x04", "zip"},
                 {"7z\xbc\xaf", "7-Zip"},
                 {"\x04\x22\x4d\x18", "lz4"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= strlen(known[i].magic) &&
            memcmp(head, known[i].magic, strlen(known[i].magic)) == 0)
            return known[i].name;
    return NULL;
}

static bool start_zstd(input *in)
{
    in->zstd = ZSTD_createDCtx();
    return in->zstd != NULL &&
           !ZSTD_isError(ZSTD_DCtx_setParameter(in->zstd, ZSTD_d_windowLogMax, MAX_WINDOW_LOG));
}

/* Looks at the first bytes, and moves them to where packed bytes wait if they are. */
static bool find_packing(input *in)
{
    while (in->end < MAGIC_BYTES && fill(in))
        ;
    if (in->message[0] != 0)
        return false;
    in->packing = packing_of((const unsigned char *)in->buffer, in->end);
    const char *foreign = foreign_packing((const unsigned char *)in->buffer, in->end);
    if (foreign != NULL) {
        char what[96];
        snprintf(what, sizeof what,
                 "is compressed with %s; decompress it first (zstd, gzip and plain files are read)",
                 foreign);
        fail(in, what, "");
        return false;
    }
    if (in->packing == PLAIN)
        return true;
    size_t room = in->end > STEP_BYTES ? in->end : STEP_BYTES;
    in->raw = malloc(room);
    bool is_ready = in->raw != NULL;
    if (is_ready && in->packing == ZSTD)
        is_ready = start_zstd(in);
    if (is_ready && in->packing == GZIP)
        is_ready = inflateInit2(&in->gzip, GZIP_WINDOW_BITS) == Z_OK;
    if (!is_ready) {
        fail(in, "out of memory while decompressing it", "");
        return false;
    }
    memcpy(in->raw, in->buffer, in->end);
    in->raw_end = in->end;
    in->is_at_end = false; /* there is more to unpack, even if no more to read */
    in->unpacked = 0;
    in->end = 0;
    in->buffer[0] = 0;
    in->is_inside_frame = true;
    return true;
}

static input *create(const char *name, int fd)
{
    input *in = calloc(1, sizeof *in);
    if (in == NULL)
        return NULL;
    in->fd = fd;
    in->capacity = FIRST_BYTES;
    in->buffer = malloc(in->capacity);
    in->name = strdup(name);
    if (in->buffer == NULL || in->name == NULL) {
        in->fd = -1; /* the caller's still */
        input_close(in);
        return NULL;
    }
    in->buffer[0] = 0;
    return in;
}

input *input_open(const char *path)
{
    bool is_standard = strcmp(path, "-") == 0;
    int fd = is_standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fail_with("%s: cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    input *in = create(is_standard ? "standard input" : path, fd);
    if (in == NULL) {
        fail_with("%s: no memory to read it", path);
        if (!is_standard)
            close(fd);
        return NULL;
    }
    struct stat status;
    bool is_known = fstat(fd, &status) == 0;
    if (is_known && S_ISREG(status.st_mode))
        in->size = (uint64_t)status.st_size;
    in->can_wait = is_known && !S_ISREG(status.st_mode);
    if (find_packing(in))
        return in;
    fail_with("%s", in->message);
    input_close(in);
    return NULL;
}

input *input_of_bytes(const void *bytes, size_t num_bytes)
{
    input *in = create("bytes", -1);
    if (in == NULL)
        return NULL;
    in->bytes = bytes;
    in->num_bytes = num_bytes;
    in->size = num_bytes;
    if (find_packing(in))
        return in;
    input_close(in);
    return NULL;
}

void input_close(input *in)
{
    if (in == NULL)
        return;
    if (in->fd > STDIN_FILENO)
        close(in->fd);
    if (in->packing == GZIP)
        inflateEnd(&in->gzip);
    ZSTD_freeDCtx(in->zstd);
    free(in->raw);
    free(in->buffer);
    free(in->name);
    free(in);
}

/* ---- reading --------------------------------------------------------------- */

size_t input_ahead(input *in, size_t want)
{
    if (want > INPUT_MAX_LINE_BYTES)
        want = INPUT_MAX_LINE_BYTES;
    while (in->end - in->at < want && fill(in))
        ;
    return in->end - in->at;
}

const char *input_bytes(const input *in)
{
    return in->buffer + in->at;
}

void input_skip(input *in, size_t num_bytes)
{
    in->at += num_bytes;
    if (in->at == in->end) {
        in->at = 0;
        in->end = 0;
        in->buffer[0] = 0;
    }
}

/* The next newline, from `known` bytes behind `at` on; NULL: there is none any more. */
static char *find_newline(input *in)
{
    size_t known = 0;
    for (;;) {
        char *from = in->buffer + in->at;
        char *newline = memchr(from + known, '\n', in->end - in->at - known);
        if (newline != NULL)
            return newline;
        known = in->end - in->at;
        if (known > INPUT_MAX_LINE_BYTES) {
            char why[64];
            snprintf(why, sizeof why, "line %llu is longer than %d MiB",
                     (unsigned long long)in->line_number + 1, INPUT_MAX_LINE_BYTES >> 20);
            fail(in, why, "");
            return NULL;
        }
        if (!fill(in))
            return NULL;
    }
}

int input_line(input *in, char **line, size_t *length)
{
    if (in->line_number == 0 && input_ahead(in, 3) >= 3 &&
        memcmp(input_bytes(in), "\xef\xbb\xbf", 3) == 0)
        in->at += 3;
    char *newline = find_newline(in);
    if (in->message[0] != 0)
        return -1;
    if (newline == NULL && in->at == in->end)
        return 0;
    char *end = newline != NULL ? newline : in->buffer + in->end;
    *line = in->buffer + in->at;
    in->at = (size_t)(end - in->buffer) + (newline != NULL);
    if (end > *line && end[-1] == '\r')
        end--;
    *end = 0;
    *length = (size_t)(end - *line);
    in->line_number++;
    return 1;
}

uint64_t input_line_number(const input *in)
{
    return in->line_number;
}

const char *input_name(const input *in)
{
    return in->name;
}

const char *input_error(const input *in)
{
    return in->message[0] != 0 ? in->message : NULL;
}

bool input_is_truncated(const input *in)
{
    return in->is_truncated;
}

/* What waits in the buffer is not taken yet; of packed bytes, as large a part. */
uint64_t input_position(const input *in)
{
    uint64_t used = in->position - (in->raw_end - in->raw_at);
    if (in->unpacked == 0)
        return 0;
    double taken = (double)(in->unpacked - (in->end - in->at)) / (double)in->unpacked;
    return (uint64_t)((double)used * taken);
}

uint64_t input_size(const input *in)
{
    return in->size;
}
