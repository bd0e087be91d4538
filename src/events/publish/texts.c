#include "events/publish/texts.h"

#include "base/bits.h"
#include "base/buckets.h"
#include "base/memory.h"

#include <string.h>

enum { FIRST_ENTRIES = 256 };

typedef struct text_entry {
    uint32_t holders; /* 0: free; then next */
    uint32_t next;
    uint32_t group;
    uint32_t hash_len;
    uint32_t num_tokens; /* 0: not known */
    uint32_t max_tokens; /* that there is memory for */
    bool has_parent;
    quire_token *tokens;
} text_entry;

struct qr_texts {
    uint32_t hash_bytes;
    text_entry *entries;
    unsigned char *hashes; /* 2 x hash_bytes for each: its own, its parent's */
    qr_buckets index;      /* of entry + 1 */
    uint32_t num_entries;  /* a power of two */
    uint32_t free_entry;
    bool is_off; /* there was no memory */
};

/* ---- entries --------------------------------------------------------------- */

static unsigned char *hash_of(const qr_texts *t, uint32_t e)
{
    return t->hashes + (size_t)e * 2 * t->hash_bytes;
}

static unsigned char *parent_of(const qr_texts *t, uint32_t e)
{
    return hash_of(t, e) + t->hash_bytes;
}

static uint32_t tag_of(const qr_texts *t, const unsigned char *hash, uint32_t len, uint32_t group)
{
    return qr_buckets_tag(&t->index, qr_load_u64(hash + len - sizeof(uint64_t)), group);
}

static uint32_t tag_of_entry(const qr_texts *t, uint32_t e)
{
    return tag_of(t, hash_of(t, e), t->entries[e].hash_len, t->entries[e].group);
}

void qr_texts_forget(qr_texts *t)
{
    for (uint32_t e = 0; e < t->num_entries; e++)
        qr_free(t->entries[e].tokens);
    qr_free(t->entries);
    qr_free(t->hashes);
    qr_free(t->index.all);
    t->entries = NULL;
    t->hashes = NULL;
    t->index.all = NULL;
    t->num_entries = 0;
    t->free_entry = QR_NIL;
}

static void give_up(qr_texts *t)
{
    qr_texts_forget(t);
    t->is_off = true;
}

static void chain_free(qr_texts *t, uint32_t first)
{
    for (uint32_t e = first; e < t->num_entries; e++) {
        t->entries[e] = (text_entry){.next = t->free_entry};
        t->free_entry = e;
    }
}

static bool grow(qr_texts *t)
{
    uint32_t before = t->num_entries;
    uint32_t after = before == 0 ? FIRST_ENTRIES : 2 * before;
    text_entry *entries = qr_realloc(t->entries, (size_t)after * sizeof *entries);
    if (entries != NULL)
        t->entries = entries;
    unsigned char *hashes = qr_realloc(t->hashes, (size_t)after * 2 * t->hash_bytes);
    if (hashes != NULL)
        t->hashes = hashes;
    static const uint64_t secret[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xd1b54a32d192ed03)};
    qr_buckets index;
    if (entries == NULL || hashes == NULL || !qr_buckets_create(&index, after, secret))
        return false;
    qr_free(t->index.all);
    t->index = index;
    t->num_entries = after;
    chain_free(t, before);
    for (uint32_t e = 0; e < before; e++)
        if (t->entries[e].holders > 0)
            qr_buckets_insert(&t->index, tag_of_entry(t, e), e + 1);
    return true;
}

/* ---- making ---------------------------------------------------------------- */

qr_texts *qr_texts_create(uint32_t hash_bytes)
{
    qr_texts *t = qr_alloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->hash_bytes = hash_bytes;
    t->free_entry = QR_NIL;
    return t;
}

void qr_texts_destroy(qr_texts *t)
{
    if (t == NULL)
        return;
    qr_texts_forget(t);
    qr_free(t);
}

/* ---- keys ------------------------------------------------------------------ */

static const unsigned char *key_at(const quire_feed_event *event, uint32_t i)
{
    return event->hashes + (size_t)i * event->hash_bytes;
}

