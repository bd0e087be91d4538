/* cli/fleet/report.h - what a fleet came to, for people and for programs.
 *
 * The fleet's report is that of a replay, of all requests, and a part about routing and workers.
 * Of one worker it is the report of the replay alone.
 */
#ifndef QUIRE_CLI_FLEET_REPORT_H
#define QUIRE_CLI_FLEET_REPORT_H

#include "fleet.h"
#include "replay/report.h"

void fleet_report_print(FILE *out, const report_subject *subject, const char *router,
                        fleet_result *result);
/* One JSON object, for json_decref. The keys are stable, see docs/fleet.md. past: of
 * fleet_history_json, which it takes over; NULL: none. */
json_t *fleet_report_tree(const report_subject *subject, const char *router, fleet_result *result,
                          json_t *past);
/* The same without a history as text, to be freed; NULL: no memory. */
char *fleet_report_json(const report_subject *subject, const char *router, fleet_result *result);

#endif
