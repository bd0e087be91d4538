/* base/refuse.h - why a call failed: the sentence behind quire_refusal.
 *
 *      qr_fail             a sentence, and the status
 *
 *      qr_refuse_reading   clears the sentence, reads the config; NULL, a wrong size: says so
 *      qr_refuse_fields    the first field outside of its range: "invalid max_num_seqs 20000000
 *                          (expected 0..16777216)"
 *      qr_refuse           any other sentence
 *      qr_refuse_in        puts the place before it: "groups[1].spec: invalid block_size 0 ..."
 *
 * There is one sentence for each thread, so that configs inside of configs need not pass it on.
 */
#ifndef QR_BASE_REFUSE_H
#define QR_BASE_REFUSE_H

#include <quire/error.h>
#include <quire/memory.h>

#include <stddef.h>
#include <stdint.h>

enum { QR_SENTENCE_BYTES = 1024 }; /* a longer one is cut */

static inline void qr_refuse_clear(void)
{
    (void)quire_refuse(QUIRE_OK, "");
}

/* Sets the sentence and returns the status. */
int qr_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* qr_say only sets the sentence; qr_refuse returns QUIRE_E_CONFIG. */
#define qr_say(...)    ((void)qr_fail(QUIRE_OK, __VA_ARGS__))
#define qr_refuse(...) qr_fail(QUIRE_E_CONFIG, __VA_ARGS__)
/* The status's own sentence, where there is no other yet. */
int qr_fail_plain(int status, const char *what);

typedef struct qr_field {
    const char *name;
    uint64_t value;
    uint64_t low;
    uint64_t high; /* UINT64_MAX: no limit */
} qr_field;

#define QR_FIELD(config, name, low, high)                                                          \
    {                                                                                              \
#name, (uint64_t)(config)->name, (low), (high)                                             \
    }

/* As qr_config_read; type is the name of the struct. */
int qr_refuse_reading(void *ours, size_t our_size, const void *callers, const char *type);
/* The same for a call that opens something, with the status's own sentence behind `what`:
 * QUIRE_E_ARGUMENT also where it has no place to go to, or the allocator is half of one. */
int qr_refuse_opening(void *ours, size_t our_size, const void *callers, const void *place,
                      const quire_allocator *allocator, const char *what);
/* QUIRE_OK or QUIRE_E_CONFIG. */
int qr_refuse_fields(const qr_field *fields, size_t count);
/* Gives the status back. */
int qr_refuse_in(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
