#include "http/complaint.h"

#include <stdarg.h>
#include <stdio.h>

int qr_http_complain(const qr_http_complaint *complaint, int status, const char *format, ...)
{
    if (complaint->message == NULL || complaint->bytes == 0)
        return status;
    va_list values;
    va_start(values, format);
    (void)vsnprintf(complaint->message, complaint->bytes, format, values);
    va_end(values);
    return status;
}
