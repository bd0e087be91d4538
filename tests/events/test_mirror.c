/* events/test_mirror.c - the publisher's picture of the pool, its buffer and its addresses. */
#include "base/unit.h"
#include "events/endpoint.h"
#include "events/publish/mirror.h"
#include "events/publish/replay_buffer.h"

#include <quire/error.h>

enum { BLOCKS = 60, GROUPS = 3, KEYS = 25, LEN = 48, OPERATIONS = 200000 };

static uint64_t seed;

/* ---- the mirror ------------------------------------------------------------- */

/* What a block was told to hold; -1: nothing. */
typedef struct naive_mirror {
    int key[BLOCKS];
    uint32_t group[BLOCKS];
} naive_mirror;

static uint32_t copies_of(const naive_mirror *naive, uint32_t group, int key)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        copies += naive->key[i] == key && naive->group[i] == group;
    return copies;
}

/* Keys that differ in their last bytes, in their first, or in their group alone. Those of group 2
 * are longer. */
static qr_mirror_key make_key(uint32_t group, int key, unsigned char *bytes)
{
    memset(bytes, 0x5a, LEN);
    size_t len = group == 2 ? LEN : 16;
    bytes[key % 2 == 0 ? 0 : len - 1] = (unsigned char)key;
    return (qr_mirror_key){.group = group, .block_size = 16 + group, .hash = {bytes, len}};
}

static void check_mirror(const naive_mirror *naive, const qr_mirror *mirror)
{
    uint32_t held = 0;
    uint32_t keys = 0;
    for (uint32_t group = 0; group < GROUPS; group++) {
        uint32_t visited = 0;
        for (int key = 0; key < KEYS; key++) {
            held += copies_of(naive, group, key);
            keys += copies_of(naive, group, key) > 0;
        }
        for (uint32_t every = 0; every < 2; every++)
            for (quire_block b = 0; (b = qr_mirror_next(mirror, b, group, every)) != 0;) {
                assert_int_equal(naive->group[b], group);
                assert_true(naive->key[b] >= 0);
                visited += every == 0;
            }
        for (int key = 0; key < KEYS; key++)
            visited -= copies_of(naive, group, key) > 0;
        assert_int_equal(visited, 0); /* one block for each key */
    }
    assert_int_equal(mirror->num_held, held);
    assert_int_equal(mirror->num_keys, keys);
}

static void set_block(naive_mirror *naive, qr_mirror *mirror, quire_block block, uint64_t *random)
{
    unsigned char bytes[LEN];
    uint32_t group = unit_random_below(random, GROUPS);
    int key = (int)unit_random_below(random, KEYS);
    qr_mirror_key told = make_key(group, key, bytes);
    uint32_t copies = copies_of(naive, group, key);
    bool is_same = naive->key[block] == key && naive->group[block] == group;
    qr_mirror_change change = qr_mirror_set(mirror, block, &told);
    if (naive->key[block] >= 0) {
        assert_int_equal(change, is_same ? QR_MIRROR_SAME : QR_MIRROR_REFUSED);
        return;
    }
    assert_int_equal(change, copies == 0 ? QR_MIRROR_FIRST : QR_MIRROR_COPY);
    naive->key[block] = key;
    naive->group[block] = group;
}

static void remove_block(naive_mirror *naive, qr_mirror *mirror, quire_block block)
{
    qr_mirror_change expected = QR_MIRROR_SAME;
    if (naive->key[block] >= 0)
        expected = copies_of(naive, naive->group[block], naive->key[block]) == 1 ? QR_MIRROR_FIRST
                                                                                 : QR_MIRROR_COPY;
    assert_int_equal(qr_mirror_remove(mirror, block), expected);
    naive->key[block] = -1;
}

static void check_block(const naive_mirror *naive, const qr_mirror *mirror, quire_block block)
{
    unsigned char bytes[LEN];
    qr_mirror_key held;
    int status = qr_mirror_get(mirror, block, &held);
    assert_int_equal(status, naive->key[block] >= 0 ? QUIRE_OK : QUIRE_MISS);
    if (status != QUIRE_OK)
        return;
    qr_mirror_key told = make_key(naive->group[block], naive->key[block], bytes);
    assert_int_equal(held.group, told.group);
    assert_int_equal(held.block_size, told.block_size);
    assert_int_equal(held.hash.len, told.hash.len);
    assert_memory_equal(held.hash.data, told.hash.data, told.hash.len);
}

static void mirror_and_naive_agree(void **state)
{
    (void)state;
    qr_mirror *mirror;
    naive_mirror naive;
    uint64_t random = seed;
    memset(&naive, 0xff, sizeof naive);
    assert_int_equal(qr_mirror_create(BLOCKS, GROUPS, LEN, &mirror), QUIRE_OK);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        quire_block block = 1 + unit_random_below(&random, BLOCKS - 1);
        uint32_t what = unit_random_below(&random, 2000);
        if (what == 0) {
            qr_mirror_forget(mirror);
            memset(&naive, 0xff, sizeof naive);
        } else if (what % 2 == 0) {
            set_block(&naive, mirror, block, &random);
        } else {
            remove_block(&naive, mirror, block);
        }
        check_block(&naive, mirror, block);
        if (i % 97 == 0)
            check_mirror(&naive, mirror);
    }
    qr_mirror_destroy(mirror);
}

