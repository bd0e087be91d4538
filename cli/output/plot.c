#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <sys/ioctl.h>

enum {
    LABEL_COLUMNS = 10,
    DOTS_X = 2,
    DOTS_Y = 4,
    MAX_WIDTH = 120,
    MIN_WIDTH = 40,
    MAX_TICKS = 12
};

/* What stands behind the numbers of an axis, and what one of it is. */
typedef struct plot_unit {
    const char *name;
    double ms;
} plot_unit;

typedef struct canvas {
    uint32_t columns;
    uint32_t rows;
    uint8_t *dots;   /* a Braille pattern for each cell */
    uint8_t *series; /* that was first there, plus 1 */
    double x_low;    /* what is drawn: logarithms where is_log_x */
    double x_high;
    double y_high;
    plot_unit unit; /* of y */
} canvas;

void plot_short_number(char *text, size_t bytes, double number)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    size_t unit = 0;
    while (fabs(number) >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        number /= 1000;
        unit++;
    }
    snprintf(text, bytes, "%.3g%s", number, units[unit]);
}

static uint32_t line_width(const plot *p, FILE *out)
{
    struct winsize size = {0};
    uint32_t width = p->width;
    if (width == 0)
        width = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    if (width > MAX_WIDTH)
        width = MAX_WIDTH;
    return width < MIN_WIDTH ? MIN_WIDTH : width;
}

/* ---- scales ---------------------------------------------------------------- */

static double x_scale(const plot *p, double x)
{
    return p->is_log_x ? log10(x > 1e-12 ? x : 1e-12) : x;
}

/* 1, 2 or 5 times a power of ten, and not less than `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));
    double times = least / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* One unit for all labels of the axis. */
static plot_unit time_unit(const plot *p, double most_ms)
{
    static const plot_unit units[] = {{" ms", 1}, {" s", 1e3}, {" min", 60e3}, {" h", 3600e3}};
    size_t at = 0;
    if (!p->is_time)
        return (plot_unit){p->y_unit != NULL ? p->y_unit : "", 1};
    while (at + 1 < sizeof units / sizeof *units && most_ms >= 2 * units[at + 1].ms)
        at++;
    return units[at];
}

static bool find_limits(const plot *p, canvas *c)
{
    bool is_first = true;
    c->x_high = 0;
    c->x_low = 0;
    c->y_high = 0;
    for (uint32_t s = 0; s < p->num_series; s++)
        for (uint32_t i = 0; i < p->series[s].num_points; i++) {
            double x = x_scale(p, p->series[s].x[i]);
            c->x_low = is_first || x < c->x_low ? x : c->x_low;
            c->x_high = is_first || x > c->x_high ? x : c->x_high;
            c->y_high = fmax(c->y_high, p->series[s].y[i]);
            is_first = false;
        }
    if (!p->is_log_x && c->x_low > 0)
        c->x_low = 0;
    if (c->x_high <= c->x_low)
        c->x_high = c->x_low + 1;
    c->unit = time_unit(p, c->y_high);
    if (c->y_high > 0) {
        double step = round_step(c->y_high / c->unit.ms / 4) * c->unit.ms;
        c->y_high = step * ceil(c->y_high / step * (1 - 1e-12));
    }
    return !is_first;
}

/* ---- dots ------------------------------------------------------------------ */

static void set_dot(canvas *c, uint32_t x, uint32_t y, uint32_t series)
{
    static const uint8_t bits[DOTS_Y][DOTS_X] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    uint32_t cell = y / DOTS_Y * c->columns + x / DOTS_X;
    c->dots[cell] |= bits[y % DOTS_Y][x % DOTS_X];
    if (c->series[cell] == 0)
        c->series[cell] = (uint8_t)(series + 1);
}

static double dot_x(const canvas *c, double x)
{
    return (x - c->x_low) / (c->x_high - c->x_low) * (c->columns * DOTS_X - 1);
}

static double dot_y(const canvas *c, double y)
{
    return (1 - y / c->y_high) * (c->rows * DOTS_Y - 1);
}

/* A straight line, every `gap`-th dot of it. `phase` goes on from line to line. */
static void draw_line(canvas *c, const double from[2], const double to[2], uint32_t series,
                      uint32_t *phase)
{
    double length = fmax(fabs(to[0] - from[0]), fabs(to[1] - from[1]));
    uint32_t num_dots = (uint32_t)ceil(length) + 1;
    uint32_t gap = series + 1 + (series > 0);
    for (uint32_t i = 0; i < num_dots; i++) {
        double share = num_dots > 1 ? (double)i / (num_dots - 1) : 0;
        if ((*phase)++ % gap == 0)
            set_dot(c, (uint32_t)lrint(from[0] + share * (to[0] - from[0])),
                    (uint32_t)lrint(from[1] + share * (to[1] - from[1])), series);
    }
}

static void draw_series(canvas *c, const plot *p, uint32_t s)
{
    const plot_series *series = &p->series[s];
    uint32_t phase = 0;
    for (uint32_t i = 0; i < series->num_points; i++) {
        uint32_t before = i > 0 ? i - 1 : 0;
        double from[2] = {dot_x(c, x_scale(p, series->x[before])), dot_y(c, series->y[before])};
        double to[2] = {dot_x(c, x_scale(p, series->x[i])), dot_y(c, series->y[i])};
        draw_line(c, from, to, s, &phase);
    }
}

