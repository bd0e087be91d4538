#include "http/words.h"

#include <string.h>

enum { MAX_DIGITS = 16 };

bool qr_http_is_word(quire_bytes bytes, const char *word)
{
    return bytes.data != NULL && bytes.len == strlen(word) &&
           memcmp(bytes.data, word, bytes.len) == 0;
}

bool qr_http_has_prefix(quire_bytes bytes, const char *word, quire_bytes *rest)
{
    const char *text = bytes.data;
    size_t len = strlen(word);
    if (text == NULL || bytes.len < len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (qr_http_lower(text[i]) != word[i])
            return false;
    *rest = (quire_bytes){text + len, bytes.len - len};
    return true;
}

bool qr_http_is_name(quire_bytes bytes, const char *word)
{
    quire_bytes rest;
    return qr_http_has_prefix(bytes, word, &rest) && rest.len == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

quire_bytes qr_http_cut(quire_bytes *rest, char separator)
{
    const char *text = rest->data;
    if (rest->len == 0)
        return *rest;
    const char *found = memchr(text, separator, rest->len);
    size_t len = found == NULL ? rest->len : (size_t)(found - text);
    size_t used = found == NULL ? len : len + 1;
    *rest = (quire_bytes){text + used, rest->len - used};
    while (len > 0 && is_blank(text[0])) {
        text++;
        len--;
    }
    while (len > 0 && is_blank(text[len - 1]))
        len--;
    return (quire_bytes){text, len};
}

bool qr_http_read_number(quire_bytes bytes, uint64_t *number)
{
    const char *text = bytes.data;
    *number = 0;
    if (text == NULL || bytes.len == 0 || bytes.len > MAX_DIGITS)
        return false;
    for (size_t i = 0; i < bytes.len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    }
    return *number <= (uint64_t)1 << 53;
}
