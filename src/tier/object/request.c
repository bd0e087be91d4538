/* tier/object/request.c - one attempt of a lane, as libcurl sends and receives it.
 *
 *      PUT   read_body ◄── header, 128 bytes ─┬─ the block's memory
 *      GET   take_body ──► header, 128 bytes ─┴─► the block's memory, once the header is right
 *      all   take_line ──► what a header line says; at most QR_OBJECT_HEADERS bytes
 *
 * The lines of a request lie in the lane: there is nothing to free. */
#include "tier/object/object.h"

#include "base/bits.h"
#include "base/hooks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, WRITE_BYTES = 256 * 1024, NS_PER_MS = 1000000 };
enum { KEEP_IDLE_S = 30 };

/* ---- what comes -------------------------------------------------------------- */

static bool is_line(const char *line, size_t n, const char *name, const char **value, size_t *bytes)
{
    size_t name_bytes = strlen(name);
    if (n <= name_bytes || line[name_bytes] != ':' || strncasecmp(line, name, name_bytes) != 0)
        return false;
    const char *at = line + name_bytes + 1;
    const char *end = line + n;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    *value = at;
    *bytes = (size_t)(end - at);
    return true;
}

static void note_date(qr_object_reply *reply, const char *value, size_t bytes)
{
    char text[64];
    if (bytes >= sizeof text)
        return;
    memcpy(text, value, bytes);
    text[bytes] = 0;
    reply->date_s = curl_getdate(text, NULL);
}

static size_t take_line(char *line, size_t size, size_t count, void *user)
{
    enum { LONGEST_PAUSE_S = 60 };
    qr_lane *lane = user;
    qr_object_reply *reply = &lane->reply;
    size_t n = size * count;
    const char *value;
    size_t bytes;
    int64_t number;
    lane->moved_ns = lane->object->net.now_ns;
    reply->header_bytes += (uint32_t)n;
    if (reply->header_bytes > QR_OBJECT_HEADERS) {
        reply->is_bad = true;
        return 0;
    }
    if (is_line(line, n, "date", &value, &bytes))
        note_date(reply, value, bytes);
    else if (is_line(line, n, "retry-after", &value, &bytes) &&
             qr_digits_read(value, bytes, LONGEST_PAUSE_S, &number))
        reply->retry_after_s = (uint32_t)number;
    else if (is_line(line, n, "x-amz-bucket-region", &value, &bytes) &&
             bytes < sizeof reply->region)
        memcpy(reply->region, value, bytes); /* all of it was zero */
    return n;
}

/* The reply's first byte has come: is it the object? */
static bool begin_object(qr_lane *lane)
{
    curl_off_t length = -1;
    (void)curl_easy_getinfo(lane->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length < 0) {
        lane->reply.is_bad = true; /* an answer without a length may have no end */
        return false;
    }
    lane->is_wrong = (uint64_t)length != (uint64_t)QR_NET_HEADER + qr_lane_io(lane)->bytes;
    return !lane->is_wrong;
}

static bool check_header(qr_lane *lane)
{
    const quire_tier_io *io = qr_lane_io(lane);
    lane->is_wrong = !qr_net_header_check(lane->object->place.fingerprint, io, lane->header,
                                          &lane->expected_crc);
    lane->block = (qr_net_block){.memory = io->memory, .bytes = io->bytes};
    return !lane->is_wrong;
}

/* libcurl gives no more than the length that the reply announced. */
static bool take_object(qr_lane *lane, const unsigned char *bytes, size_t n)
{
    if (lane->at == 0 && !begin_object(lane))
        return false;
    if (lane->at < QR_NET_HEADER) {
        size_t left = QR_NET_HEADER - (size_t)lane->at;
        size_t taken = n < left ? n : left;
        memcpy(lane->header + lane->at, bytes, taken);
        lane->at += taken;
        bytes += taken;
        n -= taken;
        if (lane->at == QR_NET_HEADER && !check_header(lane))
            return false;
    }
    while (n > 0) {
        uint32_t taken =
            qr_net_block_take(&lane->block, bytes, n < UINT32_MAX ? (uint32_t)n : UINT32_MAX);
        if (taken == 0)
            return false;
        lane->at += taken;
        bytes += taken;
        n -= taken;
    }
    return true;
}

