#include "engine/tiers.h"

#include <quire/tier_file.h>
#include <quire/tier_redis.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- the server ------------------------------------------------------------ */

static void socket_path(const engine_tiers *t, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/redis", t->folder);
}

static bool has_answered(const engine_tiers *t)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socket_path(t, address.sun_path, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool is_there = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is_there;
}

static void start_redis(engine_tiers *t)
{
    char path[128];
    socket_path(t, path, sizeof path);
    pid_t pid = fork();
    if (pid == 0) { /* it ends with us, however we end, and holds nothing of ours open */
        int nothing = open("/dev/null", O_RDWR);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd = 0; fd < 3 && nothing >= 0; fd++)
            (void)dup2(nothing, fd);
        (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--save",
                     "", "--appendonly", "no", "--daemonize", "no", "--logfile", "/dev/null",
                     "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", (char *)NULL);
        _exit(127);
    }
    if (pid < 0)
        return;
    for (int tries = 0; tries < 500; tries++) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            return; /* there is no such program */
        if (has_answered(t)) {
            t->redis = pid;
            return;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- their life ------------------------------------------------------------ */

int engine_tiers_create(engine_tiers *tiers, bool wants_redis)
{
    const char *base = getenv("TMPDIR");
    *tiers = (engine_tiers){0};
    (void)snprintf(tiers->folder, sizeof tiers->folder, "%s/quire-engine-XXXXXX",
                   base != NULL && strlen(base) < 30 ? base : "/tmp");
    if (mkdtemp(tiers->folder) == NULL)
        return 1;
    if (wants_redis)
        start_redis(tiers);
    return 0;
}

static void file_path(const engine_tiers *t, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%u", t->folder, t->number);
}

void engine_tiers_forget(engine_tiers *tiers)
{
    char path[128];
    file_path(tiers, path, sizeof path);
    (void)unlink(path);
    tiers->number++;
}

void engine_tiers_destroy(engine_tiers *tiers)
{
    char path[128];
    engine_tiers_forget(tiers);
    if (tiers->redis != 0) {
        (void)kill(tiers->redis, SIGKILL);
        (void)waitpid(tiers->redis, NULL, 0);
    }
    socket_path(tiers, path, sizeof path);
    (void)unlink(path);
    (void)rmdir(tiers->folder);
}

/* ---- one engine's ---------------------------------------------------------- */

static int open_file(engine_tiers *t, const quire_tier_config *common,
                     const unsigned char *fingerprint, uint64_t block_bytes)
{
    char path[128];
    quire_tier_file_config config = QUIRE_TIER_FILE_CONFIG_INIT;
    file_path(t, path, sizeof path);
    config.path = path;
    config.block_bytes = (uint32_t)block_bytes;
    config.capacity_bytes = 400 * (block_bytes + 4096) + (1 << 20);
    memcpy(config.fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
    config.checkpoint_ms = 50;
    config.threads = 2;
    return quire_tier_file_open(&config, common, NULL, &t->file);
}

static int open_redis(engine_tiers *t, const quire_tier_config *common,
                      const unsigned char *fingerprint, uint64_t block_bytes)
{
    char path[128];
    char address[140];
    const char *servers[] = {address};
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    socket_path(t, path, sizeof path);
    (void)snprintf(address, sizeof address, "unix:%s", path);
    config.servers = servers;
    config.num_servers = 1;
    config.fingerprint = fingerprint;
    config.max_block_bytes = (uint32_t)block_bytes;
    config.wait_ns = UINT64_C(5000000000);
    return quire_tier_redis_open(&config, common, NULL, &t->remote, NULL);
}

#define PEER_SECRET "of the engines of one proof"

/* A peer that was stopped is asked again soon: an engine lives for less than a second. */
static int open_peer(engine_tiers *t, const quire_tier_config *common,
                     const unsigned char *fingerprint, uint64_t block_bytes)
{
    char address[32];
    quire_tier_config hasty = *common;
    hasty.breaker_ns = 2000000;
    quire_tier_peer_config config = QUIRE_TIER_PEER_CONFIG_INIT;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", t->port);
    config.server = address;
    config.fingerprint = fingerprint;
    config.secret = PEER_SECRET;
    config.max_block_bytes = (uint32_t)block_bytes;
    config.retry_ns = 1000000;
    return quire_tier_peer_open(&config, &hasty, NULL, &t->peer, NULL);
}

/* Where it was before, if it was; else, or if that port is taken by now, anywhere. */
static int open_server(engine_tiers *t, const unsigned char *fingerprint, uint64_t block_bytes,
                       size_t memory_bytes)
{
    char address[32];
    quire_peer_server_config config = QUIRE_PEER_SERVER_CONFIG_INIT;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", t->port);
    config.address = address;
    config.fingerprint = fingerprint;
    config.secret = PEER_SECRET;
    config.max_blocks = (uint32_t)(memory_bytes / block_bytes);
    config.max_block_bytes = (uint32_t)block_bytes;
    int status = quire_peer_server_open(&config, &t->server);
    if (status == QUIRE_E_SYSTEM && t->port != 0) {
        config.address = "127.0.0.1:0";
        status = quire_peer_server_open(&config, &t->server);
    }
    if (status == QUIRE_OK)
        t->port = quire_peer_server_port(t->server);
    return status;
}

int engine_tiers_open(engine_tiers *tiers, engine_tiers_choice choice, uint64_t block_bytes,
                      const void *memory, size_t memory_bytes)
{
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_identity identity = QUIRE_IDENTITY_INIT;
    identity.model = (quire_bytes){&tiers->number, sizeof tiers->number};
    identity.block_bytes = block_bytes;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    common.memory = memory;
    common.memory_bytes = memory_bytes;
    common.close_ns = UINT64_C(20000000000);
    tiers->file = NULL;
    tiers->remote = NULL;
    tiers->peer = NULL;
    tiers->server = NULL;
    int status = quire_fingerprint(&identity, fingerprint);
    if (status == QUIRE_OK && choice.server)
        status = open_server(tiers, fingerprint, block_bytes, memory_bytes);
    if (status == QUIRE_OK && choice.peer)
        status = open_peer(tiers, &common, fingerprint, block_bytes);
    if (status == QUIRE_OK && choice.file)
        status = open_file(tiers, &common, fingerprint, block_bytes);
    if (status == QUIRE_OK && choice.redis)
        status = open_redis(tiers, &common, fingerprint, block_bytes);
    return status == QUIRE_OK ? 0 : 1;
}

int engine_tiers_close(engine_tiers *tiers)
{
    quire_tier **const all[] = {&tiers->file, &tiers->remote, &tiers->peer};
    int failed = 0;
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++) {
        failed = quire_tier_close(*all[i]) != QUIRE_OK || failed;
        *all[i] = NULL;
    }
    return failed;
}

void engine_tiers_stop_serving(engine_tiers *tiers)
{
    (void)quire_peer_server_close(tiers->server);
    tiers->server = NULL;
}
