/* cli/options/value_list.h - several values in the place of one: "64,128,256", "1k..16k",
 * "16,64..256/+64".
 *
 *      A..B        A, 2A, 4A ... up to B
 *      A..B/xF     A, F A, F F A ... up to B; whole numbers are rounded
 *      A..B/+S     A, A + S, A + 2 S ... up to B
 *
 * Ranges are for numbers, which take the suffixes of options.h; other texts are taken as they are.
 */
#ifndef QUIRE_CLI_OPTIONS_VALUE_LIST_H
#define QUIRE_CLI_OPTIONS_VALUE_LIST_H

#include "options.h"

enum { VALUE_BYTES = 128, VALUE_LIST_MAX = 4096 };

typedef struct value_list {
    char (*values)[VALUE_BYTES];
    uint32_t num_values;
    uint32_t room;
} value_list;

/* All zero is an empty list. 0, or an exit status after a sentence in the name of the command; the
 * list is to be freed either way. */
int value_list_read(const command *cmd, const option *opt, const char *text, value_list *list);
void value_list_free(value_list *list);

#endif
