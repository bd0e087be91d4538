/* tier/file/test_file.c - the private file: what is stored comes back, in this life and the next.
 * */
#include "tier/file/file_kit.h"

#include "tier/file/format.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void begin(file_kit *kit, uint32_t num_blocks, void **state)
{
    kit_begin(kit, num_blocks, KIT_BLOCK);
    kit->config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
}

static qr_file_layout layout_of(const file_kit *kit)
{
    qr_file_layout layout;
    assert_true(qr_file_layout_plan(kit->config.capacity_bytes, kit->config.block_bytes, &layout));
    return layout;
}

static void test_round_trip(void **state)
{
    file_kit kit;
    uint8_t found[2];
    quire_tier_key keys[2] = {kit_key(3), kit_key(99)};
    begin(&kit, 40, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 20, QUIRE_TIER_MISSING), 20);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 10, 20, QUIRE_TIER_DONE), 20);
    assert_int_equal(kit_load_all(&kit, 0, 30), 30);
    assert_int_equal(quire_tier_lookup(kit.tier, keys, 2, found), QUIRE_OK);
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_FIND, 25, 10, QUIRE_TIER_DONE), 5);
    assert_int_equal(kit.ios[0].bytes, KIT_BLOCK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_REMOVE, 0, 5, QUIRE_TIER_DONE), 5);
    assert_int_equal(kit_load_all(&kit, 0, 30), 25);
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(kit.tier, &stats), QUIRE_OK);
    assert_int_equal(stats.usage.total, 40);
    assert_int_equal(stats.usage.cached, 25);
    assert_int_equal(stats.bad_ends, 0);
    kit_end(&kit);
}

static void test_restart(void **state)
{
    file_kit kit;
    begin(&kit, 40, state);
    for (uint32_t life = 0; life < 4; life++) {
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_load_all(&kit, 0, 40), life * 10);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, life * 10, 10, QUIRE_TIER_DONE), 10);
        kit_close(&kit);
    }
    kit_end(&kit);
}

static void test_evicts(void **state)
{
    file_kit kit;
    begin(&kit, 10, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 0; i < 35; i++) {
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 1, QUIRE_TIER_DONE), 1);
        assert_int_equal(kit_load_all(&kit, 0, 35), i < 10 ? i + 1 : 10);
    }
    assert_int_equal(kit_load_all(&kit, 25, 10), 10);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 35), 10);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 100, 20, QUIRE_TIER_DONE), 10);
    kit_end(&kit);
}

static void test_reset(void **state)
{
    file_kit kit;
    begin(&kit, 20, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    kit_submit(&kit, QUIRE_TIER_LOAD, 0, 20);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK);
    kit_wait(&kit);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    kit_submit(&kit, QUIRE_TIER_STORE, 30, 10);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK);
    kit_wait(&kit);
    assert_int_equal(kit_load_all(&kit, 30, 10), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 60, 20, QUIRE_TIER_DONE), 20);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    assert_int_equal(kit_load_all(&kit, 60, 20), 20);
    kit_end(&kit);
}

/* Stores that waited behind others when all was reset are of before: no later life finds them. */
static void test_reset_of_queued(void **state)
{
    file_kit kit;
    begin(&kit, 80, state);
    kit.config.depth = 1;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_submit(&kit, QUIRE_TIER_STORE, 0, 60);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK);
    kit_wait(&kit);
    assert_int_equal(kit_load_all(&kit, 0, 60), 0);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 60), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 60, QUIRE_TIER_DONE), 60);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK);
    kit_close(&kit); /* at once */
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 60), 0);
    kit_end(&kit);
}

static void test_sizes(void **state)
{
    static const uint32_t SIZES[] = {1, 511, 512, 4095, 4096, 4097, 8191, 8192, 100000};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        file_kit kit;
        kit_begin(&kit, 7, SIZES[i]);
        kit.config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 5, 7, QUIRE_TIER_DONE), 7);
        kit_close(&kit);
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_load_all(&kit, 5, 7), 7);
        kit_end(&kit);
    }
}

/* A block of another length than was stored is not what was stored. */
static void test_other_length(void **state)
{
    file_kit kit;
    quire_tier_job *ended[1];
    begin(&kit, 7, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 1, QUIRE_TIER_DONE), 1);
    kit.job = (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = 1, .ios = kit.ios};
    kit.ios[0] = (quire_tier_io){.key = kit_key(0), .memory = kit.memory, .bytes = 4096};
    assert_int_equal(quire_tier_submit(kit.tier, &kit.job), QUIRE_OK);
    kit_wait(&kit);
    assert_int_equal(kit.ios[0].status, QUIRE_TIER_WRONG);
    assert_int_equal(quire_tier_poll(kit.tier, ended, 1), 0);
    kit_end(&kit);
}

/* ---- finding what is there, without an index ---------------------------- */

