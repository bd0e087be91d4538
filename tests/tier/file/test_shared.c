/* tier/file/test_shared.c - a directory that several tiers share, in one process and in several. */
#include "tier/file/file_kit.h"

#include "tier/file/dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void begin(file_kit *kit, uint64_t num_blocks)
{
    kit_begin(kit, 8, KIT_BLOCK);
    kit->config.path = kit->folder;
    kit->config.is_shared = 1;
    kit->config.capacity_bytes = num_blocks * (KIT_BLOCK + 4096);
    kit->config.threads = 4;
}

/* A second tier on the same directory. */
static void join(file_kit *kit, const file_kit *first)
{
    kit_begin(kit, 8, KIT_BLOCK);
    quire_tier_file_config config = first->config;
    kit->config = config;
}

static void name_file(const file_kit *kit, uint64_t number, char *path, size_t bytes)
{
    quire_tier_key key = kit_key(number);
    int n = snprintf(path, bytes, "%s/", kit->folder);
    for (int i = 0; i < 32; i++)
        n += snprintf(path + n, bytes - (size_t)n, "%02x", kit->config.fingerprint[i]);
    n += snprintf(path + n, bytes - (size_t)n, "/%02x/", key.hash[0]);
    for (int i = 0; i < 32; i++)
        n += snprintf(path + n, bytes - (size_t)n, "%02x", key.hash[i]);
    (void)snprintf(path + n, bytes - (size_t)n, "-%u-%u", key.group, key.rank);
}

/* All files below the folder; tmp: those that are not finished. */
static uint32_t count_files(const char *path, uint32_t *num_tmp)
{
    uint32_t count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char below[512];
        (void)snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        bool is_dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (entry->d_type == DT_DIR && !is_dots)
            count += count_files(below, num_tmp);
        else if (!is_dots && entry->d_name[0] == '.')
            ++*num_tmp;
        else if (!is_dots)
            count++;
    }
    closedir(folder);
    return count;
}

static void test_two_tiers(void **state)
{
    file_kit a;
    file_kit b;
    uint8_t found[1];
    uint32_t num_tmp = 0;
    quire_tier_key key = kit_key(3);
    (void)state;
    begin(&a, 1000);
    join(&b, &a);
    assert_int_equal(kit_open(&a), QUIRE_OK);
    assert_int_equal(kit_open(&b), QUIRE_OK);
    assert_int_equal(kit_run(&a, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_DONE), 40);
    assert_int_equal(quire_tier_lookup(a.tier, &key, 1, found), QUIRE_OK);
    assert_int_equal(found[0], 1);
    assert_int_equal(quire_tier_lookup(b.tier, &key, 1, found), QUIRE_OK);
    assert_int_equal(found[0], 2); /* nobody told it */
    assert_int_equal(kit_run(&b, QUIRE_TIER_FIND, 30, 20, QUIRE_TIER_DONE), 10);
    assert_int_equal(b.ios[0].bytes, KIT_BLOCK);
    assert_int_equal(kit_load_all(&b, 0, 50), 40);
    assert_int_equal(kit_run(&b, QUIRE_TIER_STORE, 20, 40, QUIRE_TIER_DONE), 40);
    assert_int_equal(kit_load_all(&a, 0, 60), 60);
    assert_int_equal(count_files(a.folder, &num_tmp), 60);
    assert_int_equal(kit_run(&b, QUIRE_TIER_REMOVE, 0, 10, QUIRE_TIER_DONE), 10);
    assert_int_equal(kit_run(&a, QUIRE_TIER_LOAD, 0, 10, QUIRE_TIER_MISSING), 10);
    assert_int_equal(num_tmp, 0);
    b.config.fingerprint[5] = 5; /* another model sees none of it */
    kit_close(&b);
    assert_int_equal(kit_open(&b), QUIRE_OK);
    assert_int_equal(kit_load_all(&b, 0, 60), 0);
    kit_end(&b);
    kit_end(&a);
}

