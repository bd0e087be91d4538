#include "block/pool_kit.h"

#include "block/pool.h"

/* ---- events as text -------------------------------------------------------- */

typedef struct writer {
    char *text;
    size_t used;
} writer;

static void say(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(writer *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->text + w->used, KIT_TEXT - w->used, format, arguments);
    va_end(arguments);
    assert_true(n >= 0 && w->used + (size_t)n < KIT_TEXT);
    w->used += (size_t)n;
}

static void say_stored(writer *w, const quire_event *event)
{
    say(w, "stored");
    for (uint32_t i = 0; i < event->num_blocks; i++)
        say(w, " %u", event->blocks[i]);
    say(w, " at %u ", event->first_block);
    const char *hashes = event->hashes;
    for (uint32_t i = 0; i < event->num_blocks; i++)
        say(w, "%c", hashes[(size_t)i * event->hash_bytes]);
    if (event->parent.data != NULL)
        say(w, " after %c", *(const char *)event->parent.data);
    say(w, " in %u; ", event->group_id);
}

static void on_event(void *user, const quire_event *event)
{
    pool_kit *kit = user;
    writer w = {kit->events, strlen(kit->events)};
    if (event->kind == QUIRE_EVENT_STORED)
        say_stored(&w, event);
    else if (event->kind == QUIRE_EVENT_REMOVED)
        say(&w, "removed %u %c%s; ", event->blocks[0], *(const char *)event->hashes,
            event->still_cached ? " still" : "");
    else if (event->kind == QUIRE_EVENT_CLEARED)
        say(&w, "cleared; ");
    else
        fail();
}

/* ---- calls ----------------------------------------------------------------- */

void kit_open_with(pool_kit *kit, quire_pool_config config)
{
    config.on_event = on_event;
    config.event_user = kit;
    kit->events[0] = '\0';
    kit->hash_bytes = config.hash_bytes == 0 ? 32 : config.hash_bytes;
    memset(kit->memory, 0, sizeof kit->memory);
    assert_int_equal(quire_pool_create(&config,
                                       &(quire_allocator){.memory = kit->memory, .bytes = KIT_ROOM},
                                       &kit->pool),
                     QUIRE_OK);
    assert_int_equal(quire_pool_check(kit->pool), QUIRE_OK);
}

void kit_open(pool_kit *kit, uint32_t num_blocks)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = num_blocks;
    config.hash_bytes = 16;
    kit_open_with(kit, config);
}

static void must(const pool_kit *kit, int status)
{
    assert_int_equal(status, QUIRE_OK);
    assert_int_equal(quire_pool_check(kit->pool), QUIRE_OK);
}

void kit_take(pool_kit *kit, uint32_t num_blocks, quire_block *blocks)
{
    must(kit, quire_pool_get_new_blocks(kit->pool, num_blocks, blocks));
}

void kit_touch(pool_kit *kit, quire_block block)
{
    must(kit, quire_pool_touch(kit->pool, &block, 1));
}

void kit_free(pool_kit *kit, const quire_block *blocks, uint32_t num_blocks)
{
    must(kit, quire_pool_free_blocks(kit->pool, blocks, num_blocks));
}

void kit_evict(pool_kit *kit, quire_block block)
{
    must(kit, quire_pool_evict_blocks(kit->pool, &block, 1));
}

void kit_hashes(const pool_kit *kit, const char *letters, unsigned char *out)
{
    size_t n = strlen(letters);
    assert_true(n <= KIT_MAX_HASHES && kit->hash_bytes <= KIT_MAX_HASH_BYTES);
    for (size_t i = 0; i < n; i++)
        memset(out + i * kit->hash_bytes, letters[i], kit->hash_bytes);
}

