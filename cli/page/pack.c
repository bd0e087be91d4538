#include "pack.h"

#include <openssl/evp.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 1024, LONGEST_RUN = 129, LONGEST_LITERAL = 128 };

static void pack_byte(pack *p, unsigned char byte)
{
    if (p->size == p->capacity) {
        size_t capacity = p->capacity > 0 ? 2 * p->capacity : FIRST_CAPACITY;
        unsigned char *bytes = realloc(p->bytes, capacity);
        if (bytes == NULL) {
            p->is_failed = true;
            return;
        }
        p->bytes = bytes;
        p->capacity = capacity;
    }
    p->bytes[p->size++] = byte;
}

void pack_number(pack *p, uint64_t number)
{
    while (number >= 128) {
        pack_byte(p, (unsigned char)(number | 128));
        number >>= 7;
    }
    pack_byte(p, (unsigned char)number);
}

/* The difference that came last, as often as it came. */
static void write_waiting(pack *p)
{
    if (p->num_waiting > 2) {
        pack_number(p, 2 * p->waiting + 1);
        pack_number(p, p->num_waiting - 1);
    } else {
        for (uint64_t i = 0; i < p->num_waiting; i++)
            pack_number(p, 2 * p->waiting);
    }
    p->num_waiting = 0;
}

void pack_from(pack *p, uint64_t number, uint64_t expected)
{
    bool is_less = number < expected;
    uint64_t difference = is_less ? 2 * (expected - number) - 1 : 2 * (number - expected);
    if (p->num_waiting > 0 && difference != p->waiting)
        write_waiting(p);
    p->waiting = difference;
    p->num_waiting++;
}

void pack_next(pack *p, uint64_t number)
{
    pack_from(p, number, p->last);
    p->last = number;
}

static size_t run_at(const unsigned char *bytes, size_t n, size_t longest)
{
    size_t length = 1;
    while (length < n && length < longest && bytes[length] == bytes[0])
        length++;
    return length;
}

void pack_runs(pack *p, const unsigned char *bytes, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t run = run_at(bytes + i, n - i, LONGEST_RUN);
        if (run >= 2) {
            pack_byte(p, (unsigned char)(run + 126));
            pack_byte(p, bytes[i]);
            i += run;
            continue;
        }
        size_t end = i + 1;
        while (end < n && end - i < LONGEST_LITERAL && run_at(bytes + end, n - end, 3) < 3)
            end++;
        pack_byte(p, (unsigned char)(end - i - 1));
        for (; i < end; i++)
            pack_byte(p, bytes[i]);
    }
}

/* ---- as text --------------------------------------------------------------- */

void pack_print(pack *p, FILE *out)
{
    enum { PART = 3 << 10 };
    unsigned char text[PART / 3 * 4 + 1];
    write_waiting(p);
    putc('"', out);
    for (size_t i = 0; i < p->size; i += PART) {
        size_t left = p->size - i;
        int n = EVP_EncodeBlock(text, p->bytes + i, left < PART ? (int)left : PART);
        fwrite(text, 1, (size_t)n, out);
    }
    putc('"', out);
    p->size = 0;
    p->last = 0;
}

void pack_print_json(const char *json, FILE *out)
{
    if (json == NULL)
        json = "null";
    for (; *json != 0; json++) {
        if (*json == '<') /* inside a string: nowhere else does JSON have it */
            fputs("\\u003c", out);
        else
            putc(*json, out);
    }
}
