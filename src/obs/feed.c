#include "obs/feed.h"

#include "base/assert.h"

/* Words are claimed some at a time, so that small records need no claim of their own. */
enum { CLAIM_WORDS = 512, KEY_HEAD_WORDS = 3 };

/* Of reader and writer alone: never seen outside. */
enum { KIND_LOST = 255 };

typedef struct record_head {
    uint32_t num_words; /* of the whole record */
    uint16_t kind;
    uint16_t still_cached;
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

enum { HEAD_WORDS = sizeof(record_head) / 8, BATCH_WORDS = HEAD_WORDS + 2 };
_Static_assert(sizeof(record_head) == 48 && sizeof(key_head) == 8 * KEY_HEAD_WORDS, "whole words");

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

static inline void feed_put_word(qr_feed *feed, uint64_t word)
{
    atomic_store_explicit(&feed->words[feed->head++ & feed->mask], word, QR_FEED_STORE);
}

static inline void feed_put(qr_feed *feed, const void *from, size_t bytes)
{
    const unsigned char *p = from;
    size_t whole = bytes / 8;
    for (size_t i = 0; i < whole; i++)
        feed_put_word(feed, qr_load_u64(p + 8 * i));
    if (bytes % 8 != 0) {
        uint64_t last = 0;
        memcpy(&last, p + 8 * whole, bytes % 8);
        feed_put_word(feed, last);
    }
}

/* Pieces are joined: a word may have the last token of one and the first of the next. */
static void feed_put_tokens(qr_feed *feed, const qr_feed_piece *piece, uint32_t num_tokens)
{
    uint64_t half = 0;
    bool has_half = false;
    for (; num_tokens > 0; piece++) {
        const quire_token *t = piece->tokens;
        uint32_t n = piece->num_tokens;
        qr_assert(n <= num_tokens);
        num_tokens -= n;
        if (has_half && n > 0) {
            feed_put_word(feed, half | (uint64_t)(uint32_t)*t << 32);
            has_half = false;
            t++;
            n--;
        }
        feed_put(feed, t, (size_t)n / 2 * 8);
        if (n % 2 != 0) {
            half = (uint32_t)t[n - 1];
            has_half = true;
        }
    }
    if (has_half)
        feed_put_word(feed, half);
}

static uint64_t feed_key_words(const quire_feed_event *e)
{
    uint64_t words = 0;
    for (uint32_t i = 0; i < e->num_keys; i++)
        words += KEY_HEAD_WORDS + feed_words(e->keys[i].key.value.len);
    return words;
}

static void feed_put_keys(qr_feed *feed, const quire_feed_event *e)
{
    for (uint32_t i = 0; i < e->num_keys; i++) {
        const quire_extra_key *key = &e->keys[i].key;
        key_head head = {.place = e->keys[i].place,
                         .kind = (uint32_t)key->kind,
                         .offset = key->offset,
                         .bytes = key->value.len};
        feed_put(feed, &head, sizeof head);
        feed_put(feed, key->value.data, key->value.len);
    }
}

static void feed_put_lost(qr_feed *feed)
{
    record_head head = {.num_words = HEAD_WORDS, .kind = KIND_LOST};
    feed_claim(feed, HEAD_WORDS);
    feed_put(feed, &head, sizeof head);
}

bool qr_feed_add(qr_feed *feed, const quire_feed_event *e, const qr_feed_piece *pieces)
{
    bool has_number = e->kind == QUIRE_FEED_BATCH || e->kind == QUIRE_FEED_WALKED;
    uint64_t hashes = (uint64_t)e->num_blocks * e->hash_bytes;
    uint64_t words = (has_number ? BATCH_WORDS : HEAD_WORDS) + feed_words(4ull * e->num_blocks) +
                     feed_words(hashes) + feed_words(e->parent.len) +
                     feed_words(4ull * e->num_tokens) + feed_words(e->lora_name.len) +
                     feed_key_words(e);
    if (QR_UNLIKELY(words > qr_feed_max_words(feed) || e->num_keys > qr_feed_max_keys(feed))) {
        feed_put_lost(feed);
        return false;
    }
    record_head head = {.num_words = (uint32_t)words,
                        .kind = (uint16_t)e->kind,
                        .still_cached = (uint16_t)e->still_cached,
                        .group_id = e->group_id,
                        .num_blocks = e->num_blocks,
                        .first_block = e->first_block,
                        .block_size = e->block_size,
                        .hash_bytes = e->hash_bytes,
                        .parent_bytes = (uint32_t)e->parent.len,
                        .num_tokens = e->num_tokens,
                        .num_keys = e->num_keys,
                        .lora_id = e->lora_id,
                        .lora_bytes = (uint32_t)e->lora_name.len};
    feed_claim(feed, words);
    feed_put(feed, &head, sizeof head);
    if (has_number) {
        feed_put_word(feed, e->number);
        feed_put_word(feed, qr_load_u64(&e->time));
    }
    feed_put(feed, e->blocks, 4 * (size_t)e->num_blocks);
    feed_put(feed, e->hashes, (size_t)hashes);
    feed_put(feed, e->parent.data, e->parent.len);
    feed_put_tokens(feed, pieces, e->num_tokens);
    feed_put(feed, e->lora_name.data, e->lora_name.len);
    feed_put_keys(feed, e);
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

int qr_feed_read(const qr_feed *feed, uint64_t *at, uint64_t *buffer)
{
    uint64_t visible = qr_feed_visible(feed);
    if (*at == visible)
        return QUIRE_RETRY;
    record_head head;
    for (uint32_t i = 0; i < HEAD_WORDS; i++)
        buffer[i] = atomic_load_explicit(&feed->words[(*at + i) & feed->mask], QR_FEED_LOAD);
    if (!feed_is_whole(feed, *at))
        return feed_lose(feed, at);
    memcpy(&head, buffer, sizeof head);
    qr_assert(head.num_words >= HEAD_WORDS && head.num_words <= qr_feed_max_words(feed));
    for (uint32_t i = HEAD_WORDS; i < head.num_words; i++)
        buffer[i] = atomic_load_explicit(&feed->words[(*at + i) & feed->mask], QR_FEED_LOAD);
    if (!feed_is_whole(feed, *at))
        return feed_lose(feed, at);
    *at += head.num_words;
    return head.kind == KIND_LOST ? QUIRE_LOST : QUIRE_OK;
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

void qr_feed_parse(const uint64_t *buffer, quire_feed_event *e, quire_feed_key *keys)
{
    record_head head;
    memcpy(&head, buffer, sizeof head);
    const unsigned char *at = (const unsigned char *)(buffer + HEAD_WORDS);
    *e = (quire_feed_event){.kind = (quire_feed_kind)head.kind,
                            .group_id = head.group_id,
                            .num_blocks = head.num_blocks,
                            .first_block = head.first_block,
                            .hash_bytes = head.hash_bytes,
                            .block_size = head.block_size,
                            .still_cached = head.still_cached,
                            .num_tokens = head.num_tokens,
                            .lora_id = head.lora_id,
                            .keys = head.num_keys > 0 ? keys : NULL,
                            .num_keys = head.num_keys};
    if (e->kind == QUIRE_FEED_BATCH || e->kind == QUIRE_FEED_WALKED) {
        e->number = qr_load_u64(feed_take(&at, 8));
        memcpy(&e->time, feed_take(&at, 8), sizeof e->time);
    }
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
