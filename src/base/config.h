/* base/config.h - how a sized config is read.
 *
 *      a caller's, shorter    | size | a | b |              newer fields are zero, their default
 *      ours                   | size | a | b | c | d |
 *      a caller's, longer     | size | a | b | c | d | e |  e must be zero: we would ignore it
 */
#ifndef QR_BASE_CONFIG_H
#define QR_BASE_CONFIG_H

#include <quire/config.h>
#include <quire/error.h>

#include <string.h>

/* Copies the caller's over a zeroed one of ours. QUIRE_OK, QUIRE_E_ARGUMENT for NULL,
 * QUIRE_E_CONFIG. */
static inline int qr_config_read(void *ours, size_t our_size, const void *callers)
{
    if (callers == NULL)
        return QUIRE_E_ARGUMENT;
    size_t size;
    memcpy(&size, callers, sizeof size);
    if (size < sizeof size || size > 16 * our_size)
        return QUIRE_E_CONFIG;
    const unsigned char *bytes = callers;
    for (size_t i = our_size; i < size; i++)
        if (bytes[i] != 0)
            return QUIRE_E_CONFIG;
    memset(ours, 0, our_size);
    memcpy(ours, callers, size < our_size ? size : our_size);
    return QUIRE_OK;
}

/* What a field means: zero is its default. */
static inline uint64_t qr_or_default(uint64_t value, uint64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

#endif
