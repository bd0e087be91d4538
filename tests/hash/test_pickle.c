/* hash/test_pickle.c - byte for byte what CPython 3.11 writes:
 *
 *      pickle.dumps((b"parent", tokens, extra_keys), protocol=5).hex()
 *
 * Long messages are compared by their SHA-256; many of them at once by the SHA-256 of all their
 * SHA-256s, one after the other. */
#include "hash/pickle.h"

#include "hash/digest.h"
#include "hash/encoding.h"
#include "hash/hex.h"

static const char *const EXPECTED[NUM_ENCODING_CASES] = {
    [NO_TOKENS] = "8005950e000000000000004306706172656e7494294e87942e",
    [ONE_TOKEN] = "80059511000000000000004306706172656e74944b0185944e87942e",
    [TWO_TOKENS] = "80059513000000000000004306706172656e74944b014b0286944e87942e",
    [THREE_TOKENS] = "80059515000000000000004306706172656e74944b014b024b0387944e87942e",
    [FOUR_TOKENS] = "80059518000000000000004306706172656e7494284b014b024b034b0474944e87942e",
    [LORA] = "8005951c000000000000004306706172656e74944b0785948c076164617074657294859487942e",
    [SALT] = "8005951b000000000000004306706172656e74944b0785948c0673616c742d3194859487942e",
    [FEATURE] =
        "80059520000000000000004306706172656e74944b0785948c07696d6167652d61944b0a8694859487942e",
    [FEATURE_BEFORE] =
        ("80059523000000000000004306706172656e74944b0785948c07696d6167652d61944afafff"
         "fff8694859487942e"),
    [EMBEDS] = "80059519000000000000004306706172656e74944b07859443040102030494859487942e",
    [TWO_KEYS] =
        ("80059525000000000000004306706172656e74944b0785948c0761646170746572948c0673616c742"
         "d3194869487942e"),
    [THREE_KEYS] =
        ("80059533000000000000004306706172656e74944b0785948c0761646170746572948c07696d616"
         "7652d61944b0a86948c0673616c742d3194879487942e"),
    [FOUR_KEYS] =
        ("8005953b000000000000004306706172656e74944b078594288c0761646170746572948c07696d61"
         "67652d61944b0a86948c0673616c742d319443040102030494749487942e"),
    [FIVE_KEYS] =
        ("8005954c000000000000004306706172656e74944b078594288c0761646170746572948c07696d6167652d619"
         "4"
         "4b0086948c07696d6167652d62944a7011010086948c0673616c742d319443040102030494749487942e"),
    [SAME_TEXT] =
        "8005951f000000000000004306706172656e74944b0785948c0473616d659468024b0a8694869487942e",
    [EQUAL_TEXT] =
        ("80059524000000000000004306706172656e74944b0785948c0473616d65948c0473616d65944b0"
         "a8694869487942e"),
    [EMPTY_TEXT] = "80059515000000000000004306706172656e74944b0785948c0094859487942e",
    [UTF8_TEXT] = "8005951b000000000000004306706172656e74944b0785948c0668c3a9e282ac94859487942e",
    [TEXT_255] = "sha256:bbb1635f4d09ba8a345cb305dcfa7e8648bf20ba306b5341152211291091e735",
    [TEXT_256] = "sha256:5f80a0240f24dd4d8a86c4b2a1739118e47948bb9849b3d0b4840bf4c664bfe6",
    [BYTES_255] = "sha256:2f1b80d8e43551c94ab1f57f35ca12c174cd74dd3ad90ac18241a441dfdbe220",
    [BYTES_256] = "sha256:fd9f3a691f9c9a52efab3349ed777d7f0690f04ee1bb619aa7d8c7427eebdda3",
};

