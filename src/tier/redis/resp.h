/* tier/redis/resp.h - what a Redis server says (RESP2), one item at a time.
 *
 *      *2\r\n :5\r\n $3\r\nabc\r\n          array of 2 ─ depth 0
 *                                            ├ number 5 ─ depth 1, index 0
 *                                            └ text abc ─ depth 1, index 1, last of the reply
 *
 * Nothing is kept but how many elements are still to come at each depth, so no reply can make it
 * grow: arrays are walked, not built. Deeper than 4, more elements, longer lines or texts than
 * allowed, numbers that are none: QR_RESP_BAD, and the connection is not worth anything any more.
 * A value is not text: its bytes are taken by whoever knows where they belong. */
#ifndef QR_TIER_REDIS_RESP_H
#define QR_TIER_REDIS_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QR_RESP_DEPTH = 4,
    QR_RESP_LINE = 1024,              /* of a status or an error, with its end */
    QR_RESP_TEXT = 512,               /* of a text inside an array */
    QR_RESP_ELEMENTS = 1 << 19,       /* of one reply: 16,384 ranges with three nodes each fit */
    QR_RESP_VALUE = 512 * 1024 * 1024 /* no server sends more */
};

typedef enum qr_resp_kind {
    QR_RESP_STATUS,
    QR_RESP_ERROR,
    QR_RESP_NUMBER,
    QR_RESP_TEXT_ITEM,
    QR_RESP_NIL,
    QR_RESP_ARRAY,     /* its elements follow */
    QR_RESP_VALUE_ITEM /* its bytes and \r\n follow, and are not for the parser */
} qr_resp_kind;

typedef struct qr_resp_item {
    qr_resp_kind kind;
    uint32_t depth;
    uint32_t index;   /* among its siblings */
    int64_t number;   /* or elements of an array, bytes of a value */
    const char *text; /* in the input; not ended by a zero */
    uint32_t bytes;
    bool is_last; /* of the reply */
} qr_resp_item;

typedef struct qr_resp {
    uint32_t left[QR_RESP_DEPTH];
    uint32_t count[QR_RESP_DEPTH];
    uint32_t depth; /* arrays that are open */
    uint32_t elements;
} qr_resp;

enum { QR_RESP_MORE = 0, QR_RESP_ITEM = 1, QR_RESP_BAD = -1 };

/* Takes one item from the beginning of bytes; *used of them are behind it then. as_value: a bulk
 * string that is a reply by itself is a value, else a text. MORE: not all of it is here yet, and
 * nothing was used; never with QR_RESP_LINE + QR_RESP_TEXT bytes or more. After BAD, no more. */
int qr_resp_next(qr_resp *resp, bool as_value, const unsigned char *bytes, size_t n, size_t *used,
                 qr_resp_item *item);

/* Whether an error begins with this word. */
bool qr_resp_is_error(const qr_resp_item *item, const char *word);

#endif
