/* tier/peer/torture.c - a peer that is killed, hangs and lies while its blocks are loaded.
 *
 *      tier_peer_torture [--moves 20000] [--seed S] [--bytes 1024]
 *
 *      parent: tier ── TCP ──► child: quire_peer_server, which gives slots to other keys at all
 *                                     times
 *
 * Again and again the parent kills the child (SIGKILL) and starts another at the same port, stops
 * it (SIGSTOP) for a while, or starts one that lies: of what it sends, single bits, whole bytes,
 * keys and lengths are changed, bytes are left out or come twice, and some blocks have another
 * checksum.
 * Each block that arrives as DONE is compared with what belongs to its key. It ends when so many
 * have arrived; a wrong byte, a job that does not end or a crash of the parent is a failure. */
#include "tier/core/faulty.h"
#include "tier/net/socket.h"
#include "tier/peer/wire.h"

#include <quire/tier_peer.h>

#include "base/unit.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NUM_SLOTS = 256, NUM_KEYS = 320, IOS = 64, MOST_BYTES = 1 << 16, NUM_STATUSES = 8 };
#define SECRET "a secret of the torture"

static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {24};
static uint32_t bytes = 1024;
static uint64_t seed = 24;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void sleep_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static void give_up(const char *what)
{
    fprintf(stderr, "tier_peer_torture: %s\n", what);
    exit(1);
}

/* ---- lies: in the child, between the server and its socket ------------------- */

static bool is_liar;
static uint64_t lies = 1;

ssize_t __real_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);
ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n);

static ssize_t send_copy(qr_socket *s, unsigned char *copy, size_t n)
{
    struct iovec piece = {copy, n};
    return __real_qr_socket_send(s, &piece, 1);
}

/* One of the ways to be wrong about n bytes; says that all were sent as they were. */
static ssize_t lie(qr_socket *s, const struct iovec *piece)
{
    static unsigned char copy[2 * MOST_BYTES];
    size_t n = piece->iov_len < MOST_BYTES ? piece->iov_len : MOST_BYTES;
    memcpy(copy, piece->iov_base, n);
    size_t at = unit_random_below(&lies, (uint32_t)n);
    switch (unit_random_below(&lies, 6)) {
    case 0: /* a bit */
        copy[at] ^= (unsigned char)(1u << unit_random_below(&lies, 8));
        return send_copy(s, copy, n);
    case 1: /* all bytes from there on */
        for (size_t i = at; i < n; i++)
            copy[i] = (unsigned char)unit_random(&lies);
        return send_copy(s, copy, n);
    case 2: /* one of the first: type, id, status, length, key */
        copy[unit_random_below(&lies, n < QR_PEER_LOADED ? (uint32_t)n : QR_PEER_LOADED)] ^= 0x41;
        return send_copy(s, copy, n);
    case 3: /* one is left out, */
        memmove(copy + at, copy + at + 1, n - at - 1);
        return n == 1 ? 1 : send_copy(s, copy, n - 1) == (ssize_t)(n - 1) ? (ssize_t)n : -1;
    case 4: /* or comes twice */
        memmove(copy + at + 1, copy + at, n - at);
        return send_copy(s, copy, n + 1) == (ssize_t)(n + 1) ? (ssize_t)n : -1;
    default: /* nothing any more */
        return -1;
    }
}

ssize_t __wrap_qr_socket_send(qr_socket *s, struct iovec *pieces, int n)
{
    if (is_liar && pieces[0].iov_len > 0 && unit_random_below(&lies, 150) == 0)
        return lie(s, &pieces[0]);
    return __real_qr_socket_send(s, pieces, n);
}

/* ---- the child --------------------------------------------------------------- */

static void offer_slot(quire_peer_server *server, unsigned char *memory, uint32_t slot,
                       uint64_t *random)
{
    quire_tier_key key = faulty_key(unit_random_below(random, NUM_KEYS));
    unsigned char *at = memory + (size_t)slot * bytes;
    (void)quire_peer_server_withdraw(server, slot);
    faulty_pattern(&key, at, bytes);
    uint32_t crc = quire_crc32c(0, at, bytes);
    if (is_liar && unit_random_below(random, 20) == 0)
        at[unit_random_below(random, bytes)] ^= 4; /* and the checksum of what it should be */
    (void)quire_peer_server_offer(server, slot, &key, at, bytes, &crc);
}

static void be_peer(const char *address, int told, uint64_t own_seed)
{
    quire_peer_server_config config = QUIRE_PEER_SERVER_CONFIG_INIT;
    quire_peer_server *server;
    uint64_t random = own_seed;
    unsigned char *memory = calloc(NUM_SLOTS, bytes);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    lies = own_seed;
    config.address = address;
    config.fingerprint = fingerprint;
    config.secret = SECRET;
    config.max_blocks = NUM_SLOTS;
    for (int tries = 0; quire_peer_server_open(&config, &server) != 0; tries++) {
        if (tries == 500)
            give_up(quire_refusal());
        sleep_us(10000); /* the port is still the one's before */
    }
    for (uint32_t slot = 0; slot < NUM_SLOTS; slot++)
        offer_slot(server, memory, slot, &random);
    uint32_t port = quire_peer_server_port(server);
    if (write(told, &port, sizeof port) != sizeof port)
        _exit(1);
    for (;;) { /* until it is killed */
        for (int i = 0; i < 4; i++)
            offer_slot(server, memory, unit_random_below(&random, NUM_SLOTS), &random);
        sleep_us(500);
    }
}

