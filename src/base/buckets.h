/* base/buckets.h - an index from 32-bit tags to ids, in buckets of one cache line; the keys live
 * with their owner.
 *
 *      home(tag) = tag x count >> 32           mark(tag) = its low 8 bits, never 0
 *
 *      bucket   | marks: a3 07 .. 5c .. | passed  | entries: 7 2 .. 9 .. |
 *                 12 bytes, 0: empty      4 bytes   12 x 4 bytes             64 bytes
 *
 *      entry    | of the tag | id |     ids take as many bits as the largest needs
 *      passed   | how many: 24 bits | which: 8 bits |
 *
 * A tag is 32 bits of a keyed hash of the real key. Equal tags need not be equal keys: the owner
 * compares. An id is in the index at most once; id 0 cannot be stored.
 *
 * Millions of entries come and go at random: all marks of a bucket are compared at once, so that
 * neither a lookup nor a change walks along slots, which the processor cannot predict. Where a mark
 * is right by chance, the bits beside the id tell, and the owner's key, which lies anywhere, is not
 * fetched.
 *
 * An entry whose home is full goes to the next bucket that has a place, and is counted in those
 * that it went past; a bit for its tag is set there, until all that went past are gone. A search
 * that has not found it goes on where its bit is set. Nothing is ever moved, and a removal leaves
 * no mark behind.
 *
 *      mark = 0  <=>  entry = 0;   used = places with an entry
 *      how many passed a bucket = entries that went past it on the way from their home
 */
#ifndef QR_BASE_BUCKETS_H
#define QR_BASE_BUCKETS_H

#include "base/arena.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/tag.h"

#if defined __SSE2__
#include <emmintrin.h>
#elif defined __ARM_NEON && defined __aarch64__
#include <arm_neon.h>
#endif

enum { QR_BUCKET_PLACES = 12 };

typedef struct qr_bucket {
    uint8_t marks[QR_BUCKET_PLACES];
    uint32_t passed;
    uint32_t entries[QR_BUCKET_PLACES];
} qr_bucket;

_Static_assert(sizeof(qr_bucket) == 64, "a bucket is one cache line");

typedef struct qr_buckets {
    qr_bucket *all;
    uint32_t count;
    uint32_t used;
    uint32_t id_mask;
    uint64_t secret[2];
} qr_buckets;

/* Half of the places are used when all entries are there: then one bucket in a hundred is too small
 * for its entries. */
static inline uint32_t qr_buckets_needed(uint32_t max_entries)
{
    return max_entries / (QR_BUCKET_PLACES / 2) + 1;
}

/* Takes the memory for max_entries entries. */
static inline void qr_buckets_carve(qr_buckets *buckets, qr_arena *arena, uint32_t max_entries)
{
    buckets->count = qr_buckets_needed(max_entries);
    buckets->all = qr_arena_take(arena, buckets->count, sizeof *buckets->all);
}

static inline void qr_buckets_clear(qr_buckets *buckets)
{
    memset(buckets->all, 0, (size_t)buckets->count * sizeof *buckets->all);
    buckets->used = 0;
}

/* Its memory is all zero: empty. Ids go up to max_id. */
static inline void qr_buckets_init(qr_buckets *buckets, uint32_t max_id, const uint64_t secret[2])
{
    buckets->used = 0;
    buckets->id_mask = max_id == 0 ? 0 : UINT32_MAX >> __builtin_clz(max_id);
    buckets->secret[0] = secret[0];
    buckets->secret[1] = secret[1];
}

/* With memory of its own, for ids up to max_id: to be freed with qr_free(all). False: no memory. */
static inline bool qr_buckets_create(qr_buckets *buckets, uint32_t max_id, const uint64_t secret[2])
{
    buckets->count = qr_buckets_needed(max_id);
    buckets->all = qr_alloc(buckets->count, sizeof *buckets->all);
    qr_buckets_init(buckets, max_id, secret);
    return buckets->all != NULL;
}

