/* hash/test_hasher.c - configs, NONE_HASH, secrets, and the limits of one block. */
#include "hash/hasher.h"

#include "hash/hex.h"

enum { NUM_ALGOS = QUIRE_HASH_QUIRE128 + 1, ROOM = 1 << 18 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static const quire_bytes ABSENT = {NULL, 0};

static quire_hasher_config config_of(quire_hash_algo algo)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = algo;
    config.seed = (quire_bytes){"0", 1};
    return config;
}

static quire_hasher *make(const quire_hasher_config *config)
{
    quire_hasher *hasher = NULL;
    assert_int_equal(quire_hasher_create(config, NULL, &hasher), QUIRE_OK);
    return hasher;
}

static void hash_of(quire_hasher *hasher, unsigned char *digest)
{
    static const quire_token TOKENS[] = {1, 2, 3};
    assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, TOKENS, 3, NULL, 0, digest), QUIRE_OK);
}

/* ---- configs --------------------------------------------------------------- */

static void assert_refused(const quire_hasher_config *config)
{
    quire_hasher *hasher = NULL;
    assert_int_equal(quire_hasher_bytes(config), 0);
    assert_int_equal(quire_hasher_create(config, NULL, &hasher), QUIRE_E_CONFIG);
    assert_int_equal(
        quire_hasher_create(config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &hasher),
        QUIRE_E_CONFIG);
    assert_null(hasher);
}

static void zeros_mean_defaults(void **state)
{
    (void)state;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = make(&config);
    assert_int_equal(hasher->algo, QUIRE_HASH_SHA256);
    assert_int_equal(hasher->block_size, 16);
    assert_int_equal(hasher->max_extra_bytes, 16384);
    assert_int_equal(hasher->quirks, 0);
    quire_hasher_destroy(hasher);
}

static void unknown_algorithm_is_refused(void **state)
{
    (void)state;
    quire_hasher_config config = config_of((quire_hash_algo)NUM_ALGOS);
    assert_refused(&config);
}

static void block_size_has_a_limit(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_SHA256);
    config.block_size = 65537;
    assert_refused(&config);
    config.block_size = 65536;
    assert_int_not_equal(quire_hasher_bytes(&config), 0);
}

static void unknown_profile_is_refused(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_SHA256);
    config.profile = (quire_profile)(QUIRE_PROFILE_VLLM_0_32 + 1);
    assert_refused(&config);
}

static void seed_and_none_hash_exclude_each_other(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_SHA256);
    config.none_hash = (quire_bytes){"12345678", 8};
    assert_refused(&config);
}

static void none_hash_has_1_to_64_bytes(void **state)
{
    (void)state;
    static const char BYTES[65] = "none";
    quire_hasher_config config = config_of(QUIRE_HASH_SHA256);
    config.seed = ABSENT;
    config.none_hash = (quire_bytes){BYTES, 0};
    assert_refused(&config);
    config.none_hash.len = 65;
    assert_refused(&config);
    for (size_t len = 1; len <= 64; len += 63) {
        config.none_hash.len = len;
        quire_hasher *hasher = make(&config);
        quire_bytes none = quire_hasher_get_info(hasher).none_hash;
        assert_int_equal(none.len, len);
        assert_memory_equal(none.data, BYTES, len);
        quire_hasher_destroy(hasher);
    }
}

static void quire128_takes_no_none_hash(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_QUIRE128);
    config.seed = ABSENT;
    config.none_hash = (quire_bytes){"1234567890123456", 16};
    assert_refused(&config);
}

static void profile_has_its_quirks(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_SHA256);
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    quire_hasher *hasher = make(&config);
    assert_int_equal(hasher->quirks, QR_ALL_QUIRKS);
    quire_hasher_destroy(hasher);
}

/* ---- NONE_HASH ------------------------------------------------------------- */

