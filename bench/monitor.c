/* monitor.c - what it costs a scheduler to be looked at.
 *
 *      plain      nobody looks
 *      monitor    events with their tokens, metrics, steps; nobody reads them
 *      served     the same, published over ZeroMQ to one subscriber that reads and one that does
 *                 not, and scraped over HTTP; where those libraries are built
 *
 * Requests decode in all three side by side, a few steps here, then the same steps there, so that
 * what else the machine does falls on all alike. Each round gives a ratio to plain; the table has
 * the median of the rounds and their 10th and 90th percentile.
 */
#include "cases/sched.h"

#include <getopt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(BENCH_SERVED)
#include <arpa/inet.h>
#include <pthread.h>
#include <quire/events.h>
#include <quire/http.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

/* All prompts come in one step here: a hundred times what an engine computes in one. */
#define RING_BYTES (64u << 20)

enum { MAX_ROUNDS = 1001, STEPS_TOGETHER = 16, LOOK_AGAIN_US = 100000 };

typedef enum side { PLAIN, MONITOR, SERVED, NUM_SIDES } side;

static const char *const NAMES[] = {"plain", "monitor", "served"};

typedef struct options {
    uint32_t num_rounds;
    uint32_t num_requests;
    uint32_t num_sides;
    bool is_async;
} options;

/* ---- those who look ------------------------------------------------------ */

#if defined(BENCH_SERVED)
typedef struct crowd {
    quire_publisher *publisher;
    quire_subscriber *reads;
    quire_subscriber *sleeps;
    quire_http *http;
    pthread_t subscriber;
    pthread_t scraper;
    atomic_bool is_over;
    atomic_uint num_batches;
    atomic_uint num_scrapes;
} crowd;

static void *read_events(void *user)
{
    crowd *c = user;
    while (!atomic_load(&c->is_over)) {
        quire_delivery delivery = QUIRE_DELIVERY_INIT;
        if (quire_subscriber_next(c->reads, 100, &delivery) == QUIRE_OK)
            atomic_fetch_add(&c->num_batches, 1);
    }
    return NULL;
}

static void scrape(crowd *c)
{
    char buffer[65536];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)quire_http_port(c->http))};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int n = snprintf(buffer, sizeof buffer,
                     "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n\r\n",
                     quire_http_port(c->http));
    bool ok = s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0 &&
              send(s, buffer, (size_t)n, 0) == n;
    while (ok && recv(s, buffer, sizeof buffer, 0) > 0)
        ;
    if (s >= 0)
        close(s);
    if (ok)
        atomic_fetch_add(&c->num_scrapes, 1);
}

static void *scrape_often(void *user)
{
    crowd *c = user;
    while (!atomic_load(&c->is_over)) {
        scrape(c);
        usleep(LOOK_AGAIN_US);
    }
    return NULL;
}

static void crowd_gather(crowd *c, quire_monitor *monitor)
{
    quire_publisher_config p = QUIRE_PUBLISHER_CONFIG_INIT;
    p.monitor = monitor;
    p.endpoint = "tcp://127.0.0.1:*";
    p.replay_endpoint = "tcp://127.0.0.1:*";
    bench_must(quire_publisher_create(&p, &c->publisher), quire_refusal());
    quire_subscriber_config s = QUIRE_SUBSCRIBER_CONFIG_INIT;
    s.endpoint = quire_publisher_endpoint(c->publisher);
    s.replay_endpoint = quire_publisher_replay_endpoint(c->publisher);
    bench_must(quire_subscriber_create(&s, &c->reads), quire_refusal());
    bench_must(quire_subscriber_create(&s, &c->sleeps), quire_refusal());
    quire_http_config h = QUIRE_HTTP_CONFIG_INIT;
    h.monitor = monitor;
    bench_must(quire_http_create(&h, &c->http), quire_refusal());
    bench_must(pthread_create(&c->subscriber, NULL, read_events, c), "pthread_create");
    bench_must(pthread_create(&c->scraper, NULL, scrape_often, c), "pthread_create");
}

static void crowd_leave(crowd *c)
{
    quire_publisher_stats stats = QUIRE_PUBLISHER_STATS_INIT;
    bench_must(quire_publisher_get_stats(c->publisher, &stats), "stats");
    atomic_store(&c->is_over, true);
    pthread_join(c->subscriber, NULL);
    pthread_join(c->scraper, NULL);
    printf("\nserved: %llu batches of %llu events published, %llu times too late; %u read, %u "
           "scrapes\n",
           (unsigned long long)stats.num_batches, (unsigned long long)stats.num_events,
           (unsigned long long)stats.num_lost, atomic_load(&c->num_batches),
           atomic_load(&c->num_scrapes));
    quire_subscriber_destroy(c->reads);
    quire_subscriber_destroy(c->sleeps);
    quire_publisher_destroy(c->publisher);
    quire_http_destroy(c->http);
}
#endif

/* ---- rounds -------------------------------------------------------------- */

