/* hash/test_chain.c - a request's tokens, appended in any portions, give the same hashes.
 *
 *      50 tokens    |----------------|----------------|----------------|--|
 *      appended as  |-----|--------------------|-|-------------------------|   and in other ways
 *
 * The caller's buffers are overwritten after every call: what the chain needs later it must have
 * copied. */
#include "base/quirks_kit.h"
#include "hash/chain.h"

#include "base/unit.h"

enum { NUM_ALGOS = QUIRE_HASH_QUIRE128 + 1, NUM_TOKENS = 50, CHAIN_ROOM = 1024 };

static const uint32_t BLOCK_SIZES[] = {1, 3, 16};

/* A request being hashed, and what it should give. */
typedef struct fixture {
    quire_hasher *hasher;
    quire_chain *chain;
    size_t digest_bytes;
    size_t num_hashes; /* so far */
    _Alignas(8) unsigned char memory[CHAIN_ROOM];
    unsigned char hashes[NUM_TOKENS * QUIRE_MAX_DIGEST_BYTES];
} fixture;

static void token_values(quire_token *tokens)
{
    for (int i = 0; i < NUM_TOKENS; i++)
        tokens[i] = i * i * 37 % 130000;
}

static void start(fixture *f)
{
    assert_int_equal(quire_chain_init(f->hasher, f->memory, sizeof f->memory, &f->chain), QUIRE_OK);
    f->num_hashes = 0;
    memset(f->hashes, 0, sizeof f->hashes);
}

static void open_fixture(fixture *f, quire_hash_algo algo, uint32_t block_size, uint64_t quirks)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = algo;
    config.block_size = block_size;
    config.seed = (quire_bytes){"0", 1};
    config.max_extra_bytes = 200;
    quirks_change(quirks, 0);
    assert_int_equal(quire_hasher_create(&config, NULL, &f->hasher), QUIRE_OK);
    quirks_change(0, 0);
    assert_true(quire_chain_bytes(f->hasher) <= CHAIN_ROOM);
    f->digest_bytes = quire_hash_digest_bytes(algo);
    start(f);
}

/* Appends tokens [from, to) from a buffer that is overwritten afterwards. */
static int append(fixture *f, size_t from, size_t to, const quire_extra_keys *extra)
{
    quire_token all[NUM_TOKENS];
    quire_token buffer[NUM_TOKENS];
    token_values(all);
    memcpy(buffer, all + from, (to - from) * sizeof *all);
    size_t n = 99;
    int err = quire_chain_append(f->hasher, f->chain, buffer, to - from, extra,
                                 f->hashes + f->num_hashes * f->digest_bytes,
                                 NUM_TOKENS - f->num_hashes, &n);
    memset(buffer, 0xee, sizeof buffer);
    if (err == QUIRE_OK)
        f->num_hashes += n;
    return err;
}

static void append_ok(fixture *f, size_t from, size_t to, const quire_extra_keys *extra)
{
    assert_int_equal(append(f, from, to, extra), QUIRE_OK);
    assert_int_equal(quire_chain_get_num_tokens(f->chain), to);
    assert_int_equal(f->chain->num_blocks, to / f->hasher->block_size);
    assert_int_equal(f->num_hashes, to / f->hasher->block_size);
}

/* ---- splits ---------------------------------------------------------------- */

/* What hash_block gives, block by block. */
static void hashes_by_hand(fixture *f, unsigned char *out)
{
    quire_token tokens[NUM_TOKENS];
    token_values(tokens);
    uint32_t size = f->hasher->block_size;
    quire_bytes parent = {NULL, 0};
    for (size_t i = 0; i + size <= NUM_TOKENS; i += size, out += f->digest_bytes) {
        assert_int_equal(quire_hasher_hash_block(f->hasher, parent, tokens + i, size, NULL, 0, out),
                         QUIRE_OK);
        parent = (quire_bytes){out, f->digest_bytes};
    }
}

static void for_each_kind(void (*check)(fixture *f, const unsigned char *wanted))
{
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        for (size_t b = 0; b < COUNT(BLOCK_SIZES); b++) {
            fixture f;
            open_fixture(&f, (quire_hash_algo)algo, BLOCK_SIZES[b], 0);
            unsigned char wanted[NUM_TOKENS * QUIRE_MAX_DIGEST_BYTES] = {0};
            hashes_by_hand(&f, wanted);
            check(&f, wanted);
            quire_hasher_destroy(f.hasher);
        }
    }
}

static void check_one_append(fixture *f, const unsigned char *wanted)
{
    append_ok(f, 0, NUM_TOKENS, NULL);
    assert_memory_equal(f->hashes, wanted, sizeof f->hashes);
}

static void one_append_equals_hash_block(void **state)
{
    (void)state;
    for_each_kind(check_one_append);
}

