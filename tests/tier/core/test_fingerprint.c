/* tier/core/test_fingerprint.c - what names content: keys of block hashes, and the fingerprint,
 * which no
 * two different identities share (field by field, and pair by pair). */
#include "base/unit.h"
#include "tier/core/key.h"

#include <quire/tier.h>

static const char *hex_of(const unsigned char *bytes, size_t count, char *out)
{
    for (size_t i = 0; i < count; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return out;
}

/* ---- keys ------------------------------------------------------------------ */

static void keys_of_hashes(void **state)
{
    (void)state;
    unsigned char hash[100];
    quire_tier_key key;
    quire_tier_key other;
    char text[80];
    for (size_t i = 0; i < sizeof hash; i++)
        hash[i] = (unsigned char)(i + 1);
    for (size_t len = 0; len <= QUIRE_TIER_HASH_BYTES; len++) {
        memset(&key, 0xaa, sizeof key);
        quire_tier_key_of((quire_bytes){hash, len}, 3, 5, &key);
        assert_memory_equal(key.hash, hash, len);
        for (size_t i = len; i < QUIRE_TIER_HASH_BYTES; i++)
            assert_int_equal(key.hash[i], 0);
        assert_int_equal(key.group, 3);
        assert_int_equal(key.rank, 5);
    }
    quire_tier_key_of((quire_bytes){hash, 33}, 3, 5, &other);
    assert_memory_not_equal(other.hash, hash, QUIRE_TIER_HASH_BYTES);
    assert_false(qr_key_is_equal(&key, &other));
    quire_tier_key_of((quire_bytes){"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56},
                      0, 0, &key); /* FIPS 180's own example */
    assert_string_equal(hex_of(key.hash, 32, text),
                        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    quire_tier_key_of((quire_bytes){NULL, 40}, 1, 2, &key);
    assert_int_equal(key.group, 1);
    assert_int_equal(key.hash[0], 0);
    quire_tier_key_of((quire_bytes){hash, 8}, 1, 2, NULL);
}

static void group_and_rank_are_of_the_key(void **state)
{
    (void)state;
    quire_tier_key keys[3];
    quire_bytes hash = {"a block's hash", 14};
    quire_tier_key_of(hash, 0, 0, &keys[0]);
    quire_tier_key_of(hash, 1, 0, &keys[1]);
    quire_tier_key_of(hash, 0, 1, &keys[2]);
    for (size_t i = 0; i < COUNT(keys); i++)
        for (size_t j = 0; j < COUNT(keys); j++) {
            assert_int_equal(qr_key_is_equal(&keys[i], &keys[j]), i == j);
            assert_int_equal(qr_key_place(&keys[i], 7) == qr_key_place(&keys[j], 7), i == j);
            assert_int_not_equal(qr_key_place(&keys[i], 7), qr_key_place(&keys[j], 8));
        }
}

/* Neighbours, as they come: all bits of their places take part. */
static void places_are_spread(void **state)
{
    (void)state;
    enum { KEYS = 16384, BINS = 64 };
    uint32_t low[BINS] = {0};
    uint32_t high[BINS] = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        quire_tier_key key;
        quire_tier_key_of((quire_bytes){&i, sizeof i}, i % 3, i % 2, &key);
        uint64_t place = qr_key_place(&key, 12345);
        low[place % BINS]++;
        high[place >> 58]++;
    }
    for (uint32_t i = 0; i < BINS; i++) {
        assert_in_range(low[i], KEYS / BINS / 2, 2 * KEYS / BINS);
        assert_in_range(high[i], KEYS / BINS / 2, 2 * KEYS / BINS);
    }
}

/* ---- fingerprints ---------------------------------------------------------- */

typedef struct identity_field {
    size_t offset;
    size_t bytes; /* of a number; 0: a quire_bytes */
} identity_field;

#define TEXT(field)                                                                                \
    {                                                                                              \
        offsetof(quire_identity, field), 0                                                         \
    }
#define NUMBER(field)                                                                              \
    {                                                                                              \
        offsetof(quire_identity, field), sizeof((quire_identity *)NULL)->field                     \
    }

static const identity_field FIELDS[] = {
    TEXT(model),          TEXT(weights_digest), TEXT(tokenizer),      TEXT(kv_dtype),
    TEXT(kv_scales),      TEXT(layout),         TEXT(attention),      TEXT(lora),
    TEXT(hash_algorithm), TEXT(hash_seed),      TEXT(tenant),         NUMBER(num_layers),
    NUMBER(num_kv_heads), NUMBER(head_dim),     NUMBER(block_tokens), NUMBER(num_groups),
    NUMBER(tp_size),      NUMBER(pp_size),      NUMBER(dcp_size),     NUMBER(pcp_size),
    NUMBER(block_bytes)};

enum { NUM_VALUES = 4, MAX_PRINTS = 4096 };

/* The value-th of the different values that a field can have. 0: not set. */
static void set_field(quire_identity *identity, const identity_field *field, uint32_t value)
{
    static const quire_bytes TEXTS[NUM_VALUES] = {{NULL, 0}, {"", 0}, {"a", 1}, {"ab", 2}};
    unsigned char *at = (unsigned char *)identity + field->offset;
    uint64_t number = value == 3 ? UINT64_C(0x80000000) : value;
    if (field->bytes == 0)
        memcpy(at, &TEXTS[value], sizeof TEXTS[value]);
    else
        memcpy(at, &number, field->bytes);
}

static unsigned char prints[MAX_PRINTS][QUIRE_FINGERPRINT_BYTES];
static size_t num_prints;

static void add_print(const quire_identity *identity)
{
    unsigned char again[QUIRE_FINGERPRINT_BYTES];
    assert_true(num_prints < MAX_PRINTS);
    assert_int_equal(quire_fingerprint(identity, prints[num_prints]), QUIRE_OK);
    assert_int_equal(quire_fingerprint(identity, again), QUIRE_OK);
    assert_memory_equal(prints[num_prints], again, sizeof again);
    num_prints++;
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, QUIRE_FINGERPRINT_BYTES);
}

/* A new field must come into the list above: nothing of the struct is outside of it. */
static void all_fields_are_tested(void **state)
{
    (void)state;
    size_t bytes = sizeof(size_t);
    for (size_t i = 0; i < COUNT(FIELDS); i++)
        bytes += FIELDS[i].bytes == 0 ? sizeof(quire_bytes) : FIELDS[i].bytes;
    assert_in_range(sizeof(quire_identity), bytes, bytes + 7); /* and padding */
}

static void every_pair_of_fields_differs(void **state)
{
    (void)state;
    quire_identity none = QUIRE_IDENTITY_INIT;
    num_prints = 0;
    add_print(&none);
    for (size_t i = 0; i < COUNT(FIELDS); i++)
        for (uint32_t a = 1; a < NUM_VALUES; a++) {
            quire_identity one = QUIRE_IDENTITY_INIT;
            set_field(&one, &FIELDS[i], a);
            add_print(&one);
            for (size_t j = 0; j < i; j++)
                for (uint32_t b = 1; b < NUM_VALUES; b++) {
                    quire_identity two = one;
                    set_field(&two, &FIELDS[j], b);
                    add_print(&two);
                }
        }
    assert_int_equal(num_prints,
                     1 + 3 * COUNT(FIELDS) + 9 * COUNT(FIELDS) * (COUNT(FIELDS) - 1) / 2);
    qsort(prints, num_prints, sizeof prints[0], by_bytes);
    for (size_t i = 1; i < num_prints; i++)
        assert_memory_not_equal(prints[i - 1], prints[i], sizeof prints[0]);
}

/* What one field ends with, the next could begin with. */
static void borders_count(void **state)
{
    (void)state;
    quire_identity a = QUIRE_IDENTITY_INIT;
    quire_identity b = QUIRE_IDENTITY_INIT;
    unsigned char prints_of[2][QUIRE_FINGERPRINT_BYTES];
    a.model = (quire_bytes){"ab", 2};
    a.weights_digest = (quire_bytes){"c", 1};
    b.model = (quire_bytes){"a", 1};
    b.weights_digest = (quire_bytes){"bc", 2};
    assert_int_equal(quire_fingerprint(&a, prints_of[0]), QUIRE_OK);
    assert_int_equal(quire_fingerprint(&b, prints_of[1]), QUIRE_OK);
    assert_memory_not_equal(prints_of[0], prints_of[1], QUIRE_FINGERPRINT_BYTES);
}

/* Stored blocks are found by it after an update of the library: it never changes. The digests were
 * made by another program from the description in fingerprint.c. */
static void it_stays_as_it_is(void **state)
{
    (void)state;
    unsigned char print[QUIRE_FINGERPRINT_BYTES];
    char text[80];
    quire_identity identity = QUIRE_IDENTITY_INIT;
    assert_int_equal(quire_fingerprint(&identity, print), QUIRE_OK);
    assert_string_equal(hex_of(print, sizeof print, text),
                        "85510dcc3acb643fd9e1e1af7fbc5ceebac7cecc71f6580deac187ea20d10ae7");
    identity.model = (quire_bytes){"meta-llama/Llama-3.1-8B", 23};
    identity.kv_dtype = (quire_bytes){"bfloat16", 8};
    identity.tenant = (quire_bytes){"", 0};
    identity.num_layers = 32;
    identity.block_bytes = UINT64_C(1) << 33;
    assert_int_equal(quire_fingerprint(&identity, print), QUIRE_OK);
    assert_string_equal(hex_of(print, sizeof print, text),
                        "2bfe58aa583c19bd5eda11b57cf23a34b38f6f1dc84fde773a959d054360c1cf");
}

static void wrong_calls(void **state)
{
    (void)state;
    unsigned char print[QUIRE_FINGERPRINT_BYTES] = {1, 2, 3};
    quire_identity identity = QUIRE_IDENTITY_INIT;
    assert_int_equal(quire_fingerprint(NULL, print), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_fingerprint(&identity, NULL), QUIRE_E_ARGUMENT);
    identity.lora.len = 4; /* of nothing */
    assert_int_equal(quire_fingerprint(&identity, print), QUIRE_E_ARGUMENT);
    identity.lora.len = 0;
    identity.size = 3;
    assert_int_equal(quire_fingerprint(&identity, print), QUIRE_E_CONFIG);
    assert_int_equal(print[0] + print[1] + print[2], 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_hashes),
        cmocka_unit_test(group_and_rank_are_of_the_key),
        cmocka_unit_test(places_are_spread),
        cmocka_unit_test(all_fields_are_tested),
        cmocka_unit_test(every_pair_of_fields_differs),
        cmocka_unit_test(borders_count),
        cmocka_unit_test(it_stays_as_it_is),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
