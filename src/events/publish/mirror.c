#include "events/publish/mirror.h"

#include "base/bits.h"
#include "base/memory.h"

int qr_mirror_create(const qr_mirror_config *config, qr_mirror **mirror_out)
{
    qr_mirror *mirror = qr_alloc(1, sizeof *mirror);
    if (mirror == NULL)
        return QUIRE_E_NOMEM;
    static const uint64_t secret[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xd1b54a32d192ed03)};
    mirror->num_blocks = config->num_blocks;
    mirror->num_places = config->num_blocks + config->num_extras;
    mirror->num_groups = config->num_groups;
    mirror->hash_bytes = config->hash_bytes;
    mirror->places = qr_alloc(mirror->num_places, sizeof *mirror->places);
    mirror->groups = qr_alloc(config->num_groups, sizeof *mirror->groups);
    mirror->hashes = qr_alloc(mirror->num_places, config->hash_bytes);
    if (config->num_extras > 0)
        mirror->links = qr_alloc(mirror->num_places, sizeof *mirror->links);
    bool has_links = config->num_extras == 0 || mirror->links != NULL;
    if (mirror->places == NULL || mirror->groups == NULL || mirror->hashes == NULL || !has_links ||
        !qr_buckets_create(&mirror->index, mirror->num_places, secret)) {
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
    qr_free(mirror->links);
    qr_free(mirror->places);
    qr_free(mirror);
}

static unsigned char *held_hash(const qr_mirror *mirror, uint32_t place)
{
    return mirror->hashes + (size_t)place * mirror->hash_bytes;
}

/* Hashes end with bits as good as random. */
static uint32_t tag_of(const qr_mirror *mirror, const unsigned char *hash, uint32_t group)
{
    uint32_t len = mirror->groups[group].hash_len;
    return qr_buckets_tag(&mirror->index, qr_load_u64(hash + len - sizeof(uint64_t)), group);
}

static bool holds(const qr_mirror *mirror, uint32_t place, const unsigned char *hash,
                  uint32_t group)
{
    return mirror->places[place].group == group &&
           memcmp(held_hash(mirror, place), hash, mirror->groups[group].hash_len) == 0;
}

/* The first place of the key's ring; 0: no block holds it. */
static uint32_t find_first(const qr_mirror *mirror, const unsigned char *hash, uint32_t group)
{
    qr_buckets_search search = qr_buckets_search_begin(&mirror->index, tag_of(mirror, hash, group));
    uint32_t first = qr_buckets_search_next(&search);
    while (first != 0 && !holds(mirror, first, hash, group))
        first = qr_buckets_search_next(&search);
    return first;
}

/* ---- the places of a block -------------------------------------------------- */

/* The block itself, then its further places, then 0. */
static uint32_t next_place(const qr_mirror *mirror, uint32_t place)
{
    return mirror->links == NULL ? 0 : mirror->links[place].next;
}

/* The place where the block holds this key; 0: it does not. */
static uint32_t find_place(const qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    uint32_t place = block;
    while (place != 0 && !holds(mirror, place, key->hash.data, key->group))
        place = next_place(mirror, place);
    return place;
}

/* An empty place of the block; 0: there is no room for one more key. */
static uint32_t take_place(qr_mirror *mirror, quire_block block)
{
    if (mirror->places[block].group == QR_NIL)
        return block;
    uint32_t place = mirror->first_free;
    if (place == 0)
        return 0;
    mirror->first_free = mirror->links[place].next;
    mirror->links[place] = (qr_mirror_link){mirror->links[block].next, block};
    mirror->links[block].next = place;
    return place;
}

static void free_place(qr_mirror *mirror, quire_block block, uint32_t place)
{
    uint32_t before = block;
    if (place == block)
        return;
    while (mirror->links[before].next != place)
        before = mirror->links[before].next;
    mirror->links[before].next = mirror->links[place].next;
    mirror->links[place] = (qr_mirror_link){mirror->first_free, 0};
    mirror->first_free = place;
}

quire_block qr_mirror_owner(const qr_mirror *mirror, uint32_t place)
{
    return place < mirror->num_blocks ? place : mirror->links[place].owner;
}

/* ---- keys ------------------------------------------------------------------- */

/* All keys of a group are of one length, which the first that is told settles. Partial keys are
 * told with fewer tokens than a block has. */
