/* cli/trace_json.h - JSON read from left to right, without a tree.
 *
 *      {"in": 7, "hash_ids": [1, 2]}      json_open('{')  json_field "in"  json_number 7
 *                                         json_field "hash_ids"  json_open('[')  json_element ...
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

typedef struct json_scan {
    const char *at; /* window <= at <= end, *end = 0 */
    const char *end;
    const char *window;
    input *in;      /* NULL: the window is all there is */
    uint64_t limit; /* bytes of the input behind the window that belong to the text */
    uint64_t line;  /* of `counted`, which is somewhere in the window */
    const char *counted;
    bool is_first;     /* no value was read yet since the last bracket was opened */
    const char *error; /* NULL: none */
} json_scan;

typedef enum json_kind {
    JSON_NOTHING, /* the end of the text, or no value */
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_value {
    bool is_integer;    /* and fits into magnitude */
    bool is_negative;   /* -0 too */
    uint64_t magnitude; /* without the sign */
    double real;
    const char *text; /* for messages; not 0-terminated, valid until the next call */
    int length;
} json_value;

typedef struct json_text {
    char head[JSON_NAME_BYTES]; /* its first bytes, and a 0 */
    uint64_t num_bytes;         /* of all of it, as UTF-8 */
    uint64_t hash;              /* of all of it */
} json_text;

/* text[length] must be 0. */
void json_of_text(json_scan *scan, const char *text, size_t length);
/* The next num_bytes of an input (UINT64_MAX: all). What was read is skipped in the input when the
 * window moves on, and by json_leave. */
void json_of_input(json_scan *scan, input *in, uint64_t num_bytes);
void json_leave(json_scan *scan);
uint64_t json_line_number(json_scan *scan); /* an input's, from 1 on */

/* The kind of the value that comes next; nothing is taken. */
json_kind json_peek(json_scan *scan);
bool json_open(json_scan *scan, char bracket);
/* 1: the name of the next field; 0: the object ended; -1: error. */
int json_field(json_scan *scan, json_text *name);
/* 1: an element comes next; 0: the array ended; -1: error. */
int json_element(json_scan *scan);
bool json_number(json_scan *scan, json_value *value);
bool json_string(json_scan *scan, json_text *text);
bool json_bool(json_scan *scan, bool *value);
bool json_skip(json_scan *scan);
/* Nothing but blanks is left. */
bool json_at_end(json_scan *scan);

static inline bool json_is(const json_text *name, const char *other)
{
    const char *a = name->head;
    while (*a != 0 && *a == *other) {
        a++;
        other++;
    }
    return *a == *other;
}

#endif
