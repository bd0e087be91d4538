#include "tier/device/cuda/crc.h"

#define POLYNOMIAL UINT32_C(0x82F63B78)
#define ONE        UINT32_C(0x80000000) /* x^0: bits stand in reverse */

static uint32_t multiply_in_field(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= (a & ONE) != 0 ? b : 0;
        a <<= 1;
        b = (b >> 1) ^ ((b & 1) != 0 ? POLYNOMIAL : 0); /* times x */
    }
    return product;
}

uint32_t qr_gpu_crc_power(uint64_t bytes)
{
    uint32_t power = ONE;
    uint32_t square = ONE >> 8; /* x^8 */
    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1) != 0)
            power = multiply_in_field(power, square);
        square = multiply_in_field(square, square);
    }
    return power;
}

uint32_t qr_gpu_crc_constant(uint64_t bytes)
{
    return multiply_in_field(UINT32_MAX, qr_gpu_crc_power(bytes)) ^ UINT32_MAX;
}

void qr_gpu_crc_fill(uint32_t numbers[QR_CRC_NUMBERS])
{
    enum { VECTOR = 16, LANES = 32, STEP = VECTOR * LANES };
    for (uint32_t at = 0; at < QR_CRC_TABLES; at++) {
        /* The byte at this place of a vector, then the rest of it, then 31 vectors. A byte enters
         * as the highest powers of a word, and one byte of zeros brings it into the register. */
        uint32_t power = qr_gpu_crc_power(STEP - at);
        for (uint32_t byte = 0; byte < 256; byte++)
            numbers[at * 256 + byte] = multiply_in_field(byte, power);
    }
    uint32_t lane = ONE;
    for (uint32_t i = 0; i < LANES; i++) {
        numbers[QR_CRC_TABLES * 256 + i] = lane;
        for (uint32_t bit = 0; bit < 8 * VECTOR; bit++) /* divided by x */
            lane = (lane & ONE) != 0 ? ((lane ^ POLYNOMIAL) << 1) | 1 : lane << 1;
    }
}
