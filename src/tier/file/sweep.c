/* tier/file/sweep.c - room in a shared directory.
 *
 *      leaves   00 01 02 03 | 04 05 06 07 | ...      groups, each with its part of the capacity
 *
 * From time to time a group is listed. If the group has more bytes than its part, its oldest files
 * are removed (by the time of their last use) until the group is a sixteenth below its part. A
 * listing keeps the max_aged oldest files; if more must be removed, the group is listed again, so
 * that the limit holds for groups of any size with a fixed amount of memory. Names are hashes:
 * groups fill evenly, and no process needs to know what the others stored. Unfinished files are
 * removed when they are older than any that is still being written. */
#include "tier/file/dir.h"

#include "base/bits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_BYTES = QR_AT_A_TIME(32 << 10, sizeof(struct dirent64)) }; /* one entry fits */

typedef struct sweep_state {
    qr_file_dir *dir;
    uint64_t bytes; /* of all files */
    uint32_t num_files;
    uint32_t num_aged; /* in dir->aged */
    int64_t now_ns;    /* by the clock of the file system; 0: not known */
} sweep_state;

static int64_t time_of(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

/* Ages are told by the clock that gives files their times, which may be another machine's. */
static void ask_time(sweep_state *sweep)
{
    struct stat info;
    if (futimens(sweep->dir->fd, NULL) == 0 && fstat(sweep->dir->fd, &info) == 0)
        sweep->now_ns = time_of(&info);
}

/* ---- the oldest files ------------------------------------------------------ */

/* A heap with the newest on top: the file that makes place for an older one. */
static void sift_down(qr_file_aged *heap, uint32_t n, uint32_t at)
{
    for (uint32_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1].time_ns > heap[child].time_ns)
            child++;
        if (heap[at].time_ns >= heap[child].time_ns)
            return;
        qr_file_aged held = heap[at];
        heap[at] = heap[child];
        heap[child] = held;
        at = child;
    }
}

static void make_heap(qr_file_aged *aged, uint32_t n)
{
    for (uint32_t at = n / 2; at-- > 0;)
        sift_down(aged, n, at);
}

/* From the oldest to the newest. */
static void sort_aged(qr_file_aged *heap, uint32_t n)
{
    make_heap(heap, n);
    while (n-- > 1) {
        qr_file_aged held = heap[0];
        heap[0] = heap[n];
        heap[n] = held;
        sift_down(heap, n, 0);
    }
}

/* Keeps the file if it is one of the max_aged oldest so far. */
static void note_age(sweep_state *sweep, uint32_t leaf, const char *name, const struct stat *info)
{
    qr_file_aged *heap = sweep->dir->aged;
    bool is_full = sweep->num_aged == sweep->dir->max_aged;
    if (strlen(name) >= QR_FILE_NAME || (is_full && time_of(info) >= heap[0].time_ns))
        return;
    uint32_t at = is_full ? 0 : sweep->num_aged++;
    heap[at] =
        (qr_file_aged){.time_ns = time_of(info), .bytes = (uint64_t)info->st_size, .leaf = leaf};
    memcpy(heap[at].name, name, strlen(name));
    if (is_full)
        sift_down(heap, sweep->num_aged, 0);
    else if (sweep->num_aged == sweep->dir->max_aged)
        make_heap(heap, sweep->num_aged);
}

/* ---- listing --------------------------------------------------------------- */

static void look_at_file(sweep_state *sweep, int folder, uint32_t leaf, const char *name)
{
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(info.st_mode))
        return;
    if (name[0] == '.' && strncmp(name, ".tmp-", 5) != 0)
        return;
    bool is_unfinished = name[0] == '.';
    bool is_old = sweep->now_ns != 0 && sweep->now_ns - time_of(&info) > sweep->dir->leftover_ns;
    if (is_unfinished && is_old) {
        (void)unlinkat(folder, name, 0);
        return;
    }
    sweep->bytes += (uint64_t)info.st_size;
    sweep->num_files++;
    if (!is_unfinished)
        note_age(sweep, leaf, name, &info);
}

/* By the system's own call: opendir takes memory each time. */
static void list_leaf(sweep_state *sweep, uint32_t leaf)
{
    _Alignas(struct dirent64) char buffer[LIST_BYTES];
    int fd = qr_file_dir_open_leaf(sweep->dir, leaf, false);
    if (fd < 0)
        return;
    for (ssize_t n = getdents64(fd, buffer, sizeof buffer); n > 0;
         n = getdents64(fd, buffer, sizeof buffer))
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buffer + at);
            look_at_file(sweep, fd, leaf, entry->d_name);
            at += entry->d_reclen;
        }
    close(fd);
}

static void list_group(sweep_state *sweep, uint32_t group)
{
    sweep->bytes = 0;
    sweep->num_files = 0;
    sweep->num_aged = 0;
    for (uint32_t i = 0; i < sweep->dir->leaves_per_group; i++)
        list_leaf(sweep, group * sweep->dir->leaves_per_group + i);
}

/* ---- removing -------------------------------------------------------------- */

/* Removes the oldest of those that were kept until most_bytes are left; returns how many. */
static uint32_t remove_oldest(sweep_state *sweep, uint64_t most_bytes)
{
    const qr_file_aged *aged = sweep->dir->aged;
    uint32_t num_removed = 0;
    sort_aged(sweep->dir->aged, sweep->num_aged);
    for (uint32_t i = 0; i < sweep->num_aged && sweep->bytes > most_bytes; i++) {
        int fd = qr_file_dir_open_leaf(sweep->dir, aged[i].leaf, false);
        bool is_gone = (fd >= 0 && unlinkat(fd, aged[i].name, 0) == 0) || errno == ENOENT;
        if (fd >= 0)
            close(fd);
        if (!is_gone)
            continue;
        sweep->bytes -= aged[i].bytes;
        sweep->num_files--;
        num_removed++;
        quire_tier_key key;
        if (qr_file_dir_read_name(aged[i].name, &key))
            qr_file_swept_put(&sweep->dir->swept, &key);
    }
    return num_removed;
}

uint32_t qr_file_dir_groups(const qr_file_dir *dir)
{
    return QR_FILE_LEAVES / dir->leaves_per_group;
}

uint32_t qr_file_dir_group_of(const qr_file_dir *dir, const quire_tier_key *key)
{
    return key->hash[0] / dir->leaves_per_group;
}

uint32_t qr_file_dir_sweep(qr_file_dir *dir, uint32_t group)
{
    sweep_state sweep = {.dir = dir};
    uint64_t most_bytes = dir->capacity_bytes / qr_file_dir_groups(dir);
    ask_time(&sweep);
    list_group(&sweep, group);
    if (sweep.bytes <= most_bytes)
        return sweep.num_files;
    most_bytes -= most_bytes / 16; /* a little more, so that it is not full again at once */
    while (sweep.bytes > most_bytes && remove_oldest(&sweep, most_bytes) > 0)
        if (sweep.bytes > most_bytes) /* more were too many than are kept: look again */
            list_group(&sweep, group);
    return sweep.num_files;
}
