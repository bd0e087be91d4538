/* tier/file/test_dir.c - the files of a shared directory: how they get their names on file systems
 * that refuse one way or the other, and when another process is quicker. (Linked so that these
 * calls come here.) */
#define _GNU_SOURCE
#include "tier/file/file_kit.h"

#include "tier/file/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    file_kit kit;
    qr_file_dir dir;
    quire_hooks hooks;
} fixture;

static fixture the_fixture;
static uint32_t num_nameless;               /* files without a name that were asked for */
static int tmpfile_error;                   /* 0: as the file system has it */
static int link_error;                      /* the next one */
static int rename_error;                    /* the next one */
static void (*meanwhile)(qr_file_dir *dir); /* before the next file gets its name */
static void (*when_open)(qr_file_dir *dir); /* when the next file of a block has been opened */
static bool is_input_closed;                /* before that; 0 is its descriptor then */

static void do_meanwhile(void)
{
    void (*now)(qr_file_dir * dir) = meanwhile;
    meanwhile = NULL;
    if (now != NULL)
        now(&the_fixture.dir);
}

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, mode_t mode);
int __real_linkat(int from, const char *name, int to, const char *as, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *as, int flags);
int __real_renameat(int from, const char *name, int to, const char *as);
int __wrap_renameat(int from, const char *name, int to, const char *as);

int __wrap_openat(int folder, const char *name, int flags, mode_t mode)
{
    bool is_nameless = (flags & O_TMPFILE) == O_TMPFILE;
    num_nameless += is_nameless;
    if (is_nameless && tmpfile_error != 0) {
        errno = tmpfile_error;
        return -1;
    }
    void (*now)(qr_file_dir * dir) = strlen(name) > 64 ? when_open : NULL;
    if (now == NULL)
        return __real_openat(folder, name, flags, mode);
    when_open = NULL;
    if (is_input_closed)
        (void)close(STDIN_FILENO);
    int fd = __real_openat(folder, name, flags, mode);
    now(&the_fixture.dir);
    return fd;
}

int __wrap_linkat(int from, const char *name, int to, const char *as, int flags)
{
    int error = link_error;
    do_meanwhile();
    link_error = 0;
    errno = error;
    return error != 0 ? -1 : __real_linkat(from, name, to, as, flags);
}

int __wrap_renameat(int from, const char *name, int to, const char *as)
{
    int error = rename_error;
    do_meanwhile();
    rename_error = 0;
    errno = error;
    return error != 0 ? -1 : __real_renameat(from, name, to, as);
}

/* ---- a directory -------------------------------------------------------------- */

static qr_file_dir *begin(void)
{
    fixture *f = &the_fixture;
    *f = (fixture){.hooks = QUIRE_HOOKS_INIT};
    kit_begin(&f->kit, 8, KIT_BLOCK);
    f->dir = (qr_file_dir){.hooks = &f->hooks,
                           .capacity_bytes = 1 << 20,
                           .block_bytes = KIT_BLOCK,
                           .leftover_ns = 1000000};
    num_nameless = 0;
    tmpfile_error = link_error = rename_error = 0;
    meanwhile = when_open = NULL;
    is_input_closed = false;
    assert_int_equal(qr_file_dir_open(&f->dir, f->kit.folder), QUIRE_OK);
    return &f->dir;
}

static void end(void)
{
    qr_file_dir_close(&the_fixture.dir);
    kit_end(&the_fixture.kit);
}

/* All in one leaf. */
static quire_tier_key key_of(uint32_t number)
{
    quire_tier_key key = kit_key(number);
    key.hash[0] = 0x3c;
    return key;
}

static quire_tier_status store(qr_file_dir *dir, uint32_t number)
{
    unsigned char memory[KIT_BLOCK];
    quire_tier_io io = {.key = key_of(number), .memory = memory, .bytes = sizeof memory};
    kit_fill(memory, sizeof memory, number);
    io.crc = quire_crc32c(0, memory, sizeof memory);
    return qr_file_dir_do(dir, QUIRE_TIER_STORE, &io);
}

static quire_tier_status load(qr_file_dir *dir, uint32_t number)
{
    unsigned char memory[KIT_BLOCK];
    quire_tier_io io = {.key = key_of(number), .memory = memory, .bytes = sizeof memory};
    quire_tier_status status = qr_file_dir_do(dir, QUIRE_TIER_LOAD, &io);
    assert_true(status != QUIRE_TIER_DONE || kit_is_filled(memory, sizeof memory, number));
    return status;
}

