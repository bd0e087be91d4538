/* cmd_events.c - `quire events`: what a publisher of KV events says, and whether it is right. */
#include "commands.h"
#include "live/events_run.h"
#include "options/secret_file.h"

static struct {
    events_settings s;
    bool from_start;
    bool from_now;
    const char *server_key_file;
    const char *secret_file;
    const char *make_keys;
} o = {.s = {.subscriber = QUIRE_SUBSCRIBER_CONFIG_INIT}};

static const option table[] = {
    {"replay-events", OPTION_TEXT, &o.s.subscriber.replay_endpoint, "ENDPOINT",
     "endpoint for missed batches and for the whole index", .section = "What to follow"},
    {"topic", OPTION_TEXT, &o.s.subscriber.topic, "TEXT", "only topics with this prefix",
     .def = "all"},
    {"from-start", OPTION_SWITCH, &o.from_start, NULL,
     "start with the oldest events that can be replayed, not with the whole index", .def = "off"},
    {"from-now", OPTION_SWITCH, &o.from_now, NULL, "start with the next event", .def = "off"},
    {"count", OPTION_U64, &o.s.max_batches, "N", "stop after N batches", .def = "until Ctrl-C",
     .min = 1},
    {"seconds", OPTION_REAL, &o.s.max_seconds, "S", "stop after this many seconds",
     .def = "until Ctrl-C", .min = 0.001, .max = 1e9},
    {"json", OPTION_SWITCH, &o.s.json, NULL,
     "a JSON object for each event, and one for the summary", .def = "off",
     .section = "What to do"},
    {"quiet", OPTION_SWITCH, &o.s.quiet, NULL, "only the summary", .def = "off"},
    {"check", OPTION_SWITCH, &o.s.check, NULL,
     "exit status 1 for missing, repeated, reordered or undecodable batches, a restart, a removed "
     "block that was not stored in the same medium, no events at all, or a publisher that has "
     "ended",
     .def = "off"},
    {"index", OPTION_SWITCH, &o.s.index, NULL, "print the index that a router would have, by group",
     .def = "off"},
    {"compare", OPTION_SWITCH, &o.s.compare, NULL,
     "compare this index with the publisher's at the end; exit status 1 if they differ",
     .def = "off"},
    {"curve-server-key-file", OPTION_TEXT, &o.server_key_file, "FILE",
     "the publisher's public CURVE key", .section = "Keys"},
    {"curve-secret-file", OPTION_TEXT, &o.secret_file, "FILE", "secret CURVE key of this side",
     .def = "generated"},
    {"make-keys", OPTION_TEXT, &o.make_keys, "FILE",
     "make a key pair and exit: FILE gets the secret key, the public key is printed",
     .role = OPTION_OUTPUT},
    {0}};

/* --compare without an end compares soon. */
enum { COMPARE_AFTER_S = 5 };

static int check_options(void)
{
    if (o.from_start && o.from_now)
        return command_error(&cmd_events, "--from-start and --from-now cannot be used together");
    if (o.from_start && o.s.subscriber.replay_endpoint == NULL)
        return command_error(
            &cmd_events,
            "--from-start needs --replay-events ENDPOINT, which serves earlier events");
    if (o.s.compare && o.s.subscriber.replay_endpoint == NULL)
        return command_error(
            &cmd_events,
            "--compare needs --replay-events ENDPOINT, which serves the publisher's index");
    if (o.s.compare && o.from_now)
        return command_error(&cmd_events,
                             "--compare cannot be used with --from-now: blocks that were "
                             "stored earlier would be missing");
    if (o.secret_file != NULL && o.server_key_file == NULL)
        return command_error(
            &cmd_events,
            "--curve-secret-file needs --curve-server-key-file (the publisher's public key)");
    return 0;
}

static int run_events(void)
{
    static char server_key[KEY_CHARACTERS + 1];
    static char secret_key[KEY_CHARACTERS + 1];
    if (o.make_keys != NULL)
        return events_keys_make(&cmd_events, o.make_keys);
    int status = check_options();
    if (status == 0 && o.secret_file != NULL)
        status = secret_file_read_key(&cmd_events, "curve-secret-file", o.secret_file, false,
                                      secret_key);
    if (status == 0 && o.server_key_file != NULL)
        status = secret_file_read_key(&cmd_events, "curve-server-key-file", o.server_key_file, true,
                                      server_key);
    if (status != 0)
        return status;
    quire_subscriber_config *c = &o.s.subscriber;
    if (o.s.compare && o.s.max_batches == 0 && o.s.max_seconds <= 0)
        o.s.max_seconds = COMPARE_AFTER_S;
    c->endpoint = cmd_events.num_arguments > 0 ? cmd_events.arguments[0] : "tcp://127.0.0.1:5557";
    c->start = o.from_start ? 2 : o.from_now ? 1 : 0;
    c->curve_server_key = o.server_key_file != NULL ? server_key : NULL;
    c->curve_secret_key = o.secret_file != NULL ? secret_key : NULL;
    return events_run(&cmd_events, &o.s);
}

command cmd_events = {
    .name = "events",
    .usage = "events [OPTION]... [ENDPOINT]",
    .summary = "follows the KV events of quire serve, of an engine with Quire, or of vLLM",
    .examples = "  quire events\n      prints the events of tcp://127.0.0.1:5557\n  quire events "
                "--replay-events tcp://127.0.0.1:5558 --quiet --check --compare --seconds 10\n     "
                " checks that no event is missing, and that the index equals the publisher's\n  "
                "quire events --json --count 100 ipc:///run/vllm/events | jq .kind\n      the next "
                "hundred batches, for programs\n",
    .options = table,
    .max_arguments = 1,
    .run = run_events,
};