static void test_scan(void **state)
{
    file_kit kit;
    unsigned char zeros[4096] = {0};
    begin(&kit, 300, state);
    qr_file_layout layout = layout_of(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (uint32_t i = 0; i < 240; i += 60)
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, i, 60, QUIRE_TIER_DONE), 60);
    kit_close(&kit);
    kit_poke(&kit, layout.index_at[0], zeros, sizeof zeros);
    kit_poke(&kit, layout.index_at[1], zeros, sizeof zeros);
    for (int life = 0; life < 2; life++) {
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        for (int i = 0; i < 2000 && kit_load_all(&kit, 0, 240) < 240; i++)
            poll(NULL, 0, 1);
        assert_int_equal(kit_load_all(&kit, 0, 240), 240);
        uint32_t num_done = 0;
        for (int i = 0; i < 2000 && num_done == 0; i++) /* none is stored before all are read */
            num_done = kit_run(&kit, QUIRE_TIER_STORE, 500, 50, QUIRE_TIER_DONE);
        assert_int_equal(num_done, 50);
        kit_close(&kit); /* now with an index */
    }
    assert_non_null(strstr(kit.log, "has no valid index; its 300 slots are being read"));
    assert_non_null(strstr(kit.log, "300 of 300 slots read, 240 blocks found"));
    kit_end(&kit);
}

/* ---- whose file it is --------------------------------------------------- */

static void expect_refused(file_kit *kit, int status, const char *words)
{
    uint32_t num_files = kit_open_files();
    assert_int_equal(kit_open(kit), status);
    assert_null(kit->tier);
    if (strstr(quire_refusal(), words) == NULL)
        fail_msg("'%s' does not say '%s'", quire_refusal(), words);
    assert_int_equal(kit_open_files(), num_files);
}

static void test_other_contents(void **state)
{
    file_kit kit;
    begin(&kit, 20, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    kit_close(&kit);
    kit.config.fingerprint[31] = 1;
    expect_refused(&kit, QUIRE_E_CORRUPT, "another model or layout");
    kit.config.fingerprint[31] = 0;
    kit.config.capacity_bytes = kit_capacity(21, KIT_BLOCK);
    expect_refused(&kit, QUIRE_E_CORRUPT, "has room for 20 blocks, not for 21");
    kit.config.block_bytes = 4096;
    expect_refused(&kit, QUIRE_E_CORRUPT, "has blocks of 8192 bytes, not of 4096");
    kit.config.block_bytes = KIT_BLOCK;
    kit.config.capacity_bytes = kit_capacity(20, KIT_BLOCK);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 20);
    kit_close(&kit);
    kit.config.fingerprint[31] = 1;
    kit.config.if_other = QUIRE_TIER_FILE_ANEW;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    kit_close(&kit);
    kit.config.fingerprint[31] = 0;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    kit_end(&kit);
}

static void test_supers_damaged(void **state)
{
    file_kit kit;
    unsigned char flip = 0xff;
    begin(&kit, 20, state);
    for (int both = 0; both < 2; both++) {
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
        kit_close(&kit);
        kit_poke(&kit, 1000, &flip, 1);
        if (both)
            kit_poke(&kit, 5096, &flip, 1);
        if (!both) {
            assert_int_equal(kit_open(&kit), QUIRE_OK);
            assert_int_equal(kit_load_all(&kit, 0, 20), 20);
            kit_close(&kit);
        }
    }
    expect_refused(&kit, QUIRE_E_CORRUPT, "is corrupt");
    kit.config.if_other = QUIRE_TIER_FILE_ANEW;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    kit_end(&kit);
}

static void test_newer_version(void **state)
{
    file_kit kit;
    unsigned char page[4096];
    begin(&kit, 20, state);
    kit.config.if_other = QUIRE_TIER_FILE_ANEW;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_close(&kit);
    kit_peek(&kit, 0, page, sizeof page);
    page[8] = 2;
    uint32_t crc = quire_crc32c(0, page, 4092);
    memcpy(page + 4092, &crc, 4);
    kit_poke(&kit, 0, page, sizeof page);
    expect_refused(&kit, QUIRE_E_CORRUPT, "newer version");
    kit_end(&kit);
}

static void test_foreign_file(void **state)
{
    file_kit kit;
    char text[9000];
    char seen[9000];
    begin(&kit, 20, state);
    kit.config.if_other = QUIRE_TIER_FILE_ANEW; /* not even then */
    memset(text, 'a', sizeof text);
    FILE *out = fopen(kit.path, "w");
    assert_int_equal(fwrite(text, 1, sizeof text, out), sizeof text);
    fclose(out);
    expect_refused(&kit, QUIRE_E_CORRUPT, "is not a file of this tier and is not touched");
    kit_peek(&kit, 0, seen, sizeof seen);
    assert_memory_equal(seen, text, sizeof text);
    kit_end(&kit);
}

