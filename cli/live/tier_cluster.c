#include "tier_cluster.h"

#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PATH_BYTES = 512,
    TRIES = 300,
    TRY_MS = 100,
    MEET_TRIES = 30,
    NUM_SLOTS = 16384,
    BUS = 10000
};

/* ---- one command to a server on this machine, waited for ------------------- */

enum { TIMEOUT_S = 2, REDIS_ASK_BYTES = 8192 };

static int connect_here(uint32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = TIMEOUT_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool redis_can_connect(uint32_t port)
{
    int fd = connect_here(port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Up to the answer of QUIT, behind which the server closes. The lines before the content: of a text
 * its length; of an array, which is a name and its value, all up to the value. */
static bool read_answer(int fd, char said[REDIS_ASK_BYTES])
{
    static const char bye[] = "\r\n+OK\r\n";
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, said + n, REDIS_ASK_BYTES - 1 - n, 0)) > 0)
        n += (size_t)got;
    size_t length = n < strlen(bye) ? 0 : n - strlen(bye);
    bool is_whole = length > 0 && memcmp(said + length, bye, strlen(bye)) == 0;
    length = is_whole ? length : 0;
    said[length] = 0;
    bool is_error = said[0] == '-';
    size_t at = 1; /* of the content */
    for (int heads = said[0] == '*' ? 4 : said[0] == '$'; heads > 0 && at < length; heads--)
        at += strcspn(said + at, "\n") + 1;
    if (at > length)
        return false;
    memmove(said, said + at, length - at + 1);
    return !is_error;
}

/* One command, as a person would type it. said: the answer as text (of an array, its last element).
 * false: no answer, or an error, which said has then. */
__attribute__((format(printf, 3, 4))) static bool
redis_ask(uint32_t port, char said[REDIS_ASK_BYTES], const char *format, ...)
{
    char command_text[96];
    char question[128];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(command_text, sizeof command_text, format, values);
    va_end(values);
    int n = snprintf(question, sizeof question, "%s\r\nQUIT\r\n", command_text);
    said[0] = 0;
    int fd = connect_here(port);
    if (fd < 0)
        return false;
    bool is_good = send(fd, question, (size_t)n, MSG_NOSIGNAL) == n && read_answer(fd, said);
    close(fd);
    return is_good;
}

/* ---- what is in the folder ------------------------------------------------- */

static const char *path_of(const cluster_plan *p, uint32_t node, const char *name)
{
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%u%s%s", p->dir, p->port + node, name[0] ? "/" : "",
                   name);
    return path;
}

static const char *note_path(const cluster_plan *p)
{
    static char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/cluster", p->dir);
    return path;
}

static int write_note(const command *cmd, const cluster_plan *p)
{
    FILE *note = output_open(note_path(p));
    if (note != NULL)
        fprintf(note, "port %u nodes %u\n", p->port, p->nodes);
    if (note != NULL && outputs_commit() == 0)
        return 0;
    return command_failed(cmd, "%s", failure());
}

/* The cluster that is noted there takes the place of port and nodes. */
static bool read_note(cluster_plan *p)
{
    FILE *note = fopen(note_path(p), "r");
    unsigned port = 0;
    unsigned nodes = 0;
    if (note == NULL)
        return false;
    bool is_good = fscanf(note, "port %u nodes %u", &port, &nodes) == 2 && port > 0 &&
                   port < 65536 - BUS && nodes > 0 && nodes <= CLUSTER_MAX_NODES;
    fclose(note);
    p->port = port;
    p->nodes = nodes;
    return is_good;
}

static void remove_files(const cluster_plan *p)
{
    static const char *const names[] = {"redis.conf", "nodes.conf", "redis.log", "dump.rdb"};
    for (uint32_t node = 0; node < p->nodes; node++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            (void)unlink(path_of(p, node, names[i]));
        (void)rmdir(path_of(p, node, ""));
    }
    (void)unlink(note_path(p));
    (void)rmdir(p->dir); /* stays where something else is in it */
}

/* Whether a server answers there, and it is the one of this folder. */
typedef enum owner { NOBODY, OURS, ANOTHER } owner;

static owner who_is_there(const cluster_plan *p, uint32_t node)
{
    char said[REDIS_ASK_BYTES];
    char real[PATH_MAX];
    if (!redis_ask(p->port + node, said, "CONFIG GET dir"))
        return redis_can_connect(p->port + node) ? ANOTHER : NOBODY;
    return realpath(path_of(p, node, ""), real) != NULL && strcmp(real, said) == 0 ? OURS : ANOTHER;
}

/* ---- up -------------------------------------------------------------------- */

