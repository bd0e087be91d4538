/* quire/version.h - the version of Quire.
 *
 * Before version 1.0.0 neither the API nor the ABI is stable: see quire/config.h. */
#ifndef QUIRE_VERSION_H
#define QUIRE_VERSION_H

#define QUIRE_VERSION_MAJOR  0
#define QUIRE_VERSION_MINOR  1
#define QUIRE_VERSION_PATCH  0
#define QUIRE_VERSION_STRING "0.1.0"

/* One number that grows with every release: version 0.1.0 is 100, version 1.2.3 is 10203. */
#define QUIRE_VERSION_NUMBER                                                                       \
    (QUIRE_VERSION_MAJOR * 10000 + QUIRE_VERSION_MINOR * 100 + QUIRE_VERSION_PATCH)

/* Marks the functions that the shared library exports. All other functions are hidden. */
#if defined(_WIN32)
#define QUIRE_API
#else
#define QUIRE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the linked library, which may be newer than this header, as QUIRE_VERSION_STRING
 * and QUIRE_VERSION_NUMBER. The string is static. Any thread may call both functions. */
QUIRE_API const char *quire_version_string(void);
static inline unsigned quire_version(void)
{
    unsigned number = 0;
    unsigned part = 0;
    for (const char *at = quire_version_string(); *at != 0; at++) {
        number = *at == '.' ? (number + part) * 100 : number;
        part = *at == '.' ? 0 : part * 10 + (unsigned)(*at - '0');
    }
    return number + part;
}

#ifdef __cplusplus
}
#endif
#endif
