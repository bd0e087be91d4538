#include "tier/offload_storing.h"

uint32_t qr_storing_size(uint32_t num_cpu)
{
    uint32_t size = QR_STORING_LEAST;
    while (size < num_cpu && size < UINT32_C(1) << 30)
        size *= 2;
    return size * 2;
}

static uint32_t home_of(const quire_offload *o, uint64_t print)
{
    return (uint32_t)(print >> 32) & (o->flight_size - 1);
}

static void put(quire_offload *o, quire_block cpu)
{
    uint32_t mask = o->flight_size - 1;
    uint32_t i = home_of(o, o->store_print[cpu]);
    while (o->flight_keys[i] != QUIRE_NULL_BLOCK)
        i = (i + 1) & mask;
    o->flight_keys[i] = cpu;
}

/* Twice the places: a table as small as what is on the way stays near. */
static void grow(quire_offload *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->flight_size; i++) {
        if (o->flight_keys[i] != QUIRE_NULL_BLOCK)
            o->refs[n++] = o->flight_keys[i];
        o->flight_keys[i] = QUIRE_NULL_BLOCK;
    }
    o->flight_size *= 2;
    for (uint32_t i = 0; i < n; i++)
        put(o, o->refs[i]);
}

bool qr_storing_has(const quire_offload *o, uint64_t print)
{
    uint32_t mask = o->flight_size - 1;
    for (uint32_t i = home_of(o, print); o->flight_keys[i] != QUIRE_NULL_BLOCK; i = (i + 1) & mask)
        if (o->store_print[o->flight_keys[i]] == print)
            return true;
    return false;
}

void qr_storing_add(quire_offload *o, quire_block cpu, uint64_t print)
{
    if (++o->num_flight * 2 > o->flight_size && o->flight_size < o->flight_most)
        grow(o);
    o->store_print[cpu] = print;
    put(o, cpu);
}

/* Those behind it that would no longer be found move up. */
void qr_storing_remove(quire_offload *o, quire_block cpu)
{
    uint32_t mask = o->flight_size - 1;
    uint32_t hole = home_of(o, o->store_print[cpu]);
    while (o->flight_keys[hole] != cpu)
        hole = (hole + 1) & mask;
    for (uint32_t i = (hole + 1) & mask; o->flight_keys[i] != QUIRE_NULL_BLOCK;
         i = (i + 1) & mask) {
        uint32_t home = home_of(o, o->store_print[o->flight_keys[i]]);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* its home is behind the hole */
        o->flight_keys[hole] = o->flight_keys[i];
        hole = i;
    }
    o->flight_keys[hole] = QUIRE_NULL_BLOCK;
    if (--o->num_flight == 0)
        o->flight_size = QR_STORING_LEAST;
}
