/* sched/requests/test_sched_hashes.c - hashes that the caller has made, and prompts of
 * embeddings: the same
 * names for blocks as a chain gives that hashes the whole text in one call. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { MAX_TOKENS = 3000, ROW = 6 };

static sched_kit kit;
static quire_token text[MAX_TOKENS];
static unsigned char hashes[MAX_TOKENS / KIT_BLOCK * QUIRE_MAX_DIGEST_BYTES];
static unsigned char rows[MAX_TOKENS * ROW];

static quire_sched_config profile_config(quire_hash_algo algo, quire_profile profile)
{
    quire_sched_config config = kit_config(&kit);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher_destroy(kit.hasher);
    hasher.algo = algo;
    hasher.profile = profile;
    hasher.block_size = KIT_BLOCK;
    hasher.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hasher, NULL, &kit.hasher), QUIRE_OK);
    config.hasher = kit.hasher;
    config.cache->digest_bytes = (uint32_t)quire_hash_digest_bytes(algo);
    for (uint32_t i = 0; i < MAX_TOKENS; i++)
        text[i] = (quire_token)(i % 7);
    for (uint32_t i = 0; i < sizeof rows; i++)
        rows[i] = (unsigned char)(i * 37 + i / 251);
    return config;
}

static quire_sched_config hashes_config(quire_hash_algo algo)
{
    return profile_config(algo, QUIRE_PROFILE_VLLM_0_20);
}

/* All hashes of the first n tokens, in one call; returns how many. */
static uint32_t make_hashes(uint32_t n, const quire_extra_keys *extra)
{
    quire_chain *chain;
    size_t bytes = quire_chain_bytes(kit.hasher);
    void *memory = malloc(bytes);
    size_t count;
    assert_int_equal(quire_chain_init(kit.hasher, memory, bytes, &chain), QUIRE_OK);
    assert_int_equal(quire_chain_append(kit.hasher, chain, text, n, extra, hashes,
                                        sizeof hashes / QUIRE_MAX_DIGEST_BYTES, &count),
                     QUIRE_OK);
    free(memory);
    return (uint32_t)count;
}

static quire_request_params text_params(const char *id, uint32_t n)
{
    quire_request_params p = {.size = sizeof(quire_request_params), .max_tokens = 30};
    p.id = (quire_bytes){id, strlen(id)};
    p.prompt = text;
    p.num_prompt_tokens = n;
    return p;
}

static quire_req add(const quire_request_params *p)
{
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit.sched, p, &req), QUIRE_OK);
    return req;
}

/* Runs a request for its first token and ends it; returns how many tokens were found. */
static uint32_t hit_of(const quire_request_params *p)
{
    quire_req req = add(p);
    kit_run(&kit, 1);
    assert_int_equal(kit.outputs->num_outputs, 1);
    uint32_t hit = kit.outputs->outputs[0].num_local_cached;
    assert_int_equal(quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    return hit;
}

/* ---- ready-made -------------------------------------------------------------- */

static void hashes_are_those_of_the_scheduler(void **state)
{
    (void)state;
    for (quire_hash_algo algo = QUIRE_HASH_SHA256; quire_hash_digest_bytes(algo) > 0; algo++) {
        quire_sched_config config = hashes_config(algo);
        kit_open(&kit, &config);
        quire_request_params p = text_params("a", 23);
        assert_int_equal(hit_of(&p), 0);
        uint32_t count = make_hashes(23, NULL);
        assert_int_equal(count, 5);
        p.hashes = hashes;
        for (p.num_hashes = 0; p.num_hashes <= count; p.num_hashes++)
            assert_int_equal(hit_of(&p), 20);
        hashes[3 * config.cache->digest_bytes] ^= 1; /* they are believed: the rest hangs on them */
        p.num_hashes = 4;
        assert_int_equal(hit_of(&p), 12);
        assert_int_equal(hit_of(&p), 20);
        kit_close(&kit);
    }
}

static void hashes_that_cannot_be(void **state)
{
    (void)state;
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    kit_open(&kit, &config);
    quire_request_params p = text_params("a", 11);
    quire_req req;
    p.num_hashes = 2;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_ARGUMENT);
    p.hashes = hashes;
    p.num_hashes = 3;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, 0);
    p.num_hashes = 2;
    p.prompt = NULL;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_ARGUMENT);
    kit_close(&kit);
    config = hashes_config(QUIRE_HASH_SHA256);
    config.cache->enable_caching = QUIRE_OFF; /* not looked at */
    kit_open(&kit, &config);
    p.prompt = text;
    p.num_hashes = 3;
    p.prompt_embeds = rows;
    p.prompt_embed_bytes = ROW;
    add(&p);
    for (uint32_t i = 0; i < 6; i++)
        kit_run(&kit, 1);
    kit_close(&kit);
}