static void none_hash_from_seed_is_vllms(void **state)
{
    (void)state;
    static const char *const WANTED[] = {
        [QUIRE_HASH_SHA256] = "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c",
        [QUIRE_HASH_SHA256_CBOR] =
            "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
    };
    unsigned char digest[QR_SHA256_BYTES];
    static const unsigned char PICKLE[] = {0x80, 5, 0x95, 5,    0, 0,   0,    0,
                                           0,    0, 0,    0x8c, 1, '0', 0x94, '.'};
    qr_sha256(PICKLE, sizeof PICKLE, digest);
    assert_hex(digest, sizeof digest, WANTED[QUIRE_HASH_SHA256]);
    for (size_t i = 0; i < COUNT(WANTED); i++) {
        quire_hasher_config config = config_of((quire_hash_algo)i);
        quire_hasher *hasher = make(&config);
        quire_bytes none = quire_hasher_get_info(hasher).none_hash;
        assert_hex(none.data, none.len, WANTED[i]);
        quire_hasher_destroy(hasher);
    }
}

static void first_block_has_none_hash_as_parent(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        quire_hasher *hasher = make(&config);
        quire_bytes none = quire_hasher_get_info(hasher).none_hash;
        static const quire_token TOKENS[] = {1, 2, 3};
        unsigned char absent[QUIRE_MAX_DIGEST_BYTES] = {0};
        unsigned char given[QUIRE_MAX_DIGEST_BYTES] = {0};
        hash_of(hasher, absent);
        assert_int_equal(quire_hasher_hash_block(hasher, none, TOKENS, 3, NULL, 0, given),
                         QUIRE_OK);
        assert_memory_equal(absent, given, sizeof absent);
        quire_hasher_destroy(hasher);
    }
}

/* ---- random bytes ---------------------------------------------------------- */

typedef struct dice {
    unsigned char value;
    int result;
    size_t bytes;
} dice;

static int throw_dice(void *user, void *out, size_t bytes)
{
    dice *d = user;
    d->bytes += bytes;
    memset(out, d->value, bytes);
    return d->result;
}

static void random_hook_makes_none_hash(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < QUIRE_HASH_QUIRE128; algo++) {
        dice d = {.value = 0x3c};
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        config.seed = ABSENT;
        config.hooks.user = &d;
        config.hooks.random_bytes = throw_dice;
        quire_hasher *hasher = make(&config);
        quire_bytes none = quire_hasher_get_info(hasher).none_hash;
        assert_int_equal(none.len, 32); /* vLLM's length, whatever the digest */
        assert_int_equal(d.bytes, 32);
        for (size_t i = 0; i < none.len; i++)
            assert_int_equal(((const unsigned char *)none.data)[i], 0x3c);
        quire_hasher_destroy(hasher);
    }
}

static void random_hook_that_fails_makes_no_hasher(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        dice d = {.result = -1};
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        config.seed = ABSENT;
        config.hooks.user = &d;
        config.hooks.random_bytes = throw_dice;
        quire_hasher *hasher = NULL;
        assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_E_RANDOM);
        assert_null(hasher);
        assert_true(d.bytes > 0);
    }
}

static void seed_needs_no_random_bytes(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        dice d = {.result = -1};
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        config.hooks.user = &d;
        config.hooks.random_bytes = throw_dice;
        quire_hasher_destroy(make(&config));
        assert_int_equal(d.bytes, 0);
    }
}

/* Two hashers of the same config: whether they hash alike. */
static bool hash_alike(const quire_hasher_config *a, const quire_hasher_config *b)
{
    unsigned char one[QUIRE_MAX_DIGEST_BYTES] = {0};
    unsigned char other[QUIRE_MAX_DIGEST_BYTES] = {0};
    quire_hasher *hasher = make(a);
    hash_of(hasher, one);
    quire_hasher_destroy(hasher);
    hasher = make(b);
    hash_of(hasher, other);
    quire_hasher_destroy(hasher);
    return memcmp(one, other, sizeof one) == 0;
}

