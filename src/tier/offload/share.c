#include "tier/offload/share.h"

#include "tier/core/key.h"
#include "tier/peer/server.h"

bool qr_share_fits(const quire_offload_config *config)
{
    const quire_peer_server *server = config->peer_server;
    if (server == NULL)
        return true;
    return config->memory != NULL && config->num_cpu_blocks <= server->table.max_slots &&
           config->block_bytes > 0 && config->block_bytes <= server->max_block_bytes;
}

void qr_share_init(qr_share *share, const quire_offload_config *config, quire_pool *pool)
{
    *share = (qr_share){.server = config->peer_server,
                        .pool = pool,
                        .memory = config->memory,
                        .block_bytes = (uint32_t)config->block_bytes,
                        .num_blocks = config->num_cpu_blocks,
                        .rank = config->rank};
}

void qr_share_offer(const qr_share *share, const quire_block *blocks, const uint32_t *crcs,
                    uint32_t n)
{
    for (uint32_t i = 0; share->server != NULL && i < n; i++) {
        quire_block_info named;
        quire_tier_key key;
        if (blocks[i] == QUIRE_NULL_BLOCK || blocks[i] >= share->num_blocks ||
            quire_pool_get_blocks(share->pool, &blocks[i], 1, &named) != QUIRE_OK ||
            named.hash.data == NULL)
            continue;
        qr_key_make(named.hash, named.group_id, share->rank, &key);
        (void)quire_peer_server_offer(share->server, blocks[i], &key,
                                      share->memory + (size_t)blocks[i] * share->block_bytes,
                                      share->block_bytes, crcs == NULL ? NULL : &crcs[i]);
    }
}

void qr_share_withdraw(const qr_share *share, const quire_block *blocks, uint32_t n)
{
    for (uint32_t i = 0; share->server != NULL && i < n; i++)
        (void)quire_peer_server_withdraw(share->server, blocks[i]);
}

void qr_share_withdraw_all(const qr_share *share)
{
    for (quire_block block = 0; share->server != NULL && block < share->num_blocks; block++)
        (void)quire_peer_server_withdraw(share->server, block);
}
