/* base/quirks.c - the quirks of a new handle. */
#include "base/quirks.h"

_Static_assert((QR_ALL_QUIRKS & (QR_ALL_QUIRKS + 1)) == 0, "a bit was left out");

uint64_t qr_quirks(quire_profile profile)
{
    return qr_quirks_of(profile);
}
