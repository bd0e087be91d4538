/* cli/output/progress.h - how far a command is: one line on standard error, replaced as it goes.
 *
 *    [############                  ]  41 %  4,932 of 12,031 requests, 1,270 s simulated, 3 s left
 *
 * Nothing is shown if standard error is no terminal, or a terminal that cannot go back to the start
 * of a line (TERM is "dumb" or not set).
 */
#ifndef QUIRE_CLI_OUTPUT_PROGRESS_H
#define QUIRE_CLI_OUTPUT_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>

typedef struct progress {
    bool is_on;
    bool is_shown;
    int width; /* of the line that is shown */
    double start_s;
} progress;

/* Seconds of a clock that only goes forward. */
double progress_clock(void);
/* is_wanted: false with --quiet. */
void progress_begin(progress *p, bool is_wanted);
/* share: of the work that is done, 0 to 1; negative: not known, then there is no bar. left_s: until
 * the end; negative: by the share and the time since progress_begin. */
void progress_show(progress *p, double share, double left_s, const char *what);
/* A line of text alone. */
void progress_line(progress *p, const char *text);
/* Clears the line. */
void progress_end(progress *p);

/* Whether colours may be used: a terminal, TERM is neither unset nor "dumb", and NO_COLOR is not
 * set. */
bool terminal_has_colors(FILE *out);

#endif
