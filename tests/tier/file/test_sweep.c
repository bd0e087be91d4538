/* tier/file/test_sweep.c - a shared directory keeps its capacity however many files it has, and
 * removes the oldest.
 *
 *      tier_file_sweep [--files N] [--leaves N] [--sweeps N]      files that fit in one leaf
 *
 * Files are sparse: a name, a length and a time, as the sweep sees them. Between two sweeps as many
 * files are added as a process adds before it sweeps: an eighth of the leaf, and one. */
#include "tier/file/file_kit.h"

#include "tier/file/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 16 };

static uint32_t max_files = 60000;
static uint32_t num_leaves = 1;
static uint32_t num_sweeps = 6;

static bool is_unlink_refused;

int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);

int __wrap_unlinkat(int folder, const char *name, int flags)
{
    if (!is_unlink_refused)
        return __real_unlinkat(folder, name, flags);
    errno = EPERM;
    return -1;
}

typedef struct world {
    file_kit kit;
    qr_file_dir dir;
    quire_hooks hooks;
    int64_t *times; /* of each file that was ever made, in seconds; 0: removed */
    uint32_t num_made;
    uint32_t num_there;
    int64_t clock;
    uint64_t random;
} world;

static uint64_t next_random(world *w)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return w->random >> 33;
}

static void begin(world *w, uint32_t files_per_leaf, uint32_t most_made)
{
    memset(w, 0, sizeof *w);
    kit_begin(&w->kit, 8, KIT_BLOCK);
    w->hooks = (quire_hooks)QUIRE_HOOKS_INIT;
    w->dir.hooks = &w->hooks;
    w->dir.block_bytes = BLOCK;
    w->dir.capacity_bytes = (uint64_t)QR_FILE_LEAVES * files_per_leaf * (QR_FILE_PAGE + BLOCK);
    w->dir.leftover_ns = INT64_C(3600000000000);
    assert_int_equal(qr_file_dir_open(&w->dir, w->kit.folder), QUIRE_OK);
    assert_int_equal(w->dir.leaves_per_group, 1);
    w->times = calloc(most_made, sizeof *w->times);
    assert_non_null(w->times);
    w->clock = 1000000;
    w->random = 1;
}

static void end(world *w)
{
    qr_file_dir_close(&w->dir);
    free(w->times);
    kit_end(&w->kit);
}

static int open_leaf(const world *w, uint32_t leaf)
{
    char name[8];
    (void)snprintf(name, sizeof name, "%02x", leaf);
    (void)mkdirat(w->dir.fd, name, 0700);
    int fd = openat(w->dir.fd, name, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    return fd;
}

/* The number is the key's group, so that a listing tells which file it is. */
static void name_file(uint32_t leaf, uint32_t number, char *name, size_t bytes)
{
    uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    (void)snprintf(name, bytes, "%02x%016llx%046d-%u-0", leaf, (unsigned long long)mixed, 0,
                   number);
}

static void set_time(world *w, int folder, uint32_t leaf, uint32_t number)
{
    char name[QR_FILE_NAME];
    struct timespec times[2] = {{.tv_sec = ++w->clock}, {.tv_sec = w->clock}};
    name_file(leaf, number, name, sizeof name);
    assert_int_equal(utimensat(folder, name, times, 0), 0);
    w->times[number] = w->clock;
}

static void add_files(world *w, uint32_t leaf, uint32_t n)
{
    int folder = open_leaf(w, leaf);
    for (uint32_t i = 0; i < n; i++) {
        char name[QR_FILE_NAME];
        name_file(leaf, w->num_made, name, sizeof name);
        int fd = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, QR_FILE_PAGE + BLOCK), 0);
        close(fd);
        set_time(w, folder, leaf, w->num_made++);
    }
    w->num_there += n;
    close(folder);
}

/* Some old files are used again: they are new now. */
static void use_files(world *w, uint32_t leaf, uint32_t n)
{
    int folder = open_leaf(w, leaf);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = (uint32_t)(next_random(w) % w->num_made);
        if (w->times[number] != 0)
            set_time(w, folder, leaf, number);
    }
    close(folder);
}

static uint8_t *list_files(const world *w, uint32_t leaf, uint32_t *count)
{
    uint8_t *is_there = calloc(w->num_made, 1);
    DIR *folder = fdopendir(open_leaf(w, leaf));
    assert_non_null(is_there);
    assert_non_null(folder);
    *count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const char *number = strchr(entry->d_name, '-');
        if (number == NULL)
            continue;
        is_there[strtoul(number + 1, NULL, 10)] = 1;
        ++*count;
    }
    closedir(folder);
    return is_there;
}

/* Whatever was removed is older than whatever is left. */
static void check_removed(world *w, uint32_t leaf, uint32_t left)
{
    uint32_t count;
    uint8_t *is_there = list_files(w, leaf, &count);
    int64_t newest_removed = 0;
    int64_t oldest_left = INT64_MAX;
    for (uint32_t i = 0; i < w->num_made; i++) {
        if (w->times[i] == 0)
            continue;
        if (is_there[i] && w->times[i] < oldest_left)
            oldest_left = w->times[i];
        if (!is_there[i] && w->times[i] > newest_removed)
            newest_removed = w->times[i];
        if (!is_there[i])
            w->times[i] = 0;
    }
    free(is_there);
    assert_int_equal(count, left);
    assert_true(newest_removed < oldest_left);
    w->num_there = count;
}

static void fill_and_sweep(uint32_t leaf)
{
    world w;
    uint32_t batch = max_files / 8 + 1;
    begin(&w, max_files, max_files + num_sweeps * batch);
    add_files(&w, leaf, max_files);
    for (uint32_t i = 0; i < num_sweeps; i++) {
        add_files(&w, leaf, batch);
        use_files(&w, leaf, batch / 4);
        assert_true(w.num_there <= max_files + batch);
        uint32_t left = qr_file_dir_sweep(&w.dir, leaf);
        check_removed(&w, leaf, left);
        /* At most the capacity; if it was above, a sixteenth below, and no file less. */
        assert_true(left <= max_files);
        assert_true(left >= max_files - max_files / 16 - 1);
    }
    end(&w);
}

static void test_capacity(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < num_leaves; i++)
        fill_and_sweep(i * 37 % QR_FILE_LEAVES);
}

/* A directory that was filled under a larger capacity: one sweep brings it to the new one. */
static void test_smaller_capacity(void **state)
{
    world w;
    (void)state;
    begin(&w, 100, 9000);
    add_files(&w, 5, 9000);
    uint32_t left = qr_file_dir_sweep(&w.dir, 5);
    check_removed(&w, 5, left);
    assert_in_range(left, 93, 94);
    end(&w);
}

/* Nothing can be removed: the sweep ends, and says what is there. */
static void test_no_permission(void **state)
{
    world w;
    (void)state;
    begin(&w, 100, 200);
    add_files(&w, 5, 200);
    is_unlink_refused = true;
    assert_int_equal(qr_file_dir_sweep(&w.dir, 5), 200);
    is_unlink_refused = false;
    end(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_smaller_capacity),
        cmocka_unit_test(test_no_permission),
    };
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--files") == 0)
            max_files = value;
        if (strcmp(argv[i], "--leaves") == 0)
            num_leaves = value;
        if (strcmp(argv[i], "--sweeps") == 0)
            num_sweeps = value;
    }
    return cmocka_run_group_tests_name("room in a shared directory", tests, NULL, NULL);
}
