/* events/test_texts.c - tokens and parents of known keys: held by blocks of any tier, learned from
 * the GPU's events, beside a naive version. */
#include "base/unit.h"
#include "events/publish/texts.h"

enum { KEYS = 600, GROUPS = 2, BLOCK_SIZE = 4, LEN = 16, OPERATIONS = 60000 };

typedef struct naive_text {
    uint32_t holders;
    bool is_known;
    bool has_parent;
} naive_text;

static unsigned char hashes[KEYS][LEN];
static quire_token tokens[KEYS][BLOCK_SIZE];

static void make_keys(void)
{
    for (uint32_t k = 0; k < KEYS; k++) {
        memset(hashes[k], 7, LEN);
        uint64_t end = k % 5; /* many begin at the same place of the table */
        memcpy(hashes[k], &k, sizeof k);
        memcpy(hashes[k] + LEN - 8, &end, sizeof end);
        for (uint32_t i = 0; i < BLOCK_SIZE; i++)
            tokens[k][i] = (quire_token)(k * 10 + i);
    }
}

static quire_feed_event event_of(uint32_t key, uint32_t group, const quire_block *block)
{
    return (quire_feed_event){.size = sizeof(quire_feed_event),
                              .kind = QUIRE_FEED_STORED,
                              .group_id = group,
                              .blocks = block,
                              .num_blocks = 1,
                              .hashes = hashes[key],
                              .hash_bytes = LEN,
                              .block_size = BLOCK_SIZE};
}

static void expect_text(const qr_texts *texts, const naive_text *naive, uint32_t key,
                        uint32_t group)
{
    const quire_block block = 1;
    quire_feed_event event = event_of(key, group, &block);
    quire_feed_event one = qr_texts_complete(texts, &event, 0);
    bool is_known = naive->holders > 0 && naive->is_known;
    assert_int_equal(one.num_blocks, 1);
    assert_ptr_equal(one.hashes, event.hashes);
    assert_int_equal(one.tokens != NULL, is_known);
    assert_int_equal(one.parent.data != NULL, is_known && naive->has_parent);
    if (!is_known)
        return;
    assert_int_equal(one.num_tokens, BLOCK_SIZE);
    assert_memory_equal(one.tokens, tokens[key], sizeof tokens[key]);
    if (naive->has_parent)
        assert_memory_equal(one.parent.data, hashes[(key + 1) % KEYS], LEN);
}

static void texts_are_those_of_a_naive_version(void **state)
{
    (void)state;
    static naive_text naive[GROUPS][KEYS];
    uint64_t random = 5;
    qr_texts *texts = qr_texts_create(LEN);
    assert_non_null(texts);
    make_keys();
    for (uint32_t n = 0; n < OPERATIONS; n++) {
        const quire_block block = 1;
        uint32_t key = unit_random_below(&random, KEYS);
        uint32_t group = unit_random_below(&random, GROUPS);
        naive_text *t = &naive[group][key];
        quire_feed_event event = event_of(key, group, &block);
        switch (unit_random_below(&random, 4)) {
        case 0:
            qr_texts_hold(texts, &event, 0);
            if (t->holders++ == 0)
                t->is_known = false;
            break;
        case 1:
            event.tokens = tokens[key];
            event.num_tokens = BLOCK_SIZE;
            event.lora_id = unit_random_below(&random, 4) == 0; /* not kept */
            bool has_parent = unit_random_below(&random, 2) == 0;
            if (has_parent)
                event.parent = (quire_bytes){hashes[(key + 1) % KEYS], LEN};
            qr_texts_learn(texts, &event, 0);
            if (t->holders > 0 && !t->is_known && event.lora_id == 0) {
                t->is_known = true;
                t->has_parent = has_parent;
            }
            break;
        default:
            if (t->holders == 0)
                break;
            qr_texts_drop(texts, &event, 0);
            t->holders--;
        }
        expect_text(texts, t, key, group);
        if (n == OPERATIONS / 2) {
            qr_texts_forget(texts);
            memset(naive, 0, sizeof naive);
        }
    }
    for (uint32_t group = 0; group < GROUPS; group++)
        for (uint32_t key = 0; key < KEYS; key++)
            expect_text(texts, &naive[group][key], key, group);
    qr_texts_destroy(texts);
    qr_texts_destroy(NULL);
}

/* Of an event with several blocks each has the one before as its parent; a block with an extra key
 * is not kept. */
static void blocks_of_an_event_follow_each_other(void **state)
{
    (void)state;
    enum { THREE = 3 };
    const quire_block blocks[THREE] = {4, 5, 6};
    quire_feed_key salt = {.place = 2};
    quire_feed_event event = event_of(0, 0, blocks);
    qr_texts *texts = qr_texts_create(LEN);
    make_keys();
    event.num_blocks = THREE;
    event.tokens = tokens[0];
    event.num_tokens = THREE * BLOCK_SIZE;
    event.keys = &salt;
    event.num_keys = 1;
    for (uint32_t i = 0; i < THREE; i++) {
        qr_texts_hold(texts, &event, i);
        qr_texts_learn(texts, &event, i);
    }
    quire_feed_event cpu = event;
    cpu.tokens = NULL;
    cpu.num_tokens = 0;
    cpu.num_keys = 0;
    quire_feed_event first = qr_texts_complete(texts, &cpu, 0);
    quire_feed_event second = qr_texts_complete(texts, &cpu, 1);
    quire_feed_event third = qr_texts_complete(texts, &cpu, 2);
    assert_null(first.parent.data);
    assert_memory_equal(first.tokens, tokens[0], sizeof tokens[0]);
    assert_memory_equal(second.parent.data, hashes[0], LEN);
    assert_memory_equal(second.tokens, tokens[1], sizeof tokens[1]);
    assert_int_equal(second.blocks[0], 5);
    assert_null(third.tokens);
    qr_texts_destroy(texts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_of_a_naive_version),
        cmocka_unit_test(blocks_of_an_event_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
