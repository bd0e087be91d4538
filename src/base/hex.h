/* base/hex.h - bytes as hexadecimal digits, in lower case. */
#ifndef QR_BASE_HEX_H
#define QR_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>

/* Two digits for each byte and no zero byte behind; gives the end. */
static inline char *qr_hex_write(char *at, const void *bytes, size_t num_bytes)
{
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < num_bytes; i++) {
        *at++ = DIGITS[from[i] >> 4];
        *at++ = DIGITS[from[i] & 15];
    }
    return at;
}

/* False when there are others among the 2 x num_bytes digits. */
static inline bool qr_hex_read(const char *text, unsigned char *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < 2 * num_bytes; i++) {
        char c = text[i];
        bool is_digit = c >= '0' && c <= '9';
        if (!is_digit && (c < 'a' || c > 'f'))
            return false;
        unsigned char half = (unsigned char)(is_digit ? c - '0' : c - 'a' + 10);
        bytes[i / 2] = (unsigned char)(i % 2 == 0 ? half << 4 : bytes[i / 2] | half);
    }
    return true;
}

#endif
