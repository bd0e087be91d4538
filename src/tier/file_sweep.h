/* tier/file_sweep.h - room in a shared directory.
 *
 *      leaves   00 01 02 03 | 04 05 06 07 | ...      groups, each with its part of the capacity
 *
 * From time to time one group is listed, and where it has too many bytes the files go that were
 * used longest ago, among the first QR_FILE_SAMPLE that were seen. Names are hashes, so groups
 * fill evenly, and no process needs to know what the others stored. Unfinished files go when they
 * are older than any that is still being written.
 *
 * Threads: one at a time for a directory. */
#ifndef QR_TIER_FILE_SWEEP_H
#define QR_TIER_FILE_SWEEP_H

#include "tier/file_dir.h"

uint32_t qr_file_dir_groups(const qr_file_dir *dir);
uint32_t qr_file_dir_group_of(const qr_file_dir *dir, const quire_tier_key *key);

/* Makes room in a group; returns the files that are left, as far as it saw. */
uint32_t qr_file_dir_sweep(qr_file_dir *dir, uint32_t group);
/* Removes all blocks of this fingerprint. */
void qr_file_dir_clear(qr_file_dir *dir);

#endif
