#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void qr_assert_failed(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr, "quire: %s:%d: does not hold: %s\n", file, line, expression);
    abort();
}
