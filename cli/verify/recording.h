/* cli/verify/recording.h - the lines of a recording, one after the other, over all its parts.
 *
 *      rec.0000.jsonl.zst ─► rec.0001.jsonl.zst ─► ...     found by their names
 *
 * A part that ends within a frame was being written when the process was killed: the recording ends
 * there.
 */
#ifndef QUIRE_CLI_VERIFY_RECORDING_H
#define QUIRE_CLI_VERIFY_RECORDING_H

#include "trace/recording_line.h"

typedef struct recording recording;

/* The first part. NULL, and a sentence. */
recording *recording_open(const char *path);
/* 1: a line, valid until the next call; 0: the end; -1 and a sentence. */
int recording_next(recording *rec, const recording_line **line);
/* "rec.0000.jsonl.zst:17": where the last line stands; valid until the next call. */
const char *recording_place(recording *rec);
void recording_close(recording *rec);

#endif
