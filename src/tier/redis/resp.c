#include "tier/redis/resp.h"

#include "tier/net/address.h"

#include <string.h>

/* A number of a line: digits, perhaps with a minus, and nothing else. */
static bool parse_number(const unsigned char *at, size_t n, int64_t *number)
{
    size_t minus = n > 0 && at[0] == '-';
    if (n > 20 || !qr_digits_read(at + minus, n - minus, INT64_MAX, number))
        return false;
    *number = minus ? -*number : *number;
    return true;
}

/* The line's length without its end; MORE or BAD. */
static int find_line(const unsigned char *bytes, size_t n, size_t *length)
{
    size_t limit = n < QR_RESP_LINE ? n : QR_RESP_LINE;
    const unsigned char *end = memchr(bytes, '\n', limit);
    if (end == NULL)
        return limit == QR_RESP_LINE ? QR_RESP_BAD : QR_RESP_MORE;
    if (end - bytes < 2 || end[-1] != '\r')
        return QR_RESP_BAD;
    *length = (size_t)(end - bytes) - 1;
    return memchr(bytes, '\r', *length) != NULL ? QR_RESP_BAD : QR_RESP_ITEM;
}

/* A text whose length is known; its bytes must be here in full. */
static int take_text(const unsigned char *bytes, size_t n, size_t *used, qr_resp_item *item)
{
    size_t length = (size_t)item->number;
    if (length > QR_RESP_TEXT)
        return QR_RESP_BAD;
    size_t have = n - *used;
    if (have > length && bytes[*used + length] != '\r')
        return QR_RESP_BAD;
    if (have < length + 2)
        return QR_RESP_MORE;
    if (bytes[*used + length + 1] != '\n')
        return QR_RESP_BAD;
    item->kind = QR_RESP_TEXT_ITEM;
    item->text = (const char *)bytes + *used;
    item->bytes = (uint32_t)length;
    *used += length + 2;
    return QR_RESP_ITEM;
}

static int take_bulk(bool as_value, const unsigned char *bytes, size_t n, size_t *used,
                     qr_resp_item *item)
{
    if (item->number < 0 || item->number > QR_RESP_VALUE)
        return QR_RESP_BAD;
    if (!as_value)
        return take_text(bytes, n, used, item);
    item->kind = QR_RESP_VALUE_ITEM;
    return QR_RESP_ITEM;
}

static int take_array(const qr_resp *resp, qr_resp_item *item)
{
    if (item->number < 0 || resp->depth == QR_RESP_DEPTH ||
        item->number > (int64_t)(QR_RESP_ELEMENTS - resp->elements))
        return QR_RESP_BAD;
    item->kind = QR_RESP_ARRAY;
    return QR_RESP_ITEM;
}

static int take_item(const qr_resp *resp, bool as_value, const unsigned char *bytes, size_t n,
                     size_t *used, qr_resp_item *item)
{
    size_t length;
    int status = find_line(bytes, n, &length);
    if (status != QR_RESP_ITEM)
        return status;
    *used = length + 2;
    item->text = (const char *)bytes + 1;
    item->bytes = (uint32_t)length - 1;
    if (bytes[0] == '+' || bytes[0] == '-') {
        item->kind = bytes[0] == '+' ? QR_RESP_STATUS : QR_RESP_ERROR;
        return QR_RESP_ITEM;
    }
    if (!parse_number(bytes + 1, length - 1, &item->number))
        return QR_RESP_BAD;
    if (bytes[0] != ':' && item->number == -1) {
        item->kind = QR_RESP_NIL;
        return QR_RESP_ITEM;
    }
    if (bytes[0] == '$')
        return take_bulk(as_value && resp->depth == 0, bytes, n, used, item);
    if (bytes[0] == '*')
        return take_array(resp, item);
    item->kind = QR_RESP_NUMBER;
    return bytes[0] == ':' ? QR_RESP_ITEM : QR_RESP_BAD;
}

/* Notes the item in the arrays that are open, and closes those that it ends. */
static void place_item(qr_resp *resp, qr_resp_item *item)
{
    item->depth = resp->depth;
    if (resp->depth > 0) {
        uint32_t at = resp->depth - 1;
        item->index = resp->count[at]++;
        resp->left[at]--;
    }
    if (item->kind == QR_RESP_ARRAY && item->number > 0) {
        resp->left[resp->depth] = (uint32_t)item->number;
        resp->count[resp->depth] = 0;
        resp->elements += (uint32_t)item->number;
        resp->depth++;
    }
    while (resp->depth > 0 && resp->left[resp->depth - 1] == 0)
        resp->depth--;
    item->is_last = resp->depth == 0;
    if (item->is_last)
        resp->elements = 0;
}

int qr_resp_next(qr_resp *resp, bool as_value, const unsigned char *bytes, size_t n, size_t *used,
                 qr_resp_item *item)
{
    *used = 0;
    *item = (qr_resp_item){0};
    if (n == 0)
        return QR_RESP_MORE;
    if (strchr("+-:$*", bytes[0]) == NULL || bytes[0] == 0)
        return QR_RESP_BAD;
    int status = take_item(resp, as_value, bytes, n, used, item);
    if (status == QR_RESP_ITEM)
        place_item(resp, item);
    else
        *used = 0;
    return status;
}

bool qr_resp_is_error(const qr_resp_item *item, const char *word)
{
    size_t n = strlen(word);
    return item->kind == QR_RESP_ERROR && item->bytes >= n && memcmp(item->text, word, n) == 0 &&
           (item->bytes == n || item->text[n] == ' ');
}
