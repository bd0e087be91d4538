#include "fake.h"

#include "base/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 16, INPUT = 256 * 1024, OUTPUT = 1024 * 1024, KEYS = 64, WORDS = 8, TICK_MS = 5 };

static const char *const texts[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) text,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

/* What is said to INFO and to DBSIZE. */
static const struct {
    const char *info;
    const char *count;
} usage_texts[] = {
    {"-NOPERM no permissions to run the 'info' command\r\n", "-NOPERM no\r\n"},
    {"+OK\r\n", "+OK\r\n"},
    {"$0\r\n\r\n", ":7\r\n"},
    {"$120\r\nused_memory:99999999999999999999999999\r\nused_memory:\r\nmaxmemory:-1\r\n"
     "used_memory:1x\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n",
     ":9223372036854775807\r\n"},
    {"$18\r\nused_memory:4096\r\n\r\n", ":-1\r\n"},
    {"", ""},
};

const char *const fake_names[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) #name,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

typedef struct client {
    int fd;
    char *input;
    size_t in;
    char *output;
    size_t out;
    bool closes; /* when its output is gone */
    bool resets;
} client;

typedef struct word {
    const char *text;
    size_t n;
} word;

typedef struct value {
    char key[256];
    size_t key_bytes;
    char *bytes;
    size_t n;
} value;

struct redis_fake {
    pthread_t thread;
    int listener;
    int port;
    _Atomic int mode;
    _Atomic bool is_stopped;
    _Atomic bool cuts;
    _Atomic uint64_t num_commands;
    client clients[CLIENTS];
    value values[KEYS];
    uint32_t num_values;
    int num_changes; /* of the map */
};

/* ---- saying ---------------------------------------------------------------- */

static void say(client *c, const void *bytes, size_t n)
{
    if (c->out + n > OUTPUT)
        return;
    memcpy(c->output + c->out, bytes, n);
    c->out += n;
}

static void say_text(client *c, const char *text)
{
    say(c, text, strlen(text));
}

static void say_value(client *c, const char *bytes, size_t n)
{
    char line[32];
    (void)snprintf(line, sizeof line, "$%zu\r\n", n);
    say_text(c, line);
    say(c, bytes, n);
}

/* ---- values ---------------------------------------------------------------- */

static value *find_value(redis_fake *f, word key)
{
    for (uint32_t i = 0; i < f->num_values; i++)
        if (f->values[i].key_bytes == key.n && memcmp(f->values[i].key, key.text, key.n) == 0)
            return &f->values[i];
    return NULL;
}

static void keep_value(redis_fake *f, word key, word bytes)
{
    value *v = find_value(f, key);
    if (v == NULL && (f->num_values == KEYS || key.n > sizeof v->key))
        return;
    if (v == NULL)
        v = &f->values[f->num_values++];
    memcpy(v->key, key.text, key.n);
    v->key_bytes = key.n;
    free(v->bytes);
    v->bytes = malloc(bytes.n);
    v->n = v->bytes == NULL ? 0 : bytes.n;
    if (v->bytes != NULL)
        memcpy(v->bytes, bytes.text, bytes.n);
}

static int drop_value(redis_fake *f, word key)
{
    value *v = find_value(f, key);
    if (v == NULL)
        return 0;
    free(v->bytes);
    *v = f->values[--f->num_values];
    f->values[f->num_values] = (value){0};
    return 1;
}

/* ---- answers --------------------------------------------------------------- */

static bool is_word(word w, const char *text)
{
    return w.n == strlen(text) && memcmp(w.text, text, w.n) == 0;
}

