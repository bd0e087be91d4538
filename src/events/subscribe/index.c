/* events/subscribe/index.c - which worker has which blocks, put together from their events.
 *
 *      table      [ tag, id | .. | tag, id | .. ]      open addressing, at most half full
 *                        |
 *      same content   [ worker 0 ] ─► [ worker 1 ] ─► [ worker 7 ]      hash, group and medium
 *                           │
 *      same worker    [ .. ] ◄─► [ .. ] ◄─► [ .. ]      so that a worker can be forgotten alone
 *
 * A record is one block of one worker: 64 bytes with its hash. A question looks each hash up once
 * for all workers, and walks those that have it.
 *
 * Records and table grow by doubling: a router does not know how large the caches are that it will
 * hear of, and 16 million records planned in advance would be a gigabyte for a test with two
 * workers. Growing moves nothing but 8 bytes of the table for each content; its tag is kept there.
 *
 *      heads in the table = different contents      records in lists of workers = num_blocks
 */
#include "base/hooks.h"
#include "base/memory.h"

#include "base/bits.h"
#include "base/config.h"
#include "base/list.h"

#include <quire/wire.h>

#include <string.h>

enum {
    SHORT_BYTES = 32, /* of a hash that lies in its record */
    MAX_HASH_BYTES = 4096,
    MAX_MEDIA = 64,
    MAX_MEDIUM_BYTES = 64,
    DEFAULT_WORKERS = 64,
    MAX_WORKERS = 65535,
    FIRST_RECORDS = 1024
};
static const uint64_t DEFAULT_BLOCKS = UINT64_C(16) << 20;
static const uint64_t MAX_BLOCKS = UINT64_C(1) << 31;
static const uint16_t IS_NUMBER = UINT16_MAX; /* instead of a length */

typedef struct index_record {
    union {
        uint64_t number;
        unsigned char bytes[SHORT_BYTES];
        unsigned char *long_bytes;
    } hash;
    uint16_t hash_len; /* or IS_NUMBER */
    uint16_t worker;
    uint32_t group;
    uint32_t copies;
    uint32_t medium;    /* in media */
    uint32_t same_next; /* with the same content; of free records: the next free one */
    qr_link link;       /* of the same worker */
} index_record;
_Static_assert(sizeof(index_record) == 64, "one line");

typedef struct index_slot {
    uint32_t tag;
    uint32_t head; /* QR_NIL: empty */
} index_slot;

typedef struct index_medium {
    bool is_absent;
    size_t len;
    char name[MAX_MEDIUM_BYTES];
} index_medium;

struct quire_index {
    bool counts_copies;
    uint32_t max_workers;
    uint64_t max_blocks;
    uint64_t secret[2];
    index_record *records;
    uint32_t num_records; /* that were ever used */
    uint32_t max_records;
    uint32_t first_free;
    index_slot *slots;
    uint64_t num_slots; /* a power of two, or 0 */
    uint64_t num_heads;
    qr_chain *workers; /* their records */
    index_medium media[MAX_MEDIA];
    uint32_t num_media;
    uint64_t num_groupless; /* records of QUIRE_INDEX_NO_GROUP */
    quire_index_stats stats;
};

/* What is looked up: a content, and for one block of one worker that worker. */
typedef struct index_key {
    quire_wire_hash hash;
    uint32_t group;
    uint32_t medium;
    uint32_t worker;
} index_key;

/* ---- hashes ---------------------------------------------------------------- */

/* Keyed, so that nobody outside can choose hashes that all fall into one place. */
static uint64_t stir(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ b) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 31) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 29;
}

