#include "serve.h"
#include "live/pace.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- pace -------------------------------------------------------------------- */

/* Comes back when the simulated time is there, or when an interrupt came. */
static void pace_wait(pace *p, double until_s)
{
    double left = pace_left_s(p, until_s, progress_clock());
    while (left > 0 && interrupt_sleep(left)) /* naps end a little early or late */
        left = pace_left_s(p, until_s, progress_clock());
}

typedef struct server {
    const command *cmd;
    const serve_settings *settings;
    const replay_setup *setup;
    const replay_result *result; /* so far */
    FILE *out;                   /* where addresses and the report go */
    quire_sched *sched;
    quire_monitor *monitor;
    quire_http *http;
    quire_publisher *publisher;
    uint32_t peer_port; /* 0: no TCP port is offered to peers */
    pace pace;
    double now_s;
    double round_s; /* when this round began */
    progress progress;
    int status;
} server;

/* ---- addresses --------------------------------------------------------------- */

static void print_addresses(const server *s)
{
    const quire_http_config *h = &s->settings->http;
    const char *address = h->address;
    bool is_v6 = strchr(address, ':') != NULL;
    fprintf(s->out, "page      http://%s%s%s:%u/\n", is_v6 ? "[" : "", address, is_v6 ? "]" : "",
            quire_http_port(s->http));
    fprintf(s->out, "metrics   http://%s%s%s:%u/metrics\n", is_v6 ? "[" : "", address,
            is_v6 ? "]" : "", quire_http_port(s->http));
    if (h->token != NULL)
        fprintf(s->out, "token     the first line of %s; the page takes it as ?token=...\n",
                s->settings->token_file);
    if (s->publisher != NULL) {
        const char *replay = quire_publisher_replay_endpoint(s->publisher);
        fprintf(s->out, "events    %s\n", quire_publisher_endpoint(s->publisher));
        if (replay != NULL && replay[0] != '\0')
            fprintf(s->out, "replay    %s\n", replay);
    }
    const char *peers = s->setup->settings.tiers.peer_listen;
    if (peers != NULL && s->peer_port != 0)
        fprintf(s->out, "peers     %.*s:%u\n", (int)(strrchr(peers, ':') - peers), peers,
                s->peer_port);
    else if (peers != NULL)
        fprintf(s->out, "peers     %s\n", peers);
    fflush(s->out);
}

/* ---- progress ---------------------------------------------------------------- */

/* All 0 without a publisher. */
static quire_publisher_stats stats_of(const server *s)
{
    quire_publisher_stats stats = QUIRE_PUBLISHER_STATS_INIT;
    (void)quire_publisher_get_stats(s->publisher, &stats);
    return stats;
}

static void show_line(void *user, const replay_progress *now)
{
    server *s = user;
    quire_monitor_step step = QUIRE_MONITOR_STEP_INIT;
    char line[256];
    char lost[64] = "";
    if (quire_monitor_get_last_step(s->monitor, &step) != QUIRE_OK)
        return;
    double total = (double)step.num_active + step.num_cached + step.num_empty;
    double prompts = (double)s->result->prompt_tokens;
    uint64_t num_lost = stats_of(s).num_lost;
    if (num_lost > 0)
        snprintf(lost, sizeof lost, "events LOST %s times; ", report_number(num_lost));
    snprintf(line, sizeof line,
             "%.1f s simulated: %s ended, %u running, %u waiting; %shits %.0f %%; blocks %.0f %% "
             "active, %.0f %% cached",
             now->simulated_s, report_number(now->num_requests), step.num_running, step.num_waiting,
             lost, prompts > 0 ? 100 * (double)s->result->hit_tokens / prompts : 0,
             total > 0 ? 100 * step.num_active / total : 0,
             total > 0 ? 100 * step.num_cached / total : 0);
    progress_line(&s->progress, line);
}

/* ---- the end ----------------------------------------------------------------- */

static int write_report(const server *s, replay_result *result)
{
    json_t *record = replay_made_by(s->cmd, s->setup, NULL);
    report_subject subject = replay_subject(s->setup, record);
    char *text = report_json(&subject, result);
    json_decref(record);
    if (text == NULL)
        return command_failed(s->cmd, "not enough memory for the report");
    if (!s->settings->quiet) {
        fputc('\n', s->out);
        report_print(s->out, &subject, result);
        if (result->rounds > 1)
            fprintf(s->out, "The trace was replayed %s times\n", report_number(result->rounds));
        fflush(s->out);
    }
    int status = 0;
    if (s->settings->json.file != NULL) {
        fprintf(s->settings->json.file, "%s\n", text);
        status = outputs_commit() == 0 ? 0 : command_failed(s->cmd, "--json: %s", failure());
    }
    free(text);
    return status;
}

/* A publisher is told the whole cache when it begins and when it has missed events, some blocks
 * with each step; an engine with nothing to do makes none, so they are made here. One at a time,
 * that the publisher can follow. */
enum { STEP_MS = 3, HOLD_MS = 20 };

static void make_step(const server *s)
{
    const quire_step *step;
    const quire_outputs *outputs;
    if (quire_sched_schedule(s->sched, &step) == QUIRE_OK)
        quire_sched_update(s->sched, step->step, &(quire_model_output)QUIRE_MODEL_OUTPUT_INIT,
                           &outputs);
}

static void hold(const server *s)
{
    bool is_owed = false;
    if (!s->settings->quiet)
        fprintf(stderr, "The trace has ended; stop the server with Ctrl-C\n");
    do {
        is_owed = s->publisher != NULL && stats_of(s).is_whole == 0;
        if (is_owed)
            make_step(s);
    } while (interrupt_sleep((is_owed ? STEP_MS : HOLD_MS) * 1e-3));
}

