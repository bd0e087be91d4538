#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[FAILURE_BYTES];

int fail_with(const char *format, ...)
{
    char text[FAILURE_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    memcpy(sentence, text, sizeof text);
    return -1;
}

const char *failure(void)
{
    return sentence;
}