/* 0 <= i <= j <= 50: empty portions are among them. */
static void check_three_portions(fixture *f, const unsigned char *wanted)
{
    for (size_t i = 0; i <= NUM_TOKENS; i++) {
        for (size_t j = i; j <= NUM_TOKENS; j++) {
            start(f);
            append_ok(f, 0, i, NULL);
            append_ok(f, i, j, NULL);
            append_ok(f, j, NUM_TOKENS, NULL);
            assert_memory_equal(f->hashes, wanted, sizeof f->hashes);
        }
    }
}

static void every_split_in_three_agrees(void **state)
{
    (void)state;
    for_each_kind(check_three_portions);
}

static void check_equal_portions(fixture *f, const unsigned char *wanted)
{
    for (size_t step = 1; step <= NUM_TOKENS; step++) {
        start(f);
        for (size_t i = 0; i < NUM_TOKENS; i += step)
            append_ok(f, i, i + step < NUM_TOKENS ? i + step : NUM_TOKENS, NULL);
        assert_memory_equal(f->hashes, wanted, sizeof f->hashes);
    }
}

static void portions_of_every_size_agree(void **state)
{
    (void)state;
    for_each_kind(check_equal_portions);
}

static void chains_of_one_hasher_do_not_mix(void **state)
{
    (void)state;
    fixture a;
    open_fixture(&a, QUIRE_HASH_SHA256, 16, 0);
    fixture b = {.hasher = a.hasher, .digest_bytes = a.digest_bytes};
    start(&b);
    append_ok(&a, 0, 20, NULL);
    append_ok(&b, 0, 7, NULL);
    append_ok(&a, 20, 50, NULL);
    append_ok(&b, 7, 50, NULL);
    assert_memory_equal(a.hashes, b.hashes, sizeof a.hashes);
    quire_hasher_destroy(a.hasher);
}

/* ---- what does not fit ----------------------------------------------------- */

static void too_small_capacity_changes_nothing(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, QUIRE_HASH_SHA256_SAFE, 3, 0);
    unsigned char wanted[NUM_TOKENS * QUIRE_MAX_DIGEST_BYTES] = {0};
    hashes_by_hand(&f, wanted);
    append_ok(&f, 0, 8, NULL); /* two blocks and two tokens */
    unsigned char before[CHAIN_ROOM];
    memcpy(before, f.memory, sizeof before);
    quire_token tokens[NUM_TOKENS];
    token_values(tokens);
    for (size_t capacity = 0; capacity < 14; capacity++) {
        size_t n = 99;
        unsigned char digests[14 * 32];
        assert_int_equal(
            quire_chain_append(f.hasher, f.chain, tokens + 8, 42, NULL, digests, capacity, &n),
            QUIRE_E_RANGE);
        assert_int_equal(n, 14); /* so many there would be */
        assert_memory_equal(f.memory, before, sizeof before);
    }
    append_ok(&f, 8, NUM_TOKENS, NULL);
    assert_memory_equal(f.hashes, wanted, sizeof f.hashes);
    quire_hasher_destroy(f.hasher);
}

static void no_room_is_needed_for_no_hash(void **state)
{
    (void)state;
    fixture f;
    open_fixture(&f, QUIRE_HASH_SHA256, 16, 0);
    static const quire_token TOKENS[15] = {0};
    size_t n = 99;
    assert_int_equal(quire_chain_append(f.hasher, f.chain, TOKENS, 15, NULL, NULL, 0, &n),
                     QUIRE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(quire_chain_append(f.hasher, f.chain, NULL, 0, NULL, NULL, 0, &n), QUIRE_OK);
    assert_int_equal(quire_chain_get_num_tokens(f.chain), 15);
    quire_hasher_destroy(f.hasher);
}

/* The second of three blocks has more extra keys than the hasher allows. */
static void too_long_extra_keys_change_nothing(void **state)
{
    (void)state;
    static const char LONG[300] = "id";
    quire_mm_feature feature = {{LONG, sizeof LONG}, 17, 2};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = &feature, .num_mm_features = 1};
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        fixture f;
        open_fixture(&f, (quire_hash_algo)algo, 16, 0);
        unsigned char wanted[NUM_TOKENS * QUIRE_MAX_DIGEST_BYTES] = {0};
        hashes_by_hand(&f, wanted);
        append_ok(&f, 0, 5, NULL);
        assert_int_equal(append(&f, 5, NUM_TOKENS, &extra), QUIRE_E_RANGE);
        assert_int_equal(quire_chain_get_num_tokens(f.chain), 5);
        assert_int_equal(f.chain->num_blocks, 0);
        append_ok(&f, 5, NUM_TOKENS, NULL);
        assert_memory_equal(f.hashes, wanted, 3 * f.digest_bytes);
        quire_hasher_destroy(f.hasher);
    }
}

