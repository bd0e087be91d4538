/* cli/output/plot.h - curves in a terminal, drawn with Braille dots: 2 x 4 to a character.
 *
 *      40.0 % ┤               ⣀⠤⠤⠤⠒⠒⠒⠉⠉⠉
 *             │         ⢀⡠⠔⠊⠉
 *      20.0 % ┤      ⣀⠔⠁
 *             │   ⢀⠔⠁
 *       0.0 % ┼⠤⠤⠊┬──────────┬──────────┬──
 *                1k         10k        100k
 */
#ifndef QUIRE_CLI_OUTPUT_PLOT_H
#define QUIRE_CLI_OUTPUT_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct plot_series {
    const char *name;
    const double *x; /* does not decrease */
    const double *y; /* from 0 on */
    uint32_t num_points;
} plot_series;

enum { PLOT_MAX_SERIES = 8 };

/* The first series is drawn as a line, the others ever more dotted; in colours where asked for. */
typedef struct plot {
    const char *title;
    const char *x_name;
    const char *y_unit; /* stands behind the numbers: " %" */
    bool is_time;       /* y are milliseconds; labels have the unit that fits: "25 min" */
    const plot_series *series;
    uint32_t num_series; /* at most PLOT_MAX_SERIES */
    bool is_log_x;       /* else from 0 on */
    uint32_t width;      /* characters of a line; 0: the terminal's, 80 where there is none */
    uint32_t height;     /* lines of the canvas; 0 = 15; odd, so that the middle has its number */
    bool has_colors;
} plot;

/* Nothing where there is nothing to draw; one line where all values are 0. */
void plot_draw(FILE *out, const plot *p);
/* 1500 as "1.5k", 3e6 as "3M". */
void plot_short_number(char *text, size_t bytes, double number);

#endif
