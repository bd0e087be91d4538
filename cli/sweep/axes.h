/* cli/sweep/axes.h - the axes of a grid from a command line: options that take lists.
 *
 *      --gpu H100,H200  ─► take ─► axis "gpu": H100, H200          command.take_list
 *                                    │
 *      point 1 ─► set ─► the options as on a command line with --gpu H200
 *
 * The commands `sweep` and `size` use it. `reset` sets all options of the table that take lists
 * to their defaults.
 */
#ifndef QUIRE_CLI_SWEEP_AXES_H
#define QUIRE_CLI_SWEEP_AXES_H

#include "sweep.h"

/* Each 0, or an exit status after a sentence in the name of the command. */

/* Values of an option; given again, they replace those before. */
int axes_take(const command *cmd, sweep *s, const option *opt, const char *text);
/* Sets the options as a command line of that point would. */
int axes_set(const command *cmd, const sweep *s, uint32_t point, void (*reset)(void));
/* Before the first point runs: traces that can be read several times, files that are not also
 * outputs, values that the options take. Sets s->trace, s->trace_record and s->made_by. */
int axes_check(const command *cmd, sweep *s, void (*reset)(void));

/* The values that an axis has; NULL: the option was not given. */
const value_list *axes_find(const sweep *s, const char *name);

#endif