static bool takes_key(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (block == 0 || block >= mirror->num_blocks || key->group >= mirror->num_groups)
        return false;
    if (key->hash.len < sizeof(uint64_t) || key->hash.len > mirror->hash_bytes)
        return false;
    qr_mirror_group *group = &mirror->groups[key->group];
    if (group->hash_len == 0)
        group->hash_len = (uint32_t)key->hash.len;
    if (group->block_size < key->block_size)
        group->block_size = key->block_size;
    return group->hash_len == key->hash.len;
}

qr_mirror_change qr_mirror_set(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (!takes_key(mirror, block, key))
        return QR_MIRROR_REFUSED;
    if (find_place(mirror, block, key) != 0)
        return QR_MIRROR_SAME;
    uint32_t place = take_place(mirror, block);
    if (place == 0)
        return QR_MIRROR_REFUSED;
    qr_mirror_place *held = &mirror->places[place];
    uint32_t first = find_first(mirror, key->hash.data, key->group);
    memcpy(held_hash(mirror, place), key->hash.data, key->hash.len);
    held->group = key->group;
    mirror->num_held++;
    if (first == 0) {
        held->next = place;
        held->prev = place;
        qr_buckets_insert(&mirror->index, tag_of(mirror, key->hash.data, key->group), place);
        mirror->num_keys++;
        return QR_MIRROR_FIRST;
    }
    held->next = first;
    held->prev = mirror->places[first].prev;
    mirror->places[held->prev].next = place;
    mirror->places[first].prev = place;
    return QR_MIRROR_COPY;
}

int qr_mirror_get(const qr_mirror *mirror, uint32_t place, qr_mirror_key *key)
{
    if (place >= mirror->num_places || mirror->places[place].group == QR_NIL)
        return QUIRE_MISS;
    uint32_t group = mirror->places[place].group;
    *key = (qr_mirror_key){.group = group,
                           .block_size = mirror->groups[group].block_size,
                           .hash = {held_hash(mirror, place), mirror->groups[group].hash_len}};
    return QUIRE_OK;
}

qr_mirror_change qr_mirror_remove(qr_mirror *mirror, quire_block block, const qr_mirror_key *key)
{
    if (!takes_key(mirror, block, key))
        return QR_MIRROR_SAME;
    uint32_t place = find_place(mirror, block, key);
    if (place == 0)
        return QR_MIRROR_SAME;
    qr_mirror_place *held = &mirror->places[place];
    const unsigned char *hash = held_hash(mirror, place);
    uint32_t tag = tag_of(mirror, hash, held->group);
    qr_mirror_change change = held->next == place ? QR_MIRROR_FIRST : QR_MIRROR_COPY;
    bool is_first = find_first(mirror, hash, held->group) == place;
    if (is_first)
        qr_buckets_remove(&mirror->index, tag, place);
    if (change == QR_MIRROR_FIRST)
        mirror->num_keys--;
    else if (is_first)
        qr_buckets_insert(&mirror->index, tag, held->next);
    mirror->places[held->prev].next = held->next;
    mirror->places[held->next].prev = held->prev;
    held->group = QR_NIL;
    mirror->num_held--;
    free_place(mirror, block, place);
    return change;
}

void qr_mirror_forget(qr_mirror *mirror)
{
    for (uint32_t i = 0; i < mirror->num_places; i++)
        mirror->places[i].group = QR_NIL;
    mirror->first_free = 0;
    for (uint32_t i = 0; mirror->links != NULL && i < mirror->num_places; i++)
        mirror->links[i] = (qr_mirror_link){0, 0};
    for (uint32_t i = mirror->num_places; i-- > mirror->num_blocks;) {
        mirror->links[i].next = mirror->first_free;
        mirror->first_free = i;
    }
    qr_buckets_clear(&mirror->index);
    mirror->num_held = 0;
    mirror->num_keys = 0;
}

static bool is_first_of_key(const qr_mirror *mirror, uint32_t place)
{
    if (mirror->places[place].next == place)
        return true;
    return find_first(mirror, held_hash(mirror, place), mirror->places[place].group) == place;
}

uint32_t qr_mirror_next(const qr_mirror *mirror, uint32_t after, uint32_t group,
                        uint32_t every_copy)
{
    for (uint32_t place = after + 1; place < mirror->num_places; place++)
        if (mirror->places[place].group == group && (every_copy || is_first_of_key(mirror, place)))
            return place;
    return 0;
}
