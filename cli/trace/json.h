/* cli/trace/json.h - JSON read from left to right, without a tree.
 *
 *      {"in": 7, "hash_ids": [1, 2]}      scan_open('{')  scan_field "in"  scan_number 7
 *                                         scan_field "hash_ids"  scan_open('[')  scan_element ...
 *
 * Traces are long lists of numbers, and some are one document of a gigabyte: a reader takes the
 * values that it knows, skips the others, and holds nothing else. Text comes from memory (one line)
 * or from an input, of which a window is seen at a time; a 0 byte stands behind the window.
 *
 * A call that fails sets `error`, a sentence; from then on every call fails.
 */
#ifndef QUIRE_CLI_TRACE_JSON_H
#define QUIRE_CLI_TRACE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "input.h"

enum { JSON_MAX_DEPTH = 64, JSON_NAME_BYTES = 64 };

typedef struct scanner {
    const char *at; /* window <= at <= end, *end = 0 */
    const char *end;
    const char *window;
    input *in;      /* NULL: the window is all there is */
    uint64_t limit; /* bytes of the input behind the window that belong to the text */
    uint64_t line;  /* of `counted`, which is somewhere in the window */
    const char *counted;
    bool is_first;     /* no value was read yet since the last bracket was opened */
    const char *error; /* NULL: none */
} scanner;

typedef enum scan_kind {
    JSON_NOTHING, /* the end of the text, or no value */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} scan_kind;

typedef struct scan_value {
    bool is_integer;    /* and fits into magnitude */
    bool is_negative;   /* -0 too */
    uint64_t magnitude; /* without the sign */
    double real;
    const char *text; /* for messages; not 0-terminated, valid until the next call */
    int length;
} scan_value;

typedef struct scan_text {
    char head[JSON_NAME_BYTES]; /* its first bytes, and a 0 */
    uint64_t num_bytes;         /* of all of it, as UTF-8 */
    uint64_t hash;              /* of all of it */
} scan_text;

/* Who sees each byte of a string, as UTF-8, when scan_string_to reads it. */
typedef struct scan_tap {
    void (*take)(struct scan_tap *tap, unsigned char byte);
} scan_tap;

/* text[length] must be 0. */
void scan_of_text(scanner *scan, const char *text, size_t length);
/* The next num_bytes of an input (UINT64_MAX: all). What was read is skipped in the input when the
 * window moves on, and by scan_leave. */
void scan_of_input(scanner *scan, input *in, uint64_t num_bytes);
void scan_leave(scanner *scan);
uint64_t scan_line_number(scanner *scan); /* an input's, from 1 on */

/* The kind of the value that comes next; nothing is taken. */
scan_kind scan_peek(scanner *scan);
bool scan_open(scanner *scan, char bracket);
/* 1: the name of the next field; 0: the object ended; -1: error. */
int scan_field(scanner *scan, scan_text *name);
/* 1: an element comes next; 0: the array ended; -1: error. */
int scan_element(scanner *scan);
bool scan_number(scanner *scan, scan_value *value);
bool scan_string(scanner *scan, scan_text *text);
/* The same, and all of its bytes go to the tap as well. */
bool scan_string_to(scanner *scan, scan_text *text, scan_tap *tap);
bool scan_bool(scanner *scan, bool *value);
bool scan_skip(scanner *scan);
/* Nothing but blanks is left. */
bool scan_at_end(scanner *scan);

static inline bool scan_is(const scan_text *name, const char *other)
{
    const char *a = name->head;
    while (*a != 0 && *a == *other) {
        a++;
        other++;
    }
    return *a == *other;
}

#endif
