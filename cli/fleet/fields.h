/* cli/fleet/fields.h - "NAME:FIELD=VALUE,FIELD=VALUE" with a table of fields, all of them numbers.
 *
 *      static const field crash[] = {{"worker", NAN, 0, 15, .is_whole = true},
 *                                    {"at", NAN, 0, 1e9},
 *                                    {"restart", HUGE_VAL, 0, 1e9}, {0}};
 *      double values[3];
 *      fields_read("crash", "worker=3,at=120", crash, values);
 */
#ifndef QUIRE_CLI_FLEET_FIELDS_H
#define QUIRE_CLI_FLEET_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct field {
    const char *name; /* NULL behind the last one */
    double value;     /* without the field; NAN: the field must be there */
    double min;
    double max;
    bool is_whole;
} field;

/* The text before the colon; what follows it, "" if nothing does, is in *rest. False: the name has
 * `bytes` characters or more. */
bool fields_name(const char *text, char *name, size_t bytes, const char **rest);
/* One value for each field of the table. 0; or -1, and a sentence (failure.h) that names the field,
 * its value and its range. `what` is the name before the colon, for the sentence. */
int fields_read(const char *what, const char *text, const field *table, double *values);

#endif
