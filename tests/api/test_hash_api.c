/* api/test_hash_api.c - quire/hash.h: names, keys, and every call with what it must refuse. */
#include "hash/hex.h"

#include <quire/hash.h>

enum { NUM_ALGOS = QUIRE_HASH_QUIRE128 + 1, ROOM = 1 << 18 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static const quire_bytes ABSENT = {NULL, 0};
static const quire_bytes BROKEN = {NULL, 3}; /* a length without data */

static quire_hasher *make_in_memory(void)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = NULL;
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &hasher),
        QUIRE_OK);
    return hasher;
}

/* ---- names ----------------------------------------------------------------- */

static const struct {
    int value;
    const char *name;
    size_t bytes;
} ALGOS[] = {{0, "sha256", 32},      {1, "sha256_cbor", 32}, {2, "xxhash", 16},
             {3, "xxhash_cbor", 16}, {4, "sha256_safe", 32}, {5, "quire128", 16}};

static void algorithms_have_names_both_ways(void **state)
{
    (void)state;
    assert_int_equal(COUNT(ALGOS), NUM_ALGOS);
    for (size_t i = 0; i < COUNT(ALGOS); i++) {
        quire_hash_algo algo = (quire_hash_algo)ALGOS[i].value;
        quire_hash_algo back = (quire_hash_algo)77;
        assert_string_equal(quire_hash_algo_name(algo), ALGOS[i].name);
        assert_int_equal(quire_hash_algo_by_name(ALGOS[i].name, &back), QUIRE_OK);
        assert_int_equal(back, algo);
        assert_int_equal(quire_hash_digest_bytes(algo), ALGOS[i].bytes);
    }
}

static void what_is_no_algorithm_has_no_name(void **state)
{
    (void)state;
    static const int VALUES[] = {-1, NUM_ALGOS, 1000};
    for (size_t i = 0; i < COUNT(VALUES); i++) {
        assert_null(quire_hash_algo_name((quire_hash_algo)VALUES[i]));
        assert_int_equal(quire_hash_digest_bytes((quire_hash_algo)VALUES[i]), 0);
    }
    static const char *const NAMES[] = {"", "sha", "sha256 ", "SHA256", "sha256_cbo", "md5"};
    quire_hash_algo algo = (quire_hash_algo)77;
    for (size_t i = 0; i < COUNT(NAMES); i++)
        assert_int_equal(quire_hash_algo_by_name(NAMES[i], &algo), QUIRE_E_UNKNOWN_NAME);
    assert_int_equal(quire_hash_algo_by_name(NULL, &algo), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hash_algo_by_name("sha256", NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(algo, 77);
}

/* ---- making ---------------------------------------------------------------- */

static void making_refuses_null(void **state)
{
    (void)state;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = NULL;
    assert_int_equal(quire_hasher_bytes(NULL), 0);
    assert_int_equal(quire_hasher_create(NULL, NULL, &hasher), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hasher_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = NULL, .bytes = ROOM}, &hasher),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_hasher_create(NULL, &(quire_allocator){.memory = memory, .bytes = ROOM}, &hasher),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, NULL),
        QUIRE_E_ARGUMENT);
    assert_null(hasher);
    quire_hasher_destroy(NULL);
}

static void making_refuses_bad_memory_unwritten(void **state)
{
    (void)state;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher *hasher = NULL;
    size_t bytes = quire_hasher_bytes(&config);
    memset(memory, 0x77, ROOM);
    assert_int_equal(quire_hasher_create(&config,
                                         &(quire_allocator){.memory = memory, .bytes = bytes - 1},
                                         &hasher),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = memory, .bytes = 0}, &hasher),
        QUIRE_E_TOO_SMALL);
    for (size_t off = 1; off < QUIRE_ALIGNMENT; off++)
        assert_int_equal(
            quire_hasher_create(&config, &(quire_allocator){.memory = memory + off, .bytes = bytes},
                                &hasher),
            QUIRE_E_ALIGNMENT);
    for (size_t i = 0; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
    assert_int_equal(
        quire_hasher_create(&config, &(quire_allocator){.memory = memory, .bytes = bytes}, &hasher),
        QUIRE_OK);
    quire_hasher_destroy(hasher);
}

/* What every call must answer to a hasher that is none. */
static void assert_no_hasher(quire_hasher *hasher)
{
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    _Alignas(8) unsigned char room[1024];
    quire_chain *chain = NULL;
    assert_null(quire_hasher_get_info(hasher).none_hash.data);
    assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, NULL, 0, NULL, 0, digest),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hasher_hash_block64(hasher, ABSENT, NULL, 0, NULL, 0, digest),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_bytes(hasher), 0);
    assert_int_equal(quire_chain_init(hasher, room, sizeof room, &chain), QUIRE_E_ARGUMENT);
    assert_null(chain);
}

static void no_hasher_is_an_argument_error(void **state)
{
    (void)state;
    assert_no_hasher(NULL);
    quire_hasher *hasher = make_in_memory();
    quire_hasher_destroy(hasher);
    assert_no_hasher(hasher); /* its memory is still ours */
    quire_hasher_destroy(hasher);
}

