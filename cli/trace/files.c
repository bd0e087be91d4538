#include "files.h"

#include "output/failure.h"
#include "output/grown.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32 };

bool trace_is_folder(const char *path)
{
    struct stat status;
    return strcmp(path, "-") != 0 && stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The length of the name without `ending`; 0: it does not end so, or is nothing else. */
static size_t without(const char *name, size_t length, const char *ending)
{
    size_t n = strlen(ending);
    return length > n && memcmp(name + length - n, ending, n) == 0 ? length - n : 0;
}

static bool is_trace_file(const char *name)
{
    static const char *const packed[] = {".zst", ".gz", ".xz", ".bz2"};
    static const char *const kinds[] = {".jsonl", ".json", ".csv", ".tar"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t left = without(name, length, packed[i]);
        if (left > 0) {
            length = left;
            break;
        }
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (without(name, length, kinds[i]) > 0)
            return true;
    return false;
}

static bool find_in(trace_files *files, const char *folder, int depth);

static bool no_memory(const char *folder)
{
    return fail_with("%s: not enough memory for the names of its files", folder) == 0;
}

/* Takes over the path. */
static bool take_entry(trace_files *files, char *path, const char *name, int depth)
{
    struct stat link;
    struct stat status;
    bool is_known = lstat(path, &link) == 0 && stat(path, &status) == 0;
    bool ok = true;
    if (is_known && S_ISREG(status.st_mode) && is_trace_file(name)) {
        if (grow(&files->paths, files->count, &files->room, UINT32_MAX, sizeof path)) {
            files->paths[files->count++] = path;
            return true;
        }
        ok = no_memory(path);
    } else if (is_known && S_ISDIR(link.st_mode)) {
        ok = find_in(files, path, depth + 1);
    }
    free(path);
    return ok;
}

static bool find_in(trace_files *files, const char *folder, int depth)
{
    if (depth > MAX_DEPTH)
        return fail_with("%s: more than %d folders in each other", folder, MAX_DEPTH) == 0;
    DIR *at = opendir(folder);
    if (at == NULL)
        return fail_with("%s: cannot be opened: %s", folder, strerror(errno)) == 0;
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    bool ok = true;
    const struct dirent *entry;
    while (ok && (entry = readdir(at)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        size_t bytes = length + strlen(entry->d_name) + 2;
        char *path = malloc(bytes);
        if (path == NULL) {
            ok = no_memory(folder);
            break;
        }
        snprintf(path, bytes, "%s%s%s", folder, slash, entry->d_name);
        ok = take_entry(files, path, entry->d_name, depth);
    }
    closedir(at);
    return ok;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool trace_files_find(trace_files *files, const char *folder)
{
    *files = (trace_files){.paths = NULL};
    bool ok = find_in(files, folder, 1);
    if (ok && files->count == 0)
        ok = fail_with("%s: the folder has no trace (expected files that end with .jsonl, .json, "
                       ".csv or .tar, or with one of these and .zst or .gz)",
                       folder) == 0;
    if (ok)
        qsort(files->paths, files->count, sizeof *files->paths, compare);
    else
        trace_files_free(files);
    return ok;
}

void trace_files_free(trace_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    free(files->paths);
    *files = (trace_files){.paths = NULL};
}

const char *trace_names(char names[TRACE_NAMES_BYTES], const char *const *paths, uint32_t num_paths)
{
    size_t length = 0;
    if (num_paths == 1)
        return paths[0];
    names[0] = 0;
    for (uint32_t i = 0; i < num_paths && length < TRACE_NAMES_BYTES - 1; i++)
        length += (size_t)snprintf(names + length, TRACE_NAMES_BYTES - length, "%s%s",
                                   i > 0 ? " + " : "", paths[i]);
    return names;
}
