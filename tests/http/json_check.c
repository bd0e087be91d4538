#include "http/json_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/unit.h"

enum { MAX_DEPTH = 16 };

typedef struct scan {
    const unsigned char *at;
    const unsigned char *end;
} scan;

static void skip_blanks(scan *s)
{
    while (s->at < s->end && strchr(" \t\r\n", *s->at) != NULL && *s->at != 0)
        s->at++;
}

static bool take(scan *s, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(s->end - s->at) < len || memcmp(s->at, text, len) != 0)
        return false;
    s->at += len;
    return true;
}

static bool take_digits(scan *s)
{
    const unsigned char *first = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at > first;
}

static bool take_number(scan *s)
{
    take(s, "-");
    if (!take(s, "0") && !take_digits(s))
        return false;
    if (take(s, ".") && !take_digits(s))
        return false;
    if (take(s, "e") || take(s, "E"))
        return (take(s, "+") || take(s, "-") || true) && take_digits(s);
    return s->at == s->end || *s->at < '0' || *s->at > '9'; /* no 01 */
}

static bool take_escape(scan *s)
{
    if (s->at < s->end && *s->at == 'u') {
        s->at++;
        for (int i = 0; i < 4; i++, s->at++)
            if (s->at == s->end || *s->at == 0 || strchr("0123456789abcdefABCDEF", *s->at) == NULL)
                return false;
        return true;
    }
    return s->at < s->end && *s->at != 0 && strchr("\"\\/bfnrt", *s->at++) != NULL;
}

static bool take_string(scan *s)
{
    if (!take(s, "\""))
        return false;
    while (s->at < s->end && *s->at != '"') {
        unsigned char c = *s->at++;
        if (c < 0x20 || (c == '\\' && !take_escape(s)))
            return false;
    }
    return take(s, "\"");
}

static bool take_value(scan *s, int depth);

static bool take_list(scan *s, const char *end, bool has_keys, int depth)
{
    skip_blanks(s);
    if (take(s, end))
        return true;
    do {
        skip_blanks(s);
        if (has_keys) {
            if (!take_string(s))
                return false;
            skip_blanks(s);
            if (!take(s, ":"))
                return false;
        }
        if (!take_value(s, depth + 1))
            return false;
        skip_blanks(s);
    } while (take(s, ","));
    return take(s, end);
}

static bool take_value(scan *s, int depth)
{
    skip_blanks(s);
    if (depth > MAX_DEPTH || s->at == s->end)
        return false;
    if (take(s, "{"))
        return take_list(s, "}", true, depth);
    if (take(s, "["))
        return take_list(s, "]", false, depth);
    if (*s->at == '"')
        return take_string(s);
    return take(s, "null") || take(s, "true") || take(s, "false") || take_number(s);
}

bool json_check(const char *text, size_t num_bytes)
{
    scan s = {(const unsigned char *)text, (const unsigned char *)text + num_bytes};
    if (!take_value(&s, 0))
        return false;
    skip_blanks(&s);
    return s.at == s.end;
}

uint64_t json_number(const char *text, const char *key)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *found = strstr(text, wanted);
    if (found == NULL)
        fail_msg("no %s in %.200s", wanted, text);
    return strtoull(found + strlen(wanted), NULL, 10);
}

uint64_t json_steps(const char *text, uint64_t *first, uint64_t *last)
{
    uint64_t num = 0;
    const char *at = strstr(text, "\"steps\":[");
    if (at == NULL)
        fail_msg("no steps in %.200s", text);
    for (at += strlen("\"steps\":["); *at == '['; num++) {
        uint64_t step = strtoull(at + 1, NULL, 10);
        if (num == 0)
            *first = step;
        *last = step;
        at = strchr(at, ']') + 1;
        at += *at == ',';
    }
    return num;
}
