#include "tier/file/open.h"

#include "base/hooks.h"
#include "base/refuse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { LOCK_TRIES = 50, LOCK_WAIT_MS = 10 };

/* ---- words -------------------------------------------------------------- */

/* The last part of a path. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

const char *qr_file_size_text(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const UNITS[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < sizeof UNITS / sizeof UNITS[0] - 1) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, text_bytes, unit == 0 ? "%.0f %s" : "%.1f %s", value, UNITS[unit]);
    return text;
}

/* ---- its size ----------------------------------------------------------- */

static int empty_file(void *user)
{
    qr_file_handle *handle = user;
    handle->is_ours = true;
    if (ftruncate(handle->fd, 0) != 0)
        return qr_file_fail(handle->path, "be emptied", errno);
    return QUIRE_OK;
}

static int say_no_room(const qr_file_handle *handle, uint64_t bytes, int error)
{
    struct statvfs system;
    char wanted[32];
    char left[32] = "unknown";
    if (fstatvfs(handle->fd, &system) == 0)
        qr_file_size_text((uint64_t)system.f_bavail * system.f_frsize, left, sizeof left);
    return qr_fail(QUIRE_E_SYSTEM,
                   "%s: cannot reserve %s: %s (%s free); lower capacity_bytes, or free disk space",
                   handle->path, qr_file_size_text(bytes, wanted, sizeof wanted), strerror(error),
                   left);
}

static int reserve_file(void *user, uint64_t bytes)
{
    qr_file_handle *handle = user;
    int result;
    do
        result = fallocate(handle->fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
        qr_log(handle->hooks, QUIRE_LOG_WARNING,
               "file tier: the file system of %s cannot reserve space; stores fail when it is full",
               handle->path);
        result = ftruncate(handle->fd, (off_t)bytes);
    }
    return result == 0 ? QUIRE_OK : say_no_room(handle, bytes, errno);
}

/* ---- opening ------------------------------------------------------------ */

bool qr_file_say_owner(const char *path, const struct stat *info)
{
    if (info->st_uid == geteuid() && (info->st_mode & 022) == 0)
        return false;
    qr_say("%s: other users can write it (owner %u, mode %03o); only user %u may own and write it: "
           "chown, chmod go-w",
           path, (unsigned)info->st_uid, (unsigned)(info->st_mode & 0777), (unsigned)geteuid());
    return true;
}

static int open_file(qr_file_handle *handle)
{
    char folder[PATH_MAX];
    struct stat info;
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; /* a pipe must not hold us up */
    const char *name = name_of(handle->path);
    (void)snprintf(folder, sizeof folder, "%.*s.", (int)(name - handle->path), handle->path);
    handle->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (handle->folder < 0)
        return qr_file_fail(handle->path, "open its directory", errno);
    handle->fd = openat(handle->folder, name, flags | O_CREAT | O_EXCL, 0600);
    handle->is_ours = handle->fd >= 0;
    if (handle->fd < 0 && errno == EEXIST)
        handle->fd = openat(handle->folder, name, flags);
    if (handle->fd < 0 && errno == ELOOP)
        return qr_fail(QUIRE_E_SYSTEM, "%s is a symbolic link; use the path of the file itself",
                       handle->path);
    if (handle->fd < 0 || fstat(handle->fd, &info) != 0)
        return qr_file_fail(handle->path, "be opened", errno);
    if (!S_ISREG(info.st_mode))
        return qr_fail(QUIRE_E_SYSTEM, "%s is not a regular file; use another path", handle->path);
    if (qr_file_say_owner(handle->path, &info))
        return QUIRE_E_SYSTEM;
    (void)fcntl(handle->fd, F_SETFL, O_RDWR); /* it is no pipe: reads may wait again */
    if ((info.st_mode & 077) != 0)
        qr_log(handle->hooks, QUIRE_LOG_WARNING,
               "file tier: other users can read %s (mode %03o): chmod 600", handle->path,
               (unsigned)(info.st_mode & 0777));
    handle->disk.bytes = (uint64_t)info.st_size;
    return QUIRE_OK;
}