static bool take_error(qr_object_reply *reply, const char *bytes, size_t n)
{
    size_t left = QR_OBJECT_SAID - reply->said_bytes;
    size_t taken = n < left ? n : left;
    memcpy(reply->said + reply->said_bytes, bytes, taken);
    reply->said_bytes += (uint32_t)taken;
    reply->body_bytes += n;
    reply->is_bad = reply->body_bytes > QR_OBJECT_BODY;
    return !reply->is_bad;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *user)
{
    qr_lane *lane = user;
    size_t n = size * count;
    long code = 0;
    lane->moved_ns = lane->object->net.now_ns;
    qr_net_count(&lane->object->net, QR_NET_BYTES_IN, n);
    (void)curl_easy_getinfo(lane->easy, CURLINFO_RESPONSE_CODE, &code);
    bool is_taken = lane->kind == QR_OBJECT_LOAD && code == 200
                        ? take_object(lane, (const unsigned char *)bytes, n)
                        : take_error(&lane->reply, bytes, n);
    return is_taken ? n : 0; /* 0 ends the request */
}

/* ---- what is sent ------------------------------------------------------------- */

static size_t read_body(char *to, size_t size, size_t count, void *user)
{
    qr_lane *lane = user;
    const quire_tier_io *io = qr_lane_io(lane);
    size_t room = size * count;
    size_t n = 0;
    lane->moved_ns = lane->object->net.now_ns;
    if (lane->at < QR_NET_HEADER) {
        size_t left = QR_NET_HEADER - (size_t)lane->at;
        n = room < left ? room : left;
        memcpy(to, lane->header + lane->at, n);
        lane->at += n;
    }
    if (lane->at >= QR_NET_HEADER && room > n) {
        uint64_t at = lane->at - QR_NET_HEADER;
        size_t more = io->bytes - at < room - n ? (size_t)(io->bytes - at) : room - n;
        memcpy(to + n, (const char *)io->memory + at, more);
        lane->at += more;
        n += more;
    }
    qr_net_count(&lane->object->net, QR_NET_BYTES_OUT, n);
    return n;
}

/* libcurl sends again on another connection when the one that it had kept was closed. */
static int seek_body(void *user, curl_off_t offset, int origin)
{
    qr_lane *lane = user;
    if (origin != SEEK_SET || offset < 0)
        return CURL_SEEKFUNC_FAIL;
    lane->at = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* ---- sockets -------------------------------------------------------------------- */

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    quire_tier_object *object = user;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    qr_net_count(&object->net, QR_NET_CONNECTIONS, 1);
    return fd;
}

static int close_socket(void *user, curl_socket_t fd)
{
    quire_tier_object *object = user;
    qr_net_count(&object->net, QR_NET_CONNECTIONS, (uint64_t)-1);
    return close(fd);
}

/* ---- handles ------------------------------------------------------------------- */

#define SET(option, value) (curl_easy_setopt(easy, option, value) == CURLE_OK)

static bool set_tls(const quire_tier_object *object, CURL *easy)
{
    return SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) &&
           SET(CURLOPT_SSL_VERIFYPEER, object->trusts_any ? 0L : 1L) &&
           SET(CURLOPT_SSL_VERIFYHOST, object->trusts_any ? 0L : 2L) &&
           (object->ca_file == NULL || SET(CURLOPT_CAINFO, object->ca_file)) &&
           (object->cert_file == NULL ||
            (SET(CURLOPT_SSLCERT, object->cert_file) && SET(CURLOPT_SSLKEY, object->key_file)));
}

