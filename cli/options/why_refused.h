/* cli/options/why_refused.h - a status as a sentence, with the field where the library names one.
 * */
#ifndef QUIRE_CLI_OPTIONS_WHY_REFUSED_H
#define QUIRE_CLI_OPTIONS_WHY_REFUSED_H

#include <quire/error.h>

/* Right after the call that returned it. */
static inline const char *why_refused(int status)
{
    int is_named = status == QUIRE_E_CONFIG || status == QUIRE_E_UNKNOWN_NAME;
    return is_named && quire_refusal()[0] != '\0' ? quire_refusal() : quire_strerror(status);
}

#endif
