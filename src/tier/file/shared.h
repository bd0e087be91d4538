/* tier/file/shared.h - a shared directory as a tier.
 *
 *      scheduler's thread   known: keys that were seen here     FIND, LOAD, STORE, REMOVE
 *      tier's thread        queue ─► tasks ─► workers ─► dir.h, sweep.h
 *
 * What this process has seen in the directory it knows without asking; what others stored it finds
 * by FIND. What it knows may be gone: then a load is a miss, and it knows that. */
#ifndef QR_TIER_FILE_SHARED_H
#define QR_TIER_FILE_SHARED_H

#include "tier/core/tier.h"

typedef struct qr_file_shared qr_file_shared;

extern const qr_tier_kind qr_file_shared_kind;

#endif
