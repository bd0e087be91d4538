#include "events/wire/cursor.h"

#include "base/utf8.h"

#include <string.h>

static size_t bytes_left(const qr_cursor *c)
{
    return (size_t)(c->end - c->at);
}

/* A big-endian number of `size` bytes. */
static bool take_number(qr_cursor *c, size_t size, uint64_t *number)
{
    if (bytes_left(c) < size)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | c->at[i];
    c->at += size;
    *number = value;
    return true;
}

static bool take_data(qr_cursor *c, qr_piece *piece, qr_piece_kind kind, uint64_t len)
{
    if (len > bytes_left(c))
        return false;
    piece->kind = kind;
    piece->data = c->at;
    piece->len = (size_t)len;
    c->at += len;
    return kind != QR_PIECE_TEXT || qr_utf8_is_text(piece->data, piece->len);
}

/* Each element takes a byte at least. */
static bool take_count(const qr_cursor *c, qr_piece *piece, qr_piece_kind kind, uint64_t count)
{
    piece->kind = kind;
    piece->number = count;
    return count <= bytes_left(c) / (kind == QR_PIECE_MAP ? 2 : 1);
}

static bool take_signed(qr_cursor *c, qr_piece *piece, size_t size)
{
    uint64_t value;
    if (!take_number(c, size, &value))
        return false;
    uint64_t sign = UINT64_C(1) << ((8 * size - 1) & 63);
    piece->kind = (value & sign) != 0 ? QR_PIECE_NEGATIVE : QR_PIECE_NUMBER;
    piece->number = (value ^ sign) - sign;
    return true;
}

static bool take_real(qr_cursor *c, qr_piece *piece, size_t size)
{
    uint64_t bits;
    if (!take_number(c, size, &bits))
        return false;
    piece->kind = QR_PIECE_REAL;
    if (size == 4) {
        uint32_t narrow = (uint32_t)bits;
        float value;
        memcpy(&value, &narrow, sizeof value);
        piece->real = (double)value;
    } else {
        memcpy(&piece->real, &bits, sizeof piece->real);
    }
    return true;
}

/* Extensions: `len` bytes behind one that says what they are. */
static bool take_extension(qr_cursor *c, qr_piece *piece, uint64_t len)
{
    return take_data(c, piece, QR_PIECE_OTHER, len + 1);
}

/* What begins with c0 to df. A number stands behind most marks: its bytes double from mark to mark.
 */
static bool take_marked(qr_cursor *c, qr_piece *piece, unsigned char mark)
{
    uint64_t n = 0;
    switch (mark) {
    case 0xc0:
        piece->kind = QR_PIECE_NIL;
        return true;
    case 0xc2 ... 0xc3:
        piece->kind = QR_PIECE_BOOL;
        piece->number = mark & 1;
        return true;
    case 0xc4 ... 0xc6:
        return take_number(c, 1U << (mark - 0xc4), &n) && take_data(c, piece, QR_PIECE_BYTES, n);
    case 0xc7 ... 0xc9:
        return take_number(c, 1U << (mark - 0xc7), &n) && take_extension(c, piece, n);
    case 0xca ... 0xcb:
        return take_real(c, piece, 4U << (mark - 0xca));
    case 0xcc ... 0xcf:
        return take_number(c, 1U << (mark - 0xcc), &piece->number);
    case 0xd0 ... 0xd3:
        return take_signed(c, piece, 1U << (mark - 0xd0));
    case 0xd4 ... 0xd8:
        return take_extension(c, piece, 1U << (mark - 0xd4));
    case 0xd9 ... 0xdb:
        return take_number(c, 1U << (mark - 0xd9), &n) && take_data(c, piece, QR_PIECE_TEXT, n);
    case 0xdc ... 0xdd:
        return take_number(c, 2U << (mark - 0xdc), &n) && take_count(c, piece, QR_PIECE_ARRAY, n);
    case 0xde ... 0xdf:
        return take_number(c, 2U << (mark - 0xde), &n) && take_count(c, piece, QR_PIECE_MAP, n);
    default: /* c1, which nothing is */
        return false;
    }
}

bool qr_cursor_next(qr_cursor *cursor, qr_piece *piece)
{
    if (cursor->at == cursor->end)
        return false;
    unsigned char mark = *cursor->at++;
    *piece = (qr_piece){.kind = QR_PIECE_NUMBER, .number = mark < 0x80 ? mark : 0};
    if (mark < 0x80)
        return true;
    if (mark < 0x90)
        return take_count(cursor, piece, QR_PIECE_MAP, mark & 0x0f);
    if (mark < 0xa0)
        return take_count(cursor, piece, QR_PIECE_ARRAY, mark & 0x0f);
    if (mark < 0xc0)
        return take_data(cursor, piece, QR_PIECE_TEXT, mark & 0x1f);
    if (mark < 0xe0)
        return take_marked(cursor, piece, mark);
    piece->kind = QR_PIECE_NEGATIVE;
    piece->number = mark | ~UINT64_C(0xff);
    return true;
}

bool qr_cursor_integer(qr_cursor *cursor, int64_t *value)
{
    const unsigned char *at = cursor->at;
    size_t left = bytes_left(cursor);
    if (left >= 1 && at[0] < 0x80) {
        *value = at[0];
        cursor->at += 1;
        return true;
    }
    if (left >= 3 && at[0] == 0xcd) {
        *value = at[1] << 8 | at[2];
        cursor->at += 3;
        return true;
    }
    if (left >= 5 && at[0] == 0xce) {
        *value = (int64_t)at[1] << 24 | (int64_t)at[2] << 16 | at[3] << 8 | at[4];
        cursor->at += 5;
        return true;
    }
    qr_piece piece;
    if (!qr_cursor_next(cursor, &piece))
        return false;
    *value = (int64_t)piece.number;
    return (piece.kind == QR_PIECE_NUMBER && piece.number <= INT64_MAX) ||
           piece.kind == QR_PIECE_NEGATIVE;
}

bool qr_cursor_skip(qr_cursor *cursor)
{
    uint64_t num_left = 1; /* values that must still come */
    while (num_left > 0) {
        qr_piece piece;
        if (!qr_cursor_next(cursor, &piece))
            return false;
        num_left--;
        if (piece.kind == QR_PIECE_ARRAY)
            num_left += piece.number;
        else if (piece.kind == QR_PIECE_MAP)
            num_left += 2 * piece.number;
        if (num_left > bytes_left(cursor))
            return false;
    }
    return true;
}
