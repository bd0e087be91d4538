#include "value_list.h"

#include "output/grown.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void value_list_free(value_list *list)
{
    free(list->values);
    *list = (value_list){0};
}

static int append(const command *cmd, const option *opt, const char *value, value_list *list)
{
    if (list->num_values == VALUE_LIST_MAX)
        return command_error(cmd, "too many values for --%s (at most %d)", opt->name,
                             VALUE_LIST_MAX);
    if (strlen(value) >= VALUE_BYTES)
        return command_error(cmd, "--%s: \"%.40s...\" is too long in a list", opt->name, value);
    if (!grow(&list->values, list->num_values, &list->room, VALUE_LIST_MAX, VALUE_BYTES))
        return command_error(cmd, "not enough memory");
    memcpy(list->values[list->num_values++], value, strlen(value) + 1);
    return 0;
}

/* A number as the option itself would read it, with the same sentence where it would not. */
static int read_number(const command *cmd, const option *opt, const char *text, double *number)
{
    option one = *opt;
    one.kind = OPTION_REAL;
    one.value = number;
    one.is_given = NULL;
    return option_set(cmd, &one, text);
}

static int append_number(const command *cmd, const option *opt, double number, value_list *list)
{
    char text[VALUE_BYTES];
    if (opt->kind == OPTION_REAL)
        snprintf(text, sizeof text, "%.10g", number);
    else
        snprintf(text, sizeof text, "%.0f", number);
    if (list->num_values > 0 && strcmp(list->values[list->num_values - 1], text) == 0)
        return 0; /* rounded to the one before */
    return append(cmd, opt, text, list);
}

/* "A..B/xF", cut into its parts in place. */
static int append_range(const command *cmd, const option *opt, char *text, value_list *list)
{
    double first = 0;
    double last = 0;
    double step = 2;
    char *dots = strstr(text, "..");
    char *slash = strchr(text, '/');
    bool is_sum = slash != NULL && slash[1] == '+';
    *dots = '\0';
    if (slash != NULL) {
        char *end;
        *slash = '\0';
        step = strtod(slash + 2, &end);
        bool is_factor = slash[1] == 'x' && step > 1;
        if (end == slash + 2 || *end != '\0' || !(is_factor || (is_sum && step > 0)))
            return command_error(
                cmd, "invalid step for --%s (expected /xFACTOR above 1, or /+DISTANCE above 0)",
                opt->name);
    }
    int status = read_number(cmd, opt, text, &first);
    if (status == 0)
        status = read_number(cmd, opt, dots + 2, &last);
    if (status == 0 && (last < first || first <= 0))
        status = command_error(
            cmd, "--%s: invalid range %s..%s (expected a number above 0, then a larger number)",
            opt->name, text, dots + 2);
    double slack = last * 1e-9; /* powers of a factor are not exact */
    for (double at = first; status == 0 && at <= last + slack; at = is_sum ? at + step : at * step)
        status = append_number(cmd, opt, at, list);
    return status;
}

int value_list_read(const command *cmd, const option *opt, const char *text, value_list *list)
{
    const char *separator = opt->has_commas ? ";" : ",";
    for (const char *at = text;;) {
        char part[VALUE_BYTES];
        size_t length = strcspn(at, separator);
        if (length == 0 || length >= sizeof part)
            return command_error(cmd,
                                 "invalid list \"%s\" for --%s (expected values with \"%s\" "
                                 "between them)",
                                 text, opt->name, separator);
        memcpy(part, at, length);
        part[length] = '\0';
        int status = option_is_number(opt) && strstr(part, "..") != NULL
                         ? append_range(cmd, opt, part, list)
                         : append(cmd, opt, part, list);
        if (status != 0)
            return status;
        if (at[length] == '\0')
            return 0;
        at += length + 1;
    }
}
