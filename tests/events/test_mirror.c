/* events/test_mirror.c - the publisher's picture of the pool, its buffer and its addresses. */
#include "base/unit.h"
#include "events/endpoint.h"
#include "events/publish/mirror.h"
#include "events/publish/replay_buffer.h"

#include <quire/error.h>

enum { BLOCKS = 60, GROUPS = 3, KEYS = 25, LEN = 48, OPERATIONS = 200000 };

static uint64_t seed;

/* ---- the mirror ------------------------------------------------------------- */

/* What a block was told to hold: bit k of a group is key k. */
typedef struct naive_mirror {
    uint32_t keys[BLOCKS][GROUPS];
} naive_mirror;

_Static_assert(KEYS <= 32, "one bit for each key");

static uint32_t copies_of(const naive_mirror *naive, uint32_t group, uint32_t key)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        copies += naive->keys[i][group] >> key & 1;
    return copies;
}

static uint32_t keys_of(const naive_mirror *naive, quire_block block)
{
    uint32_t count = 0;
    for (uint32_t group = 0; group < GROUPS; group++)
        count += (uint32_t)__builtin_popcount(naive->keys[block][group]);
    return count;
}

/* Further keys: all that blocks have but one of each. */
static uint32_t extras_of(const naive_mirror *naive)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < BLOCKS; i++)
        count += keys_of(naive, i) > 1 ? keys_of(naive, i) - 1 : 0;
    return count;
}

/* Keys that differ in their last bytes, in their first, or in their group alone. Those of group 2
 * are longer. */
static qr_mirror_key make_key(uint32_t group, uint32_t key, unsigned char *bytes)
{
    memset(bytes, 0x5a, LEN);
    size_t len = group == 2 ? LEN : 16;
    bytes[key % 2 == 0 ? 0 : len - 1] = (unsigned char)key;
    return (qr_mirror_key){.group = group, .block_size = 16 + group, .hash = {bytes, len}};
}

/* Which key that is; KEYS: none. */
static uint32_t key_of(const qr_mirror_key *held)
{
    unsigned char bytes[LEN];
    for (uint32_t key = 0; key < KEYS; key++) {
        qr_mirror_key made = make_key(held->group, key, bytes);
        if (made.hash.len == held->hash.len &&
            memcmp(made.hash.data, held->hash.data, held->hash.len) == 0)
            return key;
    }
    return KEYS;
}

static void check_mirror(const naive_mirror *naive, const qr_mirror *mirror)
{
    uint32_t held = 0;
    uint32_t keys = 0;
    for (uint32_t group = 0; group < GROUPS; group++) {
        uint32_t visited[2] = {0};
        uint32_t expected[2] = {0};
        for (uint32_t key = 0; key < KEYS; key++) {
            expected[1] += copies_of(naive, group, key);
            expected[0] += copies_of(naive, group, key) > 0; /* one place for each key */
        }
        for (uint32_t every = 0; every < 2; every++)
            for (uint32_t at = 0; (at = qr_mirror_next(mirror, at, group, every)) != 0;) {
                qr_mirror_key told;
                assert_int_equal(qr_mirror_get(mirror, at, &told), QUIRE_OK);
                assert_int_equal(told.group, group);
                assert_int_equal(told.block_size, 16 + group);
                assert_true(naive->keys[qr_mirror_owner(mirror, at)][group] >> key_of(&told) & 1);
                visited[every]++;
            }
        assert_memory_equal(visited, expected, sizeof visited);
        keys += expected[0];
        held += expected[1];
    }
    assert_int_equal(mirror->num_held, held);
    assert_int_equal(mirror->num_keys, keys);
}

static void set_block(naive_mirror *naive, qr_mirror *mirror, quire_block block, uint64_t *random)
{
    unsigned char bytes[LEN];
    uint32_t group = unit_random_below(random, GROUPS);
    uint32_t key = unit_random_below(random, KEYS);
    qr_mirror_key told = make_key(group, key, bytes);
    uint32_t copies = copies_of(naive, group, key);
    qr_mirror_change change = qr_mirror_set(mirror, block, &told);
    if (naive->keys[block][group] >> key & 1) {
        assert_int_equal(change, QR_MIRROR_SAME);
        return;
    }
    if (change == QR_MIRROR_REFUSED) { /* a place whose block lost its first key is in use too */
        assert_true(keys_of(naive, block) > 0);
        assert_int_equal(mirror->first_free, 0);
        return;
    }
    assert_int_equal(change, copies == 0 ? QR_MIRROR_FIRST : QR_MIRROR_COPY);
    naive->keys[block][group] |= UINT32_C(1) << key;
}

