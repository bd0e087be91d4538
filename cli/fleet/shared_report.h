/* cli/fleet/shared_report.h - the shared tier of a fleet, for people and for programs. */
#ifndef QUIRE_CLI_FLEET_SHARED_REPORT_H
#define QUIRE_CLI_FLEET_SHARED_REPORT_H

#include "fleet.h"

#include <jansson.h>
#include <stdio.h>

/* Nothing without a shared tier. */
void shared_report_print(FILE *out, fleet_result *f);
/* Adds its keys to the object; docs/fleet.md has them. */
void shared_report_json(json_t *fleet, fleet_result *f);

#endif
