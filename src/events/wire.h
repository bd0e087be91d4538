/* events/wire.h - what writing and reading of quire/wire.h have in common: the fields, in their
 * order.
 *
 *      array form   ["BlockRemoved", block_hashes, medium, group_idx]
 *      map form     {"type": "BlockRemoved", "block_hashes": .., "medium": .., "group_idx": ..}
 *
 * The first fields of each must be there; the rest came in later versions of vLLM, or may be nil.
 */
#ifndef QR_EVENTS_WIRE_H
#define QR_EVENTS_WIRE_H

#include <quire/wire.h>

#include <stdbool.h>

#define QR_STORED_FIELDS(X)                                                                        \
    X(block_hashes)                                                                                \
    X(parent_block_hash)                                                                           \
    X(token_ids)                                                                                   \
    X(block_size)                                                                                  \
    X(lora_id)                                                                                     \
    X(medium)                                                                                      \
    X(lora_name)                                                                                   \
    X(extra_keys)                                                                                  \
    X(group_idx)

#define QR_REMOVED_FIELDS(X)                                                                       \
    X(block_hashes)                                                                                \
    X(medium)                                                                                      \
    X(group_idx)

enum { QR_STORED_REQUIRED = 4, QR_REMOVED_REQUIRED = 1 };

#define QR_TAG_STORED  "BlockStored"
#define QR_TAG_REMOVED "BlockRemoved"
#define QR_TAG_CLEARED "AllBlocksCleared"
#define QR_TAG_KEY     "type" /* of the map form */

#endif
