/* cli/trace/json.c - a scanner for JSON: see json.h.
 *
 * The window of an input always has NUMBER_BYTES in it, unless its end is near: so a number or a
 * word is never cut in two. Strings are cut anywhere.
 */
#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 64, WINDOW_BYTES = 1 << 16 };

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static bool fail(scanner *scan, const char *why)
{
    if (scan->error == NULL)
        scan->error = why;
    return false;
}

void scan_of_text(scanner *scan, const char *text, size_t length)
{
    *scan = (scanner){
        .at = text, .end = text + length, .window = text, .counted = text, .is_first = true};
}

/* The window is the next num_bytes of the input. */
static void show(scanner *scan, size_t num_bytes)
{
    scan->window = input_bytes(scan->in);
    scan->at = scan->window;
    scan->counted = scan->window;
    scan->end = scan->window + num_bytes;
    scan->limit -= num_bytes;
}

void scan_of_input(scanner *scan, input *in, uint64_t num_bytes)
{
    *scan = (scanner){.in = in, .limit = num_bytes, .line = 1, .is_first = true};
    show(scan, 0);
}

uint64_t scan_line_number(scanner *scan)
{
    const char *from = scan->counted;
    while ((from = memchr(from, '\n', (size_t)(scan->at - from))) != NULL) {
        scan->line++;
        from++;
    }
    scan->counted = scan->at;
    return scan->line;
}

void scan_leave(scanner *scan)
{
    if (scan->in == NULL)
        return;
    scan_line_number(scan);
    scan->limit += (uint64_t)(scan->end - scan->at);
    input_skip(scan->in, (size_t)(scan->at - scan->window));
    show(scan, 0);
}

/* Moves the window on to `at`; false when nothing new came into it. */
static bool move_window(scanner *scan)
{
    if (scan->in == NULL || scan->error != NULL)
        return false;
    size_t before = (size_t)(scan->end - scan->at);
    scan_leave(scan);
    size_t want = scan->limit < WINDOW_BYTES ? (size_t)scan->limit : WINDOW_BYTES;
    size_t n = input_ahead(scan->in, want);
    if (input_error(scan->in) != NULL)
        return fail(scan, input_error(scan->in));
    if (n > want)
        n = want;
    show(scan, n);
    return n > before;
}

/* The next byte, 0 at the end of the text. A 0 byte inside it is no JSON either. */
static inline char byte_at(scanner *scan)
{
    if (scan->at == scan->end && !move_window(scan))
        return 0;
    return *scan->at;
}

static char skip_blanks(scanner *scan)
{
    for (;;) {
        char c = byte_at(scan);
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        scan->at++;
    }
}

static void see_whole_word(scanner *scan)
{
    if (scan->in != NULL && scan->end - scan->at < NUMBER_BYTES)
        move_window(scan);
}

scan_kind scan_peek(scanner *scan)
{
    if (scan->error != NULL)
        return JSON_NOTHING;
    char c = skip_blanks(scan);
    if (c == '{')
        return JSON_OBJECT;
    if (c == '[')
        return JSON_ARRAY;
    if (c == '"')
        return JSON_STRING;
    if (c == '-' || (c >= '0' && c <= '9'))
        return JSON_NUMBER;
    if (c == 't' || c == 'f')
        return JSON_BOOL;
    return c == 'n' ? JSON_NULL : JSON_NOTHING;
}

bool scan_at_end(scanner *scan)
{
    return scan->error == NULL && skip_blanks(scan) == 0 && scan->at == scan->end &&
           scan->error == NULL; /* the last blank may have shown that the file is cut off */
}

bool scan_open(scanner *scan, char bracket)
{
    if (scan->error != NULL)
        return false;
    if (skip_blanks(scan) != bracket)
        return fail(scan, bracket == '{' ? "expected an object" : "expected a list");
    scan->at++;
    scan->is_first = true;
    return true;
}

/* A comma where one is due, or the closing bracket. 1: a value follows; 0: closed. */
static int step(scanner *scan, char closing)
{
    if (scan->error != NULL)
        return -1;
    char c = skip_blanks(scan);
    if (c == closing) {
        scan->at++;
        scan->is_first = false;
        return 0;
    }
    if (!scan->is_first) {
        if (c != ',') {
            fail(scan,
                 c == 0 ? "unexpected end of the text" : "\",\" or a closing bracket is missing");
            return -1;
        }
        scan->at++;
        skip_blanks(scan);
    }
    scan->is_first = false;
    return 1;
}

int scan_element(scanner *scan)
{
    return step(scan, ']');
}