/* Keys that are too long are refused where a block is still to be hashed with them, too. */
static void keys_are_checked_before(void **state)
{
    (void)state;
    static char name[1200];
    memset(name, 'x', sizeof name);
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher_destroy(kit.hasher);
    hasher.block_size = KIT_BLOCK;
    hasher.max_extra_bytes = 1024;
    assert_int_equal(quire_hasher_create(&hasher, NULL, &kit.hasher), QUIRE_OK);
    config.hasher = kit.hasher;
    kit_open(&kit, &config);
    for (uint32_t n = 8; n < 10; n++) {
        quire_request_params p = text_params("a", n);
        quire_req req;
        p.lora_name = (quire_bytes){name, sizeof name};
        p.lora_id = 1;
        p.hashes = hashes;
        p.num_hashes = 2;
        assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_RANGE);
    }
    kit_close(&kit);
}

/* A prompt of several pages, with images in all of them, is hashed as by one call: vLLM's bug of
 * the last feature is for what follows, not for a prompt. */
static void images_on_many_pages(void **state)
{
    (void)state;
    enum { N = 2500 };
    static const char *const names = "abcde";
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256_CBOR);
    config.cache->max_model_len = MAX_TOKENS;
    config.cache->num_blocks = 2 * MAX_TOKENS / KIT_BLOCK;
    config.max_num_batched_tokens = MAX_TOKENS;
    config.encoder_compute_budget = MAX_TOKENS;
    config.encoder_cache_size = MAX_TOKENS;
    kit_open(&kit, &config);
    quire_mm_input images[5];
    quire_mm_feature features[5];
    for (uint32_t i = 0; i < 5; i++) {
        features[i] = (quire_mm_feature){{&names[i], 1}, 400 * (i + 1), 300};
        images[i] = (quire_mm_input){.feature = features[i]};
    }
    quire_request_params p = text_params("a", N);
    p.mm_inputs = images;
    p.num_mm_inputs = 5;
    assert_int_equal(hit_of(&p), 0);
    p.num_hashes = make_hashes(
        N, &(quire_extra_keys){.size = sizeof(quire_extra_keys), .mm_features = features, 5});
    p.hashes = hashes;
    assert_int_equal(hit_of(&p), N - KIT_BLOCK);
    p.num_hashes = 300; /* the rest is made, from the middle of a page on */
    assert_int_equal(hit_of(&p), N - KIT_BLOCK);
    kit_close(&kit);
}

/* The path of an adapter is hashed in the profile of vLLM 0.32 alone. */
static void another_path_is_another_adapter(void **state)
{
    (void)state;
    for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
        bool is_hashed = profile == QUIRE_PROFILE_VLLM_0_32;
        quire_sched_config config = profile_config(QUIRE_HASH_SHA256, (quire_profile)profile);
        kit_open(&kit, &config);
        quire_request_params p = text_params("a", 23);
        p.lora_id = 1;
        p.lora_name = (quire_bytes){"adapter", 7};
        p.lora_path = (quire_bytes){"/a/b", 4};
        assert_int_equal(hit_of(&p), 0);
        assert_int_equal(hit_of(&p), 20);
        p.lora_path = (quire_bytes){"/a/c", 4};
        assert_int_equal(hit_of(&p), is_hashed ? 0 : 20);
        p.lora_path = (quire_bytes){NULL, 0};
        assert_int_equal(hit_of(&p), is_hashed ? 0 : 20);
        p.lora_path = (quire_bytes){NULL, 4};
        quire_req req;
        assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_ARGUMENT);
        kit_close(&kit);
    }
}

/* ---- pages ----------------------------------------------------------------------- */

