/* record/record_kit.h - a folder for recordings, and what a test reads of them. */
#ifndef RECORD_KIT_H
#define RECORD_KIT_H

#include <quire/record.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

typedef struct folder {
    char path[64];
} folder;

/* An empty one. */
void folder_open(folder *f);
void folder_close(folder *f);
/* The path of a file in it; valid until the next call. */
const char *folder_file(const folder *f, const char *name);

quire_recorder *recorder_open(const quire_recorder_config *config);
/* The lines of a part: freed by the caller. Fails the test if a frame is broken. NULL: no file. */
char *part_read(const char *path);
/* All parts of NAME, one behind the other. */
char *parts_read(const folder *f, const char *name, uint32_t *num_parts);
uint32_t text_count(const char *text, const char *what);
/* The number behind the last `field` of the text. */
double text_last_number(const char *text, const char *field);

/* A request with so many hashes, which begin with `seed`. */
quire_recorded_request request_with(unsigned char hashes[][32], uint32_t num_hashes, int seed);

#endif