static void say_holder(const qr_file_handle *handle)
{
    static const char REMEDY[] = "each process needs its own file, or a shared directory";
    unsigned char pages[2][QR_FILE_PAGE];
    qr_file_super supers[2];
    uint64_t pid = 0;
    uint64_t seq = 0;
    if (pread(handle->fd, pages, sizeof pages, 0) == sizeof pages)
        for (int i = 0; i < 2; i++)
            if (qr_file_super_read(pages[i], &supers[i]) == QR_FILE_GOOD && supers[i].seq >= seq) {
                pid = supers[i].pid;
                seq = supers[i].seq;
            }
    if (pid != 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        qr_say("%s is in use by a child of process %llu, which has ended; end the child",
               handle->path, (unsigned long long)pid);
    else if (pid != 0)
        qr_say("%s is in use by process %llu; %s", handle->path, (unsigned long long)pid, REMEDY);
    else
        qr_say("%s is in use by another process; %s", handle->path, REMEDY);
}

/* The file of a process that was killed stays open until the system has ended what it had in
 * flight: so it is worth waiting a little. */
static int try_lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result = fcntl(fd, F_OFD_SETLK, &whole);
    for (int i = 0; i < LOCK_TRIES && result != 0 && (errno == EAGAIN || errno == EACCES); i++) {
        (void)poll(NULL, 0, LOCK_WAIT_MS);
        result = fcntl(fd, F_OFD_SETLK, &whole);
    }
    return result;
}

/* Whoever has the lock must have the file that the path names. */
static int lock_file(qr_file_handle *handle)
{
    struct stat ours;
    struct stat named;
    if (try_lock(handle->fd) != 0) {
        if (errno != EAGAIN && errno != EACCES)
            return qr_file_fail(handle->path, "be locked", errno);
        handle->is_ours = false;
        say_holder(handle);
        return QUIRE_BUSY;
    }
    if (fstat(handle->fd, &ours) != 0 ||
        fstatat(handle->folder, name_of(handle->path), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
        ours.st_ino != named.st_ino || ours.st_dev != named.st_dev) {
        handle->is_ours = false;
        return qr_fail(QUIRE_BUSY, "%s was replaced while it was opened; retry", handle->path);
    }
    handle->disk.bytes = (uint64_t)ours.st_size; /* of now, when nobody else can change it */
    return QUIRE_OK;
}

/* Some file systems take the flag and then refuse every read. */
static bool set_direct(int fd)
{
    unsigned char memory[2 * QR_FILE_PAGE];
    unsigned char *page = memory + (QR_FILE_PAGE - (uintptr_t)memory % QR_FILE_PAGE);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return false;
    if (pread(fd, page, QR_FILE_PAGE, 0) >= 0)
        return true;
    (void)fcntl(fd, F_SETFL, flags);
    return false;
}

int qr_file_handle_open(qr_file_handle *handle, quire_switch direct)
{
    handle->fd = -1;
    handle->folder = -1;
    handle->disk = (qr_file_disk){.user = handle, .empty = empty_file, .reserve = reserve_file};
    int status = open_file(handle);
    if (status == QUIRE_OK)
        status = lock_file(handle);
    if (status != QUIRE_OK || direct == QUIRE_OFF)
        return status;
    handle->is_direct = set_direct(handle->fd);
    if (handle->is_direct)
        return QUIRE_OK;
    if (direct == QUIRE_ON)
        return qr_fail(
            QUIRE_E_SYSTEM,
            "%s: its file system does not support O_DIRECT; use another path, or leave direct "
            "at its default",
            handle->path);
    qr_log(handle->hooks, QUIRE_LOG_INFO,
           "file tier: %s uses the page cache: its file system does not support O_DIRECT",
           handle->path);
    return QUIRE_OK;
}

void qr_file_handle_close(qr_file_handle *handle, bool is_failed)
{
    if (is_failed && handle->is_ours && handle->fd >= 0)
        (void)unlinkat(handle->folder, name_of(handle->path), 0);
    if (handle->fd >= 0) {
        /* A ring lets go of its file later than it says: the lock need not wait for that. */
        struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        (void)fcntl(handle->fd, F_OFD_SETLK, &whole);
        close(handle->fd);
    }
    if (handle->folder >= 0)
        close(handle->folder);
    handle->fd = -1;
    handle->folder = -1;
}