static void too_many_extra_keys_change_nothing(void **state)
{
    (void)state;
    quire_mm_feature features[16];
    for (size_t i = 0; i < COUNT(features); i++)
        features[i] = (quire_mm_feature){{"i", 1}, 16 + i, 1};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .mm_features = features,
                              .num_mm_features = COUNT(features)};
    fixture f;
    open_fixture(&f, QUIRE_HASH_SHA256, 16, 0);
    assert_int_equal(append(&f, 0, NUM_TOKENS, &extra), QUIRE_E_RANGE);
    assert_int_equal(quire_chain_get_num_tokens(f.chain), 0);
    append_ok(&f, 0, 17, &extra); /* the full block is in front of them */
    quire_hasher_destroy(f.hasher);
}

static void extra_keys_take_part(void **state)
{
    (void)state;
    quire_extra_keys lora = {.size = sizeof(quire_extra_keys), .lora_name = {"adapter", 7}};
    quire_extra_keys salt = {.size = sizeof(quire_extra_keys), .cache_salt = {"salt", 4}};
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        fixture f;
        open_fixture(&f, (quire_hash_algo)algo, 16, 0);
        append_ok(&f, 0, NUM_TOKENS, NULL);
        unsigned char plain[QUIRE_MAX_DIGEST_BYTES * 3];
        memcpy(plain, f.hashes, sizeof plain);
        start(&f);
        append_ok(&f, 0, NUM_TOKENS, &lora);
        assert_memory_not_equal(f.hashes, plain, f.digest_bytes);
        start(&f);
        append_ok(&f, 0, NUM_TOKENS, &salt); /* through the parent it reaches every block */
        for (size_t i = 0; i < 3; i++)
            assert_memory_not_equal(f.hashes + i * f.digest_bytes, plain + i * f.digest_bytes,
                                    f.digest_bytes);
        quire_hasher_destroy(f.hasher);
    }
}

/* ---- the quirk ------------------------------------------------------------- */

/* Two features in the second block; in two appends, so that the second one continues. */
static void hash_two_features(uint64_t quirks, size_t num_features, unsigned char *second)
{
    quire_mm_feature features[] = {{{"a", 1}, 17, 2}, {{"b", 1}, 25, 2}};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .mm_features = features + 2 - num_features,
                              .num_mm_features = num_features};
    fixture f;
    open_fixture(&f, QUIRE_HASH_SHA256, 16, quirks);
    append_ok(&f, 0, 20, &extra);
    append_ok(&f, 20, 32, &extra);
    memcpy(second, f.hashes + f.digest_bytes, f.digest_bytes);
    quire_hasher_destroy(f.hasher);
}

static void quirk_looks_at_the_last_feature_only(void **state)
{
    (void)state;
    uint64_t quirk = QR_QUIRK(MM_LAST_FEATURE);
    unsigned char both[32];
    unsigned char last[32];
    unsigned char both_quirk[32];
    unsigned char last_quirk[32];
    hash_two_features(0, 2, both);
    hash_two_features(0, 1, last);
    hash_two_features(quirk, 2, both_quirk);
    hash_two_features(quirk, 1, last_quirk);
    assert_memory_not_equal(both, last, sizeof both);
    assert_memory_equal(both_quirk, last, sizeof both);
    assert_memory_equal(last_quirk, last, sizeof both);
}

static void quirk_does_not_show_in_one_append(void **state)
{
    (void)state;
    quire_mm_feature features[] = {{{"a", 1}, 17, 2}, {{"b", 1}, 25, 2}};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = features, .num_mm_features = 2};
    fixture plain;
    fixture quirky;
    open_fixture(&plain, QUIRE_HASH_SHA256, 16, 0);
    open_fixture(&quirky, QUIRE_HASH_SHA256, 16, QR_QUIRK(MM_LAST_FEATURE));
    append_ok(&plain, 0, NUM_TOKENS, &extra);
    append_ok(&quirky, 0, NUM_TOKENS, &extra);
    assert_memory_equal(plain.hashes, quirky.hashes, sizeof plain.hashes);
    quire_hasher_destroy(plain.hasher);
    quire_hasher_destroy(quirky.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_append_equals_hash_block),
        cmocka_unit_test(every_split_in_three_agrees),
        cmocka_unit_test(portions_of_every_size_agree),
        cmocka_unit_test(chains_of_one_hasher_do_not_mix),
        cmocka_unit_test(too_small_capacity_changes_nothing),
        cmocka_unit_test(no_room_is_needed_for_no_hash),
        cmocka_unit_test(too_long_extra_keys_change_nothing),
        cmocka_unit_test(too_many_extra_keys_change_nothing),
        cmocka_unit_test(extra_keys_take_part),
        cmocka_unit_test(quirk_looks_at_the_last_feature_only),
        cmocka_unit_test(quirk_does_not_show_in_one_append),
    };
    return cmocka_run_group_tests_name("hash_chain", tests, NULL, NULL);
}
