/* tier/core/crc32c.h - the two ways to a CRC32C behind quire_crc32c, so that tests can compare
 * them. */
#ifndef QR_TIER_CORE_CRC32C_H
#define QR_TIER_CORE_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether this processor has the instruction. */
bool qr_crc32c_has_instruction(void);
/* By the instruction; by a table, one byte after the other, for processors without. */
uint32_t qr_crc32c_fast(uint32_t crc, const void *data, size_t bytes);
uint32_t qr_crc32c_plain(uint32_t crc, const void *data, size_t bytes);

/* Copies, and gives the CRC32C of what it copied: in one pass, since both wait for memory. */
uint32_t qr_crc32c_copy(void *to, const void *from, size_t bytes);
/* The same by the table. */
uint32_t qr_crc32c_copy_plain(void *to, const void *from, size_t bytes);

#endif
