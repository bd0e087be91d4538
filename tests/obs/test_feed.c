/* obs/test_feed.c - events in a ring: what comes out is what went in, and who is too slow knows. */
#include "base/unit.h"
#include "obs/feed.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { WORDS = 2048, MAX_BLOCKS = 12, MAX_TOKENS = 64, TEXT = 40 };

typedef struct box {
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[WORDS * 8 + 4096];
    qr_feed feed;
    uint64_t buffer[WORDS / 4];
    quire_feed_key keys[WORDS / 64];
    uint64_t at;
    _Atomic bool is_done;      /* the writer */
    _Atomic uint64_t has_read; /* the reader, up to here */
} box;

/* An event that follows from a number, and where its parts lie. */
typedef struct made {
    quire_feed_event event;
    qr_feed_piece pieces[4];
    quire_block blocks[MAX_BLOCKS];
    unsigned char hashes[MAX_BLOCKS * 48];
    unsigned char parent[48];
    quire_token tokens[MAX_TOKENS];
    char text[TEXT];
    quire_feed_key keys[5];
} made;

static box *open_box(void)
{
    box *b = aligned_alloc(QUIRE_ALIGNMENT, (sizeof *b + 63) / 64 * 64);
    qr_arena arena = qr_arena_carve(b->memory, sizeof b->memory);
    qr_feed_carve(&b->feed, &arena, WORDS);
    qr_feed_init(&b->feed);
    b->at = 0;
    atomic_init(&b->is_done, false);
    atomic_init(&b->has_read, 0);
    return b;
}

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % below);
}

static void draw_bytes(uint64_t *seed, void *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)to)[i] = (unsigned char)draw(seed, 256);
}

static void make_keys(made *m, uint64_t *seed)
{
    m->event.num_keys = draw(seed, 6);
    m->event.keys = m->keys;
    for (uint32_t i = 0; i < m->event.num_keys; i++)
        m->keys[i] = (quire_feed_key){.place = i,
                                      .key = {.kind = (quire_extra_key_kind)(1 + draw(seed, 4)),
                                              .value = {m->text, draw(seed, TEXT)},
                                              .offset = (int64_t)draw(seed, 100) - 50}};
}

static void make_tokens(made *m, uint64_t *seed)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n = draw(seed, 20);
        m->pieces[i] = (qr_feed_piece){m->tokens + at, n};
        at += n;
    }
    m->event.num_tokens = at;
    m->event.tokens = m->tokens;
}

static void make_event(made *m, uint64_t number)
{
    uint64_t seed = number * 77 + 1;
    quire_feed_event *e = &m->event;
    *m = (made){.event = {.kind = (quire_feed_kind)(1 + draw(&seed, 6)),
                          .group_id = draw(&seed, 9),
                          .num_blocks = draw(&seed, MAX_BLOCKS + 1),
                          .first_block = draw(&seed, 1000),
                          .block_size = draw(&seed, 64),
                          .hash_bytes = 16 * (1 + draw(&seed, 3)),
                          .still_cached = draw(&seed, 2),
                          .lora_id = draw(&seed, 3)}};
    draw_bytes(&seed, m->blocks, sizeof m->blocks);
    draw_bytes(&seed, m->hashes, sizeof m->hashes);
    draw_bytes(&seed, m->parent, sizeof m->parent);
    draw_bytes(&seed, m->tokens, sizeof m->tokens);
    draw_bytes(&seed, m->text, sizeof m->text);
    e->blocks = m->blocks;
    e->hashes = m->hashes;
    e->parent = (quire_bytes){m->parent, draw(&seed, 2) * e->hash_bytes};
    e->lora_name = (quire_bytes){m->text, draw(&seed, TEXT)};
    make_tokens(m, &seed);
    make_keys(m, &seed);
    if (e->kind == QUIRE_FEED_REMOVED)
        *e = (quire_feed_event){.size = sizeof(quire_feed_event),
                                .kind = e->kind,
                                .group_id = e->group_id,
                                .still_cached = e->still_cached,
                                .blocks = e->blocks,
                                .num_blocks = 1,
                                .hashes = e->hashes,
                                .hash_bytes = e->hash_bytes};
    if (e->kind == QUIRE_FEED_BATCH || e->kind == QUIRE_FEED_WALKED)
        *e = (quire_feed_event){.size = sizeof(quire_feed_event),
                                .kind = e->kind,
                                .number = number,
                                .time = (double)number / 3};
}

