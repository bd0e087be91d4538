/* engine/arith.h - arithmetic that gives the same bits everywhere: additions, products and shifts.
 *
 * The C library's expf differs from one machine to the next, and has no twin on a GPU; this one is
 * a few ulps worse and the same wherever IEEE floats are, in vectorised loops too.
 */
#ifndef ENGINE_ARITH_H
#define ENGINE_ARITH_H

#include <stdint.h>
#include <string.h>

#ifndef ENGINE_INLINE /* a GPU's compiler says more */
#define ENGINE_INLINE static inline
#endif

/* e^x, for x from -87 to 88; beyond that the value there. NaN stays NaN. */
ENGINE_INLINE float engine_exp(float x)
{
    const float round = 12582912.0f; /* 1.5 x 2^23: adding it leaves an integer in the low bits */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float shifted = x * 1.44269504f + round;
    float n = shifted - round;
    float r = x - n * 0.693359375f; /* ln 2 in two parts, so that little is lost */
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - UINT32_C(0x4B400000) + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#endif
