/* cli/trace/tables.c - traces that are tables with commas: Azure's and BurstGPT's.
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens        the LLM inference traces of the Azure public
 *   2023-11-16 18:15:46.6805900,374,44             dataset (2023, 2024); also with T in the middle,
 *                                                  a zone at the end
 *   Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
 *   5,ChatGPT,472,18,490,Conversation log          BurstGPT: times are in seconds; a response of 0
 *                                                  tokens is a request that failed, and counts with
 *                                                  one
 *
 * An open loop; nothing is known of the contents, so every prompt is unique. The header says which
 * column is where. A cell may be quoted ("a,b", "" for one quote); a row is one line.
 */
#include "reader.h"

#include <string.h>
#include <time.h>

enum { COLUMN_TIME, COLUMN_PROMPT, COLUMN_OUTPUT, NUM_COLUMNS, MAX_PLACES = 32 };

typedef struct state {
    uint32_t places[NUM_COLUMNS];   /* of each, in a row */
    const char *cells[NUM_COLUMNS]; /* of each, in the row last read */
    bool has_header;
} state;

/* ---- rows ------------------------------------------------------------------ */

/* The cell at *at, 0-terminated in its place; *at moves behind the comma, or becomes NULL. */
static char *take_cell(char **at)
{
    char *from = *at;
    char *to = from;
    char *cell = from;
    bool is_quoted = *from == '"';
    if (is_quoted) {
        from++;
        while (*from != 0 && (*from != '"' || from[1] == '"')) {
            from += *from == '"';
            *to++ = *from++;
        }
    }
    from += strcspn(from, ",");
    if (!is_quoted)
        to = from;
    *at = *from == ',' ? from + 1 : NULL;
    *to = 0;
    while (to > cell && (to[-1] == ' ' || to[-1] == '\t'))
        *--to = 0;
    return cell + strspn(cell, " \t");
}

static trace_outcome read_header(trace_reader *reader, char *line, const char *const *columns)
{
    state *st = reader->state;
    for (uint32_t c = 0; c < NUM_COLUMNS; c++)
        st->places[c] = MAX_PLACES;
    uint32_t place = 0;
    for (char *at = line; at != NULL && place < MAX_PLACES; place++) {
        const char *cell = take_cell(&at);
        for (uint32_t c = 0; c < NUM_COLUMNS; c++)
            if (strcmp(cell, columns[c]) == 0)
                st->places[c] = place;
    }
    for (uint32_t c = 0; c < NUM_COLUMNS; c++) {
        if (st->places[c] == MAX_PLACES) {
            trace_problem(reader, NULL, "the first line has no column \"%s\"", columns[c]);
            return TRACE_BROKEN;
        }
    }
    st->has_header = true;
    return TRACE_OK;
}

/* Reads the header at the first call, then one row. */
static trace_outcome next_row(trace_reader *reader, const char *const *columns)
{
    state *st = reader->state;
    char *line;
    size_t length;
    trace_outcome outcome = trace_next_line(reader, &line, &length);
    if (outcome == TRACE_OK && !st->has_header) {
        outcome = read_header(reader, line, columns);
        if (outcome == TRACE_OK)
            outcome = trace_next_line(reader, &line, &length);
    }
    if (outcome != TRACE_OK)
        return outcome;
    memset(st->cells, 0, sizeof st->cells);
    uint32_t place = 0;
    for (char *at = line; at != NULL; place++) {
        const char *cell = take_cell(&at);
        for (uint32_t c = 0; c < NUM_COLUMNS; c++)
            if (st->places[c] == place)
                st->cells[c] = cell;
    }
    for (uint32_t c = 0; c < NUM_COLUMNS; c++)
        if (st->cells[c] == NULL)
            return trace_problem(reader, columns[c], "the row has only %u cells", place);
    return TRACE_OK;
}

/* ---- cells ----------------------------------------------------------------- */

/* A cell is read as a value of JSON is. */
static bool open_cell(trace_reader *reader, const char *field, const char *cell, scanner *scan)
{
    size_t length = strlen(cell);
    if (length == 0) {
        trace_problem(reader, field, "is missing");
        return false;
    }
    scan_of_text(scan, cell, length);
    scan_value value;
    if (scan_peek(scan) != JSON_NUMBER || !scan_number(scan, &value) || !scan_at_end(scan)) {
        trace_problem(reader, field, "\"%.40s\" is not a number", cell);
        return false;
    }
    scan_of_text(scan, cell, length);
    return true;
}

static int64_t length_of(trace_reader *reader, const char *field, const char *cell)
{
    scanner scan;
    int64_t tokens = -1;
    if (open_cell(reader, field, cell, &scan))
        trace_take_length(reader, &scan, field, &tokens);
    return tokens;
}

