#include "hash/encoding.h"

#include "hash/hex.h"

static const char PARENT[] = "parent";

const int64_t ENCODING_INTS[NUM_ENCODING_INTS] = {0,
                                                  1,
                                                  23,
                                                  24,
                                                  255,
                                                  256,
                                                  65535,
                                                  65536,
                                                  INT32_MAX,
                                                  INT64_C(1) << 31,
                                                  UINT32_MAX,
                                                  INT64_C(1) << 32,
                                                  (INT64_C(1) << 39) - 1,
                                                  INT64_C(1) << 39,
                                                  INT64_C(1) << 40,
                                                  INT64_C(1) << 47,
                                                  INT64_C(1) << 62,
                                                  INT64_MAX,
                                                  -1,
                                                  -24,
                                                  -25,
                                                  -256,
                                                  -257,
                                                  -65536,
                                                  -65537,
                                                  INT32_MIN,
                                                  -(INT64_C(1) << 31) - 1,
                                                  -(INT64_C(1) << 32),
                                                  -(INT64_C(1) << 32) - 1,
                                                  -(INT64_C(1) << 39),
                                                  -(INT64_C(1) << 39) - 1,
                                                  -(INT64_C(1) << 40),
                                                  -(INT64_C(1) << 62),
                                                  INT64_MIN};

static const int32_t COUNTING[] = {1, 2, 3, 4};
static const int32_t SEVEN[] = {7};
static const char SAME[] = "same";
static const char EQUAL[] = {'s', 'a', 'm', 'e'}; /* at another address than SAME */
static char long_text[256];

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }
#define K_LORA                                                                                     \
    {                                                                                              \
        QUIRE_KEY_LORA_NAME, TEXT("adapter"), 0                                                    \
    }
#define K_SALT                                                                                     \
    {                                                                                              \
        QUIRE_KEY_CACHE_SALT, TEXT("salt-1"), 0                                                    \
    }
#define K_IMAGE(x, offset)                                                                         \
    {                                                                                              \
        QUIRE_KEY_MM_FEATURE, TEXT("image-" x), offset                                             \
    }
#define K_EMBEDS                                                                                   \
    {                                                                                              \
        QUIRE_KEY_PROMPT_EMBEDS, TEXT("\1\2\3\4"), 0                                               \
    }

typedef struct key_list {
    size_t count;
    quire_extra_key keys[5];
} key_list;

static const key_list KEYS[NUM_ENCODING_CASES] = {
    [LORA] = {1, {K_LORA}},
    [SALT] = {1, {K_SALT}},
    [FEATURE] = {1, {K_IMAGE("a", 10)}},
    [FEATURE_BEFORE] = {1, {K_IMAGE("a", -6)}},
    [EMBEDS] = {1, {K_EMBEDS}},
    [TWO_KEYS] = {2, {K_LORA, K_SALT}},
    [THREE_KEYS] = {3, {K_LORA, K_IMAGE("a", 10), K_SALT}},
    [FOUR_KEYS] = {4, {K_LORA, K_IMAGE("a", 10), K_SALT, K_EMBEDS}},
    [FIVE_KEYS] = {5, {K_LORA, K_IMAGE("a", 0), K_IMAGE("b", 70000), K_SALT, K_EMBEDS}},
    [SAME_TEXT] = {2, {{QUIRE_KEY_LORA_NAME, {SAME, 4}, 0}, {QUIRE_KEY_MM_FEATURE, {SAME, 4}, 10}}},
    [EQUAL_TEXT] = {2,
                    {{QUIRE_KEY_LORA_NAME, {SAME, 4}, 0}, {QUIRE_KEY_MM_FEATURE, {EQUAL, 4}, 10}}},
    [EMPTY_TEXT] = {1, {{QUIRE_KEY_LORA_NAME, {"", 0}, 0}}},
    [UTF8_TEXT] = {1, {{QUIRE_KEY_LORA_NAME, TEXT("h\xc3\xa9\xe2\x82\xac"), 0}}},
    [TEXT_255] = {1, {{QUIRE_KEY_LORA_NAME, {long_text, 255}, 0}}},
    [TEXT_256] = {1, {{QUIRE_KEY_LORA_NAME, {long_text, 256}, 0}}},
    [BYTES_255] = {1, {{QUIRE_KEY_PROMPT_EMBEDS, {long_text, 255}, 0}}},
    [BYTES_256] = {1, {{QUIRE_KEY_PROMPT_EMBEDS, {long_text, 256}, 0}}},
};

qr_hash_input encoding_input(encoding_case which)
{
    memset(long_text, 'a', sizeof long_text);
    bool counts = which <= FOUR_TOKENS;
    return (qr_hash_input){.parent_len = sizeof PARENT - 1,
                           .tokens = counts ? COUNTING : SEVEN,
                           .num_tokens = counts ? (size_t)which : 1,
                           .keys = KEYS[which].keys,
                           .num_keys = KEYS[which].count};
}

qr_message encoding_encode(encoding_function *encode, qr_hash_input input)
{
    static unsigned char room[ENCODING_ROOM];
    memset(room, 0xdd, 4096); /* what an encoder forgets to write shows */
    qr_message message = {.bytes = room};
    encode(&message, &input);
    memcpy(message.bytes + message.parent_at, PARENT, sizeof PARENT - 1);
    return message;
}

void encoding_assert_cases(encoding_function *encode, const char *const *expected)
{
    for (int which = 0; which < NUM_ENCODING_CASES; which++) {
        qr_message message = encoding_encode(encode, encoding_input((encoding_case)which));
        assert_hex(message.bytes, message.len, expected[which]);
    }
}

void encoding_assert_ints(encoding_function *encode, const char *const *expected)
{
    for (size_t i = 0; i < NUM_ENCODING_INTS; i++) {
        int64_t wide = ENCODING_INTS[i];
        int32_t narrow = (int32_t)wide;
        qr_hash_input input = {.parent_len = sizeof PARENT - 1, .tokens64 = &wide, .num_tokens = 1};
        qr_message message = encoding_encode(encode, input);
        assert_hex(message.bytes, message.len, expected[i]);
        if (narrow != wide)
            continue;
        input.tokens64 = NULL;
        input.tokens = &narrow;
        message = encoding_encode(encode, input);
        assert_hex(message.bytes, message.len, expected[i]);
    }
}
