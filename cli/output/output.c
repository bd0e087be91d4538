#include "output.h"
#include "failure.h"
#include "file_target.h"
#include "file_uses.h"
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 200, COPY_BYTES = 1 << 16, TRIES = 100 };

typedef enum output_kind {
    DIRECT,  /* standard output, a pipe, a device */
    RENAMED, /* temporary becomes target */
    COPIED   /* into target at the commit */
} output_kind;

typedef struct output {
    char path[PATH_MAX]; /* as given */
    FILE *file;
    output_kind kind;
    file_target target;
    char temporary[PATH_MAX]; /* "": it has no name */
} output;

static output outputs[OUTPUT_MAX];
static volatile sig_atomic_t num_outputs; /* the handler of signals reads it */
static pid_t owner;                       /* a child that was forked must not remove them */

/* ---- inputs ---------------------------------------------------------------- */

typedef struct inode {
    dev_t device;
    ino_t number;
} inode;

static inode *inputs; /* files that the command reads */
static size_t num_inputs;

static bool is_input(const struct stat *file)
{
    for (size_t i = 0; i < num_inputs; i++)
        if (inputs[i].device == file->st_dev && inputs[i].number == file->st_ino)
            return true;
    return false;
}

void output_protect(const struct stat *file)
{
    inode *more = is_input(file) ? NULL : realloc(inputs, (num_inputs + 1) * sizeof *inputs);
    if (more == NULL) /* known already; without memory nothing is written either */
        return;
    inputs = more;
    inputs[num_inputs++] = (inode){.device = file->st_dev, .number = file->st_ino};
}

/* Why an output may not be written; NULL: it may. */
static const char *conflict_of(const file_target *target)
{
    if (target->exists && is_input(&target->status))
        return "the command reads this file";
    for (int i = 0; i < num_outputs; i++)
        if (outputs[i].kind != DIRECT && file_target_is_same(&outputs[i].target, target))
            return "it is also another output";
    return NULL;
}

/* ---- signals --------------------------------------------------------------- */

static void remove_temporaries(void)
{
    if (getpid() != owner)
        return;
    for (int i = 0; i < num_outputs; i++)
        if (outputs[i].temporary[0] != '\0')
            unlink(outputs[i].temporary);
}

/* A file that exists and its name in the table belong together: no signal comes between. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, before);
}

static void restore_signals(const sigset_t *before)
{
    int error = errno;
    sigprocmask(SIG_SETMASK, before, NULL);
    errno = error;
}

/* ---- opening --------------------------------------------------------------- */

