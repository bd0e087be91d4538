/* events/wire/cursor.h - msgpack, one piece at a time, out of bytes that nobody vouches for.
 *
 *      93 cb 3f f8 .. 91 c0 00          array 3 | real 1.5 | array 1 | nil | number 0
 *      ^at                    ^end
 *
 * Nothing is allocated, and nothing recurses. A length that says more than there are bytes left to
 * hold it is wrong at once, so four bytes cannot claim four thousand million elements.
 */
#ifndef QR_EVENTS_WIRE_CURSOR_H
#define QR_EVENTS_WIRE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qr_piece_kind {
    QR_PIECE_NIL,
    QR_PIECE_BOOL,
    QR_PIECE_NUMBER,   /* from 0 on */
    QR_PIECE_NEGATIVE, /* number is the two's complement */
    QR_PIECE_REAL,
    QR_PIECE_TEXT, /* UTF-8 */
    QR_PIECE_BYTES,
    QR_PIECE_ARRAY, /* number elements follow */
    QR_PIECE_MAP,   /* number pairs follow */
    QR_PIECE_OTHER  /* an extension */
} qr_piece_kind;

typedef struct qr_piece {
    qr_piece_kind kind;
    uint64_t number;
    double real;
    const unsigned char *data; /* TEXT and BYTES */
    size_t len;
} qr_piece;

typedef struct qr_cursor {
    const unsigned char *at;
    const unsigned char *end;
} qr_cursor;

/* The next piece; false when there is none, or what is there is no msgpack. */
bool qr_cursor_next(qr_cursor *cursor, qr_piece *piece);
/* The next piece as a number; false for what is none, or does not fit. Quick for token ids. */
bool qr_cursor_integer(qr_cursor *cursor, int64_t *value);
/* Past one value and all that is in it. */
bool qr_cursor_skip(qr_cursor *cursor);

#endif
