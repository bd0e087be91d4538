/* cli/fleet/members_report.h - failures, autoscaling and costs of a fleet, for people and for
 * programs.
 */
#ifndef QUIRE_CLI_FLEET_MEMBERS_REPORT_H
#define QUIRE_CLI_FLEET_MEMBERS_REPORT_H

#include "members.h"

#include <jansson.h>
#include <stdio.h>

void members_report_print(FILE *out, const members_result *members);
/* Adds its keys to the object; docs/fleet.md has them. */
void members_report_json(json_t *fleet, const members_result *members);

#endif