static bool set_safe(CURL *easy)
{
    bool is_set =
        SET(CURLOPT_NOSIGNAL, 1L) && SET(CURLOPT_PROXY, "") && SET(CURLOPT_NOPROXY, "*") &&
        SET(CURLOPT_FOLLOWLOCATION, 0L) && SET(CURLOPT_PATH_AS_IS, 1L) &&
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) && SET(CURLOPT_TCP_KEEPALIVE, 1L) &&
        SET(CURLOPT_MAXAGE_CONN, (long)KEEP_IDLE_S) && SET(CURLOPT_USERAGENT, "quire");
#if LIBCURL_VERSION_NUM >= 0x075500
    is_set = is_set && SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    is_set = is_set && SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700 /* a name that is being looked up does not keep us */
    is_set = is_set && SET(CURLOPT_QUICK_EXIT, 1L);
#endif
    return is_set;
}

CURL *qr_request_make(quire_tier_object *object)
{
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return NULL;
    bool is_set =
        set_safe(easy) && set_tls(object, easy) &&
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(object->net.connect_ns / NS_PER_MS + 1)) &&
        SET(CURLOPT_OPENSOCKETFUNCTION, open_socket) && SET(CURLOPT_OPENSOCKETDATA, object) &&
        SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket) && SET(CURLOPT_CLOSESOCKETDATA, object);
    if (is_set)
        return easy;
    curl_easy_cleanup(easy);
    return NULL;
}

bool qr_request_prepare(qr_lane *lane)
{
    CURL *easy = lane->easy;
    return SET(CURLOPT_PRIVATE, lane) && SET(CURLOPT_ERRORBUFFER, lane->why) &&
           SET(CURLOPT_HEADERFUNCTION, take_line) && SET(CURLOPT_HEADERDATA, lane) &&
           SET(CURLOPT_WRITEFUNCTION, take_body) && SET(CURLOPT_WRITEDATA, lane) &&
           SET(CURLOPT_READFUNCTION, read_body) && SET(CURLOPT_READDATA, lane) &&
           SET(CURLOPT_SEEKFUNCTION, seek_body) && SET(CURLOPT_SEEKDATA, lane) &&
           SET(CURLOPT_BUFFERSIZE, (long)READ_BYTES) &&
           SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)WRITE_BYTES);
}

/* ---- one request ------------------------------------------------------------------ */

static void add_line(qr_lane *lane, char *text)
{
    struct curl_slist *line = &lane->lines[lane->num_lines];
    *line = (struct curl_slist){.data = text};
    if (lane->num_lines > 0)
        lane->lines[lane->num_lines - 1].next = line;
    lane->num_lines++;
}

static void add_header(qr_lane *lane, const char *name, const char *value)
{
    char *text = lane->texts[lane->num_lines];
    (void)snprintf(text, QR_OBJECT_LINE, "%s: %s", name, value);
    add_line(lane, text);
}

static const char *method_of(qr_object_kind kind)
{
    switch (kind) {
    case QR_OBJECT_LOAD:
        return "GET";
    case QR_OBJECT_STORE:
        return "PUT";
    case QR_OBJECT_REMOVE:
        return "DELETE";
    default:
        return "HEAD";
    }
}

static bool set_method(const qr_lane *lane)
{
    CURL *easy = lane->easy;
    bool is_set = SET(CURLOPT_CUSTOMREQUEST, NULL) && SET(CURLOPT_HTTPGET, 1L);
    if (lane->kind == QR_OBJECT_REMOVE)
        return is_set && SET(CURLOPT_CUSTOMREQUEST, "DELETE");
    if (lane->kind == QR_OBJECT_STORE)
        return is_set && SET(CURLOPT_UPLOAD, 1L) &&
               SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)QR_NET_HEADER + qr_lane_io(lane)->bytes);
    return is_set && (lane->kind == QR_OBJECT_LOAD || SET(CURLOPT_NOBODY, 1L));
}