/* Bytes that somebody changed, files of other lengths, links and pipes: no block, and gone. */
static void test_wrong_files(void **state)
{
    file_kit kit;
    char path[512];
    char other[512];
    (void)state;
    begin(&kit, 1000);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 12, QUIRE_TIER_DONE), 12);
    for (uint32_t i = 0; i < 8; i++) {
        static const long AT[] = {0, 20, 100, 4094, 4096, 5000, 12287, 72};
        name_file(&kit, i, path, sizeof path);
        FILE *file = fopen(path, "r+");
        assert_int_equal(fseek(file, AT[i], SEEK_SET), 0);
        int byte = fgetc(file);
        assert_int_equal(fseek(file, AT[i], SEEK_SET), 0);
        fputc(byte ^ 4, file);
        fclose(file);
    }
    name_file(&kit, 8, path, sizeof path);
    assert_int_equal(truncate(path, 100), 0);
    name_file(&kit, 9, path, sizeof path);
    name_file(&kit, 10, other, sizeof other);
    assert_int_equal(rename(other, path), 0); /* another key's block */
    assert_int_equal(symlink(path, other), 0);
    name_file(&kit, 11, path, sizeof path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 12, QUIRE_TIER_WRONG), 12);
    assert_int_equal(kit_load_all(&kit, 0, 12), 0);
    assert_int_equal(symlink(path, other), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 12, QUIRE_TIER_DONE), 12);
    assert_int_equal(kit_load_all(&kit, 0, 12), 12);
    kit_end(&kit);
}

static void test_bounded(void **state)
{
    file_kit kit;
    uint32_t num_tmp = 0;
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 0; i < 1200; i += 40) {
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 40, QUIRE_TIER_DONE), 40);
        assert_int_equal(kit_load_all(&kit, 0, 10), 10); /* used all the time: they stay */
    }
    uint32_t num_files = 1000000;
    for (int i = 0; i < 500 && num_files > 350; i++) {
        num_files = count_files(kit.folder, &num_tmp);
        poll(NULL, 0, 2);
    }
    assert_in_range(num_files, 200, 350);
    assert_int_equal(kit_load_all(&kit, 0, 10), 10);
    assert_true(kit_load_all(&kit, 1160, 40) > 30);
    kit_end(&kit);
}

/* What sweeps of this process have removed is not believed to be there. */
static void test_swept_is_known(void **state)
{
    enum { BLOCKS = 1200, QUIET_MS = 500 };
    file_kit kit;
    uint32_t num_known = 0;
    uint32_t num_there = 0;
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 0; i < BLOCKS; i += 40)
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 40, QUIRE_TIER_DONE), 40);
    poll(NULL, 0, QUIET_MS); /* the last sweeps end */
    assert_int_equal(kit_load_all(&kit, BLOCKS - 1, 1), 1);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        quire_tier_key key = kit_key(i);
        uint8_t found = 0;
        assert_int_equal(quire_tier_lookup(kit.tier, &key, 1, &found), QUIRE_OK);
        if (found != 1)
            continue;
        num_known++;
        num_there += kit_load_all(&kit, i, 1);
    }
    assert_true(num_known > 100);
    assert_int_equal(num_there, num_known);
    kit_end(&kit);
}

/* A reset would take the blocks of other engines: it is refused, and nothing changes. */
static void test_reset(void **state)
{
    file_kit kit;
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_DONE), 40);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_E_IDENTITY);
    assert_int_equal(kit_load_all(&kit, 0, 40), 40);
    kit_end(&kit);
}

/* A new identity is for this tier alone: others keep their blocks, and so does the identity. */
static void test_identity(void **state)
{
    file_kit a;
    file_kit b;
    uint8_t found[1];
    quire_tier_key key = kit_key(3);
    unsigned char next[QUIRE_FINGERPRINT_BYTES] = {1, 2, 3};
    (void)state;
    begin(&a, 1000);
    join(&b, &a);
    assert_int_equal(kit_open(&a), QUIRE_OK);
    assert_int_equal(kit_open(&b), QUIRE_OK);
    assert_int_equal(kit_run(&a, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_DONE), 40);
    kit_submit(&a, QUIRE_TIER_LOAD, 0, 40);
    assert_int_equal(quire_tier_set_identity(a.tier, next), QUIRE_BUSY);
    kit_wait(&a);
    assert_int_equal(quire_tier_set_identity(a.tier, next), QUIRE_OK);
    assert_int_equal(quire_tier_lookup(a.tier, &key, 1, found), QUIRE_OK);
    assert_int_equal(found[0], 2); /* nothing is known */
    assert_int_equal(kit_load_all(&a, 0, 40), 0);
    assert_int_equal(kit_run(&a, QUIRE_TIER_FIND, 0, 40, QUIRE_TIER_MISSING), 40);
    assert_int_equal(kit_run(&a, QUIRE_TIER_STORE, 20, 10, QUIRE_TIER_DONE), 10);
    assert_int_equal(kit_load_all(&a, 0, 40), 10);
    assert_int_equal(kit_load_all(&b, 0, 40), 40); /* it did not change */
    kit_close(&a);
    memcpy(a.config.fingerprint, next, sizeof next); /* the next life of the new identity */
    assert_int_equal(kit_open(&a), QUIRE_OK);
    assert_int_equal(kit_load_all(&a, 0, 40), 10);
    for (uint32_t i = 0; i < 20; i++) { /* again and again, with sweeps between */
        next[4] = (unsigned char)(i + 1);
        assert_int_equal(quire_tier_set_identity(a.tier, next), QUIRE_OK);
        assert_int_equal(kit_load_all(&a, 0, 40), 0);
        assert_int_equal(kit_run(&a, QUIRE_TIER_STORE, i, 5, QUIRE_TIER_DONE), 5);
        assert_int_equal(kit_load_all(&a, 0, 40), 5);
    }
    assert_int_equal(kit_load_all(&b, 0, 40), 40);
    kit_end(&b);
    kit_end(&a);
}

