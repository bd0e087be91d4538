#include "http/lines.h"

#include "http/system.h"

#include <quire/error.h>

#include <sys/socket.h>

int qr_http_lines_init(qr_http_lines *lines, uint32_t max_lines)
{
    *lines = (qr_http_lines){.max_lines = max_lines};
    lines->lines = qr_http_alloc(max_lines * sizeof *lines->lines);
    if (lines->lines == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < max_lines; i++)
        lines->lines[i].socket = -1;
    pthread_mutex_init(&lines->lock, NULL); /* cannot fail without attributes */
    return QUIRE_OK;
}

void qr_http_lines_free(qr_http_lines *lines)
{
    if (lines->lines == NULL)
        return;
    pthread_mutex_destroy(&lines->lock);
    qr_http_free(lines->lines);
    lines->lines = NULL;
}

qr_http_line *qr_http_lines_open(qr_http_lines *lines, int socket, uint64_t until_ns)
{
    qr_http_line *line = NULL;
    pthread_mutex_lock(&lines->lock);
    for (uint32_t i = 0; i < lines->max_lines && line == NULL; i++)
        if (lines->lines[i].socket < 0)
            line = &lines->lines[i];
    if (line != NULL)
        *line = (qr_http_line){.socket = socket, .until_ns = until_ns};
    pthread_mutex_unlock(&lines->lock);
    return line;
}

void qr_http_lines_set_time(qr_http_lines *lines, qr_http_line *line, uint64_t until_ns)
{
    pthread_mutex_lock(&lines->lock);
    line->until_ns = until_ns;
    pthread_mutex_unlock(&lines->lock);
}

void qr_http_lines_close(qr_http_lines *lines, qr_http_line *line)
{
    pthread_mutex_lock(&lines->lock);
    line->socket = -1;
    pthread_mutex_unlock(&lines->lock);
}

void qr_http_lines_tick(qr_http_lines *lines, uint64_t now_ns)
{
    pthread_mutex_lock(&lines->lock);
    for (uint32_t i = 0; i < lines->max_lines; i++) {
        qr_http_line *line = &lines->lines[i];
        if (line->socket >= 0 && now_ns >= line->until_ns) {
            shutdown(line->socket, SHUT_RDWR);
            line->until_ns = QR_HTTP_NO_LIMIT; /* once is enough */
        }
    }
    pthread_mutex_unlock(&lines->lock);
}