static bool write_config(const cluster_plan *p, uint32_t node)
{
    if (mkdir(path_of(p, node, ""), 0700) != 0 && errno != EEXIST)
        return false;
    FILE *out = output_open(path_of(p, node, "redis.conf"));
    if (out == NULL)
        return false;
    fprintf(out,
            "# Written by quire tier redis-cluster up. docs/tiers-redis.md says why each is so.\n"
            "port %u\nbind 127.0.0.1\nprotected-mode yes\ndaemonize yes\nlogfile redis.log\n"
            "save \"\"\nappendonly no\nmaxmemory %s\nmaxmemory-policy allkeys-lru\n"
            "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 2000\n"
            "cluster-require-full-coverage no\ncluster-allow-reads-when-down yes\n",
            p->port + node, p->maxmemory);
    return outputs_commit() == 0;
}

/* 0, or what exec said: the server itself says the rest in its log. */
static int start_server(const cluster_plan *p, uint32_t node)
{
    int fds[2];
    int error = 0;
    if (pipe(fds) != 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        (void)fcntl(fds[1], F_SETFD, FD_CLOEXEC);
        int nothing = open("/dev/null", O_RDWR);
        (void)dup2(nothing, STDIN_FILENO);
        (void)dup2(nothing, STDOUT_FILENO);
        (void)dup2(nothing, STDERR_FILENO);
        if (chdir(path_of(p, node, "")) == 0)
            execlp("redis-server", "redis-server", "redis.conf", (char *)NULL);
        error = errno;
        (void)!write(fds[1], &error, sizeof error);
        _exit(127);
    }
    close(fds[1]);
    if (pid > 0 && read(fds[0], &error, sizeof error) != sizeof error)
        error = 0;
    close(fds[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0); /* it goes to the background by itself */
    return pid < 0 ? errno : error;
}

static bool await_answer(const cluster_plan *p, uint32_t node)
{
    for (int i = 0; i < TRIES; i++) {
        if (who_is_there(p, node) == OURS)
            return true;
        interrupt_sleep(TRY_MS * 1e-3);
    }
    return false;
}

static int start_node(const command *cmd, const cluster_plan *p, uint32_t node)
{
    uint32_t port = p->port + node;
    owner now = who_is_there(p, node);
    if (now == OURS) {
        printf("  127.0.0.1:%u is already running\n", port);
        return 0;
    }
    if (now == ANOTHER)
        return command_failed(
            cmd, "another server listens on port %u; choose other ports with --port", port);
    if (!write_config(p, node))
        return command_failed(cmd, "%s: %s", path_of(p, node, "redis.conf"), strerror(errno));
    int error = start_server(p, node);
    if (error == ENOENT)
        return command_failed(cmd,
                              "redis-server is not installed; on Debian: apt install redis-server");
    if (error != 0)
        return command_failed(cmd, "redis-server: %s", strerror(error));
    if (!await_answer(p, node))
        return command_failed(cmd, "the server on port %u does not answer; see %s", port,
                              path_of(p, node, "redis.log"));
    printf("  127.0.0.1:%u started\n", port);
    return 0;
}

/* Where the nodes have none yet. */
static int give_slots(const command *cmd, const cluster_plan *p)
{
    char said[REDIS_ASK_BYTES];
    for (uint32_t i = 0; i < p->nodes; i++) {
        if (!redis_ask(p->port + i, said, "CLUSTER INFO"))
            return command_failed(cmd, "the server on port %u does not answer", p->port + i);
        if (strstr(said, "cluster_slots_assigned:0\r") == NULL)
            continue;
        uint32_t begin = i * NUM_SLOTS / p->nodes;
        uint32_t end = (i + 1) * NUM_SLOTS / p->nodes - 1;
        if (!redis_ask(p->port + i, said, "CLUSTER ADDSLOTSRANGE %u %u", begin, end))
            return command_failed(cmd,
                                  "port %u, slots %u to %u: %s; redis-server 7 or newer is needed",
                                  p->port + i, begin, end, said);
    }
    return 0;
}

/* Said again from time to time: a node forgets it when the other does not answer soon. */
static void meet_nodes(const cluster_plan *p)
{
    char said[REDIS_ASK_BYTES];
    for (uint32_t i = 1; i < p->nodes; i++)
        (void)redis_ask(p->port, said, "CLUSTER MEET 127.0.0.1 %u", p->port + i);
}

static bool is_whole(const cluster_plan *p, uint32_t node)
{
    char said[REDIS_ASK_BYTES];
    char known[48];
    (void)snprintf(known, sizeof known, "cluster_known_nodes:%u\r", p->nodes);
    return redis_ask(p->port + node, said, "CLUSTER INFO") &&
           strstr(said, "cluster_state:ok\r") != NULL && strstr(said, known) != NULL &&
           strstr(said, "cluster_slots_ok:16384\r") != NULL;
}

static int await_whole(const command *cmd, const cluster_plan *p)
{
    uint32_t ready = 0;
    uint32_t told = UINT32_MAX;
    for (int i = 0; i < TRIES && ready < p->nodes; i++) {
        ready = 0;
        if (i % MEET_TRIES == 0)
            meet_nodes(p);
        for (uint32_t node = 0; node < p->nodes; node++)
            ready += is_whole(p, node);
        if (ready != told)
            printf("  %u of %u nodes know all slots\n", ready, p->nodes);
        fflush(stdout);
        told = ready;
        if (ready < p->nodes)
            interrupt_sleep(TRY_MS * 1e-3);
    }
    return ready == p->nodes
               ? 0
               : command_failed(
                     cmd,
                     "the nodes cannot connect to each other: ports %u to %u must be free too; "
                     "run quire tier redis-cluster down, then up",
                     p->port + BUS, p->port + p->nodes - 1 + BUS);
}

static void say_how(const cluster_plan *p)
{
    printf("\nA cluster of %u on 127.0.0.1:%u, %s of memory each; evicts the least recently "
           "used blocks.\n"
           "  quire replay --redis 127.0.0.1:%u --real-tiers TRACE    stores and loads blocks\n"
           "  quire tier redis-cluster status --dir %s\n"
           "  quire tier redis-cluster down --dir %s                  stops it and deletes the "
           "blocks\n",
           p->nodes, p->port, p->maxmemory, p->port, p->dir, p->dir);
}

int cluster_up(const command *cmd, const cluster_plan *plan)
{
    cluster_plan noted = *plan;
    if (mkdir(plan->dir, 0700) != 0 && errno != EEXIST)
        return command_failed(cmd, "%s: %s", plan->dir, strerror(errno));
    if (read_note(&noted) && (noted.port != plan->port || noted.nodes != plan->nodes))
        return command_failed(
            cmd,
            "%s already has a cluster of %u nodes at port %u; run down first, or use another --dir",
            plan->dir, noted.nodes, noted.port);
    int status = write_note(cmd, plan);
    for (uint32_t i = 0; i < plan->nodes && status == 0; i++) {
        status = start_node(cmd, plan, i);
        if (status != 0 && i == 0)
            remove_files(plan); /* nothing runs: nothing is noted */
    }
    if (status == 0)
        status = give_slots(cmd, plan);
    if (status == 0)
        status = await_whole(cmd, plan);
    if (status == 0)
        say_how(plan);
    return status;
}

/* ---- down ------------------------------------------------------------------ */

static bool stop_node(const cluster_plan *p, uint32_t node)
{
    char said[REDIS_ASK_BYTES];
    if (who_is_there(p, node) != OURS)
        return true;
    (void)redis_ask(p->port + node, said, "SHUTDOWN NOSAVE");
    for (int i = 0; i < TRIES && redis_can_connect(p->port + node); i++)
        interrupt_sleep(TRY_MS * 1e-3);
    return !redis_can_connect(p->port + node);
}

int cluster_down(const command *cmd, const cluster_plan *plan)
{
    cluster_plan p = *plan;
    if (!read_note(&p))
        return command_failed(cmd, "no cluster in %s; give its directory with --dir", plan->dir);
    for (uint32_t i = 0; i < p.nodes; i++)
        if (!stop_node(&p, i))
            return command_failed(cmd, "the server on port %u does not stop", p.port + i);
    remove_files(&p);
    printf("%u nodes stopped, %s removed\n", p.nodes, p.dir);
    return 0;
}

/* ---- status ---------------------------------------------------------------- */

/* What stands behind a name in INFO; "?" where it does not. */
static void find_field(const char *info, const char *name, char out[32])
{
    const char *at = strstr(info, name);
    (void)snprintf(out, 32, "?");
    if (at != NULL)
        (void)snprintf(out, 32, "%.*s", (int)strcspn(at + strlen(name), "\r\n"), at + strlen(name));
}

int cluster_status(const command *cmd, const cluster_plan *plan)
{
    cluster_plan p = *plan;
    uint32_t ready = 0;
    if (!read_note(&p))
        return command_failed(cmd, "no cluster in %s; give its directory with --dir", plan->dir);
    for (uint32_t i = 0; i < p.nodes; i++) {
        char said[REDIS_ASK_BYTES];
        char state[32] = "?";
        char memory[32] = "?";
        char keys[32] = "?";
        owner now = who_is_there(&p, i);
        if (now != OURS) {
            printf("127.0.0.1:%u  %s\n", p.port + i, now == NOBODY ? "down" : "another server");
            continue;
        }
        if (redis_ask(p.port + i, said, "CLUSTER INFO"))
            find_field(said, "cluster_state:", state);
        if (redis_ask(p.port + i, said, "INFO memory"))
            find_field(said, "used_memory_human:", memory);
        if (redis_ask(p.port + i, said, "DBSIZE"))
            (void)snprintf(keys, sizeof keys, "%.30s", said);
        ready += strcmp(state, "ok") == 0;
        printf("127.0.0.1:%u  up  cluster %s  %s keys  %s\n", p.port + i, state, keys, memory);
    }
    return ready == p.nodes ? 0 : 1;
}
