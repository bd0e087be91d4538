/* cli/sweep/page.h - a sweep as one HTML file that needs nothing else. */
#ifndef QUIRE_CLI_SWEEP_PAGE_H
#define QUIRE_CLI_SWEEP_PAGE_H

#include "sweep.h"

#include <stdio.h>

/* False: no memory, or it could not be written. */
bool sweep_page_write(FILE *out, const sweep *s);

#endif
