/* hash/test_tagged.c - the extra keys of vLLM 0.32.0: tuples that begin with a tag.
 *
 *      (("lora", name, path), ("mm", identifier, offset), ("cache_salt", salt),
 *       ("prompt_embeds", digest))
 *
 * All bytes and hashes come from Python: pickle, cbor2, hashlib and xxhash.
 */
#include "hash/cbor.h"
#include "hash/chain.h"
#include "hash/encoding.h"
#include "hash/hex.h"
#include "hash/pickle.h"

typedef enum tagged_case {
    LORA_AND_PATH,
    LORA_ALONE,
    TAGGED_FEATURE,
    TAGGED_SALT,
    TAGGED_EMBEDS,
    ALL_TAGGED,
    FIVE_TAGGED,
    TWO_FEATURES,
    SAME_FEATURE,
    PATH_IS_NAME,
    PATH_LIKE_NAME,
    FEATURE_IS_PATH,
    TAGS_TWICE,
    NUM_TAGGED
} tagged_case;

static const char *const PICKLES[NUM_TAGGED] = {
    [LORA_AND_PATH] =
        ("8005952c000000000000004306706172656e74944b0785948c046c6f7261948c0761646170746572948c"
         "042f612f62948794859487942e"),
    [LORA_ALONE] =
        ("80059528000000000000004306706172656e74944b0785948c046c6f7261948c0761646170746572948c"
         "00948794859487942e"),
    [TAGGED_FEATURE] =
        ("80059528000000000000004306706172656e74944b0785948c026d6d948c07696d6167652d61944afaff"
         "ffff8794859487942e"),
    [TAGGED_SALT] =
        ("8005952a000000000000004306706172656e74944b0785948c0a63616368655f73616c74948c0673616c"
         "742d31948694859487942e"),
    [TAGGED_EMBEDS] =
        ("8005952b000000000000004306706172656e74944b0785948c0d70726f6d70745f656d62656473944304"
         "01020304948694859487942e"),
    [ALL_TAGGED] =
        ("80059571000000000000004306706172656e74944b078594288c046c6f7261948c076164617074657294"
         "8c042f612f629487948c026d6d948c07696d6167652d61944b0a87948c0a63616368655f73616c74948c"
         "0673616c742d319486948c0d70726f6d70745f656d6265647394430401020304948694749487942e"),
    [FIVE_TAGGED] =
        ("80059584000000000000004306706172656e74944b078594288c046c6f7261948c076164617074657294"
         "8c042f612f629487948c026d6d948c07696d6167652d61944b00879468068c07696d6167652d62944a70"
         "11010087948c0a63616368655f73616c74948c0673616c742d319486948c0d70726f6d70745f656d6265"
         "647394430401020304948694749487942e"),
    [TWO_FEATURES] =
        ("80059535000000000000004306706172656e74944b0785948c026d6d948c07696d6167652d61944b0287"
         "9468028c07696d6167652d62944b098794869487942e"),
    [SAME_FEATURE] =
        ("8005952d000000000000004306706172656e74944b0785948c026d6d948c07696d6167652d61944b0287"
         "94680268034b098794869487942e"),
    [PATH_IS_NAME] =
        ("80059524000000000000004306706172656e74944b0785948c046c6f7261948c0473616d659468038794"
         "859487942e"),
    [PATH_LIKE_NAME] =
        ("80059529000000000000004306706172656e74944b0785948c046c6f7261948c0473616d65948c047361"
         "6d65948794859487942e"),
    [FEATURE_IS_PATH] =
        ("8005954d000000000000004306706172656e74944b0785948c046c6f7261948c0761646170746572948c"
         "0473616d659487948c026d6d9468044b0187948c0a63616368655f73616c74948c0473616d6594869487"
         "9487942e"),
    [TAGS_TWICE] =
        ("8005958b000000000000004306706172656e74944b078594288c046c6f7261948c076164617074657294"
         "8c042f612f629487948c0a63616368655f73616c74948c0673616c742d319486948c0d70726f6d70745f"
         "656d626564739443040102030494869468028c0761646170746572948c042f612f6294879468068c0673"
         "616c742d319486946809430401020304948694749487942e"),
};

