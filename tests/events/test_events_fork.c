/* events/test_events_fork.c - a process with a publisher and a subscriber forks: whatever the child
 * does with its copies, events go on flowing in the parent. */
#include "engine_kit.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 10 };

typedef struct pair {
    engine e;
    listener l;
    quire_publisher *publisher;
    char path[64];
    char endpoint[80];
} pair;

static void open_pair(pair *p, bool is_ipc)
{
    engine_options options = {.has_resets = true, .seed = 5};
    quire_publisher_config config = QUIRE_PUBLISHER_CONFIG_INIT;
    quire_subscriber_config from = QUIRE_SUBSCRIBER_CONFIG_INIT;
    engine_open(&p->e, &options);
    (void)snprintf(p->path, sizeof p->path, "/tmp/quire-fork-%d", (int)getpid());
    (void)snprintf(p->endpoint, sizeof p->endpoint, "ipc://%s", p->path);
    config.monitor = p->e.monitor;
    config.endpoint = is_ipc ? p->endpoint : "tcp://127.0.0.1:*";
    config.replay_endpoint = "tcp://127.0.0.1:*";
    if (quire_publisher_create(&config, &p->publisher) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
    from.endpoint = quire_publisher_endpoint(p->publisher);
    from.replay_endpoint = quire_publisher_replay_endpoint(p->publisher);
    from.quiet_ms = 200;
    from.replay_timeout_ms = ENGINE_PATIENCE_MS;
    listener_open(&p->l, &from, 0);
    engine_run(&p->e, 40);
    assert_true(listener_follows(&p->l, &p->e));
}

static void close_pair(pair *p)
{
    listener_close(&p->l);
    quire_publisher_destroy(p->publisher);
    engine_close(&p->e);
}

static int destroys(pair *p)
{
    quire_publisher_destroy(p->publisher);
    quire_subscriber_destroy(p->l.subscriber);
    return 0;
}

static int uses(pair *p)
{
    quire_delivery d = QUIRE_DELIVERY_INIT;
    if (quire_subscriber_next(p->l.subscriber, 1000, &d) != QUIRE_E_SYSTEM)
        return 1;
    if (quire_subscriber_next(p->l.subscriber, -1, &d) != QUIRE_E_SYSTEM)
        return 2;
    if (engine_publisher_stats(p->publisher).num_batches == 0)
        return 3;
    if (quire_publisher_endpoint(p->publisher)[0] == 0)
        return 4;
    engine_run(&p->e, 20); /* the child's copy of monitor and scheduler is memory alone */
    return 0;
}

static int makes_its_own(pair *p)
{
    pair own;
    int wrong = destroys(p);
    open_pair(&own, false);
    engine_run(&own.e, 40);
    wrong += listener_follows(&own.l, &own.e) ? 0 : 1;
    close_pair(&own);
    return wrong;
}

static int only_exits(pair *p)
{
    (void)p;
    return 0;
}

static void run_child(pair *p, int (*work)(pair *p))
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        _exit(work(p));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("the child was ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void events_flow_on(void **state)
{
    (void)state;
    int (*const works[])(pair * p) = {destroys, uses, makes_its_own, only_exits};
    for (uint32_t is_ipc = 0; is_ipc < 2; is_ipc++) {
        struct stat found;
        static pair p;
        open_pair(&p, is_ipc != 0);
        for (size_t i = 0; i < COUNT(works); i++) {
            run_child(&p, works[i]);
            uint64_t before = engine_publisher_stats(p.publisher).num_batches;
            engine_run(&p.e, 40);
            assert_true(listener_follows(&p.l, &p.e));
            assert_true(engine_publisher_stats(p.publisher).num_batches > before);
            assert_int_equal(stat(p.path, &found) == 0, is_ipc != 0);
        }
        assert_int_equal(p.l.num_deliveries[QUIRE_DELIVERY_GAP], 0);
        assert_int_equal(p.l.num_deliveries[QUIRE_DELIVERY_RESTART], 0);
        close_pair(&p);
        (void)unlink(p.path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(events_flow_on)};
    return cmocka_run_group_tests_name("events_fork", tests, NULL, NULL);
}
