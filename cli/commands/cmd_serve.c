/* cmd_serve.c - `quire serve`: a trace at its own pace, and what others see of it. */
#include "commands.h"
#include "live/engines.h"
#include "options/secret_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const event_forms[] = {"array", "map", NULL};
static const char *const event_hashes[] = {"number", "bytes", NULL};

enum { MAX_HOSTS = 64, HOST_BYTES = 4096 };

static const char *host_texts[MAX_HOSTS];

static struct {
    replay_options replay;
    serve_settings s;
    engines_settings engines;
    const char *speed;
    const char *listen;
    const char *page_listen;
    option_list hosts;
    bool event_tokens;
    bool every_copy;
    const char *secret_file;
    const char *clients_file;
    bool allow_strangers;
    bool has_form;
    bool has_hashes;
    bool has_ring;
} o = {.replay = REPLAY_OPTIONS_INIT,
       .s = {.monitor = {.size = sizeof(quire_monitor_config), .map_ms = 250},
             .http = QUIRE_HTTP_CONFIG_INIT,
             .publisher = QUIRE_PUBLISHER_CONFIG_INIT},
       .speed = "1",
       .listen = "127.0.0.1:8080",
       .hosts = {.texts = host_texts, .max = MAX_HOSTS}};

/* One that holds hardly any event would lose nearly all. */
enum { MIN_RING = 16384 };

static const option table[] = {
    {"speed", OPTION_TEXT, &o.speed, "X|max",
     "simulated seconds per second; max or 0: as fast as possible", .def = "1", .section = "Pace"},
    {"loop", OPTION_SWITCH, &o.s.loop, NULL,
     "start again at the end, with an empty prefix cache, until Ctrl-C", .def = "off"},
    {"hold", OPTION_SWITCH, &o.s.hold, NULL, "keep serving after the end, until Ctrl-C",
     .def = "off"},
    {"json", OPTION_TEXT, &o.s.json.path, "FILE",
     "the report at the end, as replay --json writes it; -: standard output", .section = "Output",
     .role = OPTION_OUTPUT},
    {"quiet", OPTION_SWITCH, &o.s.quiet, NULL, "no report, no progress", .def = "off",
     .role = OPTION_OUTPUT},
    {"listen", OPTION_TEXT, &o.listen, "ADDRESS:PORT",
     "address of the page and the metrics, or of the first of --engines; port 0: any free port",
     .def = "127.0.0.1:8080", .section = "HTTP"},
    {"engines", OPTION_U32, &o.engines.count, "N",
     "N engines that take requests over HTTP, with OpenAI's API: at the port of --listen and the "
     "N - 1 ports after it; TRACE is optional",
     .def = "none", .min = 1, .max = ENGINES_MAX, .section = "Engines"},
    {"served-model-name", OPTION_TEXT, &o.engines.model, "NAME",
     "model that requests to --engines name", .def = "--model"},
    {"answer-tokens", OPTION_U32, &o.engines.answer_tokens, "N",
     "tokens after which an answer of --engines ends by itself; 0: at max_tokens", .def = "0",
     .max = ENGINE_MAX_TOKENS},
    {"page-listen", OPTION_TEXT, &o.page_listen, "ADDRESS:PORT",
     "address of the live page of the first of --engines; the others have the ports after it",
     .def = NULL},
    {"token-file", OPTION_TEXT, &o.s.token_file, "FILE",
     "its first line is the token that clients must send; required unless --listen is loopback",
     .def = NULL},
    {"host", OPTION_LIST, &o.hosts, "NAME,...",
     "additional host names that clients may use; may be repeated", .def = NULL},
    {"steps", OPTION_U32, &o.s.monitor.num_steps, "N", "steps kept for clients that connect later",
     .def = "4096", .min = 1, .max = 1 << 24},
    {"names", OPTION_U32, &o.s.monitor.num_names, "N",
     "show the ids of N running and N waiting requests in /snapshot and on the page", .def = "0",
     .max = 256},
    {"map-ms", OPTION_U32, &o.s.monitor.map_ms, "N",
     "milliseconds between block maps of the GPU's and the host's memory, on the page and in "
     "/blocks; 0: none",
     .def = "250", .max = 3600000},
    {"events", OPTION_TEXT, &o.s.publisher.endpoint, "ENDPOINT",
     "publish KV events at this endpoint: tcp://127.0.0.1:5557, ipc:///run/quire/events",
     .section = "Events"},
    {"replay-events", OPTION_TEXT, &o.s.publisher.replay_endpoint, "ENDPOINT",
     "endpoint at which subscribers ask for missed batches", .def = NULL},
    {"topic", OPTION_TEXT, &o.s.publisher.topic, "TEXT", "topic of the events", .def = NULL},
    {"event-tokens", OPTION_SWITCH, &o.event_tokens, NULL,
     "put token ids into events, for routers that compute hashes; token ids reveal the prompts",
     .def = "off"},
    {"event-form", OPTION_CHOICE, &o.s.publisher.as_maps, "KIND",
     "format of events: as in vLLM 0.20, or as in newer versions", .def = "array",
     .choices = event_forms, .is_given = &o.has_form},
    {"event-hashes", OPTION_CHOICE, &o.s.publisher.hashes_as_bytes, "KIND",
     "64 bits of a hash, or all of it", .def = "number", .choices = event_hashes,
     .is_given = &o.has_hashes},
    {"every-copy", OPTION_SWITCH, &o.every_copy, NULL,
     "publish an event for each block, as vLLM 0.20 does, not only for the first and last with a "
     "hash",
     .def = "off"},
    {"event-ring", OPTION_U32, &o.s.monitor.event_bytes, "BYTES",
     "buffer between scheduler and publisher; after an overflow the whole index is sent again",
     .def = "8Mi", .min = MIN_RING, .max = 1 << 30, .is_given = &o.has_ring},
    {"curve-secret-file", OPTION_TEXT, &o.secret_file, "FILE",
     "secret CURVE key of this side; quire events --make-keys makes a pair", .def = NULL},
    {"curve-clients-file", OPTION_TEXT, &o.clients_file, "FILE",
     "public keys that may connect, one a line", .def = NULL},
    {"allow-strangers-to-read-prompts-and-stall-us", OPTION_SWITCH, &o.allow_strangers, NULL,
     "allow event endpoints on the network without keys", .def = "off"},
    {"peer-listen", OPTION_TEXT, &o.replay.tiers.settings.peer_listen, "ADDRESS:PORT",
     "offer host memory to peers at this numeric address or unix:PATH; port 0: any free port; "
     "needs --real-tiers",
     .def = NULL, .section = "Peers"},
    REPLAY_OPTIONS_BUT_SPEED(o.replay, "arrival-speed"),
    {0}};

