/* http/test_hub.c - streams without sockets: what each is told, by one tick after the other.
 *
 * Whatever a client misses, it knows how much: for every stream, told + skipped = made.
 */
#include "http/engine.h"
#include "http/hub.h"
#include "http/json_check.h"

enum { MAX_STREAMS = 4 };
static const uint64_t TICK = UINT64_C(100000000);

/* A client, as the server would see it. */
typedef struct peer {
    qr_http_stream *stream;
    uint32_t num_sleeps;
    uint32_t num_wakes;
    bool is_gone;
    char *text; /* what it has read since the last look */
    size_t len;
} peer;

typedef struct world {
    engine engine;
    qr_http_site site;
    qr_http_hub hub;
    uint64_t now_ns;
    peer peers[MAX_STREAMS + 1];
} world;

static void peer_sleep(struct MHD_Connection *connection)
{
    ((peer *)(void *)connection)->num_sleeps++;
}

static void peer_wake(struct MHD_Connection *connection)
{
    ((peer *)(void *)connection)->num_wakes++;
}

static bool peer_is_gone(struct MHD_Connection *connection)
{
    return ((peer *)(void *)connection)->is_gone;
}

static const qr_http_hooks HOOKS = {peer_sleep, peer_wake, peer_is_gone};

static void open_world(world *w)
{
    memset(w, 0, sizeof *w);
    engine_open(&w->engine, 3, true, 0);
    w->site.monitor = w->engine.monitor;
    w->site.info = *quire_monitor_get_info(w->engine.monitor);
    assert_int_equal(qr_http_hub_init(&w->hub, &w->site, MAX_STREAMS, &HOOKS), QUIRE_OK);
    for (size_t i = 0; i < COUNT(w->peers); i++)
        assert_non_null(w->peers[i].text = malloc(QR_HTTP_STREAM_BYTES + 1));
}

static void close_world(world *w)
{
    for (size_t i = 0; i < COUNT(w->peers); i++) {
        if (w->peers[i].stream != NULL)
            qr_http_hub_close(w->peers[i].stream);
        free(w->peers[i].text);
    }
    qr_http_hub_free(&w->hub);
    engine_close(&w->engine);
}

static bool open_peer(world *w, int i, bool has_after, uint64_t after)
{
    w->peers[i].stream = qr_http_hub_open(&w->hub, (void *)&w->peers[i], has_after, after);
    return w->peers[i].stream != NULL;
}

static void close_peer(world *w, int i)
{
    qr_http_hub_close(w->peers[i].stream);
    w->peers[i].stream = NULL;
}

static void tick(world *w)
{
    w->now_ns += TICK;
    qr_http_hub_tick(&w->hub, w->now_ns);
}

/* Reads until it is put to sleep, in small bites; -1: the stream has ended. */
static int drink(peer *p)
{
    int64_t n;
    p->len = 0;
    do {
        n = qr_http_hub_take(p->stream, p->text + p->len,
                             QR_HTTP_STREAM_BYTES - p->len < 1000 ? 1 : 1000);
        p->len += n > 0 ? (size_t)n : 0;
        assert_true(p->len <= QR_HTTP_STREAM_BYTES);
    } while (n > 0);
    p->text[p->len] = '\0';
    return (int)n;
}

/* What a stream's text says in all. */
typedef struct tally {
    uint64_t hellos;
    uint64_t steps;
    uint64_t skipped;
    uint64_t first;
    uint64_t last;
    uint64_t events;
    uint64_t skipped_events;
    uint64_t lost;
    uint64_t comments;
} tally;