static uint32_t random_number(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t x = (uint64_t)t.tv_nsec * 2654435761u ^ (uint64_t)t.tv_sec << 20 ^ (uint64_t)getpid();
    return (uint32_t)(x * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* A hidden file beside the target. A descriptor, or -1. */
static int make_temporary(const file_target *target, char temporary[PATH_MAX])
{
    const char *name = file_target_name(target);
    int directory_bytes = (int)(name - target->path);
    mode_t mode = target->exists ? 0600 : 0666; /* a new file gets the user's umask */
    for (int i = 0; i < TRIES; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%.*s.%.*s.quire-tmp-%08x", directory_bytes,
                         target->path, NAME_BYTES, name, random_number() + (uint32_t)i);
        errno = ENAMETOOLONG;
        if (n < 0 || (size_t)n >= sizeof path)
            break;
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0)
            memcpy(temporary, path, (size_t)n + 1);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Mode and owner of the earlier file. An owner that cannot be set stays ours. */
static void take_mode(int fd, const struct stat *earlier)
{
    struct stat now;
    if (fstat(fd, &now) != 0)
        return;
    if (now.st_uid != earlier->st_uid || now.st_gid != earlier->st_gid) {
        int is_refused = fchown(fd, earlier->st_uid, earlier->st_gid);
        (void)is_refused;
    }
    fchmod(fd, earlier->st_mode & 07777);
}

/* Replaces the target, or copies into it where its directory does not let us. */
static FILE *open_beside(output *out, const file_target *target)
{
    if (target->exists && faccessat(AT_FDCWD, target->path, W_OK, AT_EACCESS) != 0)
        return NULL;
    out->kind = RENAMED;
    int fd = make_temporary(target, out->temporary);
    if (fd >= 0 && target->exists)
        take_mode(fd, &target->status);
    if (fd >= 0)
        return fdopen(fd, "w+");
    if (!target->exists || (errno != EACCES && errno != EPERM))
        return NULL;
    out->kind = COPIED;
    return tmpfile();
}

/* /dev/stdout is standard output itself: a file that is opened again begins at its start. */
static FILE *open_direct(const file_target *target)
{
    file_target own;
    bool is_stdout = target->is_descriptor && file_target_of_descriptor(STDOUT_FILENO, &own) == 0 &&
                     file_target_is_same(target, &own);
    return is_stdout ? stdout : fopen(target->path, "we");
}

/* NULL, and the reason. */
static FILE *open_target(output *out, const char **why)
{
    file_target *target = &out->target;
    if (strcmp(out->path, "-") == 0)
        return stdout;
    errno = file_target_find(out->path, target);
    if (errno != 0)
        return NULL;
    *why = conflict_of(target);
    if (*why != NULL)
        return NULL;
    if (target->is_descriptor || (target->exists && !S_ISREG(target->status.st_mode)))
        return open_direct(target);
    return open_beside(out, target);
}

static void say(const char *path, const char *why)
{
    fail_with("%.400s: cannot be written: %s", strcmp(path, "-") == 0 ? "standard output" : path,
              why);
}

static const char *error_text(void)
{
    return strerror(errno != 0 ? errno : EIO);
}

FILE *output_open(const char *path)
{
    sigset_t before;
    if (owner != getpid()) {
        owner = getpid();
        interrupt_before_end(remove_temporaries);
        signal(SIGXFSZ, SIG_IGN); /* beyond the limit of a file's size a write fails */
    }
    if (num_outputs == OUTPUT_MAX) {
        say(path, strerror(EMFILE));
        return NULL;
    }
    const char *why = NULL;
    block_signals(&before);
    output *out = &outputs[num_outputs];
    *out = (output){.file = NULL};
    snprintf(out->path, sizeof out->path, "%s", path); /* one that is cut is too long to be found */
    out->file = open_target(out, &why);
    if (out->file != NULL)
        num_outputs++;
    else if (out->temporary[0] != '\0')
        unlink(out->temporary);
    restore_signals(&before);
    if (out->file == NULL)
        say(path, why != NULL ? why : error_text());
    return out->file;
}

/* ---- the end --------------------------------------------------------------- */

/* All bytes are with the system, and of files on the disk: a renamed file is never an empty one. */
static bool flush(const output *out)
{
    errno = 0;
    bool has_failed = ferror(out->file) != 0;
    if (fflush(out->file) != 0)
        return false;
    if (has_failed) { /* an earlier write: one more says why */
        fputc(' ', out->file);
        fflush(out->file);
        return false;
    }
    return out->kind != RENAMED || fsync(fileno(out->file)) == 0 || errno == EINVAL;
}

static bool copy_bytes(int from, int to)
{
    static char bytes[COPY_BYTES];
    off_t at = 0;
    for (;;) {
        ssize_t n = pread(from, bytes, sizeof bytes, at);
        if (n <= 0)
            return n == 0;
        for (ssize_t done = 0; done < n;) {
            ssize_t written = write(to, bytes + done, (size_t)(n - done));
            if (written < 0)
                return false;
            done += written;
        }
        at += n;
    }
}

static bool overwrite(const output *out)
{
    int fd = open(out->target.path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = copy_bytes(fileno(out->file), fd) && (fsync(fd) == 0 || errno == EINVAL);
    int error = errno;
    ok = close(fd) == 0 && ok;
    errno = error;
    return ok;
}

/* A mount point, or another user's file in a directory like /tmp, cannot be renamed over. */
static bool replace(output *out)
{
    if (out->kind == DIRECT)
        return true;
    if (out->kind == RENAMED && rename(out->temporary, out->target.path) == 0) {
        out->temporary[0] = '\0';
        return true;
    }
    bool can_copy = out->kind == COPIED || errno == EBUSY || errno == EPERM || errno == EACCES;
    return can_copy && overwrite(out);
}

int outputs_commit(void)
{
    sigset_t before;
    const output *failed = NULL;
    for (int i = 0; i < num_outputs && failed == NULL; i++)
        if (!flush(&outputs[i]))
            failed = &outputs[i];
    if (failed != NULL)
        say(failed->path, error_text());
    block_signals(&before);
    for (int i = 0; i < num_outputs && failed == NULL; i++)
        if (!replace(&outputs[i])) {
            failed = &outputs[i];
            say(failed->path, error_text());
        }
    outputs_discard();
    restore_signals(&before);
    return failed == NULL ? 0 : -1;
}

int outputs_open_for(const command *cmd)
{
    for (const option *opt = cmd->options; opt->name != NULL; opt++) {
        output_file *out = option_is_file(opt) && opt->role != OPTION_SETTING ? opt->value : NULL;
        if (out == NULL || out->path == NULL)
            continue;
        out->file = output_open(out->path);
        if (out->file == NULL)
            return command_failed(cmd, "--%s: %s", opt->name, failure());
    }
    return 0;
}

int outputs_commit_for(const command *cmd)
{
    return outputs_commit() == 0 ? 0 : command_failed(cmd, "%s", failure());
}

void outputs_discard(void)
{
    for (int i = 0; i < num_outputs; i++)
        if (outputs[i].file != stdout)
            fclose(outputs[i].file);
    remove_temporaries();
    num_outputs = 0;
}