/* The new folder cannot be made: nothing has changed. */
static void test_identity_refused(void **state)
{
    file_kit kit;
    char path[512];
    unsigned char next[QUIRE_FINGERPRINT_BYTES] = {1, 2, 3};
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    (void)snprintf(path, sizeof path, "%s/010203%058d", kit.folder, 0);
    fclose(fopen(path, "w")); /* a file of that name */
    assert_int_equal(quire_tier_set_identity(kit.tier, next), QUIRE_E_SYSTEM);
    assert_non_null(strstr(kit.log, "cannot open the directory"));
    assert_int_equal(kit_load_all(&kit, 0, 10), 10);
    kit_end(&kit);
}

/* What a process left that was killed before it could give its file a name. */
static void test_leftovers(void **state)
{
    file_kit kit;
    char path[512];
    char old[600];
    char young[600];
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 1, QUIRE_TIER_DONE), 1);
    kit_close(&kit);
    name_file(&kit, 0, path, sizeof path);
    *strrchr(path, '/') = 0;
    (void)snprintf(old, sizeof old, "%s/.tmp-0123456789abcdef-0", path);
    (void)snprintf(young, sizeof young, "%s/.tmp-0123456789abcdef-1", path);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    fclose(fopen(old, "w"));
    fclose(fopen(young, "w"));
    assert_int_equal(utimensat(AT_FDCWD, old, times, 0), 0);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (int i = 0; i < 2000 && access(old, F_OK) == 0; i++)
        poll(NULL, 0, 1);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(young, F_OK), 0);
    assert_int_equal(kit_load_all(&kit, 0, 1), 1);
    kit_close(&kit);
    kit.config.leftover_s = 1; /* then the young one is left over soon */
    for (int i = 0; i < 20 && access(young, F_OK) == 0; i++) {
        poll(NULL, 0, 300);
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        poll(NULL, 0, 50);
        kit_close(&kit);
    }
    assert_int_equal(access(young, F_OK), -1);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_end(&kit);
}

/* Where files cannot be without a name. */
static void test_named_files(void **state)
{
    file_kit kit;
    qr_file_dir dir = {.capacity_bytes = 1 << 20, .block_bytes = KIT_BLOCK, .leftover_ns = 1000000};
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    uint32_t num_tmp = 0;
    (void)state;
    kit_begin(&kit, 8, KIT_BLOCK);
    dir.hooks = &hooks;
    assert_int_equal(qr_file_dir_open(&dir, kit.folder), QUIRE_OK);
    atomic_store(&dir.has_tmpfile, 0);
    for (uint32_t i = 0; i < 20; i++) {
        quire_tier_io io = {.key = kit_key(i % 10), .memory = kit.memory, .bytes = KIT_BLOCK};
        kit_fill(kit.memory, KIT_BLOCK, i % 10);
        io.crc = quire_crc32c(0, kit.memory, KIT_BLOCK);
        assert_int_equal(qr_file_dir_do(&dir, QUIRE_TIER_STORE, &io), QUIRE_TIER_DONE);
        memset(kit.memory, 0, KIT_BLOCK);
        assert_int_equal(qr_file_dir_do(&dir, QUIRE_TIER_LOAD, &io), QUIRE_TIER_DONE);
        assert_true(kit_is_filled(kit.memory, KIT_BLOCK, i % 10));
    }
    assert_int_equal(count_files(kit.folder, &num_tmp), 10);
    assert_int_equal(num_tmp, 0);
    qr_file_dir_close(&dir);
    kit_end(&kit);
}

/* Gone while it is used: misses and errors, then all is well again. */
static void test_removed_below(void **state)
{
    file_kit kit;
    char command[128];
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_DONE), 40);
    pid_t child = fork();
    if (child == 0) {
        (void)snprintf(command, sizeof command, "%s", kit.folder);
        execlp("find", "find", command, "-mindepth", "1", "-delete", (char *)NULL);
        _exit(1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 40, QUIRE_TIER_MISSING), 40);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_FAILED), 40);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 40, QUIRE_TIER_DONE), 40);
    kit_end(&kit);
}

