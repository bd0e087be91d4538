#define _GNU_SOURCE /* strcasestr */
#include "fake_parts.h"

#include "base/unit.h"

static const char *const texts[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) text,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

const char *const fake_names[FAKE_NUM_MODES] = {
#define FAKE_X(name, text) #name,
    FAKE_MAP(FAKE_X)
#undef FAKE_X
};

/* ---- objects ---------------------------------------------------------------- */

void fake_drop_bytes(bytes *b)
{
    if (b != NULL && --b->users == 0)
        free(b);
}

static object *find_object(object_fake *f, const char *path, bool creates)
{
    uint32_t at = 2166136261u;
    for (const char *c = path; *c != 0; c++)
        at = (at ^ (unsigned char)*c) * 16777619u;
    for (uint32_t i = 0; i < OBJECTS; i++) {
        object *o = &f->objects[(at + i) % OBJECTS];
        if (strcmp(o->path, path) == 0)
            return o;
        if (o->path[0] == 0) {
            if (creates)
                (void)snprintf(o->path, sizeof o->path, "%s", path);
            return creates ? o : NULL;
        }
    }
    return NULL;
}

static void keep_object(object_fake *f, const char *path, bytes *body)
{
    object *o = find_object(f, path, true);
    assert_non_null(o);
    (void)atomic_fetch_add(&f->num_objects, o->body == NULL);
    fake_drop_bytes(o->body);
    o->body = body;
    body->users++;
}

static void drop_object(object_fake *f, const char *path)
{
    object *o = find_object(f, path, false);
    if (o == NULL || o->body == NULL)
        return;
    (void)atomic_fetch_sub(&f->num_objects, 1);
    fake_drop_bytes(o->body);
    o->body = NULL; /* its name stays, so that others are still found */
}

/* ---- replies ------------------------------------------------------------------ */

void fake_say(client *c, const void *data, size_t n)
{
    c->output = realloc(c->output, c->out + n + 1);
    assert_non_null(c->output);
    memcpy(c->output + c->out, data, n);
    c->out += n;
}

void fake_say_text(client *c, const char *text)
{
    fake_say(c, text, strlen(text));
}

/* HEAD gets the lines alone. */
static void say_reply(client *c, const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    bool is_head = strcmp(c->method, "HEAD") == 0;
    fake_say(c, text, is_head && end != NULL ? (size_t)(end - text) + 4 : strlen(text));
}

static bytes *copy_bytes(const bytes *from, size_t n)
{
    bytes *b = calloc(1, sizeof *b + n + 1);
    assert_non_null(b);
    b->users = 1;
    b->n = n;
    memcpy(b->data, from->data, n < from->n ? n : from->n);
    return b;
}

static bytes *find_other(object_fake *f, const bytes *body)
{
    for (uint32_t i = 0; i < OBJECTS; i++)
        if (f->objects[i].body != NULL && f->objects[i].body != body)
            return f->objects[i].body;
    return NULL;
}

/* The bytes of an object, in the way of the mode; a reference. */
static bytes *choose_body(object_fake *f, bytes *body, int mode)
{
    bytes *chosen = body;
    if (mode == FAKE_SWAPPED && find_other(f, body) != NULL)
        chosen = find_other(f, body);
    if (mode == FAKE_SHORT || mode == FAKE_LONGER)
        return copy_bytes(body, mode == FAKE_SHORT ? body->n - 1 : body->n + 1);
    if (mode == FAKE_FLIPPED || mode == FAKE_FLIPPED_HEADER) {
        chosen = copy_bytes(body, body->n);
        chosen->data[mode == FAKE_FLIPPED ? body->n - 5 : 50] ^= 16;
        return chosen;
    }
    chosen->users++;
    return chosen;
}

static void say_object(object_fake *f, client *c, bytes *body, int mode)
{
    char line[128];
    bytes *chosen = choose_body(f, body, mode);
    if (mode == FAKE_NO_LENGTH)
        fake_say_text(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    else {
        (void)snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       chosen->n);
        fake_say_text(c, line);
    }
    if (strcmp(c->method, "GET") == 0)
        c->body = chosen;
    else
        fake_drop_bytes(chosen);
    c->closes = mode == FAKE_NO_LENGTH;
    bool is_half = mode == FAKE_HALF || mode == FAKE_HALF_CLOSES || mode == FAKE_HALF_RESETS;
    if (is_half && c->body != NULL) {
        bytes *half = copy_bytes(c->body, c->body->n / 2);
        fake_drop_bytes(c->body);
        c->body = half;
    } else if (is_half) {
        c->out /= 2;
    }
    c->closes = c->closes || (is_half && mode != FAKE_HALF);
    c->resets = mode == FAKE_HALF_RESETS;
}

