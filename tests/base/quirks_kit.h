/* base/quirks_kit.h - single quirks for a test. A program with quirks_kit.c has this qr_quirks in
 * the place of the library's. */
#ifndef QUIRKS_KIT_H
#define QUIRKS_KIT_H

#include "base/quirks.h"

/* For handles that this thread makes from now on: `on` is added to the quirks of their profile, and
 * `off` is taken away. */
void quirks_change(uint64_t on, uint64_t off);

#endif