static uint64_t hash_key(const quire_index *x, const index_key *key)
{
    uint64_t state = stir(x->secret[1] + key->group, x->secret[0]) + key->medium;
    const unsigned char *data = key->hash.bytes.data;
    if (data == NULL)
        return stir(state + key->hash.number, x->secret[0]);
    size_t left = key->hash.bytes.len;
    for (; left >= 8; left -= 8, data += 8)
        state = stir(state + qr_load_u64(data), x->secret[0]);
    uint64_t last = left; /* at most 7 bytes, and how many */
    if (left > 0)
        memcpy((unsigned char *)&last + 1, data, left);
    return stir(state + last, x->secret[0]);
}

static uint32_t tag_of(const quire_index *x, const index_key *key)
{
#if defined(QUIRE_HOSTILE)
    return (uint32_t)(hash_key(x, key) >> 60);
#else
    return (uint32_t)(hash_key(x, key) >> 32);
#endif
}

static const void *record_bytes(const index_record *r)
{
    return r->hash_len > SHORT_BYTES ? r->hash.long_bytes : r->hash.bytes;
}

static bool has_content(const index_record *r, const index_key *key)
{
    const quire_bytes *bytes = &key->hash.bytes;
    if (r->group != key->group || r->medium != key->medium)
        return false;
    if (bytes->data == NULL)
        return r->hash_len == IS_NUMBER && r->hash.number == key->hash.number;
    return r->hash_len != IS_NUMBER && r->hash_len == bytes->len &&
           memcmp(record_bytes(r), bytes->data, bytes->len) == 0;
}

static bool keep_hash(index_record *r, const quire_wire_hash *hash)
{
    if (hash->bytes.data == NULL) {
        r->hash_len = IS_NUMBER;
        r->hash.number = hash->number;
        return true;
    }
    r->hash_len = (uint16_t)hash->bytes.len;
    unsigned char *to = r->hash.bytes;
    if (hash->bytes.len > SHORT_BYTES) {
        to = qr_alloc_raw(hash->bytes.len);
        if (to == NULL)
            return false;
        r->hash.long_bytes = to;
    }
    memcpy(to, hash->bytes.data, hash->bytes.len);
    return true;
}

static void forget_hash(index_record *r)
{
    if (r->hash_len != IS_NUMBER && r->hash_len > SHORT_BYTES)
        qr_free(r->hash.long_bytes);
}

static quire_wire_hash hash_of(const index_record *r)
{
    if (r->hash_len == IS_NUMBER)
        return (quire_wire_hash){.number = r->hash.number};
    return (quire_wire_hash){.bytes = {record_bytes(r), r->hash_len}};
}

/* ---- the table ------------------------------------------------------------- */

/* The slot of a content, or the empty one where it would go. There must be slots. */
static uint64_t find_slot(const quire_index *x, const index_key *key, uint32_t tag)
{
    uint64_t at = tag & (x->num_slots - 1);
    while (x->slots[at].head != QR_NIL &&
           (x->slots[at].tag != tag || !has_content(&x->records[x->slots[at].head], key)))
        at = (at + 1) & (x->num_slots - 1);
    return at;
}

static bool grow_table(quire_index *x)
{
    uint64_t num_slots = x->num_slots == 0 ? UINT64_C(2) * FIRST_RECORDS : 2 * x->num_slots;
    index_slot *slots = qr_alloc_raw(qr_mul_size(num_slots, sizeof slots[0]));
    if (slots == NULL)
        return false;
    for (uint64_t i = 0; i < num_slots; i++)
        slots[i] = (index_slot){0, QR_NIL};
    for (uint64_t i = 0; i < x->num_slots; i++) {
        if (x->slots[i].head == QR_NIL)
            continue;
        uint64_t at = x->slots[i].tag & (num_slots - 1);
        while (slots[at].head != QR_NIL)
            at = (at + 1) & (num_slots - 1);
        slots[at] = x->slots[i];
    }
    qr_free(x->slots);
    x->slots = slots;
    x->num_slots = num_slots;
    return true;
}

