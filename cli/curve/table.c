#include "table.h"

#include <stdlib.h>

void curve_table_free(curve_table *table)
{
    free(table->entries);
    *table = (curve_table){0};
}

/* Keys are as good as random: their upper bits spread over any number of slots. */
static uint64_t home_of(const curve_table *table, uint64_t key)
{
    return (uint64_t)(((unsigned __int128)key * table->num_slots) >> 64);
}

static curve_entry *probe(const curve_table *table, uint64_t key)
{
    uint64_t at = home_of(table, key);
    while (table->entries[at].key != 0 && table->entries[at].key != key)
        if (++at == table->num_slots)
            at = 0;
    return &table->entries[at];
}

bool curve_table_reserve(curve_table *table, uint64_t more)
{
    uint64_t wanted = table->num_used + more;
    if (wanted <= table->num_slots / 4 * 3)
        return true;
    curve_table larger = {.num_slots = wanted * 2 + 1024, .num_used = table->num_used};
    larger.entries = calloc(larger.num_slots, sizeof *larger.entries);
    if (larger.entries == NULL)
        return false;
    for (uint64_t i = 0; i < table->num_slots; i++)
        if (table->entries[i].key != 0)
            *probe(&larger, table->entries[i].key) = table->entries[i];
    free(table->entries);
    *table = larger;
    return true;
}

curve_entry *curve_table_take(curve_table *table, uint64_t key)
{
    curve_entry *entry = probe(table, key);
    if (entry->key == 0) {
        *entry = (curve_entry){.key = key, .position = CURVE_NOWHERE};
        table->num_used++;
    }
    return entry;
}

void curve_table_expect(const curve_table *table, uint64_t key)
{
    __builtin_prefetch(&table->entries[home_of(table, key)], 1);
}

uint64_t curve_table_next_key(uint64_t key)
{
    uint64_t next = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93) + 1;
    next ^= next >> 29;
    return next != 0 ? next : 1;
}
