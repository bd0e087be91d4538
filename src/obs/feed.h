/* obs/feed.h - events in a ring of words: one thread writes, any number read, nobody waits.
 *
 *                 oldest that is whole        visible   head   claimed
 *                     v                          v       v       v
 *      words  [ ..... | record | record | record | part .| ..... ]      place = count & mask
 *
 *      record   | head, 6 words | blocks | hashes | parent | tokens | LoRA name | keys |
 *      removed  | head, 2 words | hash |          BATCH, WALKED  | kind | number | time |
 *
 * Counts of words only grow. The writer claims words before it writes them, and makes whole batches
 * visible. A record lies in one piece; where the ring's end is too near, words are left out. A
 * reader copies a record and then looks whether the writer has claimed its words
 * meanwhile: what it copied is then thrown away, and the reader knows that it has lost something.
 *
 *      visible <= head <= claimed;   words from claimed - capacity on are as they were written
 */
#ifndef QR_OBS_FEED_H
#define QR_OBS_FEED_H

#include "base/arena.h"
#include "base/bits.h"

#include <quire/monitor.h>
#include <quire/pool.h>

#include <stdatomic.h>

typedef struct qr_feed {
    _Atomic uint64_t *words;
    uint64_t mask; /* capacity - 1 */
    uint64_t head;
    uint64_t claimed_own; /* the writer's copy */
    _Alignas(64) _Atomic uint64_t claimed;
    _Alignas(64) _Atomic uint64_t visible;
} qr_feed;

/* Tokens of a request, which lie in several places. */
typedef struct qr_feed_piece {
    const quire_token *tokens;
    uint32_t num_tokens;
} qr_feed_piece;

/* Capacity is a power of two. */
void qr_feed_carve(qr_feed *feed, qr_arena *arena, uint32_t num_words);
void qr_feed_init(qr_feed *feed);

/* The keys that a record may have, in a feed of num_words. */
static inline uint32_t qr_feed_keys_of(uint64_t num_words)
{
    return (uint32_t)(num_words / 64);
}

/* Words of the longest record, and its keys. */
static inline uint32_t qr_feed_max_words(const qr_feed *feed)
{
    return (uint32_t)((feed->mask + 1) / 4);
}

static inline uint32_t qr_feed_max_keys(const qr_feed *feed)
{
    return qr_feed_keys_of(feed->mask + 1);
}

/* What becomes a record: the pool's event as it is, and what the scheduler adds. */
typedef struct qr_feed_entry {
    quire_feed_kind kind;
    const quire_event *event; /* NULL for BATCH and WALKED */
    uint32_t num_tokens;
    const qr_feed_piece *pieces;
    uint32_t lora_id;
    quire_bytes lora_name;
    const quire_feed_key *keys;
    uint32_t num_keys;
    uint32_t tier;
    uint64_t number;
    double time;
} qr_feed_entry;

/* An entry of an event alone. Field by field: compilers clear a struct of this size by a loop that
 * takes longer than all else here. */
static inline void qr_feed_entry_init(qr_feed_entry *entry, const quire_event *event)
{
    entry->kind = (quire_feed_kind)event->kind;
    entry->event = event;
    entry->num_tokens = 0;
    entry->pieces = NULL;
    entry->lora_id = 0;
    entry->lora_name.data = NULL;
    entry->lora_name.len = 0;
    entry->keys = NULL;
    entry->num_keys = 0;
    entry->tier = 0;
}

/* Adds a record, not yet visible. One that is too long becomes one that says that something was
 * lost, and false is returned. */
bool qr_feed_add(qr_feed *feed, const qr_feed_entry *entry);
void qr_feed_show(qr_feed *feed);

/* ---- reading --------------------------------------------------------------- */

uint64_t qr_feed_visible(const qr_feed *feed);

/* Copies the record at *at to buffer, which takes qr_feed_max_words words; moves *at behind it.
 * QUIRE_OK, QUIRE_RETRY: nothing there yet; QUIRE_LOST: *at is now behind what is visible. */
int qr_feed_read(const qr_feed *feed, uint64_t *at, uint64_t *buffer);

/* The event in a buffer. Keys are made in keys, which has room for qr_feed_max_keys: no record has
 * more. */
void qr_feed_parse(const uint64_t *buffer, quire_feed_event *event, quire_feed_key *keys);

/* ---- words that others may read at the same time --------------------------- */

/* Whoever sees a word of a record sees the claim before it. Fences say so for all words at once;
 * the thread sanitizer does not know fences, so there each word says it. */
#if defined(__SANITIZE_THREAD__)
#define QR_FEED_STORE memory_order_release
#define QR_FEED_LOAD  memory_order_acquire
static inline void qr_feed_fence_after_claim(void)
{
}
static inline void qr_feed_fence_before_check(void)
{
}
#else
#define QR_FEED_STORE memory_order_relaxed
#define QR_FEED_LOAD  memory_order_relaxed
static inline void qr_feed_fence_after_claim(void)
{
    atomic_thread_fence(memory_order_release);
}
static inline void qr_feed_fence_before_check(void)
{
    atomic_thread_fence(memory_order_acquire);
}
#endif

/* n words, to where others read them and from there. */
static inline void qr_words_put(_Atomic uint64_t *to, const void *from, uint32_t n)
{
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&to[i], qr_load_u64((const unsigned char *)from + 8 * i),
                              QR_FEED_STORE);
}

static inline void qr_words_take(const _Atomic uint64_t *from, void *to, uint32_t n)
{
    for (size_t i = 0; i < n; i++)
        qr_store_u64((unsigned char *)to + 8 * i, atomic_load_explicit(&from[i], QR_FEED_LOAD));
}

#endif