/* ---- text ------------------------------------------------------------------ */

static const char *const colors[PLOT_MAX_SERIES] = {"36", "33", "35", "32", "34", "31", "96", "93"};

static void print_cell(FILE *out, const canvas *c, const plot *p, uint32_t cell)
{
    uint8_t dots = c->dots[cell];
    if (dots == 0) {
        fputc(' ', out);
        return;
    }
    /* U+2800 + dots in UTF-8 */
    const char text[4] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f)), 0};
    if (p->has_colors)
        fprintf(out, "\033[%sm%s\033[0m", colors[c->series[cell] - 1], text);
    else
        fputs(text, out);
}

static void print_canvas(FILE *out, const canvas *c, const plot *p)
{
    uint32_t last = c->rows - 1;
    for (uint32_t row = 0; row < c->rows; row++) {
        bool has_label = row == 0 || row == last || row == last / 2;
        double y = c->y_high * (1 - (double)row / last);
        char digits[16];
        char number[32];
        plot_short_number(digits, sizeof digits, y / c->unit.ms);
        snprintf(number, sizeof number, "%s%s", digits, c->unit.name);
        fprintf(out, "%*s %s", LABEL_COLUMNS - 2, has_label ? number : "", has_label ? "┤" : "│");
        uint32_t end = c->columns;
        while (end > 0 && c->dots[row * c->columns + end - 1] == 0)
            end--;
        for (uint32_t x = 0; x < end; x++)
            print_cell(out, c, p, row * c->columns + x);
        fputc('\n', out);
    }
}

static uint32_t find_ticks(const canvas *c, const plot *p, double ticks[MAX_TICKS])
{
    uint32_t n = 0;
    double span = c->x_high - c->x_low;
    double step = p->is_log_x ? ceil(span / (MAX_TICKS - 2)) : round_step(span / 6);
    if (p->is_log_x && span < 2) { /* less than two powers of ten: 1, 2 and 5 of each */
        for (int power = (int)floor(c->x_low); power <= (int)c->x_high; power++)
            for (int times = 1; times <= 5; times += times == 1 ? 1 : 3) {
                double x = power + log10(times);
                if (x >= c->x_low && x <= c->x_high && n < MAX_TICKS)
                    ticks[n++] = x;
            }
        return n;
    }
    for (double x = ceil(c->x_low / step) * step; x <= c->x_high && n < MAX_TICKS; x += step)
        ticks[n++] = x;
    return n;
}

static void print_axis(FILE *out, const canvas *c, const plot *p)
{
    double ticks[MAX_TICKS];
    uint32_t num_ticks = find_ticks(c, p, ticks);
    uint32_t next = 0;
    fprintf(out, "%*s└", LABEL_COLUMNS - 1, "");
    for (uint32_t x = 0; x < c->columns; x++) {
        bool is_tick = false;
        while (next < num_ticks && (uint32_t)(dot_x(c, ticks[next]) / DOTS_X) == x) {
            is_tick = true;
            next++;
        }
        fputs(is_tick ? "┬" : "─", out);
    }
    fprintf(out, "\n%*s", LABEL_COLUMNS, "");
    uint32_t column = 0;
    for (uint32_t i = 0; i < num_ticks; i++) {
        char number[32];
        plot_short_number(number, sizeof number, p->is_log_x ? pow(10, ticks[i]) : ticks[i]);
        uint32_t at = (uint32_t)(dot_x(c, ticks[i]) / DOTS_X);
        if (at < column || at + 4 > c->columns)
            continue;
        column = at + (uint32_t)fprintf(out, "%*s%s", (int)(at - column), "", number) -
                 (at - column) + 1;
        fputc(' ', out);
    }
    fprintf(out, "%s\n", p->x_name != NULL ? p->x_name : "");
}

static void print_legend(FILE *out, const plot *p)
{
    static const char *const samples[] = {"⠒⠒⠒", "⠂⠂⠂", "⠂ ⠂"};
    for (uint32_t s = 0; s < p->num_series; s++) {
        fprintf(out, "%*s", s == 0 ? LABEL_COLUMNS : 3, "");
        const char *sample = samples[s < 2 ? s : 2];
        if (p->has_colors)
            fprintf(out, "\033[%sm%s\033[0m %s", colors[s], sample, p->series[s].name);
        else
            fprintf(out, "%s %s", sample, p->series[s].name);
    }
    fputc('\n', out);
}

void plot_draw(FILE *out, const plot *p)
{
    canvas c = {.rows = p->height > 1 ? p->height : 15};
    c.columns = line_width(p, out) - LABEL_COLUMNS - 12;
    if (p->num_series > PLOT_MAX_SERIES || !find_limits(p, &c))
        return;
    if (c.y_high <= 0) {
        fprintf(out, "%s%sall values are 0\n", p->title != NULL ? p->title : "",
                p->title != NULL ? ": " : "");
        return;
    }
    c.dots = calloc((size_t)c.rows * c.columns, 1);
    c.series = calloc((size_t)c.rows * c.columns, 1);
    if (c.dots != NULL && c.series != NULL) {
        for (uint32_t s = 0; s < p->num_series; s++)
            draw_series(&c, p, s);
        if (p->title != NULL)
            fprintf(out, "%s\n", p->title);
        print_canvas(out, &c, p);
        print_axis(out, &c, p);
        print_legend(out, p);
    }
    free(c.dots);
    free(c.series);
}
