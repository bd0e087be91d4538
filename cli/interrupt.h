/* cli/interrupt.h - Ctrl-C and SIGTERM end a command in order: the first is noted, and a second one
 * ends the program at once.
 */
#ifndef QUIRE_CLI_INTERRUPT_H
#define QUIRE_CLI_INTERRUPT_H

#include <stdbool.h>

void interrupt_catch(void);
bool interrupt_came(void);
/* Sleeps; false when one came. */
bool interrupt_sleep(double seconds);

#endif