/* Files of the leaf; unfinished: those that have no name of a block. */
static uint32_t count_files(const qr_file_dir *dir, uint32_t *unfinished, ino_t *last)
{
    uint32_t count = 0;
    *unfinished = 0;
    DIR *leaf = fdopendir(openat(dir->fd, "3c", O_RDONLY | O_DIRECTORY, 0));
    assert_non_null(leaf);
    for (struct dirent *entry = readdir(leaf); entry != NULL; entry = readdir(leaf)) {
        count += entry->d_name[0] != '.';
        *unfinished += strncmp(entry->d_name, ".tmp", 4) == 0;
        *last = entry->d_name[0] != '.' ? entry->d_ino : *last;
    }
    closedir(leaf);
    return count;
}

static void expect_files(const qr_file_dir *dir, uint32_t wanted)
{
    uint32_t unfinished;
    ino_t last;
    assert_int_equal(count_files(dir, &unfinished, &last), wanted);
    assert_int_equal(unfinished, 0);
    for (uint32_t i = 0; i < wanted; i++)
        assert_int_equal(load(&the_fixture.dir, i), QUIRE_TIER_DONE);
}

/* The first file, where the file system can make it without a name, and give it one. */
static void need_nameless_files(void)
{
    char self[32];
    const qr_file_dir *dir = &the_fixture.dir;
    int fd = __real_openat(dir->fd, ".", O_TMPFILE | O_WRONLY, 0600);
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    bool is_given =
        fd >= 0 && __real_linkat(AT_FDCWD, self, dir->fd, "probe", AT_SYMLINK_FOLLOW) == 0;
    if (fd >= 0)
        close(fd);
    if (!is_given) {
        end();
        skip();
    }
    assert_int_equal(store(&the_fixture.dir, 0), QUIRE_TIER_DONE);
}

/* ---- names -------------------------------------------------------------------- */

/* A file has no name before it is whole: nothing of it is left when the process is killed. */
static void test_files_without_names(void **state)
{
    (void)state;
    qr_file_dir *dir = begin();
    need_nameless_files();
    for (uint32_t i = 1; i < 10; i++)
        assert_int_equal(store(dir, i), QUIRE_TIER_DONE);
    assert_int_equal(num_nameless, 10);
    expect_files(dir, 10);
    end();
}

/* A file system that cannot do that is asked once. */
static void test_asked_once(void **state)
{
    static const int ERRORS[] = {EOPNOTSUPP, EISDIR, EINVAL};
    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        qr_file_dir *dir = begin();
        tmpfile_error = ERRORS[k];
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(store(dir, i), QUIRE_TIER_DONE);
        assert_int_equal(num_nameless, 1);
        expect_files(dir, 10);
        end();
    }
}

/* Nor is one that does not give such a file a name: that store fails, the next does not. */
static void test_no_links(void **state)
{
    static const int ERRORS[] = {EPERM, EXDEV};
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        qr_file_dir *dir = begin();
        need_nameless_files();
        link_error = ERRORS[k];
        assert_int_equal(store(dir, 1), QUIRE_TIER_FAILED);
        for (uint32_t i = 1; i < 10; i++)
            assert_int_equal(store(dir, i), QUIRE_TIER_DONE);
        assert_int_equal(num_nameless, 2);
        expect_files(dir, 10);
        end();
    }
}

/* ---- others ------------------------------------------------------------------- */

static ino_t others_file;

static void store_same(qr_file_dir *dir)
{
    uint32_t unfinished;
    assert_int_equal(store(dir, 1), QUIRE_TIER_DONE);
    (void)count_files(dir, &unfinished, &others_file);
}

/* Another process stores the same block at the same time: its file stays, readers may have it. */
static void test_another_was_quicker(void **state)
{
    (void)state;
    qr_file_dir *dir = begin();
    uint32_t unfinished;
    ino_t now = 0;
    need_nameless_files();
    quire_tier_io io = {.key = key_of(0)};
    assert_int_equal(qr_file_dir_do(dir, QUIRE_TIER_REMOVE, &io), QUIRE_TIER_DONE);
    meanwhile = store_same;
    assert_int_equal(store(dir, 1), QUIRE_TIER_DONE);
    assert_int_equal(count_files(dir, &unfinished, &now), 1);
    assert_true(now == others_file);
    end();
}

static void store_other(qr_file_dir *dir)
{
    assert_int_equal(store(dir, 1), QUIRE_TIER_DONE);
}

