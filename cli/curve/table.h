/* cli/curve/table.h - blocks by their identity: where they stand in the stack, who used them last.
 *
 * Open addressing, 16 bytes a block, at most 3/4 full; nothing is ever taken out. A block that the
 * pool holds several times (lane.h) has an entry for each: the next one's key is
 * curve_table_next_key of the one's before.
 */
#ifndef QUIRE_CLI_CURVE_TABLE_H
#define QUIRE_CLI_CURVE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define CURVE_NOWHERE UINT32_MAX

typedef struct curve_entry {
    uint64_t key;            /* 0: free */
    uint32_t position;       /* CURVE_NOWHERE: new, or no longer in the stack */
    uint32_t last_user : 31; /* number of the request that held it last */
    uint32_t has_more : 1;   /* the entry of the next key is in the stack too */
} curve_entry;

typedef struct curve_table {
    curve_entry *entries;
    uint64_t num_slots;
    uint64_t num_used;
} curve_table;

/* All zero is an empty table. */
void curve_table_free(curve_table *table);
/* Room for `more` new keys; entries may move. False: no memory. */
bool curve_table_reserve(curve_table *table, uint64_t more);
/* The entry of a key, a new one where there is none; there must be room. It stays where it is until
 * the next reserve. */
curve_entry *curve_table_take(curve_table *table, uint64_t key);
/* Tells the processor that the key will be asked for. */
void curve_table_expect(const curve_table *table, uint64_t key);
uint64_t curve_table_next_key(uint64_t key);

#endif
