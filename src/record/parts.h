/* record/parts.h - the files of a recording: compressed frames, one part after the other.
 *
 *      NAME.0000.jsonl.zst   | frame | frame | frame |      a frame begins and ends with a line
 *      NAME.0001.jsonl.zst   | frame | ...                  each part begins with a header line
 *
 * A frame is written with one call. If the disk takes only a part of it, the file is cut back to
 * the frame before: a part is always a row of whole frames.
 */
#ifndef QR_RECORD_PARTS_H
#define QR_RECORD_PARTS_H

#include "record/text.h"

#include <quire/config.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct qr_record_parts {
    char name[PATH_MAX];  /* without ".0000.jsonl.zst" */
    char path[PATH_MAX];  /* of the part */
    char first[PATH_MAX]; /* of the first part */
    int fd;               /* -1: the next frame begins a part */
    uint32_t number;      /* of the next part */
    uint64_t part_bytes;  /* a part that has as many ends */
    uint64_t num_bytes;   /* of the part */
    void *context;        /* of zstd */
    uint32_t level;
    char *packed;
    size_t packed_room;
} qr_record_parts;

/* Creates the first part. QUIRE_OK, QUIRE_E_ARGUMENT, QUIRE_E_SYSTEM or QUIRE_E_NOMEM, with a
 * sentence. */
int qr_record_parts_open(qr_record_parts *parts, const char *path, uint64_t part_bytes,
                         uint32_t level);
void qr_record_parts_close(qr_record_parts *parts);
/* Whether the next frame begins a part, and needs a header line. */
bool qr_record_parts_is_new(const qr_record_parts *parts);
/* Compresses the lines and writes them. 0, or an errno: nothing of them is in the file. */
int qr_record_parts_write(qr_record_parts *parts, const qr_record_text *lines, uint64_t *num_bytes);

#endif