static const char *const CBORS[NUM_TAGGED] = {
    [LORA_AND_PATH] = "8346706172656e7481078183646c6f72616761646170746572642f612f62",
    [LORA_ALONE] = "8346706172656e7481078183646c6f7261676164617074657260",
    [TAGGED_FEATURE] = "8346706172656e7481078183626d6d67696d6167652d6125",
    [TAGGED_SALT] = "8346706172656e74810781826a63616368655f73616c746673616c742d31",
    [TAGGED_EMBEDS] = "8346706172656e74810781826d70726f6d70745f656d626564734401020304",
    [ALL_TAGGED] =
        ("8346706172656e7481078483646c6f72616761646170746572642f612f6283626d6d67696d6167652d61"
         "0a826a63616368655f73616c746673616c742d31826d70726f6d70745f656d626564734401020304"),
    [FIVE_TAGGED] =
        ("8346706172656e7481078583646c6f72616761646170746572642f612f6283626d6d67696d6167652d61"
         "0083626d6d67696d6167652d621a00011170826a63616368655f73616c746673616c742d31826d70726f"
         "6d70745f656d626564734401020304"),
    [TWO_FEATURES] = "8346706172656e7481078283626d6d67696d6167652d610283626d6d67696d6167652d6209",
    [SAME_FEATURE] = "8346706172656e7481078283626d6d67696d6167652d610283626d6d67696d6167652d6109",
    [PATH_IS_NAME] = "8346706172656e7481078183646c6f72616473616d656473616d65",
    [PATH_LIKE_NAME] = "8346706172656e7481078183646c6f72616473616d656473616d65",
    [FEATURE_IS_PATH] =
        ("8346706172656e7481078383646c6f726167616461707465726473616d6583626d6d6473616d6501826a"
         "63616368655f73616c746473616d65"),
    [TAGS_TWICE] =
        ("8346706172656e7481078683646c6f72616761646170746572642f612f62826a63616368655f73616c74"
         "6673616c742d31826d70726f6d70745f656d62656473440102030483646c6f7261676164617074657264"
         "2f612f62826a63616368655f73616c746673616c742d31826d70726f6d70745f656d6265647344010203"
         "04"),
};

/* ---- the encodings --------------------------------------------------------- */

static const char SAME[] = "same";
static const char EQUAL[] = {'s', 'a', 'm', 'e'}; /* at another address than SAME */
static const char AGAIN[] = "adapter/a/bsalt-1";  /* equal texts that are other objects */

#define KEY(kind, text, len, offset)                                                               \
    {                                                                                              \
        QUIRE_KEY_##kind, {text, len}, offset                                                      \
    }

static const char IMAGE[] = "image-a";

typedef struct tagged_keys {
    size_t count;
    quire_extra_key keys[8];
} tagged_keys;

static const tagged_keys KEYS[NUM_TAGGED] = {
    [LORA_AND_PATH] = {2, {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, "/a/b", 4, 0)}},
    [LORA_ALONE] = {1, {KEY(LORA_NAME, "adapter", 7, 0)}},
    [TAGGED_FEATURE] = {1, {KEY(MM_FEATURE, IMAGE, 7, -6)}},
    [TAGGED_SALT] = {1, {KEY(CACHE_SALT, "salt-1", 6, 0)}},
    [TAGGED_EMBEDS] = {1, {KEY(PROMPT_EMBEDS, "\1\2\3\4", 4, 0)}},
    [ALL_TAGGED] = {5,
                    {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, "/a/b", 4, 0),
                     KEY(MM_FEATURE, IMAGE, 7, 10), KEY(CACHE_SALT, "salt-1", 6, 0),
                     KEY(PROMPT_EMBEDS, "\1\2\3\4", 4, 0)}},
    [FIVE_TAGGED] = {6,
                     {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, "/a/b", 4, 0),
                      KEY(MM_FEATURE, IMAGE, 7, 0), KEY(MM_FEATURE, "image-b", 7, 70000),
                      KEY(CACHE_SALT, "salt-1", 6, 0), KEY(PROMPT_EMBEDS, "\1\2\3\4", 4, 0)}},
    [TWO_FEATURES] = {2, {KEY(MM_FEATURE, IMAGE, 7, 2), KEY(MM_FEATURE, "image-b", 7, 9)}},
    [SAME_FEATURE] = {2, {KEY(MM_FEATURE, IMAGE, 7, 2), KEY(MM_FEATURE, IMAGE, 7, 9)}},
    [PATH_IS_NAME] = {2, {KEY(LORA_NAME, SAME, 4, 0), KEY(LORA_PATH, SAME, 4, 0)}},
    [PATH_LIKE_NAME] = {2, {KEY(LORA_NAME, SAME, 4, 0), KEY(LORA_PATH, EQUAL, 4, 0)}},
    [FEATURE_IS_PATH] = {4,
                         {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, SAME, 4, 0),
                          KEY(MM_FEATURE, SAME, 4, 1), KEY(CACHE_SALT, EQUAL, 4, 0)}},
    [TAGS_TWICE] = {8,
                    {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, "/a/b", 4, 0),
                     KEY(CACHE_SALT, "salt-1", 6, 0), KEY(PROMPT_EMBEDS, "\1\2\3\4", 4, 0),
                     KEY(LORA_NAME, AGAIN, 7, 0), KEY(LORA_PATH, AGAIN + 7, 4, 0),
                     KEY(CACHE_SALT, AGAIN + 11, 6, 0), KEY(PROMPT_EMBEDS, "\1\2\3\4", 4, 0)}},
};