int scan_field(scanner *scan, scan_text *name)
{
    int more = step(scan, '}');
    if (more != 1)
        return more;
    if (!scan_string(scan, name))
        return -1;
    if (skip_blanks(scan) != ':') {
        fail(scan, "\":\" is missing");
        return -1;
    }
    scan->at++;
    return 1;
}

/* ---- numbers --------------------------------------------------------------- */

static inline bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Behind the digits of an integer: a fraction, an exponent. Its value is strtod's. */
static bool read_real(scanner *scan, const char *from, const char *p, scan_value *value)
{
    if (*p == '.') {
        if (!is_digit(*++p))
            return fail(scan, "a digit is missing");
        while (is_digit(*p))
            p++;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        if (!is_digit(*p))
            return fail(scan, "a digit is missing");
        while (is_digit(*p))
            p++;
    }
    char copy[NUMBER_BYTES];
    size_t length = (size_t)(p - from);
    if (length >= NUMBER_BYTES || p > scan->end)
        return fail(scan, "a number has too many digits");
    memcpy(copy, from, length);
    copy[length] = 0;
    value->real = strtod(copy, NULL);
    value->is_integer = false;
    value->length = (int)length;
    scan->at = p;
    return true;
}

bool scan_number(scanner *scan, scan_value *value)
{
    if (scan->error != NULL)
        return false;
    skip_blanks(scan);
    see_whole_word(scan);
    const char *from = scan->at;
    const char *p = from;
    bool is_negative = *p == '-';
    p += is_negative;
    const char *digits = p;
    uint64_t n = 0;
    while (is_digit(*p))
        n = n * 10 + (uint64_t)(*p++ - '0');
    long num_digits = p - digits;
    if (num_digits == 0)
        return fail(scan, "expected a number");
    if (p > scan->end) /* the window is longer than any number */
        return fail(scan, "a number has too many digits");
    if (num_digits > 1 && *digits == '0')
        return fail(scan, "a number has a leading 0");
    value->is_negative = is_negative;
    value->text = from;
    value->magnitude = n;
    /* of 20 digits that begin with 1, what 64 bits do not hold has wrapped to less than 10^19 */
    bool fits = num_digits < 20 ||
                (num_digits == 20 && *digits == '1' && n >= UINT64_C(10000000000000000000));
    if (*p == '.' || *p == 'e' || *p == 'E' || !fits)
        return read_real(scan, from, p, value);
    value->is_integer = true;
    value->real = is_negative ? -(double)n : (double)n;
    value->length = (int)(p - from);
    scan->at = p;
    return true;
}

/* ---- strings --------------------------------------------------------------- */

/* Where the bytes of a string go. */
typedef struct sink {
    scan_text *text;
    scan_tap *tap; /* NULL: none */
} sink;

static inline void add_byte(const sink *to, unsigned char byte)
{
    scan_text *text = to->text;
    if (text->num_bytes < JSON_NAME_BYTES - 1)
        text->head[text->num_bytes] = (char)byte;
    text->num_bytes++;
    text->hash = (text->hash ^ byte) * FNV_PRIME;
    if (to->tap != NULL)
        to->tap->take(to->tap, byte);
}

static void add_code_point(const sink *text, uint32_t c)
{
    if (c < 0x80) {
        add_byte(text, (unsigned char)c);
        return;
    }
    if (c < 0x800) {
        add_byte(text, (unsigned char)(0xc0 | c >> 6));
    } else {
        if (c < 0x10000) {
            add_byte(text, (unsigned char)(0xe0 | c >> 12));
        } else {
            add_byte(text, (unsigned char)(0xf0 | c >> 18));
            add_byte(text, (unsigned char)(0x80 | (c >> 12 & 0x3f)));
        }
        add_byte(text, (unsigned char)(0x80 | (c >> 6 & 0x3f)));
    }
    add_byte(text, (unsigned char)(0x80 | (c & 0x3f)));
}

/* Four hexadecimal digits at `at`; UINT32_MAX: there are none. */
static uint32_t read_hex(scanner *scan)
{
    uint32_t c = 0;
    for (int i = 0; i < 4; i++) {
        char h = byte_at(scan);
        uint32_t digit;
        if (is_digit(h))
            digit = (uint32_t)(h - '0');
        else if ((h | 0x20) >= 'a' && (h | 0x20) <= 'f')
            digit = (uint32_t)((h | 0x20) - 'a' + 10);
        else
            return UINT32_MAX;
        scan->at++;
        c = c << 4 | digit;
    }
    return c;
}

