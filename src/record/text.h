/* record/text.h - a text that grows: JSON lines before they are compressed. */
#ifndef QR_RECORD_TEXT_H
#define QR_RECORD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qr_record_text {
    char *bytes;
    size_t len;
    size_t room;
    bool has_failed; /* no memory: what was appended since is missing */
} qr_record_text;

void qr_record_text_free(qr_record_text *text);
/* Room for so many more bytes; false: no memory. */
bool qr_record_text_reserve(qr_record_text *text, size_t more);
void qr_record_text_put(qr_record_text *text, const char *bytes, size_t len);
void qr_record_text_put_string(qr_record_text *text, const char *string);
/* A JSON string, with quotes. */
void qr_record_text_put_quoted(qr_record_text *text, const char *string);
void qr_record_text_put_number(qr_record_text *text, uint64_t number);
void qr_record_text_put_hex(qr_record_text *text, const unsigned char *bytes, size_t len);
/* Seconds with 6 decimals. */
void qr_record_text_put_seconds(qr_record_text *text, uint64_t ns);
/* With 7 decimals. */
void qr_record_text_put_real(qr_record_text *text, double value);

#endif
