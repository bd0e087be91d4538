#include "base/buckets.h"

/* Half of the places are used when all entries are there: then one bucket in a hundred is too small
 * for its entries. */
enum { ENTRIES_PER_BUCKET = QR_BUCKET_PLACES / 2 };

void qr_buckets_carve(qr_buckets *buckets, qr_arena *arena, uint32_t max_entries)
{
    buckets->count = max_entries / ENTRIES_PER_BUCKET + 1;
    buckets->all = qr_arena_take(arena, buckets->count, sizeof *buckets->all);
}

void qr_buckets_init(qr_buckets *buckets, uint64_t secret0, uint64_t secret1)
{
    buckets->secret[0] = secret0;
    buckets->secret[1] = secret1;
    qr_buckets_clear(buckets);
}

void qr_buckets_clear(qr_buckets *buckets)
{
    memset(buckets->all, 0, (size_t)buckets->count * sizeof *buckets->all);
    buckets->used = 0;
}

void qr_buckets_insert(qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    qr_assert(id != 0 && buckets->used / QR_BUCKET_PLACES < buckets->count);
    uint32_t at = qr_buckets_home(buckets, tag);
    qr_places empty = qr_bucket_match(&buckets->all[at], 0);
    while (QR_UNLIKELY(empty == 0)) {
        buckets->all[at].num_passed++;
        at = qr_buckets_after(buckets, at);
        empty = qr_bucket_match(&buckets->all[at], 0);
    }
    uint32_t place = qr_first_place(empty);
    buckets->all[at].marks[place] = qr_tag_mark(tag);
    buckets->all[at].ids[place] = id;
    buckets->used++;
}

/* Where an id stands in a bucket, or QR_NIL. */
static inline uint32_t place_of_id(const qr_bucket *bucket, uint8_t mark, uint32_t id)
{
    for (qr_places bits = qr_bucket_match(bucket, mark); bits != 0; bits &= bits - 1)
        if (QR_LIKELY(bucket->ids[qr_first_place(bits)] == id))
            return qr_first_place(bits);
    return QR_NIL;
}

uint64_t qr_buckets_find_id(const qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    uint32_t home = qr_buckets_home(buckets, tag);
    uint32_t at = home;
    do {
        uint32_t place = place_of_id(&buckets->all[at], qr_tag_mark(tag), id);
        if (place != QR_NIL)
            return (uint64_t)at * QR_BUCKET_PLACES + place;
        if (buckets->all[at].num_passed == 0)
            return QR_NO_PLACE;
        at = qr_buckets_after(buckets, at);
    } while (at != home);
    return QR_NO_PLACE;
}

uint32_t qr_buckets_distance(const qr_buckets *buckets, uint32_t tag, uint64_t place)
{
    uint32_t home = qr_buckets_home(buckets, tag);
    uint32_t at = (uint32_t)(place / QR_BUCKET_PLACES);
    return at >= home ? at - home : at + buckets->count - home;
}

void qr_buckets_remove(qr_buckets *buckets, uint32_t tag, uint32_t id)
{
    uint8_t mark = qr_tag_mark(tag);
    uint32_t at = qr_buckets_home(buckets, tag);
    uint32_t place = place_of_id(&buckets->all[at], mark, id);
    while (QR_UNLIKELY(place == QR_NIL)) {
        qr_assert(buckets->all[at].num_passed > 0);
        buckets->all[at].num_passed--;
        at = qr_buckets_after(buckets, at);
        place = place_of_id(&buckets->all[at], mark, id);
    }
    buckets->all[at].marks[place] = 0;
    buckets->all[at].ids[place] = 0;
    buckets->used--;
}

bool qr_buckets_is_valid(const qr_buckets *buckets, uint64_t *sum_passed)
{
    uint64_t used = 0;
    *sum_passed = 0;
    for (uint32_t at = 0; at < buckets->count; at++) {
        const qr_bucket *bucket = &buckets->all[at];
        *sum_passed += bucket->num_passed;
        for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++) {
            if ((bucket->marks[place] == 0) != (bucket->ids[place] == 0))
                return false;
            used += bucket->ids[place] != 0;
        }
    }
    return used == buckets->used;
}
