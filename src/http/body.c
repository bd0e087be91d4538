#include "http/body.h"

#include "base/hex.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { BODY_FIRST = 1024, MAX_QUOTED = 40 };

char *qr_http_body_room(qr_http_body *body, size_t bytes)
{
    if (body->is_failed || bytes > QR_HTTP_BODY_LIMIT - body->len) {
        body->is_failed = true;
        return NULL;
    }
    size_t capacity = body->capacity == 0 ? BODY_FIRST : body->capacity;
    while (capacity < body->len + bytes)
        capacity *= 2;
    if (capacity != body->capacity) {
        char *grown = qr_realloc(body->bytes, capacity);
        if (grown == NULL) {
            body->is_failed = true;
            return NULL;
        }
        body->bytes = grown;
        body->capacity = capacity;
    }
    return body->bytes + body->len;
}

void qr_http_body_add(qr_http_body *body, const void *bytes, size_t len)
{
    char *room = qr_http_body_room(body, len);
    if (room == NULL || len == 0)
        return;
    memcpy(room, bytes, len);
    body->len += len;
}

void qr_http_body_text(qr_http_body *body, const char *text)
{
    qr_http_body_add(body, text, strlen(text));
}

void qr_http_body_number(qr_http_body *body, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    qr_http_body_add(body, digits + first, sizeof digits - first);
}

void qr_http_body_us(qr_http_body *body, uint64_t ns)
{
    uint64_t rest = ns % 1000;
    qr_http_body_number(body, ns / 1000);
    if (rest == 0)
        return;
    char digits[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                      (char)('0' + rest % 10)};
    size_t len = digits[3] != '0' ? 4 : digits[2] != '0' ? 3 : 2;
    qr_http_body_add(body, digits, len);
}

static void add_escaped(qr_http_body *body, unsigned char c)
{
    char escape[6] = {'\\', 'u', '0', '0'};
    (void)qr_hex_write(escape + 4, &c, 1);
    qr_http_body_add(body, escape, sizeof escape);
}

void qr_http_body_json(qr_http_body *body, quire_bytes text)
{
    const unsigned char *at = text.data;
    size_t left = text.len;
    qr_http_body_text(body, "\"");
    while (left > 0) {
        size_t len = qr_utf8_char(at, left);
        /* "<" too: no text of a stranger can end a script that it is put into */
        if (len == 0)
            qr_http_body_text(body, "\\ufffd");
        else if (*at < 0x20 || *at == '"' || *at == '\\' || *at == '<' || *at == 0x7f)
            add_escaped(body, *at);
        else
            qr_http_body_add(body, at, len);
        at += len == 0 ? 1 : len;
        left -= len == 0 ? 1 : len;
    }
    qr_http_body_text(body, "\"");
}

void qr_http_body_quote(qr_http_body *body, quire_bytes text)
{
    const unsigned char *at = text.data;
    qr_http_body_text(body, "\"");
    for (size_t i = 0; i < text.len && i < MAX_QUOTED; i++)
        qr_http_body_add(body, at[i] >= 0x20 && at[i] < 0x7f ? (const char *)&at[i] : "?", 1);
    qr_http_body_text(body, text.len > MAX_QUOTED ? "...\"" : "\"");
}

void qr_http_body_clear(qr_http_body *body)
{
    body->len = 0;
    body->is_failed = false;
}

void qr_http_body_free(qr_http_body *body)
{
    qr_free(body->bytes);
    *body = (qr_http_body){0};
}
