/* base/config.h - how a sized struct is read and written.
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

/* Copies the caller's over a zeroed one of ours, except for its size. QUIRE_OK, QUIRE_E_ARGUMENT
 * for NULL, QUIRE_E_CONFIG. */
static inline int qr_config_read(void *ours, size_t our_size, const void *callers)
{
    if (callers == NULL)
        return QUIRE_E_ARGUMENT;
    size_t size;
    memcpy(&size, callers, sizeof size);
    if (size < sizeof size || size % sizeof size != 0 || size > 16 * our_size)
        return QUIRE_E_CONFIG;
    const unsigned char *bytes = callers;
    for (size_t i = our_size; i < size; i++)
        if (bytes[i] != 0)
            return QUIRE_E_CONFIG;
    memset(ours, 0, our_size);
    memcpy(ours, callers, size < our_size ? size : our_size);
    memcpy(ours, &our_size, sizeof our_size); /* ours may be read again */
    return QUIRE_OK;
}

/* Whether the struct of a call has our size, as nearly all have. A call that takes nanoseconds asks
 * this, and leaves other sizes to a function of their own: a struct on the stack costs it more than
 * the question. */
static inline int qr_struct_is_ours(const void *callers, size_t our_size)
{
    size_t size = 0;
    if (callers != NULL)
        memcpy(&size, callers, sizeof size);
    return __builtin_expect(size == our_size, 1) != 0;
}

/* The struct of a call. Its caller's own if it has our size; if not, `room` with its fields. NULL
 * for NULL and for a wrong size. */
static inline const void *qr_struct_in(void *room, size_t our_size, const void *callers)
{
    if (qr_struct_is_ours(callers, our_size))
        return callers;
    return qr_config_read(room, our_size, callers) == QUIRE_OK ? room : NULL;
}

/* Whether a call may write to this struct: its size is one that qr_struct_out takes. */
static inline int qr_struct_is_out(const void *callers, size_t our_size)
{
    size_t size = 0;
    if (callers != NULL)
        memcpy(&size, callers, sizeof size);
    return size >= sizeof size && size % sizeof size == 0 && size <= 16 * our_size;
}

/* Writes as much of ours as the caller's struct has room for; fields that we do not know become
 * zero. QUIRE_E_ARGUMENT, and nothing is written, for NULL and for a wrong size. */
static inline int qr_struct_out(void *callers, const void *ours, size_t our_size)
{
    size_t size;
    unsigned char *to = callers;
    if (!qr_struct_is_out(callers, our_size))
        return QUIRE_E_ARGUMENT;
    memcpy(&size, callers, sizeof size);
    size_t known = size < our_size ? size : our_size;
    memcpy(to + sizeof size, (const unsigned char *)ours + sizeof size, known - sizeof size);
    memset(to + known, 0, size - known);
    return QUIRE_OK;
}

/* What a field means: zero is its default. */
static inline uint64_t qr_or_default(uint64_t value, uint64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

#endif
