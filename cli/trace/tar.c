#include "tar.h"

#include <string.h>

enum { SIZE_AT = 124, SIZE_BYTES = 12, SUM_AT = 148, SUM_BYTES = 8, KIND_AT = 156 };

/* Octal digits, or, from 8 GiB on, a binary number marked by its first bit. */
static bool read_size(const char *field, uint64_t *size)
{
    const unsigned char *bytes = (const unsigned char *)field;
    uint64_t n = 0;
    if (bytes[0] & 0x80) {
        for (int i = SIZE_BYTES - 8; i < SIZE_BYTES; i++)
            n = n << 8 | bytes[i];
        *size = n;
        return n < UINT64_C(1) << 60;
    }
    int i = 0;
    while (i < SIZE_BYTES && field[i] == ' ')
        i++;
    for (; i < SIZE_BYTES && field[i] >= '0' && field[i] <= '7'; i++)
        n = n << 3 | (uint64_t)(field[i] - '0');
    *size = n;
    return i == SIZE_BYTES || field[i] == ' ' || field[i] == 0;
}

/* The sum of all bytes, those of the sum itself as blanks. */
static bool has_right_sum(const char *head)
{
    uint32_t sum = 0;
    uint32_t noted = 0;
    for (int i = 0; i < TRACE_TAR_BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : (unsigned char)head[i];
    int i = SUM_AT;
    while (i < SUM_AT + SUM_BYTES && head[i] == ' ')
        i++;
    if (i == SUM_AT + SUM_BYTES || head[i] < '0' || head[i] > '7')
        return false;
    for (; i < SUM_AT + SUM_BYTES && head[i] >= '0' && head[i] <= '7'; i++)
        noted = noted << 3 | (uint32_t)(head[i] - '0');
    return noted == sum;
}

bool trace_tar_is_header(const char *head, size_t num_bytes)
{
    return num_bytes >= TRACE_TAR_BLOCK && has_right_sum(head);
}

static bool skip_bytes(trace_tar *tar, input *in, uint64_t num_bytes)
{
    while (num_bytes > 0) {
        size_t n = input_ahead(in, 1);
        if (n == 0) {
            tar->error = "the archive ends too early";
            return false;
        }
        if (n > num_bytes)
            n = (size_t)num_bytes;
        input_skip(in, n);
        num_bytes -= n;
    }
    return true;
}

static uint64_t padding(uint64_t size)
{
    return (TRACE_TAR_BLOCK - size % TRACE_TAR_BLOCK) % TRACE_TAR_BLOCK;
}

static bool is_zero(const char *head)
{
    for (int i = 0; i < TRACE_TAR_BLOCK; i++)
        if (head[i] != 0)
            return false;
    return true;
}

int trace_tar_next(trace_tar *tar, input *in, uint64_t left)
{
    uint64_t pass_over = left + padding(tar->size);
    for (;;) {
        if (!skip_bytes(tar, in, pass_over))
            return -1;
        size_t n = input_ahead(in, TRACE_TAR_BLOCK);
        const char *head = input_bytes(in);
        if (n == 0 && input_error(in) == NULL)
            return 0;
        if (n >= TRACE_TAR_BLOCK && is_zero(head))
            return 0;
        if (n < TRACE_TAR_BLOCK || !has_right_sum(head) || !read_size(head + SIZE_AT, &tar->size)) {
            tar->error = n < TRACE_TAR_BLOCK ? "the archive ends too early"
                                             : "the archive is damaged: no header where one is due";
            return -1;
        }
        memcpy(tar->name, head, TRACE_TAR_NAME_BYTES - 1);
        tar->name[TRACE_TAR_NAME_BYTES - 1] = 0;
        char kind = head[KIND_AT];
        input_skip(in, TRACE_TAR_BLOCK);
        if (kind == '0' || kind == 0)
            return 1;
        pass_over = tar->size + padding(tar->size);
    }
}