/* ---- values ------------------------------------------------------------------ */

static int read_speed(const char *text, double *speed)
{
    char *rest;
    errno = 0;
    *speed = strcmp(text, "max") == 0 ? 0 : strtod(text, &rest);
    bool is_number = strcmp(text, "max") == 0 ||
                     (text[0] >= '0' && text[0] <= '9' && rest[0] == '\0' && errno == 0);
    if (is_number && *speed >= 0 && *speed <= 1e9)
        return 0;
    return command_error(
        &cmd_serve, "invalid value \"%s\" for --speed (expected a number, 0..1e9, or max)", text);
}

enum { ADDRESS_BYTES = 64 };

/* "127.0.0.1:8080", "[::1]:8080", "localhost:0". */
static int read_listen(const char *name, const char *text, char address[ADDRESS_BYTES],
                       uint32_t *port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    char *rest = NULL;
    unsigned long number = 0;
    const char *from = text;
    if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
        from++;
        length -= 2;
    } else if (length > 0 && memchr(text, ':', length) != NULL) {
        length = 0; /* IPv6 without brackets: which part is the port? */
    }
    if (colon != NULL && colon[1] >= '0' && colon[1] <= '9')
        number = strtoul(colon + 1, &rest, 10);
    if (length == 0 || length >= ADDRESS_BYTES || rest == NULL || rest[0] != '\0' || number > 65535)
        return command_error(&cmd_serve,
                             "invalid value \"%s\" for --%s (expected ADDRESS:PORT, such as "
                             "127.0.0.1:8080 or [::1]:0)",
                             text, name);
    memcpy(address, from, length);
    address[length] = '\0';
    if (strcmp(address, "localhost") == 0)
        memcpy(address, "127.0.0.1", sizeof "127.0.0.1");
    *port = (uint32_t)number;
    return 0;
}

