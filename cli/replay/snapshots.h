/* cli/replay/snapshots.h - steps as JSON lines: what `replay --trace` writes and `view` reads.
 *
 *      {"quire_snapshots":1,"title":"Quire replay","trace":"day.jsonl","block_size":16, ...}
 *      {"step":1,"time_s":0.012,"duration_ms":21.5,"num_running":1, ... "active":3}
 *      ...
 *
 * The keys of a step are the fields of quire_snapshot; docs/page-data.md lists them.
 */
#ifndef QUIRE_CLI_REPLAY_SNAPSHOTS_H
#define QUIRE_CLI_REPLAY_SNAPSHOTS_H

#include "page/page.h"

#include <stdio.h>

/* The first line. */
void snapshots_write_meta(FILE *out, const page_meta *meta);
/* One step; as page_step. */
void snapshots_write_step(FILE *out, const quire_snapshot *snapshot, double time_s,
                          double duration_s, uint64_t query_tokens, const page_tier_step *tiers,
                          uint32_t num_tiers);

/* Reads all of a file into a page, plain, gzip or zstd; "-": standard input. NULL, and a sentence
 * with file, line and key, when something is wrong. */
page *snapshots_read(const char *path);

#endif
