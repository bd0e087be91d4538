#define _GNU_SOURCE /* nftw */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BLOCKS = 900, DIRECTORY_BLOCKS = 600, FAULTY_KEYS = 1500 };

/* ---- once ---------------------------------------------------------------------- */

void torture_begin_tiers(torture *t)
{
    t->stopped = -1;
    (void)snprintf(t->folder, sizeof t->folder, "torture-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    if (t->options.has_redis)
        redis_start_cluster(t->servers, TORTURE_NODES, "--maxmemory", "16mb");
}

static void file_path(const torture *t, bool is_hybrid, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%s", t->folder, is_hybrid ? "hybrid" : "full");
}

static void directory_path(const torture *t, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/directory", t->folder);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_folder(const char *path)
{
    assert_true(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT);
}

void torture_end_tiers(torture *t)
{
    char path[128];
    for (int i = 0; i < 2; i++) {
        file_path(t, i != 0, path, sizeof path);
        assert_true(unlink(path) == 0 || errno == ENOENT);
    }
    directory_path(t, path, sizeof path);
    remove_folder(path);
    assert_int_equal(rmdir(t->folder), 0);
    for (int i = 0; t->options.has_redis && i < TORTURE_NODES; i++)
        redis_forget(&t->servers[i]);
}

/* ---- an era -------------------------------------------------------------------- */

static quire_tier_config common_config(torture *t, const char *label)
{
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.label = label;
    config.memory = t->cpu;
    config.memory_bytes = (size_t)TORTURE_CPU * TORTURE_BYTES;
    config.breaker_ns = 50000000;
    config.close_ns = UINT64_C(20000000000);
    return config;
}

static void add_tier(torture *t, quire_tier *tier, const char *label)
{
    t->labels[t->num_tiers] = label;
    t->is_faulty[t->num_tiers] = strcmp(label, "faulty") == 0;
    t->tiers[t->num_tiers++] = tier;
}

/* Both kinds of engine have a name of their own for what they store. */
static void fingerprint_of(const torture *t, unsigned char *fingerprint)
{
    quire_identity identity = QUIRE_IDENTITY_INIT;
    const char *name = t->is_hybrid ? "hybrid" : "full";
    identity.model = (quire_bytes){name, strlen(name)};
    identity.block_bytes = TORTURE_BYTES;
    assert_int_equal(quire_fingerprint(&identity, fingerprint), QUIRE_OK);
}

static void open_file(torture *t)
{
    char path[128];
    quire_tier_config common = common_config(t, "file");
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    file_path(t, t->is_hybrid, path, sizeof path);
    config.path = path;
    config.block_bytes = TORTURE_BYTES;
    config.capacity_bytes = (uint64_t)FILE_BLOCKS * (TORTURE_BYTES + 4096) + (1 << 20);
    config.policy = (quire_slots_policy)torture_draw(t, 3);
    config.checkpoint_ms = 200;
    config.if_other = QUIRE_TIER_FILE_ANEW;
    config.uring = torture_chance(t, 2) ? QUIRE_DEFAULT : QUIRE_OFF;
    fingerprint_of(t, config.fingerprint);
    quire_tier *tier = NULL;
    if (quire_tier_file_open(&config, &common, NULL, &tier) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    add_tier(t, tier, "file");
}

static void open_directory(torture *t)
{
    char path[128];
    quire_tier_config common = common_config(t, "directory");
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    directory_path(t, path, sizeof path);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    config.path = path;
    config.block_bytes = TORTURE_BYTES;
    config.capacity_bytes = (uint64_t)DIRECTORY_BLOCKS * (TORTURE_BYTES + 4096);
    config.is_shared = 1;
    config.threads = 2;
    fingerprint_of(t, config.fingerprint);
    quire_tier *tier = NULL;
    if (quire_tier_file_open(&config, &common, NULL, &tier) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    add_tier(t, tier, "directory");
}

static void open_redis(torture *t)
{
    char names[TORTURE_NODES][32];
    const char *servers[TORTURE_NODES];
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_config common = common_config(t, "redis");
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    for (int i = 0; i < TORTURE_NODES; i++) {
        (void)snprintf(names[i], sizeof names[i], "127.0.0.1:%d", t->servers[i].port);
        servers[i] = names[i];
    }
    fingerprint_of(t, fingerprint);
    config.servers = servers;
    config.num_servers = TORTURE_NODES;
    config.fingerprint = fingerprint;
    config.max_block_bytes = TORTURE_BYTES;
    config.breaker_ns = 50000000;
    config.late_ns = 200000000;
    config.event_keys = 1500;
    config.usage_ns = 20000000;
    quire_tier *tier = NULL;
    if (quire_tier_redis_open(&config, &common, NULL, &tier, NULL) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    add_tier(t, tier, "redis");
}

static void open_faulty(torture *t, bool is_shared)
{
    faulty_config faults = {.max_keys = FAULTY_KEYS,
                            .max_bytes = TORTURE_BYTES,
                            .seed = t->options.seed,
                            .is_shared = is_shared};
    t->part = faulty_create(&faults);
    quire_tier_config common = common_config(t, "faulty");
    common.ops = faulty_ops();
    common.self = t->part;
    quire_tier *tier = NULL;
    if (quire_tier_open(&common, NULL, &tier) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    add_tier(t, tier, "faulty");
}

void torture_open_tiers(torture *t, uint32_t era)
{
    t->num_tiers = 0;
    t->part = NULL;
    if (t->options.has_faulty && era % 3 == 1) /* sometimes it is the first that is asked */
        open_faulty(t, era % 2 != 0);
    if (t->options.has_file)
        open_file(t);
    if (t->options.has_directory)
        open_directory(t);
    if (t->options.has_redis)
        open_redis(t);
    if (t->options.has_faulty && era % 3 != 1)
        open_faulty(t, era % 2 != 0);
}

void torture_close_tiers(torture *t)
{
    for (uint32_t i = 0; i < t->num_tiers; i++)
        assert_int_equal(quire_tier_close(t->tiers[i]), QUIRE_OK);
    t->num_tiers = 0;
    t->part = NULL;
}

/* ---- what goes wrong ----------------------------------------------------------- */

static void trouble_faulty(torture *t)
{
    if (t->part == NULL)
        return;
    faulty_set_all(t->part, torture_chance(t, 3) ? 0 : (uint32_t)torture_draw(t, 40));
    faulty_set(t->part, FAULTY_HOLD, torture_chance(t, 3) ? (uint32_t)torture_draw(t, 10) : 0);
    faulty_set_delay(t->part, (uint32_t)torture_draw(t, 4));
    faulty_hold(t->part, torture_chance(t, 12));
    if (torture_chance(t, 2))
        faulty_release(t->part);
}

static void trouble_device(torture *t)
{
    quire_device_host_faults faults = {0};
    if (torture_chance(t, 3)) {
        faults.compute_delay_us = (uint32_t)torture_draw(t, 100);
        faults.copy_delay_us = (uint32_t)torture_draw(t, 20);
        faults.fail_per_mille = (uint32_t)torture_draw(t, 30);
    }
    assert_int_equal(quire_device_host_set_faults(&t->device, &faults), QUIRE_OK);
}

/* Somebody writes into the file. */
static void trouble_file(torture *t)
{
    char path[128];
    struct stat info;
    file_path(t, t->is_hybrid, path, sizeof path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    for (int i = 0; i < 8; i++) {
        uint64_t rubbish = torture_draw(t, UINT64_MAX);
        off_t at = (off_t)torture_draw(t, (uint64_t)info.st_size - 8);
        assert_int_equal(pwrite(fd, &rubbish, 1 + torture_draw(t, 8), at) > 0, 1);
    }
    close(fd);
}

static uint64_t g_dice; /* nftw has no argument for it */

static int damage_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)at;
    if (kind != FTW_F || unit_random(&g_dice) % 30 != 0)
        return 0;
    if (unit_random(&g_dice) % 2 == 0) {
        (void)unlink(path);
        return 0;
    }
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    uint64_t rubbish = unit_random(&g_dice);
    if (fd >= 0 && info->st_size > 8)
        (void)!pwrite(fd, &rubbish, sizeof rubbish,
                      (off_t)(unit_random(&g_dice) % (uint64_t)(info->st_size - 8)));
    if (fd >= 0)
        close(fd);
    return 0;
}

/* Others remove some files, and write into some. */
static void trouble_directory(torture *t)
{
    char path[128];
    directory_path(t, path, sizeof path);
    g_dice = torture_draw(t, UINT64_MAX);
    (void)nftw(path, damage_one, 8, FTW_PHYS);
}

/* A node is paused, or killed; or goes on. */
static void trouble_redis(torture *t)
{
    char said[256];
    if (t->stopped >= 0) {
        redis_server *s = &t->servers[t->stopped];
        if (s->pid == 0)
            redis_start_again(s);
        else
            redis_signal(s, SIGCONT);
        t->stopped = -1;
        return;
    }
    int node = (int)torture_draw(t, TORTURE_NODES);
    switch (torture_draw(t, 3)) {
    case 0:
        redis_signal(&t->servers[node], SIGSTOP);
        t->stopped = node;
        break;
    case 1:
        redis_end(&t->servers[node], SIGKILL);
        t->stopped = node;
        break;
    default:
        redis_say(t->servers[node].port, said, "FLUSHALL", NULL);
    }
}

void torture_trouble(torture *t)
{
    if (t->options.is_calm || t->steps < t->next_trouble)
        return;
    t->next_trouble = t->steps + 50 + torture_draw(t, 100);
    t->troubles++;
    trouble_faulty(t);
    trouble_device(t);
    if (t->options.has_file && torture_chance(t, 3))
        trouble_file(t);
    if (t->options.has_directory && torture_chance(t, 6))
        trouble_directory(t);
    if (t->options.has_redis && torture_chance(t, 4))
        trouble_redis(t);
}

void torture_calm(torture *t)
{
    quire_device_host_faults none = {0};
    assert_int_equal(quire_device_host_set_faults(&t->device, &none), QUIRE_OK);
    if (t->part != NULL) {
        faulty_set_all(t->part, 0);
        faulty_set(t->part, FAULTY_HOLD, 0);
        faulty_hold(t->part, false);
        faulty_release(t->part);
    }
    if (t->stopped >= 0)
        trouble_redis(t);
}
