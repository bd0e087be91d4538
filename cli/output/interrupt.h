/* cli/output/interrupt.h - signals that end the program.
 *
 *      interrupt_catch         Ctrl-C (SIGINT) and SIGTERM are noted, and the command ends its work
 *                              in order. A second one ends the program at once.
 *      interrupt_before_end    what is done before a signal ends the program, also without
 *                              interrupt_catch and for SIGHUP, SIGQUIT, SIGPIPE
 */
#ifndef QUIRE_CLI_OUTPUT_INTERRUPT_H
#define QUIRE_CLI_OUTPUT_INTERRUPT_H

#include <stdbool.h>

/* System calls that are under way go on (poll and nanosleep return). May be called again: then the
 * next signal is the first one. */
void interrupt_catch(void);
bool interrupt_came(void);
/* What results say of it: "interrupt" for SIGINT, "terminated" for SIGTERM, NULL: none came. */
const char *interrupt_name(void);
/* The exit status of a command that a signal ended: 130 or 143; without a signal, `status`. */
int interrupt_status(int status);
/* Sleeps; false when one came. */
bool interrupt_sleep(double seconds);

/* The function runs inside a signal handler. Signals that the caller of the program ignores stay
 * ignored. */
void interrupt_before_end(void (*function)(void));

#endif
