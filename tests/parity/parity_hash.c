/* parity/parity_hash.c - Quire's block hashes against vLLM's.
 *
 *      h sha256 16 3432 <none hash>     hasher: algorithm, block size, seed (or -, or ? and the
 *                                       random bytes that were drawn), NONE_HASH
 *      r ...                            a request: see hash_case.h
 *      a w 40 <8 bytes of each hash>    40 tokens of class w in one call; the new blocks' hashes
 *      e <digest>                       the request's last hash, whole
 *      b P C S N K T <digest>           one block: parent (@: the block before), class, seed,
 *                                       number of tokens, extra keys, strings
 *      k, j, x                          key with group id; joined hashes; form in events
 *
 * A hash depends on every byte of the one before, so the first bytes of each and the whole last one
 * leave nothing out.
 */
#include "base/quirks_kit.h"
#include "parity/hash_case.h"
#include "parity/stream.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 65536, MAX_EXTRA_BYTES = 65535, MAX_PARENT = 64, PREFIX_DIGITS = 16 };

static const char *path;
static bool is_committed;

/* What a committed recording must have in it. */
enum {
    SEEN_LORA = 1 << 8, /* the bits below: algorithms */
    SEEN_SALT = 1 << 9,
    SEEN_FEATURES = 1 << 10,
    SEEN_EMBEDS = 1 << 11,
    SEEN_WIDE_TOKENS = 1 << 12,
    SEEN_HUGE_BLOCK = 1 << 13,
    SEEN_SAME_STRING_TWICE = 1 << 14,
    SEEN_PARENT_16 = 1 << 15,
    SEEN_PARENT_32 = 1 << 16,
    SEEN_ALL = 0x1ff0f,
    SEEN_PATH = 1 << 17, /* from here on of vLLM 0.32.0 alone */
    SEEN_SAME_PATH = 1 << 18,
    SEEN_DEFAULT_SEED = 1 << 19,
    SEEN_DRAWN_SEED = 1 << 20,
    SEEN_ALL_0_32 = SEEN_ALL | SEEN_PATH | SEEN_SAME_PATH | SEEN_DEFAULT_SEED | SEEN_DRAWN_SEED
};

typedef struct hash_case {
    recording r;
    quire_hasher_config config; /* quirks, and a profile of its own: as the test wants them */
    bool has_own_profile;       /* else: the recording's */
    bool may_differ;            /* requests whose hashes differ are counted */
    unsigned differing_requests;
    unsigned seen;
    quire_hasher *hasher;
    uint32_t block_size;
    size_t digest_bytes;
    void *chain_memory;
    quire_chain *chain;
    case_request request;
    bool request_differs;
    unsigned char last[QUIRE_MAX_DIGEST_BYTES]; /* hash of the block before */
} hash_case;

static void expect_ok(hash_case *c, int status)
{
    if (status != QUIRE_OK)
        recording_differs(&c->r, "status", "QUIRE_OK", quire_status_name(status));
}

/* ---- hashers --------------------------------------------------------------- */

/* Gives the bytes that vLLM drew. */
static int draw_recorded(void *user, void *out, size_t bytes)
{
    const quire_bytes *drawn = user;
    if (bytes != drawn->len)
        return -1;
    memcpy(out, drawn->data, bytes);
    return 0;
}

/* Where NONE_HASH comes from. drawn points to MAX_PARENT bytes. */
static void read_seed(hash_case *c, char *word, quire_bytes none_hash, quire_hasher_config *config,
                      quire_bytes *drawn)
{
    recording *r = &c->r;
    bool is_0_32 = r->profile == QUIRE_PROFILE_VLLM_0_32;
    if (word[0] == '?') {
        drawn->len = strlen(word + 1) / 2;
        recording_hex(r, word + 1, (unsigned char *)(uintptr_t)drawn->data, MAX_PARENT);
        config->hooks.user = drawn;
        config->hooks.random_bytes = draw_recorded;
        c->seen |= SEEN_DRAWN_SEED;
    } else if (strcmp(word, "-") != 0) {
        config->seed = case_text_read(r, word);
    } else if (is_0_32) {
        c->seen |= SEEN_DEFAULT_SEED; /* the hasher knows it */
    } else {
        config->none_hash = none_hash;
    }
}