static pid_t start_peer(uint32_t *port, bool lies_now)
{
    static uint64_t next_seed = 1;
    int told[2];
    char address[32];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", *port);
    if (pipe(told) != 0)
        give_up("no pipe");
    next_seed++;
    pid_t pid = fork();
    if (pid == 0) {
        is_liar = lies_now;
        be_peer(address, told[1], seed * 1000003 + next_seed);
    }
    close(told[1]);
    if (read(told[0], port, sizeof *port) != sizeof *port)
        give_up("the peer did not start");
    close(told[0]);
    return pid;
}

static void end_peer(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- the parent -------------------------------------------------------------- */

static quire_tier_io ios[IOS];
static uint64_t counts[NUM_STATUSES];
static uint64_t num_kills, num_stops, num_liars, num_refused_jobs;

static void check_ios(void)
{
    for (uint32_t i = 0; i < IOS; i++) {
        counts[ios[i].status & (NUM_STATUSES - 1)]++;
        if (ios[i].status == QUIRE_TIER_DONE &&
            !faulty_is_pattern(&ios[i].key, ios[i].memory, bytes))
            give_up("WRONG BYTES in a block that is DONE");
    }
}

static void load_some(quire_tier *tier, unsigned char *memory, uint64_t *random)
{
    static quire_tier_job job;
    quire_tier_job *ended;
    uint64_t end = now_ms() + 20000;
    job = (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = IOS, .ios = ios};
    for (uint32_t i = 0; i < IOS; i++) {
        ios[i] = (quire_tier_io){.key = faulty_key(unit_random_below(random, NUM_KEYS)),
                                 .memory = memory + (size_t)i * bytes,
                                 .bytes = bytes};
        memset(ios[i].memory, 0x77, bytes);
    }
    if (quire_tier_submit(tier, &job) != QUIRE_OK) { /* its breaker is open */
        num_refused_jobs++;
        sleep_us(1000);
        return;
    }
    while (quire_tier_poll(tier, &ended, 1) == 0) {
        if (now_ms() > end)
            give_up("a job does not end");
        sleep_us(30);
    }
    check_ios();
    if (ios[0].status == QUIRE_TIER_REFUSED)
        sleep_us(1000); /* it is down, and not tried again before */
}

/* What happens to the peer next; returns its process. */
static pid_t disturb(pid_t pid, uint32_t *port, uint64_t *random)
{
    switch (unit_random_below(random, 5)) {
    case 0:
    case 1:
        end_peer(pid);
        num_kills++;
        return start_peer(port, false);
    case 2:
    case 3:
        end_peer(pid);
        num_liars++;
        return start_peer(port, true);
    default:
        (void)kill(pid, SIGSTOP);
        num_stops++;
        return pid;
    }
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
    config.connect_ns = 100000000;
    config.retry_ns = 2000000;
    config.late_ns = 50000000;
    common.deadline_ns = 60000000;
    common.breaker_ns = 5000000;
    if (quire_tier_peer_open(&config, &common, NULL, &tier, NULL) != 0)
        give_up(quire_refusal());
    return tier;
}

static void run_moves(uint64_t moves)
{
    uint64_t random = seed;
    uint32_t port = 0;
    pid_t pid = start_peer(&port, false);
    quire_tier *tier = open_tier(port);
    unsigned char *memory = malloc((size_t)IOS * bytes);
    uint64_t next = 0; /* DONE blocks until the next disturbance */
    uint64_t next_ms = 0;
    uint64_t every = moves / 200 < 100 ? 100 : moves / 200;
    while (counts[QUIRE_TIER_DONE] < moves) {
        load_some(tier, memory, &random);
        if (counts[QUIRE_TIER_DONE] < next && now_ms() < next_ms)
            continue;
        (void)kill(pid, SIGCONT);
        pid = disturb(pid, &port, &random);
        next = counts[QUIRE_TIER_DONE] + every;
        next_ms = now_ms() + 120; /* also where nothing arrives: stopped, or all of it lies */
    }
    (void)kill(pid, SIGCONT);
    end_peer(pid);
    if (quire_tier_close(tier) != QUIRE_OK)
        give_up("the tier does not close");
    free(memory);
}

int main(int argc, char **argv)
{
    uint64_t moves = 20000;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--moves") == 0)
            moves = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--bytes") == 0)
            bytes = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            give_up("usage: [--moves N] [--seed S] [--bytes B]");
    }
    if (bytes == 0 || bytes > MOST_BYTES)
        give_up("--bytes: 1 to 65536");
    uint64_t begin = now_ms();
    run_moves(moves);
    printf("%llu blocks arrived in %.1f s, 0 wrong bytes; peers killed %llu, stopped %llu, lying "
           "%llu\n",
           (unsigned long long)counts[QUIRE_TIER_DONE], (double)(now_ms() - begin) / 1000,
           (unsigned long long)num_kills, (unsigned long long)num_stops,
           (unsigned long long)num_liars);
    printf("missing %llu, wrong %llu, failed %llu, cancelled %llu, refused %llu; %llu jobs not "
           "taken\n",
           (unsigned long long)counts[QUIRE_TIER_MISSING],
           (unsigned long long)counts[QUIRE_TIER_WRONG],
           (unsigned long long)counts[QUIRE_TIER_FAILED],
           (unsigned long long)counts[QUIRE_TIER_CANCELLED],
           (unsigned long long)counts[QUIRE_TIER_REFUSED], (unsigned long long)num_refused_jobs);
    if (moves >= 10000 && (num_kills == 0 || num_stops == 0 || num_liars == 0 ||
                           counts[QUIRE_TIER_WRONG] == 0 || counts[QUIRE_TIER_FAILED] == 0))
        give_up("nothing went wrong: this shows nothing");
    return 0;
}
