#include "tier/file/dir.h"

#include "base/hex.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/core/key.h"
#include "tier/file/open.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    ENOUGH_FILES = 64, /* in a group: below that, chance would decide which files are removed */
    /* Files that a sweep removes after one listing: a quarter of a group, which is more than a
     * sweep of a group that is full by the usual eighth removes; 120 bytes each. */
    AGED_PART = 4,
    LEAST_SWEPT = 4096, /* keys that are swept before the scheduler looks; a power of two */
    LIST_BYTES = QR_AT_A_TIME(32 << 10, sizeof(struct dirent64)), /* one entry fits */
#ifdef QUIRE_HOSTILE
    LEAST_AGED = 2,
    MOST_AGED = 16
#else
    LEAST_AGED = 1024,
    MOST_AGED = 65536
#endif
};

/* ---- names -------------------------------------------------------------- */

static void name_key(const quire_tier_key *key, char *name)
{
    char *rest = qr_hex_write(name, key->hash, QUIRE_TIER_HASH_BYTES);
    (void)snprintf(rest, QR_FILE_NAME - 2 * QUIRE_TIER_HASH_BYTES, "-%" PRIu32 "-%" PRIu32,
                   key->group, key->rank);
}

bool qr_file_dir_read_name(const char *name, quire_tier_key *key)
{
    char same[QR_FILE_NAME];
    const char *rest = name + (size_t)2 * QUIRE_TIER_HASH_BYTES;
    if (!qr_hex_read(name, key->hash, QUIRE_TIER_HASH_BYTES) || *rest != '-')
        return false;
    char *end;
    key->group = (uint32_t)strtoul(rest + 1, &end, 10);
    key->rank = *end == '-' ? (uint32_t)strtoul(end + 1, NULL, 10) : 0;
    name_key(key, same); /* no sign, no zeros in front, nothing behind */
    return strcmp(same, name) == 0;
}

/* ---- leaves ------------------------------------------------------------- */

/* One of QR_FILE_LEAVES, which may be made; -1 with errno. */
static int open_leaf(const qr_file_dir *dir, uint32_t leaf, bool may_make)
{
    char name[3];
    unsigned char byte = (unsigned char)leaf;
    *qr_hex_write(name, &byte, 1) = 0;
    int fd = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT || !may_make)
        return fd;
    if (mkdirat(dir->fd, name, 0700) != 0 && errno != EEXIST)
        return -1;
    return openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static quire_tier_status status_of(int error)
{
    if (error == 0)
        return QUIRE_TIER_DONE;
    if (error == ENOSPC || error == EDQUOT)
        return QUIRE_TIER_NO_ROOM;
    return error == ENOENT ? QUIRE_TIER_MISSING : QUIRE_TIER_FAILED;
}

/* ---- opening ------------------------------------------------------------ */

static void plan_groups(qr_file_dir *dir)
{
    uint64_t num_files = dir->capacity_bytes / ((uint64_t)dir->block_bytes + QR_FILE_PAGE);
    dir->leaves_per_group = 1;
    while (dir->leaves_per_group < QR_FILE_LEAVES &&
           num_files * dir->leaves_per_group / QR_FILE_LEAVES < ENOUGH_FILES)
        dir->leaves_per_group *= 2;
    uint64_t files = num_files * dir->leaves_per_group / QR_FILE_LEAVES;
    dir->files_per_group = files > UINT32_MAX ? UINT32_MAX : (uint32_t)files;
    dir->max_aged = dir->files_per_group / AGED_PART;
    dir->max_aged = dir->max_aged < LEAST_AGED ? LEAST_AGED : dir->max_aged;
    dir->max_aged = dir->max_aged > MOST_AGED ? MOST_AGED : dir->max_aged;
}

int qr_file_dir_open_folder(const char *path, const unsigned char *fingerprint)
{
    char name[2 * QUIRE_FINGERPRINT_BYTES + 1];
    struct stat info;
    bool is_good = false;
    *qr_hex_write(name, fingerprint, QUIRE_FINGERPRINT_BYTES) = 0;
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        (void)qr_file_fail(path, "be opened as a directory", errno);
        return -1;
    }
    int fd = -1;
    if (mkdirat(root, name, 0700) != 0 && errno != EEXIST)
        (void)qr_file_fail(path, "create a directory in it", errno);
    else if ((fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
             fstat(fd, &info) != 0)
        (void)qr_file_fail(path, "open the directory of this model", errno);
    else
        is_good = !qr_file_say_owner(path, &info);
    close(root);
    if (fd >= 0 && !is_good)
        close(fd);
    return is_good ? fd : -1;
}

