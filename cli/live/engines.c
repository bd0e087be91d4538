#include "engines.h"
#include "api_server.h"
#include "live_engine.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "player.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TOPIC_BYTES = 256 };

/* One engine, and what others see of it. */
typedef struct place {
    api_server *api;
    quire_http *page;
    quire_publisher *publisher;
} place;

typedef struct engines {
    const command *cmd;
    const serve_settings *settings;
    const engines_settings *own;
    const replay_setup *setup;
    replay_watch watch;     /* nothing but the monitor */
    replay_settings replay; /* the setup's, with that watch */
    live_engine *live;      /* count */
    place *places;          /* count */
    uint32_t num_open;      /* of both */
    player *player;         /* NULL: no trace */
    FILE *out;
} engines;

/* Each client is a descriptor: as many as this process may have. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* ---- opening --------------------------------------------------------------------- */

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    return (inet_pton(AF_INET, address, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127) ||
           strcmp(address, "::1") == 0;
}

static uint32_t port_of(uint32_t first, uint32_t i)
{
    return first > 0 ? first + i : 0;
}

static int open_api(engines *x, uint32_t i)
{
    const quire_http_config *http = &x->settings->http;
    const live_engine *e = &x->live[i];
    uint32_t tokens = x->own->answer_tokens;
    api_server_config c = {
        .address = http->address,
        .port = port_of(http->port, i),
        .token = http->token,
        .hosts = http->hosts,
        .num_hosts = http->num_hosts,
        .limits = {.model = x->own->model,
                   .max_model_len = e->engine.max_model_len,
                   .has_priorities = x->replay.sched.policy == QUIRE_POLICY_PRIORITY},
        .answer_tokens = tokens > 0 ? tokens : UINT32_MAX,
        .rank = i,
        .inbox = &x->live[i].inbox,
        .monitor = live_engine_monitor(e)};
    x->places[i].api = api_server_start(&c);
    return x->places[i].api != NULL ? 0 : -1;
}

static int open_page(engines *x, uint32_t i)
{
    char title[64];
    char rank[16];
    quire_http_config c = x->settings->http;
    snprintf(title, sizeof title, "engine %u of %u", i, x->own->count);
    snprintf(rank, sizeof rank, "%u", i);
    c.monitor = live_engine_monitor(&x->live[i]);
    c.address = x->own->page_address;
    c.port = port_of(x->own->page_port, i);
    c.title = title;
    c.engine = rank;
    int err = quire_http_create(&c, &x->places[i].page);
    return err == QUIRE_OK ? 0 : fail_with("--page-listen: %.500s", quire_refusal());
}

/* The topic with the engine's own number and port in place of {engine} and {port}: routers tell
 * engines apart by it. */
static int write_topic(const engines *x, uint32_t i, char topic[TOPIC_BYTES])
{
    static const char number_mark[] = "{engine}";
    static const char port_mark[] = "{port}";
    size_t used = 0;
    for (const char *at = x->settings->publisher.topic; *at != '\0';) {
        bool is_engine = strncmp(at, number_mark, sizeof number_mark - 1) == 0;
        bool is_port = strncmp(at, port_mark, sizeof port_mark - 1) == 0;
        uint32_t number = is_engine ? i : api_server_port(x->places[i].api);
        int n = is_engine || is_port ? snprintf(topic + used, TOPIC_BYTES - used, "%u", number)
                                     : snprintf(topic + used, TOPIC_BYTES - used, "%c", *at);
        used += (size_t)n;
        if (used >= TOPIC_BYTES)
            return fail_with("--topic is too long (at most %d bytes)", TOPIC_BYTES - 1);
        at += is_engine ? sizeof number_mark - 1 : is_port ? sizeof port_mark - 1 : 1;
    }
    topic[used] = '\0';
    return 0;
}

static int open_publisher(engines *x, uint32_t i)
{
    char topic[TOPIC_BYTES] = "";
    quire_publisher_config c = x->settings->publisher;
    if (c.topic != NULL) {
        if (write_topic(x, i, topic) != 0)
            return -1;
        c.topic = topic;
    }
    c.monitor = live_engine_monitor(&x->live[i]);
    c.rank = i;
    int err = quire_publisher_create(&c, &x->places[i].publisher);
    if (err != QUIRE_OK) {
        serve_explain_publisher(&c, err, quire_refusal());
        return -1;
    }
    x->live[i].publisher = x->places[i].publisher;
    return 0;
}