static void assert_same(const void *a, const void *b, size_t bytes)
{
    if (bytes > 0)
        assert_memory_equal(a, b, bytes);
    else
        assert_null(a);
}

static void assert_event(const quire_feed_event *got, uint64_t number)
{
    made m;
    make_event(&m, number);
    const quire_feed_event *e = &m.event;
    assert_int_equal(got->kind, e->kind);
    assert_int_equal(got->group_id, e->group_id);
    assert_int_equal(got->num_blocks, e->num_blocks);
    assert_int_equal(got->first_block, e->first_block);
    assert_int_equal(got->block_size, e->block_size);
    assert_int_equal(got->hash_bytes, e->hash_bytes);
    assert_int_equal(got->still_cached, e->still_cached);
    assert_int_equal(got->lora_id, e->lora_id);
    assert_int_equal(got->number, e->number);
    assert_true(got->time == e->time);
    assert_same(got->blocks, e->blocks, 4 * (size_t)e->num_blocks);
    assert_same(got->hashes, e->hashes, (size_t)e->num_blocks * e->hash_bytes);
    assert_int_equal(got->parent.len, e->parent.len);
    assert_same(got->parent.data, e->parent.data, e->parent.len);
    assert_int_equal(got->num_tokens, e->num_tokens);
    assert_same(got->tokens, e->tokens, 4 * (size_t)e->num_tokens);
    assert_int_equal(got->lora_name.len, e->lora_name.len);
    assert_same(got->lora_name.data, e->lora_name.data, e->lora_name.len);
    assert_int_equal(got->num_keys, e->num_keys);
    for (uint32_t i = 0; i < e->num_keys; i++) {
        assert_int_equal(got->keys[i].place, e->keys[i].place);
        assert_int_equal(got->keys[i].key.kind, e->keys[i].key.kind);
        assert_int_equal(got->keys[i].key.offset, e->keys[i].key.offset);
        assert_int_equal(got->keys[i].key.value.len, e->keys[i].key.value.len);
        assert_same(got->keys[i].key.value.data, e->keys[i].key.value.data,
                    e->keys[i].key.value.len);
    }
}

/* As the scheduler brings it. */
static bool add_made(box *b, const made *m)
{
    const quire_feed_event *e = &m->event;
    bool has_number = e->kind == QUIRE_FEED_BATCH || e->kind == QUIRE_FEED_WALKED;
    quire_event event = {.size = sizeof(quire_event),
                         .group_id = e->group_id,
                         .blocks = e->blocks,
                         .num_blocks = e->num_blocks,
                         .first_block = e->first_block,
                         .hashes = e->hashes,
                         .hash_bytes = e->hash_bytes,
                         .parent = e->parent,
                         .block_size = e->block_size,
                         .still_cached = e->still_cached};
    qr_feed_entry entry = {.kind = e->kind,
                           .event = has_number ? NULL : &event,
                           .num_tokens = e->num_tokens,
                           .pieces = m->pieces,
                           .lora_id = e->lora_id,
                           .lora_name = e->lora_name,
                           .keys = e->keys,
                           .num_keys = e->num_keys,
                           .number = e->number,
                           .time = e->time};
    return qr_feed_add(&b->feed, &entry);
}

static void add_event(box *b, uint64_t number)
{
    made m;
    make_event(&m, number);
    assert_true(add_made(b, &m));
}

