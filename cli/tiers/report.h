/* cli/tiers/report.h - the part of a replay's report that is about tiers. */
#ifndef QUIRE_CLI_TIERS_REPORT_H
#define QUIRE_CLI_TIERS_REPORT_H

#include "replay/replay.h"

#include <jansson.h>

void tiers_report_print(FILE *out, const replay_result *r, uint64_t bytes_per_block);
/* Adds hits_by_tier, tier_hit_rate, tier_time and tiers. */
void tiers_report_json(json_t *report, const replay_result *r, uint64_t bytes_per_block);

#endif
