/* hash/test_safe.c - Quire's own encodings: two different block keys never look alike.
 *
 * Shown on a small world in full: every key made of the parts below is encoded, all encodings are
 * sorted, and no two neighbours are equal. The parts are chosen to run into each other where a
 * length is missing: "", "x", "xx", ids whose bytes are texts, texts that look like tags.
 */
#include "hash/safe.h"

#include "hash/encoding.h"
#include "hash/hex.h"

#include <quire/hash.h>

enum { MAX_MESSAGES = 20000, MAX_MESSAGE = 160 };
#define WIDE_ID (INT64_C(1) << 40)

typedef struct encoded {
    size_t len;
    unsigned char bytes[MAX_MESSAGE];
} encoded;

typedef struct world {
    encoding_function *encode;
    encoded *all;
    size_t count;
} world;

static const quire_bytes TEXTS[] = {{"", 0}, {"x", 1}, {"xx", 2}, {"\x11\1\0\0\0\0\0\0\0x", 10}};
static const struct {
    size_t count;
    int64_t ids[3];
} TOKENS[] = {{0, {0}},          {1, {0}},       {1, {'x'}},    {1, {-1}},
              {1, {UINT32_MAX}}, {1, {WIDE_ID}}, {2, {0, 0}},   {2, {0, 'x'}},
              {2, {WIDE_ID, 0}}, {2, {-1, 0}},   {2, {-1, -1}}, {3, {0, 0, 0}}};

static void add(world *w, const qr_hash_input *input)
{
    unsigned char room[4096];
    memset(room, 0, sizeof room);
    qr_message message = {.bytes = room};
    w->encode(&message, input);
    assert_true(w->count < MAX_MESSAGES && message.len <= MAX_MESSAGE);
    memset(room + message.parent_at, 'p', input->parent_len);
    encoded *e = &w->all[w->count++];
    e->len = message.len;
    memcpy(e->bytes, room, message.len);
}

/* Every list of up to two keys, behind what the input already has. */
static void add_key_lists(world *w, qr_hash_input input)
{
    quire_extra_key one[5 * COUNT(TEXTS) + 1];
    size_t n = 0;
    for (int kind = QUIRE_KEY_LORA_NAME; kind <= QUIRE_KEY_LORA_PATH; kind++)
        for (size_t t = 0; t < COUNT(TEXTS); t++)
            one[n++] = (quire_extra_key){(quire_extra_key_kind)kind, TEXTS[t], 0};
    one[n++] = (quire_extra_key){QUIRE_KEY_MM_FEATURE, {"x", 1}, 1};
    add(w, &input);
    quire_extra_key keys[2];
    input.keys = keys;
    for (size_t a = 0; a < n; a++) {
        keys[0] = one[a];
        input.num_keys = 1;
        add(w, &input);
        input.num_keys = 2;
        for (size_t b = 0; b < n; b++) {
            keys[1] = one[b];
            add(w, &input);
        }
    }
}

static int compare_encoded(const void *a, const void *b)
{
    const encoded *x = a;
    const encoded *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->bytes, y->bytes, x->len);
}

static void assert_injective(encoding_function *encode)
{
    static encoded all[MAX_MESSAGES];
    world w = {.encode = encode, .all = all, .count = 0};
    for (size_t parent_len = 1; parent_len <= 9; parent_len += 4)
        for (size_t t = 0; t < COUNT(TOKENS); t++)
            add_key_lists(&w, (qr_hash_input){.parent_len = parent_len,
                                              .tokens64 = TOKENS[t].ids,
                                              .num_tokens = TOKENS[t].count});
    assert_int_equal(w.count, 3 * COUNT(TOKENS) * (1 + 21 + 21 * 21));
    qsort(all, w.count, sizeof all[0], compare_encoded);
    for (size_t i = 1; i < w.count; i++)
        assert_int_not_equal(compare_encoded(&all[i - 1], &all[i]), 0);
}

static void safe_encodings_all_differ(void **state)
{
    (void)state;
    assert_injective(qr_safe_encode);
}

static void raw_encodings_all_differ(void **state)
{
    (void)state;
    assert_injective(qr_raw_encode);
}

static void safe_bytes_by_hand(void **state)
{
    (void)state;
    qr_message message = encoding_encode(qr_safe_encode, encoding_input(FEATURE_BEFORE));
    assert_hex(message.bytes, message.len,
               "71756972652f626c6f636b2f31"       /* quire/block/1 */
               "010600000000000000706172656e74"   /* the parent */
               "02010000000000000007000000"       /* one token, 7 */
               "120700000000000000696d6167652d61" /* a feature, image-a, */
               "faffffffffffffff00");             /* at -6; the end */
}

static void raw_bytes_by_hand(void **state)
{
    (void)state;
    qr_message message = encoding_encode(qr_raw_encode, encoding_input(LORA));
    assert_hex(message.bytes, message.len,
               "706172656e74"                     /* the parent */
               "07000000"                         /* 7 */
               "11070000000000000061646170746572" /* LoRA, adapter */
               "0100000100000600");               /* 1 token, 1 key, 6 bytes of parent */
}

