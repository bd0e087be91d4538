/* events/test_publish_keys.c - who may listen: addresses, keys, and files. */
#include "engine_kit.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

typedef struct key_pair {
    char public_key[41];
    char secret_key[41];
} key_pair;

static engine e;

static int open_engine(void **state)
{
    (void)state;
    engine_options options = {.seed = 1};
    engine_open(&e, &options);
    engine_run(&e, 50);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    engine_close(&e);
    return 0;
}

static key_pair make_pair(void)
{
    key_pair pair;
    assert_int_equal(zmq_curve_keypair(pair.public_key, pair.secret_key), 0);
    return pair;
}

/* ---- addresses -------------------------------------------------------------- */

/* What a publisher at this address answers, and says. */
static int try_address(const char *endpoint, const char *replay, uint32_t allows)
{
    quire_publisher *publisher = NULL;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.monitor = e.monitor;
    config.endpoint = endpoint;
    config.replay_endpoint = replay;
    config.allow_strangers_to_read_prompts_and_stall_us = allows;
    int status = quire_publisher_create(&config, &publisher);
    quire_publisher_destroy(publisher);
    return status;
}

static void addresses_beyond_this_machine(void **state)
{
    (void)state;
    static const char *const open[] = {"tcp://0.0.0.0:*", "tcp://*:*",       "tcp://10.1.2.3:5557",
                                       "tcp://[::]:*",    "tcp://eth0:5557", "tcp://router:5557",
                                       "tcp://127.1:5557"};
    for (size_t i = 0; i < COUNT(open); i++) {
        assert_int_equal(try_address(open[i], NULL, 0), QUIRE_E_UNSAFE);
        assert_non_null(strstr(quire_refusal(), open[i]));
        assert_non_null(strstr(quire_refusal(), "curve_secret_key"));
        assert_non_null(strstr(quire_refusal(), "allow_strangers_to_read_prompts_and_stall_us"));
        assert_int_equal(try_address("tcp://127.0.0.1:*", open[i], 0), QUIRE_E_UNSAFE);
    }
    assert_int_equal(try_address("tcp://0.0.0.0:*", "tcp://*:*", 1), QUIRE_OK);
    assert_int_equal(try_address("tcp://127.0.0.1:*", "tcp://localhost:*", 0), QUIRE_OK);
    assert_int_equal(try_address("tcp://127.9.9.9:*", NULL, 0), QUIRE_OK);

    quire_subscriber *subscriber;
    quire_subscriber_config from = QUIRE_SUBSCRIBER_CONFIG_INIT;
    from.endpoint = "tcp://*:*"; /* listens, and would believe whoever comes */
    assert_int_equal(quire_subscriber_create(&from, &subscriber), QUIRE_E_UNSAFE);
    assert_non_null(strstr(quire_refusal(), "tcp://*:*"));
    from.allow_strangers_to_tell_us_lies = 1;
    assert_int_equal(quire_subscriber_create(&from, &subscriber), QUIRE_OK);
    quire_subscriber_destroy(subscriber);
}

static void a_list_of_nobody(void **state)
{
    (void)state;
    static const char *const nobody[1] = {NULL};
    quire_publisher *publisher;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.monitor = e.monitor;
    config.endpoint = "tcp://127.0.0.1:*";
    config.curve_clients = nobody; /* and none of them: must not mean everybody */
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_ARGUMENT);
}

static void addresses_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "5557",
                                      "tcp://",
                                      "tcp://127.0.0.1",
                                      "tcp://127.0.0.1:",
                                      "tcp://:1",
                                      "ipc://",
                                      "udp://x:1",
                                      "inproc://x",
                                      "tcp://127.0.0.1:70000",
                                      "pgm://x",
                                      "http://x:80",
                                      "tcp://a;b:5557",
                                      "tcp://127.0.0.1:5557x"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(try_address(bad[i], NULL, 1), QUIRE_E_ARGUMENT);
        assert_true(quire_refusal()[0] != 0);
    }
    assert_int_equal(try_address("ipc:///nowhere/at/all", NULL, 0), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "/nowhere/at/all"));
}