static bool is_kept(const qr_texts *t, const quire_feed_event *event)
{
    return !t->is_off && event->hash_bytes >= sizeof(uint64_t) &&
           event->hash_bytes <= t->hash_bytes;
}

/* The entry of the key at a place; QR_NIL. */
static uint32_t find_entry(const qr_texts *t, const quire_feed_event *event, uint32_t i)
{
    if (!is_kept(t, event) || t->num_entries == 0)
        return QR_NIL;
    const unsigned char *hash = key_at(event, i);
    uint32_t len = event->hash_bytes;
    qr_buckets_search search =
        qr_buckets_search_begin(&t->index, tag_of(t, hash, len, event->group_id));
    for (uint32_t e; (e = qr_buckets_search_next(&search)) != 0;)
        if (t->entries[e - 1].group == event->group_id && t->entries[e - 1].hash_len == len &&
            memcmp(hash_of(t, e - 1), hash, len) == 0)
            return e - 1;
    return QR_NIL;
}

void qr_texts_hold(qr_texts *t, const quire_feed_event *event, uint32_t i)
{
    uint32_t e = find_entry(t, event, i);
    if (e != QR_NIL) {
        t->entries[e].holders++;
        return;
    }
    if (!is_kept(t, event))
        return;
    if (t->free_entry == QR_NIL && !grow(t)) {
        give_up(t);
        return;
    }
    e = t->free_entry;
    t->free_entry = t->entries[e].next;
    t->entries[e].holders = 1;
    t->entries[e].group = event->group_id;
    t->entries[e].hash_len = event->hash_bytes;
    t->entries[e].num_tokens = 0;
    memcpy(hash_of(t, e), key_at(event, i), event->hash_bytes);
    qr_buckets_insert(&t->index, tag_of_entry(t, e), e + 1);
}

void qr_texts_drop(qr_texts *t, const quire_feed_event *event, uint32_t i)
{
    uint32_t e = find_entry(t, event, i);
    if (e == QR_NIL || --t->entries[e].holders > 0)
        return;
    qr_buckets_remove(&t->index, tag_of_entry(t, e), e + 1);
    t->entries[e].next = t->free_entry;
    t->free_entry = e;
}

static bool has_own_key(const quire_feed_event *event, uint32_t i)
{
    for (uint32_t k = 0; k < event->num_keys; k++)
        if (event->keys[k].place == i)
            return true;
    return false;
}

void qr_texts_learn(qr_texts *t, const quire_feed_event *event, uint32_t i)
{
    uint32_t e = find_entry(t, event, i);
    uint64_t end = ((uint64_t)i + 1) * event->block_size;
    if (e == QR_NIL || t->entries[e].num_tokens > 0 || event->tokens == NULL ||
        event->num_tokens < end || event->lora_id != 0 || has_own_key(event, i))
        return;
    text_entry *entry = &t->entries[e];
    if (entry->max_tokens < event->block_size) {
        quire_token *tokens = qr_realloc(entry->tokens, event->block_size * sizeof *tokens);
        if (tokens == NULL)
            return; /* it is told without */
        entry->tokens = tokens;
        entry->max_tokens = event->block_size;
    }
    const void *parent = i > 0 ? key_at(event, i - 1) : event->parent.data;
    entry->has_parent = parent != NULL;
    if (entry->has_parent)
        memcpy(parent_of(t, e), parent, event->hash_bytes);
    entry->num_tokens = event->block_size;
    memcpy(entry->tokens, event->tokens + (end - event->block_size),
           event->block_size * sizeof *entry->tokens);
}

quire_feed_event qr_texts_complete(const qr_texts *t, const quire_feed_event *event, uint32_t i)
{
    quire_feed_event one = *event;
    one.blocks = event->blocks + i;
    one.num_blocks = 1;
    one.hashes = key_at(event, i);
    one.parent = (quire_bytes){NULL, 0};
    uint32_t e = find_entry(t, event, i);
    if (e == QR_NIL || t->entries[e].num_tokens == 0)
        return one;
    one.tokens = t->entries[e].tokens;
    one.num_tokens = t->entries[e].num_tokens;
    if (t->entries[e].has_parent)
        one.parent = (quire_bytes){parent_of(t, e), event->hash_bytes};
    return one;
}
