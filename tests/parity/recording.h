/* parity/recording.h - reading what vLLM answered, and comparing.
 *
 *      quire-parity 1 pool seed 7 runs 1 count 50008        what it is, and how much must be in it;
 *                                                           then "vllm 0.32", unless it is 0.20
 *      seed 7
 *      pool 64 1 32                                         a case starts
 *      n3 5 a1f                                             operation, arguments, fingerprint
 *      # n=1,2,3,4,5||58 0.07...                            with --explain: the answer in full
 *      end 93e1f0c27d5a8b46                                 the whole fingerprint
 *
 * Both sides write each answer as the same text and run FNV-1a over all texts of a case. The
 * recording has 12 bits of it after each operation, which say where a difference began, and all 64
 * at the end of the case. A hash recording carries hashes instead; see README.md.
 *
 * Every function fails the running cmocka test when the recording is not as expected, and says
 * file, line, operation, expected and got.
 */
#ifndef PARITY_RECORDING_H
#define PARITY_RECORDING_H

#include <quire/config.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Text that grows. */
typedef struct text {
    char *data;
    size_t len;
    size_t capacity;
} text;

void text_clear(text *t);
void text_add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ids with commas between them, or "-". */
void text_add_ids(text *t, const uint32_t *ids, uint32_t count);
void text_free(text *t);

typedef struct recording {
    FILE *file;
    const char *path;
    char *line;   /* as it was read */
    char *words;  /* its copy, cut into words */
    char *cursor; /* the next word */
    size_t capacity;
    unsigned long line_number;
    quire_profile profile; /* of the release that was recorded */
    uint64_t runs;
    uint64_t count;    /* checks that the header promises */
    uint64_t compared; /* checks made */
    uint64_t runs_seen;
    uint64_t fingerprint;
    text answer; /* of the operation under way */
} recording;

void recording_open(recording *r, const char *path, const char *kind);
/* The next line; false at the end. Comments are passed over, and so are `seed` lines, counted. */
bool recording_next(recording *r);
/* Fails unless all that the header promised was compared; prints how much it was. */
void recording_close(recording *r);

/* The next word of the line, and the next word as something. */
char *recording_word(recording *r);
uint64_t recording_number(recording *r);
uint32_t recording_u32(recording *r);
/* "1,2,3" or "-"; returns how many. */
uint32_t recording_ids(recording *r, uint32_t *ids, uint32_t capacity);
/* The bytes of a hexadecimal word, at most capacity; returns how many. */
size_t recording_hex(recording *r, const char *word, unsigned char *out, size_t capacity);

/* Starts a case: the fingerprint begins anew. */
void recording_start_case(recording *r);
/* Takes the values of the fields that QUIRE_PARITY_IGNORE names (as in "common,zero") out of
 * r->answer: tools/newer takes them out of the recording and looks past a known difference. */
void recording_ignore_fields(recording *r);
/* Compares r->answer through the fingerprint in the next word, and clears it. */
void recording_check_answer(recording *r);
/* Compares the whole fingerprint, at the end of a case. */
void recording_check_case(recording *r);
/* Compares bytes with a hexadecimal word that may be only their beginning. */
void recording_check_bytes(recording *r, const char *what, const char *word,
                           const unsigned char *got, size_t len);
/* Fails unless the condition holds. */
void recording_expect(recording *r, bool holds, const char *what);
/* Fails with both sides said. */
void recording_differs(recording *r, const char *what, const char *expected, const char *got);

/* argv[1] or the committed recording of this kind. */
const char *recording_path(int argc, char **argv, const char *committed);

#endif