enum { MAX_TOKENS = 16384, MAX_KEYS = 304 };

static void pickle_tagged(qr_message *out, const qr_hash_input *input)
{
    uint32_t memo[MAX_KEYS];
    qr_pickle_encode_tagged(out, input, memo);
}

static qr_hash_input tagged_input(tagged_case which)
{
    qr_hash_input input = encoding_input(LORA); /* one token, 7 */
    input.keys = KEYS[which].keys;
    input.num_keys = KEYS[which].count;
    return input;
}

static void assert_cases(encoding_function *encode, const char *const *expected)
{
    for (int which = 0; which < NUM_TAGGED; which++) {
        qr_message message = encoding_encode(encode, tagged_input((tagged_case)which));
        assert_hex(message.bytes, message.len, expected[which]);
    }
}

static void pickles_are_pythons(void **state)
{
    (void)state;
    assert_cases(pickle_tagged, PICKLES);
}

static void cbor_is_pythons(void **state)
{
    (void)state;
    assert_cases(qr_cbor_encode_tagged, CBORS);
}

/* The first frame of a pickle ends at each byte of the keys. */
static void frame_ends_among_tagged_keys(void **state)
{
    (void)state;
    static int32_t tokens[MAX_TOKENS];
    static unsigned char digests[15 * 7][QR_SHA256_BYTES];
    quire_extra_key keys[6];
    memcpy(keys, KEYS[FIVE_TAGGED].keys, sizeof keys);
    keys[2].offset = -70000;
    keys[3].offset = 1;
    for (size_t i = 0; i < COUNT(digests); i++) {
        qr_hash_input input = tagged_input(FIVE_TAGGED);
        input.keys = keys;
        input.num_tokens = 13080 + i / 7;
        input.tokens = tokens;
        for (size_t k = 0; k < input.num_tokens; k++)
            tokens[k] = k < i % 7 ? 1 : 100000;
        qr_message message = encoding_encode(pickle_tagged, input);
        qr_sha256(message.bytes, message.len, digests[i]);
    }
    assert_hex(digests, sizeof digests,
               "sha256:7b0e45a662ae7a37edd5d62f01c0f10dc92bc9c5844235cb20e22b3263f04d52");
}

static void references_past_255_are_long(void **state)
{
    (void)state;
    static char texts[300][5];
    quire_extra_key keys[MAX_KEYS];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(texts[i], sizeof texts[i], "k%03u", i);
        keys[i] = (quire_extra_key)KEY(MM_FEATURE, texts[i], 4, 0);
    }
    keys[300] = (quire_extra_key)KEY(MM_FEATURE, texts[0], 4, 1);
    keys[301] = (quire_extra_key)KEY(MM_FEATURE, texts[299], 4, 2);
    keys[302] = (quire_extra_key)KEY(CACHE_SALT, texts[150], 4, 0);
    keys[303] = (quire_extra_key)KEY(CACHE_SALT, texts[1], 4, 0);
    qr_hash_input input = tagged_input(TWO_FEATURES);
    input.keys = keys;
    input.num_keys = MAX_KEYS;
    qr_message message = encoding_encode(pickle_tagged, input);
    assert_hex(message.bytes, message.len,
               "sha256:b2483e80fe1802d281308ca30782a0c4452196eb2d84a2485e7c2546572d6647");
}

/* ---- whole hashes ---------------------------------------------------------- */

enum { NUM_VLLM_ALGOS = QUIRE_HASH_XXHASH_CBOR + 1, NUM_ALGOS = QUIRE_HASH_QUIRE128 + 1 };

static const quire_bytes ABSENT = {NULL, 0};

static int throw_dice(void *user, void *out, size_t bytes)
{
    *(size_t *)user += bytes;
    memset(out, 0x3c, bytes);
    return 0;
}

