/* events/publish/feed_wire.h - an event of the monitor as one of the wire.
 *
 *      quire_feed_event                              quire_wire_event
 *      blocks  5  -  7    (-: null)                  hashes  h5 h7        numbers, or whole
 *      hashes  h5 h6 h7                              extra keys: one run for each hash that is left
 *      tokens  .. .. ..                              tokens  .. .. ..     all of them, as vLLM does
 *
 * Null blocks have no hash on the wire but their tokens are there: vLLM 0.20.0 writes it so.
 */
#ifndef QR_EVENTS_PUBLISH_FEED_WIRE_H
#define QR_EVENTS_PUBLISH_FEED_WIRE_H

#include <quire/monitor.h>
#include <quire/wire.h>

#include <stdbool.h>

/* Zero but for its first two fields to begin with. */
typedef struct qr_feed_wire {
    bool hashes_as_bytes;
    const quire_monitor_info *specs; /* whose groups are told; NULL: none are, as in vLLM 0.20.0 */
    void *memory;                    /* of the last event's arrays; to be freed with qr_free */
    size_t capacity;
} qr_feed_wire;

static inline quire_wire_hash qr_wire_hash_of(quire_bytes hash, bool as_bytes)
{
    return as_bytes ? (quire_wire_hash){.bytes = hash}
                    : (quire_wire_hash){.number = quire_hash_external(hash)};
}

/* Says of a stored event what kind of layers its group has. */
void qr_wire_set_spec(quire_wire_event *wire, const quire_monitor_info *specs);

/* The blocks [first, first + count) of an event; the parent of a part is the block before.
 *
 * STORED and PRESENT become STORED; REMOVED and CLEARED stay; the others are QUIRE_MISS, there is
 * nothing to tell. REMOVED is told whether or not another block has the key: still_cached is for
 * the caller to look at. What *wire points to is f's and event's, until the next call.
 *
 * Texts that are not UTF-8 could not be read by vLLM: a LoRA name becomes nil, an extra key bytes.
 * Without tokens extra_keys is nil as a whole, since some are then kept back. QUIRE_E_NOMEM. */
int qr_feed_wire_make(qr_feed_wire *f, const quire_feed_event *event, uint32_t first,
                      uint32_t count, quire_wire_event *wire);

#endif
