#include <quire/version.h>

unsigned quire_version(void)
{
    return QUIRE_VERSION_NUMBER;
}

const char *quire_version_string(void)
{
    return QUIRE_VERSION_STRING;
}