static trace_outcome fill_request(trace_reader *reader, const char *const *columns,
                                  trace_request *request)
{
    const state *st = reader->state;
    const char *prompt = columns[COLUMN_PROMPT];
    const char *output = columns[COLUMN_OUTPUT];
    int64_t num_prompt_tokens = length_of(reader, prompt, st->cells[COLUMN_PROMPT]);
    int64_t num_output_tokens = length_of(reader, output, st->cells[COLUMN_OUTPUT]);
    if (!trace_check_lengths(reader, prompt, num_prompt_tokens, output, &num_output_tokens))
        return TRACE_BAD;
    trace_push_unique(reader, (uint32_t)num_prompt_tokens);
    return trace_fill(reader, request, (uint32_t)num_output_tokens) ? TRACE_OK : TRACE_BAD;
}

/* ---- Azure ----------------------------------------------------------------- */

/* Whether a text begins as the form does, which has a 0 for any digit. */
static bool has_form(const char *text, const char *form)
{
    for (; *form != 0; form++, text++)
        if (*form == '0' ? *text < '0' || *text > '9' : *text != *form)
            return false;
    return true;
}

static int number_at(const char *digits, int num_digits)
{
    int n = 0;
    for (int i = 0; i < num_digits; i++)
        n = n * 10 + (digits[i] - '0');
    return n;
}

/* Seconds east of Greenwich: Z, +01:00, or nothing. */
static bool read_zone(const char *at, int *zone_s)
{
    *zone_s = 0;
    if (*at == 0 || strcmp(at, "Z") == 0)
        return true;
    if ((*at != '+' && *at != '-') || !has_form(at + 1, "00:00") || at[6] != 0)
        return false;
    int hours = number_at(at + 1, 2);
    int minutes = number_at(at + 4, 2);
    *zone_s = (*at == '-' ? -60 : 60) * (hours * 60 + minutes);
    return hours <= 23 && minutes <= 59;
}

/* Seconds since 1970, and the fraction apart: a double would round it in so large a number. */
static bool read_stamp(const char *at, int64_t *whole_s, double *fraction_s)
{
    int zone_s;
    if (!has_form(at, "0000-00-00") || (at[10] != ' ' && at[10] != 'T') ||
        !has_form(at + 11, "00:00:00"))
        return false;
    struct tm t = {.tm_year = number_at(at, 4) - 1900,
                   .tm_mon = number_at(at + 5, 2) - 1,
                   .tm_mday = number_at(at + 8, 2),
                   .tm_hour = number_at(at + 11, 2),
                   .tm_min = number_at(at + 14, 2),
                   .tm_sec = number_at(at + 17, 2)};
    if (t.tm_year < 70 || t.tm_mon < 0 || t.tm_mon > 11 || t.tm_mday < 1 || t.tm_mday > 31 ||
        t.tm_hour > 23 || t.tm_min > 59 || t.tm_sec > 60)
        return false;
    at += strlen("0000-00-00 00:00:00");
    *fraction_s = 0;
    if (*at == '.') {
        double unit = 0.1;
        for (at++; *at >= '0' && *at <= '9'; at++) {
            *fraction_s += unit * (*at - '0');
            unit /= 10;
        }
    }
    if (!read_zone(at, &zone_s))
        return false;
    *whole_s = (int64_t)timegm(&t) - zone_s;
    return true;
}

static trace_outcome next_azure(trace_reader *reader, trace_request *request)
{
    static const char *const columns[] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};
    state *st = reader->state;
    trace_outcome outcome = next_row(reader, columns);
    if (outcome != TRACE_OK)
        return outcome;
    const char *stamp = st->cells[COLUMN_TIME];
    int64_t whole_s = 0;
    double fraction_s = 0;
    if (!read_stamp(stamp, &whole_s, &fraction_s))
        trace_problem(reader, columns[COLUMN_TIME],
                      "\"%.40s\" is not a time (expected the form 2023-11-16 18:15:46.680)", stamp);
    outcome = fill_request(reader, columns, request);
    if (outcome != TRACE_OK)
        return outcome;
    trace_clock *clock = reader->clock;
    if (!clock->has_first)
        clock->whole_s = whole_s;
    request->time_s = trace_place(reader, (double)(whole_s - clock->whole_s) + fraction_s);
    return TRACE_OK;
}

const trace_kind trace_azure = {
    .format = TRACE_AZURE, .name = "azure", .state_bytes = sizeof(state), .next = next_azure};

/* ---- BurstGPT -------------------------------------------------------------- */

static trace_outcome next_burstgpt(trace_reader *reader, trace_request *request)
{
    static const char *const columns[] = {"Timestamp", "Request tokens", "Response tokens"};
    const state *st = reader->state;
    scanner scan;
    double time_s = -1;
    trace_outcome outcome = next_row(reader, columns);
    if (outcome != TRACE_OK)
        return outcome;
    if (open_cell(reader, columns[COLUMN_TIME], st->cells[COLUMN_TIME], &scan))
        trace_take_time(reader, &scan, columns[COLUMN_TIME], &time_s);
    outcome = fill_request(reader, columns, request);
    if (outcome == TRACE_OK)
        request->time_s = trace_place(reader, time_s);
    return outcome;
}

const trace_kind trace_burstgpt = {.format = TRACE_BURSTGPT,
                                   .name = "burstgpt",
                                   .state_bytes = sizeof(state),
                                   .next = next_burstgpt};