static inline uint32_t qr_buckets_tag(const qr_buckets *buckets, uint64_t a, uint64_t b)
{
    return qr_tag_mix(buckets->secret, a, b);
}

static inline uint32_t qr_buckets_home(const qr_buckets *buckets, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * buckets->count) >> 32);
}

static inline uint32_t qr_buckets_after(const qr_buckets *buckets, uint32_t bucket)
{
    return bucket + 1 == buckets->count ? 0 : bucket + 1;
}

static inline uint8_t qr_tag_mark(uint32_t tag)
{
    uint8_t mark = (uint8_t)tag;
    return mark == 0 ? 1 : mark;
}

/* Some places of a bucket: a bit for each, the lowest for the first. How far apart the bits are is
 * the processor's matter. */
typedef uint64_t qr_places;

#if !defined __SSE2__ && defined __ARM_NEON && defined __aarch64__
enum { QR_PLACE_BITS = 4 };
#else
enum { QR_PLACE_BITS = 1 };
#endif

/* What stands behind all places. */
#define QR_PLACES_END ((qr_places)1 << QR_BUCKET_PLACES * QR_PLACE_BITS)

static inline uint32_t qr_first_place(qr_places places)
{
    return (uint32_t)__builtin_ctzll(places) / QR_PLACE_BITS;
}

/* The places that have this mark. The first is right; others may have another mark or none, so look
 * at the entry. Bits are next to each other. */
static inline uint32_t qr_bucket_match_words(const qr_bucket *bucket, uint8_t mark)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t gather = UINT64_C(0x0102040810204080); /* the lowest bits of 8 bytes into one */
    uint64_t low = qr_load_u64(bucket) ^ ones * mark;
    uint64_t high = qr_load_u64((const unsigned char *)bucket + 8) ^ ones * mark;
    /* 0x80 in each byte that was 0, and perhaps in some above it, where the borrow goes */
    low = (low - ones) & ~low & ones << 7;
    high = (high - ones) & ~high & (ones << 7 & UINT32_MAX);
    return (uint32_t)((low >> 7) * gather >> 56 | (high >> 7) * gather >> 56 << 8);
}

/* The same, where the processor compares 16 bytes at once. */
static inline qr_places qr_bucket_match(const qr_bucket *bucket, uint8_t mark)
{
#if defined __SSE2__
    __m128i marks = _mm_loadu_si128((const __m128i *)(const void *)bucket);
    /* not set1_epi8: a byte that the compiler has put aside is fetched as a word, and waited for */
    __m128i wanted = _mm_set1_epi32((int)(mark * UINT32_C(0x01010101)));
    __m128i equal = _mm_cmpeq_epi8(marks, wanted);
    return (uint32_t)_mm_movemask_epi8(equal) & (QR_PLACES_END - 1);
#elif defined __ARM_NEON && defined __aarch64__
    uint8x16_t equal = vceqq_u8(vld1q_u8((const uint8_t *)(const void *)bucket), vdupq_n_u8(mark));
    uint8x8_t halves = vshrn_n_u16(vreinterpretq_u16_u8(equal), 4); /* 4 bits of each byte */
    uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(halves), 0);
    return bits & UINT64_C(0x1111111111111111) & (QR_PLACES_END - 1);
#else
    return qr_bucket_match_words(bucket, mark);
#endif
}

/* ---- entries --------------------------------------------------------------------- */

/* What stands beside an id: of the tag, first the bits above the mark, as many as there is room
 * for, then the mark's own. In a large index, home has told the others. */
static inline uint32_t qr_tag_rest(uint32_t id_mask, uint32_t tag)
{
    return tag << 15 & ~id_mask;
}

/* The id of an entry that has the same rest; else 0. */
static inline uint32_t qr_entry_id(uint32_t id_mask, uint32_t entry, uint32_t rest)
{
    return (entry ^ rest) <= id_mask ? entry ^ rest : 0;
}