/* Empties a slot; those behind it that would not be found any more move up. */
static void empty_slot(quire_index *x, uint64_t hole)
{
    uint64_t mask = x->num_slots - 1;
    for (uint64_t at = (hole + 1) & mask; x->slots[at].head != QR_NIL; at = (at + 1) & mask) {
        uint64_t home = x->slots[at].tag & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            x->slots[hole] = x->slots[at];
            hole = at;
        }
    }
    x->slots[hole].head = QR_NIL;
    x->num_heads--;
}

/* ---- records --------------------------------------------------------------- */

static uint32_t take_record(quire_index *x)
{
    uint32_t id = x->first_free;
    if (id != QR_NIL) {
        x->first_free = x->records[id].same_next;
        return id;
    }
    if (x->num_records == x->max_records) {
        uint64_t more = x->max_records == 0 ? FIRST_RECORDS : 2 * (uint64_t)x->max_records;
        more = more < x->max_blocks ? more : x->max_blocks;
        if (more <= x->max_records)
            return QR_NIL;
        index_record *records = qr_realloc(x->records, qr_mul_size(more, sizeof x->records[0]));
        if (records == NULL)
            return QR_NIL;
        x->records = records;
        x->max_records = (uint32_t)more;
    }
    return x->num_records++;
}

static void give_record(quire_index *x, uint32_t id)
{
    x->records[id].same_next = x->first_free;
    x->first_free = id;
}

/* ---- one block ------------------------------------------------------------- */

/* The first record of a content; QR_NIL: none. */
static uint32_t find_head(const quire_index *x, const index_key *key)
{
    return x->num_slots == 0 ? QR_NIL : x->slots[find_slot(x, key, tag_of(x, key))].head;
}

static uint32_t find_record(const quire_index *x, const index_key *key)
{
    uint32_t id = find_head(x, key);
    while (id != QR_NIL && x->records[id].worker != key->worker)
        id = x->records[id].same_next;
    return id;
}

static bool insert(quire_index *x, const index_key *key)
{
    if (x->stats.num_blocks >= x->max_blocks || key->hash.bytes.len > MAX_HASH_BYTES)
        return false;
    if (2 * (x->num_heads + 1) > x->num_slots && !grow_table(x))
        return false;
    uint32_t id = take_record(x);
    if (id == QR_NIL)
        return false;
    index_record *r = &x->records[id];
    if (!keep_hash(r, &key->hash)) {
        give_record(x, id);
        return false;
    }
    uint32_t tag = tag_of(x, key);
    index_slot *slot = &x->slots[find_slot(x, key, tag)];
    r->worker = (uint16_t)key->worker;
    r->group = key->group;
    r->medium = key->medium;
    r->copies = 1;
    r->same_next = slot->head;
    x->num_heads += slot->head == QR_NIL;
    *slot = (index_slot){tag, id};
    qr_chain *chain = &x->workers[key->worker];
    qr_chain_insert(chain, &x->records->link, sizeof *r, chain->first, id);
    x->stats.num_blocks++;
    x->num_groupless += key->group == QUIRE_INDEX_NO_GROUP;
    return true;
}

static void erase(quire_index *x, uint32_t id)
{
    index_record *r = &x->records[id];
    index_key key = {hash_of(r), r->group, r->medium, r->worker};
    uint64_t at = find_slot(x, &key, tag_of(x, &key));
    if (x->slots[at].head == id && r->same_next == QR_NIL) {
        empty_slot(x, at);
    } else {
        uint32_t *link = &x->slots[at].head;
        while (*link != id)
            link = &x->records[*link].same_next;
        *link = r->same_next;
    }
    x->num_groupless -= r->group == QUIRE_INDEX_NO_GROUP;
    x->stats.num_blocks--;
    qr_chain_remove(&x->workers[r->worker], &x->records->link, sizeof *r, id);
    forget_hash(r);
    give_record(x, id);
}

