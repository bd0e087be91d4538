#include "http/hub.h"

#include "base/memory.h"
#include "http/format.h"

#include <inttypes.h>
#include <string.h>

/* Read in one tick, so that it ends. Events that are left are the next one's. */
enum { MAX_EVENTS_READ = 100000, MAX_STEPS_READ = 4096 };
static const uint64_t QUIET_NS = UINT64_C(15000000000);

/* ---- making it -------------------------------------------------------------- */

int qr_http_hub_init(qr_http_hub *hub, const qr_http_site *site, uint32_t max_streams,
                     const qr_http_hooks *hooks)
{
    *hub = (qr_http_hub){.site = site, .hooks = *hooks, .max_streams = max_streams};
    int status = quire_reader_create(site->monitor, NULL, &hub->reader);
    if (status != QUIRE_OK)
        return status;
    hub->streams = qr_alloc(max_streams, sizeof *hub->streams);
    if (hub->streams == NULL) {
        quire_reader_destroy(hub->reader);
        return QUIRE_E_NOMEM;
    }
    pthread_mutex_init(&hub->lock, NULL); /* cannot fail without attributes */
    return QUIRE_OK;
}

void qr_http_hub_free(qr_http_hub *hub)
{
    if (hub->streams == NULL)
        return;
    pthread_mutex_destroy(&hub->lock);
    quire_reader_destroy(hub->reader);
    qr_free(hub->streams);
    qr_http_body_free(&hub->steps);
    qr_http_body_free(&hub->events);
    qr_http_body_free(&hub->message);
    hub->streams = NULL;
}

/* ---- the server's side ------------------------------------------------------ */

static qr_http_stream *free_place(qr_http_hub *hub)
{
    for (uint32_t i = 0; i < hub->max_streams; i++)
        if (hub->streams[i].connection == NULL)
            return &hub->streams[i];
    return NULL;
}

qr_http_stream *qr_http_hub_open(qr_http_hub *hub, struct MHD_Connection *connection,
                                 bool has_after, uint64_t after)
{
    char *bytes = qr_alloc(1, QR_HTTP_STREAM_BYTES);
    if (bytes == NULL)
        return NULL;
    pthread_mutex_lock(&hub->lock);
    qr_http_stream *stream = hub->is_ended ? NULL : free_place(hub);
    if (stream != NULL) {
        *stream = (qr_http_stream){.hub = hub,
                                   .connection = connection,
                                   .bytes = bytes,
                                   .is_new = true,
                                   .has_after = has_after,
                                   .after = after};
        hub->num_streams++;
    }
    pthread_mutex_unlock(&hub->lock);
    if (stream == NULL)
        qr_free(bytes);
    return stream;
}

void qr_http_hub_close(qr_http_stream *stream)
{
    qr_http_hub *hub = stream->hub;
    pthread_mutex_lock(&hub->lock);
    char *bytes = stream->bytes;
    *stream = (qr_http_stream){0};
    hub->num_streams--;
    pthread_mutex_unlock(&hub->lock);
    qr_free(bytes);
}

int64_t qr_http_hub_take(qr_http_stream *stream, char *out, size_t most)
{
    qr_http_hub *hub = stream->hub;
    pthread_mutex_lock(&hub->lock);
    size_t to_end = QR_HTTP_STREAM_BYTES - stream->first;
    size_t n = stream->len < most ? stream->len : most;
    n = n < to_end ? n : to_end;
    bool is_ended = stream->is_ended || hub->is_ended;
    if (is_ended) {
        n = 0;
    } else if (n > 0) {
        memcpy(out, stream->bytes + stream->first, n);
        stream->len -= n;
        stream->first = stream->len == 0 ? 0 : (stream->first + n) % QR_HTTP_STREAM_BYTES;
    } else if (!stream->is_asleep) {
        stream->is_asleep = true;
        hub->hooks.sleep(stream->connection);
    }
    pthread_mutex_unlock(&hub->lock);
    return is_ended ? -1 : (int64_t)n;
}

/* ---- what happened since the last tick -------------------------------------- */

