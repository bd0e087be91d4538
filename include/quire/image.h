/* quire/image.h - the state of a scheduler as one image, and a scheduler restored from an image.
 *
 *      engine A   schedule, update ... save ──► image ──► restore ... schedule, update   engine B
 *                                                                 the same decisions
 *
 * image     everything that later decisions depend on: the records of the pool and the order of its
 *           free queue, keys, block tables, requests with their tokens and hashes, queues,
 *           sessions, encoder cache, steps in flight, stats, events that were not taken yet,
 *           generations. The image does not hold the bytes of the KV cache or of host slots, and
 *           not what the caller lends to the scheduler: hasher, callbacks, connector.
 *
 *      +--------+---------+------------+--------+-------------+------+-----------+
 *      | magic  | version | byte order | length | fingerprint | body | checksum  |
 *      +--------+---------+------------+--------+-------------+------+-----------+
 *        8        4         4            8        32                   16, XXH3-128 of all before
 *
 * fingerprint   of the config of the scheduler: sizes, limits, policy, profile, groups, and the
 *           algorithm and NONE_HASH of the hasher. An image can be restored with a config that is
 *           equal in all of these. Callbacks and hooks may differ.
 *
 * The image does not hold the secrets of the library's hash tables: each scheduler draws its own
 * secrets, and no decision depends on them. The image holds prompts, cache salts and names in plain
 * text: protect an image as you protect prompts.
 *
 * A quire_req and a quire_seq keep their values. The caller's pointers, such as
 * quire_request_params.user and the pointers in events, are numbers in the image: restore returns
 * them unchanged and never follows them. Restore copies everything that it needs: the image may be
 * freed or overwritten as soon as restore has returned.
 *
 * Spans, steps and outputs of the saved scheduler are not part of the image, nor are the states that
 * the next step would have offered to a connector (quire_step.states). A step in flight is known by
 * its number, which update takes.
 *
 * Cost: O(blocks + requests + tokens). Nothing is allocated by save.
 *
 * Threads: the scheduler's one writer thread calls save, between two other calls.
 */
#ifndef QUIRE_IMAGE_H
#define QUIRE_IMAGE_H

#include "sched.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the image to the caller's memory, which may have any alignment; *written is the number of
 * bytes. The same state gives the same bytes. A pin keeps its remaining time. The blocks that
 * lookahead keeps are looked up again after restore.
 *
 *      QUIRE_E_TOO_SMALL  bytes is smaller than the image; *written is the number of bytes needed.
 *                         With bytes 0, image may be NULL
 *      QUIRE_BUSY         a sequence that is not a request has blocks in the cache (a fork made
 *                         with quire_cache_fork), or blocks have holds that are not pins (copies to
 *                         tiers in progress)
 *      QUIRE_E_ARGUMENT   a pointer is NULL, or the call comes from a callback */
QUIRE_API int quire_sched_save(const quire_sched *sched, void *image, size_t bytes,
                               size_t *written);

/* The bytes of an image of the scheduler as it is now. 0 if sched is NULL. */
static inline size_t quire_sched_image_bytes(const quire_sched *sched)
{
    size_t needed = 0;
    (void)quire_sched_save(sched, NULL, 0, &needed);
    return needed;
}

/* Creates a scheduler like quire_sched_create, with the state of the image. If the call
 * fails, nothing was created. Beside the statuses of creation:
 *
 *      QUIRE_E_CORRUPT  the bytes are not an image, or are truncated or changed, or the state is
 *                       impossible. Restore checks every number while reading, and the whole state
 *                       before it returns, whatever the checksum says
 *      QUIRE_E_CONFIG   the image has another format version, comes from another kind of machine,
 *                       or belongs to another config or hasher */
QUIRE_API int quire_sched_restore(const quire_sched_config *config,
                                  const quire_allocator *allocator, const void *image,
                                  size_t image_bytes, quire_sched **sched);

#ifdef __cplusplus
}
#endif
#endif
