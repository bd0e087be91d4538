/* base/error.c - sentences of the statuses in quire/error.h. */
#include <quire/error.h>

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