static void store(quire_index *x, const index_key *key)
{
    uint32_t id = find_record(x, key);
    if (id == QR_NIL) {
        bool is_in = insert(x, key);
        x->stats.num_stored += is_in;
        x->stats.num_dropped += !is_in;
        return;
    }
    x->stats.num_stored++;
    if (x->counts_copies && x->records[id].copies < UINT32_MAX)
        x->records[id].copies++;
}

static void remove_one(quire_index *x, const index_key *key)
{
    uint32_t id = find_record(x, key);
    if (id == QR_NIL) {
        x->stats.num_unknown++;
        return;
    }
    x->stats.num_removed++;
    if (--x->records[id].copies == 0)
        erase(x, id);
}

/* ---- media ----------------------------------------------------------------- */

/* MAX_MEDIA: not known. */
static uint32_t find_medium(const quire_index *x, quire_bytes name)
{
    for (uint32_t i = 0; i < x->num_media; i++) {
        const index_medium *m = &x->media[i];
        if (m->is_absent == (name.data == NULL) &&
            (m->is_absent || (m->len == name.len && memcmp(m->name, name.data, m->len) == 0)))
            return i;
    }
    return MAX_MEDIA;
}

static uint32_t add_medium(quire_index *x, quire_bytes name)
{
    uint32_t found = find_medium(x, name);
    if (found < MAX_MEDIA || x->num_media == MAX_MEDIA || name.len > MAX_MEDIUM_BYTES)
        return found;
    index_medium *m = &x->media[x->num_media];
    m->is_absent = name.data == NULL;
    m->len = name.len;
    if (name.len > 0 && name.data != NULL)
        memcpy(m->name, name.data, name.len);
    return x->num_media++;
}

/* ---- the calls ------------------------------------------------------------- */

static int make_index(const quire_index_config *config, quire_index *x)
{
    x->max_workers = config->max_workers == 0 ? DEFAULT_WORKERS : config->max_workers;
    x->max_blocks = config->max_blocks == 0 ? DEFAULT_BLOCKS : config->max_blocks;
    if (x->max_workers > MAX_WORKERS || x->max_blocks > MAX_BLOCKS)
        return QUIRE_E_CONFIG;
    x->counts_copies = config->count_copies != 0;
    x->first_free = QR_NIL;
    if (qr_random_bytes(NULL, x->secret, sizeof x->secret) != 0)
        return QUIRE_E_RANDOM;
    x->workers = qr_alloc_raw(x->max_workers * sizeof x->workers[0]);
    if (x->workers == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < x->max_workers; i++)
        x->workers[i] = QR_CHAIN_EMPTY;
    return QUIRE_OK;
}

int quire_index_create(const quire_index_config *config, quire_index **index)
{
    quire_index_config chosen = QUIRE_INDEX_CONFIG_INIT;
    if (index == NULL)
        return QUIRE_E_ARGUMENT;
    int status = config == NULL ? QUIRE_OK : qr_config_read(&chosen, sizeof chosen, config);
    if (status != QUIRE_OK)
        return status;
    quire_index *x = qr_alloc(1, sizeof *x);
    if (x == NULL)
        return QUIRE_E_NOMEM;
    status = make_index(&chosen, x);
    if (status != QUIRE_OK) {
        quire_index_destroy(x);
        return status;
    }
    *index = x;
    return QUIRE_OK;
}

void quire_index_destroy(quire_index *index)
{
    if (index == NULL)
        return;
    for (uint32_t worker = 0; index->workers != NULL && worker < index->max_workers; worker++) {
        for (uint32_t id = index->workers[worker].first; id != QR_NIL;
             id = index->records[id].link.next)
            forget_hash(&index->records[id]);
    }
    qr_free(index->workers);
    qr_free(index->records);
    qr_free(index->slots);
    qr_free(index);
}

