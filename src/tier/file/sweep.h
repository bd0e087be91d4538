/* tier/file/sweep.h - room in a shared directory.
 *
 *      leaves   00 01 02 03 | 04 05 06 07 | ...      groups, each with its part of the capacity
 *
 * From time to time a group is listed. If the group has more bytes than its part, its oldest files
 * are removed (by the time of their last use) until the group is a sixteenth below its part. A
 * listing keeps the max_aged oldest files; if more must be removed, the group is listed again, so
 * that the limit holds for groups of any size with a fixed amount of memory. Names are hashes:
 * groups fill evenly, and no process needs to know what the others stored. Unfinished files are
 * removed when they are older than any that is still being written.
 *
 * Threads: one at a time for a directory. */
#ifndef QR_TIER_FILE_SWEEP_H
#define QR_TIER_FILE_SWEEP_H

#include "tier/file/dir.h"

uint32_t qr_file_dir_groups(const qr_file_dir *dir);
uint32_t qr_file_dir_group_of(const qr_file_dir *dir, const quire_tier_key *key);

/* Brings a group below its part of the capacity; returns the number of files that are left. Stops
 * early if no file can be removed. */
uint32_t qr_file_dir_sweep(qr_file_dir *dir, uint32_t group);

#endif
