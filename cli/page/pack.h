/* cli/page/pack.h - numbers as short text: what the page's data is made of.
 *
 *      7 8 9 10 8  ──differences──►  +7, +1 three times, -2  ──7 bits a byte──►  1c 05 02 06
 *                                                            ──base64──►  "HAUCBg=="
 *
 * A difference d is the number 2 (2d) for d >= 0 and 2 (-2d - 1) for d < 0; one more says that the
 * next number tells how often it comes again. Columns of a run hardly change from step to step.
 *
 * A pack is a buffer that grows. Where memory runs out it stays as it is and is_failed is set, so
 * that only the end of a row of calls has to look.
 */
#ifndef QUIRE_CLI_PAGE_PACK_H
#define QUIRE_CLI_PAGE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct pack {
    unsigned char *bytes; /* to be freed */
    size_t size;
    size_t capacity;
    uint64_t last;    /* of pack_next */
    uint64_t waiting; /* the difference that is not written yet, and how often it came */
    uint64_t num_waiting;
    bool is_failed;
} pack;

void pack_number(pack *p, uint64_t number);                  /* 7 bits a byte, low ones first */
void pack_next(pack *p, uint64_t number);                    /* as difference to the one before */
void pack_from(pack *p, uint64_t number, uint64_t expected); /* to another one */
/* Runs of equal bytes: behind c < 128 stand c + 1 bytes as they are; behind c >= 128 one byte that
 * comes c - 126 times. */
void pack_runs(pack *p, const unsigned char *bytes, size_t n);

/* As a JSON string, with quotes; the pack is empty then, and keeps its memory. */
void pack_print(pack *p, FILE *out);
/* JSON that is there already; NULL: null. No '<' comes out, so that no text can end the element it
 * is in. */
void pack_print_json(const char *json, FILE *out);

#endif