static void count_message(tally *t, const char *message, size_t len)
{
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, message, len);
    copy[len] = '\0';
    const char *data = strstr(copy, "\ndata: ");
    if (strcmp(copy, ":") == 0) {
        t->comments++;
        free(copy);
        return;
    }
    assert_non_null(data);
    data += strlen("\ndata: ");
    assert_true(json_check(data, strlen(data)));
    if (strncmp(copy, "event: kv\n", 10) == 0) {
        for (const char *at = strstr(data, "\"kind\""); at != NULL; at = strstr(at + 1, "\"kind\""))
            t->events++;
        t->skipped_events += json_number(data, "skipped");
        t->lost += json_number(data, "lost");
    } else {
        uint64_t first = 0;
        uint64_t last = t->last;
        t->hellos += strncmp(copy, "event: hello\n", 13) == 0;
        assert_true(t->hellos > 0); /* it comes first */
        uint64_t skipped = json_number(strstr(data, "],\"skipped\""), "skipped");
        uint64_t num = json_steps(data, &first, &last);
        if (t->last > 0 && num > 0) /* no step twice, none untold */
            assert_true(first > t->last && last - t->last == num + skipped);
        if (num > 1)
            assert_int_equal((last - first) % (num - 1), 0); /* evenly spread */
        t->first = t->first == 0 ? first : t->first;
        t->last = last;
        t->steps += num;
        t->skipped += skipped;
        assert_int_equal(strtoull(strstr(copy, "\nid: ") + 5, NULL, 10), last);
    }
    free(copy);
}

static void count(tally *t, const peer *p)
{
    const char *at = p->text;
    const char *end;
    while ((end = strstr(at, "\n\n")) != NULL) {
        count_message(t, at, (size_t)(end - at));
        at = end + 2;
    }
    assert_int_equal(*at, '\0'); /* whole messages, since all was drunk */
}

/* ---- tests ------------------------------------------------------------------ */

static void a_stream_begins_with_hello(void **state)
{
    (void)state;
    world w;
    tally t = {0};
    open_world(&w);
    engine_run(&w.engine, 700);
    assert_true(open_peer(&w, 0, false, 0));
    assert_int_equal(drink(&w.peers[0]), 0);
    assert_true(w.peers[0].len == 0 && w.peers[0].num_sleeps == 1);
    tick(&w);
    assert_int_equal(w.peers[0].num_wakes, 1);
    drink(&w.peers[0]);
    count(&t, &w.peers[0]);
    assert_true(t.hellos == 1 && t.steps == QR_HTTP_HELLO_STEPS);
    assert_true(t.first == 700 - 511 && t.last == 700);
    assert_true(t.events == 0 && t.lost == 0); /* what was before is of no interest */
    assert_non_null(strstr(w.peers[0].text, "\"version\":1,\"meta\":{"));
    engine_run(&w.engine, 10);
    tick(&w);
    drink(&w.peers[0]);
    count(&t, &w.peers[0]);
    assert_true(t.hellos == 1 && t.steps == QR_HTTP_HELLO_STEPS + 10 && t.skipped == 0);
    close_world(&w);
}

static void a_stream_may_begin_before_the_first_step(void **state)
{
    (void)state;
    world w;
    tally t = {0};
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    tick(&w);
    engine_run(&w.engine, 3);
    tick(&w);
    drink(&w.peers[0]);
    assert_non_null(strstr(w.peers[0].text, "event: hello\nid: 0\n"));
    engine_run(&w.engine, 200);
    tick(&w);
    assert_non_null(strstr(w.peers[0].text, "\"steps\":[],\"skipped\":0,\"resumed\":0}"));
    count_message(&t, w.peers[0].text, (size_t)(strstr(w.peers[0].text, "\n\n") - w.peers[0].text));
    drink(&w.peers[0]);
    assert_int_equal(w.hub.seen, 203);
    close_world(&w);
}

static void a_client_that_comes_back_gets_the_rest(void **state)
{
    (void)state;
    static const struct {
        uint64_t after;
        uint64_t steps;
        uint64_t skipped;
        uint64_t resumed;
    } CASES[] = {{690, 10, 0, 1}, {700, 0, 0, 1}, {100, 512, 88, 1}, {701, 512, 0, 0}};
    world w;
    open_world(&w);
    engine_run(&w.engine, 700);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        uint64_t first;
        uint64_t last;
        assert_true(open_peer(&w, 0, true, CASES[i].after));
        tick(&w);
        drink(&w.peers[0]);
        assert_int_equal(json_steps(w.peers[0].text, &first, &last), CASES[i].steps);
        const char *end = strstr(w.peers[0].text, "],\"skipped\"");
        assert_int_equal(json_number(end, "skipped"), CASES[i].skipped);
        assert_int_equal(json_number(end, "resumed"), CASES[i].resumed);
        close_peer(&w, 0);
    }
    close_world(&w);
}

