/* tier/offload/check.h - the walker: every user of a block is known. */
#ifndef QR_TIER_OFFLOAD_CHECK_H
#define QR_TIER_OFFLOAD_CHECK_H

#include "tier/offload/offload.h"

/* QUIRE_OK or QUIRE_E_CORRUPT. */
int qr_offload_check(const quire_offload *o);

#endif