static void answer_slots(redis_fake *f, client *c, int mode)
{
    char text[256];
    const char *tail = "*0\r\n";
    switch (mode) {
    case FAKE_SLOTS_EMPTY:
        say_text(c, "*0\r\n");
        return;
    case FAKE_SLOTS_NEVER:
        return;
    case FAKE_SLOTS_BAD_RANGE:
        say_text(c, "*1\r\n*3\r\n:5\r\n:16384\r\n*3\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\nx\r\n");
        return;
    case FAKE_SLOTS_TEXT:
        say_text(c, "*1\r\n*3\r\n+a\r\n+b\r\n+c\r\n");
        return;
    case FAKE_SLOTS_DEEP:
        say_text(c, "*1\r\n*3\r\n:0\r\n:1\r\n*4\r\n$1\r\na\r\n:1\r\n$1\r\nx\r\n*1\r\n*1\r\n:1\r\n");
        return;
    case FAKE_SLOTS_AWAY:
        say_text(c,
                 "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$12\r\n10.255.255.1\r\n:6379\r\n$1\r\nx\r\n");
        return;
    case FAKE_SLOTS_UNKNOWN:
        say_text(c, "*2\r\n*3\r\n:0\r\n:5\r\n*4\r\n$1\r\n?\r\n:1\r\n$1\r\nx\r\n");
        say_text(c, tail);
        say_text(c, "*3\r\n:6\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:0\r\n$1\r\nx\r\n");
        return;
    case FAKE_SLOTS_HERE:
        (void)snprintf(text, sizeof text,
                       "*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n$-1\r\n:%d\r\n$1\r\nx\r\n*0\r\n"
                       "*3\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\ny\r\n",
                       f->port);
        say_text(c, text);
        return;
    case FAKE_SLOTS_CHANGE: /* nobody listens on such ports */
        (void)snprintf(text, sizeof text,
                       "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
                       "*3\r\n:8192\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
                       f->port, 1 + f->num_changes++ % 512);
        say_text(c, text);
        return;
    case FAKE_SLOTS_MANY:
        say_text(c, "*128\r\n");
        for (int i = 0; i < 128; i++) {
            (void)snprintf(text, sizeof text,
                           "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", i * 128,
                           i * 128 + 127, 1 + i);
            say_text(c, text);
        }
        return;
    default:
        say_text(c, "-ERR This instance has cluster support disabled\r\n");
    }
}

