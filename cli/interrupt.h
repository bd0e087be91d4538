/* cli/interrupt.h - Ctrl-C and SIGTERM end a command in order: the first is noted, and a second one
 * ends the program at once.
 */
#ifndef QUIRE_CLI_INTERRUPT_H
#define QUIRE_CLI_INTERRUPT_H

#include <stdbool.h>

/* ends_reads: a read that waits comes back too; without, calls that were under way go on, writes to
 * a full pipe among them. May be called again: then the next one is the first. */
void interrupt_catch(bool ends_reads);
bool interrupt_came(void);
/* Sleeps; false when one came. */
bool interrupt_sleep(double seconds);

#endif