static void ranks(void **state)
{
    (void)state;
    char folder[] = "quire-test-XXXXXX";
    char endpoint[64];
    char file[128];
    struct stat info;
    quire_publisher *publisher;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s/kv", folder);
    config.monitor = e.monitor;
    config.endpoint = endpoint;
    config.rank = 3;
    mode_t before = umask(0);
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_OK);
    (void)umask(before);
    (void)snprintf(file, sizeof file, "%s/kv_dp3", folder);
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_non_null(strstr(quire_publisher_endpoint(publisher), "kv_dp3"));
    assert_string_equal(quire_publisher_replay_endpoint(publisher), "");
    quire_publisher_destroy(publisher);
    (void)unlink(file);
    assert_int_equal(rmdir(folder), 0);
}

static void names_that_are_taken(void **state)
{
    (void)state;
    char folder[] = "quire-test-XXXXXX";
    char file[128];
    char endpoint[160];
    quire_publisher *publisher;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    struct stat info;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/kv", folder);
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s", file);
    FILE *precious = fopen(file, "w");
    assert_non_null(precious);
    assert_int_equal(fclose(precious), 0);
    assert_int_equal(try_address(endpoint, NULL, 0), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "a file with this name exists"));
    assert_int_equal(lstat(file, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(unlink(file), 0);

    config.monitor = e.monitor;
    config.endpoint = endpoint;
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_OK);
    assert_int_equal(try_address(endpoint, NULL, 0), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "another process"));
    quire_publisher_destroy(publisher);
    assert_int_equal(try_address(endpoint, NULL, 0), QUIRE_OK); /* what it has left */
    (void)unlink(file);
    assert_int_equal(rmdir(folder), 0);
}

static mode_t first_mode; /* of a socket's file, right after it was made */

/* In place of the C library's, for libzmq too. */
int bind(int fd, const struct sockaddr *address, socklen_t len)
{
    struct stat info;
    int status = (int)syscall(SYS_bind, fd, address, len);
    const struct sockaddr_un *file = (const struct sockaddr_un *)address;
    if (status == 0 && address->sa_family == AF_UNIX && stat(file->sun_path, &info) == 0)
        first_mode = info.st_mode & ALLPERMS;
    return status;
}

/* There is no moment in which another user could connect. */
static void a_sockets_file_is_private_at_once(void **state)
{
    (void)state;
    char folder[] = "quire-test-XXXXXX";
    char endpoint[160];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s/kv", folder);
    mode_t before = umask(0);
    for (int i = 0; i < 2; i++) { /* the second one finds what the first has left */
        first_mode = 0;
        assert_int_equal(try_address(endpoint, NULL, 0), QUIRE_OK);
        assert_int_equal(first_mode, S_IRUSR | S_IWUSR);
    }
    (void)umask(before);
    (void)unlink(endpoint + strlen("ipc://"));
    assert_int_equal(rmdir(folder), 0);
}

/* ---- keys ------------------------------------------------------------------- */

/* Checks whether somebody with these keys gets anything; batches keep coming meanwhile. Who is to
 * get something is given more time than anybody needs, who is not a moment. */
static void check_hears(const quire_publisher *publisher, const char *server, const key_pair *own,
                        bool is_allowed)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    quire_subscriber *subscriber;
    quire_subscriber_config config = QUIRE_SUBSCRIBER_CONFIG_INIT;
    config.endpoint = quire_publisher_endpoint(publisher);
    config.replay_endpoint = quire_publisher_replay_endpoint(publisher);
    config.replay_timeout_ms = 300;
    config.curve_server_key = server;
    config.curve_public_key = own == NULL ? NULL : own->public_key;
    config.curve_secret_key = own == NULL ? NULL : own->secret_key;
    assert_int_equal(quire_subscriber_create(&config, &subscriber), QUIRE_OK);
    int status = QUIRE_RETRY;
    uint64_t until_ms = engine_now_ms() + (is_allowed ? ENGINE_PATIENCE_MS : 400);
    while (status == QUIRE_RETRY && engine_now_ms() < until_ms) {
        engine_run(&e, 1);
        status = quire_subscriber_next(subscriber, 10, &d);
    }
    quire_subscriber_destroy(subscriber);
    assert_int_equal(status, is_allowed ? QUIRE_OK : QUIRE_RETRY);
}

