/* base/error.c - sentences of the statuses in quire/error.h, and of each thread's last refusal. */
#include "base/refuse.h"

#include <string.h>

const char *quire_strerror(int status)
{
    switch (status) {
#define QUIRE_X(value, name, sentence)                                                             \
    case value:                                                                                    \
        return sentence;
        QUIRE_OUTCOME_MAP(QUIRE_X)
        QUIRE_ERROR_MAP(QUIRE_X)
#undef QUIRE_X
    default:
        return "unknown status";
    }
}

/* ---- why a call failed ----------------------------------------------------- */

static _Thread_local char sentence[QR_SENTENCE_BYTES];

const char *quire_refusal(void)
{
    return sentence;
}

int quire_refuse(int status, const char *why)
{
    size_t len = why != NULL ? strnlen(why, sizeof sentence - 1) : 0;
    memmove(sentence, why != NULL ? why : "", len); /* it may be the sentence itself */
    sentence[len] = '\0';
    return status;
}
