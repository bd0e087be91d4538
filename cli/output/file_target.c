#include "file_target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { MAX_LINKS = 40, PROC_MAGIC = 0x9fa0 };

/* The directory of a path: "." if the path has no slash. False: it is too long. */
static bool directory_of(const char *path, char directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    return snprintf(directory, PATH_MAX, "%.*s", length, slash == NULL ? "." : path) < PATH_MAX;
}

/* Links in /proc lead to open files; the text of such a link is no path. */
static bool is_in_proc(const char *directory)
{
    struct statfs system;
    return statfs(directory, &system) == 0 && system.f_type == PROC_MAGIC;
}

/* Replaces path by what its link says. 0, or an errno; EINVAL: path is no link. */
static int follow_link(char path[PATH_MAX], const char *directory)
{
    char link[PATH_MAX];
    char next[PATH_MAX];
    ssize_t length = readlink(path, link, sizeof link - 1);
    if (length < 0)
        return errno;
    link[length] = '\0';
    bool is_absolute = link[0] == '/';
    int n = snprintf(next, sizeof next, "%s%s%s", is_absolute ? "" : directory,
                     is_absolute ? "" : "/", link);
    if (n < 0 || (size_t)n >= sizeof next)
        return ENAMETOOLONG;
    memcpy(path, next, (size_t)n + 1);
    return 0;
}

static int follow_links(file_target *target)
{
    char directory[PATH_MAX];
    for (int i = 0; i < MAX_LINKS; i++) {
        if (!directory_of(target->path, directory))
            return ENAMETOOLONG;
        target->is_descriptor = is_in_proc(directory);
        if (target->is_descriptor)
            return 0;
        int error = follow_link(target->path, directory);
        if (error == EINVAL || error == ENOENT)
            return 0;
        if (error != 0)
            return error;
    }
    return ELOOP;
}

int file_target_find(const char *path, file_target *target)
{
    char directory[PATH_MAX];
    *target = (file_target){.exists = false};
    if (snprintf(target->path, sizeof target->path, "%s", path) >= (int)sizeof target->path)
        return ENAMETOOLONG;
    int error = follow_links(target);
    if (error != 0)
        return error;
    target->exists = stat(target->path, &target->status) == 0;
    if (target->exists)
        return 0;
    if (errno != ENOENT)
        return errno;
    if (!directory_of(target->path, directory))
        return ENAMETOOLONG;
    return stat(directory, &target->directory) == 0 ? 0 : errno;
}

int file_target_of_descriptor(int fd, file_target *target)
{
    *target = (file_target){.is_descriptor = true, .exists = true};
    return fstat(fd, &target->status) == 0 ? 0 : errno;
}

const char *file_target_name(const file_target *target)
{
    const char *slash = strrchr(target->path, '/');
    return slash == NULL ? target->path : slash + 1;
}

static bool is_same_inode(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool file_target_is_same(const file_target *a, const file_target *b)
{
    if (a->exists != b->exists)
        return false;
    if (a->exists)
        return is_same_inode(&a->status, &b->status);
    return is_same_inode(&a->directory, &b->directory) &&
           strcmp(file_target_name(a), file_target_name(b)) == 0;
}