static void collect_steps(qr_http_hub *hub)
{
    const quire_monitor *monitor = hub->site->monitor;
    uint64_t last = qr_http_last_step(monitor);
    qr_http_body_clear(&hub->steps);
    hub->num_steps = 0;
    hub->num_skipped_steps = 0;
    if (last <= hub->seen)
        return;
    uint64_t num = last - hub->seen;
    num = num < MAX_STEPS_READ ? num : MAX_STEPS_READ;
    /* Where there are too many, each second or third: a line can be drawn through them. */
    const qr_http_range range = {.after = last - num,
                                 .until = last,
                                 .limit = QR_HTTP_MESSAGE_STEPS,
                                 .every = (num - 1) / QR_HTTP_MESSAGE_STEPS + 1};
    qr_http_rows rows = qr_http_format_steps(&hub->steps, monitor, &range);
    hub->num_steps = hub->steps.is_failed ? 0 : rows.num;
    hub->num_skipped_steps = last - hub->seen - hub->num_steps;
    hub->seen = last;
}

static void collect_events(qr_http_hub *hub)
{
    qr_http_body_clear(&hub->events);
    hub->num_events = 0;
    hub->num_skipped_events = 0;
    hub->num_losses = 0;
    for (uint32_t i = 0; i < MAX_EVENTS_READ; i++) {
        quire_feed_event event = QUIRE_FEED_EVENT_INIT;
        int status = quire_reader_next(hub->reader, &event);
        if (status == QUIRE_LOST)
            hub->num_losses++;
        else if (status != QUIRE_OK)
            break;
        else if (event.kind > QUIRE_FEED_CLEARED)
            continue;
        else if (hub->num_events == QR_HTTP_MESSAGE_EVENTS || hub->events.is_failed)
            hub->num_skipped_events++;
        else {
            if (hub->num_events > 0)
                qr_http_body_text(&hub->events, ",");
            hub->num_events += qr_http_format_event(&hub->events, &event);
        }
    }
    if (hub->events.is_failed) {
        hub->num_skipped_events += hub->num_events;
        hub->num_events = 0;
    }
}

/* Nobody was there for a while: what happened meanwhile is of no interest. */
static void catch_up(qr_http_hub *hub)
{
    quire_feed_event event = QUIRE_FEED_EVENT_INIT;
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < MAX_EVENTS_READ && status >= 0 && status != QUIRE_RETRY; i++)
        status = quire_reader_next(hub->reader, &event);
    hub->seen = qr_http_last_step(hub->site->monitor);
    hub->is_following = true;
}

/* ---- telling it; under the lock --------------------------------------------- */

/* All of it, or nothing. */
static bool put_message(qr_http_stream *stream, const qr_http_body *message, uint64_t now_ns)
{
    if (message->is_failed || message->len > QR_HTTP_STREAM_BYTES - stream->len)
        return false;
    size_t at = (stream->first + stream->len) % QR_HTTP_STREAM_BYTES;
    size_t to_end = QR_HTTP_STREAM_BYTES - at;
    size_t n = message->len < to_end ? message->len : to_end;
    memcpy(stream->bytes + at, message->bytes, n);
    memcpy(stream->bytes, message->bytes + n, message->len - n);
    stream->len += message->len;
    stream->told_ns = now_ns;
    return true;
}

static void begin_message(qr_http_body *message, const char *event, const uint64_t *id)
{
    qr_http_body_clear(message);
    qr_http_body_print(message, "event: %s", event);
    if (id != NULL)
        qr_http_body_print(message, "\nid: %" PRIu64, *id);
    qr_http_body_text(message, "\ndata: {");
}

static void greet(qr_http_hub *hub, qr_http_stream *stream, uint64_t now_ns)
{
    qr_http_body *message = &hub->message;
    bool is_resumed = stream->has_after && stream->after <= hub->seen;
    uint64_t first = hub->seen < QR_HTTP_HELLO_STEPS ? 0 : hub->seen - QR_HTTP_HELLO_STEPS;
    uint64_t after = is_resumed && stream->after > first ? stream->after : first;
    begin_message(message, "hello", &hub->seen);
    qr_http_body_text(message, "\"version\":1,");
    qr_http_format_meta(message, hub->site);
    qr_http_body_text(message, ",\"steps\":[");
    const qr_http_range range = {.after = after, .until = hub->seen, .limit = QR_HTTP_HELLO_STEPS};
    qr_http_rows rows = qr_http_format_steps(message, hub->site->monitor, &range);
    qr_http_body_print(message, "],\"skipped\":%" PRIu64 ",\"resumed\":%d}\n\n",
                       is_resumed ? hub->seen - stream->after - rows.num : 0, is_resumed);
    if (put_message(stream, message, now_ns)) /* else in the next tick */
        stream->is_new = false;
}