static void test_second_process(void **state)
{
    file_kit kit;
    char words[64];
    begin(&kit, 20, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    file_kit second = kit;
    (void)snprintf(words, sizeof words, "is in use by process %d", (int)getpid());
    expect_refused(&(file_kit){.config = kit.config, .common = {.size = sizeof kit.common}},
                   QUIRE_BUSY, words);
    pid_t child = fork();
    if (child == 0)
        _exit(quire_tier_file_open(&second.config, NULL, NULL, &second.tier) == QUIRE_BUSY ? 0 : 1);
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_end(&kit);
}

/* The child closes its copy, or only exits: the parent keeps lock, file and blocks. */
static void test_child_process(void **state)
{
    for (int closes = 0; closes < 2; closes++) {
        file_kit kit;
        char words[64];
        struct stat info;
        begin(&kit, 20, state);
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
        kit_submit(&kit, QUIRE_TIER_STORE, 10, 10);
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(closes != 0 && (quire_tier_reset(kit.tier) != QUIRE_E_SYSTEM ||
                                  quire_tier_close(kit.tier) != QUIRE_E_SYSTEM));
        int result = -1;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(result, 0);
        kit_wait(&kit);
        assert_int_equal(kit_load_all(&kit, 0, 20), 20);
        assert_int_equal(stat(kit.path, &info), 0);
        (void)snprintf(words, sizeof words, "is in use by process %d", (int)getpid());
        expect_refused(&(file_kit){.config = kit.config, .common = {.size = sizeof kit.common}},
                       QUIRE_BUSY, words);
        kit_end(&kit);
    }
}

/* ---- paths
 * ------------------------------------------------------------------------------------- */

static void test_paths(void **state)
{
    file_kit kit;
    char real[128];
    struct stat info;
    begin(&kit, 20, state);
    (void)snprintf(real, sizeof real, "%s/none/slab", kit.folder);
    kit.config.path = real;
    expect_refused(&kit, QUIRE_E_SYSTEM, "No such file or directory");
    kit.config.path = kit.folder;
    expect_refused(&kit, QUIRE_E_SYSTEM, "be opened");
    (void)snprintf(real, sizeof real, "%s/other", kit.folder);
    assert_int_equal(symlink(real, kit.path), 0);
    kit.config.path = kit.path;
    expect_refused(&kit, QUIRE_E_SYSTEM, "is a symbolic link");
    assert_int_equal(unlink(kit.path), 0);
    assert_int_equal(mkfifo(kit.path, 0600), 0);
    expect_refused(&kit, QUIRE_E_SYSTEM, "is not a regular file");
    assert_int_equal(unlink(kit.path), 0);
    kit.config.path = "";
    expect_refused(&kit, QUIRE_E_CONFIG, "path is missing");
    kit.config.path = kit.path;
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(stat(kit.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_true((uint64_t)info.st_size <= kit.config.capacity_bytes);
    assert_true((uint64_t)info.st_blocks * 512 >= (uint64_t)info.st_size);
    kit_close(&kit);
    assert_int_equal(chmod(kit.path, 0620), 0);
    expect_refused(&kit, QUIRE_E_SYSTEM, "other users can write it");
    assert_int_equal(access(kit.path, F_OK), 0);
    kit_end(&kit);
}

static void test_no_room(void **state)
{
    file_kit kit;
    begin(&kit, 20, state);
    kit.config.capacity_bytes = UINT64_C(1) << 50;
    kit.config.block_bytes = 1 << 30;
    expect_refused(&kit, QUIRE_E_SYSTEM, "cannot reserve");
    assert_non_null(strstr(quire_refusal(), "free); lower capacity_bytes, or free disk space"));
    assert_int_equal(access(kit.path, F_OK), -1); /* nothing is left behind */
    kit.config.capacity_bytes = 100;
    expect_refused(&kit, QUIRE_E_CONFIG, "is too small for blocks");
    kit.config.capacity_bytes = UINT64_MAX;
    kit.config.block_bytes = 4096;
    expect_refused(&kit, QUIRE_E_CONFIG, "is too large for blocks of 4096 bytes");
    kit.config.depth = 5000;
    expect_refused(&kit, QUIRE_E_CONFIG, "invalid depth 5000 (expected at most 1024)");
    kit_end(&kit);
}

/* The most files that may be open: none is left for the tier. */
static void test_no_descriptors(void **state)
{
    file_kit kit;
    struct rlimit before;
    begin(&kit, 20, state);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t most = 3; most < 12; most++) {
        struct rlimit few = {.rlim_cur = most, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        int status = kit_open(&kit);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_true(status == QUIRE_OK || status == QUIRE_E_SYSTEM);
        if (status == QUIRE_OK)
            kit_close(&kit);
    }
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    kit_end(&kit);
}

/* ---- what the system does not allow ------------------------------------- */

/* From here on this process may not use io_uring: as in many containers. */
static bool forbid_uring(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Exit status: 0 all is well. */
static int live_without_uring(file_kit *kit)
{
    if (!forbid_uring())
        return 0;
    if (kit_open(kit) != QUIRE_OK ||
        strstr(kit->log, "io_uring is not available (Operation not "
                         "permitted): 8 threads read and write") == NULL)
        return 1;
    if (kit_run(kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE) != 20 ||
        kit_load_all(kit, 0, 20) != 20)
        return 2;
    kit_close(kit);
    kit->config.uring = QUIRE_ON;
    if (kit_open(kit) != QUIRE_E_SYSTEM ||
        strstr(quire_refusal(), "io_uring is not available: Operation not permitted") == NULL)
        return 3;
    return 0;
}

static void test_uring_forbidden(void **state)
{
#ifndef QUIRE_URING
    skip();
#endif
    file_kit kit;
    int result;
    begin(&kit, 20, state);
    pid_t child = fork();
    if (child == 0)
        _exit(live_without_uring(&kit));
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    kit_end(&kit);
}

/* ---- what others do to the file while it is used
 * --------------------------------------------------- */

static void test_deleted(void **state)
{
    file_kit kit;
    begin(&kit, 20, state);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    assert_int_equal(unlink(kit.path), 0);
    assert_int_equal(rmdir(kit.folder), 0);
    assert_int_equal(kit_load_all(&kit, 0, 10), 10);
    kit_close(&kit);
    expect_refused(&kit, QUIRE_E_SYSTEM, "cannot open its directory");
    assert_int_equal(mkdir(kit.folder, 0700), 0);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 10), 0);
    kit_end(&kit);
}

static void test_truncated(void **state)
{
    file_kit kit;
    begin(&kit, 20, state);
    qr_file_layout layout = layout_of(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    assert_int_equal(truncate(kit.path, (off_t)qr_file_slot_at(&layout, 10) + 5000), 0);
    assert_true(kit_load_all(&kit, 0, 20) <= 10);
    kit_close(&kit);
    assert_int_equal(truncate(kit.path, (off_t)qr_file_slot_at(&layout, 5)), 0);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_non_null(strstr(kit.log, "is truncated"));
    assert_true(kit_load_all(&kit, 0, 20) <= 5);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 100, 20, QUIRE_TIER_DONE), 20);
    assert_int_equal(kit_load_all(&kit, 100, 20), 20);
    kit_end(&kit);
}

/* Every bit that is wrong is found, wherever it is. */
static void test_flipped(void **state)
{
    file_kit kit;
    begin(&kit, 16, state);
    qr_file_layout layout = layout_of(&kit);
    for (int round = 0; round < 2; round++) { /* before and after a restart */
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 16, QUIRE_TIER_DONE), 16);
        if (round == 1)
            kit_close(&kit);
        for (uint32_t slot = 0; slot < 16; slot++) {
            uint64_t offset = qr_file_slot_at(&layout, slot) + 4096 + slot * 512;
            unsigned char byte;
            kit_peek(&kit, offset, &byte, 1);
            byte ^= (unsigned char)(1 << slot % 8);
            kit_poke(&kit, offset, &byte, 1);
        }
        if (round == 1)
            assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 16, QUIRE_TIER_WRONG), 16);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_LOAD, 0, 16, QUIRE_TIER_MISSING), 16);
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 16, QUIRE_TIER_DONE), 16);
        assert_int_equal(kit_load_all(&kit, 0, 16), 16);
        kit_close(&kit);
    }
    kit_end(&kit);
}

#define BOTH(test)                                                                                 \
    {.name = #test " (io_uring)", .test_func = test},                                              \
    {                                                                                              \
        .name = #test " (threads)", .test_func = test, .initial_state = &with_threads              \
    }

int main(void)
{
    static int with_threads;
    const struct CMUnitTest tests[] = {
        BOTH(test_round_trip),
        BOTH(test_restart),
        BOTH(test_evicts),
        BOTH(test_reset),
        BOTH(test_reset_of_queued),
        BOTH(test_sizes),
        BOTH(test_other_length),
        BOTH(test_scan),
        BOTH(test_other_contents),
        BOTH(test_supers_damaged),
        BOTH(test_newer_version),
        BOTH(test_foreign_file),
        BOTH(test_second_process),
        BOTH(test_child_process),
        BOTH(test_paths),
        BOTH(test_no_room),
        BOTH(test_no_descriptors),
        {.name = "test_uring_forbidden", .test_func = test_uring_forbidden},
        BOTH(test_deleted),
        BOTH(test_truncated),
        BOTH(test_flipped),
    };
    return cmocka_run_group_tests_name("the private file", tests, NULL, NULL);
}