static void told_and_skipped_make_all(void **state)
{
    (void)state;
    world w;
    tally tallies[MAX_STREAMS] = {{0}};
    uint64_t random = 1;
    open_world(&w);
    engine_run(&w.engine, 5);
    for (int i = 0; i < MAX_STREAMS; i++)
        assert_true(open_peer(&w, i, false, 0));
    tick(&w);
    for (int round = 0; round < 70; round++) {
        engine_run(&w.engine, unit_random_below(&random, round % 50 == 0 ? 700 : 60));
        tick(&w);
        for (int i = 0; i < MAX_STREAMS; i++) { /* the last one is slowest */
            if (unit_random_below(&random, 1u << (2 * i)) != 0)
                continue;
            drink(&w.peers[i]);
            count(&tallies[i], &w.peers[i]);
        }
    }
    for (int i = 0; i < MAX_STREAMS; i++) { /* what is left, and one message with room for it */
        drink(&w.peers[i]);
        count(&tallies[i], &w.peers[i]);
    }
    engine_run(&w.engine, 50);
    tick(&w);
    for (int i = 0; i < MAX_STREAMS; i++) {
        const tally *t = &tallies[i];
        drink(&w.peers[i]);
        count(&tallies[i], &w.peers[i]);
        assert_true(t->hellos == 1 && t->first == 1);
        assert_int_equal(t->steps + t->skipped, w.engine.num_steps);
        assert_int_equal(t->last, w.engine.num_steps);
        assert_true(t->events > 0);
        assert_int_equal(t->events + t->skipped_events,
                         tallies[0].events + tallies[0].skipped_events);
        assert_int_equal(t->lost, tallies[0].lost);
    }
    assert_true(tallies[0].skipped > 0); /* the bursts were too much for one message */
    assert_true(tallies[MAX_STREAMS - 1].skipped > tallies[0].skipped);
    close_world(&w);
}

/* A client that is always behind reads across the end of its buffer, again and again. */
static void a_slow_reader_gets_whole_messages(void **state)
{
    (void)state;
    enum { MOST = 4 << 20, BITE = 3001 };
    world w;
    tally t = {0};
    open_world(&w);
    peer *p = &w.peers[0];
    free(p->text);
    assert_non_null(p->text = malloc(MOST + 1));
    assert_true(open_peer(&w, 0, false, 0));
    tick(&w);
    while (p->len < 2 * QR_HTTP_STREAM_BYTES) {
        engine_run(&w.engine, 80);
        tick(&w);
        int64_t n = qr_http_hub_take(p->stream, p->text + p->len, BITE);
        assert_true(n > 0);
        p->len += (size_t)n;
    }
    size_t len = p->len;
    int64_t n;
    while ((n = qr_http_hub_take(p->stream, p->text + len, MOST - len)) > 0)
        len += (size_t)n;
    assert_true(w.peers[0].stream->len == 0);
    p->text[len] = '\0';
    count(&t, p);
    assert_true(t.hellos == 1 && t.skipped > 0);
    assert_int_equal(t.steps + t.skipped + p->stream->num_skipped_steps, w.engine.num_steps);
    close_world(&w);
}

static void one_that_never_reads_holds_nobody_up(void **state)
{
    (void)state;
    world w;
    tally t = {0};
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    assert_true(open_peer(&w, 1, false, 0));
    for (int round = 0; round < 70; round++) {
        engine_run(&w.engine, 40);
        tick(&w);
        drink(&w.peers[1]);
        count(&t, &w.peers[1]);
        assert_true(w.peers[0].stream->len <= QR_HTTP_STREAM_BYTES);
    }
    assert_int_equal(t.steps, w.engine.num_steps);
    assert_true(w.peers[0].stream->num_skipped_steps > 0);
    assert_true(w.peers[0].num_wakes == 0);
    close_world(&w);
}

