#include "base/refuse.h"

#include "base/config.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

int qr_fail(int status, const char *format, ...)
{
    char sentence[QR_SENTENCE_BYTES];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    return quire_refuse(status, sentence);
}

int qr_fail_plain(int status, const char *what)
{
    if (quire_refusal()[0] == 0)
        qr_say("%s: %s", what, quire_strerror(status));
    return status;
}

int qr_refuse_in(int status, const char *format, ...)
{
    char rest[QR_SENTENCE_BYTES];
    char place[64];
    va_list values;
    if (status == QUIRE_OK)
        return status;
    va_start(values, format);
    (void)vsnprintf(place, sizeof place, format, values);
    va_end(values);
    (void)snprintf(rest, sizeof rest, "%s", quire_refusal());
    return qr_fail(status, "%s: %s", place, rest);
}

int qr_refuse_reading(void *ours, size_t our_size, const void *callers, const char *type)
{
    size_t size;
    qr_refuse_clear();
    int status = qr_config_read(ours, our_size, callers);
    if (status == QUIRE_E_ARGUMENT)
        (void)qr_refuse("%s is NULL", type);
    if (status != QUIRE_E_CONFIG)
        return status;
    memcpy(&size, callers, sizeof size);
    return qr_refuse("invalid size %zu of %s (expected %zu; start from its INIT macro), or a field "
                     "that this version of the library does not know",
                     size, type, our_size);
}

int qr_refuse_opening(void *ours, size_t our_size, const void *callers, const void *place,
                      const quire_allocator *allocator, const char *what)
{
    qr_refuse_clear();
    int status = qr_config_read(ours, our_size, callers);
    bool is_half = allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL);
    if (status == QUIRE_OK && (place == NULL || is_half))
        status = QUIRE_E_ARGUMENT;
    return status == QUIRE_OK ? status : qr_fail(status, "%s: %s", what, quire_strerror(status));
}

int qr_refuse_fields(const qr_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const qr_field *f = &fields[i];
        unsigned long long value = f->value;
        unsigned long long low = f->low;
        if (f->value >= f->low && f->value <= f->high)
            continue;
        if (f->high == UINT64_MAX)
            return qr_refuse("invalid %s %llu (expected %llu or more)", f->name, value, low);
        return qr_refuse("invalid %s %llu (expected %llu..%llu)", f->name, value, low,
                         (unsigned long long)f->high);
    }
    return QUIRE_OK;
}