static void keys_of_clients(void **state)
{
    (void)state;
    if (zmq_has("curve") == 0)
        skip();
    key_pair server = make_pair();
    key_pair friend = make_pair();
    key_pair stranger = make_pair();
    const char *friends[] = {stranger.public_key, friend.public_key};
    for (uint32_t has_list = 0; has_list < 2; has_list++) {
        quire_publisher *publisher;
        quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
        config.monitor = e.monitor;
        config.endpoint = "tcp://0.0.0.0:*"; /* with keys, others may come */
        config.replay_endpoint = "tcp://127.0.0.1:*";
        config.curve_secret_key = server.secret_key;
        config.curve_clients = has_list != 0 ? friends + 1 : NULL;
        config.num_curve_clients = has_list;
        if (quire_publisher_create(&config, &publisher) != QUIRE_OK)
            fail_msg("%s", quire_refusal());
        check_hears(publisher, server.public_key, &friend, true);
        quire_publisher_stats stats = engine_publisher_stats(publisher);
        assert_true(stats.num_snapshots + stats.num_replays > 0); /* that socket has keys too */
        check_hears(publisher, server.public_key, &stranger, has_list == 0);
        check_hears(publisher, server.public_key, NULL, has_list == 0);
        check_hears(publisher, stranger.public_key, &friend, false); /* the wrong publisher's */
        check_hears(publisher, NULL, NULL, false);
        check_hears(publisher, server.public_key, &friend, true);
        quire_publisher_destroy(publisher);
    }
}

static void keys_that_are_none(void **state)
{
    (void)state;
    if (zmq_has("curve") == 0)
        skip();
    key_pair pair = make_pair();
    const char *clients[] = {pair.public_key, "not a key"};
    quire_publisher *publisher = NULL;
    quire_subscriber *subscriber = NULL;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    config.monitor = e.monitor;
    config.endpoint = "tcp://127.0.0.1:*";
    config.curve_secret_key = "too short";
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_ARGUMENT);
    assert_non_null(strstr(quire_refusal(), "curve_secret_key"));
    config.curve_secret_key = pair.secret_key;
    config.curve_clients = clients;
    config.num_curve_clients = 2;
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_ARGUMENT);
    assert_non_null(strstr(quire_refusal(), "curve_clients[1]"));
    config.curve_secret_key = NULL; /* a list that nobody would look at */
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_ARGUMENT);
    quire_subscriber_config listens = QUIRE_SUBSCRIBER_CONFIG_INIT;
    listens.endpoint = "tcp://127.0.0.1:1";
    listens.curve_server_key = pair.public_key;
    listens.curve_public_key = pair.public_key;
    assert_int_equal(quire_subscriber_create(&listens, &subscriber), QUIRE_E_ARGUMENT);
    listens.curve_server_key = "0123";
    assert_int_equal(quire_subscriber_create(&listens, &subscriber), QUIRE_E_ARGUMENT);
}

static void configs_that_are_none(void **state)
{
    (void)state;
    char topic[400];
    quire_delivery d = QUIRE_DELIVERY_INIT;
    quire_publisher *publisher = NULL;
    quire_subscriber *subscriber = NULL;
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    quire_subscriber_config listens = QUIRE_SUBSCRIBER_CONFIG_INIT;
    assert_int_equal(quire_publisher_create(NULL, &publisher), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_ARGUMENT);
    config.monitor = e.monitor;
    assert_int_equal(quire_publisher_create(&config, NULL), QUIRE_E_ARGUMENT);
    memset(topic, 'x', sizeof topic);
    topic[sizeof topic - 1] = 0;
    config.topic = topic;
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_CONFIG);
    config.size = 1;
    assert_int_equal(quire_publisher_create(&config, &publisher), QUIRE_E_CONFIG);
    assert_int_equal(quire_subscriber_create(&listens, &subscriber), QUIRE_E_ARGUMENT);
    listens.endpoint = "tcp://127.0.0.1:1";
    listens.start = 3;
    assert_int_equal(quire_subscriber_create(&listens, &subscriber), QUIRE_E_CONFIG);
    assert_int_equal(quire_subscriber_next(NULL, 0, &d), QUIRE_E_ARGUMENT);
    quire_publisher_destroy(NULL);
    quire_subscriber_destroy(NULL);
    assert_string_equal(quire_publisher_endpoint(NULL), "");
    assert_int_equal(quire_publisher_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_beyond_this_machine),
        cmocka_unit_test(addresses_that_are_none),
        cmocka_unit_test(ranks),
        cmocka_unit_test(names_that_are_taken),
        cmocka_unit_test(a_sockets_file_is_private_at_once),
        cmocka_unit_test(a_list_of_nobody),
        cmocka_unit_test(keys_of_clients),
        cmocka_unit_test(keys_that_are_none),
        cmocka_unit_test(configs_that_are_none),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