static void remove_key(naive_mirror *naive, qr_mirror *mirror, quire_block block, uint64_t *random)
{
    unsigned char bytes[LEN];
    uint32_t group = unit_random_below(random, GROUPS);
    uint32_t key = unit_random_below(random, KEYS);
    for (uint32_t i = 0; i < GROUPS * KEYS && (naive->keys[block][group] >> key & 1) == 0; i++) {
        key = (key + 1) % KEYS; /* mostly one that the block has */
        group = key == 0 ? (group + 1) % GROUPS : group;
    }
    qr_mirror_key told = make_key(group, key, bytes);
    qr_mirror_change expected = QR_MIRROR_SAME;
    if (naive->keys[block][group] >> key & 1)
        expected = copies_of(naive, group, key) == 1 ? QR_MIRROR_FIRST : QR_MIRROR_COPY;
    assert_int_equal(qr_mirror_remove(mirror, block, &told), expected);
    naive->keys[block][group] &= ~(UINT32_C(1) << key);
}

/* num_extras 0: as blocks of vLLM 0.20, which hold one key. */
static void check_against_naive(uint32_t num_extras)
{
    qr_mirror *mirror;
    naive_mirror naive = {0};
    uint64_t random = seed;
    uint32_t most = 0;
    qr_mirror_config config = {BLOCKS, num_extras, GROUPS, LEN};
    assert_int_equal(qr_mirror_create(&config, &mirror), QUIRE_OK);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        quire_block block = 1 + unit_random_below(&random, BLOCKS - 1);
        uint32_t what = unit_random_below(&random, 2000);
        if (what == 0) {
            qr_mirror_forget(mirror);
            memset(&naive, 0, sizeof naive);
        } else if (what % 2 == 0) {
            set_block(&naive, mirror, block, &random);
        } else {
            remove_key(&naive, mirror, block, &random);
        }
        if (i % 97 == 0)
            check_mirror(&naive, mirror);
        most = extras_of(&naive) > most ? extras_of(&naive) : most;
    }
    assert_true(num_extras == 0 ? most == 0 : most > num_extras / 2);
    qr_mirror_destroy(mirror);
}

static void mirror_and_naive_agree(void **state)
{
    (void)state;
    check_against_naive(0);
    check_against_naive(BLOCKS);
}

static void mirror_refuses(void **state)
{
    (void)state;
    unsigned char bytes[LEN];
    qr_mirror *mirror;
    qr_mirror_config config = {BLOCKS, 1, GROUPS, 32};
    assert_int_equal(qr_mirror_create(&config, &mirror), QUIRE_OK);
    qr_mirror_key key = make_key(0, 1, bytes);
    unsigned char more[LEN];
    qr_mirror_key longer = make_key(2, 1, more); /* than the mirror's longest */
    assert_int_equal(qr_mirror_set(mirror, 0, &key), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_set(mirror, BLOCKS, &key), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_set(mirror, 1, &longer), QR_MIRROR_REFUSED);
    key.group = GROUPS;
    assert_int_equal(qr_mirror_set(mirror, 1, &key), QR_MIRROR_REFUSED);
    key.group = 0;
    assert_int_equal(qr_mirror_set(mirror, 1, &key), QR_MIRROR_FIRST);
    key.hash.len = 8; /* not as long as those before it */
    assert_int_equal(qr_mirror_set(mirror, 2, &key), QR_MIRROR_REFUSED);
    key.hash.len = 16;
    assert_int_equal(qr_mirror_remove(mirror, BLOCKS, &key), QR_MIRROR_SAME);
    assert_int_equal(qr_mirror_remove(mirror, 2, &key), QR_MIRROR_SAME);
    qr_mirror_key second = make_key(0, 2, more);
    assert_int_equal(qr_mirror_set(mirror, 1, &second), QR_MIRROR_FIRST);
    unsigned char most[LEN];
    qr_mirror_key third = make_key(0, 3, most); /* there is room for one further key */
    assert_int_equal(qr_mirror_set(mirror, 1, &third), QR_MIRROR_REFUSED);
    assert_int_equal(qr_mirror_remove(mirror, 1, &key), QR_MIRROR_FIRST);
    assert_int_equal(qr_mirror_set(mirror, 1, &third), QR_MIRROR_FIRST);
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