static void only_so_many_at_one_time(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    for (int i = 0; i < MAX_STREAMS; i++)
        assert_true(open_peer(&w, i, false, 0));
    assert_false(open_peer(&w, MAX_STREAMS, false, 0));
    close_peer(&w, 2);
    assert_true(open_peer(&w, MAX_STREAMS, false, 0));
    tick(&w);
    assert_true(w.hub.is_following);
    for (int i = 0; i <= MAX_STREAMS; i++)
        if (w.peers[i].stream != NULL)
            close_peer(&w, i);
    tick(&w);
    assert_false(w.hub.is_following); /* nobody is there: nothing is read */
    close_world(&w);
}

static void a_quiet_stream_stays_alive(void **state)
{
    (void)state;
    world w;
    tally t = {0};
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    for (int i = 0; i < 1 + 10 * 46; i++) { /* 46 s */
        tick(&w);
        drink(&w.peers[0]);
        count(&t, &w.peers[0]);
    }
    assert_true(t.hellos == 1 && t.comments == 3);
    close_world(&w);
}

static void one_that_left_is_noticed(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    tick(&w);
    assert_int_equal(drink(&w.peers[0]), 0);
    w.peers[0].is_gone = true;
    uint32_t wakes = w.peers[0].num_wakes;
    tick(&w);
    assert_int_equal(w.peers[0].num_wakes, wakes + 1);
    assert_int_equal(drink(&w.peers[0]), -1);
    close_world(&w);
}

static void all_streams_end_together(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    assert_true(open_peer(&w, 1, false, 0));
    tick(&w);
    drink(&w.peers[0]); /* asleep; the other is not */
    qr_http_hub_end(&w.hub);
    assert_true(w.peers[0].num_wakes == 1 && w.peers[1].num_wakes == 0);
    uint32_t sleeps = w.peers[0].num_sleeps;
    assert_int_equal(drink(&w.peers[0]), -1);
    assert_int_equal(drink(&w.peers[1]), -1);
    assert_int_equal(w.peers[0].num_sleeps, sleeps);
    assert_false(open_peer(&w, 2, false, 0));
    tick(&w);
    close_world(&w);
}

static void more_events_than_anybody_can_read_are_counted(void **state)
{
    (void)state;
    world w;
    tally t = {0};
    open_world(&w);
    assert_true(open_peer(&w, 0, false, 0));
    tick(&w);
    drink(&w.peers[0]);
    count(&t, &w.peers[0]);
    engine_run(&w.engine, 4000); /* the ring of 64 KiB goes round */
    tick(&w);
    drink(&w.peers[0]);
    count(&t, &w.peers[0]);
    assert_true(t.lost > 0);
    engine_run(&w.engine, 20);
    tick(&w);
    drink(&w.peers[0]);
    uint64_t before = t.events;
    count(&t, &w.peers[0]);
    assert_true(t.events > before); /* and it goes on */
    assert_int_equal(t.steps + t.skipped, w.engine.num_steps);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_begins_with_hello),
        cmocka_unit_test(a_stream_may_begin_before_the_first_step),
        cmocka_unit_test(a_client_that_comes_back_gets_the_rest),
        cmocka_unit_test(told_and_skipped_make_all),
        cmocka_unit_test(a_slow_reader_gets_whole_messages),
        cmocka_unit_test(one_that_never_reads_holds_nobody_up),
        cmocka_unit_test(only_so_many_at_one_time),
        cmocka_unit_test(a_quiet_stream_stays_alive),
        cmocka_unit_test(one_that_left_is_noticed),
        cmocka_unit_test(all_streams_end_together),
        cmocka_unit_test(more_events_than_anybody_can_read_are_counted),
    };
    return cmocka_run_group_tests_name("http_hub", tests, NULL, NULL);
}
