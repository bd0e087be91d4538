#include "obs/feed.h"

#include "base/assert.h"

/* Words are claimed some at a time, so that small records need no claim of their own. */
enum { CLAIM_WORDS = 512, KEY_HEAD_WORDS = 3, FETCH_WORDS = 32 };

/* Of reader and writer alone: never seen outside. */
enum { KIND_LOST = 255, KIND_SKIP = 254 };

/* As it is read; it is written word by word, since what was just stored in halves cannot be loaded
 * as a whole without waiting. */
typedef struct record_head {
    uint32_t num_words; /* of the whole record */
    uint16_t kind;
    uint16_t origin; /* still_cached, and the tier behind that bit */
    uint32_t group_id;
    uint32_t num_blocks;
    uint32_t first_block;
    uint32_t block_size;
    uint32_t hash_bytes;
    uint32_t parent_bytes;
    uint32_t num_tokens;
    uint32_t num_keys;
    uint32_t lora_id;
    uint32_t lora_bytes;
} record_head;

/* Before the bytes of a key. */
typedef struct key_head {
    uint32_t place;
    uint32_t kind;
    int64_t offset;
    uint64_t bytes;
} key_head;

enum { HEAD_WORDS = sizeof(record_head) / 8, NUMBER_WORDS = 3, REMOVED_WORDS = 2 };
_Static_assert(sizeof(record_head) == 48 && sizeof(key_head) / 8 == KEY_HEAD_WORDS, "whole words");

