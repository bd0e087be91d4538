/* cli/fleet/page.h - the history of a fleet as JSON, and the page around it.
 *
 *      history ──► fleet_history_json ──► report: fleet.history ──► --json FILE
 *                                                       └──► viewer/fleet.html ──► --html FILE
 *
 * docs/page-data.md has the keys.
 */
#ifndef QUIRE_CLI_FLEET_PAGE_H
#define QUIRE_CLI_FLEET_PAGE_H

#include "fleet.h"
#include "page/page.h"

#include <jansson.h>

/* NULL: no memory. */
json_t *fleet_history_json(const history *h, const fleet_result *result);
/* The page. report: what --json has, with the history. False: no memory, or the file has an error.
 */
bool fleet_page_write(FILE *out, const page_meta *meta, json_t *report);

#endif
