#include "redis_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 3000, TRY_MS = 10 };

uint64_t redis_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void redis_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- servers --------------------------------------------------------------- */

void redis_need_server(void)
{
    const char *path = getenv("PATH");
    char file[512];
    for (const char *at = path; at != NULL && *at != 0;) {
        int n = (int)strcspn(at, ":");
        (void)snprintf(file, sizeof file, "%.*s/redis-server", n, at);
        if (access(file, X_OK) == 0)
            return;
        at += n + (at[n] == ':');
    }
    printf("skipped: there is no redis-server\n");
    exit(77);
}

static bool is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool is_ours = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return is_ours;
}

int redis_free_port(void)
{
    static uint64_t state;
    if (state == 0)
        state = (uint64_t)getpid() * 1000003 + (uint64_t)redis_now_ms();
    for (int i = 0; i < TRIES; i++) {
        int port = 10000 + (int)unit_random_below(&state, 12000);
        if (is_free(port) && is_free(port + 10000))
            return port;
    }
    fail_msg("no port is free");
    return 0;
}

static void run_server(const redis_server *s)
{
    char port[16];
    char bus[16];
    const char *arguments[48] = {"redis-server", "--port",         port,  "--bind",
                                 "127.0.0.1",    "--save",         "",    "--appendonly",
                                 "no",           "--cluster-port", bus,   "--enable-debug-command",
                                 "yes",          "--dir",          s->dir};
    int n = 15;
    (void)snprintf(port, sizeof port, "%d", s->port);
    (void)snprintf(bus, sizeof bus, "%d", s->port + 10000);
    for (int i = 0; i < s->num_arguments; i++)
        arguments[n++] = s->arguments[i];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    int log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    execvp("redis-server", (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static bool may_wait(int *tries)
{
    redis_sleep_ms(TRY_MS);
    return ++*tries < TRIES;
}

void redis_start_again(redis_server *s)
{
    char said[256];
    int tries = 0;
    s->pid = fork();
    if (s->pid == 0)
        run_server(s);
    do
        redis_say(s->port, said, "PING", NULL);
    while (said[0] == 0 && may_wait(&tries));
    if (said[0] == 0)
        fail_msg("redis-server does not answer");
}

void redis_start(redis_server *s, ...)
{
    va_list values;
    memset(s, 0, sizeof *s);
    va_start(values, s);
    for (const char *a = va_arg(values, const char *); a != NULL; a = va_arg(values, const char *))
        s->arguments[s->num_arguments++] = a;
    va_end(values);
    (void)snprintf(s->dir, sizeof s->dir, "/tmp/quire_redis_XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->port = redis_free_port();
    redis_start_again(s);
}

void redis_signal(const redis_server *s, int signal)
{
    if (s->pid > 0)
        (void)kill(s->pid, signal);
}

void redis_end(redis_server *s, int signal)
{
    redis_signal(s, signal);
    if (s->pid > 0)
        (void)waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void redis_forget(redis_server *s)
{
    static const char *const files[] = {"nodes.conf", "dump.rdb", "redis.sock"};
    char path[128];
    redis_signal(s, SIGCONT);
    redis_end(s, SIGKILL);
    for (size_t i = 0; i < COUNT(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", s->dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(s->dir);
}

/* ---- one command, waited for ----------------------------------------------- */

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 5};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

void redis_say(int port, char out[256], ...)
{
    char command[2048];
    char parts[1800];
    char answer[8192];
    size_t n = 0;
    int count = 0;
    va_list words;
    va_start(words, out);
    for (const char *w = va_arg(words, const char *); w; w = va_arg(words, const char *), count++)
        n += (size_t)snprintf(parts + n, sizeof parts - n, "$%zu\r\n%s\r\n", strlen(w), w);
    va_end(words);
    int bytes = snprintf(command, sizeof command, "*%d\r\n%s", count, parts);
    int fd = connect_to(port);
    out[0] = 0;
    if (fd < 0)
        return;
    ssize_t got = 0;
    if (send(fd, command, (size_t)bytes, MSG_NOSIGNAL) == bytes)
        got = recv(fd, answer, sizeof answer - 1, 0);
    close(fd);
    answer[got > 0 ? got : 0] = 0;
    const char *text = answer;
    if (answer[0] == '$' && strchr(answer, '\n') != NULL)
        text = strchr(answer, '\n') + 1;
    size_t length = strnlen(text, 255);
    memcpy(out, text, length);
    out[length] = 0;
}

/* ---- clusters -------------------------------------------------------------- */

/* Until each says this line in CLUSTER INFO. */
void redis_await_cluster(const redis_server *servers, int n, const char *line)
{
    int tries = 0;
    for (int i = 0; i < n; i++) {
        char said[256] = "";
        do
            redis_say(servers[i].port, said, "CLUSTER", "INFO", NULL);
        while (strstr(said, line) == NULL && may_wait(&tries));
        if (strstr(said, line) == NULL)
            fail_msg("node %d says %s, not %s", i, said, line);
    }
}

void redis_meet(const redis_server *one, const redis_server *other)
{
    char port[16];
    char bus[16];
    (void)snprintf(port, sizeof port, "%d", other->port);
    (void)snprintf(bus, sizeof bus, "%d", other->port + 10000);
    redis_expect(one->port, "+OK", "CLUSTER", "MEET", "127.0.0.1", port, bus, NULL);
}

static bool knows(const redis_server *servers, int n, const char *line)
{
    for (int i = 0; i < n; i++) {
        char said[256];
        redis_say(servers[i].port, said, "CLUSTER", "INFO", NULL);
        if (strstr(said, line) == NULL)
            return false;
    }
    return true;
}

void redis_start_cluster(redis_server *servers, int n, const char *argument, const char *value)
{
    char begin[16];
    char end[16];
    char known[32];
    (void)snprintf(known, sizeof known, "cluster_known_nodes:%d", n);
    for (int i = 0; i < n; i++) {
        redis_start(&servers[i], "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                    "--cluster-require-full-coverage", "no", "--cluster-allow-reads-when-down",
                    "yes", argument, value, NULL);
        (void)snprintf(begin, sizeof begin, "%d", i * 16384 / n);
        (void)snprintf(end, sizeof end, "%d", (i + 1) * 16384 / n - 1);
        redis_expect(servers[i].port, "+OK", "CLUSTER", "ADDSLOTSRANGE", begin, end, NULL);
        (void)snprintf(begin, sizeof begin, "%d", i + 1);
        redis_expect(servers[i].port, "+OK", "CLUSTER", "SET-CONFIG-EPOCH", begin, NULL);
    }
    for (int tries = 0; tries < 10; tries++) { /* a slow machine forgets who it was to meet */
        for (int i = 1; i < n; i++)
            redis_meet(&servers[0], &servers[i]);
        for (int wait = 0; wait < 200 && !knows(servers, n, known); wait++)
            redis_sleep_ms(TRY_MS);
        if (knows(servers, n, known))
            break;
    }
    redis_await_cluster(servers, n, known);
    redis_await_cluster(servers, n, "cluster_slots_ok:16384");
    redis_await_cluster(servers, n, "cluster_state:ok");
}

/* ---- the tier -------------------------------------------------------------- */

static void keep_log(void *user, quire_log_level level, const char *text)
{
    redis_tier *t = user;
    size_t n = strlen(t->log);
    (void)level;
    (void)snprintf(t->log + n, sizeof t->log - n, "%s\n", text);
}

#define MS UINT64_C(1000000)

static uint64_t ms_or(uint64_t given, uint64_t ms)
{
    return given != 0 ? given : ms * MS;
}

int redis_tier_open_at(redis_tier *t, const char *const *addresses, uint32_t num)
{
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier_redis_config *c = &t->config;
    if (t->fingerprint[0] == 0)
        memset(t->fingerprint, 0x5a, 16);
    c->size = sizeof *c;
    c->servers = addresses;
    c->num_servers = num;
    c->fingerprint = t->fingerprint;
    c->connect_ns = ms_or(c->connect_ns, 400);
    c->refresh_ns = ms_or(c->refresh_ns, 20);
    c->late_ns = ms_or(c->late_ns, 200);
    c->breaker_ns = ms_or(t->breaker_ms * MS, 100);
    common.deadline_ns = ms_or(t->deadline_ms * MS, 2000);
    common.breaker_strikes = 1000000;
    common.close_ns = 5000 * MS;
    common.hooks.user = t;
    common.hooks.log = keep_log;
    if (t->bytes == 0)
        t->bytes = 10000;
    t->memory = calloc(REDIS_MAX_IOS, t->bytes);
    assert_non_null(t->memory);
    int status = quire_tier_redis_open(c, &common, NULL, &t->tier, &t->redis);
    if (status != QUIRE_OK)
        free(t->memory);
    return status;
}

void redis_tier_open(redis_tier *t, const redis_server *servers, int n)
{
    static char texts[REDIS_NODES][32];
    const char *addresses[REDIS_NODES];
    for (int i = 0; i < n; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "127.0.0.1:%d", servers[i].port);
        addresses[i] = texts[i];
    }
    if (redis_tier_open_at(t, addresses, (uint32_t)n) != QUIRE_OK)
        fail_msg("open: %s", quire_refusal());
}

void redis_fill(redis_tier *t, quire_tier_op op, uint32_t key, uint32_t num)
{
    assert_true(num <= REDIS_MAX_IOS);
    memset(&t->job, 0, sizeof t->job);
    t->job.op = op;
    t->job.num_ios = num;
    t->job.ios = t->ios;
    for (uint32_t i = 0; i < num; i++) {
        memset(&t->ios[i], 0, sizeof t->ios[i]);
        t->ios[i].key = faulty_key(key + i);
        t->ios[i].memory = t->memory + (size_t)i * t->bytes;
        t->ios[i].bytes = t->bytes;
        if (op == QUIRE_TIER_STORE)
            faulty_pattern(&t->ios[i].key, t->ios[i].memory, t->bytes);
        else
            memset(t->ios[i].memory, 0xee, t->bytes);
    }
}

/* The memory of a job that has ended is ours: what the tier would still write there is seen. */
void redis_wait(redis_tier *t)
{
    uint64_t begin = redis_now_ms();
    quire_tier_job *job;
    while (quire_tier_poll(t->tier, &job, 1) == 0) {
        if (redis_now_ms() - begin > 30000)
            fail_msg("a job does not end");
        struct timespec a_little = {.tv_nsec = 50000};
        nanosleep(&a_little, NULL);
    }
    t->took_ms = redis_now_ms() - begin;
    for (uint32_t i = 0; i < t->job.num_ios; i++) {
        const quire_tier_io *io = &t->ios[i];
        t->status[i] = io->status;
        if (t->job.op != QUIRE_TIER_LOAD || io->status != QUIRE_TIER_DONE)
            continue;
        if (!faulty_is_pattern(&io->key, io->memory, io->bytes))
            fail_msg("io %u is DONE, and its bytes are wrong", i);
        assert_int_equal(io->crc, quire_crc32c(0, io->memory, io->bytes));
    }
}

void redis_do(redis_tier *t, quire_tier_op op, uint32_t key, uint32_t num)
{
    redis_fill(t, op, key, num);
    assert_int_equal(quire_tier_submit(t->tier, &t->job), QUIRE_OK);
    redis_wait(t);
}

uint32_t redis_count(const redis_tier *t, quire_tier_status status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->job.num_ios; i++)
        n += t->status[i] == status;
    return n;
}

void redis_expect_only(const redis_tier *t, uint32_t statuses)
{
    for (uint32_t i = 0; i < t->job.num_ios; i++)
        if ((1u << t->status[i] & statuses) == 0)
            fail_msg("io %u ended with %d, log: %s", i, t->status[i], t->log);
}

quire_tier_redis_stats redis_stats(const redis_tier *t)
{
    quire_tier_redis_stats stats = QUIRE_TIER_REDIS_STATS_INIT;
    assert_int_equal(quire_tier_redis_get_stats(t->redis, &stats), QUIRE_OK);
    return stats;
}

void redis_tier_close(redis_tier *t)
{
    quire_tier_stats common = QUIRE_TIER_STATS_INIT;
    int tries = 0;
    while ((redis_stats(t).calls != 0 || redis_stats(t).jobs != 0) && may_wait(&tries))
        continue;
    assert_int_equal(redis_stats(t).calls, 0);
    assert_int_equal(redis_stats(t).jobs, 0);
    assert_int_equal(quire_tier_get_stats(t->tier, &common), QUIRE_OK);
    assert_int_equal(common.jobs_in_flight, 0);
    assert_int_equal(common.bytes_in_flight, 0);
    assert_int_equal(common.bytes_late, 0);
    assert_int_equal(common.bad_ends, 0);
    assert_int_equal(quire_tier_close(t->tier), QUIRE_OK);
    free(t->memory);
    t->tier = NULL;
}

void redis_forget_all(redis_server *servers, int n)
{
    for (int i = 0; i < n; i++)
        redis_forget(&servers[i]);
}

/* Until all of them are stored: breakers need their time, and so do clusters. */
void redis_await_stores(redis_tier *t, uint32_t key, uint32_t num)
{
    uint64_t begin = redis_now_ms();
    do {
        redis_do(t, QUIRE_TIER_STORE, key, num);
        if (redis_now_ms() - begin > 20000)
            fail_msg("it does not come back; %s", t->log);
        if (redis_count(t, QUIRE_TIER_DONE) < num)
            redis_sleep_ms(10);
    } while (redis_count(t, QUIRE_TIER_DONE) < num);
}

void redis_key_text(const redis_tier *t, uint32_t n, char *text)
{
    qr_redis_space space;
    quire_tier_key key = faulty_key(n);
    qr_redis_space_init(&space, "quire", t->fingerprint);
    text[qr_redis_key_write(&space, &key, text)] = 0;
}

void redis_all_operations(redis_tier *t)
{
    redis_do(t, QUIRE_TIER_LOAD, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_FIND, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_REMOVE, 0, 20);
    redis_expect_only(t, REDIS_BIT(MISSING));
    redis_do(t, QUIRE_TIER_STORE, 0, 20);
    redis_expect_only(t, REDIS_BIT(DONE));
    redis_do(t, QUIRE_TIER_FIND, 10, 20);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 10);
    assert_int_equal(redis_count(t, QUIRE_TIER_MISSING), 10);
    assert_int_equal(t->ios[0].bytes, t->bytes);
    redis_do(t, QUIRE_TIER_LOAD, 10, 20);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 10);
    redis_do(t, QUIRE_TIER_REMOVE, 0, 5);
    redis_expect_only(t, REDIS_BIT(DONE));
    redis_do(t, QUIRE_TIER_LOAD, 0, 10);
    assert_int_equal(redis_count(t, QUIRE_TIER_MISSING), 5);
    assert_int_equal(redis_count(t, QUIRE_TIER_DONE), 5);
}