/* The first id of a bucket that may have this tag; 0: none. */
static inline uint32_t qr_bucket_first_id(const qr_bucket *bucket, uint32_t id_mask, uint32_t tag)
{
    uint32_t rest = qr_tag_rest(id_mask, tag);
    for (qr_places bits = qr_bucket_match(bucket, qr_tag_mark(tag)); bits != 0; bits &= bits - 1) {
        uint32_t id = qr_entry_id(id_mask, bucket->entries[qr_first_place(bits)], rest);
        if (QR_LIKELY(id != 0))
            return id;
    }
    return 0;
}

/* Where an entry stands in a bucket, or QR_NIL. */
static inline uint32_t qr_bucket_place_of(const qr_bucket *bucket, uint8_t mark, uint32_t entry)
{
    for (qr_places bits = qr_bucket_match(bucket, mark); bits != 0; bits &= bits - 1)
        if (QR_LIKELY(bucket->entries[qr_first_place(bits)] == entry))
            return qr_first_place(bits);
    return QR_NIL;
}

/* ---- those that went past --------------------------------------------------------- */

enum { QR_ONE_PASSED = 1 << 8 };

/* Whether one with this tag may have. */
static inline bool qr_bucket_has_passed(const qr_bucket *bucket, uint32_t tag)
{
    return (bucket->passed >> tag % 8 & 1) != 0;
}

static inline void qr_bucket_pass(qr_bucket *bucket, uint32_t tag)
{
    qr_assert(bucket->passed / QR_ONE_PASSED < UINT32_MAX / QR_ONE_PASSED);
    bucket->passed = (bucket->passed + QR_ONE_PASSED) | UINT32_C(1) << tag % 8;
}

static inline void qr_bucket_unpass(qr_bucket *bucket)
{
    qr_assert(bucket->passed >= QR_ONE_PASSED);
    bucket->passed -= QR_ONE_PASSED;
    bucket->passed = bucket->passed < QR_ONE_PASSED ? 0 : bucket->passed;
}

/* ---- all buckets ------------------------------------------------------------------- */

/* A place among those of all buckets. */
#define QR_NO_PLACE UINT64_MAX

static inline uint32_t *qr_buckets_at(const qr_buckets *buckets, uint64_t place)
{
    return &buckets->all[place / QR_BUCKET_PLACES].entries[place % QR_BUCKET_PLACES];
}

static inline uint32_t qr_buckets_entry(const qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    return id | qr_tag_rest(buckets->id_mask, tag);
}

/* Adds an id that is not in it. */
static inline void qr_buckets_insert(qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    qr_assert(id != 0 && buckets->used / QR_BUCKET_PLACES < buckets->count);
    uint32_t at = qr_buckets_home(buckets, tag);
    qr_places empty = qr_bucket_match(&buckets->all[at], 0);
    while (QR_UNLIKELY(empty == 0)) {
        qr_bucket_pass(&buckets->all[at], tag);
        at = qr_buckets_after(buckets, at);
        empty = qr_bucket_match(&buckets->all[at], 0);
    }
    uint32_t place = qr_first_place(empty);
    buckets->all[at].marks[place] = qr_tag_mark(tag);
    buckets->all[at].entries[place] = qr_buckets_entry(buckets, tag, id);
    buckets->used++;
}

/* The ids that may have a tag, one after the other:
 *      qr_buckets_search s = qr_buckets_search_begin(buckets, tag);
 *      while ((id = qr_buckets_search_next(&s)) != 0) ... */
typedef struct qr_buckets_search {
    const qr_buckets *buckets;
    qr_places places; /* of this bucket, not looked at yet */
    uint32_t tag;
    uint32_t at;
    uint32_t home;
} qr_buckets_search;

static inline qr_buckets_search qr_buckets_search_begin(const qr_buckets *buckets, uint32_t tag)
{
    uint32_t home = qr_buckets_home(buckets, tag);
    return (qr_buckets_search){.buckets = buckets,
                               .places = qr_bucket_match(&buckets->all[home], qr_tag_mark(tag)),
                               .tag = tag,
                               .at = home,
                               .home = home};
}

