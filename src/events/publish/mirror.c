#include "events/publish/mirror.h"

#include "base/bits.h"
#include "base/memory.h"

int qr_mirror_create(uint32_t num_blocks, uint32_t num_groups, uint32_t hash_bytes,
                     qr_mirror **mirror_out)
{
    qr_mirror *mirror = qr_alloc(1, sizeof *mirror);
    if (mirror == NULL)
        return QUIRE_E_NOMEM;
    static const uint64_t secret[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xd1b54a32d192ed03)};
    mirror->num_blocks = num_blocks;
    mirror->num_groups = num_groups;
    mirror->hash_bytes = hash_bytes;
    mirror->blocks = qr_alloc(num_blocks, sizeof *mirror->blocks);
    mirror->groups = qr_alloc(num_groups, sizeof *mirror->groups);
    mirror->hashes = qr_alloc(num_blocks, hash_bytes);
    if (mirror->blocks == NULL || mirror->groups == NULL || mirror->hashes == NULL ||
        !qr_buckets_create(&mirror->index, num_blocks, secret)) {
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
    qr_free(mirror->index.all);
    qr_free(mirror->hashes);
    qr_free(mirror->groups);
    qr_free(mirror->blocks);
    qr_free(mirror);
}

static unsigned char *held_hash(const qr_mirror *mirror, quire_block block)
{
    return mirror->hashes + (size_t)block * mirror->hash_bytes;
}

/* Hashes end with bits as good as random. */
static uint32_t tag_of(const qr_mirror *mirror, const unsigned char *hash, uint32_t group)
{
    uint32_t len = mirror->groups[group].hash_len;
    return qr_buckets_tag(&mirror->index, qr_load_u64(hash + len - sizeof(uint64_t)), group);
}

/* The first block of the key's ring; 0: no block holds it. */
static quire_block find_first(const qr_mirror *mirror, const unsigned char *hash, uint32_t group)
{
    qr_buckets_search search = qr_buckets_search_begin(&mirror->index, tag_of(mirror, hash, group));
    quire_block first = qr_buckets_search_next(&search);
    while (first != 0 &&
           (mirror->blocks[first].group != group ||
            memcmp(held_hash(mirror, first), hash, mirror->groups[group].hash_len) != 0))
        first = qr_buckets_search_next(&search);
    return first;
}

/* All keys of a group are of one length, which the first that is told settles. */
static bool takes_key(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (block == 0 || block >= mirror->num_blocks || key->group >= mirror->num_groups)
        return false;
    if (key->hash.len < sizeof(uint64_t) || key->hash.len > mirror->hash_bytes)
        return false;
    qr_mirror_group *group = &mirror->groups[key->group];
    if (group->hash_len == 0)
        group->hash_len = (uint32_t)key->hash.len;
    group->block_size = key->block_size;
    return group->hash_len == key->hash.len;
}

qr_mirror_change qr_mirror_set(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (!takes_key(mirror, block, key))
        return QR_MIRROR_REFUSED;
    qr_mirror_block *held = &mirror->blocks[block];
    if (held->group != QR_NIL) {
        bool is_same = held->group == key->group &&
                       memcmp(held_hash(mirror, block), key->hash.data, key->hash.len) == 0;
        return is_same ? QR_MIRROR_SAME : QR_MIRROR_REFUSED;
    }
    quire_block first = find_first(mirror, key->hash.data, key->group);
    memcpy(held_hash(mirror, block), key->hash.data, key->hash.len);
    held->group = key->group;
    mirror->num_held++;
    if (first == 0) {
        held->next = block;
        held->prev = block;
        qr_buckets_insert(&mirror->index, tag_of(mirror, key->hash.data, key->group), block);
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
    qr_mirror_block *held = &mirror->blocks[block];
    const unsigned char *hash = held_hash(mirror, block);
    uint32_t tag = tag_of(mirror, hash, held->group);
    qr_mirror_change change = held->next == block ? QR_MIRROR_FIRST : QR_MIRROR_COPY;
    bool is_first = find_first(mirror, hash, held->group) == block;
    if (is_first)
        qr_buckets_remove(&mirror->index, tag, block);
    if (change == QR_MIRROR_FIRST)
        mirror->num_keys--;
    else if (is_first)
        qr_buckets_insert(&mirror->index, tag, held->next);
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
    qr_buckets_clear(&mirror->index);
    mirror->num_held = 0;
    mirror->num_keys = 0;
}

static bool is_first_of_key(const qr_mirror *mirror, quire_block block)
{
    if (mirror->blocks[block].next == block)
        return true;
    return find_first(mirror, held_hash(mirror, block), mirror->blocks[block].group) == block;
}

quire_block qr_mirror_next(const qr_mirror *mirror, quire_block after, uint32_t group,
                           uint32_t every_copy)
{
    for (quire_block block = after + 1; block < mirror->num_blocks; block++)
        if (mirror->blocks[block].group == group && (every_copy || is_first_of_key(mirror, block)))
            return block;
    return 0;
}