static int fail_to_draw(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 0, bytes);
    return -1;
}

static quire_hasher *make(quire_hash_algo algo, quire_profile profile, size_t *num_drawn)
{
    quire_hasher *hasher = NULL;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = algo;
    config.profile = profile;
    config.hooks.user = num_drawn;
    config.hooks.random_bytes = throw_dice;
    *num_drawn = 0;
    assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_OK);
    return hasher;
}

/* NONE_HASH without a seed; then tokens 0 to 15 without keys and with three lists of keys. */
typedef struct vectors {
    size_t num_drawn;
    const char *none_hash;
    const char *hashes[4];
} vectors;

static const vectors VECTORS[NUM_VLLM_ALGOS] = {
    [QUIRE_HASH_SHA256] = {0,
                           "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
                           {"fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798",
                            "1514eeeca6235e7a62b9404349905a8567459fdcdc6f5d123efcf078b234acab",
                            "b74b8848c4b44dc0baf43d1135dd783777a8016db0e723a361860f8df659b6e4",
                            "a30c789ecab656258a6775e61eb1e907eb3eb4ab3206c1c222662d1b016f8b46"}},
    [QUIRE_HASH_SHA256_CBOR] =
        {0,
         "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
         {"dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749",
          "e86a5d50b422b1836ee3ceee58d2d5738e7d4e008ff884b76741ece712434b90",
          "37a188ca0f395fb17edb7613ec9f0f06e16dd32556cf8209ea1772c6a9134909",
          "23c345f650842cf7103f3ea857760fb81055dd17cb81c954a4424527b425c74c"}},
    [QUIRE_HASH_XXHASH] = {32,
                           "8a2b6eb4e20f7a576d2d32170c58c738",
                           {"5f409bc4e09e5306982fd8446571e70a", "03e4a418c579faf665514391623cb7ba",
                            "69c6f0f9ff4fc0ec65b8e48015d18e8a",
                            "0bc7c7665936f14bcb1065e168594158"}},
    [QUIRE_HASH_XXHASH_CBOR] = {32,
                                "cb2b87ac18d20f18d7a34b47b1406bc6",
                                {"05e7210c14995149dfc6c0bda72eb68f",
                                 "4adddce7cc63be10c9afb8699cdaafd3",
                                 "5567ee684261167e4b36e8042bd7706b",
                                 "a92f5b776f2afd5d96c24295d664a2a6"}},
};

static const tagged_keys VECTOR_KEYS[4] = {
    {0, {{0}}},
    {2, {KEY(LORA_NAME, "adapter", 7, 0), KEY(LORA_PATH, "/a/b", 4, 0)}},
    {1, {KEY(CACHE_SALT, "s1", 2, 0)}},
    {2, {KEY(MM_FEATURE, "img0", 4, 2), KEY(MM_FEATURE, "img1", 4, 9)}},
};

static void hashes_are_those_of_vllm(void **state)
{
    (void)state;
    quire_token tokens[16];
    for (int i = 0; i < 16; i++)
        tokens[i] = i;
    for (size_t algo = 0; algo < NUM_VLLM_ALGOS; algo++) {
        size_t num_drawn;
        quire_hasher *hasher = make((quire_hash_algo)algo, QUIRE_PROFILE_VLLM_0_32, &num_drawn);
        quire_hasher_info info = quire_hasher_get_info(hasher);
        assert_int_equal(num_drawn, VECTORS[algo].num_drawn);
        assert_hex(info.none_hash.data, info.none_hash.len, VECTORS[algo].none_hash);
        for (size_t i = 0; i < COUNT(VECTOR_KEYS); i++) {
            unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
            assert_int_equal(quire_hasher_hash_block(hasher, ABSENT, tokens, 16,
                                                     VECTOR_KEYS[i].keys, VECTOR_KEYS[i].count,
                                                     digest),
                             QUIRE_OK);
            assert_hex(digest, info.digest_bytes, VECTORS[algo].hashes[i]);
        }
        quire_hasher_destroy(hasher);
    }
}

/* Quire's own algorithms have no seed of vLLM's. */
static void own_algorithms_stay_random(void **state)
{
    (void)state;
    for (size_t algo = NUM_VLLM_ALGOS; algo < NUM_ALGOS; algo++) {
        size_t num_drawn;
        quire_hasher_destroy(make((quire_hash_algo)algo, QUIRE_PROFILE_VLLM_0_32, &num_drawn));
        assert_true(num_drawn >= 32);
    }
}