/* A request that waits is looked up in every step: its hashes are copied from their pages once. */
static void all_hashes_stay_where_they_were_copied(void **state)
{
    (void)state;
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    config.cache->max_model_len = MAX_TOKENS;
    config.cache->num_blocks = 2 * MAX_TOKENS / KIT_BLOCK;
    kit_open(&kit, &config);
    quire_request_params p = text_params("a", 2500);
    quire_req req = add(&p);
    qr_text_store *store = &kit.sched->texts.store;
    const qr_request *r = &kit.sched->table.requests[quire_req_index(req)];
    uint32_t n = r->kv.num_hashes;
    assert_true(n > store->page_hashes);
    for (uint32_t i = 0; i < n; i++)
        assert_memory_equal(qr_text_all_hashes(store, &r->text, n) + i * store->digest_bytes,
                            qr_text_hash(store, &r->text, i), store->digest_bytes);
    unsigned char first = store->all_row[0];
    store->all_row[0] ^= 1;
    assert_int_equal(qr_text_all_hashes(store, &r->text, n)[0], first ^ 1);
    qr_text_hashes_change(store, &r->text);
    assert_int_equal(qr_text_all_hashes(store, &r->text, n)[0], first);
    kit_close(&kit);
}

/* A step takes the page for the token that it will give, so that the update finds it. */
static void a_step_takes_the_page_of_its_token(void **state)
{
    (void)state;
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    config.cache->max_model_len = MAX_TOKENS;
    config.cache->num_blocks = 2 * MAX_TOKENS / KIT_BLOCK;
    config.max_num_batched_tokens = MAX_TOKENS;
    kit_open(&kit, &config);
    uint32_t page_tokens = kit.sched->texts.store.page_tokens;
    quire_request_params p = text_params("a", page_tokens - 1);
    quire_req req = add(&p);
    const qr_text *own = &kit.sched->table.requests[quire_req_index(req)].text;
    for (uint32_t i = 0; i < 3; i++) {
        kit_step(&kit);
        assert_int_equal(own->num_tokens, page_tokens - 1 + i);
        assert_int_equal(own->num_pages, i == 0 ? 1 : 2);
        kit_answer(&kit, kit.step->step, 1);
    }
    kit_close(&kit);
}

static void a_text_that_was_released_has_no_tail(void **state)
{
    (void)state;
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    uint32_t pages[KIT_LEN];
    qr_text own = {.pages = pages};
    kit_open(&kit, &config);
    qr_text_store *store = &kit.sched->texts.store;
    uint32_t num_free = store->num_free;
    assert_true(qr_text_reserve(store, &own, 3));
    qr_text_append(store, &own, text, 3);
    assert_non_null(own.tail);
    qr_text_release(store, &own);
    assert_null(own.tail);
    assert_int_equal(own.num_tokens + own.num_pages, 0);
    assert_int_equal(store->num_free, num_free);
    kit_close(&kit);
}

/* ---- sessions --------------------------------------------------------------------- */

/* Whether an input with one image may follow a prompt with two: each needs 24 bytes and its name,
 * adapter and salt 24 bytes each, and so does a path of four bytes, where it is hashed. */
static int continue_with_image(quire_profile profile, uint32_t max_extra_bytes)
{
    static const char *const names = "abc";
    quire_sched_config config = kit_config(&kit);
    quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
    quire_hasher_destroy(kit.hasher);
    hasher.block_size = KIT_BLOCK;
    hasher.max_extra_bytes = max_extra_bytes;
    hasher.profile = profile;
    assert_int_equal(quire_hasher_create(&hasher, NULL, &kit.hasher), QUIRE_OK);
    config.hasher = kit.hasher;
    config.encoder_compute_budget = 8;
    config.encoder_cache_size = 8;
    kit_open(&kit, &config);
    quire_mm_input images[3];
    for (uint32_t i = 0; i < 3; i++)
        images[i] = (quire_mm_input){.feature = {{&names[i], 1}, i % 2, 1}};
    quire_request_params p = text_params("s", 5);
    p.lora_path = (quire_bytes){"/a/b", 4};
    p.is_resumable = 1;
    p.mm_inputs = images;
    p.num_mm_inputs = 2;
    quire_req req = add(&p);
    p.mm_inputs = &images[2];
    p.num_mm_inputs = 1;
    int status = quire_sched_continue(kit.sched, req, &p);
    kit_close(&kit);
    return status;
}

