#include "http/lines.h"

#include "base/memory.h"

#include <quire/error.h>

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int qr_http_lines_init(qr_http_lines *lines, uint32_t max_live)
{
    *lines = (qr_http_lines){.num_lines = max_live + QR_HTTP_SPARE_LINES, .max_live = max_live};
    lines->lines = qr_alloc(lines->num_lines, sizeof *lines->lines);
    if (lines->lines == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < lines->num_lines; i++)
        lines->lines[i].socket = -1;
    pthread_mutex_init(&lines->lock, NULL); /* cannot fail without attributes */
    return QUIRE_OK;
}

void qr_http_lines_free(qr_http_lines *lines)
{
    if (lines->lines == NULL)
        return;
    pthread_mutex_destroy(&lines->lock);
    qr_free(lines->lines);
    lines->lines = NULL;
}

uint64_t qr_http_lines_address(const struct sockaddr *from)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    uint64_t first = 0;
    uint32_t last;
    if (from != NULL && from->sa_family == AF_INET) {
        memcpy(&v4, from, sizeof v4);
        return ntohl(v4.sin_addr.s_addr);
    }
    if (from == NULL || from->sa_family != AF_INET6)
        return 0;
    memcpy(&v6, from, sizeof v6);
    memcpy(&last, v6.sin6_addr.s6_addr + 12, sizeof last);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        return ntohl(last);
    memcpy(&first, v6.sin6_addr.s6_addr, sizeof first);
    return first;
}

/* ---- under the lock --------------------------------------------------------- */

static bool is_live(const qr_http_line *line)
{
    return line->socket >= 0 && !line->is_shut;
}

static bool can_give_way(const qr_http_line *line)
{
    return is_live(line) && line->state != QR_HTTP_STREAMING;
}

static void count_same(qr_http_lines *lines, uint64_t address)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < lines->num_lines; i++)
        num += can_give_way(&lines->lines[i]) && lines->lines[i].address == address;
    for (uint32_t i = 0; i < lines->num_lines; i++)
        if (lines->lines[i].address == address)
            lines->lines[i].num_same = num;
}

static void shut_line(qr_http_lines *lines, qr_http_line *line)
{
    shutdown(line->socket, SHUT_RDWR);
    line->is_shut = true;
    lines->num_live--;
    count_same(lines, line->address);
}

static bool gives_way_before(const qr_http_line *a, const qr_http_line *b)
{
    if (a->num_same != b->num_same)
        return a->num_same > b->num_same;
    if (a->state != b->state)
        return a->state == QR_HTTP_WAITING;
    return a->since_ns < b->since_ns;
}

static void make_room(qr_http_lines *lines)
{
    qr_http_line *first = NULL;
    for (uint32_t i = 0; i < lines->num_lines; i++) {
        qr_http_line *line = &lines->lines[i];
        if (can_give_way(line) && (first == NULL || gives_way_before(line, first)))
            first = line;
    }
    if (first != NULL)
        shut_line(lines, first);
}

/* ---- a line ----------------------------------------------------------------- */

qr_http_line *qr_http_lines_open(qr_http_lines *lines, int socket, uint64_t address,
                                 uint64_t now_ns, uint64_t until_ns)
{
    qr_http_line *line = NULL;
    pthread_mutex_lock(&lines->lock);
    for (uint32_t i = 0; i < lines->num_lines && line == NULL; i++)
        if (lines->lines[i].socket < 0)
            line = &lines->lines[i];
    if (line != NULL) {
        if (lines->num_live >= lines->max_live)
            make_room(lines);
        *line = (qr_http_line){
            .socket = socket, .address = address, .since_ns = now_ns, .until_ns = until_ns};
        lines->num_live++;
        count_same(lines, address);
    }
    pthread_mutex_unlock(&lines->lock);
    return line;
}

void qr_http_lines_set(qr_http_lines *lines, qr_http_line *line, qr_http_line_state state,
                       uint64_t now_ns, uint64_t until_ns)
{
    pthread_mutex_lock(&lines->lock);
    bool has_changed = (line->state == QR_HTTP_STREAMING) != (state == QR_HTTP_STREAMING);
    line->state = state;
    line->since_ns = now_ns;
    line->until_ns = until_ns;
    if (has_changed)
        count_same(lines, line->address);
    pthread_mutex_unlock(&lines->lock);
}

void qr_http_lines_close(qr_http_lines *lines, qr_http_line *line)
{
    pthread_mutex_lock(&lines->lock);
    lines->num_live -= is_live(line);
    line->socket = -1;
    count_same(lines, line->address);
    pthread_mutex_unlock(&lines->lock);
}

void qr_http_lines_tick(qr_http_lines *lines, uint64_t now_ns)
{
    pthread_mutex_lock(&lines->lock);
    for (uint32_t i = 0; i < lines->num_lines; i++) {
        qr_http_line *line = &lines->lines[i];
        if (is_live(line) && now_ns >= line->until_ns)
            shut_line(lines, line);
    }
    pthread_mutex_unlock(&lines->lock);
}
