/* http/json_check.h - whether a text is JSON, and numbers out of it; enough for these tests. */
#ifndef HTTP_JSON_CHECK_H
#define HTTP_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether it is one value of RFC 8259 and nothing else but blanks. */
bool json_check(const char *text, size_t num_bytes);
/* The number behind the first `"key":`; fails the test where there is none. */
uint64_t json_number(const char *text, const char *key);
/* How many rows the array behind `"steps":` has, and the first number of its first and last. */
uint64_t json_steps(const char *text, uint64_t *first, uint64_t *last);

#endif
