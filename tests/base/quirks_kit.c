/* base/quirks_kit.c - single quirks for a test. */
#include "base/quirks_kit.h"

static _Thread_local uint64_t quirks_on;
static _Thread_local uint64_t quirks_off;

void quirks_change(uint64_t on, uint64_t off)
{
    quirks_on = on;
    quirks_off = off;
}

uint64_t qr_quirks(quire_profile profile)
{
    return (qr_quirks_of(profile) | quirks_on) & ~quirks_off;
}
