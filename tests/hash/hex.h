/* hash/hex.h - bytes against what is expected, written in hex; long ones by their SHA-256.
 *
 *      "8346706172656e7480f6"     these bytes
 *      "sha256:5f80a024..."       bytes with this SHA-256
 */
#ifndef HASH_HEX_H
#define HASH_HEX_H

#include "base/unit.h"

/* Fails the test, and prints both, when they differ. */
void assert_hex(const void *bytes, size_t len, const char *expected);

#endif
