/* tests/cli/page_data.h - a page is written, its JSON text is taken out of the file and decoded a
 * second time, from the description in docs/page-data.md.
 */
#ifndef QUIRE_TESTS_CLI_PAGE_DATA_H
#define QUIRE_TESTS_CLI_PAGE_DATA_H

#include "base/unit.h"
#include "page/page.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- decoding -------------------------------------------------------------- */

typedef struct bytes {
    unsigned char *at;
    size_t size;
    size_t next;
} bytes;

static inline bytes bytes_of(const char *text)
{
    static const char LETTERS[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes b = {.at = malloc(strlen(text) + 1)};
    uint32_t bits = 0;
    uint32_t num_bits = 0;
    for (; *text != 0 && *text != '='; text++) {
        const char *letter = strchr(LETTERS, *text);
        assert_non_null(letter);
        bits = (bits << 6 | (uint32_t)(letter - LETTERS)) & 0xffffff;
        num_bits += 6;
        if (num_bits >= 8) {
            num_bits -= 8;
            b.at[b.size++] = (unsigned char)(bits >> num_bits);
        }
    }
    return b;
}

static inline uint64_t number_of(bytes *b)
{
    uint64_t number = 0;
    for (uint32_t shift = 0;; shift += 7) {
        assert_true(b->next < b->size && shift < 64);
        unsigned char byte = b->at[b->next++];
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return number;
    }
}

/* Differences, not added up. */
static inline void differences_of(const char *text, int64_t *column, size_t count)
{
    bytes b = bytes_of(text);
    size_t i = 0;
    while (i < count) {
        uint64_t coded = number_of(&b);
        uint64_t value = coded / 2;
        int64_t difference = value % 2 ? -(int64_t)(value / 2) - 1 : (int64_t)(value / 2);
        size_t again = coded % 2 ? (size_t)number_of(&b) : 0;
        assert_true(again < count - i);
        for (size_t end = i + 1 + again; i < end; i++)
            column[i] = difference;
    }
    assert_int_equal(b.next, b.size);
    free(b.at);
}

static inline void column_of(const json_t *table, const char *name, int64_t *column, size_t count)
{
    const char *text = json_string_value(json_object_get(table, name));
    assert_non_null(text);
    differences_of(text, column, count);
    for (size_t i = 1; i < count; i++)
        column[i] += column[i - 1];
}

static inline size_t count_of(const json_t *table, const char *name)
{
    const json_t *found = json_object_get(table, name);
    assert_true(json_is_integer(found));
    return (size_t)json_integer_value(found);
}

/* ---- a page that is written and read again --------------------------------- */

static inline char *read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(in);
    rewind(in);
    char *text = malloc(size + 1);
    assert_int_equal(fread(text, 1, size, in), size);
    text[size] = 0;
    fclose(in);
    return text;
}

/* What stands in the page between the data's element and its end. */
static inline json_t *data_of(const page *p, const char *report)
{
    char path[] = "test_page_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *out = fdopen(fd, "w");
    assert_true(page_write(p, out, report));
    assert_int_equal(fclose(out), 0);
    char *html = read_file(path);
    unlink(path);
    static const char OPENING[] = "<script type=\"application/json\" id=\"data\">";
    char *start = strstr(html, OPENING);
    assert_non_null(start);
    start += strlen(OPENING);
    char *end = strstr(start, "</script>");
    assert_non_null(end);
    json_error_t error;
    json_t *data = json_loadb(start, (size_t)(end - start), 0, &error);
    assert_non_null(data);
    free(html);
    return data;
}

#endif