/* "a,b" and "c" as names of their own. */
static int read_hosts(serve_settings *s)
{
    static char names[HOST_BYTES];
    static const char *list[MAX_HOSTS];
    size_t used = 0;
    for (uint32_t i = 0; i < o.hosts.count; i++) {
        const char *text = o.hosts.texts[i];
        for (;;) {
            size_t length = strcspn(text, ",");
            if (length == 0)
                return command_error(&cmd_serve,
                                     "invalid value \"%s\" for --host (a name is empty)",
                                     o.hosts.texts[i]);
            if (s->http.num_hosts == MAX_HOSTS || used + length + 1 > sizeof names)
                return command_error(&cmd_serve,
                                     "--host: at most %d names, of %d characters in all", MAX_HOSTS,
                                     HOST_BYTES);
            list[s->http.num_hosts++] = memcpy(names + used, text, length);
            used += length;
            names[used++] = '\0';
            if (text[length] == '\0')
                break;
            text += length + 1;
        }
    }
    s->http.hosts = list;
    return 0;
}

/* A step of half a minute is not stuck where the clock runs slower than that. */
enum { STUCK_S = 30 };

static uint32_t stuck_after_s(double speed)
{
    double seconds = speed > 0 && speed < 1 ? STUCK_S / speed : STUCK_S;
    return seconds < UINT32_MAX ? (uint32_t)seconds : UINT32_MAX;
}

/* ---- the command ------------------------------------------------------------- */

/* What the settings point to. */
typedef struct serve_texts {
    char address[ADDRESS_BYTES];
    char page_address[ADDRESS_BYTES];
    char token[SECRET_BYTES];
    char secret[KEY_CHARACTERS + 1];
    char (*clients)[KEY_CHARACTERS + 1];
    const char **client_list;
} serve_texts;

