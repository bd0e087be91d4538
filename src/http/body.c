#include "http/body.h"

#include "base/json.h"
#include "base/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
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

void qr_http_body_print(qr_http_body *body, const char *format, ...)
{
    char text[256];
    va_list values;
    va_start(values, format);
    int n = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    body->is_failed = body->is_failed || n < 0 || n >= (int)sizeof text;
    qr_http_body_add(body, text, body->is_failed ? 0 : (size_t)n);
}

void qr_http_body_us(qr_http_body *body, uint64_t ns)
{
    uint64_t rest = ns % 1000;
    int places = 3;
    for (; rest > 0 && rest % 10 == 0; rest /= 10)
        places--;
    qr_http_body_print(body, "%" PRIu64, ns / 1000);
    if (rest > 0)
        qr_http_body_print(body, ".%0*" PRIu64, places, rest);
}

void qr_http_body_json(qr_http_body *body, quire_bytes text)
{
    const unsigned char *at = text.data;
    char form[QR_JSON_CHAR];
    size_t used;
    qr_http_body_text(body, "\"");
    for (size_t left = text.len; left > 0; left -= used, at += used)
        qr_http_body_add(body, form, qr_json_char(at, left, form, &used));
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
