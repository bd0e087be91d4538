/* base/assert.h - three levels of assertion.
 *
 *      level 1   qr_assert             O(1) and cheap: on in release builds too
 *      level 2   qr_assert_internal    O(1), but on a hot path: on with sanitizers
 *      level 3   qr_assert_expensive   walks a whole structure: on in debug and hostile builds
 *
 * QUIRE_ASSERT_LEVEL picks how many are on (0 to 3). An assertion states what the library believes
 * about itself; what a caller passes in is checked with `if` and answered with an error. A failed
 * one prints its place and aborts: going on would hand out wrong memory.
 */
#ifndef QR_BASE_ASSERT_H
#define QR_BASE_ASSERT_H

#ifndef QUIRE_ASSERT_LEVEL
#define QUIRE_ASSERT_LEVEL 1
#endif

_Noreturn void qr_assert_failed(const char *expression, const char *file, int line);
#define QR_ASSERT_(x) ((x) ? (void)0 : qr_assert_failed(#x, __FILE__, __LINE__))
/* Off: still compiled, never evaluated. */
#define QR_ASSERT_OFF_(x) ((void)sizeof(!(x)))

#if QUIRE_ASSERT_LEVEL >= 1
#define qr_assert(x) QR_ASSERT_(x)
#else
#define qr_assert(x) QR_ASSERT_OFF_(x)
#endif

#if QUIRE_ASSERT_LEVEL >= 2
#define qr_assert_internal(x) QR_ASSERT_(x)
#else
#define qr_assert_internal(x) QR_ASSERT_OFF_(x)
#endif

#if QUIRE_ASSERT_LEVEL >= 3
#define qr_assert_expensive(x) QR_ASSERT_(x)
#else
#define qr_assert_expensive(x) QR_ASSERT_OFF_(x)
#endif

#endif