static const char *const EXPECTED_INTS[NUM_ENCODING_INTS] = {
    "80059511000000000000004306706172656e74944b0085944e87942e",
    "80059511000000000000004306706172656e74944b0185944e87942e",
    "80059511000000000000004306706172656e74944b1785944e87942e",
    "80059511000000000000004306706172656e74944b1885944e87942e",
    "80059511000000000000004306706172656e74944bff85944e87942e",
    "80059512000000000000004306706172656e74944d000185944e87942e",
    "80059512000000000000004306706172656e74944dffff85944e87942e",
    "80059514000000000000004306706172656e74944a0000010085944e87942e",
    "80059514000000000000004306706172656e74944affffff7f85944e87942e",
    "80059516000000000000004306706172656e74948a05000000800085944e87942e",
    "80059516000000000000004306706172656e74948a05ffffffff0085944e87942e",
    "80059516000000000000004306706172656e74948a05000000000185944e87942e",
    "80059516000000000000004306706172656e74948a05ffffffff7f85944e87942e",
    "80059517000000000000004306706172656e74948a0600000000800085944e87942e",
    "80059517000000000000004306706172656e74948a0600000000000185944e87942e",
    "80059518000000000000004306706172656e74948a070000000000800085944e87942e",
    "80059519000000000000004306706172656e74948a08000000000000004085944e87942e",
    "80059519000000000000004306706172656e74948a08ffffffffffffff7f85944e87942e",
    "80059514000000000000004306706172656e74944affffffff85944e87942e",
    "80059514000000000000004306706172656e74944ae8ffffff85944e87942e",
    "80059514000000000000004306706172656e74944ae7ffffff85944e87942e",
    "80059514000000000000004306706172656e74944a00ffffff85944e87942e",
    "80059514000000000000004306706172656e74944afffeffff85944e87942e",
    "80059514000000000000004306706172656e74944a0000ffff85944e87942e",
    "80059514000000000000004306706172656e74944afffffeff85944e87942e",
    "80059514000000000000004306706172656e74944a0000008085944e87942e",
    "80059516000000000000004306706172656e74948a05ffffff7fff85944e87942e",
    "80059516000000000000004306706172656e74948a0500000000ff85944e87942e",
    "80059516000000000000004306706172656e74948a05fffffffffe85944e87942e",
    "80059516000000000000004306706172656e74948a05000000008085944e87942e",
    "80059517000000000000004306706172656e74948a06ffffffff7fff85944e87942e",
    "80059517000000000000004306706172656e74948a060000000000ff85944e87942e",
    "80059519000000000000004306706172656e74948a0800000000000000c085944e87942e",
    "80059519000000000000004306706172656e74948a08000000000000008085944e87942e",
};

enum { MAX_TOKENS = 65536, MAX_KEYS = 306 };

static int32_t tokens[MAX_TOKENS];
static int64_t tokens64[MAX_TOKENS];

static void encode(qr_message *out, const qr_hash_input *input)
{
    uint32_t memo[MAX_KEYS];
    qr_pickle_encode(out, input, memo);
}

static void small_keys(void **state)
{
    (void)state;
    encoding_assert_cases(encode, EXPECTED);
}

static void integers_at_every_edge(void **state)
{
    (void)state;
    encoding_assert_ints(encode, EXPECTED_INTS);
}

static void texts_alone(void **state)
{
    (void)state;
    unsigned char room[512];
    char long_text[300];
    memset(long_text, 'a', sizeof long_text);
    qr_message out = {.bytes = room};
    qr_pickle_encode_text(&out, (quire_bytes){"0", 1});
    assert_hex(out.bytes, out.len, "80059505000000000000008c0130942e");
    qr_pickle_encode_text(&out, (quire_bytes){"", 0});
    assert_hex(out.bytes, out.len, "80059504000000000000008c00942e");
    qr_pickle_encode_text(&out, (quire_bytes){long_text, sizeof long_text});
    assert_hex(out.bytes, out.len,
               "sha256:53d81d0830f3f6a6377fc0aa8452950c574e7b94491bc97f5332f9068fcb2869");
}

/* ---- frames ---------------------------------------------------------------- */

