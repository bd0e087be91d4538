/* record/ring.h - lines on their way from the engine's thread to the recorder's thread.
 *
 *      0          tail              head             size
 *      |  free    | line line line  |  free    | pad |   a line does not wrap: a pad fills the end
 *
 *      head - tail <= size      bytes in use; both only grow
 *
 * One thread writes, one reads. Neither waits for the other.
 */
#ifndef QR_RECORD_RING_H
#define QR_RECORD_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What each line begins with. */
typedef struct qr_line {
    uint32_t bytes; /* with what follows, a multiple of 8 */
    uint32_t kind;  /* qr_line_kind; 0: a pad */
    uint64_t t_ns;
} qr_line;

typedef struct qr_line_ring {
    unsigned char *memory;
    uint64_t size;  /* a power of two */
    char apart[48]; /* the two threads write to different cache lines */
    /* of the writer */
    _Atomic uint64_t head;
    uint64_t known_tail; /* not beyond tail */
    uint64_t reserved;   /* head after commit */
    char more_apart[64];
    /* of the reader */
    _Atomic uint64_t tail;
} qr_line_ring;

/* QUIRE_OK or QUIRE_E_NOMEM. bytes: rounded up to a power of two. */
int qr_line_ring_init(qr_line_ring *ring, uint64_t bytes);
void qr_line_ring_free(qr_line_ring *ring);

/* Room for a line of this many bytes, which has its size; NULL: the ring is too full, or the line
 * is larger than half of it. */
qr_line *qr_line_ring_reserve(qr_line_ring *ring, uint64_t bytes);
/* The reader sees the line that was reserved last. */
void qr_line_ring_commit(qr_line_ring *ring);

/* The first line; NULL: there is none. */
const qr_line *qr_line_ring_peek(qr_line_ring *ring);
/* Ends the first line. */
void qr_line_ring_pop(qr_line_ring *ring, const qr_line *line);

#endif