void kit_cache(pool_kit *kit, const quire_block *blocks, uint32_t cached, uint32_t full,
               const char *letters, uint32_t group_id)
{
    unsigned char hashes[KIT_MAX_HASHES * KIT_MAX_HASH_BYTES];
    kit_hashes(kit, letters, hashes);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_cached_blocks = cached,
                                      .num_full_blocks = full,
                                      .hashes = hashes,
                                      .hash_len = kit->hash_bytes,
                                      .num_hashes = (uint32_t)strlen(letters),
                                      .group_id = group_id,
                                      .block_size = 16};
    must(kit, quire_pool_cache_full_blocks(kit->pool, &params));
    memset(hashes, 0xee, sizeof hashes); /* the pool has its own copy, or a later find fails */
}

quire_block kit_find(const pool_kit *kit, char letter)
{
    unsigned char hash[KIT_MAX_HASH_BYTES];
    memset(hash, letter, sizeof hash);
    uint32_t group = 0;
    quire_block block = 0;
    int status = quire_pool_get_cached_block(kit->pool, (quire_bytes){hash, kit->hash_bytes},
                                             &group, 1, &block);
    assert_true(status == QUIRE_OK || (status == QUIRE_MISS && block == 0));
    return block;
}

/* ---- looking --------------------------------------------------------------- */

void kit_assert_draw(const pool_kit *kit, const char *wanted)
{
    char drawn[KIT_TEXT];
    uint32_t n = (uint32_t)strlen(wanted);
    assert_int_equal(quire_pool_get_usage(kit->pool).total, n);
    assert_int_equal(quire_pool_draw(kit->pool, 0, n, drawn), QUIRE_OK);
    assert_string_equal(drawn, wanted);
}

void kit_assert_queue(const pool_kit *kit, const char *wanted)
{
    quire_block blocks[64];
    char text[KIT_TEXT] = "";
    writer w = {text, 0};
    uint32_t n = quire_pool_get_all_free_blocks(kit->pool, blocks, COUNT(blocks));
    assert_true(n <= COUNT(blocks));
    assert_int_equal(n, quire_pool_get_num_free_blocks(kit->pool));
    for (uint32_t i = 0; i < n; i++)
        say(&w, i == 0 ? "%u" : " %u", blocks[i]);
    assert_string_equal(text, wanted);
}

void kit_assert_numbers(const pool_kit *kit, uint64_t empty, uint64_t cached, uint64_t active)
{
    quire_usage usage = quire_pool_get_usage(kit->pool);
    assert_int_equal(usage.empty, empty);
    assert_int_equal(usage.cached, cached);
    assert_int_equal(usage.active, active);
    assert_int_equal(usage.null_blocks, 1);
    assert_int_equal(usage.total, empty + cached + active + 1);
    assert_int_equal(quire_pool_get_num_free_blocks(kit->pool), empty + cached);
    double share = usage.total > 1 ? (double)active / (double)(usage.total - 1) : 0.0;
    double difference = quire_usage_level(quire_pool_get_usage(kit->pool)) - share;
    assert_true(difference < 1e-9 && difference > -1e-9);
}

void kit_assert_events(pool_kit *kit, const char *wanted)
{
    assert_string_equal(kit->events, wanted);
    kit->events[0] = '\0';
}

/* The hints of block/queue.h are only ever fetched; nobody can see whether they changed. */
static void hide_hints(const pool_kit *kit)
{
    qr_queue *queue = &kit->pool->queue;
    for (uint32_t b = 0; b <= queue->num_blocks; b++)
        queue->blocks[b].ahead = 0;
    memset(queue->recent, 0, sizeof queue->recent);
}

void kit_remember(pool_kit *kit)
{
    kit->events[0] = '\0';
    hide_hints(kit);
    memcpy(kit->before, kit->memory, sizeof kit->before);
}

void kit_assert_unchanged(const pool_kit *kit)
{
    hide_hints(kit);
    assert_memory_equal(kit->memory, kit->before, sizeof kit->before);
    assert_string_equal(kit->events, "");
}