/* An option that means something only with --events; NULL: none was given. */
static const char *first_of_events(void)
{
    const struct {
        bool is_given;
        const char *name;
    } rows[] = {{o.s.publisher.replay_endpoint != NULL, "replay-events"},
                {o.s.publisher.topic != NULL, "topic"},
                {o.event_tokens, "event-tokens"},
                {o.has_form, "event-form"},
                {o.has_hashes, "event-hashes"},
                {o.every_copy, "every-copy"},
                {o.has_ring, "event-ring"},
                {o.secret_file != NULL, "curve-secret-file"},
                {o.clients_file != NULL, "curve-clients-file"},
                {o.allow_strangers, "allow-strangers-to-read-prompts-and-stall-us"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_given)
            return rows[i].name;
    return NULL;
}

static int read_events(serve_settings *s, serve_texts *texts)
{
    quire_publisher_config *p = &s->publisher;
    int status = 0;
    s->has_events = o.s.publisher.endpoint != NULL;
    const char *idle = first_of_events();
    if (!s->has_events && idle != NULL)
        return command_error(&cmd_serve, "--%s needs --events ENDPOINT", idle);
    if (s->has_events && o.s.publisher.replay_endpoint != NULL &&
        strcmp(o.s.publisher.endpoint, o.s.publisher.replay_endpoint) == 0 &&
        strchr(o.s.publisher.endpoint, '*') == NULL)
        return command_error(&cmd_serve,
                             "--events and --replay-events need different endpoints (both are %s)",
                             o.s.publisher.endpoint);
    if (o.clients_file != NULL && o.secret_file == NULL)
        return command_error(&cmd_serve, "--curve-clients-file needs --curve-secret-file");
    if (o.secret_file != NULL)
        status = secret_file_read_key(&cmd_serve, "curve-secret-file", o.secret_file, false,
                                      texts->secret);
    if (status == 0 && o.clients_file != NULL)
        status = secret_file_read_keys(&cmd_serve, "curve-clients-file", o.clients_file,
                                       &texts->clients, &p->num_curve_clients);
    if (status != 0)
        return status;
    if (p->num_curve_clients > 0) {
        texts->client_list = calloc(p->num_curve_clients, sizeof *texts->client_list);
        if (texts->client_list == NULL)
            return command_error(&cmd_serve, "not enough memory");
        for (uint32_t i = 0; i < p->num_curve_clients; i++)
            texts->client_list[i] = texts->clients[i];
    }
    p->every_copy = o.every_copy;
    p->curve_secret_key = o.secret_file != NULL ? texts->secret : NULL;
    p->curve_clients = texts->client_list;
    p->allow_strangers_to_read_prompts_and_stall_us = o.allow_strangers;
    return 0;
}

static int read_settings(serve_settings *s, serve_texts *texts)
{
    s->monitor.token_ids = o.event_tokens ? QUIRE_ON : QUIRE_OFF;
    int status = read_speed(o.speed, &s->speed);
    if (status == 0)
        status = read_listen("listen", o.listen, texts->address, &s->http.port);
    if (status == 0 && o.page_listen != NULL)
        status =
            read_listen("page-listen", o.page_listen, texts->page_address, &o.engines.page_port);
    if (status == 0 && o.s.token_file != NULL)
        status = secret_file_read(&cmd_serve, "token-file", o.s.token_file, texts->token);
    if (status == 0)
        status = read_hosts(s);
    if (status == 0)
        status = read_events(s, texts);
    s->http.stuck_s = stuck_after_s(s->speed);
    s->http.address = texts->address;
    o.engines.page_address = texts->page_address;
    o.engines.has_pages = o.page_listen != NULL;
    s->http.token = o.s.token_file != NULL ? texts->token : NULL;
    return status;
}

/* ---- engines ----------------------------------------------------------------- */

/* An option that N engines cannot have; NULL: none was given. */
static const char *first_of_one(void)
{
    const struct {
        bool is_given;
        const char *name;
    } rows[] = {{o.s.loop, "loop"},
                {o.replay.settings.max_steps > 0, "max-steps"},
                {o.replay.tiers.settings.is_real, "real-tiers"},
                {o.replay.tiers.settings.peer_listen != NULL, "peer-listen"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_given)
            return rows[i].name;
    return NULL;
}

/* The port of a tcp endpoint; 0: it has none, or the system chooses it. */
static uint32_t port_of(const char *endpoint)
{
    const char *colon = endpoint != NULL ? strrchr(endpoint, ':') : NULL;
    unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
    return port <= 65535 ? (uint32_t)port : 0;
}

/* Each engine has the port of its number after the first: no two may meet. */
static int check_ports(const serve_settings *s)
{
    const struct {
        const char *name;
        uint32_t port;
    } rows[] = {{"listen", s->http.port},
                {"page-listen", o.engines.page_port},
                {"events", port_of(s->publisher.endpoint)},
                {"replay-events", port_of(s->publisher.replay_endpoint)}};
    uint32_t n = o.engines.count;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].port > 0 && rows[i].port + n - 1 > 65535)
            return command_error(&cmd_serve,
                                 "--%s: invalid port %u (expected 1..%u with %u engines)",
                                 rows[i].name, rows[i].port, 65536 - n, n);
        for (size_t k = 0; k < i; k++)
            if (rows[i].port > 0 && rows[k].port > 0 && rows[i].port < rows[k].port + n &&
                rows[k].port < rows[i].port + n)
                return command_error(&cmd_serve,
                                     "--%s and --%s: the ports %u..%u and %u..%u of %u engines "
                                     "overlap",
                                     rows[k].name, rows[i].name, rows[k].port, rows[k].port + n - 1,
                                     rows[i].port, rows[i].port + n - 1, n);
    }
    return 0;
}

