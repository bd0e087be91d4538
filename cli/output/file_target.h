/* cli/output/file_target.h - which file a path names, links followed.
 *
 *      out.csv ──► link ──► /data/out.csv          path: /data/out.csv, there or not yet
 *      /dev/stdout ──► /proc/self/fd/1             is_descriptor: a file that is open already
 *
 * Two paths are the same file if they have the same inode. If neither file exists, they are the
 * same if they have the same name in the same directory.
 */
#ifndef QUIRE_CLI_OUTPUT_FILE_TARGET_H
#define QUIRE_CLI_OUTPUT_FILE_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

typedef struct file_target {
    char path[PATH_MAX];
    bool is_descriptor;
    bool exists;
    struct stat status;    /* if it exists */
    struct stat directory; /* if it does not exist */
} file_target;

/* 0, or an errno: a loop of links, a path that is too long, no such directory. */
int file_target_find(const char *path, file_target *target);
/* The file behind a descriptor: 0, or an errno. */
int file_target_of_descriptor(int fd, file_target *target);
bool file_target_is_same(const file_target *a, const file_target *b);
/* The name behind the last slash. */
const char *file_target_name(const file_target *target);

#endif
