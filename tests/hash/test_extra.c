/* hash/test_extra.c - which of a request's extra keys concern which block.
 *
 * A block's keys are written as one text and compared, with blocks of 16 tokens:
 *
 *      "L:adapter F:img@-6 S:salt E"      LoRA, feature at -6, salt, embeddings
 */
#include "hash/extra.h"

#include "hash/hex.h"

enum { BLOCK = 16, MAX_KEYS = 8, MAX_TEXT = 256 };

static quire_bytes text(const char *s)
{
    return (quire_bytes){s, strlen(s)};
}

static void describe_key(const quire_extra_key *key, char *out, size_t room)
{
    int len = (int)key->value.len;
    const char *value = key->value.data;
    if (key->kind == QUIRE_KEY_LORA_NAME)
        snprintf(out, room, "L:%.*s ", len, value);
    else if (key->kind == QUIRE_KEY_MM_FEATURE)
        snprintf(out, room, "F:%.*s@%lld ", len, value, (long long)key->offset);
    else if (key->kind == QUIRE_KEY_CACHE_SALT)
        snprintf(out, room, "S:%.*s ", len, value);
    else
        snprintf(out, room, "E ");
}

static void assert_block(qr_extra_cursor *cursor, uint64_t block, const char *wanted)
{
    quire_extra_key keys[MAX_KEYS];
    size_t n = 99;
    char got[MAX_TEXT] = "";
    assert_true(qr_extra_of_block(cursor, block * BLOCK, (block + 1) * BLOCK, keys, MAX_KEYS, &n));
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(got);
        describe_key(&keys[i], got + used, sizeof got - used);
    }
    if (got[0] != '\0')
        got[strlen(got) - 1] = '\0';
    assert_string_equal(got, wanted);
}

/* Blocks 0, 1, 2, ... of one call; wanted ends with NULL. */
static void assert_blocks(const quire_extra_keys *extra, const char *const *wanted)
{
    qr_extra_cursor cursor = qr_extra_begin(extra, false);
    for (uint64_t block = 0; wanted[block] != NULL; block++)
        assert_block(&cursor, block, wanted[block]);
}

static void no_extra_no_keys(void **state)
{
    (void)state;
    quire_extra_keys nothing = {.size = sizeof(quire_extra_keys), .num_mm_features = 0};
    assert_blocks(NULL, (const char *[]){"", "", NULL});
    assert_blocks(&nothing, (const char *[]){"", "", NULL});
}

static void lora_is_in_every_block(void **state)
{
    (void)state;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys), .lora_name = text("a")};
    assert_blocks(&extra, (const char *[]){"L:a", "L:a", "L:a", NULL});
}

static void lora_may_be_present_and_empty(void **state)
{
    (void)state;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys), .lora_name = text("")};
    assert_blocks(&extra, (const char *[]){"L:", "L:", NULL});
}

static void salt_is_in_the_first_block_only(void **state)
{
    (void)state;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys), .cache_salt = text("s")};
    assert_blocks(&extra, (const char *[]){"S:s", "", "", NULL});
}

static void empty_salt_is_none(void **state)
{
    (void)state;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys), .cache_salt = text("")};
    assert_blocks(&extra, (const char *[]){"", "", NULL});
}

static void feature_is_in_the_blocks_it_overlaps(void **state)
{
    (void)state;
    quire_mm_feature f = {text("i"), 20, 30}; /* 20 .. 49 */
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = &f, .num_mm_features = 1};
    assert_blocks(&extra, (const char *[]){"", "F:i@4", "F:i@-12", "F:i@-28", "", NULL});
}

static void feature_ends_where_its_block_ends(void **state)
{
    (void)state;
    quire_mm_feature f = {text("i"), 0, 16};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = &f, .num_mm_features = 1};
    assert_blocks(&extra, (const char *[]){"F:i@0", "", NULL});
    f.length = 17;
    assert_blocks(&extra, (const char *[]){"F:i@0", "F:i@-16", "", NULL});
    f = (quire_mm_feature){text("i"), 15, 1};
    assert_blocks(&extra, (const char *[]){"F:i@15", "", NULL});
    f = (quire_mm_feature){text("i"), 16, 1};
    assert_blocks(&extra, (const char *[]){"", "F:i@0", "", NULL});
}

static void several_features_in_a_block(void **state)
{
    (void)state;
    quire_mm_feature f[] = {
        {text("a"), 1, 2}, {text("b"), 3, 2}, {text("c"), 10, 10}, {text("d"), 25, 7}};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = f, .num_mm_features = COUNT(f)};
    assert_blocks(&extra, (const char *[]){"F:a@1 F:b@3 F:c@10", "F:c@-6 F:d@9", "", NULL});
}

static void gap_between_features(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{text("a"), 2, 3}, {text("b"), 70, 2}};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = f, .num_mm_features = COUNT(f)};
    assert_blocks(&extra, (const char *[]){"F:a@2", "", "", "", "F:b@6", "", NULL});
}

static void feature_to_the_end_of_all_numbers(void **state)
{
    (void)state;
    quire_mm_feature f = {text("i"), 5, UINT64_MAX};
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .mm_features = &f, .num_mm_features = 1};
    qr_extra_cursor cursor = qr_extra_begin(&extra, false);
    assert_block(&cursor, 0, "F:i@5");
    assert_block(&cursor, UINT64_C(1) << 40, "F:i@-17592186044411");
}

static void keys_come_in_vllms_order(void **state)
{
    (void)state;
    quire_mm_feature f = {text("i"), 3, 30};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = text("l"),
                              .cache_salt = text("s"),
                              .mm_features = &f,
                              .num_mm_features = 1,
                              .prompt_embeds = "0123456789",
                              .prompt_embed_bytes = 1,
                              .num_prompt_embeds = 10};
    assert_blocks(&extra, (const char *[]){"L:l F:i@3 S:s E", "L:l F:i@-13 E", NULL});
}