static void tell_steps(qr_http_hub *hub, qr_http_stream *stream, uint64_t now_ns)
{
    stream->num_skipped_steps += hub->num_skipped_steps;
    if (hub->num_steps == 0)
        return;
    begin_message(&hub->message, "steps", &hub->seen);
    qr_http_body_text(&hub->message, "\"steps\":[");
    qr_http_body_add(&hub->message, hub->steps.bytes, hub->steps.len);
    qr_http_body_print(&hub->message, "],\"skipped\":%" PRIu64 "}\n\n", stream->num_skipped_steps);
    if (put_message(stream, &hub->message, now_ns))
        stream->num_skipped_steps = 0;
    else
        stream->num_skipped_steps += hub->num_steps;
}

static void tell_events(qr_http_hub *hub, qr_http_stream *stream, uint64_t now_ns)
{
    stream->num_skipped_events += hub->num_skipped_events;
    stream->num_losses += hub->num_losses;
    if (hub->num_events == 0 && stream->num_losses == 0)
        return;
    begin_message(&hub->message, "kv", NULL);
    qr_http_body_text(&hub->message, "\"events\":[");
    qr_http_body_add(&hub->message, hub->events.bytes, hub->num_events > 0 ? hub->events.len : 0);
    qr_http_body_print(&hub->message, "],\"skipped\":%" PRIu64 ",\"lost\":%" PRIu64 "}\n\n",
                       stream->num_skipped_events, stream->num_losses);
    if (put_message(stream, &hub->message, now_ns)) {
        stream->num_skipped_events = 0;
        stream->num_losses = 0;
    } else {
        stream->num_skipped_events += hub->num_events;
    }
}

/* A client that is gone is noticed when something is sent to it. */
static void keep_alive(qr_http_hub *hub, qr_http_stream *stream, uint64_t now_ns)
{
    if (now_ns - stream->told_ns < QUIET_NS)
        return;
    qr_http_body_clear(&hub->message);
    qr_http_body_text(&hub->message, ":\n\n");
    put_message(stream, &hub->message, now_ns);
}

static void wake_stream(qr_http_hub *hub, qr_http_stream *stream)
{
    if (!stream->is_asleep)
        return;
    stream->is_asleep = false;
    hub->hooks.wake(stream->connection);
}

static void tell_stream(qr_http_hub *hub, qr_http_stream *stream, uint64_t now_ns)
{
    if (stream->is_new) {
        greet(hub, stream, now_ns);
    } else {
        tell_steps(hub, stream, now_ns);
        tell_events(hub, stream, now_ns);
        keep_alive(hub, stream, now_ns);
    }
    if (stream->is_asleep && hub->hooks.is_gone(stream->connection))
        stream->is_ended = true;
    if (stream->len > 0 || stream->is_ended)
        wake_stream(hub, stream);
}

static bool has_streams(qr_http_hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    bool has_some = hub->num_streams > 0;
    pthread_mutex_unlock(&hub->lock);
    return has_some;
}

void qr_http_hub_tick(qr_http_hub *hub, uint64_t now_ns)
{
    if (!has_streams(hub)) {
        hub->is_following = false;
        return;
    }
    if (!hub->is_following)
        catch_up(hub);
    collect_steps(hub);
    collect_events(hub);
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < hub->max_streams && !hub->is_ended; i++)
        if (hub->streams[i].connection != NULL)
            tell_stream(hub, &hub->streams[i], now_ns);
    pthread_mutex_unlock(&hub->lock);
}

void qr_http_hub_end(qr_http_hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    hub->is_ended = true;
    for (uint32_t i = 0; i < hub->max_streams; i++)
        if (hub->streams[i].connection != NULL)
            wake_stream(hub, &hub->streams[i]);
    pthread_mutex_unlock(&hub->lock);
}
