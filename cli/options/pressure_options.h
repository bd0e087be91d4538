/* cli/options/pressure_options.h - how full the pool may get: watermark, and the two marks of
 * pressure. */
#ifndef QUIRE_CLI_OPTIONS_PRESSURE_OPTIONS_H
#define QUIRE_CLI_OPTIONS_PRESSURE_OPTIONS_H

#include "options.h"

typedef struct pressure_options {
    double watermark;
    double admit_below;   /* 0: the default */
    double preempt_above; /* 0: no memory pressure */
} pressure_options;

#define PRESSURE_ADMIT_BELOW 0.8 /* the library's default */

/* clang-format off */
#define PRESSURE_OPTIONS(p)                                                                        \
    {"watermark", OPTION_REAL, &(p).watermark, "PART",                                             \
     "part of the pool that a new request must leave free", .def = "0", .max = 1},                 \
    {"admit-below", OPTION_REAL, &(p).admit_below, "PART",                                         \
     "with --preempt-above: admit only while less than this part of the pool is used",             \
     .def = "0.8", .max = 1},                                                                      \
    {"preempt-above", OPTION_REAL, &(p).preempt_above, "PART",                                     \
     "preempt while more than this part of the pool is used (memory pressure)",                    \
     .def = "0: not", .max = 1}
/* clang-format on */

static inline double pressure_admit_below(const pressure_options *o)
{
    return o->admit_below > 0 ? o->admit_below : PRESSURE_ADMIT_BELOW;
}

/* 0, or an exit status after a sentence. */
int pressure_check(const command *cmd, const pressure_options *o);

#endif