static void same_seed_same_hashes(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config a = config_of((quire_hash_algo)algo);
        quire_hasher_config b = a;
        assert_true(hash_alike(&a, &b));
        b.seed = (quire_bytes){"1", 1};
        assert_false(hash_alike(&a, &b));
    }
}

static void empty_seed_is_a_seed(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config a = config_of((quire_hash_algo)algo);
        a.seed = (quire_bytes){"", 0};
        assert_true(hash_alike(&a, &a));
    }
}

static void without_seed_hashes_are_random(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config a = config_of((quire_hash_algo)algo);
        a.seed = ABSENT;
        assert_false(hash_alike(&a, &a));
    }
}

static void quire128_takes_a_whole_random_secret(void **state)
{
    (void)state;
    dice d = {.value = 0x3c};
    quire_hasher_config config = config_of(QUIRE_HASH_QUIRE128);
    config.seed = ABSENT;
    config.hooks.user = &d;
    config.hooks.random_bytes = throw_dice;
    quire_hasher *hasher = make(&config);
    assert_int_equal(d.bytes, QR_XXH_SECRET_BYTES);
    assert_int_equal(quire_hasher_get_info(hasher).none_hash.len, 16);
    quire_hasher_destroy(hasher);
}

static void seeded_secret_does_not_repeat_itself(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_QUIRE128);
    quire_hasher *hasher = make(&config);
    for (size_t i = 0; i < QR_XXH_SECRET_BYTES; i += 32)
        for (size_t k = 0; k < i; k += 32)
            assert_memory_not_equal(hasher->secret + i, hasher->secret + k, 32);
    quire_hasher_destroy(hasher);
}

static void destroy_wipes_secrets_and_tokens(void **state)
{
    (void)state;
    quire_hasher_config config = config_of(QUIRE_HASH_QUIRE128);
    quire_hasher *hasher = NULL;
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &hasher),
        QUIRE_OK);
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    hash_of(hasher, digest);
    const unsigned char *message = hasher->messages[0].bytes;
    size_t message_bytes = hasher->message_bytes;
    size_t written = 0;
    for (size_t i = 0; i < 64; i++)
        written += message[i] != 0;
    assert_true(written > 0);
    quire_hasher_destroy(hasher);
    for (size_t i = 0; i < sizeof(quire_hasher); i++)
        assert_int_equal(memory[i], 0);
    for (size_t i = 0; i < message_bytes; i++)
        assert_int_equal(message[i], 0);
}

/* ---- one block ------------------------------------------------------------- */

static void parent_and_tokens_have_limits(void **state)
{
    (void)state;
    static const quire_token TOKENS[17] = {0};
    static const char PARENT[65] = "p";
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        quire_hasher *hasher = make(&config);
        unsigned char digest[QUIRE_MAX_DIGEST_BYTES + 1];
        memset(digest, 0x77, sizeof digest);
        assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, TOKENS, 17, NULL, 0, digest),
                         QUIRE_E_RANGE);
        assert_int_equal(
            quire_hasher_hash_block(hasher, (quire_bytes){PARENT, 65}, TOKENS, 16, NULL, 0, digest),
            QUIRE_E_RANGE);
        assert_int_equal(digest[0], 0x77);
        assert_int_equal(
            quire_hasher_hash_block(hasher, (quire_bytes){PARENT, 64}, TOKENS, 16, NULL, 0, digest),
            QUIRE_OK);
        assert_int_equal(digest[quire_hash_digest_bytes((quire_hash_algo)algo)], 0x77);
        assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, NULL, 0, NULL, 0, digest),
                         QUIRE_OK);
        quire_hasher_destroy(hasher);
    }
}