static void failing_random_bytes_are_said(void **state)
{
    (void)state;
    quire_hasher *hasher = NULL;
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = QUIRE_HASH_XXHASH;
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    config.hooks.random_bytes = fail_to_draw;
    assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_E_RANDOM);
    config.algo = QUIRE_HASH_SHA256; /* needs none */
    assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_OK);
    quire_hasher_destroy(hasher);
}

/* ---- paths ----------------------------------------------------------------- */

/* Two blocks of a request, each with its LoRA key. */
static void hash_request(quire_hasher *hasher, const char *path, unsigned char *digests)
{
    static const quire_token TOKENS[32] = {1, 2, 3};
    _Alignas(8) unsigned char room[1024];
    quire_chain *chain;
    size_t num_new;
    quire_extra_keys extra = QUIRE_EXTRA_KEYS_INIT;
    extra.lora_name = (quire_bytes){"adapter", 7};
    extra.lora_path = (quire_bytes){path, path == NULL ? 0 : strlen(path)};
    memset(digests, 0, 2 * (size_t)QUIRE_MAX_DIGEST_BYTES);
    assert_int_equal(quire_chain_init(hasher, room, sizeof room, &chain), QUIRE_OK);
    assert_int_equal(quire_chain_append(hasher, chain, TOKENS, 32, &extra, digests, 2, &num_new),
                     QUIRE_OK);
    assert_int_equal(num_new, 2);
}

static void path_is_hashed_in_0_32_alone(void **state)
{
    (void)state;
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
            size_t num_drawn;
            bool is_hashed = profile == QUIRE_PROFILE_VLLM_0_32;
            quire_hasher *hasher = make((quire_hash_algo)algo, (quire_profile)profile, &num_drawn);
            unsigned char none[2 * QUIRE_MAX_DIGEST_BYTES];
            unsigned char one[2 * QUIRE_MAX_DIGEST_BYTES];
            unsigned char other[2 * QUIRE_MAX_DIGEST_BYTES];
            hash_request(hasher, NULL, none);
            hash_request(hasher, "/a/b", one);
            hash_request(hasher, "/a/c", other);
            assert_int_equal(memcmp(none, one, sizeof none) != 0, is_hashed);
            assert_int_equal(memcmp(one, other, sizeof none) != 0, is_hashed);
            quire_hasher_destroy(hasher);
        }
    }
}

static void chain_and_block_hash_alike(void **state)
{
    (void)state;
    static const quire_token TOKENS[16] = {1, 2, 3};
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        size_t num_drawn;
        quire_hasher *hasher = make((quire_hash_algo)algo, QUIRE_PROFILE_VLLM_0_32, &num_drawn);
        unsigned char chained[2 * QUIRE_MAX_DIGEST_BYTES];
        unsigned char alone[QUIRE_MAX_DIGEST_BYTES];
        hash_request(hasher, "/a/b", chained);
        assert_int_equal(
            quire_hasher_hash_block(hasher, ABSENT, TOKENS, 16, KEYS[LORA_AND_PATH].keys, 2, alone),
            QUIRE_OK);
        assert_memory_equal(alone, chained, hasher->digest_bytes);
        quire_hasher_destroy(hasher);
    }
}

static void path_out_of_place_is_refused(void **state)
{
    (void)state;
    static const tagged_keys WRONG[] = {
        {1, {KEY(LORA_PATH, "/a/b", 4, 0)}},
        {2, {KEY(CACHE_SALT, "s", 1, 0), KEY(LORA_PATH, "/a/b", 4, 0)}},
        {3,
         {KEY(LORA_NAME, "a", 1, 0), KEY(LORA_PATH, "/a/b", 4, 0), KEY(LORA_PATH, "/a/b", 4, 0)}},
    };
    size_t num_drawn;
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
    quire_hasher *hasher = make(QUIRE_HASH_SHA256, QUIRE_PROFILE_VLLM_0_32, &num_drawn);
    for (size_t i = 0; i < COUNT(WRONG); i++)
        assert_int_equal(
            quire_hasher_hash_block(hasher, ABSENT, NULL, 0, WRONG[i].keys, WRONG[i].count, digest),
            QUIRE_E_ARGUMENT);
    quire_hasher_destroy(hasher);
    hasher = make(QUIRE_HASH_SHA256, QUIRE_PROFILE_VLLM_0_20, &num_drawn);
    assert_int_equal(
        quire_hasher_hash_block(hasher, ABSENT, NULL, 0, KEYS[LORA_AND_PATH].keys, 2, digest),
        QUIRE_E_ARGUMENT);
    quire_hasher_destroy(hasher);
}

