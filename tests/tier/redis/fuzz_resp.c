/* tier/redis/fuzz_resp.c - what a server says against bytes that no server would say.
 *
 *      bytes ──► parser, whole and byte by byte: the same items
 *            └─► a link with calls on it (loads, store, FIND, REMOVE, CLUSTER SLOTS), in two parts
 *
 * Whatever the bytes: each io ends once, a load that is DONE has the bytes that were stored, memory
 * is not touched after its io ended, and all calls come back. With libFuzzer (target
 * fuzz_resp_libfuzzer of a build with clang), or as a program of its own (base/mutate.h). */
#include "base/mutate.h"
#include "tier/core/faulty.h"
#include "tier/redis/redis.h"

#include <quire/tier_redis.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NUM_LOADS = 4, NUM_JOBS = 4, BYTES = 48, MAX_ITEMS = 4096, ENDED_BYTE = 0x99 };

static quire_tier_redis *redis;
static qr_link *line;
static uint64_t num_done;

typedef struct work {
    quire_tier_job job;
    quire_tier_io ios[NUM_LOADS];
    unsigned char memory[NUM_LOADS][BYTES];
    uint32_t ended;
} work;

static work works[NUM_JOBS]; /* LOAD, STORE, REMOVE, FIND */

/* ---- the parser ------------------------------------------------------------ */

static size_t walk(const uint8_t *bytes, size_t n, bool one_by_one, qr_resp_item *items, int *end)
{
    qr_resp resp = {0};
    size_t begin = 0;
    size_t count = 0;
    size_t have = one_by_one ? 0 : n;
    *end = QR_RESP_MORE;
    while (count < MAX_ITEMS) {
        size_t used;
        *end =
            qr_resp_next(&resp, count % 2 == 0, bytes + begin, have - begin, &used, &items[count]);
        MUTATE_EXPECT(used <= have - begin && resp.depth <= QR_RESP_DEPTH);
        MUTATE_EXPECT(*end == QR_RESP_ITEM ? used > 0 : used == 0);
        MUTATE_EXPECT(*end != QR_RESP_MORE || have - begin < QR_RESP_LINE + QR_RESP_TEXT);
        begin += used;
        count += *end == QR_RESP_ITEM;
        if (*end == QR_RESP_BAD || (*end == QR_RESP_MORE && have == n))
            break;
        have += *end == QR_RESP_MORE;
    }
    return count;
}

static void check_parser(const uint8_t *bytes, size_t n)
{
    static qr_resp_item whole[MAX_ITEMS];
    static qr_resp_item pieces[MAX_ITEMS];
    int ends[2];
    size_t count = walk(bytes, n, false, whole, &ends[0]);
    MUTATE_EXPECT(walk(bytes, n, true, pieces, &ends[1]) == count && ends[0] == ends[1]);
    for (size_t i = 0; i < count; i++) {
        MUTATE_EXPECT(whole[i].kind == pieces[i].kind && whole[i].depth == pieces[i].depth &&
                      whole[i].index == pieces[i].index && whole[i].number == pieces[i].number &&
                      whole[i].bytes == pieces[i].bytes && whole[i].is_last == pieces[i].is_last);
        MUTATE_EXPECT(whole[i].bytes == 0 ||
                      memcmp(whole[i].text, pieces[i].text, whole[i].bytes) == 0);
    }
}

/* ---- a link ---------------------------------------------------------------- */

static void end_io(quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                   quire_tier_status status)
{
    work *w = (work *)job; /* its first field */
    quire_tier_io *ended = &w->ios[io];
    (void)ends;
    MUTATE_EXPECT(io < job->num_ios && ended->status == QUIRE_TIER_PENDING);
    ended->status = status;
    w->ended++;
    if (job->op != QUIRE_TIER_LOAD)
        return;
    if (status == QUIRE_TIER_DONE) {
        num_done++;
        MUTATE_EXPECT(faulty_is_pattern(&ended->key, ended->memory, BYTES));
    }
    memset(ended->memory, ENDED_BYTE, BYTES);
}

static quire_tier_ends ends = {end_io};

