#include "serve.h"
#include "interrupt.h"
#include "pace.h"
#include "report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct server {
    const command *cmd;
    const serve_settings *settings;
    const replay_setup *setup;
    FILE *out; /* where addresses and the report go */
    quire_sched *sched;
    quire_monitor *monitor;
    quire_http *http;
    quire_publisher *publisher;
    pace pace;
    double now_s;
    double round_s; /* when this round began */
    bool has_progress;
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
    fflush(s->out);
}

/* ---- progress ---------------------------------------------------------------- */

static void show_line(void *user, double simulated_s, uint64_t num_requests, double share)
{
    server *s = user;
    quire_monitor_step step;
    (void)share;
    if (quire_monitor_last_step(s->monitor, &step) != QUIRE_OK)
        return;
    double total = (double)step.num_active + step.num_cached + step.num_empty;
    fprintf(stderr,
            "\r%.1f s: %s requests ended, %u running, %u waiting; blocks %.0f %% active, "
            "%.0f %% cached   ",
            simulated_s, report_number(num_requests), step.num_running, step.num_waiting,
            total > 0 ? 100 * step.num_active / total : 0,
            total > 0 ? 100 * step.num_cached / total : 0);
    s->has_progress = true;
}

static void clear_line(server *s)
{
    if (s->has_progress)
        fprintf(stderr, "\r%110s\r", "");
    s->has_progress = false;
}

/* ---- the end ----------------------------------------------------------------- */

static int write_json_file(const server *s, const char *text)
{
    const char *path = s->settings->json;
    if (path == NULL)
        return 0;
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : fopen(path, "w");
    bool ok = out != NULL && fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    if (out != NULL && !is_stdout && fclose(out) != 0)
        ok = false;
    if (!ok)
        command_error(s->cmd, "--json: %s: %s", path, strerror(errno));
    return ok ? 0 : 1;
}

static int write_report(const server *s, replay_result *result)
{
    const replay_setup *setup = s->setup;
    report_subject subject = {.trace = setup->settings.path,
                              .model = setup->engine.shape.name,
                              .gpu = setup->engine.gpu.name,
                              .bytes_per_block = setup->plan_result.block_bytes};
    char *text = report_json(&subject, result);
    if (text == NULL) {
        command_error(s->cmd, "not enough memory for the report");
        return 1;
    }
    if (!s->settings->quiet) {
        fputc('\n', s->out);
        report_print(s->out, &subject, result);
        if (result->rounds > 1)
            fprintf(s->out, "The trace came %s times\n", report_number(result->rounds));
        fflush(s->out);
    }
    int status = write_json_file(s, text);
    free(text);
    return status;
}

/* A publisher is told the whole cache when it begins and when it has missed events, some blocks
 * with each step; an engine with nothing to do makes none, so they are made here. One at a time,
 * that the publisher can follow. */
enum { STEP_MS = 3, HOLD_MS = 20 };

static bool owes_step(const server *s)
{
    return s->publisher != NULL && quire_publisher_get_stats(s->publisher).is_whole == 0;
}

static void make_step(const server *s)
{
    const quire_step *step;
    const quire_outputs *outputs;
    if (quire_sched_schedule(s->sched, &step) == QUIRE_OK)
        quire_sched_update(s->sched, step->step, &(quire_model_output){0}, &outputs);
}

static void hold(const server *s)
{
    bool is_owed = false;
    if (!s->settings->quiet)
        fprintf(stderr, "The trace has ended; Ctrl-C ends this too\n");
    do {
        is_owed = owes_step(s);
        if (is_owed)
            make_step(s);
    } while (interrupt_sleep((is_owed ? STEP_MS : HOLD_MS) * 1e-3));
}

static void stop(server *s)
{
    quire_publisher_destroy(s->publisher);
    quire_http_destroy(s->http);
    s->publisher = NULL;
    s->http = NULL;
}

/* ---- what the replay calls ----------------------------------------------------- */

static int begin(void *user, quire_sched *sched, char message[REPLAY_MESSAGE_BYTES])
{
    server *s = user;
    quire_http_config http = s->settings->http;
    quire_publisher_config publisher = s->settings->publisher;
    s->sched = sched;
    s->monitor = quire_sched_monitor(sched);
    http.monitor = publisher.monitor = s->monitor;
    const char *remedy = " (--token-file)";
    int err = quire_http_create(&http, &s->http, message, REPLAY_MESSAGE_BYTES);
    if (err == QUIRE_OK && s->settings->has_events) {
        remedy = " (--curve-secret-file, --curve-clients-file)";
        err = quire_publisher_create(&publisher, &s->publisher, message, REPLAY_MESSAGE_BYTES);
    }
    if (err == QUIRE_E_UNSAFE) /* the library names its own settings */
        strncat(message, remedy, REPLAY_MESSAGE_BYTES - strlen(message) - 1);
    if (err != QUIRE_OK) {
        stop(s);
        return -1;
    }
    print_addresses(s);
    return 0;
}

static bool wait_until(void *user, double until_s)
{
    server *s = user;
    s->now_s = until_s;
    return pace_wait(&s->pace, until_s);
}

/* A trace that takes no time would come again without end. */
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
    clear_line(s);
    if (result != NULL)
        s->status = write_report(s, result);
    if (result != NULL && s->settings->hold && !interrupt_came())
        hold(s);
    stop(s);
}

int serve_run(const command *cmd, const serve_settings *settings, replay_setup *setup)
{
    bool is_piped = settings->json != NULL && strcmp(settings->json, "-") == 0;
    server s = {.cmd = cmd,
                .settings = settings,
                .setup = setup,
                .out = is_piped ? stderr : stdout,
                .pace = {.speed = settings->speed}};
    replay_watch watch = {.monitor = &settings->monitor,
                          .begin = begin,
                          .wait = wait_until,
                          .again = again,
                          .end = end,
                          .user = &s};
    replay_result result;
    char message[REPLAY_MESSAGE_BYTES];
    interrupt_catch();
    setup->settings.watch = &watch;
    if (!settings->quiet && isatty(STDERR_FILENO)) {
        setup->settings.progress = show_line;
        setup->settings.progress_user = &s;
    }
    int failed = replay_run(&setup->settings, &result, message);
    replay_result_free(&result);
    if (failed == 0)
        return s.status;
    fprintf(stderr, "quire %s: %s\n", cmd->name, message);
    return 1;
}
