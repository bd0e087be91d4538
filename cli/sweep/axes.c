#include "axes.h"
#include "output/file_uses.h"
#include "output/made_by.h"
#include "trace/files.h"

#include <errno.h>
#include <unistd.h>

int axes_take(const command *cmd, sweep *s, const option *opt, const char *text)
{
    uint32_t at = 0;
    while (at < s->num_axes && s->axes[at].option != opt)
        at++;
    if (at == SWEEP_MAX_AXES)
        return command_error(cmd, "more than %d options with lists", SWEEP_MAX_AXES);
    if (at == s->num_axes)
        s->num_axes++;
    else
        value_list_free(&s->axes[at].list);
    s->axes[at].option = opt;
    return value_list_read(cmd, opt, text, &s->axes[at].list);
}

int axes_set(const command *cmd, const sweep *s, uint32_t point, void (*reset)(void))
{
    int status = 0;
    reset();
    for (uint32_t i = 0; i < s->num_axes && status == 0; i++)
        status = option_set(cmd, s->axes[i].option, sweep_value(s, point, i));
    return status;
}

const value_list *axes_find(const sweep *s, const char *name)
{
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (strcmp(s->axes[i].option->name, name) == 0)
            return &s->axes[i].list;
    return NULL;
}

static int check_traces(const command *cmd, sweep *s)
{
    static char names[TRACE_NAMES_BYTES];
    uint32_t num_traces = (uint32_t)cmd->num_arguments;
    s->trace = trace_names(names, cmd->arguments, num_traces);
    for (uint32_t i = 0; i < num_traces; i++) {
        const char *path = cmd->arguments[i];
        if (strcmp(path, "-") == 0)
            return command_error(cmd, "TRACE cannot be standard input: a %s reads it several times",
                                 cmd->name);
        if (access(path, R_OK) != 0)
            return command_failed(cmd, "%s: %s", path, strerror(errno));
    }
    return 0;
}

/* The files that points read are not among the options that command_parse sees. */
static int check_files(const command *cmd, const sweep *s)
{
    file_uses all = {.cmd = cmd};
    file_uses_add_command(&all);
    for (uint32_t i = 0; i < s->num_axes; i++) {
        const sweep_axis *axis = &s->axes[i];
        for (uint32_t k = 0; option_is_file(axis->option) && k < axis->list.num_values; k++)
            file_uses_add(&all, axis->option->name, axis->list.values[k], false);
    }
    int status = file_uses_check(&all);
    file_uses_free(&all);
    return status;
}

/* A value that no option takes is found before the first point runs. */
static int check_points(const command *cmd, const sweep *s, void (*reset)(void))
{
    uint64_t num_points = 1;
    for (uint32_t i = 0; i < s->num_axes; i++) {
        num_points *= s->axes[i].list.num_values;
        if (num_points > SWEEP_MAX_POINTS)
            return command_error(cmd, "too many combinations of options (at most %d)",
                                 SWEEP_MAX_POINTS);
    }
    int status = 0;
    for (uint32_t i = 0; i < num_points && status == 0; i++)
        status = axes_set(cmd, s, i, reset);
    return status;
}

/* The record of the command: an option that was given has a list of values. */
static json_t *record_of(const command *cmd, const sweep *s)
{
    json_t *record = made_by(cmd);
    json_t *options = json_object_get(record, "options");
    json_object_set(record, "trace", s->trace_record);
    for (uint32_t i = 0; i < s->num_axes; i++) {
        const value_list *list = &s->axes[i].list;
        json_t *values = json_array();
        for (uint32_t v = 0; v < list->num_values; v++)
            json_array_append_new(values, json_string(list->values[v]));
        json_object_del(options, s->axes[i].option->name); /* axes last, in their order */
        json_object_set_new(options, s->axes[i].option->name, values);
    }
    return record;
}

int axes_check(const command *cmd, sweep *s, void (*reset)(void))
{
    int status = check_traces(cmd, s);
    if (status == 0)
        status = check_files(cmd, s);
    if (status == 0)
        status = check_points(cmd, s, reset);
    if (status != 0)
        return status;
    reset();
    s->trace_record = made_by_traces(cmd->arguments, (uint32_t)cmd->num_arguments);
    s->made_by = record_of(cmd, s);
    return 0;
}