static void mirror_refuses(void **state)
{
    (void)state;
    unsigned char bytes[LEN];
    qr_mirror *mirror;
    assert_int_equal(qr_mirror_create(BLOCKS, GROUPS, 32, &mirror), QUIRE_OK);
    qr_mirror_key key = make_key(0, 1, bytes);
    qr_mirror_key longer = make_key(2, 1, bytes); /* than the mirror's longest */
    assert_int_equal(qr_mirror_set(mirror, 0, &key), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_set(mirror, BLOCKS, &key), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_set(mirror, 1, &longer), QR_MIRROR_REFUSED);
    key.group = GROUPS;
    assert_int_equal(qr_mirror_set(mirror, 1, &key), QR_MIRROR_REFUSED);
    key.group = 0;
    assert_int_equal(qr_mirror_set(mirror, 1, &key), QR_MIRROR_FIRST);
    key.hash.len = 8; /* not as long as those before it */
    assert_int_equal(qr_mirror_set(mirror, 2, &key), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_remove(mirror, BLOCKS), QR_MIRROR_SAME);
    qr_mirror_destroy(mirror);
    qr_mirror_destroy(NULL);
}

/* ---- the buffer ------------------------------------------------------------- */

static void buffer_keeps_the_newest(void **state)
{
    (void)state;
    unsigned char bytes[1000] = {0};
    qr_budget budget = {0};
    qr_replay_buffer buffer;
    uint64_t random = seed;
    assert_int_equal(qr_replay_buffer_init(&buffer, 7, 3000), QUIRE_OK);
    assert_null(qr_replay_buffer_find(&buffer, 0));
    uint64_t lens[2000];
    for (uint64_t number = 0; number < COUNT(lens); number++) {
        size_t len = unit_random_below(&random, 50) == 0 ? 1000 : unit_random_below(&random, 600);
        qr_payload *payload = qr_payload_create(&budget, number, (quire_bytes){bytes, len});
        assert_non_null(payload);
        lens[number] = qr_payload_bytes(payload);
        qr_replay_buffer_push(&buffer, payload);
        uint64_t count = 0;
        uint64_t sum = 0;
        while (count <= number && count < 7 && sum + lens[number - count] <= 3000)
            sum += lens[number - count++];
        assert_int_equal(buffer.count, count);
        assert_int_equal(buffer.bytes, sum);
        assert_int_equal(budget.bytes, sum);
        for (uint64_t n = 0; n <= number + 1; n += 1 + number / 10) {
            const qr_payload *found = qr_replay_buffer_find(&buffer, n);
            uint64_t oldest = number + 1 - count;
            if (n > number)
                assert_null(found);
            else
                assert_int_equal(found->number, n < oldest ? oldest : n);
        }
    }
    qr_replay_buffer_release(&buffer);
    assert_int_equal(budget.bytes, 0);
}

/* One that alone has more bytes than the buffer may have stays until the next. */
static void buffer_keeps_a_huge_one(void **state)
{
    (void)state;
    unsigned char bytes[1000] = {0};
    qr_budget budget = {0};
    qr_replay_buffer buffer;
    assert_int_equal(qr_replay_buffer_init(&buffer, 4, 100), QUIRE_OK);
    for (uint64_t number = 0; number < 3; number++) {
        qr_payload *payload =
            qr_payload_create(&budget, number, (quire_bytes){bytes, sizeof bytes});
        assert_non_null(payload);
        qr_replay_buffer_push(&buffer, payload);
        assert_int_equal(buffer.count, 1);
        assert_int_equal(qr_replay_buffer_find(&buffer, 0)->number, number);
    }
    qr_replay_buffer_release(&buffer);
}

/* ---- addresses -------------------------------------------------------------- */

typedef struct address_case {
    const char *text;
    uint32_t rank;
    const char *read;
    bool is_local;
    bool listens;
} address_case;

static void addresses(void **state)
{
    (void)state;
    static const address_case cases[] = {
        {"tcp://127.0.0.1:5557", 0, "tcp://127.0.0.1:5557", true, true},
        {"tcp://127.0.0.1:5557", 2, "tcp://127.0.0.1:5559", true, true},
        {"tcp://localhost:5557", 1, "tcp://127.0.0.1:5558", true, true},
        {"tcp://127.0.0.1:*", 2, "tcp://127.0.0.1:*", true, true},
        {"tcp://[::1]:80", 3, "tcp://[::1]:83", true, true},
        {"tcp://*:5557", 1, "tcp://*:5558", false, true},
        {"tcp://0.0.0.0:5557", 0, "tcp://0.0.0.0:5557", false, true},
        {"tcp://[::]:5557", 0, "tcp://[::]:5557", false, true},
        {"tcp://router.example:5557", 7, "tcp://router.example:5564", false, false},
        {"tcp://10.0.0.1:5557", 0, "tcp://10.0.0.1:5557", false, false},
        {"tcp://localhost.example:1", 0, "tcp://localhost.example:1", false, false},
        {"ipc:///run/kv", 0, "ipc:///run/kv", true, true},
        {"ipc:///run/kv", 4, "ipc:///run/kv_dp4", true, true}};
    qr_endpoint endpoint;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const address_case *c = &cases[i];
        assert_int_equal(qr_endpoint_read(c->text, c->rank, &endpoint), QUIRE_OK);
        assert_string_equal(endpoint.text, c->read);
        assert_int_equal(endpoint.is_local, c->is_local);
        assert_int_equal(endpoint.listens, c->listens);
    }
    char text[2 * QR_ENDPOINT_BYTES];
    memset(text, 'x', sizeof text);
    memcpy(text, "ipc://", 6);
    text[sizeof text - 1] = 0;
    assert_int_equal(qr_endpoint_read(text, 0, &endpoint), QUIRE_E_ARGUMENT);
    assert_int_equal(qr_endpoint_read("tcp://127.0.0.1:65535", 1, &endpoint), QUIRE_E_ARGUMENT);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mirror_and_naive_agree),
        cmocka_unit_test(mirror_refuses),
        cmocka_unit_test(buffer_keeps_the_newest),
        cmocka_unit_test(buffer_keeps_a_huge_one),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