/* `small` tokens of 2 bytes, the rest of 5: with a few of the former every length is reached. */
static void fill_tokens(size_t n, size_t small)
{
    for (size_t i = 0; i < n; i++)
        tokens64[i] = tokens[i] = i < small ? 1 : 100000;
}

/* Messages whose first frame ends within some tokens of its 64 KiB, at each byte around it. */
static void assert_sweep(size_t first_n, encoding_case keys, bool wide, const char *expected)
{
    static unsigned char digests[15 * 6][QR_SHA256_BYTES];
    for (size_t i = 0; i < 15 * 6; i++) {
        qr_hash_input input = encoding_input(keys);
        input.num_tokens = first_n + i / 6;
        fill_tokens(input.num_tokens, i % 6);
        input.tokens = wide ? NULL : tokens;
        input.tokens64 = wide ? tokens64 : NULL;
        qr_message message = encoding_encode(encode, input);
        qr_sha256(message.bytes, message.len, digests[i]);
    }
    assert_hex(digests, sizeof digests, expected);
}

static void frame_ends_around_the_tokens(void **state)
{
    (void)state;
    static const char EXPECTED_SWEEP[] =
        "sha256:6344ee13b399d2d0062cf35df639f9bea89b1c1d53b29a771bedfd20fd3837fc";
    assert_sweep(13100, ONE_TOKEN, false, EXPECTED_SWEEP);
    assert_sweep(13100, ONE_TOKEN, true, EXPECTED_SWEEP);
}

static void frame_ends_among_the_keys(void **state)
{
    (void)state;
    static const quire_extra_key KEYS[] = {
        {QUIRE_KEY_LORA_NAME, {"adapter", 7}, 0},
        {QUIRE_KEY_MM_FEATURE, {"image-a", 7}, -70000},
        {QUIRE_KEY_CACHE_SALT, {"salt-1", 6}, 0},
        {QUIRE_KEY_PROMPT_EMBEDS, {"\1\2\3\4", 4}, 0},
    };
    static unsigned char digests[15 * 6][QR_SHA256_BYTES];
    for (size_t i = 0; i < 15 * 6; i++) {
        qr_hash_input input = encoding_input(FOUR_KEYS);
        input.keys = KEYS;
        input.num_tokens = 13095 + i / 6;
        fill_tokens(input.num_tokens, i % 6);
        input.tokens = tokens;
        qr_message message = encoding_encode(encode, input);
        qr_sha256(message.bytes, message.len, digests[i]);
    }
    assert_hex(digests, sizeof digests,
               "sha256:202718437eb527b71191fca5402b1e411d9e50bbfeb489329e08165544ada6ac");
}

static void largest_block_has_five_frames(void **state)
{
    (void)state;
    for (size_t i = 0; i < MAX_TOKENS; i++)
        tokens[i] = (int32_t)((i * UINT64_C(2654435761)) & INT32_MAX);
    qr_hash_input input = {.parent_len = 6, .tokens = tokens, .num_tokens = MAX_TOKENS};
    qr_message message = encoding_encode(encode, input);
    assert_int_equal(message.len, 327736);
    assert_hex(message.bytes, message.len,
               "sha256:f12e35c8d16a67a0a16fb9a065d6b8f2609bd471ddf285583976b7f6ab457609");
}

static void largest_block_of_wide_ids(void **state)
{
    (void)state;
    for (size_t i = 0; i < MAX_TOKENS; i++)
        tokens64[i] = (int64_t)((i * UINT64_C(2654435761) & UINT32_MAX) << 9);
    qr_hash_input input = {.parent_len = 6, .tokens64 = tokens64, .num_tokens = MAX_TOKENS};
    qr_message message = encoding_encode(encode, input);
    assert_hex(message.bytes, message.len,
               "sha256:f9be909ece49cfd97b294bc3317d685b56c0eb22e527725166b1159bb4d03034");
}