static void keys_of_inputs_are_checked_before(void **state)
{
    (void)state;
    for (int profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32; profile++) {
        uint32_t most = profile == QUIRE_PROFILE_VLLM_0_32 ? 6 * 24 + 7 : 5 * 24 + 3;
        assert_int_equal(continue_with_image((quire_profile)profile, most), QUIRE_OK);
        assert_int_equal(continue_with_image((quire_profile)profile, most - 1), QUIRE_E_RANGE);
    }
}

/* ---- embeddings ---------------------------------------------------------------- */

/* n rows, then output up to 20 tokens: every block has the name that one call gives it. */
static void check_embeds(quire_hash_algo algo, quire_profile profile, uint32_t n,
                         bool is_ready_made)
{
    quire_sched_config config = profile_config(algo, profile);
    kit_open(&kit, &config);
    quire_bytes lora = {"adapter", 7};
    quire_extra_keys extra = {.size = sizeof(quire_extra_keys),
                              .lora_name = lora,
                              .lora_path = {"/a/b", 4},
                              .prompt_embeds = rows,
                              .prompt_embed_bytes = ROW,
                              .num_prompt_embeds = n};
    memset(text, 0, sizeof text);
    quire_request_params p = text_params("a", n);
    p.prompt = NULL;
    p.lora_name = lora;
    p.lora_path = extra.lora_path;
    p.lora_id = 1;
    p.prompt_embeds = rows;
    p.prompt_embed_bytes = ROW;
    p.num_hashes = is_ready_made ? make_hashes(n, &extra) : 0;
    p.hashes = hashes;
    quire_req req = add(&p);
    while (n < 21) {
        text[n] = (quire_token)(100 + n);
        kit_run(&kit, text[n]);
        n++;
    }
    assert_int_equal(kit_info(&kit, req).num_tokens, n);
    assert_int_equal(quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    p = text_params("b", n);
    p.lora_id = 1;
    p.num_hashes = make_hashes(n, &extra);
    p.hashes = hashes;
    assert_int_equal(hit_of(&p), 20);
    p.num_hashes = 0; /* tokens alone are something else */
    assert_int_equal(hit_of(&p), 0);
    kit_close(&kit);
}

static void embeddings_name_their_blocks(void **state)
{
    (void)state;
    for (quire_hash_algo algo = QUIRE_HASH_SHA256; quire_hash_digest_bytes(algo) > 0; algo++)
        for (uint32_t n = 1; n < 14; n++) {
            check_embeds(algo, QUIRE_PROFILE_VLLM_0_20, n, false);
            check_embeds(algo, QUIRE_PROFILE_VLLM_0_20, n, true);
            check_embeds(algo, QUIRE_PROFILE_VLLM_0_32, n, false);
            check_embeds(algo, QUIRE_PROFILE_VLLM_0_32, n, true);
        }
}

static void no_sessions_of_embeddings(void **state)
{
    (void)state;
    quire_sched_config config = hashes_config(QUIRE_HASH_SHA256);
    kit_open(&kit, &config);
    quire_request_params p = text_params("a", 5);
    quire_req req;
    p.is_resumable = 1;
    p.prompt_embeds = rows;
    p.prompt_embed_bytes = ROW;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_E_ARGUMENT);
    p.prompt_embeds = NULL;
    req = add(&p);
    p.is_resumable = 0;
    p.prompt_embeds = rows;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_those_of_the_scheduler),
        cmocka_unit_test(hashes_that_cannot_be),
        cmocka_unit_test(keys_are_checked_before),
        cmocka_unit_test(images_on_many_pages),
        cmocka_unit_test(another_path_is_another_adapter),
        cmocka_unit_test(all_hashes_stay_where_they_were_copied),
        cmocka_unit_test(a_step_takes_the_page_of_its_token),
        cmocka_unit_test(a_text_that_was_released_has_no_tail),
        cmocka_unit_test(keys_of_inputs_are_checked_before),
        cmocka_unit_test(embeddings_name_their_blocks),
        cmocka_unit_test(no_sessions_of_embeddings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