static void digest_may_be_the_parents_memory(void **state)
{
    (void)state;
    static const quire_token TOKENS[] = {4, 5};
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        quire_hasher *hasher = make(&config);
        size_t len = quire_hash_digest_bytes((quire_hash_algo)algo);
        unsigned char parent[QUIRE_MAX_DIGEST_BYTES];
        unsigned char apart[QUIRE_MAX_DIGEST_BYTES];
        hash_of(hasher, parent);
        quire_bytes p = {parent, len};
        assert_int_equal(quire_hasher_hash_block(hasher, p, TOKENS, 2, NULL, 0, apart), QUIRE_OK);
        assert_int_equal(quire_hasher_hash_block(hasher, p, TOKENS, 2, NULL, 0, parent), QUIRE_OK);
        assert_memory_equal(parent, apart, len);
        quire_hasher_destroy(hasher);
    }
}

static void extra_keys_have_a_limit(void **state)
{
    (void)state;
    static char text[2000];
    memset(text, 't', sizeof text);
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        config.max_extra_bytes = 1000;
        quire_hasher *hasher = make(&config);
        quire_extra_key keys[100];
        unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
        for (size_t i = 0; i < COUNT(keys); i++)
            keys[i] = (quire_extra_key){QUIRE_KEY_MM_FEATURE, {text, 1}, INT64_MIN};
        int err = quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, 100, digest);
        assert_int_equal(err, QUIRE_E_RANGE);
        keys[0].value.len = 1001;
        err = quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, 1, digest);
        assert_int_equal(err, QUIRE_E_RANGE);
        keys[0].value.len = SIZE_MAX;
        err = quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, 2, digest);
        assert_int_equal(err, QUIRE_E_RANGE);
        keys[0].value.len = 900;
        err = quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, 1, digest);
        assert_int_equal(err, QUIRE_OK);
        quire_hasher_destroy(hasher);
    }
}

/* Everything at its limit at once: sanitizers see when the room that was planned is too small. */
static void largest_block_of_all_fits(void **state)
{
    (void)state;
    static int64_t tokens[1000];
    static char text[1000 - 24];
    for (size_t i = 0; i < COUNT(tokens); i++)
        tokens[i] = INT64_MIN;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = config_of((quire_hash_algo)algo);
        config.block_size = COUNT(tokens);
        config.max_extra_bytes = 1000;
        quire_hasher *hasher = make(&config);
        quire_extra_key key = {QUIRE_KEY_MM_FEATURE, {text, sizeof text}, INT64_MIN};
        quire_bytes parent = {text, 64};
        unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
        assert_int_equal(
            quire_hasher_hash_block64(hasher, parent, tokens, COUNT(tokens), &key, 1, digest),
            QUIRE_OK);
        quire_hasher_destroy(hasher);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeros_mean_defaults),
        cmocka_unit_test(unknown_algorithm_is_refused),
        cmocka_unit_test(block_size_has_a_limit),
        cmocka_unit_test(unknown_profile_is_refused),
        cmocka_unit_test(seed_and_none_hash_exclude_each_other),
        cmocka_unit_test(none_hash_has_1_to_64_bytes),
        cmocka_unit_test(quire128_takes_no_none_hash),
        cmocka_unit_test(profile_has_its_quirks),
        cmocka_unit_test(none_hash_from_seed_is_vllms),
        cmocka_unit_test(first_block_has_none_hash_as_parent),
        cmocka_unit_test(random_hook_makes_none_hash),
        cmocka_unit_test(random_hook_that_fails_makes_no_hasher),
        cmocka_unit_test(seed_needs_no_random_bytes),
        cmocka_unit_test(same_seed_same_hashes),
        cmocka_unit_test(empty_seed_is_a_seed),
        cmocka_unit_test(without_seed_hashes_are_random),
        cmocka_unit_test(quire128_takes_a_whole_random_secret),
        cmocka_unit_test(seeded_secret_does_not_repeat_itself),
        cmocka_unit_test(destroy_wipes_secrets_and_tokens),
        cmocka_unit_test(parent_and_tokens_have_limits),
        cmocka_unit_test(digest_may_be_the_parents_memory),
        cmocka_unit_test(extra_keys_have_a_limit),
        cmocka_unit_test(largest_block_of_all_fits),
    };
    return cmocka_run_group_tests_name("hash_hasher", tests, NULL, NULL);
}