/* What subscribers did not get as it happened. The publisher's thread has looked by then. */
static void tell_losses(const server *s)
{
    enum { LOOK_MS = 30, DEFAULT_RING = 8 << 20 };
    if (s->publisher == NULL)
        return;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    quire_publisher_stats stats = stats_of(s);
    uint64_t ring = s->settings->monitor.event_bytes;
    if (stats.num_lost > 0)
        command_error(s->cmd,
                      "events were lost %s time%s: --event-ring (%s bytes) is too small. Each time "
                      "the publisher cleared all blocks and sent the whole index again%s",
                      report_number(stats.num_lost), stats.num_lost == 1 ? "" : "s",
                      report_number(ring > 0 ? ring : DEFAULT_RING),
                      stats.is_whole ? "" : "; the last time is still in progress");
    if (stats.num_unsent > 0)
        command_error(s->cmd, "%s batches of events were not sent: subscribers were too slow%s",
                      report_number(stats.num_unsent),
                      s->settings->publisher.replay_endpoint != NULL
                          ? "; they can ask for them"
                          : "; with --replay-events they can ask for them");
}

static void stop(server *s)
{
    quire_publisher_destroy(s->publisher);
    quire_http_destroy(s->http);
    s->publisher = NULL;
    s->http = NULL;
}

/* ---- what the replay calls ----------------------------------------------------- */

/* The libraries name their own settings; here are the options that set them. */
static void explain_http(const quire_http_config *config, int err, const char *said)
{
    const char *name = strncmp(said, "invalid host ", 13) == 0   ? "host"
                       : strncmp(said, "invalid token", 13) == 0 ? "token-file"
                       : strncmp(said, "model_name", 10) == 0    ? "model"
                                                                 : "listen";
    if (err == QUIRE_E_UNSAFE)
        fail_with(
            "--listen: %s is reachable from other machines: give --token-file FILE, or listen "
            "on 127.0.0.1",
            config->address);
    else
        fail_with("--%s: %.500s", name, said);
}

void serve_explain_publisher(const quire_publisher_config *config, int err, const char *said)
{
    const char *replay = config->replay_endpoint;
    bool is_replay =
        replay != NULL && strstr(said, config->endpoint) == NULL && strstr(said, replay) != NULL;
    const char *name = is_replay ? "replay-events" : "events";
    if (err == QUIRE_E_UNSAFE)
        fail_with(
            "--%s: '%.200s' is reachable from other machines: give keys (--curve-secret-file, "
            "--curve-clients-file), use tcp://127.0.0.1:PORT or ipc://FILE, or, on a trusted "
            "network, --allow-strangers-to-read-prompts-and-stall-us",
            name, is_replay ? replay : config->endpoint);
    else
        fail_with("--%s: %.500s", name, said);
}

static int begin(void *user, quire_sched *sched)
{
    server *s = user;
    quire_http_config http = s->settings->http;
    quire_publisher_config publisher = s->settings->publisher;
    s->sched = sched;
    s->monitor = quire_sched_get_monitor(sched);
    http.monitor = publisher.monitor = s->monitor;
    int err = quire_http_create(&http, &s->http);
    if (err != QUIRE_OK)
        explain_http(&http, err, quire_refusal());
    if (err == QUIRE_OK && s->settings->has_events) {
        err = quire_publisher_create(&publisher, &s->publisher);
        if (err != QUIRE_OK)
            serve_explain_publisher(&publisher, err, quire_refusal());
    }
    if (err != QUIRE_OK) {
        s->status = err == QUIRE_E_SYSTEM || err == QUIRE_E_NOMEM ? 1 : 2;
        stop(s);
        return -1;
    }
    print_addresses(s);
    return 0;
}

static void wait_until(void *user, double until_s)
{
    server *s = user;
    s->now_s = until_s;
    pace_wait(&s->pace, until_s);
}

/* A trace that takes no time would come again for ever. */
static bool again(void *user)
{
    server *s = user;
    bool has_lasted = s->now_s > s->round_s;
    s->round_s = s->now_s;
    return s->settings->loop && has_lasted && !interrupt_came();
}

static void end(void *user, replay_result *result)
{
    server *s = user;
    progress_end(&s->progress);
    if (result != NULL) {
        s->status = write_report(s, result);
        tell_losses(s);
    }
    if (result != NULL && s->settings->hold && !interrupt_came())
        hold(s);
    stop(s);
}

int serve_run(const command *cmd, const serve_settings *settings, replay_setup *setup)
{
    server s = {
        .cmd = cmd, .settings = settings, .setup = setup, .pace = {.speed = settings->speed}};
    replay_watch watch = {.monitor = &settings->monitor,
                          .begin = begin,
                          .wait = wait_until,
                          .again = again,
                          .end = end,
                          .user = &s};
    replay_result result;
    interrupt_catch();
    setup->settings.watch = &watch;
    setup->settings.tiers.peer_port = &s.peer_port;
    setup->settings.stop = interrupt_name;
    s.result = &result;
    /* Hours may pass before there is a report: a file that cannot be written is an error now. */
    if (outputs_open_for(cmd) != 0)
        return 1;
    s.out = settings->json.file == stdout ? stderr : stdout;
    progress_begin(&s.progress, !settings->quiet);
    setup->settings.progress = s.progress.is_on ? show_line : NULL;
    setup->settings.progress_user = &s;
    int failed = replay_run(&setup->settings, &result);
    replay_result_free(&result);
    if (failed == 0)
        return s.status;
    command_error(cmd, "%s", failure());
    return s.status != 0 ? s.status : 1;
}