static void walk_may_start_in_the_middle(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{text("a"), 1, 2}, {text("b"), 30, 10}};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .cache_salt = text("s"),
                              .mm_features = f,
                              .num_mm_features = COUNT(f)};
    qr_extra_cursor cursor = qr_extra_begin(&extra, false);
    assert_block(&cursor, 2, "F:b@-2");
    assert_block(&cursor, 3, "");
    f[0] = (quire_mm_feature){text("a"), 0, 16}; /* ends where the walk starts */
    cursor = qr_extra_begin(&extra, false);
    assert_block(&cursor, 1, "F:b@14");
}

static void only_last_forgets_the_earlier_features(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{text("a"), 17, 2}, {text("b"), 25, 10}};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = text("l"),
                              .mm_features = f,
                              .num_mm_features = COUNT(f)};
    qr_extra_cursor all = qr_extra_begin(&extra, false);
    assert_block(&all, 1, "L:l F:a@1 F:b@9");
    qr_extra_cursor last = qr_extra_begin(&extra, true);
    assert_block(&last, 1, "L:l F:b@9");
    assert_block(&last, 2, "L:l F:b@-7");
}

static void only_last_without_features(void **state)
{
    (void)state;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys), .lora_name = text("l")};
    qr_extra_cursor cursor = qr_extra_begin(&extra, true);
    assert_block(&cursor, 1, "L:l");
    cursor = qr_extra_begin(NULL, true);
    assert_block(&cursor, 1, "");
}

/* ---- embeddings ------------------------------------------------------------ */

static void assert_embeds(qr_extra_cursor *cursor, uint64_t block, const void *bytes, size_t len)
{
    quire_extra_key key;
    size_t n;
    unsigned char digest[QR_SHA256_BYTES];
    assert_true(qr_extra_of_block(cursor, block * BLOCK, (block + 1) * BLOCK, &key, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(key.kind, QUIRE_KEY_PROMPT_EMBEDS);
    assert_int_equal(key.value.len, sizeof digest);
    qr_sha256(bytes, len, digest);
    assert_memory_equal(key.value.data, digest, sizeof digest);
}

static void embeds_are_hashed_by_rows(void **state)
{
    (void)state;
    unsigned char rows[40 * 3];
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (unsigned char)i;
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .prompt_embeds = rows,
                              .prompt_embed_bytes = 3,
                              .num_prompt_embeds = 40};
    qr_extra_cursor cursor = qr_extra_begin(&extra, false);
    assert_embeds(&cursor, 0, rows, 48);
    assert_embeds(&cursor, 1, rows + 48, 48);
    assert_embeds(&cursor, 2, rows + 96, 24); /* what is left */
    assert_embeds(&cursor, 3, rows, 0);       /* nothing */
    assert_embeds(&cursor, 1000, rows, 0);
}

static void digest_of_nothing_is_a_key_too(void **state)
{
    (void)state;
    quire_extra_keys extra = {
        .size = sizeof(quire_extra_keys), .prompt_embeds = "", .prompt_embed_bytes = 8};
    qr_extra_cursor cursor = qr_extra_begin(&extra, false);
    quire_extra_key key;
    size_t n;
    assert_true(qr_extra_of_block(&cursor, 0, BLOCK, &key, 1, &n));
    assert_int_equal(n, 1);
    assert_hex(key.value.data, key.value.len,
               "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void more_keys_than_fit_are_refused(void **state)
{
    (void)state;
    quire_mm_feature f[] = {{text("a"), 1, 1}, {text("b"), 2, 1}};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = text("l"),
                              .cache_salt = text("s"),
                              .mm_features = f,
                              .num_mm_features = COUNT(f),
                              .prompt_embeds = "x",
                              .prompt_embed_bytes = 1,
                              .num_prompt_embeds = 1};
    for (size_t max = 0; max <= 5; max++) {
        quire_extra_key keys[6];
        memset(keys, 0x77, sizeof keys);
        qr_extra_cursor cursor = qr_extra_begin(&extra, false);
        size_t n;
        assert_int_equal(qr_extra_of_block(&cursor, 0, BLOCK, keys, max, &n), max == 5);
        const unsigned char *behind = (const unsigned char *)&keys[max];
        for (size_t i = 0; i < sizeof keys[0]; i++)
            assert_int_equal(behind[i], 0x77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_extra_no_keys),
        cmocka_unit_test(lora_is_in_every_block),
        cmocka_unit_test(lora_may_be_present_and_empty),
        cmocka_unit_test(salt_is_in_the_first_block_only),
        cmocka_unit_test(empty_salt_is_none),
        cmocka_unit_test(feature_is_in_the_blocks_it_overlaps),
        cmocka_unit_test(feature_ends_where_its_block_ends),
        cmocka_unit_test(several_features_in_a_block),
        cmocka_unit_test(gap_between_features),
        cmocka_unit_test(feature_to_the_end_of_all_numbers),
        cmocka_unit_test(keys_come_in_vllms_order),
        cmocka_unit_test(walk_may_start_in_the_middle),
        cmocka_unit_test(only_last_forgets_the_earlier_features),
        cmocka_unit_test(only_last_without_features),
        cmocka_unit_test(embeds_are_hashed_by_rows),
        cmocka_unit_test(digest_of_nothing_is_a_key_too),
        cmocka_unit_test(more_keys_than_fit_are_refused),
    };
    return cmocka_run_group_tests_name("hash_extra", tests, NULL, NULL);
}