/* ---- hashing --------------------------------------------------------------- */

static void hash_block_refuses_null(void **state)
{
    (void)state;
    quire_hasher *hasher = make_in_memory();
    static const quire_token TOKENS[] = {1};
    static const int64_t TOKENS64[] = {1};
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    int none = quire_hasher_hash_block(hasher, ABSENT, NULL, 1, NULL, 0, digest);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    none = quire_hasher_hash_block64(hasher, ABSENT, NULL, 1, NULL, 0, digest);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    none = quire_hasher_hash_block(hasher, ABSENT, TOKENS, 1, NULL, 1, digest);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    none = quire_hasher_hash_block(hasher, ABSENT, TOKENS, 1, NULL, 0, NULL);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    none = quire_hasher_hash_block64(hasher, ABSENT, TOKENS64, 1, NULL, 0, NULL);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    none = quire_hasher_hash_block(hasher, BROKEN, TOKENS, 1, NULL, 0, digest);
    assert_int_equal(none, QUIRE_E_ARGUMENT);
    quire_hasher_destroy(hasher);
}

static void hash_block_refuses_bad_keys(void **state)
{
    (void)state;
    quire_hasher *hasher = make_in_memory();
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    static const int KINDS[] = {0, -1, 5, 1000};
    for (size_t i = 0; i < COUNT(KINDS); i++) {
        quire_extra_key keys[] = {{QUIRE_KEY_LORA_NAME, {"a", 1}, 0},
                                  {(quire_extra_key_kind)KINDS[i], {"b", 1}, 0}};
        int status = quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, 2, digest);
        assert_int_equal(status, QUIRE_E_ARGUMENT);
    }
    quire_extra_key broken = {QUIRE_KEY_LORA_NAME, BROKEN, 0};
    assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, NULL, 0, &broken, 1, digest),
                     QUIRE_E_ARGUMENT);
    quire_hasher_destroy(hasher);
}

static void narrow_and_wide_ids_hash_alike(void **state)
{
    (void)state;
    static const quire_token NARROW[] = {0, 1, -1, 300, 70000, INT32_MAX, INT32_MIN};
    static const int64_t WIDE[] = {0, 1, -1, 300, 70000, INT32_MAX, INT32_MIN};
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
        config.algo = (quire_hash_algo)algo;
        quire_hasher *hasher = NULL;
        assert_int_equal(quire_hasher_create(
                             &config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &hasher),
                         QUIRE_OK);
        unsigned char a[QUIRE_MAX_DIGEST_BYTES];
        unsigned char b[QUIRE_MAX_DIGEST_BYTES];
        assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, NARROW, 7, NULL, 0, a), QUIRE_OK);
        assert_int_equal(quire_hasher_hash_block64(hasher, ABSENT, WIDE, 7, NULL, 0, b), QUIRE_OK);
        assert_memory_equal(a, b, quire_hash_digest_bytes(config.algo));
        quire_hasher_destroy(hasher);
    }
}

/* ---- chains ---------------------------------------------------------------- */

