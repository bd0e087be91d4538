/* http/words.h - pieces of texts that strangers sent; none of them ends with a zero byte. */
#ifndef QR_HTTP_WORDS_H
#define QR_HTTP_WORDS_H

#include <quire/hash.h>

#include <stdbool.h>

static inline char qr_http_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Exactly the same; nothing is the same as what is absent. */
bool qr_http_is_word(quire_bytes bytes, const char *word);
/* The same, whatever the case; word is lower case. */
bool qr_http_is_name(quire_bytes bytes, const char *word);
/* Begins so, whatever the case; word is lower case. Then *rest is what follows. */
bool qr_http_has_prefix(quire_bytes bytes, const char *word, quire_bytes *rest);
/* What stands before the separator, without blanks around it; *rest is what stands behind. */
quire_bytes qr_http_cut(quire_bytes *rest, char separator);
/* Digits and nothing else, up to 2^53: what readers of JSON keep exactly. */
bool qr_http_read_number(quire_bytes bytes, uint64_t *number);

#endif
