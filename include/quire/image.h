/* quire/image.h - the state of a scheduler as one image, and a scheduler made from it.
 *
 *      engine A   schedule, update ... save ──► image ──► restore ... schedule, update   engine B
 *                                                                 the very same decisions
 *
 * image     everything that later decisions depend on: the pool's records and the order of its free
 *           queue, keys, tables, requests with their tokens and hashes, queues, sessions, encoder
 *           cache, steps in flight, stats, events that were not taken yet, generations. Not the
 *           bytes of the KV cache or of host slots, and not what the caller lent: hasher,
 *           callbacks, connector.
 *
 *      +--------+---------+------------+--------+-------------+------+-----------+
 *      | magic  | version | byte order | length | fingerprint | body | checksum  |
 *      +--------+---------+------------+--------+-------------+------+-----------+
 *        8        4         4            8        32                   16, XXH3-128 of all before
 *
 * fingerprint   of the config that the scheduler was made with: sizes, limits, policy, quirks,
 *           groups, and the hasher's algorithm and NONE_HASH. An image fits a config that is the
 *           same in all of these. Callbacks and hooks may differ.
 *
 * The secrets that key the library's hash tables are not in the image: each scheduler draws its
 * own, and nothing that can be seen depends on them. But the image holds prompts, cache salts and
 * names as they are: keep it as safe as those.
 *
 * A quire_req and a quire_seq keep their values. Pointers of the caller's, as
 * quire_request_params.user and through it those in events, are numbers in the image, given back as
 * they were and never followed. Restore copies all that it needs: the image may be freed or
 * overwritten as soon as restore has returned.
 *
 * Spans, steps and outputs that the saved scheduler gave out are no part of it: a step in flight is
 * known by its number, which update takes.
 *
 * Cost: O(blocks + requests + tokens); nothing is allocated.
 *
 * Threads: save reads the scheduler and runs where its one writer could, between two calls.
 */
#ifndef QUIRE_IMAGE_H
#define QUIRE_IMAGE_H

#include "sched.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of an image of the scheduler as it is now; 0 when it is none. */
QUIRE_API size_t quire_sched_image_bytes(const quire_sched *sched);

/* Writes it to memory of the caller's, of any alignment; *written says how many bytes. The same
 * state gives the same bytes. QUIRE_E_TOO_SMALL when bytes are fewer than image_bytes says;
 * QUIRE_BUSY when sequences that are no request's, such as forks, have blocks in its cache, and
 * while others than pins hold blocks: copies to tiers that are on their way. Pins keep the time
 * that they have left; what lookahead keeps back is looked up again. */
QUIRE_API int quire_sched_save(const quire_sched *sched, void *image, size_t bytes,
                               size_t *written);

/* As quire_sched_create and _create_in, with the image's state instead of an empty one. A call that
 * fails has made nothing; beside the errors of creation:
 *
 *      QUIRE_E_CORRUPT  not an image, cut off, changed, or of a state that cannot be: every number
 *                       is checked while it is read, and the whole by the walker before it is
 *                       handed out, whatever the checksum says
 *      QUIRE_E_CONFIG   an image of another version of the format or another kind of machine, or of
 *                       another config or hasher */
QUIRE_API int quire_sched_restore(const quire_sched_config *config,
                                  const quire_allocator *allocator, const void *image,
                                  size_t image_bytes, quire_sched **sched);
QUIRE_API int quire_sched_restore_in(void *memory, size_t bytes, const quire_sched_config *config,
                                     const void *image, size_t image_bytes, quire_sched **sched);

#ifdef __cplusplus
}
#endif
#endif