static void answer_redirect(redis_fake *f, client *c, const char *word_said, word key)
{
    char text[64];
    uint32_t crc = 0;
    for (size_t i = 0; i < key.n; i++) {
        crc ^= (uint32_t)(unsigned char)key.text[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    (void)snprintf(text, sizeof text, "-%s %u 127.0.0.1:%d\r\n", word_said, crc % 16384, f->port);
    say_text(c, text);
}

/* A value that is there, in the way of the mode. */
static void answer_value(redis_fake *f, client *c, const value *v, int mode)
{
    size_t begin = c->out;
    size_t n = v->n - (mode == FAKE_SHORT ? 1 : 0);
    const value *given = v;
    if (mode == FAKE_SWAPPED)
        given = &f->values[(size_t)(v - f->values + 1) % f->num_values];
    if (mode == FAKE_LONGER) {
        char line[32];
        (void)snprintf(line, sizeof line, "$%zu\r\n", v->n + 1);
        say_text(c, line);
        say(c, v->bytes, v->n);
        say_text(c, "x");
    } else {
        say_value(c, given->bytes, n);
    }
    if (mode == FAKE_FLIPPED)
        c->output[c->out - 5] ^= 16;
    if (mode == FAKE_FLIPPED_HEADER)
        c->output[c->out - v->n + 50] ^= 1;
    say_text(c, mode == FAKE_NO_END ? "xx" : "\r\n");
    if (mode == FAKE_EXTRA)
        say_text(c, "+OK\r\n");
    if (mode == FAKE_HALF || mode == FAKE_HALF_CLOSES || mode == FAKE_HALF_RESETS) {
        c->out = begin + (c->out - begin) / 2;
        c->closes = mode != FAKE_HALF;
        c->resets = mode == FAKE_HALF_RESETS;
    }
}

static void answer_key(redis_fake *f, client *c, const word *words, int mode)
{
    char text[64];
    const value *v = find_value(f, words[1]);
    if (is_word(words[0], "GET")) {
        if (v != NULL)
            answer_value(f, c, v, mode);
        else
            say_text(c, "$-1\r\n");
    } else if (is_word(words[0], "SET")) {
        keep_value(f, words[1], words[2]);
        say_text(c, "+OK\r\n");
    } else if (is_word(words[0], "STRLEN")) {
        (void)snprintf(text, sizeof text, ":%zu\r\n", v == NULL ? 0 : v->n);
        say_text(c, text);
    } else {
        (void)snprintf(text, sizeof text, ":%d\r\n", drop_value(f, words[1]));
        say_text(c, text);
    }
}

static void answer_data(redis_fake *f, client *c, const word *words, int mode)
{
    if (mode == FAKE_CLOSES || mode == FAKE_RESETS) {
        c->closes = true;
        c->resets = mode == FAKE_RESETS;
    } else if (mode == FAKE_MOVED_HERE || mode == FAKE_ASK_HERE) {
        answer_redirect(f, c, mode == FAKE_ASK_HERE ? "ASK" : "MOVED", words[1]);
    } else if (mode == FAKE_LONG_LINE) {
        for (int i = 0; i < 300; i++)
            say_text(c, "+xxxxxxxxxxxx");
    } else if (texts[mode] != NULL) {
        say_text(c, texts[mode]);
    } else {
        answer_key(f, c, words, mode);
    }
}

/* Servers that fail otherwise answer this well. */
static void answer_usage(redis_fake *f, client *c, bool is_info, int mode)
{
    char text[64];
    if (mode >= FAKE_USAGE_FORBIDDEN) {
        int which = mode - FAKE_USAGE_FORBIDDEN;
        say_text(c, is_info ? usage_texts[which].info : usage_texts[which].count);
    } else if (is_info) {
        say_text(c, "$50\r\n# Memory\r\nused_memory:4096\r\nmaxmemory:1000000\r\nx\r\n\r\n");
    } else {
        (void)snprintf(text, sizeof text, ":%u\r\n", (unsigned)f->num_values);
        say_text(c, text);
    }
}

static void answer(redis_fake *f, client *c, const word *words)
{
    int mode = atomic_load(&f->mode);
    (void)atomic_fetch_add(&f->num_commands, 1);
    if (is_word(words[0], "PING")) {
        if (mode == FAKE_GREETS_LOADING)
            say_text(c, texts[FAKE_LOADING]);
        else if (mode != FAKE_GREETS_NEVER)
            say_text(c, mode == FAKE_GREETS_BADLY ? "+NO\r\n" : "+PONG\r\n");
    } else if (is_word(words[0], "AUTH") || is_word(words[0], "ASKING")) {
        say_text(c, "+OK\r\n");
    } else if (is_word(words[0], "CLUSTER")) {
        answer_slots(f, c, mode);
    } else if (is_word(words[0], "INFO") || is_word(words[0], "DBSIZE")) {
        answer_usage(f, c, is_word(words[0], "INFO"), mode);
    } else {
        answer_data(f, c, words, mode);
    }
}

/* ---- commands -------------------------------------------------------------- */

/* How many bytes a command takes; 0: it is not all here; NOT_RESP. */
#define NOT_RESP SIZE_MAX

static size_t read_command(const char *at, size_t n, word *words)
{
    const char *end = memchr(at, '\n', n);
    size_t used = end == NULL ? 0 : (size_t)(end - at) + 1;
    long count = end == NULL ? 0 : strtol(at + 1, NULL, 10);
    if (count < 1 || count > WORDS)
        return 0;
    for (long i = 0; i < count; i++) {
        end = memchr(at + used, '\n', n - used);
        if (end == NULL)
            return 0;
        size_t length = strtoul(at + used + 1, NULL, 10);
        used = (size_t)(end - at) + 1;
        if (n - used < length + 2)
            return 0;
        words[i] = (word){at + used, length};
        used += length + 2;
        if (memcmp(at + used - 2, "\r\n", 2) != 0)
            return NOT_RESP;
    }
    return used;
}

/* Its next command, all of it here or not, is a SET. */
static bool has_set(const client *c)
{
    return c->in > 9 && memcmp(c->input, "*3\r\n$3\r\nS", 9) == 0;
}

static bool is_deaf(const redis_fake *f, const client *c)
{
    return atomic_load(&f->mode) == FAKE_DEAF && has_set(c);
}

static void take_input(redis_fake *f, client *c)
{
    word words[WORDS] = {{0}};
    size_t used;
    while (!c->closes && c->in > 0 && !is_deaf(f, c) &&
           (used = read_command(c->input, c->in, words)) > 0) {
        if (used == NOT_RESP) {
            say_text(c, "-ERR Protocol error\r\n");
            c->closes = true;
            return;
        }
        answer(f, c, words);
        memmove(c->input, c->input + used, c->in - used);
        c->in -= used;
    }
    if (atomic_load(&f->mode) == FAKE_SAYS_BEFORE_READ && has_set(c) && c->out == 0)
        say_text(c, "+OK\r\n");
}

/* ---- the thread ------------------------------------------------------------ */

static void close_client(client *c)
{
    struct linger hard = {.l_onoff = 1};
    if (c->resets)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(c->fd);
    free(c->input);
    free(c->output);
    *c = (client){.fd = -1};
}

static void pump_client(redis_fake *f, client *c, bool is_slow)
{
    if (c->in < INPUT && !is_deaf(f, c)) {
        ssize_t got = recv(c->fd, c->input + c->in, INPUT - c->in, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            close_client(c);
            return;
        }
        c->in += got > 0 ? (size_t)got : 0;
    }
    take_input(f, c);
    size_t n = is_slow && c->out > 64 ? 1 : c->out; /* short answers are not held back */
    ssize_t sent = n == 0 ? 0 : send(c->fd, c->output, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
        memmove(c->output, c->output + sent, c->out - (size_t)sent);
        c->out -= (size_t)sent;
    }
    if (c->closes && c->out == 0)
        close_client(c);
}

static void accept_client(redis_fake *f)
{
    int fd = accept(f->listener, NULL, NULL);
    for (int i = 0; i < CLIENTS && fd >= 0; i++)
        if (f->clients[i].fd < 0) {
            f->clients[i] = (client){.fd = fd, .input = malloc(INPUT), .output = malloc(OUTPUT)};
            if (f->clients[i].input == NULL || f->clients[i].output == NULL)
                close_client(&f->clients[i]);
            return;
        }
    if (fd >= 0)
        close(fd);
}

static void *run_fake(void *user)
{
    redis_fake *f = user;
    while (!atomic_load(&f->is_stopped)) {
        struct pollfd polled[CLIENTS + 1] = {{.fd = f->listener, .events = POLLIN}};
        for (int i = 0; i < CLIENTS; i++)
            polled[i + 1] = (struct pollfd){.fd = f->clients[i].fd, .events = POLLIN};
        (void)poll(polled, CLIENTS + 1, TICK_MS);
        if ((polled[0].revents & POLLIN) != 0)
            accept_client(f);
        bool cuts = atomic_exchange(&f->cuts, false);
        for (int i = 0; i < CLIENTS; i++) {
            if (f->clients[i].fd >= 0 && cuts)
                close_client(&f->clients[i]);
            if (f->clients[i].fd >= 0)
                pump_client(f, &f->clients[i], atomic_load(&f->mode) == FAKE_SLOW);
        }
    }
    return NULL;
}

redis_fake *redis_fake_start(void)
{
    redis_fake *f = calloc(1, sizeof *f);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int room = 64 * 1024; /* so that a deaf server soon stops its clients */
    (void)setsockopt(f->listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(bind(f->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(f->listener, CLIENTS), 0);
    assert_int_equal(getsockname(f->listener, (struct sockaddr *)&address, &bytes), 0);
    f->port = ntohs(address.sin_port);
    for (int i = 0; i < CLIENTS; i++)
        f->clients[i].fd = -1;
    assert_int_equal(pthread_create(&f->thread, NULL, run_fake, f), 0);
    return f;
}

void redis_fake_stop(redis_fake *f)
{
    atomic_store(&f->is_stopped, true);
    (void)pthread_join(f->thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        if (f->clients[i].fd >= 0)
            close_client(&f->clients[i]);
    for (uint32_t i = 0; i < f->num_values; i++)
        free(f->values[i].bytes);
    close(f->listener);
    free(f);
}

int redis_fake_port(const redis_fake *f)
{
    return f->port;
}

void redis_fake_set(redis_fake *f, fake_mode mode)
{
    atomic_store(&f->mode, (int)mode);
}

void redis_fake_cut(redis_fake *f)
{
    atomic_store(&f->cuts, true);
    while (atomic_load(&f->cuts))
        usleep(1000);
}

uint64_t redis_fake_num_commands(const redis_fake *f)
{
    return atomic_load(&f->num_commands);
}
