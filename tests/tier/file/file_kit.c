#define _GNU_SOURCE
#include "tier/file/file_kit.h"

#include "tier/file/format.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void take_log(void *user, quire_log_level level, const char *message)
{
    file_kit *kit = user;
    (void)level;
    pthread_mutex_lock(&log_lock);
    size_t used = strlen(kit->log);
    (void)snprintf(kit->log + used, sizeof kit->log - used, "%s\n", message);
    pthread_mutex_unlock(&log_lock);
}

uint64_t kit_capacity(uint32_t num_blocks, uint32_t block_bytes)
{
    qr_file_layout layout;
    uint64_t bytes = 6 * QR_FILE_PAGE;
    assert_true(qr_file_layout_of(num_blocks, block_bytes, &layout));
    bytes += num_blocks * (layout.slot_bytes + 2 * QR_FILE_ENTRY);
    return bytes;
}

void kit_begin(file_kit *kit, uint32_t num_blocks, uint32_t block_bytes)
{
    memset(kit, 0, sizeof *kit);
    const char *root = getenv("TMPDIR");
    (void)snprintf(kit->folder, sizeof kit->folder, "%.40s/quire-file-XXXXXX",
                   root == NULL ? "/tmp" : root);
    assert_non_null(mkdtemp(kit->folder));
    (void)snprintf(kit->path, sizeof kit->path, "%s/slab", kit->folder);
    kit->config = (quire_tier_file_config)QUIRE_TIER_FILE_CONFIG_INIT;
    kit->config.path = kit->path;
    kit->config.block_bytes = block_bytes;
    kit->config.capacity_bytes = kit_capacity(num_blocks, block_bytes);
    kit->config.fingerprint[0] = 7;
    kit->common = (quire_tier_config)QUIRE_TIER_CONFIG_INIT;
    kit->common.hooks.user = kit;
    kit->common.hooks.log = take_log;
    assert_int_equal(posix_memalign((void **)&kit->memory, 4096, (size_t)KIT_MAX_IOS * block_bytes),
                     0);
}

int kit_open(file_kit *kit)
{
    return quire_tier_file_open(&kit->config, &kit->common, NULL, &kit->tier);
}

void kit_close(file_kit *kit)
{
    assert_int_equal(quire_tier_close(kit->tier), QUIRE_OK);
    kit->tier = NULL;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void kit_end(file_kit *kit)
{
    if (kit->tier != NULL)
        kit_close(kit);
    (void)nftw(kit->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(kit->memory);
}

quire_tier_key kit_key(uint64_t number)
{
    quire_tier_key key;
    unsigned char hash[32] = {0};
    uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);
    memcpy(hash, &mixed, 8);
    memcpy(hash + 24, &number, 8);
    quire_tier_key_of((quire_bytes){hash, sizeof hash}, (uint32_t)(number % 3), 0, &key);
    return key;
}

static uint64_t next_word(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

void kit_fill(void *memory, uint32_t bytes, uint64_t number)
{
    uint64_t state = number * 2654435761 + 88172645463325252;
    for (uint32_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = next_word(&state);
        memcpy((unsigned char *)memory + i, &word, 8);
    }
    for (uint32_t i = bytes / 8 * 8; i < bytes; i++)
        ((unsigned char *)memory)[i] = (unsigned char)(number + i);
}

bool kit_is_filled(const void *memory, uint32_t bytes, uint64_t number)
{
    uint64_t state = number * 2654435761 + 88172645463325252;
    for (uint32_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = next_word(&state);
        if (memcmp((const unsigned char *)memory + i, &word, 8) != 0)
            return false;
    }
    for (uint32_t i = bytes / 8 * 8; i < bytes; i++)
        if (((const unsigned char *)memory)[i] != (unsigned char)(number + i))
            return false;
    return true;
}

void kit_submit(file_kit *kit, quire_tier_op op, uint64_t first, uint32_t n)
{
    uint32_t bytes = kit->config.block_bytes;
    assert_true(n <= KIT_MAX_IOS);
    kit->job = (quire_tier_job){.op = op, .num_ios = n, .ios = kit->ios};
    for (uint32_t i = 0; i < n; i++) {
        unsigned char *block = kit->memory + (size_t)i * bytes;
        kit->ios[i] = (quire_tier_io){.key = kit_key(first + i), .memory = block, .bytes = bytes};
        if (op == QUIRE_TIER_STORE)
            kit_fill(block, bytes, first + i);
        else
            memset(block, 0xee, bytes);
    }
    int status = QUIRE_FULL;
    for (int tries = 0; tries < 1000 && status == QUIRE_FULL; tries++) {
        quire_tier_job *ended[8];
        status = quire_tier_submit(kit->tier, &kit->job);
        if (status == QUIRE_FULL && quire_tier_poll(kit->tier, ended, 8) == 0)
            poll(NULL, 0, 1);
    }
    assert_int_equal(status, QUIRE_OK);
}

void kit_wait(file_kit *kit)
{
    quire_tier_job *ended[8];
    for (int i = 0; i < 20000; i++) {
        uint32_t n = quire_tier_poll(kit->tier, ended, 8);
        for (uint32_t k = 0; k < n; k++)
            if (ended[k] == &kit->job)
                return;
        poll(NULL, 0, i < 100 ? 0 : 1);
    }
    fail_msg("a job did not end");
}

uint32_t kit_run(file_kit *kit, quire_tier_op op, uint64_t first, uint32_t n,
                 quire_tier_status status)
{
    uint32_t count = 0;
    kit_submit(kit, op, first, n);
    kit_wait(kit);
    for (uint32_t i = 0; i < n; i++)
        count += kit->ios[i].status == status;
    return count;
}

uint32_t kit_load_all(file_kit *kit, uint64_t first, uint32_t n)
{
    uint32_t bytes = kit->config.block_bytes;
    uint32_t num_done = 0;
    for (uint32_t at = 0; at < n; at += KIT_MAX_IOS) {
        uint32_t now = n - at < KIT_MAX_IOS ? n - at : KIT_MAX_IOS;
        num_done += kit_run(kit, QUIRE_TIER_LOAD, first + at, now, QUIRE_TIER_DONE);
        for (uint32_t i = 0; i < now; i++)
            if (kit->ios[i].status == QUIRE_TIER_DONE)
                assert_true(kit_is_filled(kit->ios[i].memory, bytes, first + at + i));
    }
    return num_done;
}

void kit_poke(const file_kit *kit, uint64_t offset, const void *bytes, size_t num_bytes)
{
    int fd = open(kit->path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, num_bytes, (off_t)offset), (ssize_t)num_bytes);
    close(fd);
}

void kit_peek(const file_kit *kit, uint64_t offset, void *bytes, size_t num_bytes)
{
    int fd = open(kit->path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, num_bytes, (off_t)offset), (ssize_t)num_bytes);
    close(fd);
}

uint32_t kit_open_files(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}
