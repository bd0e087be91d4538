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

/* The version of the linked library, as QUIRE_VERSION_NUMBER and QUIRE_VERSION_STRING. The linked
 * library may be newer than this header. The string is static. Any thread may call both. */
QUIRE_API unsigned quire_version(void);
QUIRE_API const char *quire_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
