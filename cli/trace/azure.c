/* cli/trace/azure.c - the LLM inference traces of the Azure public dataset (2023, 2024).
 *
 *   TIMESTAMP,ContextTokens,GeneratedTokens
 *   2023-11-16 18:15:46.6805900,374,44             also with T in the middle, a zone at the end
 *
 * An open loop; nothing is known of the contents, so every prompt is unique.
 */
#include <string.h>

#include "csv.h"

static const char *const columns[] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};

enum { NUM_COLUMNS = sizeof columns / sizeof columns[0] };

/* `digits` digits as a number in [least, most], then the byte `behind` (0: none); -1: not so. */
static int take_digits(const char **at, int digits, int least, int most, char behind)
{
    int n = 0;
    for (int i = 0; i < digits; i++) {
        char c = (*at)[i];
        if (c < '0' || c > '9')
            return -1;
        n = n * 10 + (c - '0');
    }
    *at += digits;
    if (behind != 0) {
        if (**at != behind)
            return -1;
        (*at)++;
    }
    return n >= least && n <= most ? n : -1;
}

/* Days since 1970-01-01, in years that begin in March. */
static int64_t days_of(int year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468;
}

/* Seconds east of Greenwich: Z, +01:00, or nothing. */
static bool read_zone(const char *at, int *zone_s)
{
    *zone_s = 0;
    if (*at == 0 || strcmp(at, "Z") == 0)
        return true;
    if (*at != '+' && *at != '-')
        return false;
    bool is_west = *at++ == '-';
    int hours = take_digits(&at, 2, 0, 23, ':');
    int minutes = hours < 0 ? -1 : take_digits(&at, 2, 0, 59, 0);
    *zone_s = (is_west ? -60 : 60) * (hours * 60 + minutes);
    return minutes >= 0 && *at == 0;
}

/* Seconds since 1970, and the fraction apart: a double would round it in so large a number. */
static bool read_stamp(const char *at, int64_t *whole_s, double *fraction_s)
{
    int year = take_digits(&at, 4, 1970, 9999, '-');
    int month = year < 0 ? -1 : take_digits(&at, 2, 1, 12, '-');
    int day = month < 0 ? -1 : take_digits(&at, 2, 1, 31, 0);
    if (day < 0 || (*at != ' ' && *at != 'T'))
        return false;
    at++;
    int hour = take_digits(&at, 2, 0, 23, ':');
    int minute = hour < 0 ? -1 : take_digits(&at, 2, 0, 59, ':');
    int second = minute < 0 ? -1 : take_digits(&at, 2, 0, 60, 0);
    if (second < 0)
        return false;
    double fraction = 0;
    if (*at == '.') {
        double unit = 0.1;
        for (at++; *at >= '0' && *at <= '9'; at++) {
            fraction += unit * (*at - '0');
            unit /= 10;
        }
    }
    int zone_s;
    if (!read_zone(at, &zone_s))
        return false;
    *whole_s = days_of(year, month, day) * 86400 + INT64_C(3600) * hour + INT64_C(60) * minute +
               second - zone_s;
    *fraction_s = fraction;
    return true;
}

typedef struct state {
    trace_csv csv;
    bool has_first;
    int64_t first_s;
} state;

static trace_outcome next(trace_reader *reader, trace_request *request)
{
    state *st = reader->state;
    trace_outcome outcome = trace_csv_next(&st->csv, reader, columns, NUM_COLUMNS);
    if (outcome != TRACE_OK)
        return outcome;
    const char *stamp = st->csv.cells[0];
    int64_t whole_s = 0;
    double fraction_s = 0;
    if (!read_stamp(stamp, &whole_s, &fraction_s))
        trace_problem(reader, columns[0],
                      "\"%.40s\" is not a time (expected the form 2023-11-16 18:15:46.680)", stamp);
    outcome = trace_csv_request(&st->csv, reader, columns, request);
    if (outcome != TRACE_OK)
        return outcome;
    if (!st->has_first) {
        st->has_first = true;
        st->first_s = whole_s;
    }
    request->time_s = trace_place(reader, (double)(whole_s - st->first_s) + fraction_s);
    return TRACE_OK;
}

const trace_kind trace_azure = {
    .format = TRACE_AZURE,
    .name = "azure",
    .state_bytes = sizeof(state),
    .next = next,
};
