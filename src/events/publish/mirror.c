#include "events/publish/mirror.h"

#include "base/bits.h"
#include "base/memory.h"

/* A block of the ring of its key. */
typedef struct mirror_block {
    uint32_t next;
    uint32_t prev;
    uint32_t group; /* QR_NIL: it holds no key */
} mirror_block;

/* What all keys of a group have in common. */
typedef struct mirror_group {
    uint32_t block_size;
    uint32_t hash_len;
} mirror_group;

struct qr_mirror {
    uint32_t num_blocks;
    uint32_t num_groups;
    uint32_t hash_bytes;
    uint32_t mask; /* of the table: slots - 1 */
    uint32_t num_held;
    uint32_t num_keys;
    mirror_block *blocks;
    mirror_group *groups;
    unsigned char *hashes; /* hash_bytes for each block */
    uint32_t *table;       /* the key's first block; 0, the null block: empty */
};

int qr_mirror_create(uint32_t num_blocks, uint32_t num_groups, uint32_t hash_bytes,
                     qr_mirror **mirror_out)
{
    qr_mirror *mirror = qr_alloc(1, sizeof *mirror);
    if (mirror == NULL)
        return QUIRE_E_NOMEM;
    uint64_t slots = qr_round_up_pow2(num_blocks < 8 ? 16 : 2 * (uint64_t)num_blocks);
    mirror->num_blocks = num_blocks;
    mirror->num_groups = num_groups;
    mirror->hash_bytes = hash_bytes;
    mirror->mask = (uint32_t)(slots - 1);
    mirror->blocks = qr_alloc(num_blocks, sizeof *mirror->blocks);
    mirror->groups = qr_alloc(num_groups, sizeof *mirror->groups);
    mirror->hashes = qr_alloc(num_blocks, hash_bytes);
    mirror->table = qr_alloc((size_t)slots, sizeof *mirror->table);
    if (mirror->blocks == NULL || mirror->groups == NULL || mirror->hashes == NULL ||
        mirror->table == NULL) {
        qr_mirror_destroy(mirror);
        return QUIRE_E_NOMEM;
    }
    qr_mirror_forget(mirror);
    *mirror_out = mirror;
    return QUIRE_OK;
}

void qr_mirror_destroy(qr_mirror *mirror)
{
    if (mirror == NULL)
        return;
    qr_free(mirror->table);
    qr_free(mirror->hashes);
    qr_free(mirror->groups);
    qr_free(mirror->blocks);
    qr_free(mirror);
}

static unsigned char *held_hash(const qr_mirror *mirror, quire_block block)
{
    return mirror->hashes + (size_t)block * mirror->hash_bytes;
}