int quire_index_apply(quire_index *index, uint32_t worker, const quire_wire_event *event)
{
    quire_wire_event room;
    event = qr_struct_in(&room, sizeof room, event);
    if (index == NULL || event == NULL || (event->num_hashes > 0 && event->hashes == NULL))
        return QUIRE_E_ARGUMENT;
    if (worker >= index->max_workers)
        return QUIRE_E_RANGE;
    if (event->kind == QUIRE_WIRE_CLEARED)
        return quire_index_clear(index, worker);
    bool is_stored = event->kind == QUIRE_WIRE_STORED;
    if (!is_stored && event->kind != QUIRE_WIRE_REMOVED)
        return QUIRE_OK;
    index_key key = {.worker = worker, .group = QUIRE_INDEX_NO_GROUP};
    if (event->has_group != 0)
        key.group = event->group;
    key.medium = is_stored ? add_medium(index, event->medium) : find_medium(index, event->medium);
    if (is_stored && key.medium == MAX_MEDIA) {
        index->stats.num_dropped += event->num_hashes;
        return QUIRE_OK;
    }
    for (uint32_t i = 0; i < event->num_hashes; i++) {
        key.hash = event->hashes[i];
        if (is_stored)
            store(index, &key);
        else
            remove_one(index, &key);
    }
    return QUIRE_OK;
}

int quire_index_clear(quire_index *index, uint32_t worker)
{
    if (index == NULL)
        return QUIRE_E_ARGUMENT;
    if (worker >= index->max_workers)
        return QUIRE_E_RANGE;
    while (index->workers[worker].first != QR_NIL)
        erase(index, index->workers[worker].first);
    return QUIRE_OK;
}

/* Workers that have all before hash i, and this one in a group and medium, have one more. */
static bool advance(const quire_index *x, const index_key *key, uint32_t i, uint32_t *num_blocks)
{
    bool has_any = false;
    uint32_t id = find_head(x, key);
    for (; id != QR_NIL; id = x->records[id].same_next) {
        uint32_t *count = &num_blocks[x->records[id].worker];
        if (*count != i)
            continue;
        *count = i + 1;
        has_any = true;
    }
    return has_any;
}

int quire_index_match(const quire_index *index, const quire_wire_hash *hashes, uint32_t num_hashes,
                      uint32_t group, quire_bytes medium, uint32_t *num_blocks)
{
    if (index == NULL || num_blocks == NULL || (num_hashes > 0 && hashes == NULL))
        return QUIRE_E_ARGUMENT;
    memset(num_blocks, 0, index->max_workers * sizeof num_blocks[0]);
    bool is_any = medium.data == NULL;
    uint32_t first = is_any ? 0 : find_medium(index, medium);
    uint32_t end = is_any ? index->num_media : first + 1;
    bool goes_on = true;
    for (uint32_t i = 0; i < num_hashes && goes_on; i++) {
        goes_on = false;
        for (uint32_t m = first; m < end; m++) {
            index_key key = {hashes[i], group, m, 0};
            goes_on |= advance(index, &key, i, num_blocks);
            key.group = QUIRE_INDEX_NO_GROUP;
            if (index->num_groupless > 0 && group != QUIRE_INDEX_NO_GROUP)
                goes_on |= advance(index, &key, i, num_blocks);
        }
    }
    return QUIRE_OK;
}

const quire_index_stats *quire_index_get_stats(const quire_index *index)
{
    return index == NULL ? NULL : &index->stats;
}

void quire_index_visit(const quire_index *index, uint32_t worker,
                       void (*visit)(void *user, const quire_wire_hash *hash, uint32_t group,
                                     quire_bytes medium, uint32_t copies),
                       void *user)
{
    if (index == NULL || visit == NULL || worker >= index->max_workers)
        return;
    for (uint32_t id = index->workers[worker].first; id != QR_NIL;
         id = index->records[id].link.next) {
        const index_record *r = &index->records[id];
        const index_medium *m = &index->media[r->medium];
        quire_wire_hash hash = hash_of(r);
        visit(user, &hash, r->group, (quire_bytes){m->is_absent ? NULL : m->name, m->len},
              r->copies);
    }
}
