/* events/zmq_peer.c - one end of a connection as a process of its own, for tests that bring the
 * other.
 *
 *      zmq_peer publish [NAME=VALUE]...
 *              an engine and its publisher. Prints both endpoints, then reads commands: run N,
 *              idle, index, stats, quit
 *      zmq_peer listen ENDPOINT REPLAY START TOPIC
 *              a subscriber (REPLAY "-": none). A line for each delivery: kind, number, number
 *              missed, batch as hex
 */
#include "engine_kit.h"

#include <unistd.h>

static const char *const KINDS[] = {"", "live", "replay", "snapshot", "gap", "restart", "whole"};

/* ---- publish ---------------------------------------------------------------- */

static const char *value_of(int argc, char **argv, const char *name, const char *fallback)
{
    size_t len = strlen(name);
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], name, len) == 0 && argv[i][len] == '=')
            return argv[i] + len + 1;
    return fallback;
}

static uint32_t number_of(int argc, char **argv, const char *name)
{
    return (uint32_t)strtoul(value_of(argc, argv, name, "0"), NULL, 10);
}

static void print_index(const engine *e)
{
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(e->sched));
    uint64_t total = quire_pool_get_usage(pool).total;
    for (quire_block block = 1; block < total; block++) {
        quire_block_info info;
        if (quire_pool_get_block(pool, block, &info) == QUIRE_OK && info.hash.data != NULL)
            printf("%u %llu\n", info.group_id, (unsigned long long)quire_hash_external(info.hash));
    }
    printf(".\n");
}

static void print_stats(const quire_publisher *publisher)
{
    quire_publisher_stats s = engine_publisher_stats(publisher);
    printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)s.num_batches,
           (unsigned long long)s.num_events, (unsigned long long)s.num_lost,
           (unsigned long long)s.num_replays, (unsigned long long)s.num_snapshots,
           (unsigned long long)s.num_refused);
}

static void obey(engine *e, const quire_publisher *publisher)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, "quit", 4) != 0) {
        if (strncmp(line, "run ", 4) == 0) {
            engine_run(e, (uint32_t)strtoul(line + 4, NULL, 10));
            printf("ran\n");
        } else if (strncmp(line, "idle", 4) == 0) {
            engine_idle(e);
            printf("ran\n");
        } else if (strncmp(line, "index", 5) == 0) {
            print_index(e);
        } else {
            print_stats(publisher);
        }
    }
}

static int run_publisher(int argc, char **argv)
{
    engine e;
    quire_publisher *publisher;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    engine_options options = {.has_tokens = number_of(argc, argv, "tokens") != 0,
                              .has_window = number_of(argc, argv, "window") != 0,
                              .event_bytes = 1 << 26,
                              .has_resets = true,
                              .seed = number_of(argc, argv, "seed"),
                              .profile = (quire_profile)number_of(argc, argv, "profile")};
    engine_open(&e, &options);
    config.monitor = e.monitor;
    config.endpoint = value_of(argc, argv, "endpoint", "tcp://127.0.0.1:*");
    config.replay_endpoint = value_of(argc, argv, "replay", "tcp://127.0.0.1:*");
    config.topic = value_of(argc, argv, "topic", "");
    config.rank = number_of(argc, argv, "rank");
    config.hwm = number_of(argc, argv, "hwm");
    config.buffer_steps = number_of(argc, argv, "buffer");
    config.every_copy = number_of(argc, argv, "every_copy");
    config.hashes_as_bytes = number_of(argc, argv, "bytes");
    if (quire_publisher_create(&config, &publisher) != QUIRE_OK) {
        fprintf(stderr, "%s\n", quire_refusal());
        return 1;
    }
    printf("%s %s\n", quire_publisher_endpoint(publisher),
           quire_publisher_replay_endpoint(publisher));
    obey(&e, publisher);
    quire_publisher_destroy(publisher);
    engine_close(&e);
    return 0;
}

/* ---- listen ----------------------------------------------------------------- */

static void print_delivery(const quire_delivery *d)
{
    const unsigned char *bytes = d->bytes.data;
    printf("%s %llu %llu ", KINDS[d->kind], (unsigned long long)d->number,
           (unsigned long long)d->num_missed);
    for (size_t i = 0; i < d->bytes.len; i++)
        printf("%02x", bytes[i]);
    printf("\n");
}

static int run_listener(char **argv)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    quire_subscriber *subscriber;
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = argv[0];
    config.replay_endpoint = strcmp(argv[1], "-") == 0 ? NULL : argv[1];
    config.start = (uint32_t)strtoul(argv[2], NULL, 10);
    config.topic = argv[3];
    if (quire_subscriber_create(&config, &subscriber) != QUIRE_OK) {
        fprintf(stderr, "%s\n", quire_refusal());
        return 1;
    }
    pid_t parent = getppid();
    while (getppid() == parent) { /* until it is killed, or left alone */
        int status = quire_subscriber_next(subscriber, 1000, &d);
        if (status == QUIRE_OK)
            print_delivery(&d);
        else if (status != QUIRE_RETRY)
            printf("%s 0 0 \n", quire_status_name(status));
    }
    quire_subscriber_destroy(subscriber);
    return 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc >= 2 && strcmp(argv[1], "publish") == 0)
        return run_publisher(argc - 2, argv + 2);
    if (argc == 6 && strcmp(argv[1], "listen") == 0)
        return run_listener(argv + 2);
    fprintf(stderr,
            "usage: zmq_peer publish [NAME=VALUE]... | listen ENDPOINT REPLAY START TOPIC\n");
    return 2;
}