/* Hashes end with bits as good as random; the multiplication brings the group in. */
static uint32_t home_slot(const qr_mirror *mirror, const unsigned char *hash, uint32_t len,
                          uint32_t group)
{
    uint64_t bits = qr_load_u64(hash + len - sizeof bits) ^ ((uint64_t)group << 32 | group);
    return (uint32_t)((bits * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mirror->mask;
}

/* The slot that has the key, or the empty one where it would go. */
static uint32_t key_slot(const qr_mirror *mirror, const unsigned char *hash, uint32_t group)
{
    uint32_t len = mirror->groups[group].hash_len;
    uint32_t slot = home_slot(mirror, hash, len, group);
    while (mirror->table[slot] != 0) {
        quire_block first = mirror->table[slot];
        if (mirror->blocks[first].group == group &&
            memcmp(held_hash(mirror, first), hash, len) == 0)
            break;
        slot = (slot + 1) & mirror->mask;
    }
    return slot;
}

/* Empties a slot, and moves up those behind it that would no longer be found. */
static void empty_slot(qr_mirror *mirror, uint32_t hole)
{
    uint32_t slot = hole;
    for (;;) {
        slot = (slot + 1) & mirror->mask;
        quire_block block = mirror->table[slot];
        if (block == 0)
            break;
        uint32_t group = mirror->blocks[block].group;
        uint32_t home =
            home_slot(mirror, held_hash(mirror, block), mirror->groups[group].hash_len, group);
        if (((slot - home) & mirror->mask) >= ((slot - hole) & mirror->mask)) {
            mirror->table[hole] = block;
            hole = slot;
        }
    }
    mirror->table[hole] = 0;
}

/* All keys of a group are of one length, which the first that is told settles. */
static bool takes_key(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (block == 0 || block >= mirror->num_blocks || key->group >= mirror->num_groups)
        return false;
    if (key->hash.len < sizeof(uint64_t) || key->hash.len > mirror->hash_bytes)
        return false;
    mirror_group *group = &mirror->groups[key->group];
    if (group->hash_len == 0)
        group->hash_len = (uint32_t)key->hash.len;
    group->block_size = key->block_size;
    return group->hash_len == key->hash.len;
}

qr_mirror_change qr_mirror_set(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (!takes_key(mirror, block, key))
        return QR_MIRROR_REFUSED;
    mirror_block *held = &mirror->blocks[block];
    if (held->group != QR_NIL) {
        bool is_same = held->group == key->group &&
                       memcmp(held_hash(mirror, block), key->hash.data, key->hash.len) == 0;
        return is_same ? QR_MIRROR_SAME : QR_MIRROR_REFUSED;
    }
    uint32_t slot = key_slot(mirror, key->hash.data, key->group);
    quire_block first = mirror->table[slot];
    memcpy(held_hash(mirror, block), key->hash.data, key->hash.len);
    held->group = key->group;
    mirror->num_held++;
    if (first == 0) {
        held->next = block;
        held->prev = block;
        mirror->table[slot] = block;
        mirror->num_keys++;
        return QR_MIRROR_FIRST;
    }
    held->next = first;
    held->prev = mirror->blocks[first].prev;
    mirror->blocks[held->prev].next = block;
    mirror->blocks[first].prev = block;
    return QR_MIRROR_COPY;
}

int qr_mirror_get(const qr_mirror *mirror, quire_block block, qr_mirror_key *key)
{
    if (block >= mirror->num_blocks || mirror->blocks[block].group == QR_NIL)
        return QUIRE_MISS;
    uint32_t group = mirror->blocks[block].group;
    *key = (qr_mirror_key){.group = group,
                           .block_size = mirror->groups[group].block_size,
                           .hash = {held_hash(mirror, block), mirror->groups[group].hash_len}};
    return QUIRE_OK;
}

qr_mirror_change qr_mirror_remove(qr_mirror *mirror, quire_block block)
{
    if (block >= mirror->num_blocks || mirror->blocks[block].group == QR_NIL)
        return QR_MIRROR_SAME;
    mirror_block *held = &mirror->blocks[block];
    uint32_t slot = key_slot(mirror, held_hash(mirror, block), held->group);
    qr_mirror_change change = held->next == block ? QR_MIRROR_FIRST : QR_MIRROR_COPY;
    if (change == QR_MIRROR_FIRST) {
        empty_slot(mirror, slot);
        mirror->num_keys--;
    } else if (mirror->table[slot] == block) {
        mirror->table[slot] = held->next;
    }
    mirror->blocks[held->prev].next = held->next;
    mirror->blocks[held->next].prev = held->prev;
    held->group = QR_NIL;
    mirror->num_held--;
    return change;
}

void qr_mirror_forget(qr_mirror *mirror)
{
    for (uint32_t i = 0; i < mirror->num_blocks; i++)
        mirror->blocks[i].group = QR_NIL;
    memset(mirror->table, 0, ((size_t)mirror->mask + 1) * sizeof *mirror->table);
    mirror->num_held = 0;
    mirror->num_keys = 0;
}

uint32_t qr_mirror_num_blocks(const qr_mirror *mirror)
{
    return mirror->num_held;
}

uint32_t qr_mirror_num_keys(const qr_mirror *mirror)
{
    return mirror->num_keys;
}

static bool is_first_of_key(const qr_mirror *mirror, quire_block block)
{
    if (mirror->blocks[block].next == block)
        return true;
    uint32_t group = mirror->blocks[block].group;
    return mirror->table[key_slot(mirror, held_hash(mirror, block), group)] == block;
}

quire_block qr_mirror_next(const qr_mirror *mirror, quire_block after, uint32_t group,
                           uint32_t every_copy)
{
    for (quire_block block = after + 1; block < mirror->num_blocks; block++)
        if (mirror->blocks[block].group == group && (every_copy || is_first_of_key(mirror, block)))
            return block;
    return 0;
}