static void all_parts_come_out_as_they_went_in(void **state)
{
    (void)state;
    box *b = open_box();
    for (uint64_t i = 0; i < 20000; i++) {
        quire_feed_event event = QUIRE_FEED_EVENT_INIT;
        add_event(b, i);
        assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_RETRY); /* not shown */
        qr_feed_show(&b->feed);
        assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_OK);
        qr_feed_parse(b->buffer, &event, b->keys);
        assert_event(&event, i);
    }
    free(b);
}

static void who_is_overtaken_knows(void **state)
{
    (void)state;
    box *b = open_box();
    for (uint64_t i = 0; i < 100; i++)
        add_event(b, i);
    qr_feed_show(&b->feed);
    assert_true(b->feed.head > WORDS);
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_LOST);
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_RETRY);
    add_event(b, 7);
    qr_feed_show(&b->feed);
    quire_feed_event event = QUIRE_FEED_EVENT_INIT;
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_OK);
    qr_feed_parse(b->buffer, &event, b->keys);
    assert_event(&event, 7);
    free(b);
}

static void what_is_too_long_is_lost_and_said_so(void **state)
{
    (void)state;
    box *b = open_box();
    static unsigned char hashes[WORDS * 8];
    static quire_block blocks[WORDS];
    made m = {.event = {.kind = QUIRE_FEED_STORED,
                        .blocks = blocks,
                        .hashes = hashes,
                        .hash_bytes = 16,
                        .num_blocks = WORDS / 4}};
    assert_false(add_made(b, &m));
    static quire_feed_key keys[WORDS / 64 + 1];
    made keyed = {.event = {.kind = QUIRE_FEED_STORED, .keys = keys, .num_keys = WORDS / 64 + 1}};
    assert_false(add_made(b, &keyed));
    add_event(b, 3);
    qr_feed_show(&b->feed);
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_LOST);
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_LOST);
    assert_int_equal(qr_feed_read(&b->feed, &b->at, b->buffer), QUIRE_OK);
    free(b);
}

/* ---- two threads ----------------------------------------------------------- */

enum { MANY = 100000 };

static void *write_many(void *user)
{
    box *b = user;
    for (uint64_t i = 0; i < MANY; i++) {
        made m;
        make_event(&m, i);
        if (m.event.kind == QUIRE_FEED_STORED || m.event.kind == QUIRE_FEED_PRESENT) {
            m.event.first_block = (uint32_t)i; /* where it can be found again */
            add_made(b, &m);
        }
        qr_feed_show(&b->feed);
        while (i % 1000 < 16 && atomic_load(&b->has_read) != b->feed.head)
            sched_yield(); /* so that it reads something, however slow it is */
    }
    atomic_store(&b->is_done, true);
    return NULL;
}

/* Whatever comes out is whole, and in order; some are lost. */
static void a_reader_sees_whole_events_or_none(void **state)
{
    (void)state;
    box *b = open_box();
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_many, b), 0);
    uint64_t next = 0;
    uint64_t num_read = 0;
    for (;;) {
        bool is_done = atomic_load(&b->is_done);
        int err = qr_feed_read(&b->feed, &b->at, b->buffer);
        atomic_store(&b->has_read, b->at);
        if (err == QUIRE_RETRY && is_done)
            break;
        if (err != QUIRE_OK) {
            sched_yield();
            continue;
        }
        quire_feed_event event = QUIRE_FEED_EVENT_INIT;
        qr_feed_parse(b->buffer, &event, b->keys);
        made m;
        make_event(&m, event.first_block);
        assert_true(event.first_block >= next);
        assert_int_equal(event.num_blocks, m.event.num_blocks);
        assert_same(event.hashes, m.hashes, (size_t)event.num_blocks * event.hash_bytes);
        assert_same(event.tokens, m.tokens, 4 * (size_t)event.num_tokens);
        next = event.first_block + 1;
        num_read++;
    }
    pthread_join(writer, NULL);
    assert_true(num_read >= MANY / 1000);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_parts_come_out_as_they_went_in),
        cmocka_unit_test(who_is_overtaken_knows),
        cmocka_unit_test(what_is_too_long_is_lost_and_said_so),
        cmocka_unit_test(a_reader_sees_whole_events_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