static void start_hasher(hash_case *c)
{
    recording *r = &c->r;
    unsigned char none_hash[MAX_PARENT];
    unsigned char room[MAX_PARENT];
    quire_bytes drawn = {room, 0};
    quire_hasher_config config = c->config;
    if (!c->has_own_profile)
        config.profile = r->profile;
    expect_ok(c, quire_hash_algo_by_name(recording_word(r), &config.algo));
    c->seen |= 1U << config.algo;
    config.block_size = recording_u32(r);
    config.max_extra_bytes = MAX_EXTRA_BYTES;
    char *seed = recording_word(r);
    const char *none_hash_word = recording_word(r);
    size_t none_hash_len = recording_hex(r, none_hash_word, none_hash, sizeof none_hash);
    read_seed(c, seed, (quire_bytes){none_hash, none_hash_len}, &config, &drawn);
    quire_hasher_destroy(c->hasher);
    expect_ok(c, quire_hasher_create(&config, NULL, &c->hasher));
    free((void *)(uintptr_t)config.seed.data);
    quire_bytes got = quire_hasher_get_info(c->hasher).none_hash;
    recording_expect(r, got.len == none_hash_len, "length of NONE_HASH");
    recording_check_bytes(r, "NONE_HASH", none_hash_word, got.data, got.len);
    c->block_size = config.block_size;
    c->digest_bytes = quire_hash_digest_bytes(config.algo);
    free(c->chain_memory);
    c->chain_memory = malloc(quire_chain_bytes(c->hasher));
    assert_non_null(c->chain_memory);
}

/* ---- requests -------------------------------------------------------------- */

static void start_request(hash_case *c)
{
    case_request_free(&c->request);
    case_request_read(&c->r, &c->request);
    const quire_extra_keys *extra = &c->request.extra;
    c->seen |= extra->lora_name.data != NULL ? SEEN_LORA : 0;
    c->seen |= extra->lora_path.data != NULL ? SEEN_PATH : 0;
    c->seen |= extra->cache_salt.data != NULL ? SEEN_SALT : 0;
    c->seen |= extra->num_mm_features > 1 ? SEEN_FEATURES : 0;
    c->seen |= extra->prompt_embeds != NULL ? SEEN_EMBEDS : 0;
    c->request_differs = false;
    expect_ok(
        c, quire_chain_init(c->hasher, c->chain_memory, quire_chain_bytes(c->hasher), &c->chain));
}

/* The hashes of one call, of which the recording has the beginnings, one after the other. */
static void check_hashes(hash_case *c, const char *prefixes, const unsigned char *digests,
                         size_t count)
{
    size_t expected = strcmp(prefixes, "-") == 0 ? 0 : strlen(prefixes) / PREFIX_DIGITS;
    recording_expect(&c->r, expected == count, "number of new hashes");
    for (size_t i = 0; i < count; i++) {
        char prefix[PREFIX_DIGITS + 1] = {0};
        unsigned char wanted[PREFIX_DIGITS / 2];
        memcpy(prefix, prefixes + i * PREFIX_DIGITS, PREFIX_DIGITS);
        recording_hex(&c->r, prefix, wanted, sizeof wanted);
        bool same = memcmp(wanted, digests + i * c->digest_bytes, sizeof wanted) == 0;
        if (!same && !c->may_differ)
            recording_check_bytes(&c->r, "hash of a block", prefix, digests + i * c->digest_bytes,
                                  c->digest_bytes);
        c->request_differs = c->request_differs || !same;
    }
    c->r.compared += count;
}

static void append_tokens(hash_case *c)
{
    char kind = recording_word(&c->r)[0];
    size_t n = recording_u32(&c->r);
    quire_token *tokens = malloc((n + 1) * sizeof *tokens);
    unsigned char *digests = malloc((n + 1) * c->digest_bytes);
    size_t num_new = 0;
    assert_non_null(tokens);
    assert_non_null(digests);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (quire_token)stream_token(kind, stream_next(&c->request.stream));
    expect_ok(c, quire_chain_append(c->hasher, c->chain, tokens, n, &c->request.extra, digests,
                                    n + 1, &num_new));
    check_hashes(c, recording_word(&c->r), digests, num_new);
    if (num_new > 0)
        memcpy(c->last, digests + (num_new - 1) * c->digest_bytes, c->digest_bytes);
    free(tokens);
    free(digests);
}

static void end_request(hash_case *c)
{
    const char *whole = recording_word(&c->r);
    if (quire_chain_get_num_tokens(c->chain) < c->block_size)
        recording_expect(&c->r, strcmp(whole, "-") == 0, "a request without a full block");
    else if (!c->may_differ)
        recording_check_bytes(&c->r, "last hash", whole, c->last, c->digest_bytes);
    if (c->request_differs)
        recording_expect(&c->r, c->request.extra.num_mm_features > 1,
                         "only requests with several features differ");
    c->differing_requests += c->request_differs;
}

