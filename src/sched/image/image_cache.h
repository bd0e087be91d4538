/* sched/image/image_cache.h - the cache and its pool in an image.
 *
 *      references   ref_cnt of every block
 *      keys         ring by ring in the order cached; inserting them again makes the same rings
 *      rows         with the request that each belongs to
 *      free queue   from head to tail; hints of the queue and of the pool begin anew
 *
 * The free queue comes last, when everybody who uses a block has been read.
 */
#ifndef QR_SCHED_IMAGE_IMAGE_CACHE_H
#define QR_SCHED_IMAGE_IMAGE_CACHE_H

#include "sched/image/image.h"

/* Before the requests: references, keys, rows without users. */
void qr_image_cache_begin(qr_image *image, quire_cache *cache);
/* The row of a request; *seq is 0 where it has none. */
void qr_image_seq(qr_image *image, quire_cache *cache, quire_seq *seq);
/* After them: what else uses blocks, the free queue, events. */
void qr_image_cache_end(qr_image *image, quire_cache *cache);
void qr_image_prefix_stats(qr_image *image, quire_prefix_stats *stats);

#endif