/* Behind \u: one code point, from two halves where it takes two; half of one is U+FFFD. */
static bool read_unicode(scanner *scan, const sink *text)
{
    uint32_t c = read_hex(scan);
    if (c == UINT32_MAX)
        return fail(scan, "\\u needs four hexadecimal digits");
    bool is_first_half = c >= 0xd800 && c < 0xdc00;
    see_whole_word(scan);
    if (is_first_half && scan->end - scan->at >= 2 && scan->at[0] == '\\' && scan->at[1] == 'u') {
        scan->at += 2;
        uint32_t second = read_hex(scan);
        if (second == UINT32_MAX)
            return fail(scan, "\\u needs four hexadecimal digits");
        if (second >= 0xdc00 && second < 0xe000) {
            add_code_point(text, 0x10000 + ((c - 0xd800) << 10) + (second - 0xdc00));
            return true;
        }
        add_code_point(text, 0xfffd);
        c = second;
    }
    add_code_point(text, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
    return true;
}

static bool read_escape(scanner *scan, const sink *text)
{
    static const char names[] = "\"\\/bfnrt";
    static const char bytes[] = "\"\\/\b\f\n\r\t";
    scan->at++;
    char c = byte_at(scan);
    if (c == 0)
        return fail(scan, "unterminated string");
    scan->at++;
    if (c == 'u')
        return read_unicode(scan, text);
    const char *name = strchr(names, c);
    if (name == NULL)
        return fail(scan, "invalid escape sequence");
    add_byte(text, (unsigned char)bytes[name - names]);
    return true;
}

bool scan_string(scanner *scan, scan_text *text)
{
    return scan_string_to(scan, text, NULL);
}

bool scan_string_to(scanner *scan, scan_text *text, scan_tap *tap)
{
    const sink to = {text, tap};
    if (scan->error != NULL)
        return false;
    if (skip_blanks(scan) != '"')
        return fail(scan, "expected a string");
    scan->at++;
    text->num_bytes = 0;
    text->hash = FNV_START;
    for (;;) {
        char c = byte_at(scan);
        if (c == '"')
            break;
        if (c == '\\') {
            if (!read_escape(scan, &to))
                return false;
            continue;
        }
        if ((unsigned char)c < 0x20) {
            bool is_end = c == 0 && scan->at == scan->end;
            return fail(scan, is_end ? "unterminated string" : "a control character in a string");
        }
        add_byte(&to, (unsigned char)c);
        scan->at++;
    }
    scan->at++;
    size_t kept = text->num_bytes < JSON_NAME_BYTES ? text->num_bytes : JSON_NAME_BYTES - 1;
    text->head[kept] = 0;
    return true;
}

/* ---- the rest -------------------------------------------------------------- */

static bool take_word(scanner *scan, const char *word)
{
    see_whole_word(scan);
    size_t length = strlen(word);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
        return fail(scan, "invalid JSON value");
    scan->at += length;
    return true;
}

bool scan_bool(scanner *scan, bool *value)
{
    if (scan_peek(scan) != JSON_BOOL)
        return fail(scan, "expected true or false");
    *value = *scan->at == 't';
    return take_word(scan, *value ? "true" : "false");
}

static bool skip_scalar(scanner *scan)
{
    scan_text text;
    scan_value value;
    bool is_true;
    switch (scan_peek(scan)) {
    case JSON_STRING:
        return scan_string(scan, &text);
    case JSON_NUMBER:
        return scan_number(scan, &value);
    case JSON_BOOL:
        return scan_bool(scan, &is_true);
    case JSON_NULL:
        return take_word(scan, "null");
    default:
        return fail(scan, byte_at(scan) == 0 ? "unexpected end of the text" : "expected a value");
    }
}

bool scan_skip(scanner *scan)
{
    bool is_object[JSON_MAX_DEPTH];
    int depth = 0;
    scan_text name;
    do {
        scan_kind kind = scan_peek(scan);
        if (kind == JSON_OBJECT || kind == JSON_ARRAY) {
            if (depth == JSON_MAX_DEPTH)
                return fail(scan, "brackets are nested too deep");
            is_object[depth++] = kind == JSON_OBJECT;
            scan_open(scan, kind == JSON_OBJECT ? '{' : '[');
        } else if (!skip_scalar(scan)) {
            return false;
        }
        int more = 0;
        while (depth > 0) {
            more = is_object[depth - 1] ? scan_field(scan, &name) : scan_element(scan);
            if (more != 0)
                break;
            depth--;
        }
        if (more < 0)
            return false;
    } while (depth > 0);
    return true;
}