int qr_file_dir_open(qr_file_dir *dir, const char *path)
{
    dir->fd = -1;
    plan_groups(dir);
    uint32_t num_swept = 4 * dir->max_aged < LEAST_SWEPT ? LEAST_SWEPT : 4 * dir->max_aged;
    dir->swept.capacity = (uint32_t)qr_round_up_pow2(num_swept);
    dir->swept.keys = qr_alloc(dir->swept.capacity, sizeof *dir->swept.keys);
    dir->aged = qr_alloc(dir->max_aged, sizeof(qr_file_aged));
    if (dir->aged == NULL || dir->swept.keys == NULL)
        return QUIRE_E_NOMEM;
    if (qr_random_bytes(dir->hooks, dir->token, sizeof dir->token) != 0)
        return QUIRE_E_RANDOM;
    atomic_store(&dir->has_tmpfile, 1);
    dir->fd = qr_file_dir_open_folder(path, dir->fingerprint);
    return dir->fd < 0 ? QUIRE_E_SYSTEM : QUIRE_OK;
}

void qr_file_dir_close(qr_file_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->fd = -1;
    qr_free(dir->aged);
    dir->aged = NULL;
    qr_free(dir->swept.keys);
    dir->swept.keys = NULL;
}

/* ---- storing ------------------------------------------------------------ */