static void both_forms_of_ids_agree(void **state)
{
    (void)state;
    static encoding_function *const ENCODERS[] = {qr_safe_encode, qr_raw_encode};
    static const int32_t NARROW[] = {0, 1, -1, 70000, INT32_MAX, INT32_MIN};
    static const int64_t WIDE[] = {0, 1, -1, 70000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < COUNT(ENCODERS); i++) {
        qr_hash_input input = {.parent_len = 6, .tokens = NARROW, .num_tokens = COUNT(NARROW)};
        qr_message message = encoding_encode(ENCODERS[i], input);
        unsigned char narrow[256];
        size_t len = message.len;
        memcpy(narrow, message.bytes, len);
        input.tokens = NULL;
        input.tokens64 = WIDE;
        message = encoding_encode(ENCODERS[i], input);
        assert_int_equal(message.len, len);
        assert_memory_equal(message.bytes, narrow, len);
    }
}

static void seeds_and_blocks_look_different(void **state)
{
    (void)state;
    unsigned char room[256];
    qr_message out = {.bytes = room};
    qr_safe_encode_text(&out, (quire_bytes){"seed", 4});
    assert_hex(out.bytes, out.len, "71756972652f736565642f3101040000000000000073656564");
}

/* ---- through the public calls ---------------------------------------------- */

static void hash_with(quire_hash_algo algo, const quire_extra_key *keys, size_t n, void *digest)
{
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = algo;
    config.seed = (quire_bytes){"0", 1};
    quire_hasher *hasher = NULL;
    static const quire_token BLOCK[] = {1, 2, 3};
    assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_OK);
    assert_int_equal(
        quire_hasher_hash_block(hasher, (quire_bytes){NULL, 0}, BLOCK, 3, keys, n, digest),
        QUIRE_OK);
    quire_hasher_destroy(hasher);
}

/* Whether a LoRA adapter and a salt of the same name give the same block. */
static bool confuses_lora_and_salt(quire_hash_algo algo)
{
    quire_extra_key lora = {QUIRE_KEY_LORA_NAME, {"x", 1}, 0};
    quire_extra_key salt = {QUIRE_KEY_CACHE_SALT, {"x", 1}, 0};
    unsigned char one[QUIRE_MAX_DIGEST_BYTES];
    unsigned char other[QUIRE_MAX_DIGEST_BYTES];
    hash_with(algo, &lora, 1, one);
    hash_with(algo, &salt, 1, other);
    return memcmp(one, other, quire_hash_digest_bytes(algo)) == 0;
}

static void own_algorithms_tell_lora_from_salt(void **state)
{
    (void)state;
    assert_false(confuses_lora_and_salt(QUIRE_HASH_SHA256_SAFE));
    assert_false(confuses_lora_and_salt(QUIRE_HASH_QUIRE128));
}

static void vllm_algorithms_confuse_lora_and_salt(void **state)
{
    (void)state;
    assert_true(confuses_lora_and_salt(QUIRE_HASH_SHA256));
    assert_true(confuses_lora_and_salt(QUIRE_HASH_SHA256_CBOR));
    assert_true(confuses_lora_and_salt(QUIRE_HASH_XXHASH));
    assert_true(confuses_lora_and_salt(QUIRE_HASH_XXHASH_CBOR));
}

static void no_split_between_texts_can_shift(void **state)
{
    (void)state;
    static const char TEXT[] = "abcdef";
    unsigned char digests[7][QUIRE_MAX_DIGEST_BYTES];
    for (size_t algo = QUIRE_HASH_SHA256; algo <= QUIRE_HASH_QUIRE128; algo++) {
        for (size_t split = 0; split <= 6; split++) {
            quire_extra_key keys[] = {{QUIRE_KEY_LORA_NAME, {TEXT, split}, 0},
                                      {QUIRE_KEY_CACHE_SALT, {TEXT + split, 6 - split}, 0}};
            hash_with((quire_hash_algo)algo, keys, 2, digests[split]);
            for (size_t k = 0; k < split; k++)
                assert_memory_not_equal(digests[k], digests[split], 16);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safe_encodings_all_differ),
        cmocka_unit_test(raw_encodings_all_differ),
        cmocka_unit_test(safe_bytes_by_hand),
        cmocka_unit_test(raw_bytes_by_hand),
        cmocka_unit_test(both_forms_of_ids_agree),
        cmocka_unit_test(seeds_and_blocks_look_different),
        cmocka_unit_test(own_algorithms_tell_lora_from_salt),
        cmocka_unit_test(vllm_algorithms_confuse_lora_and_salt),
        cmocka_unit_test(no_split_between_texts_can_shift),
    };
    return cmocka_run_group_tests_name("hash_safe", tests, NULL, NULL);
}
