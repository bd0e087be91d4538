#include "fields.h"

#include "output/failure.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64, MAX_FIELDS = 24, LIST_BYTES = 256 };

bool fields_name(const char *text, char *name, size_t bytes, const char **rest)
{
    size_t n = strcspn(text, ":");
    *rest = text[n] == ':' ? text + n + 1 : text + n;
    if (n >= bytes)
        return false;
    memcpy(name, text, n);
    name[n] = '\0';
    return true;
}

/* The place of the field; -1: there is none. */
static int place_of(const field *table, const char *name, size_t length)
{
    for (int i = 0; table[i].name != NULL; i++)
        if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0)
            return i;
    return -1;
}

static int no_field(const char *what, const char *text, size_t length, const field *table)
{
    char list[LIST_BYTES] = "";
    size_t n = 0;
    for (uint32_t i = 0; table[i].name != NULL && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i == 0 ? "" : ", ", table[i].name);
    return fail_with("%s has no field \"%.*s\" (expected %s)", what, (int)length, text, list);
}

static int read_value(const char *what, const field *f, const char *text, size_t length,
                      double *value)
{
    char number[NAME_BYTES];
    char *end = number;
    bool is_short = length > 0 && length < sizeof number;
    if (is_short) {
        memcpy(number, text, length);
        number[length] = '\0';
        *value = strtod(number, &end);
    }
    bool is_number = is_short && *end == '\0' && end != number && *value >= f->min &&
                     *value <= f->max && (!f->is_whole || *value == floor(*value));
    if (is_number)
        return 0;
    return fail_with("invalid value \"%.*s\" for %s of %s (expected %s%.12g to %.12g)", (int)length,
                     text, f->name, what, f->is_whole ? "a whole number from " : "", f->min,
                     f->max);
}

int fields_read(const char *what, const char *text, const field *table, double *values)
{
    bool is_given[MAX_FIELDS] = {false};
    for (int i = 0; table[i].name != NULL; i++)
        values[i] = table[i].value;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        size_t name = strcspn(text, "=,");
        int i = place_of(table, text, name);
        if (i < 0)
            return no_field(what, text, name, table);
        if (is_given[i])
            return fail_with("%s of %s is given twice", table[i].name, what);
        is_given[i] = true;
        size_t from = name < length ? name + 1 : length;
        if (read_value(what, &table[i], text + from, length - from, &values[i]) != 0)
            return -1;
        text += length;
        text += *text == ',';
    }
    for (int i = 0; table[i].name != NULL; i++)
        if (isnan(values[i]))
            return fail_with("%s needs %s=VALUE (%.12g to %.12g)", what, table[i].name,
                             table[i].min, table[i].max);
    return 0;
}
