/* peer.c - blocks of 2 MiB from another engine: the peer tier beside plain TCP, in turns.
 *
 *      quire_bench_tier_peer [--rounds 15] [--blocks 64] [--bytes 2097152] [--connections 1]
 *
 *      round   plain TCP ─► peer tier        the same blocks, over loopback, the same direction
 *
 * Plain TCP: a process that sends each block with send(), and a thread here that receives it with
 * recv(): one connection, no header, nothing is asked for, nothing is checked. Peer tier: a process
 * with a quire_peer_server, and one job of LOADs here through the tier's thread; each block is
 * asked for, and its length, key and CRC32C are checked, as always. Prints the median and the
 * spread of the rounds, and of the ratios of each round. */
#include <quire/tier_peer.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 101, MAX_BLOCKS = 1024 };
#define SECRET "a secret of the bench"

typedef struct setting {
    uint32_t rounds;
    uint32_t blocks;
    uint32_t bytes;
    uint32_t connections;
} setting;

static setting o = {.rounds = 15, .blocks = 64, .bytes = 2u << 20, .connections = 1};
static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {24};
static unsigned char *memory; /* of this process: what the blocks are loaded into */
static quire_tier_io ios[MAX_BLOCKS];

static void give_up(const char *what)
{
    fprintf(stderr, "quire_bench_tier_peer: %s\n", what);
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static quire_tier_key key_of(uint32_t n)
{
    quire_tier_key key = {.group = n};
    memset(key.hash, (int)(n & 255), sizeof key.hash);
    return key;
}

/* ---- the other process ----------------------------------------------------- */

/* Sends all blocks, each time that a byte comes. */
static void send_plainly(int listener, const unsigned char *blocks)
{
    int fd = accept(listener, NULL, NULL);
    char byte;
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    while (fd >= 0 && recv(fd, &byte, 1, 0) == 1)
        for (uint32_t i = 0; i < o.blocks; i++)
            for (size_t at = 0; at < o.bytes;) {
                ssize_t sent =
                    send(fd, blocks + (size_t)i * o.bytes + at, o.bytes - at, MSG_NOSIGNAL);
                if (sent <= 0)
                    _exit(1);
                at += (size_t)sent;
            }
    _exit(0);
}

static void be_peer(int listener, int told)
{
    quire_peer_server_config config = QUIRE_PEER_SERVER_CONFIG_INIT;
    quire_peer_server *server;
    unsigned char *blocks = malloc((size_t)o.blocks * o.bytes);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    config.address = "127.0.0.1:0";
    config.fingerprint = fingerprint;
    config.secret = SECRET;
    config.max_blocks = o.blocks;
    if (quire_peer_server_open(&config, &server) != QUIRE_OK)
        give_up(quire_refusal());
    for (uint32_t i = 0; i < o.blocks; i++) {
        quire_tier_key key = key_of(i);
        unsigned char *block = blocks + (size_t)i * o.bytes;
        for (uint32_t at = 0; at < o.bytes; at++)
            block[at] = (unsigned char)(at * 31 + i);
        /* no CRC: the server computes it the first time */
        if (quire_peer_server_offer(server, i, &key, block, o.bytes, NULL) != QUIRE_OK)
            give_up("offer");
    }
    uint32_t port = quire_peer_server_port(server);
    if (write(told, &port, sizeof port) != sizeof port)
        _exit(1);
    send_plainly(listener, blocks);
}

/* ---- this process ---------------------------------------------------------- */

static double plain_pass(int fd)
{
    double begin = now_s();
    if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
        give_up("send");
    for (size_t at = 0; at < (size_t)o.blocks * o.bytes;) {
        size_t in_block = at % o.bytes;
        ssize_t got = recv(fd, memory + at, o.bytes - in_block, 0);
        if (got <= 0)
            give_up("recv");
        at += (size_t)got;
    }
    return now_s() - begin;
}

static double peer_pass(quire_tier *tier)
{
    quire_tier_job job = {.op = QUIRE_TIER_LOAD, .num_ios = o.blocks, .ios = ios};
    quire_tier_job *ended;
    for (uint32_t i = 0; i < o.blocks; i++)
        ios[i] = (quire_tier_io){
            .key = key_of(i), .memory = memory + (size_t)i * o.bytes, .bytes = o.bytes};
    double begin = now_s();
    if (quire_tier_submit(tier, &job) != QUIRE_OK)
        give_up("submit failed");
    while (quire_tier_poll(tier, &ended, 1) == 0) {
        struct timespec step = {.tv_nsec = 100000}; /* as a scheduler's steps, but shorter */
        nanosleep(&step, NULL);
    }
    double seconds = now_s() - begin;
    for (uint32_t i = 0; i < o.blocks; i++)
        if (ios[i].status != QUIRE_TIER_DONE)
            give_up("a block did not arrive");
    return seconds;
}

static quire_tier *open_tier(uint32_t port)
{
    char address[32];
    quire_tier_peer_config config = QUIRE_TIER_PEER_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier *tier;
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    config.server = address;
    config.fingerprint = fingerprint;
    config.secret = SECRET;
    config.connections = o.connections;
    config.wait_ns = UINT64_C(5000000000);
    common.deadline_ns = UINT64_C(60000000000);
    common.max_bytes_in_flight = UINT64_MAX / 2;
    if (quire_tier_peer_open(&config, &common, NULL, &tier, NULL) != QUIRE_OK)
        give_up(quire_refusal());
    return tier;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_line(const char *what, double *values, const char *unit)
{
    qsort(values, o.rounds, sizeof *values, compare);
    printf("%-10s %6.2f %s (%.2f .. %.2f)\n", what, values[o.rounds / 2], unit, values[0],
           values[o.rounds - 1]);
}

static void run(int plain, quire_tier *tier)
{
    double rates[2][MAX_ROUNDS];
    double ratios[MAX_ROUNDS];
    double gigabytes = (double)o.blocks * o.bytes / 1e9;
    (void)plain_pass(plain); /* pages, caches, windows */
    (void)peer_pass(tier);
    for (uint32_t round = 0; round < o.rounds; round++) {
        rates[0][round] = gigabytes / plain_pass(plain);
        rates[1][round] = gigabytes / peer_pass(tier);
        ratios[round] = rates[1][round] / rates[0][round];
    }
    printf("%u blocks of %u bytes, %u connections, %u rounds in turns\n", o.blocks, o.bytes,
           o.connections, o.rounds);
    print_line("plain TCP", rates[0], "GB/s");
    print_line("peer tier", rates[1], "GB/s");
    print_line("ratio", ratios, "");
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--rounds") == 0)
            o.rounds = value;
        else if (strcmp(argv[i], "--blocks") == 0)
            o.blocks = value;
        else if (strcmp(argv[i], "--bytes") == 0)
            o.bytes = value;
        else if (strcmp(argv[i], "--connections") == 0)
            o.connections = value;
        else
            give_up("usage: [--rounds N] [--blocks N] [--bytes N] [--connections N]");
    }
    if (o.rounds == 0 || o.rounds > MAX_ROUNDS || o.blocks == 0 || o.blocks > MAX_BLOCKS ||
        o.bytes == 0 || o.bytes > 64u << 20)
        give_up("--rounds 1..101, --blocks 1..1024, --bytes 1..67108864");
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t at_bytes = sizeof at;
    int told[2];
    uint32_t port;
    read_options(argc, argv);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (pipe(told) != 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&at, &at_bytes) != 0)
        give_up("no socket");
    pid_t pid = fork();
    if (pid == 0)
        be_peer(listener, told[1]);
    close(told[1]);
    if (read(told[0], &port, sizeof port) != sizeof port)
        give_up("the other process did not start");
    memory = malloc((size_t)o.blocks * o.bytes);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    if (memory == NULL || connect(plain, (struct sockaddr *)&at, sizeof at) != 0)
        give_up("no connection");
    quire_tier *tier = open_tier(port);
    run(plain, tier);
    (void)quire_tier_close(tier);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    free(memory);
    return 0;
}
