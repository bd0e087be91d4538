#include "progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 30, LINE_BYTES = 256, DEFAULT_WIDTH = 79 };

/* Before that, a remaining time would be a guess. */
#define LEAST_SHARE 0.01
#define LEAST_S     0.3

static bool is_terminal(FILE *out)
{
    const char *term = getenv("TERM");
    return isatty(fileno(out)) == 1 && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

bool terminal_has_colors(FILE *out)
{
    return getenv("NO_COLOR") == NULL && is_terminal(out);
}

double progress_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(progress *p, bool is_wanted)
{
    *p = (progress){.is_on = is_wanted && is_terminal(stderr), .start_s = progress_clock()};
}

void progress_line(progress *p, const char *text)
{
    struct winsize size;
    if (!p->is_on)
        return;
    /* A line that is longer than the terminal is wide would not be replaced by the next one. */
    bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    p->width = is_known ? size.ws_col - 1 : DEFAULT_WIDTH;
    p->is_shown = true;
    fprintf(stderr, "\r%-*.*s", p->width, p->width, text);
}

static void print_left(char *text, size_t bytes, double seconds)
{
    double s = ceil(seconds);
    if (s < 100)
        snprintf(text, bytes, ", %.0f s left", s);
    else if (s < 3600)
        snprintf(text, bytes, ", %.0f min %.0f s left", floor(s / 60), fmod(s, 60));
    else
        snprintf(text, bytes, ", %.0f h %.0f min left", floor(s / 3600), floor(fmod(s, 3600) / 60));
}

void progress_show(progress *p, double share, double left_s, const char *what)
{
    char line[LINE_BYTES];
    char left[64] = "";
    double elapsed_s = progress_clock() - p->start_s;
    if (share < 0) {
        progress_line(p, what);
        return;
    }
    share = share < 1 ? share : 1;
    if (left_s < 0 && share > 0)
        left_s = elapsed_s * (1 - share) / share;
    if (left_s >= 0 && share >= LEAST_SHARE && elapsed_s >= LEAST_S)
        print_left(left, sizeof left, left_s);
    int cells = (int)(share * BAR_CELLS);
    snprintf(line, sizeof line, "[%.*s%*s] %3.0f %%  %s%s", cells, "##############################",
             BAR_CELLS - cells, "", floor(100 * share), what, left);
    progress_line(p, line);
}

void progress_end(progress *p)
{
    if (p->is_shown)
        fprintf(stderr, "\r%*s\r", p->width, "");
    p->is_shown = false;
}