static void write_hash(qr_lane *lane, char hash[QR_SIGV4_HASH])
{
    if (lane->kind != QR_OBJECT_STORE)
        qr_sigv4_hash("", 0, "", 0, hash);
    else if (lane->object->signs_payload)
        qr_sigv4_hash(lane->header, QR_NET_HEADER, qr_lane_io(lane)->memory,
                      qr_lane_io(lane)->bytes, hash);
    else
        memcpy(hash, "UNSIGNED-PAYLOAD", sizeof "UNSIGNED-PAYLOAD");
}

/* The lines of a request, and the signature over them. */
static bool sign(qr_lane *lane, const char *path)
{
    quire_tier_object *object = lane->object;
    const qr_credentials_set *who = &object->credentials.now;
    char hash[QR_SIGV4_HASH];
    char time[QR_SIGV4_TIME];
    char text[QR_SIGV4_TEXT];
    write_hash(lane, hash);
    qr_sigv4_write_time(qr_object_time(object), time);
    const qr_sigv4_header headers[] = {{"host", object->place.host},
                                       {"x-amz-content-sha256", hash},
                                       {"x-amz-date", time},
                                       {"x-amz-security-token", who->token}};
    const qr_sigv4_request request = {.method = method_of(lane->kind),
                                      .path = path,
                                      .query = "",
                                      .time = time,
                                      .body_hash = hash,
                                      .headers = headers,
                                      .num_headers = who->token[0] == 0 ? 3 : 4};
    if (!qr_sigv4_sign(&object->sigv4, who->access_key, who->secret_key, &request, text))
        return false;
    lane->generation = object->credentials.generation;
    lane->clock_s = object->clock_s;
    lane->num_lines = 0;
    for (uint32_t i = 0; i < 3; i++)
        add_header(lane, headers[i].name, headers[i].value);
    add_header(lane, "authorization", text);
    if (who->token[0] != 0)
        add_line(lane, object->token_line);
    if (lane->kind == QR_OBJECT_STORE) {
        add_header(lane, "content-type", "application/octet-stream");
        static const char no_wait[] = "expect:"; /* it was checked: send at once */
        memcpy(lane->texts[lane->num_lines], no_wait, sizeof no_wait);
        add_line(lane, lane->texts[lane->num_lines]);
    }
    return true;
}

void qr_request_use_token(quire_tier_object *object)
{
    (void)snprintf(object->token_line, sizeof object->token_line, "x-amz-security-token: %s",
                   object->credentials.now.token);
    qr_sigv4_forget(&object->sigv4);
}

bool qr_request_start(qr_lane *lane)
{
    quire_tier_object *object = lane->object;
    CURL *easy = lane->easy;
    char url[QR_PLACE_URL];
    lane->at = 0;
    lane->is_wrong = false;
    lane->why[0] = 0;
    lane->block = (qr_net_block){0};
    lane->reply = (qr_object_reply){.length = -1, .date_s = -1};
    lane->moved_ns = object->net.now_ns + object->net.connect_ns;
    if (lane->kind == QR_OBJECT_STORE)
        qr_net_header_write(object->place.fingerprint, qr_lane_io(lane), lane->header);
    const char *path = lane->path[0] == 0 ? "/" : lane->path;
    qr_place_write_url(&object->place, path, url);
    return sign(lane, path) && set_method(lane) && SET(CURLOPT_URL, url) &&
           SET(CURLOPT_FRESH_CONNECT, lane->is_fresh ? 1L : 0L) &&
           SET(CURLOPT_HTTPHEADER, lane->lines) &&
           curl_multi_add_handle(object->multi, easy) == CURLM_OK;
}

void qr_request_stop(qr_lane *lane)
{
    (void)curl_multi_remove_handle(lane->object->multi, lane->easy);
}