static void chain_init_refuses_bad_memory(void **state)
{
    (void)state;
    quire_hasher *hasher = make_in_memory();
    _Alignas(8) unsigned char room[1024];
    quire_chain *chain = NULL;
    size_t bytes = quire_chain_bytes(hasher);
    assert_true(bytes >= 16 * sizeof(quire_token) && bytes <= 16 * sizeof(quire_token) + 128);
    assert_int_equal(quire_chain_init(hasher, NULL, bytes, &chain), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_init(hasher, room, bytes, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_init(hasher, room, bytes - 1, &chain), QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_chain_init(hasher, room + 1, bytes, &chain), QUIRE_E_ALIGNMENT);
    assert_int_equal(quire_chain_init(hasher, room + 4, bytes, &chain), QUIRE_E_ALIGNMENT);
    assert_null(chain);
    assert_int_equal(quire_chain_init(hasher, room + 8, bytes, &chain), QUIRE_OK);
    quire_hasher_destroy(hasher);
}

static void chain_append_refuses_null(void **state)
{
    (void)state;
    quire_hasher *hasher = make_in_memory();
    _Alignas(8) unsigned char room[1024];
    quire_chain *chain = NULL;
    assert_int_equal(quire_chain_init(hasher, room, sizeof room, &chain), QUIRE_OK);
    static const quire_token T[16] = {0};
    unsigned char out[QUIRE_MAX_DIGEST_BYTES];
    size_t n = 77;
    quire_extra_keys no_features = {.size = sizeof(quire_extra_keys), .num_mm_features = 1};
    quire_mm_feature broken_feature = {BROKEN, 0, 1};
    quire_extra_keys extras[] = {
        no_features,
        {.size = sizeof extras[0], .lora_name = BROKEN},
        {.size = sizeof extras[0], .lora_path = BROKEN},
        {.size = sizeof extras[0], .cache_salt = BROKEN},
        {.size = sizeof extras[0], .mm_features = &broken_feature, .num_mm_features = 1}};
    for (size_t i = 0; i < COUNT(extras); i++)
        assert_int_equal(quire_chain_append(hasher, chain, T, 16, &extras[i], out, 1, &n),
                         QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_append(NULL, chain, T, 1, NULL, out, 1, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_append(hasher, NULL, T, 1, NULL, out, 1, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_append(hasher, chain, NULL, 1, NULL, out, 1, &n),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_append(hasher, chain, T, 1, NULL, NULL, 1, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_chain_append(hasher, chain, T, 1, NULL, out, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(n, 77);
    assert_int_equal(quire_chain_get_num_tokens(chain), 0);
    quire_hasher_destroy(hasher);
    assert_int_equal(quire_chain_append(hasher, chain, T, 1, NULL, out, 1, &n), QUIRE_E_ARGUMENT);
}

static void chain_of_another_block_size_is_refused(void **state)
{
    (void)state;
    quire_hasher *hasher = make_in_memory();
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.block_size = 8;
    quire_hasher *other = NULL;
    assert_int_equal(quire_hasher_create(&config, NULL, &other), QUIRE_OK);
    _Alignas(8) unsigned char room[1024];
    quire_chain *chain = NULL;
    assert_int_equal(quire_chain_init(hasher, room, sizeof room, &chain), QUIRE_OK);
    static const quire_token T[16] = {0};
    size_t n = 0;
    assert_int_equal(quire_chain_append(other, chain, T, 1, NULL, NULL, 0, &n), QUIRE_E_ARGUMENT);
    quire_hasher_destroy(other);
    quire_hasher_destroy(hasher);
}

static void no_chain_has_nothing(void **state)
{
    (void)state;
    assert_int_equal(quire_chain_get_num_tokens(NULL), 0);
}

/* ---- keys ------------------------------------------------------------------ */

static void keys_are_made_and_split(void **state)
{
    (void)state;
    unsigned char key[7];
    assert_int_equal(quire_hash_make_key((quire_bytes){"abc", 3}, 0x01020304, key), QUIRE_OK);
    assert_hex(key, sizeof key, "61626301020304");
    quire_bytes hash;
    uint32_t group = 0;
    assert_int_equal(quire_hash_split_key((quire_bytes){key, 7}, &hash, &group), QUIRE_OK);
    assert_true(hash.data == key && hash.len == 3);
    assert_int_equal(group, 0x01020304);
    assert_int_equal(quire_hash_make_key(ABSENT, UINT32_MAX, key), QUIRE_OK);
    assert_int_equal(quire_hash_split_key((quire_bytes){key, 4}, &hash, &group), QUIRE_OK);
    assert_int_equal(hash.len, 0);
    assert_int_equal(group, UINT32_MAX);
}

static void keys_refuse_what_is_too_short(void **state)
{
    (void)state;
    unsigned char key[8] = {0};
    quire_bytes hash = {key, 77};
    uint32_t group = 77;
    for (size_t len = 0; len < 4; len++)
        assert_int_equal(quire_hash_split_key((quire_bytes){key, len}, &hash, &group),
                         QUIRE_E_RANGE);
    assert_int_equal(quire_hash_split_key(BROKEN, &hash, &group), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hash_split_key((quire_bytes){key, 8}, NULL, &group), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hash_split_key((quire_bytes){key, 8}, &hash, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hash_make_key(BROKEN, 0, key), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hash_make_key(ABSENT, 0, NULL), QUIRE_E_ARGUMENT);
    assert_true(hash.len == 77 && group == 77);
}

static void external_hash_is_the_last_eight_bytes(void **state)
{
    (void)state;
    static const unsigned char BYTES[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_int_equal(quire_hash_external((quire_bytes){BYTES, 10}), UINT64_C(0x0203040506070809));
    assert_int_equal(quire_hash_external((quire_bytes){BYTES + 1, 8}),
                     UINT64_C(0x0102030405060708));
    assert_int_equal(quire_hash_external((quire_bytes){BYTES + 8, 2}), 0x0809);
    assert_int_equal(quire_hash_external((quire_bytes){BYTES, 0}), 0);
    assert_int_equal(quire_hash_external(ABSENT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(algorithms_have_names_both_ways),
        cmocka_unit_test(what_is_no_algorithm_has_no_name),
        cmocka_unit_test(making_refuses_null),
        cmocka_unit_test(making_refuses_bad_memory_unwritten),
        cmocka_unit_test(no_hasher_is_an_argument_error),
        cmocka_unit_test(hash_block_refuses_null),
        cmocka_unit_test(hash_block_refuses_bad_keys),
        cmocka_unit_test(narrow_and_wide_ids_hash_alike),
        cmocka_unit_test(chain_init_refuses_bad_memory),
        cmocka_unit_test(chain_append_refuses_null),
        cmocka_unit_test(chain_of_another_block_size_is_refused),
        cmocka_unit_test(no_chain_has_nothing),
        cmocka_unit_test(keys_are_made_and_split),
        cmocka_unit_test(keys_refuse_what_is_too_short),
        cmocka_unit_test(external_hash_is_the_last_eight_bytes),
    };
    return cmocka_run_group_tests_name("api_hash", tests, NULL, NULL);
}
