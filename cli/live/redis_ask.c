#include "redis_ask.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TIMEOUT_S = 2, MAX_ELEMENTS = 64 };

static int connect_here(uint32_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = TIMEOUT_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

bool redis_can_connect(uint32_t port)
{
    int fd = connect_here(port);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* One element from the beginning of text: where its content is, and how long the whole of it; 0:
 * not all of it is here. */
static size_t read_element(const char *text, size_t n, const char **content, size_t *length)
{
    const char *end = memchr(text, '\n', n);
    if (end == NULL || end == text)
        return 0;
    size_t line = (size_t)(end - text) + 1;
    *content = text + 1;
    *length = line < 3 ? 0 : line - 3;
    if (text[0] != '$')
        return line;
    long bytes = strtol(text + 1, NULL, 10);
    if (bytes < 0) {
        *length = 0;
        return line;
    }
    *content = text + line;
    *length = (size_t)bytes;
    return n - line < (size_t)bytes + 2 ? 0 : line + (size_t)bytes + 2;
}

/* The last element of the answer; false: there is more to come. */
static bool find_answer(const char *text, size_t n, const char **content, size_t *length)
{
    size_t used = read_element(text, n, content, length);
    long left = text[0] == '*' ? strtol(text + 1, NULL, 10) : 0;
    if (left > MAX_ELEMENTS)
        left = MAX_ELEMENTS;
    while (used > 0 && left-- > 0) {
        size_t more = read_element(text + used, n - used, content, length);
        used = more == 0 ? 0 : used + more;
    }
    return used > 0;
}

static bool read_answer(int fd, char said[REDIS_ASK_BYTES])
{
    char text[REDIS_ASK_BYTES];
    size_t n = 0;
    const char *content;
    size_t length;
    said[0] = 0;
    while (n < sizeof text - 1) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        text[n] = 0;
        if (!find_answer(text, n, &content, &length))
            continue;
        memcpy(said, content, length);
        said[length] = 0;
        return text[0] != '-';
    }
    return false;
}

bool redis_ask(uint32_t port, char said[REDIS_ASK_BYTES], ...)
{
    char words[1024];
    char question[1100];
    size_t n = 0;
    int count = 0;
    va_list values;
    va_start(values, said);
    for (const char *w = va_arg(values, const char *); w != NULL;
         w = va_arg(values, const char *)) {
        n += (size_t)snprintf(words + n, sizeof words - n, "$%zu\r\n%s\r\n", strlen(w), w);
        count++;
        if (n >= sizeof words)
            break;
    }
    va_end(values);
    said[0] = 0;
    int fd = n >= sizeof words ? -1 : connect_here(port);
    if (fd < 0)
        return false;
    int bytes = snprintf(question, sizeof question, "*%d\r\n%s", count, words);
    bool is_good =
        send(fd, question, (size_t)bytes, MSG_NOSIGNAL) == bytes && read_answer(fd, said);
    close(fd);
    return is_good;
}
