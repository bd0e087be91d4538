#include "http/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t client_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int client_open(uint32_t port)
{
    return client_open_from(port, NULL);
}

static bool bind_to(int fd, const char *source)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    return source == NULL || (inet_pton(AF_INET, source, &from.sin_addr) == 1 &&
                              bind(fd, (const struct sockaddr *)&from, sizeof from) == 0);
}

int client_open_from(uint32_t port, const char *source)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        (!bind_to(fd, source) || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

void client_close(int socket)
{
    close(socket);
}

bool client_send(int socket, const char *bytes, size_t num_bytes)
{
    while (num_bytes > 0) {
        ssize_t n = send(socket, bytes, num_bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        num_bytes -= (size_t)n;
    }
    return true;
}

bool client_say(int socket, const char *text)
{
    return client_send(socket, text, strlen(text));
}

long client_read_some(int socket, char *bytes, size_t most, int timeout_ms)
{
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    if (poll(&ready, 1, timeout_ms) <= 0)
        return -1;
    ssize_t n = recv(socket, bytes, most, 0);
    return n < 0 ? 0 : (long)n; /* reset counts as closed */
}

bool client_is_closed(int socket, int timeout_ms)
{
    uint64_t until = client_now_ms() + (uint64_t)timeout_ms;
    char bytes[4096];
    for (;;) {
        uint64_t now = client_now_ms();
        if (now >= until)
            return false;
        if (client_read_some(socket, bytes, sizeof bytes, (int)(until - now)) == 0)
            return true;
    }
}

void client_reply_init(client_reply *reply)
{
    *reply = (client_reply){.text = malloc(CLIENT_MAX_REPLY + 1)};
    assert_non_null(reply->text);
}

void client_reply_free(client_reply *reply)
{
    free(reply->text);
}

const char *client_body(const client_reply *reply)
{
    return reply->text + reply->body;
}

const char *client_header(const client_reply *reply, const char *name)
{
    static char value[1024];
    size_t len = strlen(name);
    const char *end = reply->text + reply->body;
    for (const char *line = strstr(reply->text, "\r\n"); line != NULL && line + 4 < end;
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, len) != 0 || line[2 + len] != ':')
            continue;
        const char *from = line + 2 + len + 1;
        from += *from == ' ';
        snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r"), from);
        return value;
    }
    return NULL;
}

/* Grows by what comes; false when nothing comes any more. */
static bool read_more(int socket, client_reply *reply)
{
    assert_true(reply->num_bytes < CLIENT_MAX_REPLY);
    long n = client_read_some(socket, reply->text + reply->num_bytes,
                              CLIENT_MAX_REPLY - reply->num_bytes, CLIENT_PATIENCE_MS);
    if (n <= 0)
        return false;
    reply->num_bytes += (size_t)n;
    reply->text[reply->num_bytes] = '\0';
    return true;
}

static bool read_chunks(int socket, client_reply *reply)
{
    size_t at = reply->body; /* of the next chunk's mark */
    size_t to = reply->body;
    for (;;) {
        char *end;
        while ((end = strstr(reply->text + at, "\r\n")) == NULL)
            if (!read_more(socket, reply))
                return false;
        size_t bytes = strtoul(reply->text + at, NULL, 16);
        size_t first = (size_t)(end + 2 - reply->text);
        while (reply->num_bytes < first + bytes + 2)
            if (!read_more(socket, reply))
                return false;
        memmove(reply->text + to, reply->text + first, bytes);
        to += bytes;
        at = first + bytes + 2;
        if (bytes == 0)
            break;
    }
    reply->body_bytes = to - reply->body;
    reply->text[to] = '\0';
    return true;
}

bool client_read(int socket, client_reply *reply)
{
    char *end;
    reply->num_bytes = 0;
    reply->status = 0;
    reply->text[0] = '\0';
    while ((end = strstr(reply->text, "\r\n\r\n")) == NULL)
        if (!read_more(socket, reply))
            return false;
    reply->body = (size_t)(end + 4 - reply->text);
    assert_int_equal(strncmp(reply->text, "HTTP/1.", 7), 0);
    reply->status = atoi(reply->text + 9);
    if (client_header(reply, "Transfer-Encoding") != NULL)
        return read_chunks(socket, reply);
    const char *length = client_header(reply, "Content-Length");
    reply->body_bytes = length == NULL ? 0 : strtoul(length, NULL, 10);
    while (reply->num_bytes < reply->body + reply->body_bytes)
        if (!read_more(socket, reply))
            return false;
    return true;
}

int client_get(uint32_t port, const char *line, const char *headers, client_reply *reply)
{
    char request[2048];
    bool has_host = headers != NULL && strstr(headers, "Host:") != NULL;
    snprintf(request, sizeof request, "%s HTTP/1.1\r\n%s%sConnection: close\r\n\r\n", line,
             has_host ? "" : "Host: 127.0.0.1\r\n", headers != NULL ? headers : "");
    int socket = client_open(port);
    assert_true(socket >= 0);
    assert_true(client_say(socket, request));
    if (strncmp(line, "HEAD", 4) == 0) { /* Content-Length speaks of a body that does not come */
        reply->num_bytes = 0;
        while (read_more(socket, reply))
            ;
        char *end = strstr(reply->text, "\r\n\r\n");
        assert_non_null(end);
        reply->body = (size_t)(end + 4 - reply->text);
        reply->body_bytes = reply->num_bytes - reply->body;
        reply->status = atoi(reply->text + 9);
    } else {
        client_read(socket, reply);
    }
    client_close(socket);
    return reply->status;
}
