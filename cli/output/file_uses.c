#include "file_uses.h"
#include "file_target.h"
#include "output.h"
#include "output/grown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 96 };

bool option_is_file(const option *opt)
{
    return opt->kind == OPTION_TEXT && opt->argument != NULL &&
           strstr(opt->argument, "FILE") != NULL;
}

void file_uses_add(file_uses *all, const char *name, const char *path, bool is_written)
{
    if (path == NULL)
        return;
    file_use use = {.option = name, .path = path, .is_written = is_written};
    if (grow(&all->uses, all->num_uses, &all->room, UINT32_MAX, sizeof use))
        all->uses[all->num_uses++] = use;
    else
        all->no_memory = true;
}

/* A folder that cannot be read is refused when it is opened. */
static void add_argument(file_uses *all, const char *path)
{
    trace_files *files = &all->folders[all->num_folders];
    if (!trace_is_folder(path)) {
        file_uses_add(all, NULL, path, false);
    } else if (trace_files_find(files, path)) {
        all->num_folders++;
        for (uint32_t i = 0; i < files->count; i++)
            file_uses_add(all, NULL, files->paths[i], false);
    }
}

void file_uses_add_command(file_uses *all)
{
    const command *cmd = all->cmd;
    for (const option *opt = cmd->options; opt != NULL && opt->name != NULL; opt++)
        if (option_is_file(opt))
            file_uses_add(all, opt->name, *(const char **)opt->value, opt->role != OPTION_SETTING);
    for (int i = 0; cmd->reads_arguments && i < cmd->num_arguments; i++)
        add_argument(all, cmd->arguments[i]);
}

void file_uses_free(file_uses *all)
{
    for (uint32_t i = 0; i < all->num_folders; i++)
        trace_files_free(&all->folders[i]);
    free(all->uses);
    *all = (file_uses){.cmd = all->cmd};
}

/* ---- the check ------------------------------------------------------------- */

/* A preset's name is no file, and a path that cannot be looked up fails when it is opened. */
static bool find(const file_use *use, file_target *target)
{
    if (strcmp(use->path, "-") == 0)
        return file_target_of_descriptor(use->is_written ? STDOUT_FILENO : STDIN_FILENO, target) ==
               0;
    return file_target_find(use->path, target) == 0;
}

/* Bytes of two writers would be mixed, or a reader would read what is being written. */
static bool keeps_bytes(const file_target *t)
{
    return !t->exists || S_ISREG(t->status.st_mode) || S_ISFIFO(t->status.st_mode) ||
           S_ISBLK(t->status.st_mode);
}

static const char *name_of(const file_use *use, char name[NAME_BYTES])
{
    if (use->option != NULL)
        snprintf(name, NAME_BYTES, "--%s", use->option);
    else
        snprintf(name, NAME_BYTES, "the input");
    return name;
}

static bool is_standard(const file_use *use)
{
    return strcmp(use->path, "-") == 0;
}

/* A written file beside all that follow it, and all that are read. */
static int check_output(const file_uses *all, uint32_t at)
{
    const file_use *use = &all->uses[at];
    file_target target;
    file_target other;
    char first[NAME_BYTES];
    char second[NAME_BYTES];
    bool is_known = find(use, &target) && keeps_bytes(&target);
    for (uint32_t i = 0; i < all->num_uses; i++) {
        const file_use *it = &all->uses[i];
        if (i == at || (it->is_written && i < at))
            continue;
        bool is_same = it->is_written && is_standard(use) && is_standard(it);
        if (!is_same && is_known && find(it, &other))
            is_same = file_target_is_same(&target, &other);
        if (is_same)
            return command_error(all->cmd, "%s (%s) and %s (%s) are the same file",
                                 name_of(use, first), use->path, name_of(it, second), it->path);
    }
    return 0;
}

/* The shell sent standard output or standard error to a file that the command reads or replaces. */
static int check_descriptor(const file_uses *all, int fd)
{
    file_target target;
    file_target other;
    char name[NAME_BYTES];
    if (file_target_of_descriptor(fd, &target) != 0 || !S_ISREG(target.status.st_mode))
        return 0;
    for (uint32_t i = 0; i < all->num_uses; i++) {
        const file_use *it = &all->uses[i];
        if (!find(it, &other) || (it->is_written && other.is_descriptor))
            continue;
        if (file_target_is_same(&target, &other))
            return command_error(all->cmd, "%s (%s) and standard %s are the same file",
                                 name_of(it, name), it->path,
                                 fd == STDOUT_FILENO ? "output" : "error");
    }
    return 0;
}

/* Outputs that no option names (FILE.meta.json) may not be them either. */
static void protect_inputs(const file_uses *all)
{
    file_target target;
    for (uint32_t i = 0; i < all->num_uses; i++)
        if (!all->uses[i].is_written && find(&all->uses[i], &target) && target.exists &&
            keeps_bytes(&target))
            output_protect(&target.status);
}

int file_uses_check(const file_uses *all)
{
    int status = all->no_memory ? command_error(all->cmd, "not enough memory") : 0;
    for (uint32_t i = 0; i < all->num_uses && status == 0; i++)
        if (all->uses[i].is_written)
            status = check_output(all, i);
    if (status == 0)
        status = check_descriptor(all, STDOUT_FILENO);
    if (status == 0)
        status = check_descriptor(all, STDERR_FILENO);
    if (status == 0)
        protect_inputs(all);
    return status;
}