/* tmp: its name, or empty where it has none. -1 with errno. */
static int make_unfinished(qr_file_dir *dir, int leaf, char *tmp)
{
    char token[2 * sizeof dir->token + 1];
    tmp[0] = 0;
    if (atomic_load(&dir->has_tmpfile)) {
        int fd = openat(leaf, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
            return fd;
        atomic_store(&dir->has_tmpfile, 0);
    }
    *qr_hex_write(token, dir->token, sizeof dir->token) = 0;
    (void)snprintf(tmp, QR_FILE_NAME, ".tmp-%s-%" PRIu64, token,
                   (uint64_t)atomic_fetch_add(&dir->num_made, 1));
    return openat(leaf, tmp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* Whether a whole file of that name is there; what it holds its reader checks. */
static bool is_whole(int leaf, const char *name, uint32_t bytes)
{
    struct stat info;
    return fstatat(leaf, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size == (uint64_t)QR_FILE_PAGE + bytes;
}

/* 0 or errno. Somebody else's file of that name has the same block; what is no such file goes. */
static int give_name(qr_file_dir *dir, int leaf, int fd, const char *tmp, const char *name,
                     uint32_t bytes)
{
    char self[32];
    if (tmp[0] != 0)
        return renameat(leaf, tmp, leaf, name) == 0 ? 0 : errno;
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int error = linkat(AT_FDCWD, self, leaf, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    if (error == EEXIST && is_whole(leaf, name, bytes))
        return 0;
    if (error == EEXIST && unlinkat(leaf, name, 0) == 0)
        error = linkat(AT_FDCWD, self, leaf, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    bool has_no_proc = error == ENOENT && access("/proc/self/fd", F_OK) != 0;
    if (has_no_proc || error == EPERM || error == EXDEV) /* next time with a name */
        atomic_store(&dir->has_tmpfile, 0);
    return error;
}

static int write_block(qr_file_dir *dir, int fd, const quire_tier_io *io)
{
    unsigned char page[QR_FILE_PAGE];
    qr_file_head head = {
        .entry = {.key = io->key, .bytes = io->bytes, .crc = io->crc, .state = QR_FILE_STORED}};
    struct iovec parts[2] = {{.iov_base = page, .iov_len = sizeof page},
                             {.iov_base = io->memory, .iov_len = io->bytes}};
    memcpy(head.owner.fingerprint, dir->fingerprint, QUIRE_FINGERPRINT_BYTES);
    qr_file_head_write(page, &head);
    ssize_t done = pwritev(fd, parts, 2, 0);
    if (done < 0)
        return errno;
    return (uint64_t)done == (uint64_t)QR_FILE_PAGE + io->bytes ? 0 : ENOSPC;
}

static quire_tier_status store(qr_file_dir *dir, int leaf, const char *name, quire_tier_io *io)
{
    char tmp[QR_FILE_NAME];
    if (is_whole(leaf, name, io->bytes))
        return QUIRE_TIER_DONE;
    int fd = make_unfinished(dir, leaf, tmp);
    int error = fd < 0 ? errno : write_block(dir, fd, io);
    if (error == 0)
        error = give_name(dir, leaf, fd, tmp, name, io->bytes);
    if (error != 0 && fd >= 0 && tmp[0] != 0)
        (void)unlinkat(leaf, tmp, 0);
    if (fd >= 0)
        close(fd);
    return status_of(error);
}

/* ---- loading ------------------------------------------------------------ */

/* What lies there is wrong: it goes, unless another has put something else in its place. */
static void throw_out(int leaf, const char *name, int fd)
{
    struct stat ours;
    struct stat named;
    if (fstat(fd, &ours) == 0 && fstatat(leaf, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
        (void)unlinkat(leaf, name, 0);
}

static quire_tier_status read_block(qr_file_dir *dir, int fd, quire_tier_io *io)
{
    unsigned char page[QR_FILE_PAGE];
    qr_file_head head;
    struct stat info;
    struct iovec parts[2] = {{.iov_base = page, .iov_len = sizeof page},
                             {.iov_base = io->memory, .iov_len = io->bytes}};
    uint64_t whole = (uint64_t)QR_FILE_PAGE + io->bytes;
    if (fstat(fd, &info) != 0)
        return QUIRE_TIER_FAILED;
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != whole)
        return QUIRE_TIER_WRONG;
    ssize_t done = preadv(fd, parts, 2, 0);
    if (done < 0)
        return QUIRE_TIER_FAILED;
    if ((uint64_t)done != whole || qr_file_head_read(page, &head) != QR_FILE_GOOD ||
        memcmp(head.owner.fingerprint, dir->fingerprint, QUIRE_FINGERPRINT_BYTES) != 0 ||
        !qr_key_is_equal(&head.entry.key, &io->key) || head.entry.bytes != io->bytes ||
        quire_crc32c(0, io->memory, io->bytes) != head.entry.crc)
        return QUIRE_TIER_WRONG;
    io->crc = head.entry.crc;
    return QUIRE_TIER_DONE;
}

static quire_tier_status load(qr_file_dir *dir, int leaf, const char *name, quire_tier_io *io)
{
    int fd = openat(leaf, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    quire_tier_status status = fd >= 0          ? read_block(dir, fd, io)
                               : errno == ELOOP ? QUIRE_TIER_WRONG
                                                : status_of(errno);
    if (fd >= 0 && status == QUIRE_TIER_DONE)
        (void)futimens(fd, NULL);
    if (status == QUIRE_TIER_WRONG && fd >= 0)
        throw_out(leaf, name, fd);
    else if (status == QUIRE_TIER_WRONG)
        (void)unlinkat(leaf, name, 0); /* a link */
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- finding, and all of them ------------------------------------------- */

static quire_tier_status find(qr_file_dir *dir, int leaf, const char *name, quire_tier_io *io)
{
    struct stat info;
    if (fstatat(leaf, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return status_of(errno);
    if (!S_ISREG(info.st_mode) || info.st_size <= QR_FILE_PAGE ||
        info.st_size - QR_FILE_PAGE > (off_t)dir->block_bytes)
        return QUIRE_TIER_MISSING;
    io->bytes = (uint32_t)(info.st_size - QR_FILE_PAGE);
    return QUIRE_TIER_DONE;
}

quire_tier_status qr_file_dir_do(qr_file_dir *dir, quire_tier_op op, quire_tier_io *io)
{
    char name[QR_FILE_NAME];
    quire_tier_status status;
    name_key(&io->key, name);
    int leaf = open_leaf(dir, io->key.hash[0], op == QUIRE_TIER_STORE);
    if (leaf < 0)
        status = status_of(errno);
    else if (op == QUIRE_TIER_STORE)
        status = store(dir, leaf, name, io);
    else if (op == QUIRE_TIER_LOAD)
        status = load(dir, leaf, name, io);
    else if (op == QUIRE_TIER_FIND)
        status = find(dir, leaf, name, io);
    else
        status = status_of(unlinkat(leaf, name, 0) == 0 ? 0 : errno);
    if (leaf >= 0)
        close(leaf);
    bool is_odd = op == QUIRE_TIER_STORE && status == QUIRE_TIER_MISSING; /* its directory went */
    return is_odd ? QUIRE_TIER_FAILED : status;
}

/* ---- sweeping: room in the directory ------------------------------------
 *
 *      leaves   00 01 02 03 | 04 05 06 07 | ...      groups, each with its part of the capacity
 *
 * From time to time a group is listed. If the group has more bytes than its part, its oldest files
 * are removed (by the time of their last use) until the group is a sixteenth below its part. A
 * listing keeps the max_aged oldest files; if more must be removed, the group is listed again, so
 * that the limit holds for groups of any size with a fixed amount of memory. Names are hashes:
 * groups fill evenly, and no process needs to know what the others stored. Unfinished files are
 * removed when they are older than any that is still being written. */

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
    int fd = open_leaf(sweep->dir, leaf, false);
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

static void put_swept(qr_file_swept *swept, const quire_tier_key *key)
{
    uint32_t put = atomic_load_explicit(&swept->put, memory_order_relaxed);
    if (put - atomic_load_explicit(&swept->taken, memory_order_acquire) == swept->capacity)
        return;
    swept->keys[put & (swept->capacity - 1)] = *key;
    atomic_store_explicit(&swept->put, put + 1, memory_order_release);
}

bool qr_file_swept_take(qr_file_swept *swept, quire_tier_key *key)
{
    uint32_t taken = atomic_load_explicit(&swept->taken, memory_order_relaxed);
    if (taken == atomic_load_explicit(&swept->put, memory_order_acquire))
        return false;
    *key = swept->keys[taken & (swept->capacity - 1)];
    atomic_store_explicit(&swept->taken, taken + 1, memory_order_release);
    return true;
}

/* Removes the oldest of those that were kept until most_bytes are left; returns how many. */
static uint32_t remove_oldest(sweep_state *sweep, uint64_t most_bytes)
{
    const qr_file_aged *aged = sweep->dir->aged;
    uint32_t num_removed = 0;
    sort_aged(sweep->dir->aged, sweep->num_aged);
    for (uint32_t i = 0; i < sweep->num_aged && sweep->bytes > most_bytes; i++) {
        int fd = open_leaf(sweep->dir, aged[i].leaf, false);
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
            put_swept(&sweep->dir->swept, &key);
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