static int check_engines(const serve_settings *s)
{
    const char *name = o.engines.model != NULL       ? "served-model-name"
                       : o.engines.answer_tokens > 0 ? "answer-tokens"
                       : o.page_listen != NULL       ? "page-listen"
                                                     : NULL;
    bool has_trace = cmd_serve.num_arguments > 0;
    if (o.engines.count == 0 && name != NULL)
        return command_error(&cmd_serve, "--%s needs --engines", name);
    if (o.engines.count == 0)
        return has_trace ? 0
                         : command_error(&cmd_serve, "expected a TRACE: a file, a folder, or - for "
                                                     "standard input; or --engines N");
    name = first_of_one();
    if (name != NULL)
        return command_error(&cmd_serve, "--engines and --%s cannot be used together", name);
    if (has_trace && s->speed <= 0)
        return command_error(&cmd_serve,
                             "--speed max cannot be used with --engines and a TRACE: the engines "
                             "have no common time then");
    if (s->hold && !has_trace)
        return command_error(&cmd_serve, "--hold needs a TRACE: engines without one serve until "
                                         "Ctrl-C");
    return check_ports(s);
}

static int serve_trace(serve_settings *s)
{
    replay_setup setup;
    int status = replay_prepare(&cmd_serve, &o.replay, &setup);
    if (status == 0 && o.engines.count > 0) {
        if (o.engines.model == NULL)
            o.engines.model = setup.engine.shape.name;
        s->http.model_name = o.engines.model;
        s->http.gpu = setup.engine.place;
        status = engines_run(&cmd_serve, s, &o.engines, &setup);
    } else if (status == 0) {
        const char *slash = strrchr(setup.settings.path, '/');
        bool has_name = cmd_serve.num_arguments == 1 && slash != NULL && slash[1] != '\0';
        s->http.title = has_name ? slash + 1 : setup.settings.path;
        s->http.model_name = setup.engine.shape.name;
        s->http.gpu = setup.engine.place;
        status = serve_run(&cmd_serve, s, &setup);
    }
    replay_unprepare(&setup);
    return status;
}

static int run_serve(void)
{
    static serve_texts texts;
    for (int i = 0; o.s.loop && i < cmd_serve.num_arguments; i++)
        if (strcmp(cmd_serve.arguments[i], "-") == 0)
            return command_error(&cmd_serve,
                                 "--loop cannot be used with standard input: give a file");
    if (o.s.loop && o.replay.settings.max_steps > 0)
        return command_error(&cmd_serve, "--loop and --max-steps cannot be used together");
    if (o.s.loop && o.replay.tiers.settings.is_real && o.replay.tiers.redis != NULL)
        return command_error(&cmd_serve,
                             "--loop cannot be used with a real --redis: the loop empties "
                             "all tiers, and other engines may use that server");
    if (o.s.loop && o.replay.tiers.object != NULL)
        return command_error(&cmd_serve,
                             "--loop cannot be used with --object: the loop empties all "
                             "tiers, and other engines may use that bucket");
    if (o.s.loop && o.replay.tiers.peer != NULL)
        return command_error(&cmd_serve,
                             "--loop cannot be used with --peer: the loop empties all tiers, "
                             "and cannot empty the peer's memory");
    int status = read_settings(&o.s, &texts);
    if (status == 0)
        status = check_engines(&o.s);
    if (status == 0)
        status = serve_trace(&o.s);
    free(texts.clients);
    free(texts.client_list);
    return status;
}

command cmd_serve = {
    .name = "serve",
    .usage = "serve [OPTION]... TRACE... | serve --engines N [OPTION]... [TRACE]...",
    .summary = "replays a trace in real time or faster, with a live page, metrics and KV events",
    .examples =
        "  quire serve --speed 10 trace.jsonl.zst\n"
        "      ten times as fast; open http://127.0.0.1:8080/\n"
        "  quire serve --loop --events tcp://127.0.0.1:5557 --replay-events tcp://127.0.0.1:5558 "
        "\\\n"
        "      trace.jsonl\n"
        "      events for a router; quire events shows them\n"
        "  quire serve --speed max --hold --listen 127.0.0.1:0 trace.jsonl\n"
        "      to the end at once, on any free port, and stay\n"
        "  quire serve --engines 4 --listen 127.0.0.1:8000 --events tcp://127.0.0.1:5557\n"
        "      four engines for a router: completions at ports 8000 to 8003, events at 5557 to "
        "5560\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .reads_arguments = true,
    .run = run_serve,
};
