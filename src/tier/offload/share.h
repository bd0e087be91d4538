/* tier/offload/share.h - the CPU pool's blocks as offers of a quire_peer_server.
 *
 *      block n of the CPU pool = slot n of the server
 *
 *      taken for a store or a load ──► withdraw, before anything writes its memory
 *      content and key are there   ──► offer
 *
 * A block that the pool evicts without using its memory stays offered: its bytes are still those of
 * its key.
 */
#ifndef QR_TIER_OFFLOAD_SHARE_H
#define QR_TIER_OFFLOAD_SHARE_H

#include <quire/offload.h>

#include <stdbool.h>

typedef struct qr_share {
    quire_peer_server *server; /* NULL: nothing is shared, and no call does anything */
    quire_pool *pool;
    unsigned char *memory;
    uint32_t block_bytes;
    uint32_t num_blocks;
    uint32_t rank;
} qr_share;

/* Whether the server has room for the blocks of this config; true without a server. */
bool qr_share_fits(const quire_offload_config *config);
void qr_share_init(qr_share *share, const quire_offload_config *config, quire_pool *pool);

/* These have their content and their keys; crcs: NULL, not known. */
void qr_share_offer(const qr_share *share, const quire_block *blocks, const uint32_t *crcs,
                    uint32_t n);
void qr_share_withdraw(const qr_share *share, const quire_block *blocks, uint32_t n);
void qr_share_withdraw_all(const qr_share *share);

#endif