static void create(void)
{
    static const char *const servers[] = {"127.0.0.1:1"};
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = {7};
    quire_tier_redis_config config = QUIRE_TIER_REDIS_CONFIG_INIT;
    config.servers = servers;
    config.num_servers = 1;
    config.fingerprint = fingerprint;
    config.max_nodes = 4;
    config.connections = 1;
    MUTATE_EXPECT(quire_tier_redis_create(&config, NUM_JOBS, NULL, &redis) == QUIRE_OK);
    redis->net.ends = &ends;
    line = &redis->links[0];
}

static void begin_works(void)
{
    for (uint32_t i = 0; i < NUM_JOBS; i++) {
        work *w = &works[i];
        memset(w, 0, sizeof *w);
        w->job.op = (quire_tier_op)(QUIRE_TIER_LOAD + i);
        w->job.num_ios = i == 0 ? NUM_LOADS : 1;
        w->job.ios = w->ios;
        w->job.due_ns = UINT64_MAX;
        for (uint32_t k = 0; k < w->job.num_ios; k++) {
            w->ios[k].key = faulty_key(k);
            w->ios[k].memory = w->memory[k];
            w->ios[k].bytes = BYTES;
        }
        qr_net_begin(&redis->net, &w->job);
    }
}

/* As if the connection had been made: the first node has all slots, and the calls are sent. */
static int open_line(void)
{
    int pair[2];
    char sent[8192];
    MUTATE_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    memset(redis->owner, 0, sizeof redis->owner);
    redis->has_map = true;
    redis->node_share = QR_REDIS_CALLS;
    redis->wants_map = true;
    redis->map_after_ns = 0;
    redis->net.now_ns = 1;
    line->socket = (qr_socket){.fd = pair[0], .can_read = true, .can_write = true};
    line->state = QR_LINK_READY;
    line->resp = (qr_resp){0};
    line->mode = QR_MODE_REPLY;
    line->in_begin = 0;
    line->in_end = 0;
    begin_works();
    qr_batch_route_all(redis);
    qr_node_tend(redis, &redis->nodes[0]);
    qr_map_tend(redis);
    qr_link_pump(redis, line);
    MUTATE_EXPECT(line->sending == NULL && recv(pair[1], sent, sizeof sent, 0) > 0);
    return pair[1];
}

static void say(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0 && line->state == QR_LINK_READY) {
        ssize_t written = send(fd, bytes, n, MSG_NOSIGNAL);
        line->socket.can_read = true;
        line->socket.can_write = true;
        qr_link_pump(redis, line);
        if (written <= 0)
            return;
        bytes += written;
        n -= (size_t)written;
    }
}

/* The end of everything: what is open fails. */
static void close_line(int fd)
{
    close(fd);
    if (line->state != QR_LINK_CLOSED)
        qr_link_close(redis, line, true);
    for (uint32_t i = 0; i < redis->max_nodes; i++) {
        qr_node *node = &redis->nodes[i];
        if (node->is_used && !qr_node_is_open(node))
            qr_node_strike(redis, node, true);
        node->is_mapped = false;
        node->is_used = node->is_seed;
        qr_breaker_init(&node->breaker, redis->breaker_strikes, redis->breaker_ns, 1);
    }
}

static void check_link(const uint8_t *bytes, size_t n)
{
    uint32_t free_before = redis->num_free_calls;
    int fd = open_line();
    size_t first = n > 0 ? bytes[0] % (n + 1) : 0;
    say(fd, bytes, first);
    say(fd, bytes + first, n - first);
    close_line(fd);
    MUTATE_EXPECT(redis->num_free_calls == free_before && redis->net.num_jobs == 0);
    for (uint32_t i = 0; i < NUM_JOBS; i++)
        MUTATE_EXPECT(works[i].ended == works[i].job.num_ios);
    for (uint32_t k = 0; k < NUM_LOADS; k++)
        for (uint32_t b = 0; b < BYTES; b++)
            MUTATE_EXPECT(works[0].memory[k][b] == ENDED_BYTE);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    if (redis == NULL)
        create();
    check_parser(bytes, num_bytes);
    check_link(bytes, num_bytes);
    return 0;
}

#ifndef QUIRE_LIBFUZZER

enum { NUM_SAMPLES = 8, SAMPLE_ROOM = 4096 };

