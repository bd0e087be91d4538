/* api/metrics_text.h - what quire_monitor_write_metrics and quire_residency_write_metrics share. */
#ifndef QR_API_METRICS_TEXT_H
#define QR_API_METRICS_TEXT_H

#include "api/fields.h"
#include "obs/exposition.h"

static inline int qr_metrics_text(const qr_metrics *m, const quire_metrics_format *format,
                                  char *text, size_t bytes, size_t *written)
{
    quire_metrics_format f = {.size = sizeof f};
    if (written == NULL || (text == NULL && bytes > 0))
        return QUIRE_E_ARGUMENT;
    int err = format == NULL ? QUIRE_OK : qr_config_read(&f, sizeof f, format);
    if (err == QUIRE_OK)
        err = qr_check_metrics_format(&f);
    if (err != QUIRE_OK)
        return err;
    size_t used = qr_exposition_write(m, &f, text, bytes);
    bool fits = used < bytes;
    *written = fits ? used : used + 1;
    return fits ? QUIRE_OK : QUIRE_E_TOO_SMALL;
}

#endif