static inline uint32_t qr_buckets_search_next(qr_buckets_search *s)
{
    const qr_buckets *buckets = s->buckets;
    uint32_t rest = qr_tag_rest(buckets->id_mask, s->tag);
    for (;;) {
        const qr_bucket *bucket = &buckets->all[s->at];
        while (s->places != 0) {
            uint32_t entry = bucket->entries[qr_first_place(s->places)];
            uint32_t id = qr_entry_id(buckets->id_mask, entry, rest);
            s->places &= s->places - 1;
            if (QR_LIKELY(id != 0))
                return id;
        }
        if (QR_LIKELY(!qr_bucket_has_passed(bucket, s->tag)))
            return 0;
        s->at = qr_buckets_after(buckets, s->at);
        if (s->at == s->home)
            return 0;
        s->places = qr_bucket_match(&buckets->all[s->at], qr_tag_mark(s->tag));
    }
}

/* The place of an id that is there under this tag, else QR_NO_PLACE. */
static inline uint64_t qr_buckets_find_id(const qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    uint32_t entry = qr_buckets_entry(buckets, tag, id);
    uint32_t home = qr_buckets_home(buckets, tag);
    uint32_t at = home;
    do {
        uint32_t place = qr_bucket_place_of(&buckets->all[at], qr_tag_mark(tag), entry);
        if (place != QR_NIL)
            return (uint64_t)at * QR_BUCKET_PLACES + place;
        if (!qr_bucket_has_passed(&buckets->all[at], tag))
            return QR_NO_PLACE;
        at = qr_buckets_after(buckets, at);
    } while (at != home);
    return QR_NO_PLACE;
}

/* How many buckets an entry at this place has gone past. */
static inline uint32_t qr_buckets_distance(const qr_buckets *buckets, uint32_t tag, uint64_t place)
{
    uint32_t home = qr_buckets_home(buckets, tag);
    uint32_t at = (uint32_t)(place / QR_BUCKET_PLACES);
    return at >= home ? at - home : at + buckets->count - home;
}

/* Takes out an id that is there under this tag. Always inline: as a call it made an
 * eviction 5 % slower (quire_bench --filter evict). */
static inline QR_INLINE void qr_buckets_remove(qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    uint8_t mark = qr_tag_mark(tag);
    uint32_t entry = qr_buckets_entry(buckets, tag, id);
    uint32_t at = qr_buckets_home(buckets, tag);
    uint32_t place = qr_bucket_place_of(&buckets->all[at], mark, entry);
    while (QR_UNLIKELY(place == QR_NIL)) {
        qr_bucket_unpass(&buckets->all[at]);
        at = qr_buckets_after(buckets, at);
        place = qr_bucket_place_of(&buckets->all[at], mark, entry);
    }
    buckets->all[at].marks[place] = 0;
    buckets->all[at].entries[place] = 0;
    buckets->used--;
}

/* Checks marks, entries and their number; the sum of those that passed is for the owner, who knows
 * the tags, to compare with the distances of its entries. O(count). */
static inline bool qr_buckets_is_valid(const qr_buckets *buckets, uint64_t *sum_passed)
{
    uint64_t used = 0;
    *sum_passed = 0;
    for (uint32_t at = 0; at < buckets->count; at++) {
        const qr_bucket *bucket = &buckets->all[at];
        *sum_passed += bucket->passed / QR_ONE_PASSED;
        if ((bucket->passed / QR_ONE_PASSED == 0) != (bucket->passed % QR_ONE_PASSED == 0))
            return false;
        for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++) {
            bool has_id = (bucket->entries[place] & buckets->id_mask) != 0;
            if ((bucket->marks[place] != 0) != has_id || (!has_id && bucket->entries[place] != 0))
                return false;
            used += has_id;
        }
    }
    return used == buckets->used;
}

#endif
