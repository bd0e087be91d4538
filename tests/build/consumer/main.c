/* The smallest program of a stranger's: makes a pool, takes two blocks, gives them back. */
#include <quire.h>

#include <stdio.h>

int main(void)
{
    if (quire_version() != QUIRE_VERSION_NUMBER) {
        fprintf(stderr, "header %d, library %u\n", QUIRE_VERSION_NUMBER, quire_version());
        return 1;
    }
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 8;
    quire_pool *pool = NULL;
    int status = quire_pool_create(&config, NULL, &pool);
    quire_block blocks[2];
    if (status == QUIRE_OK)
        status = quire_pool_get_new_blocks(pool, 2, blocks);
    if (status == QUIRE_OK)
        status = quire_pool_free_blocks(pool, blocks, 2);
    int all_free = quire_pool_get_num_free_blocks(pool) == 7;
    quire_pool_destroy(pool);
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", quire_status_name(status), quire_strerror(status));
        return 1;
    }
    return all_free ? 0 : 1;
}