static uint8_t rooms[NUM_SAMPLES][SAMPLE_ROOM];
static mutate_bytes samples[NUM_SAMPLES];

static void add(size_t sample, const void *bytes, size_t n)
{
    memcpy(rooms[sample] + samples[sample].n, bytes, n);
    samples[sample].bytes = rooms[sample];
    samples[sample].n += n;
}

static void add_text(size_t sample, const char *text)
{
    add(sample, text, strlen(text));
}

/* A good answer to the load of a key. */
static void add_value(size_t sample, uint32_t key)
{
    unsigned char memory[BYTES];
    unsigned char header[QR_NET_HEADER];
    quire_tier_io io = {.key = faulty_key(key), .bytes = BYTES};
    faulty_pattern(&io.key, memory, BYTES);
    io.crc = quire_crc32c(0, memory, BYTES);
    qr_net_header_write(redis->space.fingerprint, &io, header);
    add_text(sample, "$176\r\n");
    add(sample, header, sizeof header);
    add(sample, memory, sizeof memory);
    add_text(sample, "\r\n");
}

/* The calls are four loads, a store, REMOVE, FIND and CLUSTER SLOTS. */
static void make_samples(void)
{
    static const char rest[] = "+OK\r\n:1\r\n:176\r\n";
    static const char map[] =
        "*2\r\n*3\r\n:0\r\n:100\r\n*4\r\n$9\r\n127.0.0.1\r\n:7\r\n$2\r\nid\r\n"
        "*2\r\n$8\r\nhostname\r\n$1\r\nh\r\n*4\r\n:101\r\n:16383\r\n*3\r\n"
        "$-1\r\n:8\r\n$2\r\nid\r\n*3\r\n$9\r\n127.0.0.1\r\n:9\r\n$2\r\nid\r\n";
    for (size_t s = 0; s < NUM_SAMPLES; s++) {
        for (uint32_t k = 0; k < NUM_LOADS; k++) {
            if (s == 0 || s == 5 || s == 6)
                add_value(s, k);
            else if (s == 1)
                add_text(s, "$-1\r\n");
            else if (s == 2)
                add_text(s, "-MOVED 99 127.0.0.1:7000\r\n");
            else if (s == 3)
                add_text(s, "-ASK 99 127.0.0.1:7000\r\n");
            else if (s == 4)
                add_text(s, "$12\r\nhello, world\r\n");
            else
                add_text(s, "-TRYAGAIN x\r\n");
        }
        add_text(s, s == 5 ? "-OOM x\r\n:0\r\n-WRONGTYPE x\r\n" : rest);
        add_text(s, s == 6 ? "-ERR cluster support disabled\r\n" : map);
    }
}

int main(int argc, char **argv)
{
    static const mutate_bytes words[] = {
        {"\r\n", 2},
        {"$", 1},
        {"*1\r\n", 4},
        {"*4\r\n", 4},
        {"*524288\r\n", 9},
        {"$-1\r\n", 5},
        {"$536870912\r\n", 12},
        {":16383\r\n", 8},
        {":16384\r\n", 8},
        {"-LOADING x\r\n", 12},
        {"-NOAUTH x\r\n", 11},
        {"-CLUSTERDOWN x\r\n", 16},
        {"$0\r\n\r\n", 6},
        {"$1\r\n?\r\n", 7},
        {"-NOPERM x\r\n", 11},
        {"+PONG\r\n", 7},
        {":-1\r\n", 5},
        {"$176\r\n", 6},
    };
    create();
    make_samples();
    for (size_t i = 0; i < NUM_SAMPLES; i++)
        mutate_run(samples[i].bytes, samples[i].n);
    MUTATE_EXPECT(num_done == 3 * NUM_LOADS); /* the samples are what they are meant to be */
    mutate_plan plan = {.runs = 10000,
                        .samples = samples,
                        .num_samples = NUM_SAMPLES,
                        .words = words,
                        .num_words = sizeof words / sizeof words[0]};
    int status = mutate_main(argc, argv, &plan);
    printf("%llu loads were done\n", (unsigned long long)num_done);
    quire_tier_redis_ops()->close(redis);
    return status;
}

#endif