static void reply_well(object_fake *f, client *c, int mode)
{
    const char *not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 23\r\n\r\n"
                            "<Code>NoSuchKey</Code>\n";
    const object *o = find_object(f, c->path, false);
    c->is_slow = mode == FAKE_SLOW;
    if (strcmp(c->method, "PUT") == 0) {
        keep_object(f, c->path, c->input);
        fake_say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else if (strcmp(c->method, "DELETE") == 0) {
        drop_object(f, c->path);
        fake_say_text(c, "HTTP/1.1 204 No Content\r\n\r\n");
    } else if (strchr(c->path + 1, '/') == NULL) {
        fake_say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else if (o == NULL || o->body == NULL) {
        say_reply(c, not_found);
    } else {
        say_object(f, c, o->body, mode);
    }
}

static void set_flood(object_fake *f, client *c, const char *begin, const char *again)
{
    size_t n = strlen(again);
    fake_say_text(c, begin);
    for (f->flood_bytes = 0; f->flood_bytes + n < FLOOD; f->flood_bytes += n)
        memcpy(f->flood + f->flood_bytes, again, n);
    c->floods = true;
}

static void reply_credentials(object_fake *f, client *c)
{
    char line[128];
    bool is_known = strcasestr(c->head, "authorization: secret\r\n") != NULL;
    (void)pthread_mutex_lock(&f->lock);
    const char *json = f->credentials;
    if (json == NULL || !is_known) {
        fake_say_text(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    } else {
        (void)snprintf(line, sizeof line, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       strlen(json));
        fake_say_text(c, line);
        fake_say_text(c, json);
    }
    (void)pthread_mutex_unlock(&f->lock);
}

static bool has_right_key(object_fake *f, const client *c)
{
    char text[160];
    (void)pthread_mutex_lock(&f->lock);
    (void)snprintf(text, sizeof text, "Credential=%s/", f->key);
    (void)pthread_mutex_unlock(&f->lock);
    return strstr(c->head, text) != NULL;
}

static void reply_strangely(object_fake *f, client *c, int mode)
{
    switch (mode) {
    case FAKE_CLOSES:
    case FAKE_RESETS:
    case FAKE_FLAKY_RESETS:
        c->closes = true;
        c->resets = mode != FAKE_CLOSES;
        return;
    case FAKE_KEY_EXPIRED:
        say_reply(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 26\r\n\r\n"
                     "<Code>ExpiredToken</Code>\n");
        return;
    case FAKE_CLOCK:
        say_reply(c, "HTTP/1.1 403 Forbidden\r\nDate: Wed, 05 Sep 2001 12:00:00 GMT\r\n"
                     "Content-Length: 34\r\n\r\n<Code>RequestTimeTooSkewed</Code>\n");
        return;
    case FAKE_CHUNKED_ENDLESS:
        set_flood(f, c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n");
        return;
    case FAKE_ERROR_ENDLESS:
        set_flood(f, c, "HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n");
        return;
    case FAKE_CONTINUES:
        set_flood(f, c, "", "HTTP/1.1 100 Continue\r\n\r\n");
        return;
    case FAKE_LONG_HEADERS:
        set_flood(f, c, "HTTP/1.1 200 OK\r\n", "x-y: zzzzzzzzzzzzzzzz\r\n");
        return;
    case FAKE_LONG_LINE:
        set_flood(f, c, "HTTP/1.1 200 OK\r\nx-y: ", "zzzzzzzzzzzzzzzz");
        return;
    case FAKE_NUL_HEADER:
        fake_say(c, "HTTP/1.1 200 OK\r\nx-\0y: z\r\nContent-Length: 3\r\n\r\nabc", 51);
        return;
    case FAKE_QUOTA:
        say_reply(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 27\r\n\r\n"
                     "<Code>QuotaExceeded</Code>\n");
        return;
    case FAKE_FLAKY:
        say_reply(c, texts[FAKE_SLOW_DOWN]);
        return;
    case FAKE_EARLY:
        fake_say_text(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        c->closes = true;
        return;
    default:
        say_reply(c, texts[mode == FAKE_KEY_DENIED ? FAKE_DENIED : mode]);
    }
}

static bool is_strange(object_fake *f, const client *c, int mode, uint64_t number)
{
    bool is_head = strcmp(c->method, "HEAD") == 0;
    switch (mode) {
    case FAKE_KEY_EXPIRED:
    case FAKE_KEY_DENIED:
        return !has_right_key(f, c);
    case FAKE_CLOCK:
        return strcasestr(c->head, "x-amz-date: 2001") == NULL;
    case FAKE_FLAKY:
    case FAKE_FLAKY_RESETS:
        return number % 2 == 0;
    case FAKE_QUOTA:
    case FAKE_EARLY:
        return strcmp(c->method, "PUT") == 0;
    case FAKE_FULL: /* who stores is told so by the PUT */
        return !is_head;
    case FAKE_CLOSES:
    case FAKE_RESETS:
    case FAKE_CHUNKED_ENDLESS:
    case FAKE_ERROR_ENDLESS:
    case FAKE_CONTINUES:
    case FAKE_LONG_HEADERS:
    case FAKE_LONG_LINE:
    case FAKE_NUL_HEADER:
        return true;
    default:
        return texts[mode] != NULL;
    }
}

void fake_reply(object_fake *f, client *c)
{
    int mode = atomic_load(&f->mode);
    uint64_t number = atomic_fetch_add(&f->num_requests, 1);
    (void)pthread_mutex_lock(&f->lock);
    (void)snprintf(f->last, sizeof f->last, "%.4000s", c->head);
    (void)pthread_mutex_unlock(&f->lock);
    if (strcmp(c->path, "/credentials") == 0)
        reply_credentials(f, c);
    else if (is_strange(f, c, mode, number))
        reply_strangely(f, c, mode);
    else
        reply_well(f, c, mode);
    fake_drop_bytes(c->input);
    c->input = NULL;
    c->head_bytes = 0;
}