static int open_one(engines *x, uint32_t i)
{
    x->num_open = i + 1;
    int status = live_engine_open(&x->live[i], &x->replay, x->settings->speed, api_server_sleep,
                                  api_server_wake);
    if (status == 0)
        status = open_api(x, i);
    if (status == 0 && x->own->has_pages)
        status = open_page(x, i);
    if (status == 0 && x->settings->has_events)
        status = open_publisher(x, i);
    return status;
}

static void print_address(const engines *x, const char *what, uint32_t i, const char *address,
                          uint32_t port)
{
    bool is_v6 = strchr(address, ':') != NULL;
    fprintf(x->out, "%-6s %3u  http://%s%s%s:%u\n", what, i, is_v6 ? "[" : "", address,
            is_v6 ? "]" : "", port);
}

static void print_addresses(const engines *x)
{
    for (uint32_t i = 0; i < x->own->count; i++) {
        const place *p = &x->places[i];
        print_address(x, "engine", i, x->settings->http.address, api_server_port(p->api));
        if (p->page != NULL)
            print_address(x, "page", i, x->own->page_address, quire_http_port(p->page));
        if (p->publisher == NULL)
            continue;
        const char *replay = quire_publisher_replay_endpoint(p->publisher);
        fprintf(x->out, "events %3u  %s\n", i, quire_publisher_endpoint(p->publisher));
        if (replay != NULL && replay[0] != '\0')
            fprintf(x->out, "replay %3u  %s\n", i, replay);
    }
    fflush(x->out);
}

static int open_all(engines *x)
{
    int status = 0;
    x->live = calloc(x->own->count, sizeof *x->live);
    x->places = calloc(x->own->count, sizeof *x->places);
    if (x->live == NULL || x->places == NULL)
        return fail_with("not enough memory for %u engines", x->own->count);
    for (uint32_t i = 0; i < x->own->count && status == 0; i++)
        status = open_one(x, i);
    if (status == 0 && x->replay.path != NULL) {
        x->player = player_open(&x->replay, x->settings->speed, x->live, x->own->count);
        status = x->player != NULL ? 0 : -1;
    }
    for (uint32_t i = 0; i < x->own->count && status == 0; i++)
        status = live_engine_start(&x->live[i]);
    if (status == 0 && x->player != NULL)
        status = player_start(x->player);
    return status;
}

/* ---- running --------------------------------------------------------------------- */

/* A sentence, or NULL: all goes on. */
static const char *first_failure(const engines *x)
{
    for (uint32_t i = 0; i < x->own->count; i++)
        if (atomic_load(&x->live[i].has_failed))
            return x->live[i].failure;
    return x->player != NULL ? player_failure(x->player) : NULL;
}

/* Until a signal comes, or an engine fails; with a trace, until it has ended (without --hold). */
static void run(engines *x)
{
    enum { LOOK_MS = 100 };
    bool has_told = false;
    while (interrupt_sleep(LOOK_MS * 1e-3) && first_failure(x) == NULL) {
        for (uint32_t i = 0; i < x->own->count; i++)
            api_server_tick(x->places[i].api);
        bool is_done = x->player != NULL && player_is_done(x->player);
        if (is_done && !x->settings->hold)
            return;
        if (is_done && !has_told && !x->settings->quiet)
            fprintf(stderr, "The trace has ended; stop the server with Ctrl-C\n");
        has_told = has_told || is_done;
    }
}

/* Answers that were cut short are sent before their connections are closed. */
static void stop(engines *x)
{
    enum { SEND_S = 1 };
    for (uint32_t i = 0; i < x->num_open; i++)
        if (x->live[i].has_inbox)
            inbox_close(&x->live[i].inbox);
    player_stop(x->player);
    for (uint32_t i = 0; i < x->num_open; i++)
        live_engine_stop(&x->live[i]);
    for (uint32_t i = 0; i < x->num_open; i++) {
        if (x->live[i].has_inbox)
            inbox_wait_left(&x->live[i].inbox, SEND_S);
        api_server_stop(x->places[i].api);
        quire_publisher_destroy(x->places[i].publisher);
        quire_http_destroy(x->places[i].page);
    }
}

static void close_all(engines *x)
{
    player_close(x->player);
    for (uint32_t i = 0; i < x->num_open; i++)
        live_engine_close(&x->live[i]);
    free(x->live);
    free(x->places);
}

