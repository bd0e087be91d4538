/* tier/device/cuda/crc.h - the numbers that the kernel for CRC32C needs.
 *
 * A CRC without its first and last inversion is linear: that of a block is the sum (exclusive or)
 * of its chunks', each multiplied by x^(8 * bytes behind it) in the CRC's field. So threads can
 * take parts in any order. What the inversions add depends on the length alone.
 */
#ifndef QR_TIER_DEVICE_CUDA_CRC_H
#define QR_TIER_DEVICE_CUDA_CRC_H

#include "tier/device/cuda/kernels.h"

#include <stdint.h>

enum { QR_CRC_NUMBERS = QR_CRC_TABLES * 256 + 32 };

/* x^(8 * bytes) */
uint32_t qr_gpu_crc_power(uint64_t bytes);
/* What the inversions add to the CRC of so many bytes. */
uint32_t qr_gpu_crc_constant(uint64_t bytes);
/* As qr_crc_args.tables has them. */
void qr_gpu_crc_fill(uint32_t numbers[QR_CRC_NUMBERS]);

#endif
