/* base/json.h - texts as JSON writes them. */
#ifndef QR_BASE_JSON_H
#define QR_BASE_JSON_H

#include "base/hex.h"
#include "base/utf8.h"

#include <string.h>

enum { QR_JSON_CHAR = 6 };

/* Writes the character that begins at `text`, of n bytes and 1 at least, as it stands in a JSON
 * string. Gives how many bytes that are, and in *used how many it took. What is no UTF-8 becomes
 * U+FFFD, byte by byte. "<" is escaped too: no text of a stranger can end a script that it is put
 * into. */
static inline size_t qr_json_char(const void *text, size_t n, char out[QR_JSON_CHAR], size_t *used)
{
    const unsigned char *at = text;
    size_t len = qr_utf8_char(at, n);
    *used = len == 0 ? 1 : len;
    if (len == 0) {
        memcpy(out, "\\ufffd", 6); /* NOLINT(bugprone-not-null-terminated-result): no end */
        return 6;
    }
    if (*at == '"' || *at == '\\') {
        out[0] = '\\';
        out[1] = (char)*at;
        return 2;
    }
    if (*at < 0x20 || *at == '<' || *at == 0x7f) {
        memcpy(out, "\\u00", 4); /* NOLINT(bugprone-not-null-terminated-result): no end */
        (void)qr_hex_write(out + 4, at, 1);
        return 6;
    }
    memcpy(out, at, len);
    return len;
}

#endif