/* ---- single blocks --------------------------------------------------------- */

static quire_bytes read_parent(hash_case *c, unsigned char *memory)
{
    const char *word = recording_word(&c->r);
    if (strcmp(word, "-") == 0)
        return (quire_bytes){NULL, 0};
    if (strcmp(word, "@") == 0)
        return (quire_bytes){c->last, c->digest_bytes};
    size_t len = recording_hex(&c->r, word, memory, MAX_PARENT);
    c->seen |= len == 16 ? SEEN_PARENT_16 : 0;
    c->seen |= len == 32 ? SEEN_PARENT_32 : 0;
    return (quire_bytes){memory, len};
}

static void note_keys(hash_case *c, const case_keys *keys)
{
    for (uint32_t i = 0; i < keys->count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (keys->items[i].value.data == keys->items[j].value.data)
                c->seen |= keys->items[i].kind == QUIRE_KEY_LORA_PATH ? SEEN_SAME_PATH
                                                                      : SEEN_SAME_STRING_TWICE;
}

/* Tokens that fit 32 bits go through both forms of the call. */
static void hash_block(hash_case *c)
{
    static int64_t tokens64[MAX_TOKENS];
    static quire_token tokens[MAX_TOKENS];
    unsigned char memory[MAX_PARENT];
    unsigned char digest[QUIRE_MAX_DIGEST_BYTES] = {0};
    unsigned char narrow[QUIRE_MAX_DIGEST_BYTES] = {0};
    case_keys keys = {0};
    quire_bytes parent = read_parent(c, memory);
    char kind = recording_word(&c->r)[0];
    uint64_t state = recording_number(&c->r);
    size_t n = recording_u32(&c->r);
    bool is_wide = kind == 'l' || kind == 'E';
    recording_expect(&c->r, n <= MAX_TOKENS, "block fits");
    case_keys_read(&c->r, &keys);
    note_keys(c, &keys);
    c->seen |= is_wide ? SEEN_WIDE_TOKENS : 0;
    c->seen |= n >= 20000 ? SEEN_HUGE_BLOCK : 0;
    for (size_t i = 0; i < n; i++) {
        tokens64[i] = stream_token(kind, stream_next(&state));
        tokens[i] = is_wide ? 0 : (quire_token)tokens64[i];
    }
    expect_ok(c, quire_hasher_hash_block64(c->hasher, parent, tokens64, n, keys.items, keys.count,
                                           digest));
    if (!is_wide) {
        expect_ok(c, quire_hasher_hash_block(c->hasher, parent, tokens, n, keys.items, keys.count,
                                             narrow));
        recording_expect(&c->r, memcmp(narrow, digest, c->digest_bytes) == 0,
                         "both forms of the call give one hash");
    }
    recording_check_bytes(&c->r, "hash of a block", recording_word(&c->r), digest, c->digest_bytes);
    memcpy(c->last, digest, c->digest_bytes);
    case_keys_free(&keys);
    c->r.compared++;
}

/* ---- keys made of hashes --------------------------------------------------- */

static void check_key(hash_case *c)
{
    unsigned char hash[MAX_PARENT];
    unsigned char key[MAX_PARENT + 4];
    uint32_t group = recording_u32(&c->r);
    uint32_t group_again = 0;
    quire_bytes again;
    size_t len = recording_hex(&c->r, recording_word(&c->r), hash, sizeof hash);
    expect_ok(c, quire_hash_make_key((quire_bytes){hash, len}, group, key));
    recording_check_bytes(&c->r, "key", recording_word(&c->r), key, len + 4);
    expect_ok(c, quire_hash_split_key((quire_bytes){key, len + 4}, &again, &group_again));
    recording_expect(&c->r, group_again == group, "group id of a key");
    recording_expect(&c->r, again.len == len && memcmp(again.data, hash, len) == 0,
                     "hash of a key");
    c->r.compared++;
}

/* Quire takes the hash of a larger block where the smaller ones' lie. In vLLM 0.20.0 it is all of
 * them, in 0.32.0 the last one. */
static void check_joined(hash_case *c)
{
    unsigned char hashes[16 * QUIRE_MAX_DIGEST_BYTES];
    size_t scale = recording_u32(&c->r);
    size_t len = recording_hex(&c->r, recording_word(&c->r), hashes, sizeof hashes);
    char *joined = recording_word(&c->r);
    bool is_last = c->r.profile == QUIRE_PROFILE_VLLM_0_32;
    size_t step = scale * c->digest_bytes;
    size_t hash_len = is_last ? c->digest_bytes : step;
    size_t skipped = step - hash_len;
    size_t at = 0;
    if (strcmp(joined, "-") != 0) {
        for (char *word = strsep(&joined, ","); word != NULL; word = strsep(&joined, ",")) {
            recording_expect(&c->r, at + step <= len && strlen(word) == 2 * hash_len,
                             "length of a joined hash");
            recording_check_bytes(&c->r, "joined hash", word, hashes + at + skipped, hash_len);
            at += step;
        }
    }
    recording_expect(&c->r, len - at < step, "number of joined hashes");
    c->r.compared++;
}

static void check_external(hash_case *c)
{
    unsigned char hash[16 * QUIRE_MAX_DIGEST_BYTES];
    char got[17];
    size_t len = recording_hex(&c->r, recording_word(&c->r), hash, sizeof hash);
    const char *expected = recording_word(&c->r);
    snprintf(got, sizeof got, "%" PRIx64, quire_hash_external((quire_bytes){hash, len}));
    if (strcmp(got, expected) != 0)
        recording_differs(&c->r, "form in events", expected, got);
    c->r.compared++;
}

/* ---- the recording --------------------------------------------------------- */

static void replay(hash_case *c)
{
    static const struct {
        char letter;
        void (*run)(hash_case *c);
    } operations[] = {{'h', start_hasher}, {'r', start_request}, {'a', append_tokens},
                      {'e', end_request},  {'b', hash_block},    {'k', check_key},
                      {'j', check_joined}, {'x', check_external}};
    recording_open(&c->r, path, "hash");
    while (recording_next(&c->r)) {
        char letter = recording_word(&c->r)[0];
        size_t i = 0;
        size_t count = sizeof operations / sizeof operations[0];
        while (i < count && operations[i].letter != letter)
            i++;
        recording_expect(&c->r, i < count, "operation is known");
        operations[i].run(c);
        recording_expect(&c->r, c->r.cursor == NULL, "line ends here");
    }
    case_request_free(&c->request);
    quire_hasher_destroy(c->hasher);
    free(c->chain_memory);
    recording_close(&c->r);
}

static bool is_0_32(void)
{
    recording r;
    recording_open(&r, path, "hash");
    quire_profile profile = r.profile;
    fclose(r.file);
    free(r.line);
    return profile == QUIRE_PROFILE_VLLM_0_32;
}

static void hashes_are_those_of_vllm(void **state)
{
    (void)state;
    hash_case c = {.config = QUIRE_HASHER_CONFIG_INIT};
    replay(&c);
    unsigned wanted = is_0_32() ? SEEN_ALL_0_32 : SEEN_ALL;
    if (is_committed)
        assert_int_equal(c.seen & wanted, wanted);
}

static void default_profile_with_the_quirk_is_the_same(void **state)
{
    (void)state;
    hash_case c = {.config = QUIRE_HASHER_CONFIG_INIT, .has_own_profile = true};
    if (is_0_32())
        skip(); /* its extra keys have tags */
    quirks_change(QR_QUIRK(MM_LAST_FEATURE), 0);
    replay(&c);
    quirks_change(0, 0);
}

/* Some requests must get other hashes, and only such with several features. */
static void quirk_shows_when_it_is_changed(void **state)
{
    (void)state;
    hash_case c = {.config = QUIRE_HASHER_CONFIG_INIT, .may_differ = true};
    uint64_t quirk = QR_QUIRK(MM_LAST_FEATURE); /* of vLLM 0.20.0, and not of 0.32.0 */
    quirks_change(is_0_32() ? quirk : 0, is_0_32() ? 0 : quirk);
    replay(&c);
    quirks_change(0, 0);
    print_message("with the quirk changed %u requests have other hashes\n", c.differing_requests);
    if (is_committed)
        assert_true(c.differing_requests > 0);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/hash.txt");
    is_committed = strncmp(path, QUIRE_TEST_DATA, strlen(QUIRE_TEST_DATA)) == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_vllm),
        cmocka_unit_test(default_profile_with_the_quirk_is_the_same),
        cmocka_unit_test(quirk_shows_when_it_is_changed),
    };
    return cmocka_run_group_tests_name("parity_hash", tests, NULL, NULL);
}