/* ---- the report ------------------------------------------------------------------- */

static json_t *times(distribution *d)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "mean", distribution_mean(d), "p50",
                     distribution_percentile(d, 0.5), "p90", distribution_percentile(d, 0.9), "p99",
                     distribution_percentile(d, 0.99));
}

static json_t *report_of(engines *x, uint32_t i)
{
    live_engine *e = &x->live[i];
    replay_result *r = &e->result;
    json_t *all = json_pack(
        "{s:i,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "engine", (int)i, "asked",
        (json_int_t)e->num_asks, "requests", (json_int_t)r->requests, "aborted",
        (json_int_t)e->num_aborted, "unfinished", (json_int_t)r->unfinished, "prompt_tokens",
        (json_int_t)r->prompt_tokens, "hit_tokens", (json_int_t)r->hit_tokens, "output_tokens",
        (json_int_t)r->output_tokens, "steps", (json_int_t)r->steps, "preemptions",
        (json_int_t)r->preemptions, "simulated_s", r->simulated_s, "busy_s", r->busy_s);
    json_object_set_new(all, "ttft_ms", times(&r->ttft_ms));
    json_object_set_new(all, "tpot_ms", times(&r->tpot_ms));
    json_object_set_new(all, "e2e_ms", times(&r->e2e_ms));
    return all;
}

static int write_json(engines *x)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < x->own->count; i++)
        json_array_append_new(list, report_of(x, i));
    json_t *record = replay_made_by(x->cmd, x->setup, x->replay.path == NULL ? json_null() : NULL);
    json_t *all = json_pack("{s:o,s:o}", "made_by", record, "engines", list);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(all);
    if (text == NULL)
        return command_failed(x->cmd, "not enough memory for the report");
    fprintf(x->settings->json.file, "%s\n", text);
    free(text);
    return outputs_commit() == 0 ? 0 : command_failed(x->cmd, "--json: %s", failure());
}

static void print_report(engines *x)
{
    fprintf(x->out, "\n%6s %9s %8s %14s %7s %14s %10s %10s\n", "engine", "requests", "aborted",
            "prompt tokens", "found", "output tokens", "TTFT p50", "TPOT p50");
    for (uint32_t i = 0; i < x->own->count; i++) {
        replay_result *r = &x->live[i].result;
        double share = r->prompt_tokens > 0 ? (double)r->hit_tokens / (double)r->prompt_tokens : 0;
        fprintf(x->out, "%6u %9s %8s %14s %5.1f %% %14s %7.1f ms %7.1f ms\n", i,
                report_number(r->requests), report_number(x->live[i].num_aborted),
                report_number(r->prompt_tokens), 100 * share, report_number(r->output_tokens),
                distribution_percentile(&r->ttft_ms, 0.5),
                distribution_percentile(&r->tpot_ms, 0.5));
    }
    if (x->player != NULL && player_num_left_out(x->player) > 0)
        fprintf(x->out, "%s requests of the trace do not fit an engine, and were skipped\n",
                report_number(player_num_left_out(x->player)));
    fflush(x->out);
}

int engines_run(const command *cmd, const serve_settings *settings, const engines_settings *own,
                replay_setup *setup)
{
    engines x = {.cmd = cmd, .settings = settings, .own = own, .setup = setup};
    x.watch.monitor = &settings->monitor;
    x.replay = setup->settings;
    x.replay.watch = &x.watch;
    if (!is_loopback(settings->http.address) && settings->http.token == NULL)
        return command_error(cmd,
                             "--listen: %s is reachable from other machines: give --token-file "
                             "FILE, or listen on 127.0.0.1",
                             settings->http.address);
    allow_descriptors();
    interrupt_catch();
    if (outputs_open_for(cmd) != 0)
        return 1;
    x.out = settings->json.file == stdout ? stderr : stdout;
    int status = open_all(&x);
    if (status != 0)
        status = command_failed(cmd, "%s", failure());
    if (status == 0) {
        print_addresses(&x);
        run(&x);
    }
    stop(&x);
    if (status == 0 && first_failure(&x) != NULL)
        status = command_failed(cmd, "%s", first_failure(&x));
    if (status == 0 && !settings->quiet)
        print_report(&x);
    if (status == 0 && settings->json.file != NULL)
        status = write_json(&x);
    close_all(&x);
    return status;
}