static uint64_t decode(bench_engine *e, uint32_t num_steps)
{
    bench_timer timer = {0};
    bench_start(&timer);
    for (uint32_t i = 0; i < num_steps; i++) {
        bench_engine_schedule(e);
        bench_engine_update(e);
    }
    bench_stop(&timer, 1);
    return timer.timed_ns;
}

/* One life of the requests of each side, in step; ns[side] for one request and step. */
static void live_together(bench_engine **engines, uint32_t num_sides, double *ns)
{
    uint64_t sum[NUM_SIDES] = {0};
    for (uint32_t s = 0; s < num_sides; s++)
        bench_engine_start(engines[s]);
    for (uint32_t i = 0; i < BENCH_DECODE_STEPS; i += STEPS_TOGETHER)
        for (uint32_t s = 0; s < num_sides; s++)
            sum[s] += decode(engines[s], STEPS_TOGETHER);
    for (uint32_t s = 0; s < num_sides; s++) {
        bench_engine_stop(engines[s]);
        ns[s] = (double)sum[s] / BENCH_DECODE_STEPS / engines[s]->num_requests;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part_of(double *values, uint32_t n, uint32_t percent)
{
    qsort(values, n, sizeof *values, compare);
    return values[(size_t)(n - 1) * percent / 100];
}

static void print_side(const char *name, double *ns, double *ratios, uint32_t n)
{
    printf("%-8s %7.1f ns", name, part_of(ns, n, 50));
    printf("   x %.3f  (%.3f .. %.3f)\n", part_of(ratios, n, 50), part_of(ratios, n, 10),
           part_of(ratios, n, 90));
}

static void measure(const options *o)
{
    static double ns[NUM_SIDES][MAX_ROUNDS];
    static double ratios[NUM_SIDES][MAX_ROUNDS];
    bench_engine *engines[NUM_SIDES];
    quire_monitor_config monitor = QUIRE_MONITOR_CONFIG_INIT;
    monitor.token_ids = QUIRE_ON;
    monitor.event_bytes = RING_BYTES;
    bench_engine_config c = {.num_blocks = 200 * o->num_requests,
                             .num_requests = o->num_requests,
                             .shortest = 500,
                             .longest = 2000,
                             .max_tokens = BENCH_DECODE_STEPS + 64,
                             .is_async = o->is_async};
    for (uint32_t s = 0; s < o->num_sides; s++) {
        c.monitor = s == PLAIN ? NULL : &monitor;
        engines[s] = bench_engine_new(&c);
    }
#if defined(BENCH_SERVED)
    static crowd those;
    if (o->num_sides > SERVED)
        crowd_gather(&those, quire_sched_get_monitor(engines[SERVED]->sched));
#endif
    for (uint32_t r = 0; r <= o->num_rounds; r++) { /* the first is to warm up */
        double now[NUM_SIDES];
        live_together(engines, o->num_sides, now);
        for (uint32_t s = 0; r > 0 && s < o->num_sides; s++) {
            ns[s][r - 1] = now[s];
            ratios[s][r - 1] = now[s] / now[PLAIN];
        }
    }
    for (uint32_t s = 0; s < o->num_sides; s++)
        print_side(NAMES[s], ns[s], ratios[s], o->num_rounds);
#if defined(BENCH_SERVED)
    if (o->num_sides > SERVED)
        crowd_leave(&those);
#endif
    for (uint32_t s = 0; s < o->num_sides; s++)
        bench_engine_teardown(engines[s]);
}

int main(int argc, char **argv)
{
    static const struct option OPTIONS[] = {
        {"rounds", required_argument, NULL, 'r'}, {"requests", required_argument, NULL, 'n'},
        {"async", no_argument, NULL, 'a'},        {"alone", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    options o = {.num_rounds = 51, .num_requests = 1024, .num_sides = MONITOR + 1};
#if defined(BENCH_SERVED)
    o.num_sides = SERVED + 1;
#endif
    for (int c; (c = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        switch (c) {
        case 'r':
            o.num_rounds = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            o.num_requests = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'a':
            o.is_async = true;
            break;
        case 'l':
            o.num_sides = MONITOR + 1;
            break;
        default:
            printf("usage: %s [--rounds N] [--requests N] [--async] [--alone]\n"
                   "What a monitor costs schedule + update; --alone: nobody reads it.\n",
                   argv[0]);
            return c == 'h' ? 0 : 2;
        }
    }
    if (o.num_rounds < 1 || o.num_rounds > MAX_ROUNDS || o.num_requests < 1 ||
        o.num_requests > 65536) {
        fprintf(stderr, "--rounds is 1 to %d, --requests 1 to 65536\n", MAX_ROUNDS);
        return 2;
    }
    printf("%u requests, %u rounds of %u steps, %s; ns for one request and step\n\n",
           o.num_requests, o.num_rounds, BENCH_DECODE_STEPS, o.is_async ? "async" : "in order");
    measure(&o);
    return 0;
}