/* Two threads of one process have a file of their own each, unfinished ones too. */
static void test_two_unfinished(void **state)
{
    (void)state;
    qr_file_dir *dir = begin();
    tmpfile_error = EOPNOTSUPP;
    meanwhile = store_other;
    assert_int_equal(store(dir, 0), QUIRE_TIER_DONE);
    expect_files(dir, 2);
    end();
}

/* Its bytes are not those that its head speaks of. */
static void damage(const qr_file_dir *dir, uint32_t number)
{
    struct dirent *entry;
    quire_tier_key wanted = key_of(number);
    int folder = __real_openat(dir->fd, "3c", O_RDONLY | O_DIRECTORY);
    DIR *leaf = fdopendir(folder);
    assert_non_null(leaf);
    while ((entry = readdir(leaf)) != NULL) {
        quire_tier_key key;
        if (!qr_file_dir_read_name(entry->d_name, &key) || memcmp(&key, &wanted, sizeof key) != 0)
            continue;
        int fd = __real_openat(folder, entry->d_name, O_WRONLY);
        assert_int_equal(pwrite(fd, "wrong", 5, QR_FILE_PAGE + 100), 5);
        close(fd);
    }
    closedir(leaf);
}

static void store_again(qr_file_dir *dir)
{
    quire_tier_io io = {.key = key_of(0)};
    assert_int_equal(qr_file_dir_do(dir, QUIRE_TIER_REMOVE, &io), QUIRE_TIER_DONE);
    assert_int_equal(store(dir, 0), QUIRE_TIER_DONE);
}

static void leave_it(qr_file_dir *dir)
{
    (void)dir;
}

/* A wrong file goes; what another process has put in its place meanwhile stays. */
static void test_wrong_files(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        bool is_replaced = i % 2 == 1;
        qr_file_dir *dir = begin();
        assert_int_equal(store(dir, 0), QUIRE_TIER_DONE);
        damage(dir, 0);
        int input = fcntl(STDIN_FILENO, F_DUPFD, 3);
        when_open = is_replaced ? store_again : leave_it;
        is_input_closed = i >= 2 && input >= 0; /* by another thread of the program */
        quire_tier_status status = load(dir, 0);
        if (input >= 0) {
            assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
            close(input);
        }
        assert_int_equal(status, QUIRE_TIER_WRONG);
        assert_int_equal(load(dir, 0), is_replaced ? QUIRE_TIER_DONE : QUIRE_TIER_MISSING);
        end();
    }
}

/* ---- failures ----------------------------------------------------------------- */

static void test_nothing_is_left(void **state)
{
    (void)state;
    qr_file_dir *dir = begin();
    tmpfile_error = EOPNOTSUPP;
    rename_error = ENOSPC;
    assert_int_equal(store(dir, 0), QUIRE_TIER_NO_ROOM);
    expect_files(dir, 0);
    rename_error = EACCES;
    assert_int_equal(store(dir, 0), QUIRE_TIER_FAILED);
    expect_files(dir, 0);
    assert_int_equal(store(dir, 0), QUIRE_TIER_DONE);
    expect_files(dir, 1);
    end();
}

/* No call keeps a descriptor, and 0 is one as any other: services close their standard input. */
static void test_descriptors(void **state)
{
    (void)state;
    qr_file_dir *dir = begin();
    int input = fcntl(STDIN_FILENO, F_DUPFD, 3);
    (void)close(STDIN_FILENO);
    uint32_t num_files = kit_open_files();
    quire_tier_io io = {.key = key_of(0)};
    quire_tier_status statuses[] = {store(dir, 0),
                                    load(dir, 0),
                                    load(dir, 1),
                                    qr_file_dir_do(dir, QUIRE_TIER_FIND, &io),
                                    qr_file_dir_do(dir, QUIRE_TIER_REMOVE, &io),
                                    qr_file_dir_do(dir, QUIRE_TIER_FIND, &io)};
    uint32_t num_files_now = kit_open_files();
    if (input >= 0) {
        assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
        close(input);
    }
    static const quire_tier_status WANTED[] = {QUIRE_TIER_DONE,    QUIRE_TIER_DONE,
                                               QUIRE_TIER_MISSING, QUIRE_TIER_DONE,
                                               QUIRE_TIER_DONE,    QUIRE_TIER_MISSING};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(statuses[i], WANTED[i]);
    assert_int_equal(num_files_now, num_files);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_without_names),
        cmocka_unit_test(test_asked_once),
        cmocka_unit_test(test_no_links),
        cmocka_unit_test(test_another_was_quicker),
        cmocka_unit_test(test_two_unfinished),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_descriptors),
    };
    return cmocka_run_group_tests_name("files of a shared directory", tests, NULL, NULL);
}