static void set_limit(int which, rlim_t most, struct rlimit *before)
{
    struct rlimit few;
    assert_int_equal(getrlimit(which, before), 0);
    few = *before;
    few.rlim_cur = most;
    assert_int_equal(setrlimit(which, &few), 0);
}

/* A file that may not become so large, and no more descriptors: as a full disk, or a full table. */
static void test_limits(void **state)
{
    file_kit kit;
    struct rlimit before;
    uint32_t num_tmp = 0;
    (void)state;
    begin(&kit, 300);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    (void)signal(SIGXFSZ, SIG_IGN);
    set_limit(RLIMIT_FSIZE, 6000, &before);
    uint32_t num_full = kit_run(&kit, QUIRE_TIER_STORE, 20, 10, QUIRE_TIER_NO_ROOM);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(num_full, 10);
    assert_int_equal(kit_load_all(&kit, 0, 30), 10);
    set_limit(RLIMIT_NOFILE, 3, &before);
    uint32_t num_failed = kit_run(&kit, QUIRE_TIER_STORE, 20, 10, QUIRE_TIER_FAILED);
    num_failed += kit_run(&kit, QUIRE_TIER_LOAD, 0, 10, QUIRE_TIER_FAILED);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(num_failed, 20);
    assert_int_equal(kit_load_all(&kit, 0, 30), 10);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 20, 10, QUIRE_TIER_DONE), 10);
    assert_int_equal(count_files(kit.folder, &num_tmp), 20);
    assert_int_equal(num_tmp, 0);
    kit_end(&kit);
}

static void test_refused(void **state)
{
    file_kit kit;
    char path[512];
    (void)state;
    begin(&kit, 300);
    (void)snprintf(path, sizeof path, "%s/none", kit.folder);
    kit.config.path = path;
    assert_int_equal(kit_open(&kit), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "cannot be opened as a directory"));
    kit.config.path = kit.folder;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_close(&kit);
    name_file(&kit, 0, path, sizeof path);
    path[strlen(kit.folder) + 65] = 0; /* the directory of this model */
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(kit_open(&kit), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "other users can write it"));
    kit.config.capacity_bytes = KIT_BLOCK;
    assert_int_equal(kit_open(&kit), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "is smaller than one block"));
    kit.config.direct = QUIRE_ON;
    assert_int_equal(kit_open(&kit), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "uses the page cache and threads"));
    kit_end(&kit);
}

/* Several processes store and load the same keys at once, and some are killed while they do. */
static void live(const file_kit *parent, uint32_t seed)
{
    file_kit kit;
    join(&kit, parent);
    if (kit_open(&kit) != QUIRE_OK)
        _exit(1);
    for (uint32_t i = 0; i < 40; i++) {
        uint32_t first = (seed * 7 + i * 13) % 200;
        (void)kit_run(&kit, QUIRE_TIER_STORE, first, 20, QUIRE_TIER_DONE);
        (void)kit_load_all(&kit, (first + 50) % 200, 20);
    }
    _exit(0);
}

static void test_processes(void **state)
{
    file_kit kit;
    pid_t children[6];
    uint32_t num_tmp = 0;
    (void)state;
    begin(&kit, 5000);
    for (uint32_t i = 0; i < 6; i++) {
        children[i] = fork();
        if (children[i] == 0)
            live(&kit, i);
    }
    for (uint32_t i = 0; i < 6; i++) {
        int result;
        if (i % 2 == 1) {
            poll(NULL, 0, 20);
            assert_int_equal(kill(children[i], SIGKILL), 0);
        }
        assert_int_equal(waitpid(children[i], &result, 0), children[i]);
        assert_true(i % 2 == 1 || result == 0);
    }
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_true(kit_load_all(&kit, 0, 220) > 100);
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    quire_tier_get_stats(kit.tier, &stats);
    assert_int_equal(stats.keys[QUIRE_TIER_LOAD][QUIRE_TIER_WRONG], 0);
    (void)count_files(kit.folder, &num_tmp);
    assert_int_equal(num_tmp, 0);
    kit_end(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_tiers),        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_bounded),          cmocka_unit_test(test_reset),
        cmocka_unit_test(test_swept_is_known),   cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_named_files),      cmocka_unit_test(test_removed_below),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_processes),
        cmocka_unit_test(test_limits),           cmocka_unit_test(test_identity),
        cmocka_unit_test(test_identity_refused),
    };
    return cmocka_run_group_tests_name("a shared directory", tests, NULL, NULL);
}