/* Keys that need the most bytes: sanitizers see when the room that was planned is too small. */
static void largest_keys_fit(void **state)
{
    (void)state;
    enum { NUM_KEYS = 400 };
    static quire_extra_key keys[NUM_KEYS];
    static char texts[NUM_KEYS][130];
    for (size_t algo = 0; algo < NUM_ALGOS; algo++) {
        for (int kind = QUIRE_KEY_LORA_NAME; kind <= QUIRE_KEY_PROMPT_EMBEDS; kind++) {
            quire_hasher *hasher = NULL;
            quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
            config.algo = (quire_hash_algo)algo;
            config.profile = QUIRE_PROFILE_VLLM_0_32;
            config.block_size = 1;
            config.max_extra_bytes = NUM_KEYS * (24 + 130);
            for (size_t i = 0; i < NUM_KEYS; i++)
                keys[i] = (quire_extra_key){
                    (quire_extra_key_kind)kind, {texts[i], sizeof texts[i]}, INT64_MIN};
            unsigned char digest[QUIRE_MAX_DIGEST_BYTES];
            assert_int_equal(quire_hasher_create(&config, NULL, &hasher), QUIRE_OK);
            assert_int_equal(
                quire_hasher_hash_block(hasher, ABSENT, NULL, 0, keys, NUM_KEYS, digest), QUIRE_OK);
            quire_hasher_destroy(hasher);
        }
    }
}

/* ---- continuing a request -------------------------------------------------- */

/* Feature 0 reaches over all others. Bisection by ends looks at the middle first, finds feature 1
 * or 2 past, and never sees feature 0. */
static void bisection_misses_a_feature_around_others(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{{"a", 1}, 0, 100}, {{"b", 1}, 2, 3}, {{"c", 1}, 40, 30}};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = f, .num_mm_features = COUNT(f)};
    qr_extra_cursor cursor = qr_extra_begin_at(&extra, 16);
    assert_int_equal(cursor.feature, 2);
    cursor = qr_extra_begin_at(&extra, 4); /* b is not past */
    assert_int_equal(cursor.feature, 0);
    assert_int_equal(qr_extra_begin_at(&extra, 200).feature, 3);
    assert_int_equal(qr_extra_begin_at(NULL, 16).feature, 0);
    for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
        size_t num_drawn;
        quire_hasher *hasher = make(QUIRE_HASH_SHA256, (quire_profile)profile, &num_drawn);
        size_t first = qr_chain_begin_extra(hasher, &extra, 16).feature;
        assert_int_equal(first, profile == QUIRE_PROFILE_DEFAULT ? 0 : 2);
        assert_int_equal(qr_chain_begin_extra(hasher, &extra, 0).feature, 0);
        quire_hasher_destroy(hasher);
    }
}

/* Where features do not overlap, every feature of the block is found: MM_LAST_FEATURE is gone. */
static void bisection_finds_the_features_of_a_block(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{{"a", 1}, 1, 2},
                            {{"b", 1}, 5, 12}, /* to 17 */
                            {{"c", 1}, 17, 2},
                            {{"d", 1}, 30, 10},
                            {{"e", 1}, 48, 1}};
    static const size_t FIRST[] = {0, 1, 3, 4}; /* of the blocks of 16 tokens */
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = f, .num_mm_features = COUNT(f)};
    for (size_t block = 0; block < COUNT(FIRST); block++)
        assert_int_equal(qr_extra_begin_at(&extra, 16 * block).feature, FIRST[block]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pickles_are_pythons),
        cmocka_unit_test(cbor_is_pythons),
        cmocka_unit_test(frame_ends_among_tagged_keys),
        cmocka_unit_test(references_past_255_are_long),
        cmocka_unit_test(hashes_are_those_of_vllm),
        cmocka_unit_test(own_algorithms_stay_random),
        cmocka_unit_test(failing_random_bytes_are_said),
        cmocka_unit_test(path_is_hashed_in_0_32_alone),
        cmocka_unit_test(chain_and_block_hash_alike),
        cmocka_unit_test(path_out_of_place_is_refused),
        cmocka_unit_test(largest_keys_fit),
        cmocka_unit_test(bisection_misses_a_feature_around_others),
        cmocka_unit_test(bisection_finds_the_features_of_a_block),
    };
    return cmocka_run_group_tests_name("hash_tagged", tests, NULL, NULL);
}
