#include "record/text.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_ROOM = 64 << 10, DIGITS = 20 };

void qr_record_text_free(qr_record_text *text)
{
    qr_free(text->bytes);
    *text = (qr_record_text){NULL, 0, 0, false};
}

bool qr_record_text_reserve(qr_record_text *text, size_t more)
{
    if (text->room - text->len >= more)
        return true;
    size_t room = text->room == 0 ? FIRST_ROOM : text->room;
    while (room - text->len < more)
        room *= 2;
    char *bytes = qr_realloc(text->bytes, room);
    if (bytes == NULL) {
        text->has_failed = true;
        return false;
    }
    text->bytes = bytes;
    text->room = room;
    return true;
}

void qr_record_text_put(qr_record_text *text, const char *bytes, size_t len)
{
    if (len == 0 || !qr_record_text_reserve(text, len))
        return;
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
}

void qr_record_text_put_string(qr_record_text *text, const char *string)
{
    qr_record_text_put(text, string, strlen(string));
}

void qr_record_text_put_quoted(qr_record_text *text, const char *string)
{
    size_t len = strlen(string);
    qr_record_text_put(text, "\"", 1);
    for (size_t i = 0; i < len;) {
        char out[QR_JSON_CHAR];
        size_t used;
        size_t bytes = qr_json_char(string + i, len - i, out, &used);
        qr_record_text_put(text, out, bytes);
        i += used;
    }
    qr_record_text_put(text, "\"", 1);
}

void qr_record_text_put_number(qr_record_text *text, uint64_t number)
{
    char digits[DIGITS];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    qr_record_text_put(text, digits + at, sizeof digits - at);
}

void qr_record_text_put_hex(qr_record_text *text, const unsigned char *bytes, size_t len)
{
    if (!qr_record_text_reserve(text, 2 * len))
        return;
    text->len = (size_t)(qr_hex_write(text->bytes + text->len, bytes, len) - text->bytes);
}

void qr_record_text_put_seconds(qr_record_text *text, uint64_t ns)
{
    uint64_t us = (ns + 500) / 1000;
    char decimals[7] = ".";
    for (int i = 6; i > 0; i--) {
        decimals[i] = (char)('0' + us % 10);
        us /= 10;
    }
    qr_record_text_put_number(text, us);
    qr_record_text_put(text, decimals, sizeof decimals);
}

void qr_record_text_put_real(qr_record_text *text, double value)
{
    char digits[352]; /* the largest double has 309 digits before the point */
    int len = snprintf(digits, sizeof digits, "%.7f", value);
    qr_record_text_put(text, digits, len > 0 ? (size_t)len : 0);
}