static inline uint64_t two(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* The upper half of the first word's upper half. */
static inline uint32_t origin_bits(const qr_feed_entry *entry)
{
    return (entry->event->still_cached & 1) << 16 | entry->tier << 17;
}

static uint64_t feed_words(uint64_t bytes)
{
    return (bytes + 7) / 8;
}

void qr_feed_carve(qr_feed *feed, qr_arena *arena, uint32_t num_words)
{
    qr_assert(qr_is_pow2(num_words) && num_words >= 4 * CLAIM_WORDS);
    *feed = (qr_feed){.words = qr_arena_take(arena, num_words, sizeof *feed->words),
                      .mask = num_words - 1};
}

void qr_feed_init(qr_feed *feed)
{
    for (uint64_t i = 0; i <= feed->mask; i++)
        atomic_init(&feed->words[i], 0);
    feed->head = 0;
    feed->claimed_own = 0;
    atomic_init(&feed->claimed, 0);
    atomic_init(&feed->visible, 0);
}

/* ---- writing --------------------------------------------------------------- */

static inline void feed_claim(qr_feed *feed, uint64_t num_words)
{
    if (feed->head + num_words <= feed->claimed_own)
        return;
    feed->claimed_own = feed->head + num_words + CLAIM_WORDS;
    atomic_store_explicit(&feed->claimed, feed->claimed_own, memory_order_relaxed);
    qr_feed_fence_after_claim();
}

static inline _Atomic uint64_t *feed_put_word(_Atomic uint64_t *to, uint64_t word)
{
    atomic_store_explicit(to, word, QR_FEED_STORE);
    return to + 1;
}

static inline _Atomic uint64_t *feed_put(_Atomic uint64_t *to, const void *from, size_t bytes)
{
    const unsigned char *p = from;
    for (; bytes >= 8; bytes -= 8, p += 8)
        to = feed_put_word(to, qr_load_u64(p));
    if (bytes > 0) {
        uint64_t last = 0;
        memcpy(&last, p, bytes);
        to = feed_put_word(to, last);
    }
    return to;
}

static inline _Atomic uint64_t *feed_put_blocks(_Atomic uint64_t *to, const quire_block *blocks,
                                                uint32_t n)
{
    for (; n >= 2; n -= 2, blocks += 2)
        to = feed_put_word(to, two(blocks[0], blocks[1]));
    return n > 0 ? feed_put_word(to, blocks[0]) : to;
}

/* Pieces are joined: a word may have the last token of one and the first of the next. */
static _Atomic uint64_t *feed_put_tokens(_Atomic uint64_t *to, const qr_feed_piece *piece,
                                         uint32_t num_tokens)
{
    uint64_t half = 0;
    bool has_half = false;
    for (; num_tokens > 0; piece++) {
        const quire_token *t = piece->tokens;
        uint32_t n = piece->num_tokens;
        qr_assert(n <= num_tokens);
        num_tokens -= n;
        if (has_half && n > 0) {
            to = feed_put_word(to, half | (uint64_t)(uint32_t)*t << 32);
            has_half = false;
            t++;
            n--;
        }
        to = feed_put(to, t, (size_t)n / 2 * 8);
        if (n % 2 != 0) {
            half = (uint32_t)t[n - 1];
            has_half = true;
        }
    }
    return has_half ? feed_put_word(to, half) : to;
}

static uint64_t feed_key_words(const qr_feed_entry *e)
{
    uint64_t words = 0;
    for (uint32_t i = 0; i < e->num_keys; i++)
        words += KEY_HEAD_WORDS + feed_words(e->keys[i].key.value.len);
    return words;
}

static _Atomic uint64_t *feed_put_keys(_Atomic uint64_t *to, const qr_feed_entry *e)
{
    for (uint32_t i = 0; i < e->num_keys; i++) {
        const quire_extra_key *key = &e->keys[i].key;
        key_head head = {.place = e->keys[i].place,
                         .kind = (uint32_t)key->kind,
                         .offset = key->offset,
                         .bytes = key->value.len};
        to = feed_put(to, &head, sizeof head);
        to = feed_put(to, key->value.data, key->value.len);
    }
    return to;
}

/* Room for a record, in one piece: where the ring ends before that, what is left of it is passed
 * over by readers too. */
static _Atomic uint64_t *feed_begin(qr_feed *feed, uint64_t num_words)
{
    uint64_t left = feed->mask + 1 - (feed->head & feed->mask);
    if (QR_UNLIKELY(left < num_words)) {
        feed_claim(feed, left);
        feed_put_word(&feed->words[feed->head & feed->mask], left | (uint64_t)KIND_SKIP << 32);
        feed->head += left;
    }
    feed_claim(feed, num_words);
    return &feed->words[feed->head & feed->mask];
}

static void feed_put_lost(qr_feed *feed)
{
    feed_put_word(feed_begin(feed, 1), two(1, KIND_LOST));
    feed->head++;
}

/* The next record's lines will be written soon, and nobody has touched them for long. */
static inline void feed_fetch(const qr_feed *feed)
{
    for (uint32_t i = 0; i < FETCH_WORDS; i += 8)
        qr_prefetch_write(&feed->words[(feed->head + i) & feed->mask]);
}

/* Of BATCH and WALKED. */
static void feed_add_number(qr_feed *feed, const qr_feed_entry *entry)
{
    _Atomic uint64_t *to = feed_begin(feed, NUMBER_WORDS);
    to = feed_put_word(to, two(NUMBER_WORDS, (uint32_t)entry->kind));
    to = feed_put_word(to, entry->number);
    feed_put_word(to, qr_load_u64(&entry->time));
    feed->head += NUMBER_WORDS;
}

/* Half of all events, and each of one block: group, block, hash. */
static bool feed_add_removed(qr_feed *feed, const qr_feed_entry *entry)
{
    const quire_event *e = entry->event;
    qr_assert(e->num_blocks == 1 && e->hash_bytes % 8 == 0);
    uint32_t words = REMOVED_WORDS + e->hash_bytes / 8;
    _Atomic uint64_t *to = feed_begin(feed, words);
    to = feed_put_word(to, two(words, QUIRE_FEED_REMOVED | origin_bits(entry)));
    to = feed_put_word(to, two(e->group_id, e->blocks[0]));
    feed_put(to, e->hashes, e->hash_bytes);
    feed->head += words;
    feed_fetch(feed);
    return true;
}

bool qr_feed_add(qr_feed *feed, const qr_feed_entry *entry)
{
    const quire_event *e = entry->event;
    if (e == NULL) {
        feed_add_number(feed, entry);
        return true;
    }
    if (entry->kind == QUIRE_FEED_REMOVED)
        return feed_add_removed(feed, entry);
    if (QR_UNLIKELY(entry->num_keys > qr_feed_max_keys(feed))) { /* nor has it that many */
        feed_put_lost(feed);
        return false;
    }
    uint64_t hashes = (uint64_t)e->num_blocks * e->hash_bytes;
    uint64_t words = HEAD_WORDS + feed_words(4ull * e->num_blocks) + feed_words(hashes) +
                     feed_words(e->parent.len) + feed_words(4ull * entry->num_tokens) +
                     feed_words(entry->lora_name.len) + feed_key_words(entry);
    if (QR_UNLIKELY(words > qr_feed_max_words(feed))) {
        feed_put_lost(feed);
        return false;
    }
    _Atomic uint64_t *to = feed_begin(feed, words);
    to = feed_put_word(to, two((uint32_t)words, (uint32_t)entry->kind | origin_bits(entry)));
    to = feed_put_word(to, two(e->group_id, e->num_blocks));
    to = feed_put_word(to, two(e->first_block, e->block_size));
    to = feed_put_word(to, two(e->hash_bytes, (uint32_t)e->parent.len));
    to = feed_put_word(to, two(entry->num_tokens, entry->num_keys));
    to = feed_put_word(to, two(entry->lora_id, (uint32_t)entry->lora_name.len));
    to = feed_put_blocks(to, e->blocks, e->num_blocks);
    to = feed_put(to, e->hashes, (size_t)hashes);
    to = feed_put(to, e->parent.data, e->parent.len);
    to = feed_put_tokens(to, entry->pieces, entry->num_tokens);
    to = feed_put(to, entry->lora_name.data, entry->lora_name.len);
    to = feed_put_keys(to, entry);
    qr_assert(to == &feed->words[feed->head & feed->mask] + words);
    feed->head += words;
    feed_fetch(feed);
    return true;
}

void qr_feed_show(qr_feed *feed)
{
    atomic_store_explicit(&feed->visible, feed->head, memory_order_release);
}

/* ---- reading --------------------------------------------------------------- */

uint64_t qr_feed_visible(const qr_feed *feed)
{
    return atomic_load_explicit(&feed->visible, memory_order_acquire);
}

/* Whether all words from `at` on were still whole when they were read. */
static bool feed_is_whole(const qr_feed *feed, uint64_t at)
{
    qr_feed_fence_before_check();
    return atomic_load_explicit(&feed->claimed, memory_order_relaxed) - at <= feed->mask + 1;
}

static int feed_lose(const qr_feed *feed, uint64_t *at)
{
    *at = qr_feed_visible(feed);
    return QUIRE_LOST;
}

/* The record at `at`, as far as it is in the ring; 0 when it was overwritten. */
static uint32_t feed_copy(const qr_feed *feed, uint64_t at, uint64_t *buffer)
{
    const _Atomic uint64_t *from = &feed->words[at & feed->mask];
    buffer[0] = atomic_load_explicit(&from[0], QR_FEED_LOAD);
    if (!feed_is_whole(feed, at))
        return 0;
    uint32_t num_words = (uint32_t)buffer[0];
    uint16_t kind = (uint16_t)(buffer[0] >> 32);
    qr_assert(num_words >= 1 && (num_words <= qr_feed_max_words(feed) || kind == KIND_SKIP));
    if (kind != KIND_SKIP)
        qr_words_take(from + 1, buffer + 1, num_words - 1);
    return feed_is_whole(feed, at) ? num_words : 0;
}

int qr_feed_read(const qr_feed *feed, uint64_t *at, uint64_t *buffer)
{
    uint16_t kind;
    uint64_t visible = qr_feed_visible(feed);
    do {
        if (*at == visible)
            return QUIRE_RETRY;
        uint32_t num_words = feed_copy(feed, *at, buffer);
        if (num_words == 0)
            return feed_lose(feed, at);
        *at += num_words;
        kind = (uint16_t)(buffer[0] >> 32);
    } while (kind == KIND_SKIP);
    return kind == KIND_LOST ? QUIRE_LOST : QUIRE_OK;
}

static const void *feed_take(const unsigned char **at, uint64_t bytes)
{
    const unsigned char *from = *at;
    *at += 8 * feed_words(bytes);
    return bytes > 0 ? from : NULL;
}

static quire_bytes feed_take_text(const unsigned char **at, uint64_t bytes)
{
    return (quire_bytes){feed_take(at, bytes), (size_t)bytes};
}

static void parse_number(const uint64_t *buffer, quire_feed_event *e)
{
    *e = (quire_feed_event){.size = sizeof(quire_feed_event),
                            .kind = (quire_feed_kind)(buffer[0] >> 32 & 0xffff),
                            .number = buffer[1]};
    memcpy(&e->time, &buffer[2], sizeof e->time);
}

static void parse_removed(const uint64_t *buffer, quire_feed_event *e)
{
    const quire_block *pair = (const quire_block *)(const void *)&buffer[1]; /* group, block */
    *e = (quire_feed_event){.size = sizeof(quire_feed_event),
                            .kind = QUIRE_FEED_REMOVED,
                            .still_cached = (uint32_t)(buffer[0] >> 48 & 1),
                            .tier = (uint32_t)(buffer[0] >> 49),
                            .group_id = pair[0],
                            .blocks = &pair[1],
                            .num_blocks = 1,
                            .hashes = (const unsigned char *)&buffer[REMOVED_WORDS],
                            .hash_bytes = 8 * ((uint32_t)buffer[0] - REMOVED_WORDS)};
}

void qr_feed_parse(const uint64_t *buffer, quire_feed_event *e, quire_feed_key *keys)
{
    record_head head;
    if ((uint32_t)buffer[0] == NUMBER_WORDS) {
        parse_number(buffer, e);
        return;
    }
    if ((buffer[0] >> 32 & 0xffff) == QUIRE_FEED_REMOVED) {
        parse_removed(buffer, e);
        return;
    }
    memcpy(&head, buffer, sizeof head);
    const unsigned char *at = (const unsigned char *)(buffer + HEAD_WORDS);
    *e = (quire_feed_event){.size = sizeof(quire_feed_event),
                            .kind = (quire_feed_kind)head.kind,
                            .group_id = head.group_id,
                            .num_blocks = head.num_blocks,
                            .first_block = head.first_block,
                            .hash_bytes = head.hash_bytes,
                            .block_size = head.block_size,
                            .still_cached = head.origin & 1u,
                            .tier = (uint32_t)head.origin >> 1,
                            .num_tokens = head.num_tokens,
                            .lora_id = head.lora_id,
                            .keys = head.num_keys > 0 ? keys : NULL,
                            .num_keys = head.num_keys};
    e->blocks = feed_take(&at, 4ull * head.num_blocks);
    e->hashes = feed_take(&at, (uint64_t)head.num_blocks * head.hash_bytes);
    e->parent = feed_take_text(&at, head.parent_bytes);
    e->tokens = feed_take(&at, 4ull * head.num_tokens);
    e->lora_name = feed_take_text(&at, head.lora_bytes);
    for (uint32_t i = 0; i < head.num_keys; i++) {
        key_head key;
        memcpy(&key, feed_take(&at, sizeof key), sizeof key);
        keys[i] = (quire_feed_key){.place = key.place,
                                   .key = {.kind = (quire_extra_key_kind)key.kind,
                                           .value = feed_take_text(&at, key.bytes),
                                           .offset = key.offset}};
    }
}
