/* base/utf8.h - whether bytes are text. */
#ifndef QR_BASE_UTF8_H
#define QR_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes of `n` the character at `text` has; 0: it is none. Shortest forms only, no
 * surrogates, nothing past U+10FFFF. */
static inline size_t qr_utf8_char(const unsigned char *text, size_t n)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return 1;
    size_t len = first >= 0xc2 && first <= 0xdf ? 2 : (first & 0xf0) == 0xe0 ? 3 : 0;
    if (first >= 0xf0 && first <= 0xf4)
        len = 4;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    bool is_long = (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
    bool is_beyond = (first == 0xed && text[1] > 0x9f) || (first == 0xf4 && text[1] > 0x8f);
    return is_long || is_beyond ? 0 : len;
}

static inline bool qr_utf8_is_text(const void *data, size_t n)
{
    const unsigned char *text = data;
    for (size_t i = 0; i < n;) {
        size_t len = qr_utf8_char(text + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

#endif
