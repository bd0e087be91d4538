#include <quire/version.h>

const char *quire_version_string(void)
{
    return QUIRE_VERSION_STRING;
}
