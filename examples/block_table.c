/* block_table.c - where each token's keys and values go.
 *
 * Three requests run together in one batch, at different stages. The block table says which blocks
 * each has, the slot mapping says for every new token of the step where its KV is to be written:
 *
 *      slot = block x block size + position in the block
 */
#include <quire.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NUM_REQS   3
#define BLOCK_SIZE 4 /* small, so that the picture is */

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static void print_table(const quire_table_view *view)
{
    printf("block table\n");
    for (uint32_t row = 0; row < NUM_REQS; row++) {
        printf("  row %u  [", row);
        for (uint32_t i = 0; i < view->row_lengths[row]; i++)
            printf(" %2d", view->entries[row * view->row_stride + i]);
        printf(" ]\n");
    }
}

/* KV memory as a grid: a line for a block, a column for a place in it, and who writes there. */
static void print_grid(const quire_table_view *view, const int32_t *query_start_loc,
                       uint32_t num_blocks)
{
    printf("what this step writes, by slot (row numbers)\n");
    for (uint32_t block = 1; block < num_blocks; block++) {
        printf("  block %2u  |", block);
        for (uint32_t place = 0; place < BLOCK_SIZE; place++) {
            char letter = '.';
            for (int row = 0; row < NUM_REQS; row++)
                for (int t = query_start_loc[row]; t < query_start_loc[row + 1]; t++)
                    if (view->slot_mapping[t] == (int64_t)block * BLOCK_SIZE + place)
                        letter = (char)('0' + row);
            printf(" %c", letter);
        }
        printf(" |\n");
    }
}

int main(void)
{
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = NUM_REQS;
    config.max_num_blocks_per_req = 4;
    config.max_num_batched_tokens = 16;
    config.block_size = BLOCK_SIZE;
    quire_table *table = NULL;
    must(quire_table_create(&config, NULL, &table), "table");

    /* Row 0 has 9 tokens and computes its 10th; row 1 its 5th, for which it just got block 7; row 2
     * is new and computes the 6 tokens of its prompt. */
    must(quire_table_add_row(table, 0, (quire_block[]){3, 1, 8}, 3), "row 0");
    must(quire_table_add_row(table, 1, (quire_block[]){2}, 1), "row 1");
    must(quire_table_append_row(table, 1, (quire_block[]){7}, 1), "row 1 grows");
    must(quire_table_add_row(table, 2, (quire_block[]){5, 4}, 2), "row 2");

    const int32_t query_start_loc[NUM_REQS + 1] = {0, 1, 2, 8};
    const int64_t positions[8] = {9, 4, 0, 1, 2, 3, 4, 5};
    must(quire_table_compute_slot_mapping(table, NUM_REQS, query_start_loc, positions, 8), "slots");

    quire_table_view view = quire_table_get_view(table);
    print_table(&view);
    printf("slot mapping (-1: padding)\n ");
    for (uint32_t t = 0; t < 10; t++)
        printf(" %" PRId64, view.slot_mapping[t]);
    printf(" ...\n");
    print_grid(&view, query_start_loc, 9);

    /* The bytes of a block: 2 layers, one after the other, 4 KiB for each block of a layer. */
    quire_layout layout;
    must(quire_layout_layer_outer(0x10000000, 2, 9, 4096, &layout), "layout");
    printf("addresses of row 0's blocks\n");
    for (uint32_t layer = 0; layer < 2; layer++) {
        printf("  layer %u", layer);
        for (uint32_t i = 0; i < view.row_lengths[0]; i++)
            printf("  0x%" PRIx64,
                   quire_layout_address_of(&layout, layer, (quire_block)view.entries[i]));
        printf("\n");
    }
    quire_table_destroy(table);
    return 0;
}