static void long_texts_end_a_frame(void **state)
{
    (void)state;
    static char a[30000];
    static char b[30000];
    static char c[5000];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    memset(c, 'c', sizeof c);
    quire_extra_key keys[] = {{QUIRE_KEY_LORA_NAME, {a, sizeof a}, 0},
                              {QUIRE_KEY_MM_FEATURE, {b, sizeof b}, 3},
                              {QUIRE_KEY_CACHE_SALT, {c, sizeof c}, 0}};
    qr_hash_input input = encoding_input(THREE_KEYS);
    input.keys = keys;
    qr_message message = encoding_encode(encode, input);
    assert_hex(message.bytes, message.len,
               "sha256:c97f817985eddf035e9a6d3604ccc8657e9ff56d2dd6344e7a0346596ab37169");
}

/* ---- memo ------------------------------------------------------------------ */

static void references_past_255_are_long(void **state)
{
    (void)state;
    static char texts[300][5];
    quire_extra_key keys[MAX_KEYS];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(texts[i], sizeof texts[i], "k%03u", i);
        keys[i] = (quire_extra_key){QUIRE_KEY_LORA_NAME, {texts[i], 4}, 0};
    }
    static const unsigned AGAIN[] = {3, 253, 254, 299, 10, 290}; /* 253 is number 255 */
    for (unsigned i = 0; i < COUNT(AGAIN); i++)
        keys[300 + i] = keys[AGAIN[i]];
    keys[304] = (quire_extra_key){QUIRE_KEY_MM_FEATURE, keys[10].value, 5};
    keys[305] = (quire_extra_key){QUIRE_KEY_MM_FEATURE, keys[290].value, 6};
    qr_hash_input input = encoding_input(LORA);
    input.keys = keys;
    input.num_keys = MAX_KEYS;
    qr_message message = encoding_encode(encode, input);
    assert_hex(message.bytes, message.len,
               "sha256:ae29d531a0cafc1ebe52434dedab8adf2bba14742fa2fc0c202c46e1843c2ade");
}

static void beginning_of_a_text_is_another_object(void **state)
{
    (void)state;
    static const char TEXT[] = "same-and-more";
    quire_extra_key one[] = {{QUIRE_KEY_LORA_NAME, {TEXT, 13}, 0},
                             {QUIRE_KEY_CACHE_SALT, {TEXT, 4}, 0}};
    quire_extra_key two[] = {{QUIRE_KEY_LORA_NAME, {TEXT, 13}, 0},
                             {QUIRE_KEY_CACHE_SALT, {"same", 4}, 0}};
    qr_hash_input input = encoding_input(TWO_KEYS);
    input.keys = one;
    qr_message message = encoding_encode(encode, input);
    unsigned char digest[QR_SHA256_BYTES];
    qr_sha256(message.bytes, message.len, digest);
    input.keys = two;
    message = encoding_encode(encode, input);
    unsigned char other[QR_SHA256_BYTES];
    qr_sha256(message.bytes, message.len, other);
    assert_memory_equal(digest, other, sizeof digest);
}

static void parent_hole_is_where_it_says(void **state)
{
    (void)state;
    qr_message message = encoding_encode(encode, encoding_input(ONE_TOKEN));
    assert_int_equal(message.parent_at, 13);
    assert_memory_equal(message.bytes + 13, "parent", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_keys),
        cmocka_unit_test(integers_at_every_edge),
        cmocka_unit_test(texts_alone),
        cmocka_unit_test(frame_ends_around_the_tokens),
        cmocka_unit_test(frame_ends_among_the_keys),
        cmocka_unit_test(largest_block_has_five_frames),
        cmocka_unit_test(largest_block_of_wide_ids),
        cmocka_unit_test(long_texts_end_a_frame),
        cmocka_unit_test(references_past_255_are_long),
        cmocka_unit_test(beginning_of_a_text_is_another_object),
        cmocka_unit_test(parent_hole_is_where_it_says),
    };
    return cmocka_run_group_tests_name("hash_pickle", tests, NULL, NULL);
}
