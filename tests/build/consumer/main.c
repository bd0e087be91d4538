/* The smallest program of a stranger's that needs every part of the library, and with it every
 * library that Quire itself needs: takes blocks from a pool and gives them back, hashes one block.
 */
#include <quire.h>

#include <stdio.h>

static int use_pool(void)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 8;
    quire_pool *pool = NULL;
    int status = quire_pool_create(&config, NULL, &pool);
    quire_block blocks[2];
    if (status == QUIRE_OK)
        status = quire_pool_get_new_blocks(pool, 2, blocks);
    if (status == QUIRE_OK)
        status = quire_pool_free_blocks(pool, blocks, 2);
    quire_pool_destroy(pool);
    return status;
}

static int use_hasher(void)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = NULL;
    int status = quire_hasher_create(&config, NULL, &hasher);
    const quire_token tokens[] = {1, 2, 3, 4};
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    quire_bytes parent = {NULL, 0};
    if (status == QUIRE_OK)
        status = quire_hasher_hash_block(hasher, parent, tokens, 4, NULL, 0, digest);
    quire_hasher_destroy(hasher);
    return status;
}

int main(void)
{
    if (quire_version() != QUIRE_VERSION_NUMBER) {
        fprintf(stderr, "header %d, library %u\n", QUIRE_VERSION_NUMBER, quire_version());
        return 1;
    }
    int status = use_pool();
    if (status == QUIRE_OK)
        status = use_hasher();
    if (status != QUIRE_OK)
        fprintf(stderr, "%s: %s\n", quire_status_name(status), quire_strerror(status));
    return status == QUIRE_OK ? 0 : 1;
}
